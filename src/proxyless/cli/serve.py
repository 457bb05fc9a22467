"""`proxyless serve DIR`: serves the resources in a directory of files to xDS clients.

It logs each snapshot, connection and NACK. If a file is bad after a change, it logs the error and
keeps serving the last good snapshot.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import Event, Trace, ValidationError, one_line
from proxyless.cli.arguments import parse_address
from proxyless.cli.output import fail, print_lines
from proxyless.cli.resource_files import describe_errors
from proxyless.cli.signals import call_on_termination
from proxyless.controlplane import (
    ControlPlane,
    FileSource,
    ServiceOptions,
    Snapshot,
    ThreadOffload,
)
from proxyless.controlplane.files import run_in_thread
from proxyless.controlplane.resource import type_name
from proxyless.runtime import LoopClock, VirtualClock

if TYPE_CHECKING:
    import argparse

DEFAULT_ADDRESS: Final = "127.0.0.1:18000"

_LOGGER: Final = logging.getLogger("proxyless.serve")


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Serve the resources in the files below DIR to xDS clients; reload on changes."
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="directory of the files")
    parser.add_argument(
        "--listen",
        metavar="ADDR",
        type=parse_address,
        default=DEFAULT_ADDRESS,
        help="host:port or unix:path (default: %(default)s; port 0 for any free port)",
    )
    parser.add_argument("--once-check", action="store_true", help="check the files and exit")
    parser.set_defaults(run=run)


class OneLineFormatter(logging.Formatter):
    """Formatter that escapes and truncates messages: they have texts of clients."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as in logging
        record.message = one_line(record.message)
        return super().formatMessage(record)


def run(parsed: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; returns 1 if the files are bad or the address is in use."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    try:
        if parsed.once_check:
            print_lines(_describe(_check(parsed.directory)))
        else:
            asyncio.run(_serve(parsed.directory, parsed.listen))
    except ValidationError as error:
        return fail("serve", describe_errors(error.errors, str(parsed.directory)))
    except OSError as error:
        return fail("serve", [error])
    return 0


def _check(directory: Path) -> Snapshot:
    # The clock is only for `watch`.
    source = FileSource(
        directory, VirtualClock(), on_snapshot=lambda _: None, on_problem=lambda _: None
    )
    return source.load()


async def _serve(directory: Path, address: str) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    call_on_termination(loop, stopped.set)
    trace = Trace()
    trace.subscribe(_log_event)
    control_plane = ControlPlane(
        Snapshot.of(()), address=address, options=ServiceOptions(trace=trace)
    )

    def on_snapshot(snapshot: Snapshot) -> None:
        _LOGGER.info("reloaded: %s", _describe(snapshot))
        control_plane.set_snapshot(snapshot)

    # Reading a large file takes seconds, and must not block the event loop.
    source = FileSource(
        directory,
        LoopClock(loop),
        on_snapshot=on_snapshot,
        on_problem=lambda error: _LOGGER.error("kept the last good state: %s", error),
        offload=ThreadOffload(),
    )
    try:
        snapshot = await _load(source, stopped)
        if snapshot is not None:
            control_plane.set_snapshot(snapshot)
            source.watch()
            async with control_plane:
                _LOGGER.info("serving %s", _describe(snapshot))
                # On standard output, for scripts that start it with port 0.
                print_lines(f"listening at {control_plane.address}")
                await stopped.wait()
    finally:
        source.close()
    _LOGGER.info("stopped")


async def _load(source: FileSource, stopped: asyncio.Event) -> Snapshot | None:
    """The first snapshot; None if `stopped` is set before all files are read."""
    loading = run_in_thread(source.load)
    waiting = asyncio.ensure_future(stopped.wait())
    either: set[asyncio.Future[Any]] = {loading, waiting}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if loading.done():
        return loading.result()
    loading.cancel()
    return None


def _describe(snapshot: Snapshot) -> str:
    counts = [f"{len(snapshot.resources(url))} {type_name(url)}" for url in snapshot.types]
    return f"version {snapshot.version}: {', '.join(counts) or 'nothing'}"


def _log_event(event: Event) -> None:
    fields = event.fields
    match event.name:
        case "controlplane.nack":
            _LOGGER.warning("%s", fields["nack"])
        case "controlplane.ack":
            what = f"{type_name(str(fields['type_url']))} version {fields['version']!r}"
            _LOGGER.info("xds node %r: %s accepted", fields["node_id"], what)
        case "controlplane.stream_opened":
            _LOGGER.info("%s connected", fields["peer"])
        case "controlplane.stream_closed":
            _LOGGER.info("xds node %r: disconnected", fields["node_id"])
        case _:
            pass
