"""Responses of a client's connection: head, messages and trailers of each call.

Specs: RFC 9113, gRPC over HTTP/2.
"""

from collections.abc import Callable
from typing import Final, Protocol, cast

from proxyless.base.status import Status, StatusCode
from proxyless.wire import frames
from proxyless.wire.connection import Connection
from proxyless.wire.errors import ErrorCode, stream_closed
from proxyless.wire.frames import (
    FLAG_END_HEADERS,
    FLAG_END_STREAM,
    FRAME_HEADER_BYTES,
    HEADERS,
    STREAM_ID_MASK,
    unpack_header,
)
from proxyless.wire.headers import ResponseBlock, parse_response
from proxyless.wire.hpack import FIELD_OVERHEAD_BYTES, HeaderDecoder, HeaderListTooLarge
from proxyless.wire.limits import (
    HEADER_BYTE_COST,
    HEADER_FIELD_COST,
    INFORMATIONAL_BYTES_MAX,
    INFORMATIONAL_BYTES_MIN,
    Limits,
)
from proxyless.wire.listeners import ConnectionListener
from proxyless.wire.messages import PREFIX_BYTES, unpack_data_and_prefix
from proxyless.wire.status import StreamEnd
from proxyless.wire.stream import Stream, StreamListener
from proxyless.wire.stream_states import HALF_CLOSED, IDLE, OPEN
from proxyless.wire.turns import Turns

_DATA_AND_PREFIX_BYTES: Final = FRAME_HEADER_BYTES + PREFIX_BYTES
_TRAILERS_FLAGS: Final = FLAG_END_HEADERS | FLAG_END_STREAM

_CANCELLED: Final = Status(StatusCode.CANCELLED, "cancelled by the client")
_MID_MESSAGE: Final = Status(
    StatusCode.INTERNAL, "peer ended the stream in the middle of a message"
)
_NO_TRAILERS: Final = Status(StatusCode.INTERNAL, "peer ended the stream without trailers")
_TOO_INFORMATIONAL: Final = Status(
    StatusCode.INTERNAL, "peer sent too many informational answers before the response head"
)
_SECOND_HEAD: Final = Status(StatusCode.INTERNAL, "peer sent a second response head")


class CallListener(StreamListener, Protocol):
    """Callbacks of a client's stream. No method may raise or block."""

    def on_head(self, head: ResponseBlock) -> None:
        """Response metadata. Not called if the response is trailers-only."""


class ClientStream(Stream):
    """Client side of one stream."""

    __slots__ = ()

    listener: CallListener

    def close_sending(self) -> None:
        """Half-close the stream: no message follows. Idempotent."""
        sending = self.sending
        if not sending.takes_messages:
            return
        self.sending = sending.after_last_message
        self._queue_up().is_closing = True
        if not sending.is_idle:
            self.connection.outbound.send_queued(self)

    def cancel(self, status: Status = _CANCELLED) -> None:
        """End the stream at once, with RST_STREAM."""
        self.reset(ErrorCode.CANCEL, status)


