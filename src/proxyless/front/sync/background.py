"""Where does the blocking API run its event loop?

In one daemon thread per process, for all blocking channels together. Other threads hand work over
with `post` and touch nothing else that belongs to the loop.

Theory of operation
    Waking the loop costs a system call and often a switch of threads, so it is woken once per
    batch: who posts wakes it only if nobody has since it last looked. The loop takes that mark
    back before it looks, so nothing that was posted is missed.

    In the child of a fork the thread does not exist. The child leaves everything behind as it is,
    because the file descriptors are the parent's, too, and starts afresh when it needs a loop.

    When the interpreter exits while no call is under way, the channels are closed and the thread
    ends. Otherwise it is a daemon's call or one that nobody waits for: everything is left running
    until the process is gone, because a daemon that is told of an end would complain about it.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread, get_ident
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from proxyless.channel import Channel

T = TypeVar("T")

_LOGGER: Final = logging.getLogger("proxyless.channel")
# How long closing may take: of one channel, and of all when the interpreter exits.
_CLOSE_TIMEOUT_S: Final = 2.0
_EXIT_TIMEOUT_S: Final = 0.5
# How long a thread for callbacks waits for another one before it ends.
_LINGER_S: Final = 1.0


class Background:
    """One event loop in one thread. Driven by every thread that posts to it."""

    def __init__(self) -> None:
        # Fixed at construction.
        self._loop = _new_loop()
        # Changed by every thread, in steps that the interpreter does not divide.
        self._inbox: deque[Callable[[], None]] = deque()
        # Somebody has woken the loop, and it has not looked into the inbox since.
        self._is_told = False
        # Changed once. After that a new one must be made (`shared_background`).
        self.is_usable = True
        # This is the child of a fork, and the thread is the parent's.
        self.is_left_behind = False
        # Changed on the loop.
        self._cores: WeakSet[Channel] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()
        # Set when the thread has ended, or has decided at exit to go on.
        self._is_settled = Event()
        self._thread = Thread(target=self._run, name="proxyless", daemon=True)
        self._thread.start()
        self._thread_id = self._thread.ident

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self.is_usable = False
            self._loop.close()
            self._is_settled.set()

    # Handing over

    def post(self, action: Callable[[], None]) -> None:
        """Run this on the loop, soon, after what was posted before. Any thread may call."""
        self._inbox.append(action)
        if not self._is_told and self.is_usable:
            self._wake()

    def _wake(self) -> None:
        try:
            self._is_told = True
            self._loop.call_soon_threadsafe(self._look)
        except RuntimeError:
            pass  # Closed just now, at exit.
        except BaseException:
            # Ctrl-C, inside of asyncio. Others who have posted rely on this wake-up.
            self._loop.call_soon_threadsafe(self._look)
            raise

    def _look(self) -> None:
        self._is_told = False
        inbox = self._inbox
        # Bounded: what comes in from here on has told the loop again.
        for _ in range(len(inbox)):
            try:
                inbox.popleft()()
            except Exception as error:
                self._loop.call_exception_handler(
                    {"message": "exception in work for the background loop", "exception": error}
                )

    def ask(self, question: Callable[[], T]) -> T:
        """What this returns, or raises, on the loop. Blocks.

        Raises RuntimeError if nobody would ever answer.
        """
        self.check_may_block()
        if not self.is_usable:
            raise RuntimeError("background loop does not run in this process any more")
        answer: Future[T] = Future()

        def reply() -> None:
            try:
                answer.set_result(question())
            except BaseException as error:
                answer.set_exception(error)

        self.post(reply)
        return answer.result()

    def check_may_block(self) -> None:
        """Raise RuntimeError in the loop's own thread, where waiting for the loop never ends."""
        if get_ident() == self._thread_id:
            raise RuntimeError(
                "blocking call in the thread of the background loop, which would never return:"
                " make it in another thread"
            )

    # The channels on this loop

    def add(self, core: Channel) -> None:
        """Close this channel at exit if nobody has before. On the loop."""
        self._cores.add(core)

    def close(self, core: Channel) -> None:
        """Close a channel; outside the loop's thread, wait until its connections are gone."""
        closed = Event()

        async def close() -> None:
            try:
                await self._close_all([core])
            finally:
                closed.set()

        self.post(lambda: self._start(close()))
        if get_ident() != self._thread_id:
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

    def leave_behind(self) -> None:
        """In the child of a fork: this loop is the parent's, and nothing of it may be used."""
        self.is_usable = False
        self.is_left_behind = True

    def stop(self) -> None:
        """At exit: close every channel and end the thread, unless calls are under way."""
        if self.is_usable:
            self.post(lambda: self._start(self._finish()))
            self._is_settled.wait(_EXIT_TIMEOUT_S * 2)

    async def _finish(self) -> None:
        # Who has posted a call is about to wait for it.
        self._look()
        if any(core.calls for core in self._cores):
            self._is_settled.set()
            return
        self.is_usable = False
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_TIMEOUT_S):
                    await self._close_all(list(self._cores))
        finally:
            self._loop.stop()


def _new_loop() -> asyncio.AbstractEventLoop:
    """The fastest loop that is installed."""
    try:
        import uvloop  # noqa: PLC0415 - an optional extra
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


# One per process. What a fork left behind is kept: freeing a loop takes its sockets out of its
# poll, and the poll is the parent's, too.
_starting = Lock()
_current: Background | None = None
_left_behind: list[Background] = []


def shared_background() -> Background:
    """The background of this process, which is started if there is none."""
    global _current  # noqa: PLW0603 - there is one per process
    with _starting:
        if _current is None or not _current.is_usable:
            _current = Background()
        return _current


def _after_fork_in_child() -> None:
    global _starting, _current  # noqa: PLW0603 - there is one per process
    # Another thread may have held it when the process was forked.
    _starting = Lock()
    if _current is not None:
        _current.leave_behind()
        _left_behind.append(_current)
        _current = None


def _at_exit() -> None:
    if _current is not None:
        _current.stop()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)


class CallbackThread:
    """Runs an application's callbacks in order, in a thread that is there only when needed.

    Not the loop's: a callback may block, and may even make blocking calls.
    """

    def __init__(self) -> None:
        self._callbacks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._deciding = Lock()
        self._is_running = False

    def post(self, callback: Callable[[], None]) -> None:
        """Run this after what was posted before."""
        with self._deciding:
            self._callbacks.put(callback)
            if self._is_running:
                return
            self._is_running = True
        with suppress(RuntimeError):  # At exit no thread can be started any more.
            Thread(target=self._run, name="proxyless-callbacks", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                callback = self._callbacks.get(timeout=_LINGER_S)
            except Empty:
                with self._deciding:
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
