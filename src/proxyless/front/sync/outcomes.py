"""What is known about an RPC of the blocking API, and which threads wait for more?

An `Outcome` stands between two sides. On the loop's thread it observes the channel's `Call`; on
any other thread an application's calls ask it, wait on it and cancel it. Deserializing happens on
the application's side.

Theory of operation
    A thread that waits queues a locked lock, looks once more whether there is something to wait
    for, and acquires the lock again. Who has news first notes them, then releases every lock that
    is queued. So whoever is not found there has seen the news.

    The end is decided once: by the loop, or before that by an application that cancels.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from threading import TIMEOUT_MAX, Lock
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import EMPTY_METADATA, Metadata, State, Status, StatusCode
from proxyless.base.frozen import frozen
from proxyless.channel.channel import CHANNEL_CLOSED
from proxyless.channel.statuses import CANCELLED
from proxyless.channel.unread import await_reader
from proxyless.front.conversions import COLLECTED, NO_MESSAGE, SECOND_MESSAGE, deserialize
from proxyless.wire import StreamEnd
from proxyless.wire.limits import BUFFERED_BYTES_MAX, MESSAGE_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.channel import Call, Channel
    from proxyless.channel.unread import Unread
    from proxyless.front.conversions import Deserializer
    from proxyless.front.sync.background import Background, CallbackThread
    from proxyless.front.sync.requests import RequestFeeder

_LEFT_BEHIND: Final = Status(
    StatusCode.CANCELLED, "the call belongs to the process that this one was forked from"
)

# How long a signal may go unnoticed by a thread that waits.
SIGNALS_SEEN_AFTER_S: Final = 0.5

# As with grpcio's blocking calls, unlike those of grpc.aio.
_NO_RESPONSE: Final = Status(StatusCode.INTERNAL, "response deserializer returned None")

# What `StreamOutcome.read` returns after the last response.
NO_MORE: Final = object()


@frozen(eq=False)
class Binding:
    """A channel's place on a background loop. Made anew in the child of a fork."""

    background: Background
    core: Channel
    # For the application's callbacks: those of calls, which may wait for the state, and those that
    # are told the state.
    callbacks: CallbackThread
    state_callbacks: CallbackThread


class Waiters:
    """Threads that wait for news. Driven by them and by who has the news, in any thread."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: list[Lock] = []

    def wait_once(self, is_needless: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Return at the next news, or at once if there were some meanwhile."""
        lock = Lock()
        lock.acquire()
        self._locks.append(lock)
        if is_needless():
            return
        if timeout_s is None:
            # Again and again: a signal (Ctrl-C) that comes just before a wait does not end it.
            while not lock.acquire(timeout=SIGNALS_SEEN_AFTER_S):
                pass
        elif not lock.acquire(timeout=min(max(timeout_s, 0.0), TIMEOUT_MAX)):
            with suppress(ValueError):  # Released just now.
                self._locks.remove(lock)

    def wake(self) -> None:
        locks = self._locks
        # Bounded: who is woken may wait again, for something else.
        for _ in range(len(locks)):
            try:
                # Taken before it is released: another thread may be here, too.
                # The oldest: one that comes meanwhile must not be woken in the place of another.
                lock = locks.pop(0)
            except IndexError:
                return
            lock.release()


