"""Unit tests of proxyless.cli.status: what needs no socket. The rest is in tests/interop."""

import grpc

from proxyless.cli.status import _rows, _to_json, describe_failure
from proxyless.controlplane import CLUSTER
from proxyless.observe import ClientStatus, ResourceRow
from proxyless.protos import message_class


def row(type_url: str = CLUSTER, value: bytes = b"") -> ResourceRow:
    return ResourceRow(type_url, "a", "NACKED", "1", "", "is bad", "2", value)


def client(*rows: ResourceRow) -> ClientStatus:
    return ClientStatus("xds:///api", "me", "proxyless", rows)


def test_a_row_has_the_short_type_and_the_error() -> None:
    assert list(_rows([client(row())])) == [("xds:///api", "Cluster", "a", "NACKED", "1", "is bad")]


def test_a_client_that_watches_nothing_is_shown() -> None:
    ((scope, *_, status, _, _),) = _rows([client()])
    assert (scope, status) == ("xds:///api", "nothing is watched")


def test_contents_are_json_if_we_know_the_type_and_bytes_if_not() -> None:
    cluster = message_class("envoy.config.cluster.v3.Cluster")(name="a")
    document = _to_json(client(row(value=cluster.SerializeToString()), row("x/y.Z", b"\1")))
    known, unknown = document["resources"]
    assert known["resource"] == {"name": "a"}
    assert unknown["resource"] == {"serialized": "01"}
    assert "resource" not in _to_json(client(row()))["resources"][0]


class Failed(grpc.RpcError):  # type: ignore[misc]  # grpcio has no types.
    """An RPC's error, as grpcio raises it."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "some words"


def test_a_port_of_something_else_is_told_apart_from_one_that_cannot_be_reached() -> None:
    assert describe_failure("h:1", Failed(grpc.StatusCode.UNAVAILABLE)) == (
        "'h:1': UNAVAILABLE: some words"
    )
    assert describe_failure("h:1", Failed(grpc.StatusCode.UNIMPLEMENTED)) == (
        "'h:1' has no CSDS, wanted the port of proxyless.admin.add_servicers"
    )
