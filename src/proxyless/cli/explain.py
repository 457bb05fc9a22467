"""`proxyless explain METHOD --config DIR --target xds:///name`: explains how an RPC is routed.

The resources come from files or, with `--status ADDR`, from the CSDS of a running process (A40).
The explanation has each route with the first mismatch, the timeout and its source, and the
endpoints of the clusters. The first line is the verdict; the exit code is 1 if the RPC, or a share
of such RPCs, would fail.

CSDS has no connections and no states of LB policies: in the process itself, `channel.explain` has.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc

from proxyless.assembly import Registries
from proxyless.base import Status, ValidationErrors, quote, validate_metadata
from proxyless.base.texts import count
from proxyless.cli.arguments import parse_address, parse_method
from proxyless.cli.output import JSON, add_output_option, fail, print_json, print_lines
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
from proxyless.xds.view import ConfigTarget, DecodeContext, default_timeout_s, resource_types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.observe import ClientStatus

_SCHEME: Final = "xds"
# CSDS has no field for these.
_NO_STATES: Final = "the states of its connections and policies are not known here: channel.explain"


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Explain how RPCs of METHOD are routed by the resources in files, "
        "or by those that a running process holds."
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
        help="a file of resources, or a directory of files; may be repeated",
    )
    source.add_argument(
        "--status",
        metavar="ADDR",
        type=parse_address,
        help="admin address of a running process",
    )
    parser.add_argument("--target", required=True, help="target of the channel: xds:///name")
    parser.add_argument(
        "-H",
        "--header",
        dest="headers",
        metavar="KEY=VALUE",
        action="append",
        type=_parse_header,
        default=[],
        help="metadata of the RPC; may be repeated",
    )
    parser.add_argument(
        "--bootstrap", metavar="FILE", help="bootstrap with authorities and name templates"
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the explanation; returns 1 if RPCs fail, or if the files are bad."""
    explanation = _explain(parsed)
    if not isinstance(explanation, Explanation):
        return fail("explain", explanation)
    if parsed.output == JSON:
        print_json(to_json(explanation))
    else:
        print_lines(to_text(explanation))
    return int(bool(explanation.problem))


def _explain(parsed: argparse.Namespace) -> Explanation | list[str]:
    """The explanation, or the errors of the arguments."""
    path = parsed.bootstrap
    bootstrap = unknown_bootstrap() if path is None else load_bootstrap(path, {})
    if isinstance(bootstrap, Status):
        return [bootstrap.details]
    target = _find_target(parsed.target, bootstrap)
    if isinstance(target, str):
        return [target]
    known = Registries()
    types = resource_types(known.policies, known.filters)
    mesh = OfflineMesh(types, DecodeContext(bootstrap.servers[0], bootstrap))
    rpc = Rpc(parsed.method, tuple(parsed.headers), target.authority)
    if parsed.status is not None:
        return _explain_process(parsed, target, mesh, rpc)
    errors = ValidationErrors()
    # A file may be empty on purpose, a directory without resources is probably mistyped.
    has_file = not all(path.is_dir() for path in parsed.config)
    located = read_resources(parsed.config, errors, may_be_empty=has_file)
    if not errors.ok:
        return describe_errors(errors)
    mesh.add((resource.type_url, resource.name, resource.value) for _, resource in located)
    return explain_offline(target, mesh, rpc, default_timeout_s())


def _explain_process(
    parsed: argparse.Namespace, target: ConfigTarget, mesh: OfflineMesh, rpc: Rpc
) -> Explanation | list[str]:
    try:
        response = fetch(parsed.status, TIMEOUT_S, has_contents=True)
    except grpc.RpcError as error:
        return [describe_failure(parsed.status, error)]
    clients = read_status(response)
    client = choose_client(clients, parsed.target, target.listener_name)
    if client is None:
        scopes = ", ".join(sorted(repr(each.scope) for each in clients)) or "no target at all"
        return [f"{parsed.status!r} has no client for {parsed.target!r}, but for {scopes}"]
    mesh.add_held(client.resources)
    target = replace(target, node_id=client.node_id)
    found = explain_offline(target, mesh, rpc, default_timeout_s())
    source = f"held by node {quote(client.node_id)} at {parsed.status}; {_NO_STATES}"
    left_out = sum(row.is_left_out for row in client.resources)
    if left_out:
        source += f"; it left out the contents of {count(left_out, 'resource')}"
    return replace(found, parts=(Explanation("source", source), *found.parts))


def choose_client(
    clients: Sequence[ClientStatus], target: str, listener: str
) -> ClientStatus | None:
    """The client of this target, or else one that is shared by targets and holds its listener."""
    for client in clients:
        if client.scope == target:
            return client
    holding = (
        each
        for each in clients
        if any(
            row.name == listener and row.type_url.endswith(".Listener") for row in each.resources
        )
    )
    return next(holding, None)


def _find_target(text: str, bootstrap: Bootstrap) -> ConfigTarget | str:
    """The target, or an error text."""
    if not text.startswith(f"{_SCHEME}:"):
        return f"target {text!r} is not resolved by xDS, wanted {_SCHEME}:///name"
    try:
        target = parse_target(text, {_SCHEME}, _SCHEME)
    except ValueError as error:
        return str(error)
    name = listener_name_for_target(bootstrap, target.authority, target.path)
    if isinstance(name, Status):
        return name.details
    return ConfigTarget(name.resource_name, name.data_plane_authority, bootstrap.node.id)


def _parse_header(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted key=value")
    key = key.strip().lower()
    try:
        validate_metadata([(key, value.encode())])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return key, value
