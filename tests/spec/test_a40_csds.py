"""A40, CSDS: ClientStatusResponse with the resources of an xDS client."""

from __future__ import annotations

from typing import Any

import pytest

from proxyless.base import Locality
from proxyless.observe import ClientView, encode_status
from proxyless.protos import Proto, message_class
from proxyless.xds.bootstrap import Node
from proxyless.xds.client import ResourceStatus
from tests.worlds.xds_clients import GONE, XdsClientWorld, text

NODE = Node("edge-7", "edge", Locality("r", "z", "s"), {"K": "v"})


def client_config(world: XdsClientWorld, **settings: Any) -> Proto:  # noqa: ANN401
    """The only ClientConfig of the response, decoded from its serialized form."""
    view = ClientView("xds:///orders", NODE, world.client.dump(), epoch_offset_s=500.0)
    serialized = encode_status([view], **settings).SerializeToString()
    response = message_class("envoy.service.status.v3.ClientStatusResponse").FromString(serialized)
    (config,) = response.config
    return config


def entries(world: XdsClientWorld) -> dict[str, Proto]:
    return {entry.name: entry for entry in client_config(world).generic_xds_configs}


@pytest.mark.spec("A40-01", "A40-02")
def test_client_config_has_node_and_target() -> None:
    world = XdsClientWorld()
    config = client_config(world)
    assert config.client_scope == "xds:///orders"
    node = config.node
    assert (node.id, node.cluster, node.locality.zone) == ("edge-7", "edge", "z")
    assert dict(node.metadata) == {"K": "v"}
    assert node.user_agent_name == "proxyless"
    world.close()


@pytest.mark.spec("A40-03", "A40-04", "A40-07")
def test_a_resource_is_requested_and_then_acked_with_version_time_and_bytes() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    entry = entries(world)["x"]
    assert entry.client_status == ResourceStatus.REQUESTED.value
    assert entry.type_url == world.listeners.type_url
    assert not entry.version_info
    assert not entry.HasField("xds_config")
    assert not entry.HasField("last_updated")
    assert not entry.HasField("error_state")

    world.server().respond(world.listeners, text("x"), version="7")
    entry = entries(world)["x"]
    assert entry.client_status == ResourceStatus.ACKED.value
    assert entry.version_info == "7"
    assert entry.xds_config.type_url == world.listeners.type_url
    assert entry.xds_config.value == text("x")
    # The clock of the client is at 1000 s.
    assert entry.last_updated.ToSeconds() == 1500
    world.close()


@pytest.mark.spec("A40-05")
def test_nacked_resource_has_the_version_in_use_and_the_error_state() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"), version="1")
    world.clock.advance(7)
    world.server().respond(world.listeners, text("x", "bad"), version="2")
    entry = entries(world)["x"]
    assert entry.client_status == ResourceStatus.NACKED.value
    assert (entry.version_info, entry.xds_config.value) == ("1", text("x"))
    assert entry.error_state.version_info == "2"
    assert entry.error_state.last_update_attempt.ToSeconds() == 1507
    assert entry.error_state.details == 'listener "x": value is bad (node id "edge-7")'
    world.close()


@pytest.mark.spec("A40-10")
def test_accepted_update_ends_the_error_state_of_a_rejected_one() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"), version="1")
    world.server().respond(world.listeners, text("x", "bad"), version="2")
    assert entries(world)["x"].HasField("error_state")
    world.server().respond(world.listeners, text("x", "v3"), version="3")
    entry = entries(world)["x"]
    assert entry.client_status == ResourceStatus.ACKED.value
    assert (entry.version_info, entry.xds_config.value) == ("3", text("x", "v3"))
    assert not entry.HasField("error_state")
    world.close()


@pytest.mark.spec("A40-06")
def test_resource_does_not_exist_when_it_is_not_received_in_time() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.clock.advance(16)
    entry = entries(world)["x"]
    assert entry.client_status == ResourceStatus.DOES_NOT_EXIST.value
    assert not entry.HasField("xds_config")
    world.close()


@pytest.mark.spec("A40-11")
def test_contents_are_omitted_when_has_contents_is_false() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"), version="7")
    (entry,) = client_config(world, has_contents=False).generic_xds_configs
    assert entry.version_info == "7"
    assert not entry.HasField("xds_config")
    world.close()


def test_acked_resource_has_an_error_state_during_an_outage() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"), version="7")
    world.server().fail(GONE)
    world.settle()
    entry = entries(world)["x"]
    assert entry.client_status == ResourceStatus.ACKED.value
    assert "connection refused" in entry.error_state.details
    world.close()
