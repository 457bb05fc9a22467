"""Helpers for tests of the wire: connected cores, recorders, and raw peers.

`WireWorld` connects a client core and a server core without sockets. `RawServer` and `RawClient`
send any bytes to one core and read its output. Frames and header blocks of raw peers are made here
and by the `hpack` package, not by the package under test. Recorders fail a test when a listener is
called after its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import pack, unpack_from
from typing import TYPE_CHECKING, Any, Final

import pytest
from hpack import Decoder, Encoder

from proxyless.base import StatusCode
from proxyless.runtime import VirtualClock
from proxyless.wire import (
    ClientConnection,
    ClientStream,
    ErrorCode,
    Limits,
    RemoteProtocolError,
    RequestBlock,
    RequestEncoder,
    ResponseBlock,
    ServerConnection,
    ServerStream,
    StreamEnd,
)
from proxyless.wire import frames as kinds
from proxyless.wire.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from proxyless.wire.connection import Connection

Fields = list[tuple[str, str]]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20
RESERVED_BIT: Final = 0x8000_0000

HEAD: Final[Fields] = [(":status", "200"), ("content-type", "application/grpc")]
OK_TRAILERS: Final[Fields] = [("grpc-status", "0")]
REQUEST: Final[Fields] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/test.Service/Method"),
    (":authority", "test.example"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]

# Frames


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame that was read."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes

    def __repr__(self) -> str:
        return (
            f"Frame(kind={self.kind:#x}, flags={self.flags:#x},"
            f" stream_id={self.stream_id}, payload={self.payload[:40]!r})"
        )


def frame(kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> bytes:
    return pack(">I", len(payload))[1:] + pack(">BBI", kind, flags, stream_id) + payload


def read_frames(data: bytes) -> Iterator[Frame]:
    """All frames of complete output."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 3], "big")
        kind, flags, stream_id = unpack_from(">BBI", data, at + 3)
        payload = data[at + 9 : at + 9 + size]
        assert len(payload) == size, f"output ends within a frame: {data[at:]!r}"
        yield Frame(kind, flags, stream_id, payload)
        at += 9 + size


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(kinds.SETTINGS, 0, 0, b"".join(pack(">HI", *pair) for pair in pairs))


def settings_ack() -> bytes:
    return frame(kinds.SETTINGS, ACK)


def data(stream_id: int, payload: bytes, *, end: bool = False, padding: int | None = None) -> bytes:
    flags = END_STREAM if end else 0
    if padding is not None:
        flags |= PADDED
        payload = bytes((padding,)) + payload + bytes(padding)
    return frame(kinds.DATA, flags, stream_id, payload)


def prefixed(payload: bytes, *, compressed: int = 0) -> bytes:
    """A message with its five bytes of prefix."""
    return pack(">BI", compressed, len(payload)) + payload


def block(fields: Fields, *, huffman: bool = True) -> bytes:
    """A header block for a peer whose dynamic table has size 0."""
    encoder = Encoder()
    encoder.header_table_size = 0
    return encoder.encode(fields, huffman=huffman)


def headers(stream_id: int, fields: Fields | bytes, *, end: bool = False) -> bytes:
    encoded = fields if isinstance(fields, bytes) else block(fields)
    return frame(kinds.HEADERS, END_HEADERS | (END_STREAM if end else 0), stream_id, encoded)


def rst_stream(stream_id: int, code: int) -> bytes:
    return frame(kinds.RST_STREAM, 0, stream_id, pack(">I", code))


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(kinds.WINDOW_UPDATE, 0, stream_id, pack(">I", increment))


def ping(payload: bytes = b"12345678", *, ack: bool = False) -> bytes:
    return frame(kinds.PING, ACK if ack else 0, 0, payload)


def goaway(last_stream_id: int = 0, code: int = 0, debug: bytes = b"") -> bytes:
    return frame(kinds.GOAWAY, 0, 0, pack(">II", last_stream_id, code) + debug)


def answer(stream_id: int, *messages: bytes) -> bytes:
    """A complete, successful response."""
    parts = [headers(stream_id, HEAD)]
    parts += [data(stream_id, prefixed(each)) for each in messages]
    return b"".join(parts) + headers(stream_id, OK_TRAILERS, end=True)


def decode_block(encoded: bytes) -> list[tuple[str, str]]:
    return [(str(name), str(value)) for name, value in Decoder().decode(encoded)]


# Recorders


