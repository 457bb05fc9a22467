"""What happens to bytes on their way between two hosts?

A connection is two ends with a pipe in each direction. Bytes arrive in order and after the latency
of their link; a link may be cut, and then everything waits (the sender cannot know), as it does
when the machine at the other end is gone without a word. A slow reader takes a bounded number of
bytes per second. What TCP hides is hidden here, too: nothing is lost or reordered but by an end.
An end is sent like bytes, so it may wait behind a cut as well; who sends to an end that is gone
is told so by a reset.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import Address
    from proxyless.runtime import Random

# One way, within a data center.
LATENCY_S: Final = 0.0005
# What a sender may have under way before it is asked to pause; asyncio's own default.
WRITE_BUFFER_BYTES: Final = 64 * 1024
# What the kernel takes off a sender's hands: a socket that is closed with less is gone at once.
KERNEL_BUFFER_BYTES: Final = 64 * 1024


@dataclass(slots=True, eq=False)
class Link:
    """The way from one host to another, in one direction. Changed by faults."""

    # One way; each chunk draws its own, up to this much more.
    latency_s: float = LATENCY_S
    jitter_s: float = LATENCY_S
    # How many faults cut it: nothing arrives, connections stay open and wait, as attempts do.
    cuts: int = 0
    # How many stall it: nothing arrives, but the kernel still accepts, as for a process that hangs.
    stalls: int = 0
    # What the receiver takes in; None is without limit.
    bytes_per_s: float | None = None

    def draw_latency_s(self, random: Random) -> float:
        return self.latency_s + random.random() * self.jitter_s

    @property
    def is_cut(self) -> bool:
        return self.cuts > 0

    @property
    def is_blocked(self) -> bool:
        return self.cuts > 0 or self.stalls > 0


class End(Enum):
    """How one end says that it is over."""

    CLOSED = "closed"
    RESET = "reset"


class Pipe:
    """One direction of one connection. Driven by the sending end and by time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, link: Link, random: Random) -> None:
        # Fixed at construction.
        self._loop = loop
        self._link = link
        self._random = random
        # Set when both ends are there.
        self.sender: SimTransport | None = None
        self.receiver: SimTransport | None = None
        # What is under way.
        self._chunks: deque[bytes | End] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.unsent_bytes = 0
        # A fault: deliver only so many bytes more, then break; None is all of them.
        self.bytes_until_cut: int | None = None
        # Told what was sent in one piece and how much of it arrived, if that is not all.
        self.on_cut_short: Callable[[bytes, int], None] = lambda _sent, _arrived_bytes: None

    def send(self, data: bytes | End) -> None:
        """More bytes, or the end, behind what is under way."""
        self._chunks.append(data)
        if isinstance(data, bytes):
            self.unsent_bytes += len(data)
        self.wake()

    def drop(self) -> None:
        """Forget what is under way."""
        self._chunks.clear()
        self.unsent_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def wake(self) -> None:
        """There are new bytes, or the link or the receiver has changed its mind."""
        if self._timer is None and self._chunks and not self._is_held():
            delay_s = self._link.draw_latency_s(self._random)
            first = self._chunks[0]
            if self._link.bytes_per_s is not None and isinstance(first, bytes):
                delay_s += len(first) / self._link.bytes_per_s
            self._timer = self._loop.call_later(delay_s, self._deliver)

    def _is_held(self) -> bool:
        # An end that is over hears everything, in order to say so.
        return self._link.is_blocked or (
            self.receiver is not None and self.receiver.is_paused and not self.receiver.is_over
        )

    def _deliver(self) -> None:
        self._timer = None
        # What was sent in one breath arrives in one breath.
        while self._chunks and not self._is_held():
            self._deliver_one(self._chunks.popleft())
        if self.sender is not None:
            self.sender.on_drained()

    def _deliver_one(self, chunk: bytes | End) -> None:
        sender, receiver = self.sender, self.receiver
        assert sender is not None, "a pipe has two ends"
        assert receiver is not None, "a pipe has two ends"
        if isinstance(chunk, End):
            receiver.on_peer_over(chunk)
            return
        self.unsent_bytes -= len(chunk)
        if receiver.is_over:
            self.drop()
            receiver.answer_with_reset()
            return
        if self.bytes_until_cut is not None:
            if self.bytes_until_cut < len(chunk):
                self.on_cut_short(chunk, self.bytes_until_cut)
            chunk = chunk[: self.bytes_until_cut]
            self.bytes_until_cut -= len(chunk)
        receiver.on_bytes(chunk)
        if self.bytes_until_cut == 0:
            receiver.reset()


