"""Server role of `Connection`, for simulated backends, tests and benchmarks.

Specs: RFC 9113, gRPC over HTTP/2. Production servers use grpcio.
"""

from collections.abc import Callable
from typing import Final, Protocol, cast

from proxyless.base.metadata import EMPTY, Metadata
from proxyless.base.status import OK, Status, StatusCode
from proxyless.wire import frames
from proxyless.wire.connection import Connection
from proxyless.wire.errors import ErrorCode, RemoteProtocolError, UsageError, protocol_error
from proxyless.wire.frames import FLAG_END_STREAM, PREFACE, STREAM_ID_MASK
from proxyless.wire.headers import (
    IDENTITY,
    RequestBlock,
    encode_response_head,
    encode_trailers,
    parse_request,
)
from proxyless.wire.hpack import (
    TABLE_BYTES_DEFAULT,
    WITHOUT_TABLE,
    DynamicTable,
    HeaderDecoder,
    HeaderListTooLarge,
    decode_fields,
    encode_fields,
)
from proxyless.wire.limits import Limits, encode_limits
from proxyless.wire.listeners import ConnectionListener
from proxyless.wire.status import StreamEnd, end_of_reset
from proxyless.wire.stream import Stream, StreamListener
from proxyless.wire.stream_states import ENDING, HALF_CLOSED, IDLE, OPEN
from proxyless.wire.turns import Turns

_TOO_LATE: Final = Status(StatusCode.INTERNAL, "peer sent more after it had closed its side")
_SECOND_HEAD: Final = Status(StatusCode.INTERNAL, "peer sent a second request head")
_TRAILERS_TOO_LARGE: Final = Status(
    StatusCode.RESOURCE_EXHAUSTED, "peer sent request trailers larger than the limit"
)
_MID_MESSAGE: Final = Status(StatusCode.INTERNAL, "peer closed its side in the middle of a message")


class HandlerListener(StreamListener, Protocol):
    """Callbacks of a server's stream. No method may raise or block."""

    def on_half_close(self) -> None:
        """The client sends no more messages."""


class ServerListener(ConnectionListener, Protocol):
    """Callbacks of a server's connection, for its owner."""

    def on_call(self, stream: "ServerStream", request: RequestBlock) -> HandlerListener:
        """Return the listener of a new stream. May end the stream before it returns."""


