"""Minimal gRPC client over HTTP/2, as a lower bound of the cost in Python.

It announces a header table of size 0, so response header blocks are constant bytes that are decoded
once; it encodes a request header block once per path; it writes once per loop turn. Not
implemented: TLS, deadlines, cancellation, status other than an exception, metadata, stream flow
control (its windows have the maximum size of HTTP/2).
"""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

from hpack import Decoder, Encoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WINDOW_MAX = (1 << 31) - 1
INITIAL_WINDOW = 65_535
# Far less than the window, far more than one read returns.
WINDOW_REFILL_AT = 1 << 28
FRAME_MAX = 16_384
FRAME_HEAD = 9
MESSAGE_HEAD = 5

DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
END_STREAM = ACK = 1
HEADER_TABLE_SIZE, ENABLE_PUSH, INITIAL_WINDOW_SIZE = 1, 2, 4


def encode_frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream_id.to_bytes(4, "big")
    return head + payload


def encode_setting(identifier: int, value: int) -> bytes:
    return identifier.to_bytes(2, "big") + value.to_bytes(4, "big")


class UnaryCall:
    """Stores the response; the trailers resolve the future."""

    __slots__ = ("body", "future")

    def __init__(self, future: asyncio.Future[bytes]) -> None:
        self.future = future
        self.body: bytes | None = None

    def on_data(self, payload: bytes) -> None:
        self.body = payload if self.body is None else self.body + payload

    def on_end(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None and self.body is None:
            error = RuntimeError("the call ended without a message")
        if error is None and self.body is not None:
            self.future.set_result(self.body[MESSAGE_HEAD:])
        elif error is not None:
            self.future.set_exception(error)


class StreamCall:
    """Splits DATA frames into messages and queues them for the reader."""

    __slots__ = ("_loop", "_unread", "_waiter", "end", "messages")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._unread = b""
        self._waiter: asyncio.Future[None] | None = None
        self.messages: list[bytes] = []
        self.end: Exception | bool = False

    def on_data(self, payload: bytes) -> None:
        data = self._unread + payload if self._unread else payload
        start, size = 0, len(data)
        while size - start >= MESSAGE_HEAD:
            stop = start + MESSAGE_HEAD + int.from_bytes(data[start + 1 : start + 5], "big")
            if stop > size:
                break
            self.messages.append(data[start + MESSAGE_HEAD : stop])
            start = stop
        self._unread = data[start:]
        if self.messages:
            self._wake()

    def on_end(self, error: Exception | None) -> None:
        self.end = error or True
        self._wake()

    async def read(self) -> AsyncIterator[bytes]:
        while True:
            messages, self.messages = self.messages, []
            for message in messages:
                yield message
            if self.messages:
                continue
            if isinstance(self.end, Exception):
                raise self.end
            if self.end:
                return
            self._waiter = self._loop.create_future()
            await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class LeanConnection(asyncio.Protocol):
    """One HTTP/2 connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport
        self._unread = b""
        self._unsent: list[bytes] = []
        self._calls: dict[int, UnaryCall | StreamCall] = {}
        self._next_stream_id = 1
        self._request_blocks: dict[str, bytes] = {}
        self._decoded_blocks: dict[bytes, dict[bytes, bytes]] = {}
        self._received_bytes = 0

    def unary(self, path: str, message: bytes) -> asyncio.Future[bytes]:
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._start(path, message, UnaryCall(future))
        return future

    def server_stream(self, path: str, request: bytes) -> AsyncIterator[bytes]:
        call = StreamCall(self._loop)
        self._start(path, request, call)
        return call.read()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        settings = (
            encode_setting(HEADER_TABLE_SIZE, 0)
            + encode_setting(ENABLE_PUSH, 0)
            + encode_setting(INITIAL_WINDOW_SIZE, WINDOW_MAX)
        )
        increment = (WINDOW_MAX - INITIAL_WINDOW).to_bytes(4, "big")
        self._transport.write(
            PREFACE
            + encode_frame(SETTINGS, 0, 0, settings)
            + encode_frame(WINDOW_UPDATE, 0, 0, increment)
        )

    def data_received(self, data: bytes) -> None:
        # One loop with everything inline: a call per frame would be a third of the cost.
        if self._unread:
            data = self._unread + data
        start, size = 0, len(data)
        calls = self._calls
        while size - start >= FRAME_HEAD:
            length = int.from_bytes(data[start : start + 3], "big")
            stop = start + FRAME_HEAD + length
            if stop > size:
                break
            kind = data[start + 3]
            payload = data[start + FRAME_HEAD : stop]
            if kind == DATA:
                self._received_bytes += length
                call = calls.get(int.from_bytes(data[start + 5 : start + 9], "big"))
                if call is not None:
                    call.on_data(payload)
            elif kind == HEADERS:
                headers = self._decoded_blocks.get(payload) or self._decode(payload)
                if data[start + 4] & END_STREAM:
                    self._end(int.from_bytes(data[start + 5 : start + 9], "big"), headers)
            elif not data[start + 4] & ACK:
                self._on_control(kind, payload)
            start = stop
        self._unread = data[start:]
        if self._received_bytes > WINDOW_REFILL_AT:
            increment = self._received_bytes.to_bytes(4, "big")
            self._send(encode_frame(WINDOW_UPDATE, 0, 0, increment))
            self._received_bytes = 0

    def connection_lost(self, exc: Exception | None) -> None:
        for call in self._calls.values():
            call.on_end(exc or ConnectionError("the backend closed the connection"))

    def _start(self, path: str, message: bytes, call: UnaryCall | StreamCall) -> None:
        stream_id = self._next_stream_id
        self._next_stream_id = stream_id + 2
        self._calls[stream_id] = call
        block = self._request_blocks.get(path) or self._encode_block(path)
        stream = stream_id.to_bytes(4, "big")
        size = len(message)
        head = (len(block).to_bytes(3, "big"), b"\x01\x04", stream, block)
        prefix = b"\0" + size.to_bytes(4, "big")
        if size + MESSAGE_HEAD <= FRAME_MAX:
            data_head = (size + MESSAGE_HEAD).to_bytes(3, "big")
            self._send(b"".join((*head, data_head, b"\x00\x01", stream, prefix, message)))
            return
        body = prefix + message
        parts = list(head)
        for start in range(0, len(body), FRAME_MAX):
            piece = body[start : start + FRAME_MAX]
            is_last = start + FRAME_MAX >= len(body)
            flags = b"\x00\x01" if is_last else b"\x00\x00"
            parts += (len(piece).to_bytes(3, "big"), flags, stream, piece)
        self._send(b"".join(parts))

    def _end(self, stream_id: int, headers: dict[bytes, bytes]) -> None:
        call = self._calls.pop(stream_id, None)
        if call is not None:
            is_ok = headers.get(b"grpc-status") == b"0"
            call.on_end(None if is_ok else RuntimeError(f"call ended with {headers!r}"))

    def _on_control(self, kind: int, payload: bytes) -> None:
        if kind == SETTINGS:
            self._send(encode_frame(SETTINGS, ACK, 0, b""))
        elif kind == PING:
            self._send(encode_frame(PING, ACK, 0, payload))

    def _send(self, data: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(data)

    def _flush(self) -> None:
        parts, self._unsent = self._unsent, []
        self._transport.write(b"".join(parts))

    def _decode(self, block: bytes) -> dict[bytes, bytes]:
        fields = Decoder().decode(block, raw=True)
        headers = {bytes(field[0]): bytes(field[1]) for field in fields}
        self._decoded_blocks[block] = headers
        return headers

    def _encode_block(self, path: str) -> bytes:
        encoder = Encoder()
        encoder.header_table_size = 0
        block = encoder.encode(
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", path),
                (":authority", "bench"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("user-agent", "lean-probe"),
            ]
        )
        self._request_blocks[path] = block
        return block
