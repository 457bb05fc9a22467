"""`proxyless serve DIR`: a control plane from a directory of files.

It says what it serves, who connects, and what clients refuse and why. A file that is bad after a
change is reported, and the last good state is served on.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import Event, Trace, ValidationError
from proxyless.cli.arguments import parse_address
from proxyless.cli.resource_files import describe_errors
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
    """Say what the command takes."""
    parser.description = (
        "Serve the resources in the files below DIR to xDS clients; follow changes."
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="where the files are")
    parser.add_argument(
        "--listen",
        metavar="ADDR",
        type=parse_address,
        default=DEFAULT_ADDRESS,
        help="host:port or unix:path (default: %(default)s; port 0 for any)",
    )
    parser.add_argument(
        "--once-check", action="store_true", help="only say whether the files are good"
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Serve until a signal comes; 1 if the files are bad or the address cannot be had."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        if parsed.once_check:
            print(_describe(_check(parsed.directory)))
        else:
            asyncio.run(_serve(parsed.directory, parsed.listen))
    except ValidationError as error:
        for problem in describe_errors(error.errors, str(parsed.directory)):
            print(f"proxyless serve: {problem}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"proxyless serve: {error}", file=sys.stderr)
        return 1
    return 0


def _check(directory: Path) -> Snapshot:
    # Nothing waits, so no time passes.
    source = FileSource(
        directory, VirtualClock(), on_snapshot=lambda _: None, on_problem=lambda _: None
    )
    return source.load()


async def _serve(directory: Path, address: str) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    trace = Trace()
    trace.subscribe(_log_event)
    control_plane = ControlPlane(
        Snapshot.of(()), address=address, options=ServiceOptions(trace=trace)
    )

    def on_snapshot(snapshot: Snapshot) -> None:
        _LOGGER.info("reloaded: %s", _describe(snapshot))
        control_plane.set_snapshot(snapshot)

    # A large file takes seconds to read, and clients are not to notice.
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
                # On its own, for scripts that start us with port 0.
                print(f"listening at {control_plane.address}", flush=True)
                await stopped.wait()
    finally:
        source.close()
    _LOGGER.info("stopped")


async def _load(source: FileSource, stopped: asyncio.Event) -> Snapshot | None:
    """What there is now; None if we are told to stop before all of it is read."""
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
