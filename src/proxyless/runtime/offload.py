"""Offload: runs blocking work in a thread and calls back on the event loop; run_in_thread.

Used for files, which have no asynchronous interface. A test passes a function that runs the work at
once, or when it decides.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from proxyless.runtime.daemon_threads import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Offload(Protocol):
    """Runs work that does not raise, one piece after the other."""

    def __call__(self, work: Callable[[], T], on_result: Callable[[T], None], /) -> None: ...


def thread_offload(name: str, purpose: str) -> Offload:
    """Offload to one daemon thread, with callbacks on the running loop.

    If no thread can be started, the work is done at once.
    """
    loop = asyncio.get_running_loop()
    threads = DaemonThreads(name, purpose, threads_max=1)

    def offload(work: Callable[[], T], on_result: Callable[[T], None], /) -> None:
        def run() -> None:
            result = work()
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(on_result, result)

        try:
            threads.post(run)
        except RuntimeError:  # Logged by the pool.
            run()

    return offload


def run_in_thread(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run work that may raise in a daemon thread, which does not delay the exit of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def complete(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("T", result))

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # Raised again by the future.
            failure = error
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(complete, result, failure)

    Thread(target=run, name=name, daemon=True).start()
    return future