class Recorder:
    """Records the callbacks of a core. `hooks` run inside the callbacks, to test re-entrancy."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.hooks: dict[str, Callable[[Any], None]] = {}

    def _record(self, kind: str, value: object = None) -> None:
        self.events.append((kind, value))
        if kind in self.hooks:
            self.hooks[kind](value)

    def values(self, kind: str) -> list[Any]:
        return [value for event, value in self.events if event == kind]

    def count(self, kind: str) -> int:
        return len(self.values(kind))


class StreamRecorder(Recorder):
    """Listener of a stream of either role."""

    end: StreamEnd | None = None

    def _record(self, kind: str, value: object = None) -> None:
        assert self.end is None, f"{kind} after on_end({self.end})"
        if isinstance(value, StreamEnd):
            self.end = value
        super()._record(kind, value)

    def on_message(self, message: bytes) -> None:
        self._record("message", message)

    def on_writable(self) -> None:
        self._record("writable")

    def on_end(self, end: StreamEnd) -> None:
        self._record("end", end)

    @property
    def messages(self) -> list[bytes]:
        return self.values("message")

    def expect_messages(self, *messages: bytes) -> None:
        assert self.messages == list(messages)

    def expect_open(self) -> None:
        assert self.end is None

    def expect_end(
        self, code: StatusCode = StatusCode.OK, text: str = "", *, unprocessed: bool = False
    ) -> StreamEnd:
        """The stream has ended like this; `text` is part of the details."""
        assert self.end is not None, f"stream is still open after {self.events}"
        assert self.end.status.code is code, self.end.status
        assert text in self.end.status.details
        assert self.end.is_unprocessed is unprocessed, self.end
        return self.end


class CallRecorder(StreamRecorder):
    """Listener of a client's call."""

    # Set when the call is opened.
    stream: ClientStream

    def on_head(self, head: ResponseBlock) -> None:
        self._record("head", head)

    def expect_writable(self, is_writable: bool) -> None:
        assert self.stream.is_writable is is_writable

    @property
    def head(self) -> ResponseBlock:
        (head,) = self.values("head")
        assert isinstance(head, ResponseBlock)
        return head


class HandlerRecorder(StreamRecorder):
    """Listener of a server's call."""

    def __init__(self, stream: ServerStream, request: RequestBlock) -> None:
        super().__init__()
        self.stream = stream
        self.request = request

    def on_half_close(self) -> None:
        self._record("half_close")


class OwnerRecorder(Recorder):
    """Listener of a connection of either role."""

    def on_output(self) -> None:
        self._record("output")

    def on_settings(self) -> None:
        self._record("settings")

    def on_ping_ack(self, payload: bytes) -> None:
        self._record("ping_ack", payload)

    def on_goaway(self, code: int, text: str) -> None:
        self._record("goaway", (code, text))

    def on_broken(self, error: RemoteProtocolError) -> None:
        self._record("broken", error.code)

    def on_drained(self) -> None:
        self._record("drained")


class ServerOwnerRecorder(OwnerRecorder):
    """Listener of a server's connection; gives each call a recorder."""

    def __init__(self) -> None:
        super().__init__()
        self.handlers: list[HandlerRecorder] = []

    def on_call(self, stream: ServerStream, request: RequestBlock) -> HandlerRecorder:
        handler = HandlerRecorder(stream, request)
        self.handlers.append(handler)
        self._record("call", handler)
        return handler


# Worlds


class ManualTurns(Turns):
    """Turns of a loop that the test takes."""

    def __init__(self) -> None:
        self._scheduled: list[Callable[[], None]] = []
        super().__init__(self._scheduled.append)

    def take(self) -> bool:
        """Take the next turn; return whether there was work for it."""
        actions = self._scheduled.copy()
        self._scheduled.clear()
        for action in actions:
            action()
        return bool(actions)

    def take_all(self) -> int:
        """Take turns until there is no more work; return how many."""
        taken = 0
        while self.take():
            taken += 1
        return taken


ENCODER: Final = RequestEncoder(path="/test.Service/Method", authority="test.example")


class ClientSide:
    """A client core with a recorder, and calls on it."""

    def __init__(self, limits: Limits | None = None, turns: Turns | None = None) -> None:
        self.clock = VirtualClock()
        self.owner = OwnerRecorder()
        self.core = ClientConnection(self.owner, limits or Limits(), self.clock.now_s, turns)
        self.calls: list[CallRecorder] = []

    def call(self, message: bytes | None = None, *, request: bytes | None = None) -> CallRecorder:
        """Open a call; with `message` a unary one."""
        recorder = CallRecorder()
        self.calls.append(recorder)
        encoded = ENCODER.block() if request is None else request
        if message is None:
            recorder.stream = self.core.open(encoded, recorder)
        else:
            recorder.stream = self.core.open_unary(encoded, recorder, message)
        return recorder


class WireWorld(ClientSide):
    """A client core and a server core that exchange bytes."""

    def __init__(self, client: Limits | None = None, server: Limits | None = None) -> None:
        super().__init__(client)
        self.server_owner = ServerOwnerRecorder()
        self.server = ServerConnection(self.server_owner, server or Limits(), self.clock.now_s)
        # Everything each side has sent.
        self.client_output = bytearray()
        self.server_output = bytearray()

    def run(self, piece_bytes: int = 1 << 30) -> None:
        """Pass bytes both ways, in pieces of this size, until neither side has output."""
        while True:
            request = self.core.outbound.take_output()
            self.core.note_sent()
            reply = self.server.outbound.take_output()
            self.client_output += request
            self.server_output += reply
            for at in range(0, len(request), piece_bytes):
                self.server.receive(request[at : at + piece_bytes])
            for at in range(0, len(reply), piece_bytes):
                self.core.receive(reply[at : at + piece_bytes])
            if not request and not reply:
                return

    @property
    def handlers(self) -> list[HandlerRecorder]:
        return self.server_owner.handlers

    @property
    def handler(self) -> HandlerRecorder:
        """The newest call at the server."""
        return self.handlers[-1]

    def serve_with(self, on_call: Callable[[HandlerRecorder], None]) -> None:
        """Run this inside `on_call`, where it may set hooks."""
        self.server_owner.hooks["call"] = on_call


