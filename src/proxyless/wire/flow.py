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

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from proxyless.wire.errors import flow_control_error
from proxyless.wire.frames import (
    DATA,
    FLAG_END_STREAM,
    FRAME_BYTES_DEFAULT,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    encode_ping,
    encode_window_update,
    pack_header,
)
from proxyless.wire.limits import FRAME_COST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxyless.wire.stream import Stream
    from proxyless.wire.turns import Turns

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


def grant_window(
    stream: Stream, trips: RoundTripMeter, target_max: int, held_bytes: int = 0
) -> bytes:
    """Refill a stream's window, enlarged if it limits the throughput; return the frames to send.

    `held_bytes` are received, but not delivered, and stay used up.
    """
    stream.recv_target = choose_window_target(
        stream.recv_target,
        target_max,
        updated_at_trip=stream.updated_at_trip,
        trips_now=trips.count,
    )
    window = stream.recv_target - held_bytes
    update = encode_window_update(stream.id, window - stream.recv_window)
    stream.recv_window = window
    stream.updated_at_trip = trips.count
    if stream.recv_target < target_max and not trips.is_measuring:
        trips.is_measuring = True
        update += encode_ping(ROUND_TRIP_PING)
    return update


# Sending


class SendQueue:
    """Bytes of one stream that wait for the peer's window, in order."""

    __slots__ = ("_chunks", "is_closing", "size", "was_blocked")

    def __init__(self) -> None:
        self._chunks: deque[memoryview] = deque()
        self.size = 0
        # The stream had to wait, and is notified when the queue is empty.
        self.was_blocked = False
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

    A stream with a queue that cannot be sent is in one of two places. It is ready if only the
    connection's window, the socket or the budget of the turn stops it. It is starved if its own
    window is used up; then it is not examined until that window or the initial window grows. So a
    frame of the peer costs as much as it lets us send, however many streams are blocked.
    """

    __slots__ = (
        "_frame_bytes_max",
        "_is_paused",
        "_on_output",
        "_ready",
        "_starved",
        "data_frames",
        "initial_window_bytes",
        "output",
        "sendable_bytes",
        "turns",
        "window",
        "window_change_max",
    )

    def __init__(self, on_output: Callable[[], None], turns: Turns) -> None:
        self._on_output = on_output
        self.turns = turns
        # Changed here only.
        self.output: list[bytes | memoryview] = []
        # From the peer's SETTINGS and WINDOW_UPDATE, minus what we sent.
        self._frame_bytes_max = FRAME_BYTES_DEFAULT
        self.window = WINDOW_DEFAULT
        # The part of every stream's window that SETTINGS changes.
        self.initial_window_bytes = WINDOW_DEFAULT
        # At least the largest `window_change` of all streams.
        self.window_change_max = 0
        # From the socket.
        self._is_paused = False
        # Derived; recomputed by `_admit`: the largest DATA payload that may leave now.
        self.sendable_bytes = FRAME_BYTES_DEFAULT
        # Blocked streams, in the order of their turns. `dict` has no fast way to remove the first.
        self._ready: OrderedDict[Stream, None] = OrderedDict()
        self._starved: OrderedDict[Stream, None] = OrderedDict()
        # DATA frames sent so far, for `FloodGuard`.
        self.data_frames = 0

    def emit(self, data: bytes) -> None:
        """Send bytes that no window limits."""
        output = self.output
        output.append(data)
        if len(output) == 1:
            self._on_output()

    def detach(self) -> None:
        """Stop calling `on_output`."""
        self._on_output = _do_nothing

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
        """Send what waited for the window of the connection."""
        self.window += increment
        # Some servers add to it for each RPC: usually it was not used up.
        if self.sendable_bytes < self._frame_bytes_max:
            self._admit()
        if self._ready:
            self.send_blocked()

    def set_initial_window(self, initial_window_bytes: int) -> None:
        """Change the windows of all streams."""
        if initial_window_bytes > self.initial_window_bytes:
            # Each stream was examined once since it was moved here, so this costs no more.
            self._ready.update(self._starved)
            self._starved.clear()
        self.initial_window_bytes = initial_window_bytes

    def check_overflow(self, streams: Iterable[Stream], initial_window_bytes: int) -> None:
        """Raise if a new initial window makes the window of a stream too large."""
        self.window_change_max = 0
        for stream in streams:
            if stream.window_change + initial_window_bytes > WINDOW_MAX:
                where = f"the window of stream {stream.id}"
                raise flow_control_error(f"SETTINGS_INITIAL_WINDOW_SIZE overflows {where}")
            self.window_change_max = max(self.window_change_max, stream.window_change)

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

    def _send_pieces(self, size: int, head: bytes, payload: list[memoryview]) -> None:
        """Send a DATA frame, as `send_data` does, whose payload is copied with the output only."""
        output = self.output
        if output:
            self.send_data(size, head)
            output += payload
        else:
            # The owner may write the first output at once.
            self.send_data(size, b"".join((head, *payload)))

    def send_queued(self, stream: Stream) -> None:
        """Send what is queued as far as the windows admit it; the rest stays blocked."""
        queue = stream.queue
        if queue is None or (queue.was_blocked and queue.size):
            return  # A blocked stream is sent when it has its turn.
        self._send_frames(stream)

    def send_waiting(self, stream: Stream) -> None:
        """Send the queue of a stream that was filled before the stream was opened."""
        if stream.queue is not None:
            stream.queue.was_blocked = True
            self._send_frames(stream)

    def on_window_update(self, stream: Stream, change: int) -> None:
        """The `window_change` of a stream has grown to this."""
        self.window_change_max = max(self.window_change_max, change)
        if stream in self._starved:
            del self._starved[stream]
            self._send_frames(stream)

    def _send_frames(self, stream: Stream) -> None:
        turns = self.turns
        # The first frame leaves in any case: END_STREAM alone needs no window.
        while self._send_one_frame(stream) and turns.left > 0:
            pass
        if stream.queue is not None:
            stream.queue.was_blocked = True
            self._block(stream)
            if turns.left <= 0 and self.sendable_bytes and self._ready:
                turns.defer(self.send_blocked)

    def _block(self, stream: Stream) -> None:
        if stream.window_change + self.initial_window_bytes > 0:
            self._ready[stream] = None
        else:
            self._starved[stream] = None

    def send_blocked(self) -> None:
        """Send from blocked streams, one frame of each in turn so that none starves."""
        turns, ready = self.turns, self._ready
        while ready and self.sendable_bytes:
            if turns.left <= 0:
                turns.defer(self.send_blocked)
                return
            stream, _ = ready.popitem(last=False)
            if not self._send_one_frame(stream):
                turns.left -= FRAME_COST
            if stream.queue is not None:
                # To the end of the order, so that the next stream gets the next window.
                self._block(stream)

    def drop_queue(self, stream: Stream) -> None:
        queue, stream.queue = stream.queue, None
        if queue is not None and queue.was_blocked:
            self._ready.pop(stream, None)
            self._starved.pop(stream, None)

    def _send_one_frame(self, stream: Stream) -> bool:
        """Send the next frame of a queue if the windows admit it; return whether to try another."""
        queue = stream.queue
        if queue is None:
            return False
        size = stream.window_change + self.initial_window_bytes
        size = min(queue.size, max(size, 0), self.sendable_bytes)
        if not size and queue.size:
            return False
        is_last = size == queue.size
        flags = FLAG_END_STREAM if is_last and queue.is_closing else 0
        if flags:
            stream.sending = stream.sending.after_end_stream
        if size or flags:
            self.turns.left -= FRAME_COST + (size >> 3)
            stream.window_change -= size
            head = pack_header(size << 8 | DATA, flags, stream.id)
            self._send_pieces(size, head, queue.take(size))
        if is_last:
            self.drop_queue(stream)
            if queue.was_blocked:
                stream.on_queue_empty()
        return not is_last


def _do_nothing() -> None:
    return
