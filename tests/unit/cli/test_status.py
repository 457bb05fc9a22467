"""Unit tests of proxyless.cli.status without sockets. Others are in tests/interop."""

import grpc

from proxyless.cli.status import _rows, _to_json, describe_failure
from proxyless.controlplane import CLUSTER
from proxyless.observe import ClientStatus, ResourceRow
from proxyless.protos import message_class


def row(type_url: str = CLUSTER, value: bytes = b"") -> ResourceRow:
    return ResourceRow(type_url, "a", "NACKED", "1", "", "is bad", "2", value)


def client(*rows: ResourceRow) -> ClientStatus:
    return ClientStatus("xds:///api", "me", "proxyless", rows)


def test_row_has_the_short_type_and_the_error() -> None:
    assert list(_rows([client(row())])) == [("xds:///api", "Cluster", "a", "NACKED", "1", "is bad")]


def test_client_without_resources_is_shown() -> None:
    ((scope, *_, status, _, _),) = _rows([client()])
    assert (scope, status) == ("xds:///api", "nothing is watched")


def test_contents_are_json_or_bytes_if_the_type_is_unknown() -> None:
    cluster = message_class("envoy.config.cluster.v3.Cluster")(name="a")
    document = _to_json(client(row(value=cluster.SerializeToString()), row("x/y.Z", b"\1")))
    known, unknown = document["resources"]
    assert known["resource"] == {"name": "a"}
    assert unknown["resource"] == {"serialized": "01"}
    assert "resource" not in _to_json(client(row()))["resources"][0]


class Failed(grpc.RpcError):  # type: ignore[misc]  # grpcio has no types.
    """Error of an RPC."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "some words"


def test_failure_text_names_missing_csds_or_the_status() -> None:
    assert describe_failure("h:1", Failed(grpc.StatusCode.UNAVAILABLE)) == (
        "'h:1': UNAVAILABLE: some words"
    )
    assert describe_failure("h:1", Failed(grpc.StatusCode.UNIMPLEMENTED)) == (
        "'h:1' has no CSDS, wanted the port of proxyless.admin.add_servicers"
    )
