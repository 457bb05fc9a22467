"""Background event loop of the blocking API, in one daemon thread per process.

All blocking channels share it. Other threads add actions with `post` and use nothing else that
belongs to the loop.

Theory of operation
    Waking the loop costs a system call and often a switch of threads, so it is woken once per
    batch: `post` wakes it only if `_is_woken` is not set. The loop clears that flag before it reads
    the inbox, so no action is missed.

    In the child of a fork the thread does not exist. The child abandons the loop without closing
    it, because the parent uses the same file descriptors, and creates a new one when it needs one.

    When the interpreter exits and no call is running, the channels are closed and the thread ends.
    A call that is still running belongs to a daemon thread, or is not waited for. Its end would
    make the daemon thread log errors, and a later exit handler may wait for that thread, so
    everything keeps running until the interpreter is finalized. Then `_FinalWake` ends the thread.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import logging
import os
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from sys import is_finalizing
from threading import Event, Lock, RLock, Thread, get_ident
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

from proxyless.front.sync.wakeups import make_wake_up
from proxyless.runtime.forks import call_after_fork_in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from proxyless.channel import Channel

T = TypeVar("T")

_LOGGER: Final = logging.getLogger("proxyless.channel")
# Limits for closing one channel, and for closing all when the interpreter exits.
_CLOSE_TIMEOUT_S: Final = 2.0
_EXIT_TIMEOUT_S: Final = 0.5
# How long finalization waits for the threads that it has woken.
_FINAL_WAKE_S: Final = 0.01
# Then daemon threads do not run any more, and `__del__` of objects in global variables is called.
_FINALIZING: Final = (
    "blocking call while the interpreter is finalized, which would never return:"
    " make it in an exit handler (atexit)"
)
# How long an idle callback thread waits for the next callback before it ends.
_LINGER_S: Final = 1.0


class Background:
    """One event loop in one thread. May be used by any thread."""

    def __init__(self) -> None:
        # Fixed at construction.
        self._loop = _new_loop()
        # Changed by every thread, with atomic operations.
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake_up: Final = make_wake_up(self._loop, self._run_inbox)
        # The loop was woken, and has not read the inbox since.
        self._is_woken = False
        # Changed once. After that `shared_background` creates a new one.
        self.is_usable = True
        # This is the child of a fork, and the thread is the parent's.
        self.is_abandoned = False
        # Changed on the loop.
        self._cores: WeakSet[Channel] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()
        # Set when the thread has ended, or `stop` has found a running call.
        self._is_stop_decided = Event()
        self._thread = Thread(target=self._run, name="proxyless", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # The system has no more threads. uvloop would keep descriptors.
            self._loop.close()
            raise
        self._thread_id = self._thread.ident

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self.is_usable = False
            self._loop.close()
            self._is_stop_decided.set()

    # Actions for the loop

    def post(self, action: Callable[[], None]) -> None:
        """Run this on the loop, soon, after everything posted before. Any thread may call it."""
        self._inbox.append(action)
        if not self._is_woken and self.is_usable:
            self._wake()

    def _wake(self) -> None:
        try:
            self._is_woken = True
            self._wake_up()
        except RuntimeError:
            pass  # The loop has been closed, at exit.
        except BaseException:
            # Ctrl-C, before the loop is woken. Other threads that have posted rely on this wake-up.
            self._wake_up()
            raise

    def _run_inbox(self) -> None:
        self._is_woken = False
        inbox = self._inbox
        # Bounded: an action that is added from here on has woken the loop again.
        for _ in range(len(inbox)):
            try:
                inbox.popleft()()
            except Exception as error:
                self._loop.call_exception_handler(
                    {"message": "exception in work for the background loop", "exception": error}
                )

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the loop; return its result, or raise its exception. Blocks.

        Raises RuntimeError if the loop does not run, or this is its thread.
        """
        self.check_may_block()
        if not self.is_usable:
            raise RuntimeError("background loop does not run in this process any more")
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)

        self.post(run)
        return result.result()

    def check_may_block(self) -> None:
        """Raise RuntimeError where waiting for the loop would never end."""
        if is_finalizing():
            raise RuntimeError(_FINALIZING)
        if get_ident() == self._thread_id:
            raise RuntimeError(
                "blocking call in the thread of the background loop, which would never return:"
                " make it in another thread"
            )

    # Channels on this loop

    def add(self, core: Channel) -> None:
        """Close this core at exit. Called on the loop."""
        self._cores.add(core)

    def close(self, core: Channel) -> None:
        """Close a core; outside the loop's thread, wait until its connections are closed."""
        closed = Event()

        async def close() -> None:
            try:
                await self._close_all([core])
            finally:
                closed.set()

        self.post(lambda: self._start(close()))
        if get_ident() != self._thread_id and not is_finalizing():
            closed.wait(_CLOSE_TIMEOUT_S)

    async def _close_all(self, cores: Iterable[Channel]) -> None:
        for core in cores:
            core.close()
            self._cores.discard(core)
        for core in cores:
            await core.wait_closed()

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Ends

    def abandon(self) -> None:
        """Called in the child of a fork: the loop is the parent's, and must not be used."""
        self.is_usable = False
        self.is_abandoned = True

    def stop(self) -> None:
        """At exit: close every channel and end the thread, unless calls are running."""
        if self.is_usable:
            self.post(lambda: self._start(self._finish()))
            self._is_stop_decided.wait(_EXIT_TIMEOUT_S * 2)

    async def _finish(self) -> None:
        # Start the calls that were posted since: their threads wait for them.
        self._run_inbox()
        if any(core.calls for core in self._cores):
            self.wake_at_finalization()
            self._is_stop_decided.set()
            return
        self.is_usable = False
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_TIMEOUT_S):
                    await self._close_all(list(self._cores))
                    await _cancel_other_tasks()
        finally:
            self._loop.stop()

    def wake_at_finalization(self) -> None:
        """Called on the loop, if it will still run when the interpreter is finalized."""
        if _final_wake is not None:
            self._loop.add_reader(_final_wake.new_reader(), _do_nothing)


