"""How does a client open calls on a connection, and how do they end?

Specs: RFC 9113, gRPC over HTTP/2. The client role of `Connection`.

A call becomes a stream at once if the peer's MAX_CONCURRENT_STREAMS allows; otherwise it waits
here, in order, and whatever its owner sends meanwhile waits in the stream's queue.
"""

from collections.abc import Callable
from typing import Final, Protocol, cast

from proxyless.base.status import Status, StatusCode
from proxyless.wire import frames
from proxyless.wire.connection import Connection, ConnectionListener
from proxyless.wire.errors import ErrorCode, RemoteProtocolError, name_error_code
from proxyless.wire.frames import (
    FLAG_END_HEADERS,
    HEADERS,
    PREFACE,
    STREAM_ID_MASK,
    pack_header,
)
from proxyless.wire.headers import ResponseBlock, understand_response
from proxyless.wire.hpack import HeaderDecoder, HeaderListTooLarge
from proxyless.wire.limits import Limits
from proxyless.wire.messages import (
    PREFIX_BYTES,
    MessageAssembler,
    MessageError,
    pack_data_and_prefix,
)
from proxyless.wire.status import StreamEnd, end_of_reset
from proxyless.wire.stream import Stream, StreamListener

_CANCELLED: Final = Status(StatusCode.CANCELLED, "cancelled by the client")
_MID_MESSAGE: Final = Status(
    StatusCode.INTERNAL, "peer ended the stream in the middle of a message"
)
_NO_TRAILERS: Final = Status(StatusCode.INTERNAL, "peer ended the stream without trailers")
_NO_HEAD: Final = Status(StatusCode.INTERNAL, "peer sent a message before the response head")
_SECOND_HEAD: Final = Status(StatusCode.INTERNAL, "peer sent a second response head")


class CallListener(StreamListener, Protocol):
    """What a client is told about a call. No method may raise or block."""

    def on_head(self, head: ResponseBlock) -> None:
        """Response metadata. Not called when the answer is trailers only."""


class _HeadAwaited(MessageAssembler):
    """Stands in until the response head is here: a message before it is an error."""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        raise MessageError(_NO_HEAD)


_HEAD_AWAITED: Final = _HeadAwaited(0)


class ClientStream(Stream):
    """A call, from the client's side."""

    __slots__ = ("head_received", "opening_block")

    listener: CallListener

    def __init__(self, connection: "ClientConnection", listener: CallListener) -> None:
        super().__init__(connection, 0, listener)
        self.head_received = False
        self._assembler = _HEAD_AWAITED
        # The header block of a call that still waits to be opened.
        self.opening_block = b""

    def close_sending(self) -> None:
        """Half-close: tell the server that no message follows. Idempotent."""
        if self.is_send_closed:
            return
        self.is_send_closed = True
        self._queue_up().is_closing = True
        if self.id:
            self.connection.outbound.send_queued(self)

    def receive_head(self, head: ResponseBlock) -> None:
        self.head_received = True
        self.encoding = head.encoding
        self._assembler = None
        self.listener.on_head(head)

    def cancel(self, status: Status = _CANCELLED) -> None:
        """End the call at once; the server learns it by RST_STREAM."""
        self.reset(ErrorCode.CANCEL, status)


