"""Connection: the part of HTTP/2 that both roles share.

Specs: RFC 9113. Frames, settings, windows, floods, GOAWAY; `client` and `server` decide what a
header block means and when a stream is opened.

Theory of operation. Bytes go in through `receive`, which calls listeners before it returns. Bytes
to send collect in `outbound`, and the owner takes all of them once per turn of the loop. An
ordinary answer (HEADERS, DATA, trailers) makes no object per frame: `_receive_frames` and the
role's `_on_opening_block` handle it. All other frames go through the `_CONTROL` table.
Work that a peer can multiply is done in slices, one per turn of the loop (`Turns`): if `receive`
has stopped before the last frame, `is_behind` is set, and the owner calls it with no bytes.

A peer that breaks the protocol ends the connection: GOAWAY with the code is in the output, every
stream has ended, and `receive` raises RemoteProtocolError so that the owner closes the socket.
"""

from collections.abc import Callable, Iterable
from itertools import repeat
from operator import attrgetter
from typing import ClassVar, Final, cast

from proxyless.base.status import Status, StatusCode
from proxyless.wire import frames
from proxyless.wire.errors import (
    PEER_TEXT_BYTES_MAX,
    ErrorCode,
    RemoteProtocolError,
    flow_control_error,
    frame_size_error,
    not_http2,
    protocol_error,
    stream_closed,
)
from proxyless.wire.flow import ROUND_TRIP_PING, Outbound, RoundTripMeter, grant_window
from proxyless.wire.frames import (
    DATA,
    FLAG_END_HEADERS,
    FLAG_END_STREAM,
    FLAG_PADDED,
    FRAME_HEADER_BYTES,
    HEADERS,
    HEADERS_FORM,
    STREAM_ID_MASK,
    unpack_header,
)
from proxyless.wire.hpack import block_bytes_max
from proxyless.wire.limits import (
    ENDING_COST,
    OVERFLOW_CHECK_FRAMES,
    FloodGuard,
    Limits,
    PeerSettings,
    RecentResets,
)
from proxyless.wire.listeners import ConnectionListener
from proxyless.wire.status import StreamEnd
from proxyless.wire.stream import NO_LISTENER, Stream
from proxyless.wire.turns import Turns

_NEVER_CONTINUED: Final = frames.HeaderFragments(0, 0, 0)