class _PendingListener:
    """Listener of a new stream until `on_call` has returned; keeps an end that comes before."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end: StreamEnd | None = None

    def on_message(self, message: bytes) -> None: ...
    def on_writable(self) -> None: ...
    def on_half_close(self) -> None: ...

    def on_end(self, end: StreamEnd) -> None:
        self._end = end

    def take_end(self) -> StreamEnd | None:
        end, self._end = self._end, None
        return end


class ServerStream(Stream):
    """Server side of one stream: sends head, messages, then trailers."""

    __slots__ = ("_trailers",)

    listener: HandlerListener
    # Set while sending is ENDING: sent after the queued messages.
    _trailers: bytes

    def __init__(self, connection: "ServerConnection", stream_id: int) -> None:
        super().__init__(connection, stream_id, connection.pending_listener)
        self.receiving = OPEN

    def send_head(self, metadata: Metadata = EMPTY, encoding: str = IDENTITY) -> None:
        """Send the response head. `send_message` sends one if this was not called."""
        if self.is_ended:
            return
        if self.sending is not IDLE:
            raise UsageError("response head sent twice")
        self.sending = self.sending.after_headers
        self._send_block(encode_response_head(metadata, encoding), end_stream=False)

    def send_message(
        self, message: bytes, *, is_compressed: bool = False, end_stream: bool = False
    ) -> None:
        if self.sending is IDLE:
            self.send_head()
        super().send_message(message, is_compressed=is_compressed, end_stream=end_stream)

    def send_status(self, status: Status = OK, metadata: Metadata = EMPTY) -> None:
        """End the stream with trailers, after every queued message."""
        if self.is_send_closed:
            raise UsageError("status sent after the sending side was closed")
        trailers = encode_trailers(status, metadata)
        if self.queue is not None:
            self.sending = self.sending.after_last_message
            self._trailers = trailers
        elif self.sending is IDLE:
            # A response without messages is trailers-only.
            self._send_trailers(encode_response_head() + trailers)
        else:
            self._send_trailers(trailers)

    def on_queue_empty(self) -> None:
        if self.sending is ENDING:
            self._send_trailers(self._trailers)
        else:
            self.listener.on_writable()

    def _send_trailers(self, trailers: bytes) -> None:
        self.sending = self.sending.after_end_stream
        self._send_block(trailers, end_stream=True)
        cast("ServerConnection", self.connection).finish(self)

    def _send_block(self, block: bytes, *, end_stream: bool) -> None:
        frame_bytes_max = self.connection.peer.frame_bytes_max
        self.connection.outbound.emit(
            frames.encode_headers(
                self.id,
                WITHOUT_TABLE + block,
                end_stream=end_stream,
                frame_bytes_max=frame_bytes_max,
            )
        )

    def receive_data(self, data: bytes, start: int, stop: int, charged_bytes: int) -> None:
        if self.receiving is HALF_CLOSED:
            self.reset(ErrorCode.STREAM_CLOSED, _TOO_LATE)
        else:
            super().receive_data(data, start, stop, charged_bytes)

    def on_handed_over(self) -> None:
        if self.receiving is not HALF_CLOSED:
            return
        if self.is_mid_message:
            self.refuse(_MID_MESSAGE)
        else:
            self.listener.on_half_close()

    def refuse(self, status: Status) -> None:
        if self.is_send_closed or self.queue is not None:
            # Trailers would wait for the client's window, and the client could continue to send.
            super().refuse(status)
        else:
            self.send_status(status)


class ServerConnection(Connection):
    """The server role."""

    __slots__ = (
        "_decoder",
        "_early_table",
        "_newest_stream_id",
        "_server_listener",
        "pending_listener",
    )

    _peer_preface = PREFACE

    def __init__(
        self,
        listener: ServerListener,
        limits: Limits,
        now_s: Callable[[], float],
        turns: Turns | None = None,
    ) -> None:
        super().__init__(listener, limits, now_s, turns)
        self._server_listener = listener
        # One for all streams: `on_call` returns before the next stream is opened.
        self.pending_listener = _PendingListener()
        self._decoder = HeaderDecoder(parse_request, limits.header_list_bytes_max)
        # A client may index headers until it has received our SETTINGS_HEADER_TABLE_SIZE 0.
        self._early_table: DynamicTable | None = DynamicTable(TABLE_BYTES_DEFAULT)
        self._newest_stream_id = 0
        streams_max = (frames.MAX_CONCURRENT_STREAMS, limits.concurrent_streams_max)
        self.outbound.emit(encode_limits(limits, streams_max))

    def drain(self, text: str = "server is shutting down") -> None:
        """Accept no new streams; the open ones continue."""
        if not self.is_draining:
            self.is_draining = True
            self.outbound.emit(
                frames.encode_goaway(self._newest_stream_id, ErrorCode.NO_ERROR, text.encode())
            )
        self._check_drained()

    def finish(self, stream: Stream) -> None:
        """End a stream whose trailers are sent; reset it if the client has not half-closed it."""
        if stream.receiving is not HALF_CLOSED:
            self._resets.add(stream.id, stream.recv_window)
            self.outbound.emit(frames.encode_rst_stream(stream.id, ErrorCode.NO_ERROR))
        self._end_stream(stream, StreamEnd(OK))

    # Requests

    def _on_header_block(self, stream_id: int, block: bytes, end_stream: int) -> None:
        self._on_head(stream_id & STREAM_ID_MASK, self._decode(block), end_stream)

    def _on_oversized_block(self, stream_id: int) -> None:
        if self._early_table is not None:
            raise RemoteProtocolError(
                ErrorCode.ENHANCE_YOUR_CALM, "header block larger than the limit"
            )
        self._on_head(stream_id, None, FLAG_END_STREAM)

    def _on_head(self, stream_id: int, request: RequestBlock | None, end_stream: int) -> None:
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._on_request_trailers(cast("ServerStream", stream), request, end_stream)
        elif stream_id % 2 and self._is_idle(stream_id):
            self._newest_stream_id = stream_id
            self._on_request(stream_id, request, end_stream)
        elif stream_id in self._resets:
            self._spend("late HEADERS")
        else:
            raise protocol_error(f"HEADERS on stream {stream_id}, wanted a new odd one")

    def _decode(self, block: bytes) -> RequestBlock | None:
        """The parsed block, or None if it is over the limit."""
        table, size_max = self._early_table, self.limits.header_list_bytes_max
        try:
            if table is None:
                return self._decoder.decode(block)
            return parse_request(decode_fields(block, size_max, table))
        except HeaderListTooLarge as error:
            if table is None:
                return None
            # The rest of the block may have changed the table, so no later block can be decoded.
            text = f"header list larger than {size_max} bytes"
            raise RemoteProtocolError(ErrorCode.ENHANCE_YOUR_CALM, text) from error

    def _on_settings_ack(self) -> None:
        self._early_table = None

    def _on_request(self, stream_id: int, request: RequestBlock | None, end_stream: int) -> None:
        if self.is_draining or len(self.streams) >= self.limits.concurrent_streams_max:
            self._resets.add(stream_id, self.stream_window_bytes)
            self._spend("HEADERS over the stream limit")
            self.outbound.emit(frames.encode_rst_stream(stream_id, ErrorCode.REFUSED_STREAM))
        elif request is None:
            self._refuse_request(stream_id, b"431")
        elif request.method != b"POST":
            self._refuse_request(stream_id, b"405")
        elif not request.is_grpc:
            self._refuse_request(stream_id, b"415")
        else:
            self._on_call(stream_id, request, end_stream)

    def _on_call(self, stream_id: int, request: RequestBlock, end_stream: int) -> None:
        stream = ServerStream(self, stream_id)
        stream.encoding = request.encoding
        self.streams[stream_id] = stream
        handler = self._server_listener.on_call(stream, request)
        end = self.pending_listener.take_end()
        if end is not None:
            handler.on_end(end)
            return
        stream.listener = handler
        if end_stream:
            self._on_half_close(stream)

    def _refuse_request(self, stream_id: int, http_status: bytes) -> None:
        """Answer a request that is not gRPC with an HTTP status."""
        self._spend("HEADERS without a call")
        self._resets.add(stream_id, self.stream_window_bytes)
        block = WITHOUT_TABLE + encode_fields([(b":status", http_status)])
        self.outbound.emit(
            frames.encode_frame(
                frames.HEADERS,
                frames.FLAG_END_HEADERS | frames.FLAG_END_STREAM,
                stream_id,
                block,
            )
        )

    def _on_request_trailers(
        self, stream: ServerStream, trailers: RequestBlock | None, end_stream: int
    ) -> None:
        if stream.receiving is HALF_CLOSED:
            stream.reset(ErrorCode.STREAM_CLOSED, _TOO_LATE)
        elif not end_stream:
            stream.reset(ErrorCode.PROTOCOL_ERROR, _SECOND_HEAD)
        elif trailers is None:
            stream.refuse(_TRAILERS_TOO_LARGE)
        else:
            self._on_half_close(stream)

    def _on_half_close(self, stream: Stream) -> None:
        stream.receiving = stream.receiving.after_end_stream
        if stream.is_mid_message:
            stream.refuse(_MID_MESSAGE)
        elif stream.held_messages is None:
            cast("ServerStream", stream).listener.on_half_close()

    def _on_reset(self, stream: Stream, code: int) -> None:
        # Opening and resetting streams is the cheapest way to keep a server busy.
        self._spend("RST_STREAM")
        self._end_stream(stream, end_of_reset(code))

    def _on_peer_goaway(self, last_stream_id: int, code: int, text: str) -> None:
        """The client opens no new streams; the open ones continue."""

    def _is_idle(self, stream_id: int) -> bool:
        return stream_id % 2 == 0 or stream_id > self._newest_stream_id

    def _last_peer_stream_id(self) -> int:
        return self._newest_stream_id & STREAM_ID_MASK
