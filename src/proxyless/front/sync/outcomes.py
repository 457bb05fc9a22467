"""Result of a call of the blocking API: head, responses, end, and the threads that wait for them.

An `Outcome` observes the channel's `Call` in the loop's thread; the application's threads read it,
wait for it and cancel it. Responses are deserialized in the application's threads.

Theory of operation
    A thread that waits queues a locked lock, checks its condition once more, and acquires the lock
    again. A thread that changes the outcome does so first, and then releases all queued locks. So a
    thread whose lock is not in the queue has seen the change.

    The end is decided once: by the loop, or before that by an application that cancels.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import TIMEOUT_MAX, Lock, RLock
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import EMPTY_METADATA, Metadata, State, Status, StatusCode
from proxyless.base.frozen import frozen
from proxyless.channel.channel import CHANNEL_CLOSED
from proxyless.channel.statuses import CANCELLED
from proxyless.channel.unread_call import track_unread
from proxyless.front.conversions import COLLECTED, NO_MESSAGE, SECOND_MESSAGE, deserialize
from proxyless.wire import StreamEnd
from proxyless.wire.limits import BUFFERED_BYTES_MAX, MESSAGE_OVERHEAD_BYTES
from proxyless.wire.messages import Unpacking

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.channel import Call, Channel
    from proxyless.channel.unread_call import UnreadCall
    from proxyless.front.conversions import Deserializer
    from proxyless.front.sync.background import Background, CallbackThread
    from proxyless.front.sync.requests import RequestFeeder

_ABANDONED: Final = Status(
    StatusCode.CANCELLED, "the call belongs to the process that this one was forked from"
)

# In Python 3.11 naming the member of an enum takes as long as a call, and every RPC uses these.
_OK: Final = StatusCode.OK
_SHUTDOWN: Final = State.SHUTDOWN

# The time after which a waiting thread handles a signal at the latest.
SIGNALS_SEEN_AFTER_S: Final = 0.5

# As in grpcio's blocking calls, unlike in grpc.aio.
_NO_RESPONSE: Final = Status(StatusCode.INTERNAL, "response deserializer returned None")

# Returned by `StreamOutcome.read` after the last response.
NO_MORE: Final = object()


@frozen(eq=False)
class Binding:
    """A channel's core and the background loop it is on. Created anew in the child of a fork."""

    background: Background
    core: Channel
    # Two threads, because a callback of a call may wait for a state callback.
    callbacks: CallbackThread
    state_callbacks: CallbackThread