class Outcome:
    """One RPC. Driven by its `Call`, on the loop, and by the application's threads."""

    __slots__ = (
        "_callbacks",
        "_deciding",
        "_end_waiters",
        "_keep_alive",
        "_waiters",
        "binding",
        "call",
        "deserializer",
        "end",
        "feeder",
        "head",
        "is_cancelled",
        "request",
    )

    # Set before the start. Not for other threads than the loop's from then on.
    call: Call

    def __init__(self, binding: Binding, deserializer: Deserializer, keep_alive: object) -> None:
        # Fixed at construction.
        self.binding = binding
        self.deserializer = deserializer
        # The channel, which would be closed if the RPC were all that is left of it.
        self._keep_alive = keep_alive
        # What the application sends: all of it, or whoever sends it bit by bit.
        self.request: bytes | None = None
        self.feeder: RequestFeeder | None = None
        # What the RPC said.
        self.head: Metadata | None = None
        self.end: StreamEnd | None = None
        # What the application did.
        self.is_cancelled = False
        self._callbacks: list[Callable[[], None]] | None = []
        # Who waits for the end, and who for whatever comes next.
        self._end_waiters = Waiters()
        self._waiters = Waiters()
        # Held while the end, or what runs after it, is decided.
        self._deciding = Lock()

    # On the loop

    def start(self) -> None:
        """Begin. Whatever goes wrong here must reach the thread that waits."""
        try:
            if self.end is not None:
                self.call.start_failed(self.end.status)
            elif self.binding.core.state is State.SHUTDOWN:
                # At exit this is a daemon's call, and nobody expects the daemon to come back.
                if self.binding.background.is_usable:
                    self.call.start_failed(CHANNEL_CLOSED)
            elif self.request is None:
                self.call.start()
            else:
                self.call.start_unary(self.request)
        except Exception as error:
            text = f"starting the call raised {type(error).__name__}: {error}"
            self.call.cancel(Status(StatusCode.INTERNAL, text))

    def on_head(self, metadata: Metadata) -> None:
        self.head = metadata
        self._waiters.wake()

    def on_message(self, message: bytes) -> None:
        raise NotImplementedError

    def on_writable(self) -> None:
        if self.feeder is not None:
            self.feeder.on_writable()

    def on_end(self, end: StreamEnd) -> None:
        self._conclude(end)

    # In any thread

    @property
    def takes_requests(self) -> bool:
        """The server may still want what the application sends."""
        return self.end is None

    def _conclude(self, end: StreamEnd) -> None:
        """The RPC is over, as far as the application is concerned. Idempotent."""
        with self._deciding:
            if self.end is None:
                self.end = end
            callbacks, self._callbacks = self._callbacks, None
        self._wake_all()
        # Nothing is left to be sent, and nobody has to wait for a collection of garbage.
        self._keep_alive = self.feeder = None
        for callback in callbacks or ():
            self.binding.callbacks.post(callback)

    def _wake_all(self) -> None:
        self._end_waiters.wake()
        self._waiters.wake()
        feeder = self.feeder
        if feeder is not None:
            feeder.wake()

    # On the application's threads

    def wait_end(self, timeout_s: float | None = None) -> StreamEnd | None:
        """How the RPC ended; None if it has not within the time."""
        if self.end is None:
            self._check_may_wait()
            self._end_waiters.wait_once(self._is_over, timeout_s)
        return self.end

    def _is_over(self) -> bool:
        return self.end is not None

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Return when this is so; looked at whenever the server has said something."""
        if not is_so():
            self._check_may_wait()
            while not is_so():
                self._waiters.wait_once(is_so)

    def _check_may_wait(self) -> None:
        background = self.binding.background
        background.check_may_block()
        if background.is_left_behind and self.end is None:
            # Not by `fail`: the parent may have been in there when it was forked.
            self.end = StreamEnd(_LEFT_BEHIND)

    def wait_head(self) -> Metadata:
        self.wait_until(lambda: self.head is not None or self.end is not None)
        return self.head or EMPTY_METADATA

    def cancel(self) -> bool:
        """End the RPC because the application wants that. False if it has ended."""
        return self.fail(CANCELLED, is_cancelled=True)

    def collect(self) -> None:
        """The application dropped the call, so that nobody waits. Any thread, at any moment."""
        if self.end is None:
            self.binding.background.post(partial(self.call.cancel, COLLECTED))

    def fail(self, status: Status, *, is_cancelled: bool = False) -> bool:
        """End the RPC from this side, with this status. False if it has ended."""
        with self._deciding:
            if self.end is not None:
                return False
            # First: nobody who sees the end may take it for one that nobody wanted.
            self.is_cancelled = is_cancelled
            self.end = StreamEnd(status)
        self._wake_all()
        self.binding.background.post(partial(self.call.cancel, status))
        return True

    def call_when_done(self, callback: Callable[[], None]) -> bool:
        """Call back when the RPC is over, in some thread. False if it is over."""
        with self._deciding:
            if self.end is not None or self._callbacks is None:
                return False
            self._callbacks.append(callback)
            return True

    def time_remaining_s(self) -> float | None:
        background = self.binding.background
        return background.ask(self.call.time_remaining_s) if background.is_usable else None


class UnaryOutcome(Outcome):
    """The outcome of an RPC with one response."""

    __slots__ = ("_message", "response")

    def __init__(self, binding: Binding, deserializer: Deserializer, keep_alive: object) -> None:
        super().__init__(binding, deserializer, keep_alive)
        # As received, until a thread of the application asks for the response.
        self._message: bytes | None = None
        self.response: Any = None

    def on_message(self, message: bytes) -> None:
        if self._message is not None:
            self.call.cancel(SECOND_MESSAGE)
        else:
            self._message = message

    def on_end(self, end: StreamEnd) -> None:
        if end.status.code is StatusCode.OK and self._message is None:
            end = StreamEnd(NO_MESSAGE, end.trailers)
        super().on_end(end)

    def wait_end(self, timeout_s: float | None = None) -> StreamEnd | None:
        end = super().wait_end(timeout_s)
        if end is not None and self._message is not None:
            self._deserialize()
        return self.end

    def _deserialize(self) -> None:
        """Turn what was received into the response, once, or into the reason that there is none."""
        with self._deciding:
            message, self._message = self._message, None
            end = self.end
            if message is None or end is None or end.status.code is not StatusCode.OK:
                return
            self.response, problem = _deserialize(self.deserializer, message)
            if problem is not None:
                self.end = StreamEnd(problem, end.trailers)


def _deserialize(deserializer: Deserializer, message: bytes) -> tuple[Any, Status | None]:
    response, problem = deserialize(deserializer, message)
    return response, _NO_RESPONSE if response is None and problem is None else problem


class StreamOutcome(Outcome):
    """The outcome of an RPC with any number of responses, in a bounded queue.

    As with grpcio, what the server says last stands in the queue behind its responses: the RPC is
    over when they are read. Every other end is seen at once, also while that one waits: at the
    deadline, and when the channel is closed.
    """

    __slots__ = (
        "_is_held",
        "_last_word",
        "_reading",
        "_received",
        "_received_bytes",
        "_taken_bytes",
        "_unread",
    )

    def __init__(self, binding: Binding, deserializer: Deserializer, keep_alive: object) -> None:
        super().__init__(binding, deserializer, keep_alive)
        self._received: deque[bytes] = deque()
        # The loop counts what comes in, the reader what goes out: each changes only its own.
        self._received_bytes = 0
        self._taken_bytes = 0
        self._is_held = False
        # What the server said last, and what looks after the RPC while that waits for the reader.
        self._last_word: StreamEnd | None = None
        self._unread: Unread | None = None
        # One thread reads at a time.
        self._reading = Lock()

    # On the loop

    def on_message(self, message: bytes) -> None:
        self._received.append(message)
        self._received_bytes += len(message) + MESSAGE_OVERHEAD_BYTES
        if not self._is_held and self._unread_bytes > BUFFERED_BYTES_MAX:
            self._is_held = True
            self.call.hold()
            # A reader who took everything just before that has not seen it and will not ask.
            self._release_if_drained()
        self._waiters.wake()

    @property
    def _unread_bytes(self) -> int:
        return self._received_bytes - self._taken_bytes

    def _release_if_drained(self) -> None:
        if self._is_held and self._unread_bytes <= BUFFERED_BYTES_MAX // 2:
            self._is_held = False
            self.call.release()

    def on_end(self, end: StreamEnd) -> None:
        if end.is_last_word:
            # First: a reader who takes the last response just now looks for this after that.
            self._last_word = end
            if self.feeder is not None:
                self.feeder.wake()
            self._conclude_if_read()
            if self.end is None:
                self._await_reader()
        else:
            self._conclude(end)

    def _await_reader(self) -> None:
        self._unread = unread = await_reader(self.call, self._on_cut)
        if self.end is not None:
            # A reader who took the last response just now has not seen it.
            unread.forget()

    def _on_cut(self, status: Status) -> None:
        """Nobody has read everything in time. As with any other end, what is here can be read."""
        self._conclude(StreamEnd(status))

    def _on_collected(self) -> None:
        self.call.cancel(COLLECTED)
        if self._unread is not None:
            # Then that was void.
            self._unread.cancel(COLLECTED)

    # In any thread

    @property
    def takes_requests(self) -> bool:
        return self.end is None and self._last_word is None

    def _conclude_if_read(self) -> None:
        """The server's last word is the end when nothing is left to be read before it."""
        if self._last_word is not None and (not self._received or self.end is not None):
            self._conclude(self._last_word)

    def _conclude(self, end: StreamEnd) -> None:
        super()._conclude(end)
        unread, self._unread = self._unread, None
        if unread is not None:
            self.binding.background.post(unread.forget)

    def collect(self) -> None:
        if self.end is None:
            self.binding.background.post(self._on_collected)

    # On the application's threads

    def fail(self, status: Status, *, is_cancelled: bool = False) -> bool:
        if not super().fail(status, is_cancelled=is_cancelled):
            return False
        # Who cancels does not want the rest.
        self._received.clear()
        # For the callbacks: the loop, which has heard the last word, will not say it again.
        self._conclude_if_read()
        return True

    def read(self) -> Any:
        """The next response, or NO_MORE after the last. Blocks."""
        with self._reading:
            message = self._take()
        if message is None:
            return NO_MORE
        try:
            response, problem = _deserialize(self.deserializer, message)
            if problem is None:
                return response
            self._received.clear()
            if not self.fail(problem):
                self._replace_ok(problem)
            return NO_MORE
        finally:
            self._conclude_if_read()

    def _take(self) -> bytes | None:
        received = self._received
        while not received:
            if self.end is not None and not received:
                return None
            self.wait_until(lambda: bool(received) or self.end is not None)
        try:
            message = received.popleft()
        except IndexError:  # Cancelled by another thread just now.
            return None
        if self.is_cancelled:  # It came before the loop knew.
            return None
        self._taken_bytes += len(message) + MESSAGE_OVERHEAD_BYTES
        if self._is_held and self._unread_bytes <= BUFFERED_BYTES_MAX // 2:
            self.binding.background.post(self._release_if_drained)
        return message

    def _replace_ok(self, problem: Status) -> None:
        """The server said OK, but a response it sent before cannot be read."""
        with self._deciding:
            if self.end is not None and self.end.status.is_ok:
                self.end = StreamEnd(problem, self.end.trailers)
