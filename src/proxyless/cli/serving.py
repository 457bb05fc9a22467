"""Run of `proxyless serve`: files, control plane and log, until a signal.

Separate from `serve`, because it imports grpcio, whose C++ core reads its environment then.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import Event, Trace, ValidationError
from proxyless.base.texts import count
from proxyless.cli.output import JSON, print_lines
from proxyless.cli.serve import ALLOW_EMPTY
from proxyless.cli.signals import call_on_hangup, call_on_termination
from proxyless.controlplane import (
    ENDPOINTS,
    ControlPlane,
    FileSource,
    ServiceOptions,
    Snapshot,
    ThreadOffload,
)
from proxyless.controlplane.resource import type_name
from proxyless.controlplane.server_tls import TlsFiles, make_credentials
from proxyless.runtime import LoopClock, VirtualClock
from proxyless.runtime.offload import run_in_thread

if TYPE_CHECKING:
    import argparse

_LOGGER: Final = logging.getLogger("proxyless.serve")


def check(parsed: argparse.Namespace) -> None:
    """Read the files once and print the number of resources. ValidationError if they are bad."""
    # The clock is only for `watch`.
    source = FileSource(
        parsed.paths,
        VirtualClock(),
        on_snapshot=lambda _: None,
        on_problem=lambda _: None,
        allow_empty=parsed.allow_empty,
        empty_option=ALLOW_EMPTY,
    )
    print_lines(_describe(source.load()))


def _make_options(parsed: argparse.Namespace) -> ServiceOptions:
    trace = Trace()
    trace.subscribe(_log_event)
    if parsed.tls_cert is None:
        return ServiceOptions(trace=trace)
    files = TlsFiles(parsed.tls_cert, parsed.tls_key, parsed.tls_client_ca)
    return ServiceOptions(trace=trace, credentials=make_credentials(files))


async def serve(parsed: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM. ValidationError or OSError if it cannot start."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    call_on_termination(loop, stopped.set)
    call_on_hangup(loop, _log_hangup)
    options = _make_options(parsed)
    control_plane = ControlPlane(Snapshot.of(()), address=parsed.listen, options=options)

    def on_snapshot(snapshot: Snapshot) -> None:
        _LOGGER.info("reloaded: %s", _describe(snapshot))
        control_plane.set_snapshot(snapshot)

    def on_problem(error: ValidationError) -> None:
        _LOGGER.error("kept the last good state: %s", error)

    # Reading a large file takes seconds, and must not block the event loop.
    source = FileSource(
        parsed.paths,
        LoopClock(loop),
        on_snapshot=on_snapshot,
        on_problem=on_problem,
        offload=ThreadOffload(),
        allow_empty=parsed.allow_empty,
        empty_option=ALLOW_EMPTY,
    )
    try:
        snapshot = await _load(source, stopped)
        if snapshot is not None:
            control_plane.set_snapshot(snapshot)
            source.watch()
            async with control_plane:
                _LOGGER.info("serving %s", _describe(snapshot))
                # On standard output, for scripts that start it with port 0.
                print_lines(_describe_address(control_plane.address, parsed.output))
                await stopped.wait()
    finally:
        source.close()
    _LOGGER.info("stopped")


def _log_hangup() -> None:
    _LOGGER.info("SIGHUP has no effect: changed files are read without it")


async def _load(source: FileSource, stopped: asyncio.Event) -> Snapshot | None:
    """The first snapshot; None if `stopped` is set before all files are read."""
    loading = run_in_thread(source.load, "proxyless-files")
    waiting = asyncio.ensure_future(stopped.wait())
    tasks: set[asyncio.Future[Any]] = {loading, waiting}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if loading.done():
        return loading.result()
    loading.cancel()
    return None


def _describe_address(address: str, output: str) -> str:
    return json.dumps({"listening_at": address}) if output == JSON else f"listening at {address}"


def _describe(snapshot: Snapshot) -> str:
    counts = [_count(snapshot, url) for url in snapshot.types]
    return f"version {snapshot.version}: {', '.join(counts) or 'nothing'}"


def _count(snapshot: Snapshot, type_url: str) -> str:
    number = len(snapshot.resources(type_url))
    if type_url == ENDPOINTS:
        return f"endpoints of {count(number, 'cluster')}"
    return count(number, type_name(type_url))


def _log_event(event: Event) -> None:
    fields = event.fields
    match event.name:
        case "controlplane.nack":
            _LOGGER.warning("%s", fields["nack"])
        case "controlplane.missing":
            _LOGGER.warning("%s", fields["missing"])
        case "controlplane.ack":
            what = f"{type_name(str(fields['type_url']))} version {fields['version']!r}"
            _LOGGER.info("xds node %r: %s accepted", fields["node_id"], what)
        case "controlplane.stream_opened":
            _LOGGER.info("%s connected", fields["peer"])
        case "controlplane.stream_closed":
            _LOGGER.info("xds node %r: disconnected", fields["node_id"])
        case _:
            pass
