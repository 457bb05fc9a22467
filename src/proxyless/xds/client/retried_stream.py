"""Stream to a control plane that is retried with backoff.

Specs: A57 (stream termination, backoff), D51.

The backoff is reset when the server sends a response. The delay counts from the start of the ended
stream, so a long one is replaced at once, and a server that ends the stream after each response
gets one per second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import NULL_TRACE, OK, Backoff, BackoffPolicy, Status, Trace
from proxyless.base.frozen import frozen
from proxyless.runtime import IDLE_TIMER, UNLIMITED_WORK, Clock, Random, Timer, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.xds.client.transport import Stream, Transport


# Backoff of streams and connections to control planes (D51). Delays are at most 30 s, 20 s on
# average: a client finds a control plane that is back after 11 s on average, and 10,000 clients
# make 500 attempts per second.
CONTROL_PLANE_BACKOFF: Final = BackoffPolicy(max_s=20.0, jitter=0.5)
# Why a resource that was not sent in time may still come.
RESPONSE_UNDER_WAY: Final = ", a response is under way"
# A stream that ends earlier is short: no resource timer fires on it.
SHORT_STREAM_S: Final = 15.0
# So many in a row are reported.
SHORT_STREAMS_MIN: Final = 3


@frozen
class Tools:
    """Clock, randomness, trace, backoff and work queue of a client."""

    clock: Clock
    random: Random
    trace: Trace = NULL_TRACE
    backoff: BackoffPolicy = CONTROL_PLANE_BACKOFF
    # Shared by all clients of a loop.
    work: Work = UNLIMITED_WORK


class StreamOwner(Protocol):
    """Callbacks of a retried stream."""

    def on_stream_opened(self) -> None:
        """A new stream was started. The owner requests the first message."""

    def on_stream_ready(self) -> None:
        """The stream has a connection."""

    def on_stream_writable(self) -> None:
        """A stream whose `is_writable` was False can take messages again."""

    def on_stream_message(self, message: bytes) -> None: ...

    def on_stream_ended(self, status: Status, *, has_answered: bool) -> None:
        """The stream has ended; another one is scheduled."""


class RetriedStream:
    """Stream on a transport, and its replacements. Owns the backoff timer."""

    def __init__(self, path: str, transport: Transport, tools: Tools, owner: StreamOwner) -> None:
        # Fixed at construction.
        self._path = path
        self._transport = transport
        self._tools = tools
        self._owner = owner
        # State of the current stream.
        self._stream: Stream | None = None
        self._started_s = 0.0
        self.has_answered = False
        self.is_ready = False
        # Whether a message was sent on it.
        self.has_sent = False
        # Changes when a stream starts or ends.
        self.number = 0
        self._answered_number = 0
        # Short streams in a row on which the server answered, and the end of the last stream.
        self._short_streams = 0
        self.last_end = OK
        # Between two streams.
        self._backoff = Backoff(tools.backoff)
        self._timer: Timer = IDLE_TIMER

    def start(self) -> None:
        self._started_s = self._tools.clock.now_s()
        self.has_answered = self.is_ready = self.has_sent = False
        self.number += 1
        self._stream = self._transport.open(self._path, self)
        self._owner.on_stream_opened()

    def short_streams(self, now_s: float) -> int:
        """Short streams in a row on which the server answered; 0 if the current one is not."""
        is_over = self._stream is not None and now_s - self._started_s >= SHORT_STREAM_S
        return 0 if is_over or self._short_streams < SHORT_STREAMS_MIN else self._short_streams

    def retry_in_s(self, now_s: float) -> float | None:
        """Time until the next stream, or the next attempt to connect; None if it is unknown."""
        if self._timer.pending:
            return max(self._timer.due_s - now_s, 0.0)
        return self._transport.retry_in_s()

    def send(self, message: bytes) -> None:
        if self._stream is not None:
            self.has_sent = True
            self._stream.send(message)

    @property
    def is_writable(self) -> bool:
        """Whether the server reads what is sent."""
        return self._stream is not None and self._stream.is_writable

    def read_next(self) -> None:
        """Request a message of this stream."""
        if self._stream is not None:
            self._stream.read_next()

    def reader(self) -> Callable[[], None]:
        """`read_next` of this stream, for later: a no-op after its end."""
        return self._stream.read_next if self._stream is not None else _do_nothing

    @property
    def no_answer(self) -> str:
        """Why a resource that was not sent in time may still come, for texts; else empty."""
        if self._stream is not None and self._stream.is_receiving:
            return RESPONSE_UNDER_WAY
        return "" if self.has_answered else ", nor anything else"

    def probe(self, on_answer: Callable[[], None]) -> None:
        """Call back if the server's host is alive."""
        if self._stream is not None:
            self._stream.probe(on_answer)

    def is_first_answer(self, number: int) -> bool:
        """Whether a response is the first of the stream with this number, which may have ended."""
        is_first = number != self._answered_number
        self._answered_number = number
        return is_first

    def note_answer(self) -> None:
        """Called by the owner for each valid message; resets the backoff."""
        self.has_answered = True

    def close(self) -> None:
        """End the stream and its retries. Idempotent."""
        self._timer.cancel()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    # Called by the transport

    def on_ready(self) -> None:
        self.is_ready = True
        self._owner.on_stream_ready()

    def on_writable(self) -> None:
        self._owner.on_stream_writable()

    def on_message(self, message: bytes) -> None:
        self._owner.on_stream_message(message)

    def on_end(self, status: Status) -> None:
        self._stream, self.is_ready = None, False
        self.number += 1
        if self.has_answered:
            # "The backoff state will be reset when an ADS stream attempt does finally receive a
            # response" - A57
            self._backoff.reset()
        is_short = self._tools.clock.now_s() - self._started_s < SHORT_STREAM_S
        self._short_streams = self._short_streams + 1 if is_short and self.has_answered else 0
        self.last_end = status
        again_s = self._started_s + self._backoff.next_delay_s(self._tools.random)
        if self.has_answered:
            # This stream has not failed: if the next one does, its delay is the first.
            self._backoff.reset()
        delay_s = max(0.0, again_s - self._tools.clock.now_s())
        self._timer = self._tools.clock.call_later(delay_s, self.start)
        self._owner.on_stream_ended(status, has_answered=self.has_answered)


def _do_nothing() -> None:
    return
