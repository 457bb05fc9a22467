"""Unit tests of proxyless.observe.csds: responses of other implementations."""

from proxyless.base import OK
from proxyless.observe.csds import RESPONSE, ClientView, ResourceRow, encode_status, read_status
from proxyless.protos import Proto, message_class
from proxyless.xds.bootstrap import Node
from proxyless.xds.client import ResourceDump, ResourceStatus


def response() -> Proto:
    message = message_class(RESPONSE)()
    config = message.config.add(client_scope="xds:///a")
    config.node.id = "me"
    config.node.user_agent_name = "gRPC"
    config.generic_xds_configs.add(type_url="t/x.Listener", name="l", client_status=3)
    return message


def test_rows_have_the_status_names_of_csds() -> None:
    (client,) = read_status(response())
    assert (client.scope, client.node_id, client.user_agent) == ("xds:///a", "me", "gRPC")
    assert client.resources == (ResourceRow("t/x.Listener", "l", "ACKED", "", "", "", "", b""),)


def test_unknown_status_is_shown_by_its_number() -> None:
    message = response()
    message.config[0].generic_xds_configs[0].client_status = 77
    (client,) = read_status(message)
    assert client.resources[0].status == "status 77"


def test_time_out_of_range_is_not_shown() -> None:
    message = response()
    message.config[0].generic_xds_configs[0].last_updated.seconds = 2**62
    (row,) = read_status(message)[0].resources
    assert row.updated == ""


def test_time_and_error_are_decoded() -> None:
    message = response()
    entry = message.config[0].generic_xds_configs[0]
    entry.last_updated.FromSeconds(1)
    entry.error_state.details = "is bad"
    entry.error_state.version_info = "2"
    (row,) = read_status(message)[0].resources
    assert (row.updated, row.error, row.failed_version) == ("1970-01-01T00:00:01Z", "is bad", "2")


def test_resource_from_the_config_cache_has_the_time_of_the_earlier_process() -> None:
    requested = ResourceStatus.REQUESTED
    dump = ResourceDump("t/x.Listener", "l", requested, "7", b"bytes", 0.0, OK, "", saved_s=90.0)
    view = ClientView("xds:///a", Node("me"), [dump], epoch_offset_s=500.0)
    (row,) = read_status(encode_status([view]))[0].resources
    assert (row.status, row.version, row.updated) == ("REQUESTED", "7", "1970-01-01T00:01:30Z")
