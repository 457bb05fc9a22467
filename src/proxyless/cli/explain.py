"""`proxyless explain METHOD`: explains how an RPC is routed.

`--config DIR`   by the resources in files
`--status ADDR`  by the resources that a running process holds, from its CSDS (A40)
`--live ADDR`    by the channels of a running process, from the live service of `proxyless.admin`;
                 from CSDS if the process has no such service, as with grpcio's channels
otherwise        by a new client of the control plane that the bootstrap names

The explanation has each route with the first mismatch, the timeout and its source, and the
endpoints of the clusters. The first line is the verdict. A new client also connects to backends,
as any client does, but sends no RPC.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc

from proxyless.assembly import Registries
from proxyless.base import Status, ValidationErrors
from proxyless.cli.admin_client import TIMEOUT_S
from proxyless.cli.arguments import (
    add_header_option,
    parse_address,
    parse_method,
    parse_timeout,
    refuse_options,
)
from proxyless.cli.dialing import add_channel_options, check_channel_options, open_channel
from proxyless.cli.explain_process import (
    NoExplanationError,
    ShownExplanation,
    choose_client,
    explain_held,
    explain_live,
    fetch_clients,
)
from proxyless.cli.output import (
    JSON,
    add_output_option,
    describe_error,
    fail,
    note,
    print_json,
    print_verdict,
)
from proxyless.cli.progress import Progress
from proxyless.cli.resource_files import describe_errors, read_resources
from proxyless.observe import (
    Explanation,
    OfflineMesh,
    Rpc,
    explain_offline,
    unknown_bootstrap,
)
from proxyless.resolver.target import parse_target
from proxyless.xds.bootstrap import Bootstrap, load_bootstrap
from proxyless.xds.bootstrap.resource_names import listener_name_for_target
from proxyless.xds.view import ConfigTarget, DecodeContext, default_timeout_s, resource_types

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from proxyless.front import AioChannel
    from proxyless.observe import ClientStatus

# For a new client: longer than the 15 s after which a resource that was not sent does not exist.
DIAL_TIMEOUT_S: Final = 20.0
# Interval between two explanations of a new client.
POLL_S: Final = 0.1

EXIT_CODES: Final = {
    0: "RPCs of the method go to a backend",
    1: "they fail or wait, or a share of them does; or there is no explanation",
    2: "usage error, or a missing extra",
}

_SCHEME: Final = "xds"
_CHANNEL_OPTIONS: Final = ("tls", "cacert", "cert", "key")


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Explain how RPCs of METHOD are routed: by the resources in files, by those of a running "
        "process, by its channels, or by a new client of a control plane."
    )
    parser.add_argument(
        "method", metavar="METHOD", type=parse_method, help="package.Service/Method"
    )
    source = parser.add_mutually_exclusive_group()
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
        help="admin address of a running process: the resources in its CSDS",
    )
    source.add_argument(
        "--live",
        metavar="ADDR",
        type=parse_address,
        help="admin address of a running process: its channels, or its CSDS if it has only that",
    )
    parser.add_argument("--target", help="target of the channel: xds:///name; --live needs none")
    add_header_option(parser)
    add_channel_options(parser)
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=parse_timeout,
        help=f"how long to wait (default: {TIMEOUT_S:g}s for a process, "
        f"{DIAL_TIMEOUT_S:g}s for a control plane)",
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the explanation; returns 1 if RPCs fail or wait, or if there is none."""
    _check(parsed)
    try:
        shown = _explain_process(parsed) if parsed.live is not None else [_explain(parsed)]
    except NoExplanationError as error:
        return fail("explain", error.args)
    if parsed.output == JSON:
        documents = [each.document for each in shown]
        print_json(documents if parsed.live is not None else documents[0])
    else:
        for each in shown:
            print_verdict(each.text, is_good=not each.has_problem)
    return int(any(each.has_problem for each in shown))


def _check(parsed: argparse.Namespace) -> None:
    """Refuse options that have no effect; set the default timeout."""
    is_dialed = parsed.config is None and parsed.status is None and parsed.live is None
    if parsed.target is None and parsed.live is None:
        parsed.parser.error("the following arguments are required: --target")
    if is_dialed:
        check_channel_options(parsed)
    else:
        refuse_options(parsed, _CHANNEL_OPTIONS, "without a control plane to connect to")
    if parsed.config is not None:
        refuse_options(parsed, ["timeout"], "with --config")
    if parsed.timeout is None:
        parsed.timeout = DIAL_TIMEOUT_S if is_dialed else TIMEOUT_S


def _explain(parsed: argparse.Namespace) -> ShownExplanation:
    """The explanation from files, from CSDS or of a new client. Raises NoExplanationError."""
    if parsed.config is None and parsed.status is None:
        return ShownExplanation.of(asyncio.run(_dial(parsed)))
    bootstrap = _load_bootstrap(parsed)
    target = _find_target(parsed.target, bootstrap)
    if parsed.status is not None:
        clients = fetch_clients(parsed.status, parsed.timeout)
        return _explain_client(parsed, parsed.status, clients, bootstrap)
    errors = ValidationErrors()
    # A file may be empty on purpose, a directory without resources is probably mistyped.
    has_file = not all(path.is_dir() for path in parsed.config)
    located = read_resources(parsed.config, errors, may_be_empty=has_file)
    if not errors.ok:
        raise NoExplanationError(*describe_errors(errors))
    mesh = _make_mesh(bootstrap)
    mesh.add((resource.type_url, resource.name, resource.value) for _, resource in located)
    rpc = Rpc(parsed.method, tuple(parsed.headers), target.authority)
    return ShownExplanation.of(explain_offline(target, mesh, rpc, default_timeout_s()))


