"""`proxyless status ADDR`: shows the resources that the xDS clients of a process hold.

It sends a request to the process's CSDS, ours (`proxyless.admin.add_servicers`) or that of any
other gRPC implementation, and prints each resource with its status, version and error.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from proxyless.cli.arguments import parse_address, parse_timeout
from proxyless.cli.output import JSON, add_output_option, fail, print_json, print_lines, print_table
from proxyless.observe import CSDS_SERVICE, ClientStatus, ResourceRow, read_status
from proxyless.protos import Proto, descriptor_pool_of_envoy, message_class

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

TIMEOUT_S: Final = 5.0
RESPONSE_BYTES_MAX: Final = 32 * 1024 * 1024

_STATUS: Final = "envoy.service.status.v3"
_COLUMNS: Final = ("target", "type", "name", "status", "version", "error")
_STYLES: Final = {
    "ACKED": "green",
    "REQUESTED": "yellow",
    **dict.fromkeys(("NACKED", "DOES_NOT_EXIST", "RECEIVED_ERROR", "TIMEOUT"), "bold red"),
}


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show the resources of the process at ADDR and their state, through CSDS."
    parser.add_argument(
        "address",
        metavar="ADDR",
        type=parse_address,
        help="admin address of the process: host:port or unix:path",
    )
    parser.add_argument(
        "--contents", action="store_true", help="include the resources themselves; only in JSON"
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=parse_timeout,
        default=TIMEOUT_S,
        help="deadline of the request (default: %(default)s)",
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the resources; returns 1 if the request fails."""
    try:
        response = fetch(parsed.address, parsed.timeout, has_contents=parsed.contents)
    except grpc.RpcError as error:
        return fail("status", [describe_failure(parsed.address, error)])
    clients = read_status(response)
    if parsed.output == JSON:
        print_json([_to_json(client) for client in clients])
    elif clients:
        print_table(_COLUMNS, _rows(clients), styles=_STYLES)
    else:
        print_lines("no xDS client is running there")
    return 0


def fetch(address: str, timeout_s: float, *, has_contents: bool) -> Proto:
    """Request the status from a process's CSDS; raises grpc.RpcError."""
    request = message_class(f"{_STATUS}.ClientStatusRequest")(
        exclude_resource_contents=not has_contents
    )
    options = [("grpc.max_receive_message_length", RESPONSE_BYTES_MAX)]
    with grpc.insecure_channel(address, options) as channel:
        call = channel.unary_unary(
            f"/{CSDS_SERVICE}/FetchClientStatus",
            request_serializer=message_class(f"{_STATUS}.ClientStatusRequest").SerializeToString,
            response_deserializer=message_class(f"{_STATUS}.ClientStatusResponse").FromString,
        )
        return call(request, timeout=timeout_s)


def describe_failure(address: str, error: grpc.RpcError) -> str:
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return f"{address!r} has no CSDS, wanted the port of proxyless.admin.add_servicers"
    return f"{address!r}: {error.code().name}: {error.details()}"


def _rows(clients: Sequence[ClientStatus]) -> Iterator[Sequence[str]]:
    for client in clients:
        if not client.resources:
            yield client.scope, "", "", "nothing is watched", "", ""
        for row in client.resources:
            kind = row.type_url.rpartition(".")[2]
            yield client.scope, kind, row.name, row.status, row.version, row.error


def _to_json(client: ClientStatus) -> dict[str, Any]:
    return {
        "target": client.scope,
        "node": client.node_id,
        "user_agent": client.user_agent,
        "resources": [_row_to_json(row) for row in client.resources],
    }


def _row_to_json(row: ResourceRow) -> dict[str, Any]:
    document: dict[str, Any] = {
        "type": row.type_url,
        "name": row.name,
        "status": row.status,
        "version": row.version,
        "updated": row.updated,
        "error": row.error,
        "failed_version": row.failed_version,
    }
    if row.value:
        document["resource"] = _decode(row)
    return document


def _decode(row: ResourceRow) -> Any:  # noqa: ANN401 - whatever the resource is in JSON
    """The resource as JSON, or its bytes in hex if its type is unknown."""
    try:
        message = message_class(row.type_url.rpartition("/")[2]).FromString(row.value)
        pool = descriptor_pool_of_envoy()
        return json.loads(json_format.MessageToJson(message, descriptor_pool=pool))
    except (KeyError, TypeError, DecodeError, json_format.Error):
        return {"serialized": row.value.hex()}
