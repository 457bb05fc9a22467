"""What happens to bytes on their way between two hosts?

A connection is two ends with a pipe in each direction. Bytes arrive in order and after the latency
of their link; a link may be cut, and then everything waits (the sender cannot know), as it does
when the machine at the other end is gone without a word. A slow reader takes a bounded number of
bytes per second. What TCP hides is hidden here, too: nothing is lost or reordered but by an end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import Address
    from proxyless.runtime import Random

# What a sender may have under way before it is asked to pause.
WRITE_BUFFER_BYTES: Final = 64 * 1024


@dataclass(slots=True, eq=False)
class Link:
    """The way from one host to another, in one direction. Changed by faults."""

    # One way; each chunk draws its own, up to this much more.
    latency_s: float = 0.0005
    jitter_s: float = 0.0005
    # Nothing arrives; connections stay open and wait.
    is_cut: bool = False
    # What the receiver takes in; None is without limit.
    bytes_per_s: float | None = None

    def draw_latency_s(self, random: Random) -> float:
        return self.latency_s + random.random() * self.jitter_s


class Pipe:
    """One direction of one connection. Driven by the sending end and by time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, link: Callable[[], Link], random: Random
    ) -> None:
        self._loop = loop
        self._link = link
        self._random = random
        self._chunks: deque[bytes | None] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.unsent_bytes = 0
        # Set when both ends are there.
        self.receiver: SimTransport | None = None
        self.sender: SimTransport | None = None
        # Deliver only so many bytes more, then break; None is all of them.
        self.bytes_until_cut: int | None = None

    def send(self, data: bytes | None) -> None:
        """More bytes, or None: the end."""
        self._chunks.append(data)
        self.unsent_bytes += len(data or b"")
        self._schedule()

    def wake(self) -> None:
        """The link or the receiver has changed its mind."""
        self._schedule()

    def drop(self) -> None:
        """Forget what is under way."""
        self._chunks.clear()
        self.unsent_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        receiver = self.receiver
        is_held = receiver is None or receiver.is_paused or self._link().is_cut
        if self._timer is None and self._chunks and not is_held:
            delay_s = self._link().draw_latency_s(self._random)
            rate = self._link().bytes_per_s
            if rate is not None:
                delay_s += len(self._chunks[0] or b"") / rate
            self._timer = self._loop.call_later(delay_s, self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        receiver = self.receiver
        if receiver is None or receiver.is_paused or self._link().is_cut or not self._chunks:
            return
        # What was sent in one breath arrives in one breath.
        while self._chunks and not receiver.is_paused and not receiver.is_over:
            chunk = self._chunks.popleft()
            if chunk is None:
                receiver.on_peer_closed()
                return
            self.unsent_bytes -= len(chunk)
            if self.bytes_until_cut is not None:
                chunk = chunk[: self.bytes_until_cut]
                self.bytes_until_cut -= len(chunk)
            receiver.on_bytes(chunk)
            if self.bytes_until_cut == 0:
                receiver.reset()
                return
        if self.sender is not None:
            self.sender.on_drained()
        self._schedule()


class SimTransport(asyncio.Transport):
    """One end of a connection: what asyncio gives a protocol. Driven by the protocol and pipes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        outgoing: Pipe,
        incoming: Pipe,
        addresses: tuple[Address, Address],
        on_over: Callable[[SimTransport], None],
    ) -> None:
        super().__init__()
        # Fixed at construction.
        self._loop = loop
        self._out = outgoing
        self._in = incoming
        self.local, self.remote = addresses
        self._on_over = on_over
        # Set when the other end exists.
        self.peer: SimTransport | None = None
        self._protocol: asyncio.BaseProtocol | None = None
        # Changed by the protocol and the peer.
        self.is_paused = False
        self.is_over = False
        self._is_closing = False
        self._is_writing_paused = False
        self._high_bytes = WRITE_BUFFER_BYTES

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self._in.wake()

    # What a protocol does

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self.is_over or self._is_closing or not data:
            return
        self._out.send(bytes(data))
        if self._out.unsent_bytes > self._high_bytes and not self._is_writing_paused:
            self._is_writing_paused = True
            if isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol):
                self._protocol.pause_writing()

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
            self._out.send(None)
            self._loop.call_soon(self._end, None)

    def abort(self) -> None:
        if not self.is_over:
            self._end_soon(None)
            if self.peer is not None:
                self.peer.on_reset()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None, "a transport is started with its protocol"
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        return {"peername": str(self.remote), "sockname": str(self.local)}.get(name, default)

    # What pipes and faults do

    def on_bytes(self, data: bytes) -> None:
        protocol = self._protocol
        if self.is_over or protocol is None:
            return
        if isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while view and not self.is_over:
                buffer = memoryview(protocol.get_buffer(len(view)))  # type: ignore[arg-type]
                taken = min(len(buffer), len(view))
                buffer[:taken] = view[:taken]
                protocol.buffer_updated(taken)
                view = view[taken:]
        else:
            assert isinstance(protocol, asyncio.Protocol), "a stream protocol"
            protocol.data_received(data)

    def on_drained(self) -> None:
        if self._is_writing_paused and self._out.unsent_bytes <= self._high_bytes // 4:
            self._is_writing_paused = False
            if isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol):
                self._protocol.resume_writing()

    def on_peer_closed(self) -> None:
        """The peer has nothing more to say."""
        self._end_soon(None)

    def on_reset(self) -> None:
        """The peer is gone; it takes a moment to learn that, unless the link is cut."""
        self._end_soon(ConnectionResetError("connection reset by peer"))

    def reset(self) -> None:
        """A fault: both ends lose the connection."""
        self.on_reset()
        if self.peer is not None:
            self.peer.on_reset()

    def wake_pipes(self) -> None:
        """A link of this connection has changed."""
        self._in.wake()
        self._out.wake()

    def _end_soon(self, error: Exception | None) -> None:
        if not self.is_over:
            self._loop.call_soon(self._end, error)

    def _end(self, error: Exception | None) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._in.drop()
        self._on_over(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)