class Waiters(list[Lock]):
    """Threads that wait for a change: their locks. May be used by any thread.

    A list, because creating it and finding it empty cost an RPC no function call.
    """

    __slots__ = ()

    def wait_once(self, is_met: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Return at the next `wake`, or at once if the condition is met."""
        lock = Lock()
        lock.acquire()
        self.append(lock)
        if is_met():
            return
        if timeout_s is None:
            # In a loop, because a signal (Ctrl-C) just before a wait does not end the wait.
            while not lock.acquire(timeout=SIGNALS_SEEN_AFTER_S):
                pass
        elif not lock.acquire(timeout=min(max(timeout_s, 0.0), TIMEOUT_MAX)):
            with suppress(ValueError):  # Another thread has just removed it.
                self.remove(lock)

    def wake(self) -> None:
        # Bounded: a woken thread may wait again, for another condition.
        for _ in range(len(self)):
            try:
                # Removed before it is released, because another thread may be here, too. The
                # oldest, so that a lock that is added meanwhile does not take its turn.
                lock = self.pop(0)
            except IndexError:
                return
            lock.release()


class Outcome:
    """The result of one RPC: observes its `Call`, and is shared with the application's threads."""

    __slots__ = (
        "_callbacks",
        "_end_lock",
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

    # Set before the start; used by the loop's thread only after that.
    call: Call

    def __init__(self, binding: Binding, deserializer: Deserializer, keep_alive: object) -> None:
        # Fixed at construction.
        self.binding = binding
        self.deserializer = deserializer
        # The channel: if it were freed, the RPC would be cancelled.
        self._keep_alive = keep_alive
        # The only request, or the sender of a stream of requests.
        self.request: bytes | None = None
        self.feeder: RequestFeeder | None = None
        # From the `Call`.
        self.head: Metadata | None = None
        self.end: StreamEnd | None = None
        # From the application.
        self.is_cancelled = False
        self._callbacks: list[Callable[[], None]] | None = []
        # Threads that wait for the end, and for any change.
        self._end_waiters = Waiters()
        self._waiters = Waiters()
        # Held while the end or the callbacks change. Reentrant, because a signal handler may cancel
        # the RPC in a thread that holds it.
        self._end_lock = RLock()

    # On the loop

    def start(self) -> None:
        """Start the call. An exception ends it, because a thread waits for it."""
        try:
            if self.end is not None:
                self.call.start_failed(self.end.status)
            elif self.binding.core.state is _SHUTDOWN:
                # At exit this is the call of a daemon thread, which is left waiting.
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
        if self._waiters:
            self._waiters.wake()

    def choose_unpacking(self) -> Unpacking:
        return Unpacking.AT_END

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
        """Whether the server may still read requests."""
        return self.end is None

    def _conclude(self, end: StreamEnd) -> None:
        """End the RPC for the application. Idempotent."""
        with self._end_lock:
            if self.end is None:
                self.end = end
            callbacks, self._callbacks = self._callbacks, None
        self._wake_all()
        # Breaks reference cycles.
        self._keep_alive = self.feeder = None
        for callback in callbacks or ():
            self.binding.callbacks.post(callback)

    def _wake_all(self) -> None:
        self._end_waiters.wake()
        if self._waiters:
            self._waiters.wake()
        feeder = self.feeder
        if feeder is not None:
            feeder.wake()

    # On the application's threads

    def wait_end(self, timeout_s: float | None = None) -> StreamEnd | None:
        """The end of the RPC; None after the timeout."""
        if self.end is None:
            self._check_may_wait()
            self._end_waiters.wait_once(self._is_ended, timeout_s)
        return self.end

    def _is_ended(self) -> bool:
        return self.end is not None

    def wait_until(self, is_met: Callable[[], bool]) -> None:
        """Return when the condition is met; it is checked at every change."""
        if not is_met():
            self._check_may_wait()
            while not is_met():
                self._waiters.wait_once(is_met)

    def _check_may_wait(self) -> None:
        background = self.binding.background
        background.check_may_block()
        if background.is_abandoned and self.end is None:
            # Not with `fail`, whose lock may have been held when the process was forked.
            self.end = StreamEnd(_ABANDONED)

    def wait_head(self) -> Metadata:
        self.wait_until(lambda: self.head is not None or self.end is not None)
        return self.head or EMPTY_METADATA

    def cancel(self) -> bool:
        """Cancel the RPC for the application. False if it has ended."""
        return self.fail(CANCELLED, is_cancelled=True)

    def collect(self) -> None:
        """Cancel the RPC of a call that was garbage-collected. Called in any thread."""
        if self.end is None:
            self.binding.background.post(partial(self.call.cancel, COLLECTED))

    def fail(self, status: Status, *, is_cancelled: bool = False) -> bool:
        """End the RPC with this status. False if it has ended."""
        with self._end_lock:
            if self.end is not None:
                return False
            # Before the end: a thread that sees the end reads this, too.
            self.is_cancelled = is_cancelled
            self.end = StreamEnd(status)
        self._wake_all()
        self.binding.background.post(partial(self.call.cancel, status))
        return True

    def call_when_done(self, callback: Callable[[], None]) -> bool:
        """Call back in another thread, in this context, when the RPC has ended. False if it has."""
        with self._end_lock:
            if self.end is not None or self._callbacks is None:
                return False
            self._callbacks.append(partial(copy_context().run, callback))
            return True

    def time_remaining_s(self) -> float | None:
        background = self.binding.background
        return background.call(self.call.time_remaining_s) if background.is_usable else None


class UnaryOutcome(Outcome):
    """The result of an RPC with one response."""

    __slots__ = ("_message", "response")

    def __init__(self, binding: Binding, deserializer: Deserializer, keep_alive: object) -> None:
        super().__init__(binding, deserializer, keep_alive)
        # As received, until a thread of the application deserializes it.
        self._message: bytes | None = None
        self.response: Any = None

    def on_message(self, message: bytes) -> None:
        if self._message is not None:
            self.call.cancel(SECOND_MESSAGE)
        else:
            self._message = message

    def on_end(self, end: StreamEnd) -> None:
        if end.status.code is _OK and self._message is None:
            end = StreamEnd(NO_MESSAGE, end.trailers)
        self._conclude(end)

    def wait_end(self, timeout_s: float | None = None) -> StreamEnd | None:
        end = super().wait_end(timeout_s)
        if end is not None and self._message is not None:
            self._deserialize()
        return self.end

    def _deserialize(self) -> None:
        """Set the response, or an error in place of the end. Once."""
        with self._end_lock:
            message, self._message = self._message, None
            end = self.end
            if message is None or end is None or end.status.code is not _OK:
                return
            self.response, error = _deserialize(self.deserializer, message)
            if error is not None:
                self.end = StreamEnd(error, end.trailers)


def _deserialize(deserializer: Deserializer, message: bytes) -> tuple[Any, Status | None]:
    response, error = deserialize(deserializer, message)
    return response, _NO_RESPONSE if response is None and error is None else error


class StreamOutcome(Outcome):
    """The result of an RPC with any number of responses, in a bounded queue.

    As with grpcio, an end from trailers is delivered after the responses: the RPC ends when they
    are read. Every other end (deadline, closed channel) is delivered at once, even while an end
    from trailers is pending.
    """

    __slots__ = (
        "_is_held",
        "_is_packed",
        "_pending_end",
        "_reading",
        "_received",
        "_received_bytes",
        "_taken_bytes",
        "_unread",
    )

    def __init__(self, binding: Binding, deserializer: Deserializer, keep_alive: object) -> None:
        super().__init__(binding, deserializer, keep_alive)
        self._received: deque[bytes] = deque()
        # Changed by the loop only, and by the reader only.
        self._received_bytes = 0
        self._taken_bytes = 0
        self._is_held = False
        # Responses may be compressed: each is unpacked when it is read. Set by the loop.
        self._is_packed = False
        # The end from trailers while responses before it are unread, and the unread call.
        self._pending_end: StreamEnd | None = None
        self._unread: UnreadCall | None = None
        # Held by the thread that reads.
        self._reading = Lock()

    # On the loop

    def choose_unpacking(self) -> Unpacking:
        self._is_packed = True
        # Wakes a reader that waited before this was set.
        self._waiters.wake()
        return Unpacking.ON_READ

    def _request_message(self) -> None:
        if not self._received:
            self.call.request_message()

    def on_message(self, message: bytes) -> None:
        self._received.append(message)
        self._received_bytes += len(message) + MESSAGE_OVERHEAD_BYTES
        if not self._is_held and self._unread_bytes > BUFFERED_BYTES_MAX:
            self._is_held = True
            self.call.hold()
            # A reader that took everything just before saw `_is_held` unset, and posts no release.
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
        if end.is_from_trailers:
            # Set first: a reader reads this after it has taken the last response.
            self._pending_end = end
            if self.feeder is not None:
                self.feeder.wake()
            self._conclude_if_read()
            if self.end is None:
                self._track_unread()
        else:
            self._conclude(end)

    def _track_unread(self) -> None:
        self._unread = unread = track_unread(self.call, self._on_unread_end)
        if self.end is not None:
            # A reader took the last response before it could see `_unread`.
            unread.close()

    def _on_unread_end(self, status: Status) -> None:
        """End a call whose responses were not read in time; they can still be read."""
        self._conclude(StreamEnd(status))

    def _on_collected(self) -> None:
        self.call.cancel(COLLECTED)
        if self._unread is not None:
            # Then `call.cancel` was a no-op.
            self._unread.cancel(COLLECTED)

    # In any thread

    @property
    def takes_requests(self) -> bool:
        if self.end is not None or self._pending_end is not None:
            return False
        return not (self._is_packed or self._is_held) or self.call.undelivered_end is None

    def _conclude_if_read(self) -> None:
        """Deliver the pending end if no response before it is unread."""
        if self._pending_end is not None and (not self._received or self.end is not None):
            self._conclude(self._pending_end)

    def _conclude(self, end: StreamEnd) -> None:
        super()._conclude(end)
        unread, self._unread = self._unread, None
        if unread is not None:
            self.binding.background.post(unread.close)

    def collect(self) -> None:
        if self.end is None:
            self.binding.background.post(self._on_collected)

    # On the application's threads

    def fail(self, status: Status, *, is_cancelled: bool = False) -> bool:
        if not super().fail(status, is_cancelled=is_cancelled):
            return False
        self._received.clear()
        # Runs the callbacks if the end is pending: `on_end` is not called again.
        self._conclude_if_read()
        return True

    def read(self) -> Any:
        """The next response, or NO_MORE after the last. Blocks."""
        with self._reading:
            message = self._take()
        if message is None:
            return NO_MORE
        try:
            response, error = _deserialize(self.deserializer, message)
            if error is None:
                return response
            self._received.clear()
            if not self.fail(error):
                self._replace_ok(error)
            return NO_MORE
        finally:
            self._conclude_if_read()

    def _take(self) -> bytes | None:
        received = self._received
        while not received:
            if self.end is not None and not received:
                return None
            if self._is_packed:
                self.binding.background.post(self._request_message)
                self.wait_until(lambda: bool(received) or self.end is not None)
            else:
                self.wait_until(lambda: bool(received) or self.end is not None or self._is_packed)
        try:
            message = received.popleft()
        except IndexError:  # Another thread has cancelled the call.
            return None
        if self.is_cancelled:  # The message was received before the loop has cancelled the call.
            return None
        self._taken_bytes += len(message) + MESSAGE_OVERHEAD_BYTES
        if self._is_held and self._unread_bytes <= BUFFERED_BYTES_MAX // 2:
            self.binding.background.post(self._release_if_drained)
        return message

    def _replace_ok(self, error: Status) -> None:
        """Replace the status OK of a call with a response that cannot be deserialized."""
        with self._end_lock:
            if self.end is not None and self.end.status.is_ok:
                self.end = StreamEnd(error, self.end.trailers)
