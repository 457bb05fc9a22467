"""`proxyless explain METHOD --config DIR --target xds:///name`: why would an RPC go where?

From files, without a network, or with `--status ADDR` from what a running process holds: every
decision on the way, each route with the first thing that does not match, the timeout and where it
comes from, and what is in the clusters. The first line is the verdict; the exit code is 1 if the
RPC, or some of its kind, would fail.

Of a running process only resources are known (CSDS, A40). Its connections and the states of its
policies it tells nobody but itself: `channel.explain`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc

from proxyless.assembly import Registries
from proxyless.base import Status, StatusCode, ValidationErrors, quote, validate_metadata
from proxyless.cli.arguments import parse_address, parse_method
from proxyless.cli.output import JSON, add_output_option, print_json
from proxyless.cli.resource_files import describe_errors, read_resources
from proxyless.cli.status import TIMEOUT_S, describe_failure, fetch
from proxyless.observe import (
    Explanation,
    OfflineMesh,
    Rpc,
    explain_offline,
    read_status,
    to_json,
    to_text,
    unknown_bootstrap,
)
from proxyless.resolver.target import parse_target
from proxyless.xds.bootstrap import Bootstrap, load_bootstrap
from proxyless.xds.bootstrap.resource_names import listener_name_for_target
from proxyless.xds.view import DecodeContext, Wanted, default_timeout_s, resource_types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.observe import ClientStatus, ResourceRow

_SCHEME: Final = "xds"
# What CSDS has no words for.
_UNTOLD: Final = "the states of its connections and policies are not known here: channel.explain"


def fill_parser(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.description = (
        "Explain what happens to RPCs of METHOD under the resources in files, "
        "or under those that a running process holds."
    )
    parser.add_argument(
        "method", metavar="METHOD", type=parse_method, help="/package.Service/Method"
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--config",
        metavar="PATH",
        type=Path,
        action="append",
        help="a file of resources, or a directory of files; may be given again",
    )
    source.add_argument(
        "--status",
        metavar="ADDR",
        type=parse_address,
        help="the admin port of a running process",
    )
    parser.add_argument("--target", required=True, help="what the application dials: xds:///name")
    parser.add_argument(
        "-H",
        "--header",
        dest="headers",
        metavar="KEY=VALUE",
        action="append",
        type=_parse_header,
        default=[],
        help="metadata of the RPC; may be given again",
    )
    parser.add_argument("--bootstrap", metavar="FILE", help="for its authorities and templates")
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Show the explanation; 1 if RPCs fail, or if the files cannot be used."""
    explanation = _explain(parsed)
    if not isinstance(explanation, Explanation):
        for problem in explanation:
            print(f"proxyless explain: {problem}", file=sys.stderr)
        return 1
    if parsed.output == JSON:
        print_json(to_json(explanation))
    else:
        print(to_text(explanation))
    return int(bool(explanation.problem))


def _explain(parsed: argparse.Namespace) -> Explanation | list[str]:
    """The explanation, or what is wrong with what was given."""
    bootstrap = _bootstrap(parsed.bootstrap)
    if isinstance(bootstrap, Status):
        return [bootstrap.details]
    wanted = _wanted(parsed.target, bootstrap)
    if isinstance(wanted, Status):
        return [wanted.details]
    known = Registries()
    types = resource_types(known.policies, known.filters)
    mesh = OfflineMesh(types, DecodeContext(bootstrap.servers[0], bootstrap))
    rpc = Rpc(parsed.method, tuple(parsed.headers), wanted.authority)
    if parsed.status is not None:
        found = _explain_process(parsed, wanted, mesh, rpc)
        return [found.details] if isinstance(found, Status) else found
    errors = ValidationErrors()
    located = read_resources(parsed.config, errors)
    if not located and errors.ok and all(path.is_dir() for path in parsed.config):
        # A directory was mistyped: nobody wants to hear that the listener does not exist.
        errors.add(f"{', '.join(map(str, parsed.config))}: has no resources")
    if not errors.ok:
        return describe_errors(errors)
    mesh.add((resource.type_url, resource.name, resource.value) for _, resource in located)
    return explain_offline(wanted, mesh, rpc, default_timeout_s=default_timeout_s())


def _explain_process(
    parsed: argparse.Namespace, wanted: Wanted, mesh: OfflineMesh, rpc: Rpc
) -> Explanation | Status:
    """What a process would do with the resources that it holds."""
    try:
        response = fetch(parsed.status, TIMEOUT_S, has_contents=True)
    except grpc.RpcError as error:
        return _refusal(describe_failure(parsed.status, error))
    clients = read_status(response)
    client = choose_client(clients, parsed.target, wanted.listener_name)
    if client is None:
        scopes = ", ".join(sorted(repr(each.scope) for each in clients)) or "no target at all"
        return _refusal(f"{parsed.status!r} has no client for {parsed.target!r}, but for {scopes}")
    mesh.add_held(client.resources)
    wanted = replace(wanted, node_id=client.node_id)
    found = explain_offline(wanted, mesh, rpc, default_timeout_s=default_timeout_s())
    source = f"held by node {quote(client.node_id)} at {parsed.status}; {_UNTOLD}"
    return replace(found, parts=(Explanation("source", source), *found.parts))


def choose_client(
    clients: Sequence[ClientStatus], target: str, listener: str
) -> ClientStatus | None:
    """The one of this target; else one that is shared by targets and holds its listener."""
    for client in clients:
        if client.scope == target:
            return client
    holding = (
        each for each in clients if any(_is_listener(row, listener) for row in each.resources)
    )
    return next(holding, None)


def _is_listener(row: ResourceRow, name: str) -> bool:
    return row.name == name and row.type_url.endswith(".Listener")


def _bootstrap(path: str | None) -> Bootstrap | Status:
    """The one that is named; else, of no server in particular."""
    return unknown_bootstrap() if path is None else load_bootstrap(path, {})


def _wanted(text: str, bootstrap: Bootstrap) -> Wanted | Status:
    if not text.startswith(f"{_SCHEME}:"):
        return _refusal(f"target {text!r} is not resolved by xDS, wanted {_SCHEME}:///name")
    try:
        target = parse_target(text, {_SCHEME}, _SCHEME)
    except ValueError as error:
        return _refusal(str(error))
    name = listener_name_for_target(bootstrap, target.authority, target.path)
    if isinstance(name, Status):
        return name
    return Wanted(name.resource_name, name.data_plane_authority, bootstrap.node.id)


def _parse_header(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is no header, wanted key=value")
    key = key.strip().lower()
    try:
        validate_metadata([(key, value.encode())])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return key, value


def _refusal(text: str) -> Status:
    return Status(StatusCode.INVALID_ARGUMENT, text)