def _explain_process(parsed: argparse.Namespace) -> list[ShownExplanation]:
    """Explanations of the live service, or of CSDS if there is none. Raises NoExplanationError."""
    address = parsed.live
    found = explain_live(parsed)
    if found is not None:
        refuse_options(parsed, ["bootstrap"], "with a live service")
        return found
    clients = fetch_clients(address, parsed.timeout)
    if parsed.target is None:
        parsed.target = _only_target(address, clients)
    note("explain", f"{address!r} has no live service, so this is from its CSDS")
    return [_explain_client(parsed, address, clients, _load_bootstrap(parsed))]


def _explain_client(
    parsed: argparse.Namespace, address: str, clients: Sequence[ClientStatus], bootstrap: Bootstrap
) -> ShownExplanation:
    target = _find_target(parsed.target, bootstrap)
    client = choose_client(clients, parsed.target, target.listener_name)
    if client is None:
        scopes = ", ".join(sorted(repr(each.scope) for each in clients)) or "no target at all"
        text = f"{address!r} has no client for {parsed.target!r}, but for {scopes}"
        raise NoExplanationError(text)
    rpc = Rpc(parsed.method, tuple(parsed.headers), target.authority)
    mesh = _make_mesh(bootstrap)
    return ShownExplanation.of(explain_held(address, client, target, mesh, rpc))


def _only_target(address: str, clients: Sequence[ClientStatus]) -> str:
    scopes = sorted({client.scope for client in clients})
    if len(scopes) == 1 and scopes[0].startswith(f"{_SCHEME}:"):
        return scopes[0]
    shown = ", ".join(map(repr, scopes)) or "no xDS client"
    raise NoExplanationError(f"{address!r} has {shown}: wanted --target")


def _load_bootstrap(parsed: argparse.Namespace) -> Bootstrap:
    if parsed.bootstrap is None:
        return unknown_bootstrap()
    found = load_bootstrap(parsed.bootstrap, {})
    if isinstance(found, Status):
        raise NoExplanationError(found.details)
    return found


def _make_mesh(bootstrap: Bootstrap) -> OfflineMesh:
    known = Registries()
    types = resource_types(known.policies, known.filters)
    return OfflineMesh(types, DecodeContext(bootstrap.servers[0], bootstrap))


def _find_target(text: str, bootstrap: Bootstrap) -> ConfigTarget:
    if not text.startswith(f"{_SCHEME}:"):
        wanted = f"wanted {_SCHEME}:///name"
        raise NoExplanationError(f"target {text!r} is not resolved by xDS, {wanted}")
    try:
        target = parse_target(text, {_SCHEME}, _SCHEME)
    except ValueError as error:
        raise NoExplanationError(error) from None
    name = listener_name_for_target(bootstrap, target.authority, target.path)
    if isinstance(name, Status):
        raise NoExplanationError(name.details)
    return ConfigTarget(name.resource_name, name.data_plane_authority, bootstrap.node.id)


# A new client


async def _dial(parsed: argparse.Namespace) -> Explanation:
    """The explanation of a new channel once it has settled, or at the deadline."""
    try:
        opened = open_channel(parsed)
    except (ValueError, OSError) as error:
        raise NoExplanationError(describe_error(error)) from None
    async with opened as channel:
        channel.get_state(try_to_connect=True)
        is_settled = await _settle(parsed, channel)
        if not is_settled:
            note("explain", f"not settled after {parsed.timeout:g} s")
        return channel.explain(parsed.method, parsed.headers)


async def _settle(parsed: argparse.Namespace, channel: AioChannel) -> bool:
    """Wait until the explanation is no longer pending; False at the deadline."""
    with Progress() as progress:
        try:
            async with asyncio.timeout(parsed.timeout):
                while _is_pending(
                    channel, explanation := channel.explain(parsed.method, parsed.headers)
                ):
                    progress.show(explanation.text)
                    await _wait_a_little(channel)
        except TimeoutError:
            return False
    return True


def _is_pending(channel: AioChannel, explanation: Explanation) -> bool:
    """Whether RPCs wait for something that happens without them.

    A policy such as ring_hash is IDLE until the first RPC.
    """
    has_waits = any(each.facts.get("waits") for each in _all_parts(explanation))
    return has_waits and channel.get_state() is not grpc.ChannelConnectivity.IDLE


def _all_parts(explanation: Explanation) -> Iterator[Explanation]:
    yield explanation
    for part in explanation.parts:
        yield from _all_parts(part)


async def _wait_a_little(channel: AioChannel) -> None:
    """Wait for a change of the channel's state, or for the next poll: resources change no state."""
    with suppress(TimeoutError):
        async with asyncio.timeout(POLL_S):
            await channel.wait_for_state_change(channel.get_state())