class _FinalWake:
    """Wakes loops that still run when the interpreter is finalized, so that their threads end.

    During finalization a thread ends when it takes the GIL. One that takes it after finalization,
    because a peer sends something just then, crashes the process (uvloop).
    """

    def __init__(self) -> None:
        # Both ends of each pipe. Descriptors, because sockets that are not closed cause a
        # ResourceWarning at exit.
        self._pipes: list[tuple[int, int]] = []
        # Held for ever: waiting for it with a timeout needs nothing that may be torn down.
        self._held = Lock()
        self._held.acquire()

    def new_reader(self) -> int:
        """A descriptor that becomes readable at finalization."""
        reader, writer = os.pipe()
        self._pipes.append((reader, writer))
        return reader

    def __del__(
        self, wait_s: float = _FINAL_WAKE_S, write: Callable[[int, bytes], int] = os.write
    ) -> None:
        # Called when this module is torn down, after which no other thread gets the GIL.
        for _, writer in self._pipes:
            write(writer, b"\0")
        if self._pipes:
            self._held.acquire(timeout=wait_s)


def _do_nothing() -> None:
    return


async def _cancel_other_tasks() -> None:
    """End tasks that their owners have cancelled, such as look-ups, before the loop is closed."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _new_loop() -> asyncio.AbstractEventLoop:
    """A uvloop if it is installed and threads are the system's, a loop of asyncio otherwise."""
    if not isinstance(_thread.start_new_thread, BuiltinFunctionType):
        # Patched by gevent or the like: all threads are one of the system's. A uvloop, which waits
        # in C, would block them all; asyncio waits in a selector, which is patched, too.
        return asyncio.new_event_loop()
    try:
        import uvloop  # noqa: PLC0415 - an optional extra
    except (ImportError, RuntimeError):
        # It imports `concurrent.futures.thread`, which raises RuntimeError once the main thread has
        # ended: in exit handlers, and in threads that continue.
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


# One per process. Abandoned loops are kept referenced: freeing one would remove its sockets from a
# poll that the parent uses, too.
_starting = Lock()
_current: Background | None = None
_abandoned: list[Background] = []
# Set at exit.
_final_wake: _FinalWake | None = None


def shared_background() -> Background:
    """The background loop of this process, started if there is none."""
    global _current  # noqa: PLW0603 - there is one per process
    if is_finalizing():
        raise RuntimeError(_FINALIZING)
    with _starting:
        if _current is None or not _current.is_usable:
            _current = Background()
            if _final_wake is not None:
                _current.post(_current.wake_at_finalization)
        return _current


def _after_fork_in_child() -> None:
    global _starting, _current  # noqa: PLW0603 - there is one per process
    # Another thread may have held the lock when the process was forked.
    _starting = Lock()
    if _current is not None:
        _current.abandon()
        _abandoned.append(_current)
        _current = None


def _at_exit() -> None:
    global _final_wake  # noqa: PLW0603 - there is one per process
    _final_wake = _FinalWake()
    if _current is not None:
        _current.stop()


call_after_fork_in_child(_after_fork_in_child)
atexit.register(_at_exit)


class CallbackThread:
    """Runs an application's callbacks in order, in a thread that ends when it is idle.

    Not in the loop's thread, because a callback may block, or make blocking calls.
    """

    def __init__(self) -> None:
        self._callbacks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        # Reentrant, because a signal handler may end an RPC in a thread that holds it.
        self._lock = RLock()
        self._is_running = False

    def post(self, callback: Callable[[], None]) -> None:
        """Run this after everything posted before."""
        with self._lock:
            self._callbacks.put(callback)
            if self._is_running:
                return
            self._is_running = True
        try:
            Thread(target=self._run, name="proxyless-callbacks", daemon=True).start()
        except RuntimeError:
            # At exit, or the system has no more threads: the next callback tries again.
            self._is_running = False

    def _run(self) -> None:
        while True:
            try:
                callback = self._callbacks.get(timeout=_LINGER_S)
            except Empty:
                with self._lock:
                    if self._callbacks.empty():
                        self._is_running = False
                        return
            else:
                _run_safely(callback)


def _run_safely(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        _LOGGER.exception("exception in a callback of the application")