class ClientConnection(Connection):
    """The client role. Driven as `Connection` is, and by `open`."""

    def __init__(
        self, listener: ConnectionListener, limits: Limits, now_s: Callable[[], float]
    ) -> None:
        super().__init__(listener, limits, now_s)
        self._decoder = HeaderDecoder(understand_response, limits.header_list_bytes_max)
        self._next_stream_id = 1
        self._waiting: dict[ClientStream, None] = {}
        self._announce(PREFACE, ((frames.ENABLE_PUSH, 0),))

    @property
    def is_usable(self) -> bool:
        """New calls may be opened here."""
        return not self.is_draining and self._next_stream_id <= STREAM_ID_MASK

    @property
    def calls(self) -> int:
        """Calls under way, opened or waiting."""
        return len(self.streams) + len(self._waiting)

    # Opening

    def open(
        self, block: bytes, listener: CallListener, message: bytes | None = None
    ) -> ClientStream:
        """Start a call with an encoded header block (`RequestEncoder`).

        With `message`, that is the only one the client sends, uncompressed. On a connection that
        is not usable the call has ended, unprocessed, when this returns.
        """
        stream = ClientStream(self, listener)
        if self.is_draining or self._next_stream_id > STREAM_ID_MASK:
            self._end_unopened(stream, _UNUSABLE)
            return stream
        if self._waiting or len(self.streams) >= self.peer.concurrent_streams_max:
            stream.opening_block = block
            self._waiting[stream] = None
        else:
            self._assign_id(stream)
            if message is not None and self._send_at_once(stream, block, message):
                return stream
            self._send_block(stream, block)
        if message is not None:
            stream.send_message(message, end_stream=True)
        return stream

    def _assign_id(self, stream: ClientStream) -> None:
        stream_id = stream.id = self._next_stream_id
        self._next_stream_id = stream_id + 2
        stream.send_window = self.peer.initial_window_bytes
        self.streams[stream_id] = stream

    def _send_at_once(self, stream: ClientStream, block: bytes, message: bytes) -> bool:
        """The whole request in one piece of output, if the windows admit that."""
        outbound = self.outbound
        size = len(message) + PREFIX_BYTES
        block_size = len(block)
        if (
            size > outbound.sendable_bytes
            or size > stream.send_window
            or block_size > frames.FRAME_BYTES_DEFAULT
        ):
            return False
        stream.send_window -= size
        stream.is_send_closed = True
        stream_id = stream.id
        outbound.send_data(
            size,
            b"".join(
                (
                    pack_header(block_size << 8 | HEADERS, FLAG_END_HEADERS, stream_id),
                    block,
                    pack_data_and_prefix(size << 8, 1, stream_id, 0, size - PREFIX_BYTES),
                    message,
                )
            ),
        )
        return True

    def _send_block(self, stream: ClientStream, block: bytes) -> None:
        self.outbound.emit(
            frames.encode_headers(
                stream.id, block, end_stream=False, frame_bytes_max=self.peer.frame_bytes_max
            )
        )

    def _open_waiting(self) -> None:
        """Open waiting calls while the peer allows."""
        while self._waiting and len(self.streams) < self.peer.concurrent_streams_max:
            if not self.is_usable:
                self._end_waiting(_UNUSABLE)
                return
            stream = next(iter(self._waiting))
            del self._waiting[stream]
            self._assign_id(stream)
            self._send_block(stream, stream.opening_block)
            if stream.queue is not None:
                self.outbound.send_queued(stream)

    # Answers

    def _on_header_block(self, stream_id: int, block: bytes, end_stream: int) -> None:
        stream = cast("ClientStream | None", self.streams.get(stream_id))
        if stream is None:
            self._on_block_without_stream(stream_id)
            return
        understood = self._decoder.known(block)
        if understood is None:
            try:
                understood = self._decoder.decode(block)
            except HeaderListTooLarge:
                limit = self.limits.header_list_bytes_max
                text = f"received metadata larger than max ({limit} bytes)"
                stream.refuse(Status(StatusCode.RESOURCE_EXHAUSTED, text))
                return
        if end_stream:
            self._on_last_block(stream, understood)
        elif understood.is_informational and not stream.head_received:
            self._spend("informational HEADERS")
        elif stream.head_received:
            stream.reset(ErrorCode.PROTOCOL_ERROR, _SECOND_HEAD)
        elif understood.refusal is not None:
            self.reset_stream(stream, ErrorCode.CANCEL, understood.refusal)
        else:
            stream.receive_head(understood)

    def _on_block_without_stream(self, stream_id: int) -> None:
        self._check_opened("HEADERS", stream_id)
        if stream_id not in self._resets:
            raise RemoteProtocolError(
                ErrorCode.STREAM_CLOSED, f"HEADERS on stream {stream_id}, which is closed"
            )
        self._spend("late HEADERS")

    def _on_last_block(self, stream: ClientStream, block: ResponseBlock) -> None:
        """Trailers, or an answer that is trailers only."""
        end = block.end
        if stream.is_mid_message and end.status.is_ok:
            end = StreamEnd(_MID_MESSAGE, end.trailers)
        elif block.refusal is not None and not stream.head_received and end.status.is_ok:
            end = block.refusal
        self._finish(stream, end)

    def _on_half_close(self, stream: Stream) -> None:
        self._finish(stream, StreamEnd(_MID_MESSAGE if stream.is_mid_message else _NO_TRAILERS))

    def _finish(self, stream: Stream, end: StreamEnd) -> None:
        """The server has said its last word on this stream."""
        if not stream.is_send_closed:
            # Otherwise the stream would stay half open at the server for ever.
            self._resets.add(stream.id)
            self.outbound.emit(frames.encode_rst_stream(stream.id, ErrorCode.NO_ERROR))
        self._end_stream(stream, end)

    def _on_reset(self, stream: Stream, code: int) -> None:
        self._end_stream(stream, end_of_reset(code))

    # Ends

    def reset_stream(self, stream: Stream, code: ErrorCode, end: StreamEnd) -> None:
        if stream.id:
            super().reset_stream(stream, code, end)
        else:
            del self._waiting[cast("ClientStream", stream)]
            self._end_unopened(stream, end)

    def _end_stream(self, stream: Stream, end: StreamEnd) -> None:
        super()._end_stream(stream, end)
        if self._waiting:
            self._open_waiting()

    def _end_unopened(self, stream: Stream, end: StreamEnd) -> None:
        stream.is_ended = stream.is_send_closed = True
        stream.queue = None
        stream.listener.on_end(end)

    def _end_waiting(self, end: StreamEnd) -> None:
        waiting, self._waiting = self._waiting, {}
        for stream in waiting:
            self._end_unopened(stream, end)

    def lose(self, status: Status) -> None:
        self.is_draining = True
        # The peer never heard of calls that were not opened.
        self._end_waiting(StreamEnd(status, is_unprocessed=True))
        super().lose(status)

    def _on_peer_goaway(self, last_stream_id: int, code: int, text: str) -> None:
        reason = f"{name_error_code(code)}: {text}" if text else name_error_code(code)
        status = Status(StatusCode.UNAVAILABLE, f"peer is going away: {reason}")
        unprocessed = StreamEnd(status, is_unprocessed=True)
        self._end_waiting(unprocessed)
        for stream in [s for s in self.streams.values() if s.id > last_stream_id]:
            if not stream.is_ended:
                self._end_stream(stream, unprocessed)

    def _on_settings_applied(self) -> None:
        self._open_waiting()

    def _is_idle(self, stream_id: int) -> bool:
        return stream_id % 2 == 0 or stream_id >= self._next_stream_id


_UNUSABLE: Final = StreamEnd(
    Status(StatusCode.UNAVAILABLE, "connection takes no new calls"), is_unprocessed=True
)