@dataclass
class SentFrames:
    """Frames of a core's output."""

    frames: list[Frame] = field(default_factory=list)

    def of(self, kind: int, stream_id: int | None = None) -> list[Frame]:
        return [
            each
            for each in self.frames
            if each.kind == kind and (stream_id is None or each.stream_id == stream_id)
        ]

    def payload(self, stream_id: int) -> bytes:
        """The DATA of one stream, joined."""
        return b"".join(each.payload for each in self.of(kinds.DATA, stream_id))

    def resets(self) -> list[tuple[int, int]]:
        """(stream, code) of each RST_STREAM."""
        found = self.of(kinds.RST_STREAM)
        return [(each.stream_id, unpack_from(">I", each.payload)[0]) for each in found]

    def goaways(self) -> list[tuple[int, int, bytes]]:
        """(last stream, code, debug data) of each GOAWAY."""
        found = self.of(kinds.GOAWAY)
        return [(*unpack_from(">II", each.payload), each.payload[8:]) for each in found]

    def updates(self) -> list[tuple[int, int]]:
        """(stream, increment) of each WINDOW_UPDATE."""
        found = self.of(kinds.WINDOW_UPDATE)
        return [(each.stream_id, unpack_from(">I", each.payload)[0]) for each in found]


class RawPeer:
    """Sends any bytes to a core, and reads its output."""

    core: Connection
    _preface = b""

    def streams(self) -> Iterable[StreamRecorder]:
        """The recorders of all streams so far."""
        raise NotImplementedError

    def send(self, *pieces: bytes) -> None:
        self.core.receive(b"".join(pieces))

    def read_output(self) -> SentFrames:
        """Take the output since the last call."""
        output = self.core.outbound.take_output()
        self.core.note_sent()
        if self._preface:
            assert output.startswith(self._preface)
            output = output.removeprefix(self._preface)
            self._preface = b""
        return SentFrames(list(read_frames(output)))

    def expect_reset(self, stream_id: int, code: ErrorCode) -> None:
        """The core has sent exactly this RST_STREAM."""
        sent = self.read_output()
        assert sent.resets() == [(stream_id, code)]
        assert not sent.goaways()

    def expect_no_output(self) -> None:
        assert self.read_output().frames == []

    def expect_error(self, code: ErrorCode, text: str, *pieces: bytes) -> RemoteProtocolError:
        """These bytes end the connection with the code, on the wire and to the owner."""
        with pytest.raises(RemoteProtocolError) as caught:
            self.send(*pieces)
        assert caught.value.code is code, caught.value
        assert text in str(caught.value)
        self.expect_closed(code)
        return caught.value

    def expect_closed(self, code: ErrorCode) -> None:
        """GOAWAY was sent last, and every stream has ended once."""
        sent = self.read_output()
        assert [got for _, got, _ in sent.goaways()] == [code]
        assert sent.frames[-1].kind == kinds.GOAWAY
        assert self.core.is_closed
        assert not self.core.streams
        for stream in self.streams():
            assert stream.count("end") == 1
        self.core.receive(ping())
        self.expect_no_output()


class RawServer(RawPeer, ClientSide):
    """A raw peer of a client core; `handshake`: settings are exchanged."""

    core: ClientConnection
    _preface = PREFACE

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        handshake: bool = True,
        announce: tuple[tuple[int, int], ...] = (),
        turns: Turns | None = None,
    ) -> None:
        ClientSide.__init__(self, limits, turns)
        if handshake:
            self.send(settings(*announce), settings_ack())
            self.read_output()

    def streams(self) -> Iterable[StreamRecorder]:
        return self.calls

    def opened(self, calls: int = 1) -> list[CallRecorder]:
        """Open unary calls on streams 1, 3, …, and read their requests."""
        opened = [self.call(b"request") for _ in range(calls)]
        self.read_output()
        return opened


class RawClient(RawPeer):
    """A raw peer of a server core; `handshake`: preface and settings are exchanged."""

    core: ServerConnection

    def __init__(self, limits: Limits | None = None, *, handshake: bool = True) -> None:
        self.clock = VirtualClock()
        self.owner = ServerOwnerRecorder()
        self.core = ServerConnection(self.owner, limits or Limits(), self.clock.now_s)
        if handshake:
            self.send(PREFACE, settings(), settings_ack())
            self.read_output()

    def streams(self) -> Iterable[StreamRecorder]:
        return self.owner.handlers

    def request(self, stream_id: int, *, end: bool = False) -> HandlerRecorder:
        """Start a call, without reading the output."""
        self.send(headers(stream_id, REQUEST, end=end))
        return self.owner.handlers[-1]
