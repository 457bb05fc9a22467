"""Files of flight recordings: written on request, on a signal, on a failure storm.

A file is readable by its owner only. It gets its name when it is complete.
"""

from __future__ import annotations

import logging
import os
import signal
from datetime import UTC, datetime
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.observe.flight.recorder import FlightRecorder

_LOGGER: Final = logging.getLogger("proxyless.observe")
_MODE: Final = 0o600


def write_recording(recorder: FlightRecorder, path: str) -> str:
    """Write the recording to a file, or to a new file in a directory. Returns its path."""
    if os.path.isdir(path):
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        path = os.path.join(path, f"flight-{os.getpid()}-{stamp}.jsonl")
    partial = f"{path}.partial"
    # Not through a link that was put there.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(partial, flags, _MODE), "wb") as file:
        file.writelines(recorder.dump_chunks())
    os.replace(partial, path)
    return path


def write_in_thread(recorder: FlightRecorder, directory: str, reason: str) -> Thread:
    """Write the recording without blocking the caller, and log where."""

    def write() -> None:
        try:
            path = write_recording(recorder, directory)
        except OSError as error:
            _LOGGER.error("%s: flight recording was not written: %s", reason, error)
        else:
            _LOGGER.warning("%s: flight recording written to %s", reason, path)

    thread = Thread(target=write, name="proxyless-flight", daemon=True)
    thread.start()
    return thread


def write_on_storm(recorder: FlightRecorder, directory: str) -> None:
    """Write one recording as soon as many RPCs fail (`storm`). No-op after the first storm."""
    if recorder.has_had_storm:
        return

    def on_storm() -> None:
        write_in_thread(recorder, directory, "many RPCs fail")

    recorder.on_storm = on_storm


def install_signal_handler(
    recorder: FlightRecorder, directory: str, number: int = getattr(signal, "SIGUSR2", 0)
) -> Callable[[], None]:
    """Write a recording whenever the process gets this signal. Call it in the main thread.

    Returns a function that restores the previous handler.
    """
    if not os.path.isdir(directory):
        raise ValueError(f"directory {directory!r} does not exist")

    def on_signal(_number: int, _frame: Any) -> None:  # noqa: ANN401 - signal's types
        write_in_thread(recorder, directory, f"signal {number}")

    previous = signal.signal(number, on_signal)

    def restore() -> None:
        signal.signal(number, previous)

    return restore
