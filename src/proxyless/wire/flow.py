"""Flow control: receive windows that grow with throughput, and the output of a connection.

Specs: RFC 9113 section 5.2 (flow control).

Receiving: a stream's window grows only if the stream needs it. The measure is a round trip, taken
with a PING: if half a window arrives before the PING sent with the previous WINDOW_UPDATE is
acknowledged, the window limits the throughput, and it doubles. No clock is read, and nothing is
sent on a connection without bulk data.

Sending: all output of a connection goes through `Outbound`. DATA that the peer's windows do not
admit waits in the stream's `SendQueue`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from proxyless.wire.frames import (
    DATA,
    FLAG_END_STREAM,
    FRAME_BYTES_DEFAULT,
    WINDOW_DEFAULT,
    encode_ping,
    encode_window_update,
    pack_header,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.wire.stream import Stream

# Receiving

# Distinguishes our round-trip PINGs from keepalive's.
ROUND_TRIP_PING: Final = b"roundtrp"


class RoundTripMeter:
    """Counts round trips of the connection; at most one PING is pending."""

    __slots__ = ("count", "is_measuring")

    def __init__(self) -> None:
        self.count = 0
        self.is_measuring = False

    def on_ack(self) -> None:
        self.is_measuring = False
        self.count += 1


def choose_window_target(
    target: int, target_max: int, *, updated_at_trip: int, trips_now: int
) -> int:
    """The window to give a stream that has used up half of `target`.

    `updated_at_trip` is the round-trip count at the stream's previous WINDOW_UPDATE, -1 if none.
    """
    if updated_at_trip == trips_now:
        return min(2 * target, target_max)
    return target


def grant_window(stream: Stream, trips: RoundTripMeter, target_max: int) -> bytes:
    """Refill a stream's window, enlarged if it limits the throughput; return the frames to send."""
    stream.recv_target = choose_window_target(
        stream.recv_target,
        target_max,
        updated_at_trip=stream.updated_at_trip,
        trips_now=trips.count,
    )
    update = encode_window_update(stream.id, stream.recv_target - stream.recv_window)
    stream.recv_window = stream.recv_target
    stream.updated_at_trip = trips.count
    if stream.recv_target < target_max and not trips.is_measuring:
        trips.is_measuring = True
        update += encode_ping(ROUND_TRIP_PING)
    return update


# Sending


class SendQueue:
    """Bytes of one stream that wait for the peer's window, in order."""

    __slots__ = ("_chunks", "is_closing", "size")

    def __init__(self) -> None:
        self._chunks: deque[memoryview] = deque()
        self.size = 0
        # Nothing will be pushed any more: the last frame carries END_STREAM.
        self.is_closing = False

    def push(self, data: bytes) -> None:
        if data:
            self._chunks.append(memoryview(data))
            self.size += len(data)

    def take(self, size_max: int) -> list[memoryview]:
        """Remove at most `size_max` bytes from the front. No byte is copied."""
        taken: list[memoryview] = []
        while self._chunks and size_max > 0:
            chunk = self._chunks.popleft()
            if len(chunk) > size_max:
                self._chunks.appendleft(chunk[size_max:])
                chunk = chunk[:size_max]
            taken.append(chunk)
            size_max -= len(chunk)
            self.size -= len(chunk)
        return taken


class Outbound:
    """Output of a connection: sends DATA as the peer's windows admit it.

    `on_output` is called when output is added to an empty buffer, so that the owner writes once per
    turn of the loop.
    """

    __slots__ = (
        "_blocked",
        "_frame_bytes_max",
        "_is_paused",
        "_on_output",
        "data_frames",
        "output",
        "sendable_bytes",
        "window",
    )

    def __init__(self, on_output: Callable[[], None]) -> None:
        self._on_output = on_output
        # Changed here only.
        self.output: list[bytes] = []
        # From the peer's SETTINGS and WINDOW_UPDATE, minus what we sent.
        self._frame_bytes_max = FRAME_BYTES_DEFAULT
        self.window = WINDOW_DEFAULT
        # From the socket.
        self._is_paused = False
        # Derived; recomputed by `_admit`: the largest DATA payload that may leave now.
        self.sendable_bytes = FRAME_BYTES_DEFAULT
        # Streams whose queue the windows do not admit, in the order of their turns.
        self._blocked: dict[Stream, None] = {}
        # DATA frames sent so far, for `FloodGuard`.
        self.data_frames = 0

    def emit(self, data: bytes) -> None:
        """Send bytes that no window limits."""
        output = self.output
        output.append(data)
        if len(output) == 1:
            self._on_output()

    def take_output(self) -> bytes:
        """Remove and return all output."""
        output = self.output
        if not output:
            return b""
        self.output = []
        return b"".join(output)

    # What the windows admit

    def set_frame_bytes_max(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._admit()

    def add_window(self, increment: int) -> None:
        self.window += increment
        self._admit()

    def pause(self) -> None:
        """The socket's buffer is full: DATA waits in the streams."""
        self._is_paused = True
        self._admit()

    def resume(self) -> None:
        self._is_paused = False
        self._admit()
        self.send_blocked()

    def _admit(self) -> None:
        self.sendable_bytes = 0 if self._is_paused else min(self.window, self._frame_bytes_max)

    # DATA

    def send_data(self, size: int, frame: bytes) -> None:
        """Send a DATA frame with `size` bytes of payload, which `sendable_bytes` admits."""
        self.data_frames += 1
        window = self.window = self.window - size
        if window < self.sendable_bytes:  # noqa: PLR1730 - min() costs a call on every RPC
            self.sendable_bytes = window
        output = self.output
        output.append(frame)
        if len(output) == 1:
            self._on_output()

    def send_queued(self, stream: Stream) -> None:
        """Send as much of a stream's queue as the windows admit; the rest stays blocked."""
        while self._send_one_frame(stream):
            pass
        if stream.queue is not None:
            self._blocked[stream] = None

    def send_waiting(self, stream: Stream) -> None:
        """Send the queue of a stream that was filled before the stream was opened."""
        self._blocked[stream] = None
        self.send_queued(stream)

    def send_blocked(self) -> None:
        """Send from blocked streams, one frame of each in turn so that none starves."""
        is_moving = True
        while is_moving and self._blocked and self.sendable_bytes:
            is_moving = False
            for stream in list(self._blocked):
                if not self.sendable_bytes:
                    return
                if self._send_one_frame(stream):
                    is_moving = True
                    # To the end of the order, so that the next stream gets the next window.
                    del self._blocked[stream]
                    self._blocked[stream] = None

    def drop_queue(self, stream: Stream) -> None:
        stream.queue = None
        self._blocked.pop(stream, None)

    def _send_one_frame(self, stream: Stream) -> bool:
        """Send the next frame of a queue if the windows admit it; return whether to try another."""
        queue = stream.queue
        if queue is None:
            return False
        # A window is negative after the peer has lowered its initial window.
        size = min(queue.size, max(stream.send_window, 0), self.sendable_bytes)
        if not size and queue.size:
            return False
        is_last = size == queue.size
        flags = FLAG_END_STREAM if is_last and queue.is_closing else 0
        if flags:
            stream.sending = stream.sending.after_end_stream
        if size or flags:
            stream.send_window -= size
            head = pack_header(size << 8 | DATA, flags, stream.id)
            self.send_data(size, b"".join((head, *queue.take(size))))
        if is_last:
            was_blocked = stream in self._blocked
            self.drop_queue(stream)
            if was_blocked:
                stream.on_queue_empty()
        return not is_last
