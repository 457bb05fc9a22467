"""How does a stream to a control plane stay open?

Specs: A57 (stream termination, backoff).

A stream that ends is started again: after a backoff that grows while the server does not answer,
and starts afresh once it did. The delay counts from the start of the stream, so one that lasted is
replaced at once, and a server that hangs up at every answer is asked once per second.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from proxyless.base import NULL_TRACE, Backoff, BackoffPolicy, Trace
from proxyless.base.frozen import frozen
from proxyless.runtime import IDLE_TIMER, Clock, Random, Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import Status
    from proxyless.xds.client.transport import Stream, Transport


@frozen
class Tools:
    """What the shells of this room act through."""

    clock: Clock
    random: Random
    trace: Trace = NULL_TRACE
    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)


class StreamOwner(Protocol):
    """Who speaks on the streams."""

    def on_stream_opened(self) -> None:
        """A new stream: everything has to be said again. Reading is up to the owner."""

    def on_stream_ready(self) -> None:
        """What was sent on it is on its way."""

    def on_stream_message(self, message: bytes) -> None:
        """A message of the server's."""

    def on_stream_ended(self, status: Status, *, has_answered: bool) -> None:
        """It is over; another one follows by itself."""


class RetriedStream:
    """One stream after the other. Driven by its owner, the transport and the backoff timer."""

    def __init__(self, path: str, transport: Transport, tools: Tools, owner: StreamOwner) -> None:
        # Fixed at construction.
        self._path = path
        self._transport = transport
        self._tools = tools
        self._owner = owner
        # Of the current stream.
        self._stream: Stream | None = None
        self._started_s = 0.0
        self._has_answered = False
        self.is_ready = False
        # Between two streams.
        self._backoff = Backoff(tools.backoff)
        self._timer: Timer = IDLE_TIMER

    def start(self) -> None:
        """Open the first stream."""
        self._open()

    def _open(self) -> None:
        self._started_s = self._tools.clock.now_s()
        self._has_answered = self.is_ready = False
        self._stream = self._transport.open(self._path, self)
        self._owner.on_stream_opened()

    def retry_in_s(self, now_s: float) -> float | None:
        """How long until the next stream; None if nobody waits for one."""
        return max(self._timer.due_s - now_s, 0.0) if self._timer.pending else None

    def send(self, message: bytes) -> None:
        if self._stream is not None:
            self._stream.send(message)

    @property
    def is_writable(self) -> bool:
        """Whether the server takes what it is sent."""
        return self._stream is not None and self._stream.is_writable

    def reader(self) -> Callable[[], None]:
        """Asks the current stream for a message, whenever it is called; void if it has ended."""
        return self._stream.read_next if self._stream is not None else _do_nothing

    def note_answer(self) -> None:
        """The owner understood a message: the server works."""
        self._has_answered = True

    def close(self) -> None:
        """End it; nothing follows. Idempotent."""
        self._timer.cancel()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    # What the transport says

    def on_ready(self) -> None:
        self.is_ready = True
        self._owner.on_stream_ready()

    def on_message(self, message: bytes) -> None:
        self._owner.on_stream_message(message)

    def on_end(self, status: Status) -> None:
        self._stream, self.is_ready = None, False
        if self._has_answered:
            # "The backoff state will be reset when an ADS stream attempt does finally receive a
            # response" - A57
            self._backoff.reset()
        again_s = self._started_s + self._backoff.next_delay_s(self._tools.random)
        if self._has_answered:
            self._backoff.reset()
        delay_s = max(0.0, again_s - self._tools.clock.now_s())
        self._timer = self._tools.clock.call_later(delay_s, self._open)
        self._owner.on_stream_ended(status, has_answered=self._has_answered)


def _do_nothing() -> None:
    return
