"""Simulated connections: two transports with a pipe in each direction.

Bytes arrive in order, after the latency of their link and at its rate. While a link is cut, they
wait, and the sender gets no error. As with TCP, bytes are only lost when a transport is closed.
A close or reset is queued behind the bytes, so a cut delays it as well; bytes for a transport that
is gone are answered with a reset.
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
# Bytes under way at which the protocol is paused; asyncio's default.
WRITE_BUFFER_BYTES: Final = 64 * 1024
# Size of the kernel's send buffer: with fewer unsent bytes, closing a socket takes no time.
KERNEL_BUFFER_BYTES: Final = 64 * 1024


@dataclass(slots=True, eq=False)
class Link:
    """One direction of the network between two hosts. Changed by faults."""

    # One way; each chunk has a random latency, up to `jitter_s` more.
    latency_s: float = LATENCY_S
    jitter_s: float = LATENCY_S
    # Number of faults that cut it: no bytes arrive, connections and attempts to connect wait.
    cuts: int = 0
    # Number of faults that stall it: no bytes arrive, but connections are accepted.
    stalls: int = 0
    # None for no limit.
    bytes_per_s: float | None = None

    def random_latency_s(self, random: Random) -> float:
        return self.latency_s + random.random() * self.jitter_s

    @property
    def is_blocked(self) -> bool:
        return self.cuts > 0 or self.stalls > 0


class End(Enum):
    """End of a transport, as its peer receives it."""

    CLOSED = "closed"
    RESET = "reset"


class Pipe:
    """One direction of one connection. It owns the bytes under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, link: Link, random: Random) -> None:
        self._loop = loop
        self._link = link
        self._random = random
        # Set by the fabric.
        self.sender: SimTransport | None = None
        self.receiver: SimTransport | None = None
        self._chunks: deque[bytes | End] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.unsent_bytes = 0
        # A fault: reset the connection after this many more bytes.
        self.bytes_until_cut: int | None = None
        # Called with a chunk and the number of its bytes that arrived before the reset.
        self.on_cut_short: Callable[[bytes, int], None] = lambda _sent, _arrived_bytes: None

    def send(self, data: bytes | End) -> None:
        self._chunks.append(data)
        if isinstance(data, bytes):
            self.unsent_bytes += len(data)
        self.wake()

    def drop(self) -> None:
        self._chunks.clear()
        self.unsent_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def wake(self) -> None:
        """Schedule the delivery, if there are bytes and neither link nor receiver blocks them."""
        if self._timer is None and self._chunks and not self._is_held():
            delay_s = self._link.random_latency_s(self._random)
            first = self._chunks[0]
            if self._link.bytes_per_s is not None and isinstance(first, bytes):
                delay_s += len(first) / self._link.bytes_per_s
            self._timer = self._loop.call_later(delay_s, self._deliver)

    def _is_held(self) -> bool:
        # Bytes for a transport that is gone are delivered, so that it answers with a reset.
        return self._link.is_blocked or (
            self.receiver is not None and self.receiver.is_paused and not self.receiver.is_over
        )

    def _deliver(self) -> None:
        self._timer = None
        # Chunks that were sent together arrive together.
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
    """One end of a connection. Called by its protocol, by its pipes and by faults."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pipes: tuple[Pipe, Pipe],
        addresses: tuple[Address, Address],
        on_over: Callable[[SimTransport], None],
    ) -> None:
        """Pipes: to the peer and from it. Addresses: local and remote."""
        super().__init__()
        self._loop = loop
        self._outgoing, self._incoming = pipes
        self.local, self.remote = addresses
        self._on_over = on_over
        # Set by `start`.
        self._protocol: asyncio.BaseProtocol | None = None
        self.is_paused = True
        self.is_over = False
        self._is_closing = False
        self._is_writing_paused = False
        self._high_bytes = WRITE_BUFFER_BYTES

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self.is_paused = False
        protocol.connection_made(self)
        self._incoming.wake()

    # Called by the protocol

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self.is_over or self._is_closing or not data:
            return
        self._outgoing.send(bytes(data))
        if self._outgoing.unsent_bytes > self._high_bytes and not self._is_writing_paused:
            self._is_writing_paused = True
            self._stream_protocol().pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = WRITE_BUFFER_BYTES if high is None else high

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        self._incoming.wake()

    def is_closing(self) -> bool:
        return self._is_closing or self.is_over

    def close(self) -> None:
        """Send the buffered bytes, then close."""
        if not self.is_closing():
            self._is_closing = True
            self._outgoing.send(End.CLOSED)
            self._end_if_sent()

    def abort(self) -> None:
        self._send_reset(None)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None, "a transport is started with its protocol"
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        return {"peername": str(self.remote), "sockname": str(self.local)}.get(name, default)

    # Called by pipes

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
        self._end_if_sent()
        if self._is_writing_paused and self._outgoing.unsent_bytes <= self._high_bytes // 4:
            self._is_writing_paused = False
            if not self.is_over:
                self._stream_protocol().resume_writing()

    def on_peer_over(self, end: End) -> None:
        if end is End.RESET:
            self._end_soon(ConnectionResetError("connection reset by peer"))
        elif not self.is_over and not self._stream_protocol().eof_received():
            self.close()

    def answer_with_reset(self) -> None:
        """Answer bytes that arrived after the end. Bytes under way to the peer still arrive."""
        self._outgoing.send(End.RESET)

    # Called by faults

    def reset(self) -> None:
        """Reset the connection; this end is closed at once."""
        self._send_reset(ConnectionResetError("connection reset by peer"))

    def vanish(self) -> None:
        """Close this end without notifying the peer."""
        self._is_closing = True
        self._outgoing.drop()
        self._end_soon(ConnectionAbortedError("the machine is gone"))

    def truncate(self, after_bytes: int) -> None:
        """Reset the connection when this many more bytes have arrived here."""
        self._incoming.bytes_until_cut = after_bytes

    def truncate_output(self, after_bytes: int) -> None:
        """Reset the connection when this many more bytes have arrived at the peer."""
        self._outgoing.bytes_until_cut = after_bytes

    def wake_pipes(self) -> None:
        """Called when a link of this connection has changed."""
        self._incoming.wake()
        self._outgoing.wake()

    def _stream_protocol(self) -> asyncio.Protocol | asyncio.BufferedProtocol:
        protocol = self._protocol
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol), "a stream's"
        return protocol

    def _send_reset(self, error: Exception | None) -> None:
        if not self.is_over:
            self._is_closing = True
            self._outgoing.drop()
            self._outgoing.send(End.RESET)
            self._end_soon(error)

    def _end_if_sent(self) -> None:
        if self._is_closing and self._outgoing.unsent_bytes <= KERNEL_BUFFER_BYTES:
            self._end_soon(None)

    def _end_soon(self, error: Exception | None) -> None:
        if not self.is_over:
            self._loop.call_soon(self._end, error)

    def _end(self, error: Exception | None) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._on_over(self)
        # Bytes that wait for this end are answered with a reset now.
        self._incoming.wake()
        if self._protocol is not None:
            self._protocol.connection_lost(error)