class Connection:
    """Base class of `ClientConnection` and `ServerConnection`: owns the streams and the output."""

    __slots__ = (
        "_buffer", "_fragments", "_guard", "_is_drained", "_is_preface_received", "_listener",
        "_recv_window", "_recv_window_low", "_resets", "_trips", "has_waiting", "held_bytes",
        "is_closed", "is_draining", "limits", "message_bytes_max", "outbound", "peer",
        "stream_window_bytes", "streams",
    )  # fmt: skip

    # Bytes that the peer must send before its SETTINGS.
    _peer_preface: ClassVar[bytes] = b""

    def __init__(
        self,
        listener: ConnectionListener,
        limits: Limits,
        now_s: Callable[[], float],
        turns: Turns | None = None,
    ) -> None:
        """Without `turns` all work is done at once."""
        # Fixed at construction. Limits that every stream reads are attributes of their own.
        self.limits = limits
        self.message_bytes_max = limits.message_bytes_max
        self.stream_window_bytes = limits.stream_window_bytes
        self._listener = listener
        # The peer's settings, and limits for its frames.
        self.peer = PeerSettings()
        self._guard = FloodGuard(now_s)
        self._resets = RecentResets()
        # Receiving.
        self._buffer = frames.FrameBuffer()
        self._is_preface_received = False
        self._fragments: frames.HeaderFragments | None = None
        self._recv_window = limits.connection_window_bytes
        self._recv_window_low = limits.connection_window_bytes >> 1
        self._trips = RoundTripMeter()
        # Bytes in the `HeldMessages` of all streams.
        self.held_bytes = 0
        # Sending.
        self.outbound = Outbound(listener.on_output, turns or Turns())
        # Open streams, and whether others may wait to be opened.
        self.streams: dict[int, Stream] = {}
        self.has_waiting = False
        self.is_draining = False
        self._is_drained = False
        self.is_closed = False

    # Called by the owner

    # Complete frames wait for the next turn. A property without a Python function: it is hot.
    is_behind = cast("bool", property(attrgetter("_buffer.is_complete")))

    def receive(self, data: bytes | memoryview) -> None:
        """Handle bytes of the peer. Raises RemoteProtocolError after closing the connection."""
        if self.is_closed:
            return
        try:
            self._receive_frames(self._buffer.take(data) if self._buffer.size else bytes(data))
        except RemoteProtocolError as error:
            # If a listener has closed the connection, the rest of the bytes is ignored.
            if not self.is_closed:
                self.is_draining = True
                # The owner is called first, so that streams ended below are retried elsewhere.
                self._listener.on_broken(error)
                self.close(error.code, f"peer broke HTTP/2: {error}")
                raise

    def ping(self, payload: bytes) -> None:
        """Send PING; `on_ping_ack` gets the eight bytes back."""
        if not self.is_closed:
            self.outbound.emit(frames.encode_ping(payload))

    def close(self, code: ErrorCode = ErrorCode.NO_ERROR, text: str = "closed by us") -> None:
        """Send GOAWAY and end every stream. Idempotent."""
        if not self.is_closed:
            # The output so far is still sent.
            self.note_sent()
            # Listeners may reset other streams when theirs end, so GOAWAY comes last.
            self.lose(Status(StatusCode.UNAVAILABLE, f"connection closed: {text}"))
            debug = text.encode("utf-8", "replace")[:PEER_TEXT_BYTES_MAX]
            self.outbound.emit(frames.encode_goaway(self._last_peer_stream_id(), code, debug))

    def note_sent(self) -> None:
        """Called when all output so far is sent, or will be."""

    def lose(self, status: Status) -> None:
        """End every stream with this status, without GOAWAY; many in slices. Idempotent."""
        if self.is_closed:
            return
        self.is_closed = self.is_draining = True
        # Every later frame goes to `_on_control`, which ignores it.
        self._fragments = _NEVER_CONTINUED
        self._end_each(self._lost_streams(status))

    def _lost_streams(self, status: Status) -> Iterable[tuple[Stream, StreamEnd]]:
        return zip(self.streams.values(), repeat(StreamEnd(status)))

    def _end_each(self, endings: Iterable[tuple[Stream, StreamEnd]]) -> None:
        self.outbound.turns.spread(endings, ENDING_COST, self._end_if_open)

    def _end_if_open(self, ending: tuple[Stream, StreamEnd]) -> None:
        if not ending[0].is_ended:
            self._end_stream(*ending)

    # Implemented by the roles

    def _on_header_block(self, stream_id: int, block: bytes, end_stream: int) -> None:
        raise NotImplementedError

    def _on_opening_block(self, stream_id: int, data: bytes, start: int, stop: int) -> int:
        """A whole block without END_STREAM. Returns where the next frame begins."""
        self._on_header_block(stream_id, data[start:stop], 0)
        return stop

    def _on_oversized_block(self, stream_id: int) -> None:
        """A header block was discarded because of its size."""
        raise NotImplementedError

    def _on_half_close(self, stream: Stream) -> None:
        """A DATA frame carried END_STREAM."""
        raise NotImplementedError

    def _on_reset(self, stream: Stream, code: int) -> None:
        raise NotImplementedError

    def _on_peer_goaway(self, last_stream_id: int, code: int, text: str) -> None:
        raise NotImplementedError

    def _on_settings_applied(self) -> None:
        """The peer's limits changed."""

    def _on_settings_ack(self) -> None:
        """The peer has applied our settings."""

    def _is_idle(self, stream_id: int) -> bool:
        """Whether the stream was never opened."""
        raise NotImplementedError

    def _last_peer_stream_id(self) -> int:
        """The newest stream of the peer that we accepted."""
        return 0

    # Frames of the peer

    def _receive_frames(self, data: bytes) -> None:  # noqa: C901 - more calls cost every RPC
        if not self._is_preface_received:
            data = self._check_preface(data)
        at, end, turns = 0, len(data), self.outbound.turns
        frame_word_max = self.limits.frame_bytes_max << 8 | 0xFF
        size_needed, frames_left = FRAME_HEADER_BYTES, turns.frames_max
        while frames_left > 0:
            frames_left -= 1
            start = at + FRAME_HEADER_BYTES
            if start > end:
                break
            word, flags, stream_id = unpack_header(data, at)
            if word > frame_word_max:
                size_max = self.limits.frame_bytes_max
                raise frame_size_error(f"frame of {word >> 8} bytes, wanted at most {size_max}")
            stop = start + (word >> 8)
            if stop > end:
                size_needed = stop - at
                break
            kind, at = word & 0xFF, stop
            # DATA and HEADERS are the lowest types.
            if kind > HEADERS or self._fragments is not None:
                self._on_control(kind, flags, stream_id & STREAM_ID_MASK, data[start:stop])
            elif kind == DATA:
                self._on_data(flags, stream_id, data, start, stop)
                continue
            elif flags == FLAG_END_HEADERS:
                at = self._on_opening_block(stream_id, data, start, stop)
                frames_left -= 0 if at == stop else 2
            elif flags & HEADERS_FORM == FLAG_END_HEADERS:
                self._on_header_block(stream_id, data[start:stop], flags & FLAG_END_STREAM)
            else:
                self._on_headers(flags, stream_id & STREAM_ID_MASK, data[start:stop])
            if turns.left <= 0:
                break
        if at < end:
            self._buffer.keep(data[at:], size_needed)

    def _check_preface(self, data: bytes) -> bytes:
        """Check the peer's first bytes; return what follows, or nothing while they are too few."""
        preface = self._peer_preface
        if not data:
            # The first bytes are still in the buffer.
            return data
        if not preface.startswith(data[: len(preface)]) or data.startswith(b"HTTP/"):
            raise not_http2(data)
        size_needed = len(preface) + FRAME_HEADER_BYTES
        if len(data) < size_needed:
            self._buffer.keep(data, size_needed)
            return b""
        word, flags, stream_id = unpack_header(data, len(preface))
        # "a SETTINGS frame … MUST be the first frame" - RFC 9113 3.4
        if word & 0xFF != frames.SETTINGS or flags & frames.FLAG_ACK or stream_id & STREAM_ID_MASK:
            raise not_http2(data)
        self._is_preface_received = True
        return data[len(preface) :]

    def _on_data(self, flags: int, stream_id: int, data: bytes, start: int, stop: int) -> None:
        charged_bytes = stop - start
        window = self._recv_window = self._recv_window - charged_bytes
        if window < self._recv_window_low:
            self._replenish_connection()
        stream = self.streams.get(stream_id)
        if stream is None:
            self._on_data_without_stream(flags, stream_id, data, start, stop)
            return
        if not flags and charged_bytes:  # The usual case.
            stream.receive_data(data, start, stop, charged_bytes)
            return
        if flags & FLAG_PADDED:
            start, stop = frames.strip_padding(data, start, stop)
        if start == stop and not flags & FLAG_END_STREAM:
            self._spend("empty DATA")
        stream.receive_data(data, start, stop, charged_bytes)
        if flags & FLAG_END_STREAM and not stream.is_ended:
            self._on_half_close(stream)

    def _on_data_without_stream(
        self, flags: int, stream_id: int, data: bytes, start: int, stop: int
    ) -> None:
        if stream_id > STREAM_ID_MASK:
            # "The semantics of this bit are undefined, and … MUST be ignored" - RFC 9113 4.1
            self._recv_window += stop - start
            self._on_data(flags, stream_id & STREAM_ID_MASK, data, start, stop)
            return
        self._check_opened("DATA", stream_id)
        if stream_id not in self._resets:
            raise stream_closed("DATA", stream_id)
        if flags & FLAG_PADDED:
            frames.strip_padding(data, start, stop)
        if not self._resets.charge(stream_id, stop - start):
            raise flow_control_error(f"DATA beyond the window of stream {stream_id}")
        if start == stop:
            self._spend("late DATA")

    def _on_headers(self, flags: int, stream_id: int, block: bytes) -> None:
        """Handle HEADERS that are padded, have priority, or are continued."""
        if flags & (FLAG_PADDED | frames.FLAG_PRIORITY):
            block = frames.strip_headers_extras(flags, block)
        if flags & FLAG_END_HEADERS:
            self._on_header_block(stream_id, block, flags & FLAG_END_STREAM)
        else:
            size_max = block_bytes_max(self.limits.header_list_bytes_max)
            self._fragments = frames.HeaderFragments(stream_id, flags & FLAG_END_STREAM, size_max)
            self._fragments.add(block)

    def _on_continuation(self, kind: int, flags: int, stream_id: int, fragment: bytes) -> None:
        fragments = self._fragments
        assert fragments is not None, "called only in the middle of a header block"
        fragments.add_frame(kind, stream_id, fragment)
        if flags & FLAG_END_HEADERS:
            self._fragments = None
            if (block := fragments.join()) is None:
                self._on_oversized_block(stream_id)
            else:
                self._on_header_block(stream_id, block, fragments.end_stream)

    def _on_control(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._fragments is not None:
            if not self.is_closed:
                self._on_continuation(kind, flags, stream_id, payload)
            return
        handler = self._CONTROL.get(kind)
        if handler is None:
            # "Implementations MUST ignore and discard frames of unknown types" - RFC 9113 4.1
            self._spend("unknown")
        else:
            handler(self, flags, stream_id, payload)

    def _on_priority(self, _flags: int, stream_id: int, payload: bytes) -> None:
        frames.check_size("PRIORITY", payload, frames.PRIORITY_BYTES)
        if not stream_id:
            raise protocol_error("PRIORITY on stream 0")
        self._spend("PRIORITY")

    def _on_rst_stream(self, _flags: int, stream_id: int, payload: bytes) -> None:
        frames.check_size("RST_STREAM", payload, 4)
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_opened("RST_STREAM", stream_id)
            self._spend("RST_STREAM")
        else:
            self._on_reset(stream, frames.unpack_u32(payload)[0])

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        frames.check_on_connection("SETTINGS", stream_id)
        self._spend("SETTINGS")
        if flags & frames.FLAG_ACK:
            frames.check_size("SETTINGS acknowledgement", payload, 0)
            self._on_settings_ack()
            return
        frames.check_settings(payload)
        self.peer.apply(payload)
        if self.peer.initial_window_bytes + self.outbound.window_change_max > frames.WINDOW_MAX:
            # This examines every stream, and no server needs such windows.
            for _ in range(OVERFLOW_CHECK_FRAMES):
                self._spend("SETTINGS")
            self.outbound.check_overflow(self.streams.values(), self.peer.initial_window_bytes)
        self.outbound.set_initial_window(self.peer.initial_window_bytes)
        self.outbound.emit(frames.SETTINGS_ACK)
        self.outbound.set_frame_bytes_max(self.peer.frame_bytes_max)
        self._on_settings_applied()
        if not self.is_closed:
            self._listener.on_settings()
        self.outbound.send_blocked()

    def _on_push_promise(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        # "A client MUST treat the receipt of a PUSH_PROMISE … as a connection error" - RFC 9113 6.6
        raise protocol_error("PUSH_PROMISE, though push is off")

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        frames.check_on_connection("PING", stream_id)
        frames.check_size("PING", payload, 8)
        if flags & frames.FLAG_ACK and payload == ROUND_TRIP_PING and self._trips.is_measuring:
            self._trips.on_ack()
            return
        self._spend("PING")
        if flags & frames.FLAG_ACK:
            self._listener.on_ping_ack(payload)
        else:
            self.outbound.emit(frames.encode_ping(payload, ack=True))

    def _on_goaway(self, _flags: int, stream_id: int, payload: bytes) -> None:
        frames.check_on_connection("GOAWAY", stream_id)
        last_stream_id, code, text = frames.decode_goaway(payload)
        self._spend("GOAWAY")
        self.is_draining = True
        self._listener.on_goaway(code, text)  # First, as in `receive`.
        self._on_peer_goaway(last_stream_id, code, text)
        self._check_drained()

    def _on_window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        frames.check_size("WINDOW_UPDATE", payload, 4)
        self._spend("WINDOW_UPDATE")
        increment = frames.unpack_u32(payload)[0] & frames.WINDOW_MAX
        if stream_id:
            self._on_stream_window_update(stream_id, increment)
            return
        if not increment:
            raise protocol_error("WINDOW_UPDATE by 0")
        if self.outbound.window + increment > frames.WINDOW_MAX:
            raise flow_control_error("WINDOW_UPDATE overflows the window of the connection")
        self.outbound.add_window(increment)

    def _on_stream_window_update(self, stream_id: int, increment: int) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_opened("WINDOW_UPDATE", stream_id)
            return
        change = stream.window_change = stream.window_change + increment
        if not increment:
            status = Status(StatusCode.INTERNAL, "peer sent WINDOW_UPDATE by 0")
            stream.reset(ErrorCode.PROTOCOL_ERROR, status)
        elif stream.send_window > frames.WINDOW_MAX:
            status = Status(StatusCode.INTERNAL, "peer's WINDOW_UPDATE overflows the window")
            stream.reset(ErrorCode.FLOW_CONTROL_ERROR, status)
        else:
            self.outbound.on_window_update(stream, change)

    def _on_stray_continuation(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        raise protocol_error("CONTINUATION without a header block to continue")

    def _check_opened(self, what: str, stream_id: int) -> None:
        if not stream_id or self._is_idle(stream_id):
            raise protocol_error(f"{what} on stream {stream_id}, which was never opened")

    def _spend(self, what: str) -> None:
        self._guard.spend(what, self.outbound.data_frames)

    # Receive windows

    def replenish_stream(self, stream: Stream, held_bytes: int) -> None:
        target_max = self.limits.stream_window_bytes_max
        self.outbound.emit(grant_window(stream, self._trips, target_max, held_bytes))

    def on_delivery(self, size: int) -> None:
        """This many bytes of `HeldMessages` are delivered or dropped."""
        self.held_bytes -= size
        if self._recv_window < self._recv_window_low and not self.is_closed:
            self._replenish_connection()

    def _replenish_connection(self) -> None:
        if self._recv_window < 0:
            raise flow_control_error("DATA beyond the connection's window")
        excess = max(self.held_bytes - self.limits.held_bytes_max, 0)
        increment = self.limits.connection_window_bytes - self._recv_window - excess
        # Less is not worth a frame. More follows when messages are delivered.
        if increment > self._recv_window_low >> 1:
            self._recv_window += increment
            self.outbound.emit(frames.encode_window_update(0, increment))

    # Ending streams

    def reset_stream(self, stream: Stream, code: ErrorCode, end: StreamEnd) -> None:
        """End an open stream from our side."""
        self._resets.add(stream.id, stream.recv_window)
        self.outbound.emit(frames.encode_rst_stream(stream.id, code))
        self._end_stream(stream, end)

    def _end_stream(self, stream: Stream, end: StreamEnd) -> None:
        stream.sending = stream.sending.after_close
        stream.receiving = stream.receiving.after_close
        del self.streams[stream.id]
        if stream.queue is not None:
            self.outbound.drop_queue(stream)
        if stream.assembler is not None:
            stream.drop_received()
        listener, stream.listener = stream.listener, NO_LISTENER
        listener.on_end(end)
        if self.is_draining or self.has_waiting:
            self._on_stream_gone()

    def _on_stream_gone(self) -> None:
        """A stream of a draining connection, or before waiting ones, has ended."""
        self._check_drained()

    def _check_drained(self) -> None:
        """Call `on_drained` once, if no stream of a draining connection is left."""
        if self.is_draining and not (self.streams or self.is_closed or self._is_drained):
            self._is_drained = True
            self._listener.on_drained()

    _CONTROL: ClassVar[dict[int, Callable[["Connection", int, int, bytes], None]]] = {
        frames.PRIORITY: _on_priority,
        frames.RST_STREAM: _on_rst_stream,
        frames.SETTINGS: _on_settings,
        frames.PUSH_PROMISE: _on_push_promise,
        frames.PING: _on_ping,
        frames.GOAWAY: _on_goaway,
        frames.WINDOW_UPDATE: _on_window_update,
        frames.CONTINUATION: _on_stray_continuation,
    }
