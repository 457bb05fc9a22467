"""`proxyless status ADDR`: shows the resources that the xDS clients of a process hold.

It sends a request to the process's CSDS, ours (`proxyless.admin.add_servicers`) or that of any
other gRPC implementation, and prints each resource with its status, version and error.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf import json_format

from proxyless.base.texts import count
from proxyless.cli.admin_client import TIMEOUT_S, describe_failure, fetch_status
from proxyless.cli.arguments import add_timeout_option, parse_address, refuse_options
from proxyless.cli.output import JSON, add_output_option, fail, print_json, print_lines, print_table
from proxyless.observe import ClientStatus, ResourceRow, read_status
from proxyless.protos import DECODE_ERRORS, descriptor_pool_of_envoy, message_class

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

EXIT_CODES: Final = {
    0: "the process answered, whatever the states of its resources",
    1: "it did not",
    2: "usage error, or a missing extra",
}

_COLUMNS: Final = ("target", "type", "name", "status", "version", "age", "error")
_STYLES: Final = {
    "ACKED": "green",
    "REQUESTED": "yellow",
    **dict.fromkeys(("NACKED", "DOES_NOT_EXIST", "RECEIVED_ERROR", "TIMEOUT"), "bold red"),
}
# In the order in which a client requests them; other types follow.
_TYPES: Final = ("Listener", "RouteConfiguration", "Cluster", "ClusterLoadAssignment")
_GOOD: Final = "ACKED"
_AGE_WIDTH: Final = len("119s")
_SORTS: Final = ("type", "name", "status", "age")


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
        "--sort",
        choices=_SORTS,
        default=_SORTS[0],
        help="order of the resources of a target: by type, by name, "
        "those with errors first, or the newest first (default: %(default)s)",
    )
    add_timeout_option(parser, TIMEOUT_S, "deadline of the request")
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the resources; returns 1 if the request fails."""
    if parsed.output != JSON:
        refuse_options(parsed, ["contents"], "without -o json")
    try:
        response = fetch_status(parsed.address, parsed.timeout, has_contents=parsed.contents)
    except grpc.RpcError as error:
        return fail("status", [describe_failure(parsed.address, error)])
    clients = [sort_resources(client, parsed.sort) for client in read_status(response)]
    if parsed.output == JSON:
        print_json([_to_json(client) for client in clients])
    elif clients:
        print_table(_COLUMNS, _rows(clients, datetime.now(UTC)), styles=_STYLES)
        print_lines(_summarize(clients))
    else:
        print_lines("no xDS client is running there")
    return 0


def sort_resources(client: ClientStatus, order: str) -> ClientStatus:
    """The client with its resources in an order of `--sort`; equal ones by type and name."""
    by_type = sorted(client.resources, key=lambda row: (_type_rank(row), row.name))
    if order == "name":
        by_type.sort(key=lambda row: row.name)
    elif order == "status":
        by_type.sort(key=lambda row: (row.status == _GOOD and not row.error, row.status))
    elif order == "age":
        # RFC 3339 of UTC is in the order of time. Resources without one are the last.
        by_type.sort(key=lambda row: row.updated, reverse=True)
    return replace(client, resources=tuple(by_type))


def _type_rank(row: ResourceRow) -> tuple[int, str]:
    name = _short_type(row)
    return (_TYPES.index(name) if name in _TYPES else len(_TYPES), name)


def _short_type(row: ResourceRow) -> str:
    return row.type_url.rpartition(".")[2]


def _summarize(clients: Sequence[ClientStatus]) -> str:
    statuses = Counter(row.status for client in clients for row in client.resources)
    found = ", ".join(f"{number} {status}" for status, number in statuses.most_common())
    of_clients = count(len(clients), "xDS client")
    return f"{count(statuses.total(), 'resource')} of {of_clients}" + (
        f": {found}" if found else ""
    )


def show_age(updated: str, now: datetime) -> str:
    """Time since a moment in RFC 3339, in the largest unit of which there are two: `90s`, `4h`."""
    try:
        seconds = (now - datetime.fromisoformat(updated)).total_seconds()
    except (ValueError, TypeError):  # Another process may send anything, and no time zone.
        return ""
    # The clocks of two machines differ.
    seconds = max(0.0, seconds)
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds // length_s:.0f}{unit}"
    return f"{seconds:.0f}s"


def _rows(clients: Sequence[ClientStatus], now: datetime) -> Iterator[Sequence[str]]:
    for client in clients:
        if not client.resources:
            yield client.scope, "", "", "nothing is watched", "", "", ""
        for row in client.resources:
            # The width is fixed, so that columns do not move between two runs.
            age, kind = f"{show_age(row.updated, now):{_AGE_WIDTH}}", _short_type(row)
            yield client.scope, kind, row.name, row.status, row.version, age, row.error


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
    except (KeyError, TypeError, *DECODE_ERRORS, json_format.Error):
        return {"serialized": row.value.hex()}