class ResponseReceiver(Connection):
    """The part of `ClientConnection` that handles responses."""

    __slots__ = ("_cached_block", "_calls", "_decoder", "_whole_bytes_max")

    def __init__(
        self,
        listener: ConnectionListener,
        limits: Limits,
        now_s: Callable[[], float],
        turns: Turns | None = None,
    ) -> None:
        super().__init__(listener, limits, now_s, turns)
        self._decoder = HeaderDecoder(parse_response, limits.header_list_bytes_max)
        self._cached_block = self._decoder.cached
        # The largest DATA frame that is handled together with the head before it. Half of a
        # stream's window is always left.
        self._whole_bytes_max = min(
            limits.frame_bytes_max,
            limits.message_bytes_max + PREFIX_BYTES,
            limits.stream_window_bytes >> 1,
        )
        # The same object as `streams`, with the type of its values.
        self._calls = cast("dict[int, ClientStream]", self.streams)

    def _on_opening_block(self, stream_id: int, data: bytes, start: int, stop: int) -> int:
        """Handle a response head and, if they follow at once, its only message and the trailers.

        So a unary response in one piece is handled here. What is unusual is left to the methods
        for single frames.
        """
        block, end = data[start:stop], len(data)
        stream, head = self._calls.get(stream_id), self._cached_block(block)
        if stream is None or head is None or head.refusal is not None or stream.receiving is OPEN:
            self._on_header_block(stream_id, block, 0)
            return stop
        stream.encoding = head.encoding
        stream.receiving = OPEN
        stream.listener.on_head(head)
        # The message: a DATA frame without flags, within the windows, that is not compressed.
        start = stop + _DATA_AND_PREFIX_BYTES
        if start > end or stream.assembler is not None or stream.is_held:
            return stop
        word, flags, data_id, is_compressed, length = unpack_data_and_prefix(data, stop)
        size = length + PREFIX_BYTES
        message_stop: int = start + length
        window = self._recv_window - size
        if (
            word != size << 8
            or data_id != stream_id
            or message_stop > end
            or size > self._whole_bytes_max
            or window < self._recv_window_low
            or flags
            or is_compressed
            or stream.receiving is not OPEN
        ):
            return stop
        self._recv_window = window
        stream.recv_window -= size
        stream.listener.on_message(data[start:message_stop])
        # The trailers.
        start = message_stop + FRAME_HEADER_BYTES
        if start > end or stream.receiving is not OPEN or stream.sending is not HALF_CLOSED:
            return message_stop
        word, flags, trailers_id = unpack_header(data, message_stop)
        stop = start + (word >> 8)
        is_end = word & 0xFF == HEADERS and flags == _TRAILERS_FLAGS and trailers_id == stream_id
        if is_end and stop <= end and (trailers := self._cached_block(data[start:stop])):
            self._end_stream(stream, trailers.end)
            return stop
        return message_stop

    def _on_header_block(self, stream_id: int, block: bytes, end_stream: int) -> None:
        stream = self._calls.get(stream_id)
        if stream is None:
            self._on_block_without_stream(stream_id, block, end_stream)
            return
        response = self._cached_block(block) or self._decode(stream, block)
        if response is None:
            return
        if end_stream:
            if (
                stream.sending is HALF_CLOSED
                and stream.receiving is OPEN
                and stream.assembler is None
            ):
                self._end_stream(stream, response.end)
            else:
                self._on_early_end(stream, response)
        elif stream.receiving is OPEN:
            stream.reset(ErrorCode.PROTOCOL_ERROR, _SECOND_HEAD)
        elif response.is_informational:
            self._on_informational(stream, block)
        elif response.refusal is not None:
            self.reset_stream(stream, ErrorCode.CANCEL, response.refusal)
        else:
            stream.encoding = response.encoding
            stream.receiving = OPEN
            stream.listener.on_head(response)

    def _on_informational(self, stream: ClientStream, block: bytes) -> None:
        self._spend("informational HEADERS")
        stream.informational_bytes += max(len(block), INFORMATIONAL_BYTES_MIN)
        if stream.informational_bytes > INFORMATIONAL_BYTES_MAX:
            stream.reset(ErrorCode.ENHANCE_YOUR_CALM, _TOO_INFORMATIONAL)

    def _decode(self, stream: ClientStream, block: bytes) -> ResponseBlock | None:
        """The parsed block, or None if it was over the limit and the stream was reset."""
        turns = self.outbound.turns
        turns.left -= len(block) * HEADER_BYTE_COST
        try:
            response = self._decoder.decode(block)
        except HeaderListTooLarge:
            values_max = self.limits.header_list_bytes_max // FIELD_OVERHEAD_BYTES
            turns.left -= values_max * HEADER_FIELD_COST
            self._refuse_metadata(stream)
            return None
        turns.left -= len(response.metadata) * HEADER_FIELD_COST
        return response

    def _refuse_metadata(self, stream: ClientStream) -> None:
        limit = self.limits.header_list_bytes_max
        text = f"received metadata larger than max ({limit} bytes)"
        stream.refuse(Status(StatusCode.RESOURCE_EXHAUSTED, text))

    def _on_oversized_block(self, stream_id: int) -> None:
        stream = self._calls.get(stream_id)
        if stream is None:
            self._on_block_without_stream(stream_id, b"", 0)
        else:
            self._refuse_metadata(stream)

    def _on_block_without_stream(self, stream_id: int, block: bytes, end_stream: int) -> None:
        if stream_id > STREAM_ID_MASK:
            # "The semantics of this bit are undefined, and … MUST be ignored" - RFC 9113 4.1
            self._on_header_block(stream_id & STREAM_ID_MASK, block, end_stream)
            return
        self._check_opened("HEADERS", stream_id)
        if stream_id not in self._resets:
            raise stream_closed("HEADERS", stream_id)
        self._spend("late HEADERS")

    def _on_early_end(self, stream: ClientStream, block: ResponseBlock) -> None:
        """Handle trailers that come before our END_STREAM, before the head, or within a message."""
        end = end_mid_message = block.end
        if end.status.is_ok:
            end_mid_message = StreamEnd(_MID_MESSAGE, end.trailers)
            if stream.receiving is IDLE and block.refusal is not None:
                end = block.refusal
        self._finish(stream, end, end_mid_message)

    def _on_half_close(self, stream: Stream) -> None:
        self._finish(stream, StreamEnd(_NO_TRAILERS), StreamEnd(_MID_MESSAGE))

    def _finish(self, stream: Stream, end: StreamEnd, end_mid_message: StreamEnd) -> None:
        """The server has ended this stream; `end_mid_message` if a message is incomplete."""
        is_early = stream.sending is not HALF_CLOSED
        if is_early:
            # Without this the stream would stay half-closed at the server for ever.
            self.outbound.emit(frames.encode_rst_stream(stream.id, ErrorCode.NO_ERROR))
        held = stream.held_messages
        if held is not None and held.size:
            stream.put_behind_held(end, end_mid_message)
            self._end_stream(stream, end)
            stream.on_closed_behind_held(is_early=is_early)
        else:
            self._end_stream(stream, end_mid_message if stream.is_mid_message else end)