class SimTransport(asyncio.Transport):
    """One end of a connection: what asyncio gives a protocol. Driven by the protocol and pipes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pipes: tuple[Pipe, Pipe],
        addresses: tuple[Address, Address],
        on_over: Callable[[SimTransport], None],
    ) -> None:
        """Pipes: to the peer and from it. Addresses: our own and the peer's."""
        super().__init__()
        # Fixed at construction.
        self._loop = loop
        self._out, self._in = pipes
        self.local, self.remote = addresses
        self._on_over = on_over
        # Set by `start`.
        self._protocol: asyncio.BaseProtocol | None = None
        # Changed by the protocol and the peer.
        self.is_paused = True
        self.is_over = False
        self._is_closing = False
        self._is_writing_paused = False
        self._high_bytes = WRITE_BUFFER_BYTES

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self.is_paused = False
        protocol.connection_made(self)
        self._in.wake()

    # What a protocol does

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self.is_over or self._is_closing or not data:
            return
        self._out.send(bytes(data))
        if self._out.unsent_bytes > self._high_bytes and not self._is_writing_paused:
            self._is_writing_paused = True
            self._stream_protocol().pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = WRITE_BUFFER_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._out.unsent_bytes

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        self._in.wake()

    def is_reading(self) -> bool:
        return not self.is_paused

    def is_closing(self) -> bool:
        return self._is_closing or self.is_over

    def close(self) -> None:
        """Send what is left, then end."""
        if not self.is_closing():
            self._is_closing = True
            # Nobody listens any more, so nobody holds the peer back.
            self._out.send(End.CLOSED)
            self._end_if_sent()

    def abort(self) -> None:
        if not self.is_over:
            self._is_closing = True
            self._out.drop()
            self._out.send(End.RESET)
            self._end_soon(None)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None, "a transport is started with its protocol"
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        return {"peername": str(self.remote), "sockname": str(self.local)}.get(name, default)

    # What pipes do

    def on_bytes(self, data: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while view and not self.is_over:
                buffer = memoryview(protocol.get_buffer(len(view)))
                taken = min(len(buffer), len(view))
                buffer[:taken] = view[:taken]
                protocol.buffer_updated(taken)
                view = view[taken:]
        elif isinstance(protocol, asyncio.Protocol):
            protocol.data_received(data)

    def on_drained(self) -> None:
        """Some of what was sent has arrived."""
        self._end_if_sent()
        if self._is_writing_paused and self._out.unsent_bytes <= self._high_bytes // 4:
            self._is_writing_paused = False
            if not self.is_over:
                self._stream_protocol().resume_writing()

    def on_peer_over(self, end: End) -> None:
        """The peer has nothing more to say, or is gone."""
        if end is End.RESET:
            self._end_soon(ConnectionResetError("connection reset by peer"))
        elif not self.is_over and not self._stream_protocol().eof_received():
            self.close()

    def answer_with_reset(self) -> None:
        """Bytes came for an end that is over; what it said before still arrives."""
        self._out.send(End.RESET)

    # What faults do

    def reset(self) -> None:
        """Both ends lose the connection, this one now."""
        if not self.is_over:
            self._is_closing = True
            self._out.drop()
            self._out.send(End.RESET)
            self.on_peer_over(End.RESET)

    def vanish(self) -> None:
        """This end is gone without a word, and what it was told is lost."""
        self._is_closing = True
        self._out.drop()
        self._end_soon(ConnectionAbortedError("the machine is gone"))

    def truncate(self, after_bytes: int) -> None:
        """Break the connection when so many bytes more have arrived here."""
        self._in.bytes_until_cut = after_bytes

    def truncate_output(self, after_bytes: int) -> None:
        """Break the connection when so many bytes more have arrived at the peer."""
        self._out.bytes_until_cut = after_bytes

    def wake_pipes(self) -> None:
        """A link of this connection has changed."""
        self._in.wake()
        self._out.wake()

    # Inside

    def _stream_protocol(self) -> asyncio.Protocol | asyncio.BufferedProtocol:
        protocol = self._protocol
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol), "a stream's"
        return protocol

    def _end_if_sent(self) -> None:
        if self._is_closing and self._out.unsent_bytes <= KERNEL_BUFFER_BYTES:
            self._end_soon(None)

    def _end_soon(self, error: Exception | None) -> None:
        if not self.is_over:
            self._loop.call_soon(self._end, error)

    def _end(self, error: Exception | None) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._on_over(self)
        # What waits for this end is answered now.
        self._in.wake()
        if self._protocol is not None:
            self._protocol.connection_lost(error)
