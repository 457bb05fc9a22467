"""Fuzzer of the package `wire`.

Each input is a connection of its own: a role, limits, a few calls, and then frames that are valid,
cut, repeated, mutated or noise, in pieces of any size, while its owner and its listeners act at
random. The rules: `receive` raises nothing but RemoteProtocolError; then the connection is closed
and GOAWAY with that code is its last frame; every stream ends exactly once, and its listener is not
called afterwards; memory and output are bounded by a multiple of the input.

An input depends only on seed and index, so one line reproduces a failure.
"""

import argparse
import gc
import os
import sys
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from struct import pack, unpack_from
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Final, TypeVar

from proxyless.base import Status, StatusCode
from proxyless.runtime import Random, seeded_random
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
    compress,
)
from proxyless.wire.frames import FRAME_HEADER_BYTES, GOAWAY, PREFACE
from proxyless.wire.hpack import encode_fields
from proxyless.wire.messages import ENCODINGS, Unpacking
from proxyless.wire.turns import Turns

T = TypeVar("T")

LIMITS: Final = (
    Limits(),
    Limits(
        frame_bytes_max=16_384,
        header_list_bytes_max=500,
        message_bytes_max=300,
        stream_window_bytes=800,
        stream_window_bytes_max=2_000,
        connection_window_bytes=65_535,
        concurrent_streams_max=3,
        held_bytes_max=1_000,
    ),
)
# Small budgets of a turn, so that most inputs use them up.
TURN_COSTS: Final = (1, 5_000, 50_000)
TURN_FRAMES: Final = (1, 3, 50)
GONE: Final = Status(StatusCode.UNAVAILABLE, "the input is over")
ENCODER: Final = RequestEncoder(path="/fuzz.Wire/Call", authority="fuzz")
REQUEST: Final = ENCODER.block()
PACKED_REQUESTS: Final = tuple(ENCODER.block(encoding=each) for each in sorted(ENCODINGS))
HEAD: Final = encode_fields([(b":status", b"200"), (b"content-type", b"application/grpc")])
TRAILERS: Final = encode_fields([(b"grpc-status", b"0")])
BLOCKS: Final = (
    HEAD,
    TRAILERS,
    HEAD + encode_fields([(b"grpc-encoding", b"gzip")]),
    HEAD + encode_fields([(b"grpc-status", b"5"), (b"k-bin", b"AAA,!!,A")]),
    encode_fields([(b"grpc-status", b"9" * 40), (b"grpc-message", b"%zz%")]),
    encode_fields([(b":status", b"103")]),
    encode_fields([(b":status", b"503"), (b"content-type", b"text/html")]),
    encode_fields([(b":status", b"9" * 5000)]),
    encode_fields([(b"k", b"v" * 600)]),
    encode_fields([(b"k", b"v" * 17_000)]),
    b"\x90" * 700,
    b"",
)
BAD_BLOCKS: Final = (
    b"\x20\x3f\xe1\x1f\x82",
    b"\x04\x84\xff\xff\xff\xff",
    b"\x00\xff\xff\xff\xff\xff",
    b"\xbe",
    b"\x00\x05abc",
)
MESSAGES: Final = (
    b"\0\0\0\0\0",
    b"\0\0\0\0\x05hello",
    b"\0\0\0\0\x05hello\0\0\0\0\0\0\0",
    b"\0\0\0\x02\0" + bytes(512),
    pack(">BI", 1, 25) + compress("gzip", b"hello"),
    pack(">BI", 1, len(compress("gzip", bytes(9_000)))) + compress("gzip", bytes(9_000)),
    b"\x02\0\0\0\0",
    b"\0\xff\xff\xff\xff",
    b"\0",
    b"",
    bytes(16_000),
)
SETTINGS: Final = {
    1: (0, 4096),
    2: (0, 1),
    3: (0, 1, 3, 2**32 - 1),
    4: (0, 5, 800, 65_535, 2**20, 2**31 - 1),
    5: (16_384, 65_535, 2**24 - 1),
    6: (0, 5, 16_384),
    7: (0, 7),
}
# Repetitions of one frame: enough for the flood guard.
FLOOD: Final = 1_200
OUTPUT_PER_INPUT_BYTE: Final = 4
HELD_PER_INPUT_BYTE: Final = 8
HELD_BYTES_MIN: Final = 256 * 1024
MEASURED_EVERY: Final = 25


def pick(rng: Random, choices: Sequence[T]) -> T:
    return choices[rng.randrange(len(choices))]


def noise(rng: Random, size: int) -> bytes:
    return rng.getrandbits(8 * size).to_bytes(size, "big") if size else b""


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return pack(">I", len(payload))[1:] + pack(">BBI", kind, flags, stream_id) + payload


# Frames of the peer


Ids = Sequence[int]


def some_stream(rng: Random, ids: Ids) -> int:
    """Mostly a stream that exists."""
    if ids and rng.randrange(50):
        return pick(rng, ids) | (2**31 if rng.randrange(20) == 0 else 0)
    return pick(rng, (0, 1, 2, 3, 5, 99, 2**31 - 1))


def some_data(rng: Random, ids: Ids) -> bytes:
    payload = pick(rng, MESSAGES)
    flags = int(rng.randrange(6) == 0)
    if rng.randrange(6) == 0:
        padding = rng.randrange(20)
        payload = bytes((padding,)) + payload + bytes(padding)
        flags |= 8
    return frame(0, flags, some_stream(rng, ids), payload)


def some_answer(rng: Random, ids: Ids) -> bytes:
    """A stream from its head on: a response, or a request."""
    stream_id = some_stream(rng, ids)
    data = frame(1, 4, stream_id, pick(rng, (HEAD, HEAD, BLOCKS[2])))
    for _ in range(rng.randrange(4)):
        data += frame(0, 0, stream_id, pick(rng, MESSAGES[:6]))
    return data + (frame(1, 5, stream_id, TRAILERS) if rng.getrandbits(1) else b"")


def some_packed(rng: Random, encoding: str) -> bytes:
    """A message that is compressed: valid, a bomb, cut, mutated, or of another encoding."""
    size = pick(rng, (0, 5, 200, 299, 301, 5_000, 300_000))
    message = bytes(size) if rng.getrandbits(1) or size > 300 else noise(rng, size)  # noqa: PLR2004
    shape = rng.randrange(12)
    if shape == 0:
        encoding = pick(rng, sorted(ENCODINGS))
    payload = compress(encoding, message)
    if shape == 1:
        payload = payload[: rng.randrange(len(payload))]
    elif shape == 2:  # noqa: PLR2004 - out of twelve
        payload = mutate(rng, payload)
    elif shape == 3:  # noqa: PLR2004 - out of twelve
        payload = noise(rng, 30)
    return pack(">BI", int(shape != 4), len(payload)) + payload  # noqa: PLR2004 - out of twelve


def some_packed_stream(rng: Random, ids: Ids) -> bytes:
    """A compressed stream, from its head on or in the middle, in frames of any size."""
    stream_id, encoding = some_stream(rng, ids), pick(rng, sorted(ENCODINGS))
    head = HEAD + encode_fields([(b"grpc-encoding", encoding.encode())])
    data = frame(1, 4, stream_id, head) if rng.randrange(4) else b""
    messages = b"".join(some_packed(rng, encoding) for _ in range(1 + rng.randrange(4)))
    if rng.randrange(6) == 0:
        messages = messages[: 1 + rng.randrange(len(messages))]
    while messages:
        size = len(messages) if rng.getrandbits(1) else 1 + rng.randrange(len(messages))
        data += frame(0, 0, stream_id, messages[:size])
        messages = messages[size:]
    return data + (frame(1, 5, stream_id, TRAILERS) if rng.getrandbits(1) else b"")


def some_headers(rng: Random, ids: Ids) -> bytes:
    block = pick(rng, BLOCKS if rng.randrange(20) else BAD_BLOCKS)
    stream_id = some_stream(rng, ids)
    end_stream = rng.getrandbits(1)
    shape = rng.randrange(8)
    if shape == 0:
        cut = rng.randrange(len(block) + 1)
        last = frame(9, 4, stream_id, block[cut:])
        return frame(1, end_stream, stream_id, block[:cut]) + last
    if shape == 1:
        return frame(1, end_stream | 4 | 0x20, stream_id, bytes(5) + block)
    return frame(1, end_stream | 4, stream_id, block)


def some_settings(rng: Random, _ids: Ids = ()) -> bytes:
    if rng.randrange(4) == 0:
        return frame(4, 1, 0, b"")
    pairs: list[tuple[int, int]] = []
    for _ in range(rng.randrange(4)):
        setting = 1 + rng.randrange(len(SETTINGS))
        value = pick(rng, SETTINGS[setting]) if rng.randrange(30) else rng.getrandbits(32)
        pairs.append((setting, value))
    return frame(4, 0, 0, b"".join(pack(">HI", *pair) for pair in pairs))


def some_window_update(rng: Random, ids: Ids) -> bytes:
    increment = pick(rng, (1, 5, 1000, 65_535, 65_535, 2**20))
    if rng.randrange(20) == 0:
        increment = pick(rng, (0, 2**31 - 1))
    stream_id = some_stream(rng, ids) if rng.getrandbits(1) else 0
    return frame(8, 0, stream_id, pack(">I", increment))


def some_goaway(rng: Random, _ids: Ids) -> bytes:
    last = pick(rng, (0, 1, 3, 2**31 - 1, 2**31 - 1))
    return frame(7, 0, 0, pack(">II", last, rng.randrange(16)) + noise(rng, rng.randrange(9)))


def some_other(rng: Random, ids: Ids) -> bytes:
    """PING, PRIORITY, or a frame of an unknown type."""
    match rng.randrange(8):
        case 0 | 1 | 2:
            return frame(6, rng.randrange(2), 0, pick(rng, (b"roundtrp", b"12345678")))
        case 3 | 4:
            return frame(2, 0, some_stream(rng, ids), bytes(5))
        case 5 | 6:
            return frame(10 + rng.randrange(246), rng.randrange(256), 0, noise(rng, 9))
        case _:
            return frame(rng.randrange(10), rng.randrange(256), pick(rng, (0, 1)), noise(rng, 8))


def some_reset(rng: Random, ids: Ids) -> bytes:
    return frame(3, 0, some_stream(rng, ids), pack(">I", rng.randrange(16)))


MAKERS: Final[tuple[Callable[[Random, Ids], bytes], ...]] = (
    *[some_answer] * 6,
    *[some_packed_stream] * 6,
    *[some_data] * 6,
    *[some_headers] * 3,
    *[some_window_update] * 3,
    some_settings,
    some_reset,
    some_goaway,
    *[some_other] * 2,
)


def mutate(rng: Random, data: bytes) -> bytes:
    """Change a frame at a random position."""
    at = rng.randrange(len(data))
    match rng.randrange(6):
        case 0:
            return data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]
        case 1:
            return data[:at]
        case 2:
            return data[:at] + noise(rng, 1 + rng.randrange(4)) + data[at:]
        case 3:
            return data[:at] + data[at + 1 :]
        case 4:
            return data * 2
        case _:
            return pack(">I", rng.randrange(2**24))[1:] + data[3:]


def some_bytes(rng: Random, ids: Ids) -> bytes:
    """The next bytes of the peer."""
    shape = rng.randrange(100)
    if shape == 0 and rng.getrandbits(1):
        return noise(rng, rng.randrange(60))
    data = pick(rng, MAKERS)(rng, ids)
    if shape == 1:
        return data * FLOOD if len(data) < 30 else data  # noqa: PLR2004 - short frames flood
    if shape < 8:  # noqa: PLR2004 - out of a hundred
        return mutate(rng, data)
    return data


# Our side


@dataclass(eq=False)
class Listener:
    """Listener of one stream, which acts at random inside its callbacks."""

    owner: "Connected"
    stream: ClientStream | ServerStream | None = None
    ends: int = 0

    def on_event(self, what: str, size: int = 0) -> None:
        assert not self.ends, f"{what} after on_end"
        self.owner.on_event(what, size)

    def on_head(self, head: ResponseBlock) -> None:
        if head.encoding in ENCODINGS and self.stream is not None:
            self.stream.keep_packed(pick(self.owner.rng, tuple(Unpacking)))
        self.on_event("head", len(head.metadata))

    def on_message(self, message: bytes) -> None:
        self.on_event("message", len(message))

    def on_writable(self) -> None:
        self.on_event("writable")

    def on_half_close(self) -> None:
        self.on_event("half_close")

    def on_end(self, end: StreamEnd) -> None:
        assert not self.ends, "on_end twice"
        self.ends += 1
        self.owner.on_event("end", end.status.code)


@dataclass(eq=False)
class Connected:
    """One input: a connection and its owner."""

    rng: Random
    listeners: list[Listener] = field(default_factory=list)
    digest: int = 0
    depth: int = 0
    now_s: float = 0.0
    received_bytes: int = 0
    sent_bytes: int = 0
    # Bytes that the owner has sent, which do not depend on the input.
    owned_bytes: int = 64 * 1024
    broken_by: ErrorCode | None = None
    last_output: bytes = b""
    # IDs of all streams so far.
    stream_ids: list[int] = field(default_factory=list)
    is_made: bool = False

    def __post_init__(self) -> None:
        self.limits = pick(self.rng, LIMITS)
        self.client: ClientConnection | None = None
        self.server: ServerConnection | None = None
        self.core: ClientConnection | ServerConnection
        # Actions for the next turn of the loop.
        self.scheduled: list[Callable[[], None]] = []
        turns = None
        if self.rng.getrandbits(1):
            turns = Turns(
                self.scheduled.append,
                cost_max=pick(self.rng, TURN_COSTS),
                frames_max=pick(self.rng, TURN_FRAMES),
            )
        if self.rng.getrandbits(1):
            self.core = self.client = ClientConnection(self, self.limits, self.clock, turns)
        else:
            self.core = self.server = ServerConnection(self, self.limits, self.clock, turns)
        self.is_made = True

    def ids(self) -> Ids:
        """The streams for the peer's frames: mostly those that are open."""
        return [*self.core.streams] * 3 + self.stream_ids[-2:]

    def clock(self) -> float:
        return self.now_s

    # Called by the connection

    def on_event(self, what: str, size: int = 0) -> None:
        self.digest = zlib.crc32(b"%s %d" % (what.encode(), size), self.digest)
        if self.depth < 3 and self.rng.randrange(12) == 0:  # noqa: PLR2004 - deep enough
            self.depth += 1
            self.act()
            self.depth -= 1

    def on_output(self) -> None:
        if self.is_made and self.rng.randrange(8) == 0:
            self.take_output()

    def on_settings(self) -> None:
        self.on_event("settings")

    def on_ping_ack(self, payload: bytes) -> None:
        self.on_event("ping_ack", len(payload))

    def on_goaway(self, code: int, text: str) -> None:
        self.on_event("goaway", code + len(text))

    def on_broken(self, error: RemoteProtocolError) -> None:
        """Only recorded: the owner does not close here, so that GOAWAY is the last frame."""
        assert self.broken_by is None, "on_broken twice"
        self.broken_by = error.code

    def on_drained(self) -> None:
        self.on_event("drained")

    def on_call(self, stream: ServerStream, request: RequestBlock) -> Listener:
        listener = Listener(self, stream)
        self.listeners.append(listener)
        self.stream_ids.append(stream.id)
        self.on_event("call", len(request.metadata))
        return listener

    # Actions of the owner

    def act(self) -> None:
        rng = self.rng
        if rng.randrange(3) == 0:
            self.act_on_connection()
        elif self.client is not None and (rng.randrange(3) == 0 or not self.listeners):
            self.open(self.client)
        elif self.listeners:
            self.act_on_stream(pick(rng, self.listeners))

    def take_turn(self) -> bool:
        """Take a turn of the loop; return whether there was work."""
        actions = self.scheduled.copy()
        self.scheduled.clear()
        for action in actions:
            action()
        return bool(actions)

    def act_on_connection(self) -> None:
        core = self.core
        match self.rng.randrange(44):
            case 40 | 41 | 42 | 43 if not self.depth:
                self.take_turn()
            case 0:
                core.close()
            case 1:
                core.lose(GONE)
            case 2 | 3:
                core.drain()
            case 4 | 5 | 6 | 7 | 8:
                core.outbound.pause()
            case 9 | 10 | 11 | 12 | 13 | 14 | 15:
                core.outbound.resume()
            case 16 | 17 | 18:
                core.ping(b"12345678")
            case _:
                self.take_output()

    def open(self, client: ClientConnection) -> None:
        listener = Listener(self)
        self.listeners.append(listener)
        self.owned_bytes += 2 * len(REQUEST)
        if self.rng.getrandbits(1):
            message = bytes(pick(self.rng, (0, 5, 70_000)))
            self.owned_bytes += len(message) * 2 + 100
            listener.stream = client.open_unary(REQUEST, listener, message)
        else:
            listener.stream = client.open(REQUEST, listener)
        if listener.stream.id:
            self.stream_ids.append(listener.stream.id)

    def act_on_stream(self, listener: Listener) -> None:
        stream = listener.stream
        if stream is None:  # Inside the call that opens it.
            return
        self.owned_bytes += 200
        match self.rng.randrange(8):
            case 0:
                stream.reset(ErrorCode.CANCEL, GONE)
            case 1 | 2:
                stream.hold()
            case 3:
                stream.release()
            case 4 if not stream.is_send_closed:
                self.finish_sending(stream)
            case _ if not stream.is_send_closed:
                message = bytes(pick(self.rng, (0, 5, 500, 20_000)))
                self.owned_bytes += len(message) * 2 + 100
                stream.send_message(message)
            case 5 | 6:
                stream.request_message()
            case _:
                stream.release()

    def finish_sending(self, stream: ClientStream | ServerStream) -> None:
        if isinstance(stream, ServerStream):
            stream.send_status(GONE)
        else:
            stream.close_sending()

    def take_output(self) -> None:
        output = self.core.outbound.take_output()
        self.sent_bytes += len(output)
        self.digest = zlib.crc32(output, self.digest)
        self.last_output = output or self.last_output

    # Actions of the peer

    def start_connection(self) -> None:
        """Receive settings, and a few calls."""
        calls = self.rng.randrange(5)
        if self.client is not None:
            for _ in range(calls):
                self.open(self.client)
            settings = some_settings(self.rng) if self.rng.randrange(3) == 0 else b""
            self.receive(frame(4, 0, 0, b"") + settings)
        else:
            settings_ack = frame(4, 1, 0, b"") if self.rng.randrange(4) else b""
            self.receive(PREFACE + frame(4, 0, 0, b"") + settings_ack)
            for _ in range(calls):
                self.request()

    def request(self) -> None:
        """A client's next call."""
        stream_id = self.stream_ids[-1] + 2 if self.stream_ids else 1
        end_stream = int(self.rng.randrange(4) == 0)
        request = REQUEST if self.rng.getrandbits(1) else pick(self.rng, PACKED_REQUESTS)
        self.receive(frame(1, 4 | end_stream, stream_id, request))

    def receive(self, data: bytes) -> None:
        for piece in self.cut(data):
            self.received_bytes += len(piece)
            try:
                self.core.receive(piece)
                while self.core.is_behind and not self.core.is_closed:
                    self.take_turn()
                    self.core.receive(b"")
            except RemoteProtocolError as error:
                self.check_broken(error)
                return

    def cut(self, data: bytes) -> Iterator[bytes]:
        if self.rng.randrange(4):
            yield data
            return
        while data:
            size = 1 + self.rng.randrange(len(data))
            yield data[:size]
            data = data[size:]

    # The rules

    def check_broken(self, error: RemoteProtocolError) -> None:
        assert self.broken_by is error.code, "raised, but on_broken was not called"
        assert self.core.is_closed, "raised, but not closed"
        self.take_output()
        last = last_frame(self.last_output.removeprefix(PREFACE))
        assert last[3] == GOAWAY, f"raised, but the last frame is {last[:9]!r}"
        assert unpack_from(">I", last, FRAME_HEADER_BYTES + 4)[0] == error.code
        self.take_turns()
        assert not self.core.streams, "closed, but streams are left"

    def run(self) -> None:
        self.start_connection()
        for _ in range(1 + self.rng.randrange(20)):
            while self.rng.randrange(3) == 0:
                self.act()
            self.now_s += self.rng.random()
            if self.server is not None and self.rng.randrange(6) == 0:
                self.request()
            self.receive(some_bytes(self.rng, self.ids()))
            if self.core.is_closed:
                break
            if self.rng.getrandbits(1):
                self.take_turn()
        while self.take_turn():
            pass
        self.check_sizes()
        self.core.lose(GONE)
        self.take_turns()
        self.check_over()

    def take_turns(self) -> None:
        """Take turns until nothing is left to do: many streams end in more than one."""
        while self.take_turn():
            pass

    def check_sizes(self) -> None:
        self.take_output()
        allowed = self.received_bytes * OUTPUT_PER_INPUT_BYTE + self.owned_bytes
        assert self.sent_bytes <= allowed, f"sent {self.sent_bytes} for {self.received_bytes}"

    def check_over(self) -> None:
        for listener in self.listeners:
            if listener.ends == 0 and listener.stream is not None:
                # It ended after messages that are held: on_end is called after those.
                self.read_rest(listener.stream)
            assert listener.ends == 1, f"a stream ended {listener.ends} times"
        assert self.core.held_bytes == 0, f"{self.core.held_bytes} bytes are held of no stream"
        assert self.core.is_closed
        assert not self.core.streams
        assert self.client is None or self.client.calls == 0
        self.core.receive(some_bytes(self.rng, (1, 3)))

    def read_rest(self, stream: ClientStream | ServerStream) -> None:
        """Read until the end of a stream, as its owner would."""
        self.depth = 3  # Listeners do not act any more.
        while stream.undelivered_end is not None:
            stream.release()
            stream.request_message()
            self.take_turns()

    def check_memory(self) -> None:
        """Check the size of the connection's objects. Slow, so not for every input."""
        held = held_bytes(self.core, leave_out=(self, *self.listeners))
        allowed = HELD_BYTES_MIN + self.received_bytes * HELD_PER_INPUT_BYTE + self.owned_bytes
        assert held <= allowed, f"holds {held} bytes after {self.received_bytes} received"


def last_frame(output: bytes) -> bytes:
    """The last of the frames in complete output."""
    at = start = 0
    while at < len(output):
        start = at
        at += FRAME_HEADER_BYTES + int.from_bytes(output[at : at + 3], "big")
    assert at == len(output), "output ends within a frame"
    return output[start:]


CODE: Final = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def held_bytes(root: object, leave_out: Sequence[object]) -> int:
    """The size of all reachable objects, without code and without `leave_out`."""
    seen = {id(each) for each in leave_out}
    queue: list[object] = [root]
    total = 0
    while queue:
        each = queue.pop()
        if id(each) not in seen and not isinstance(each, CODE):
            seen.add(id(each))
            total += sys.getsizeof(each)
            queue += gc.get_referents(each)
    return total


# Many inputs


@dataclass
class Findings:
    """Results of a range of inputs."""

    digest: int = 0
    # Ends of connections: the name of an error code, or "survived".
    ends: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: "Findings") -> None:
        self.digest ^= other.digest
        self.ends += other.ends
        self.failures += other.failures


def run_one(seed: int, index: int) -> Connected:
    """Run one input. Raises if a rule is violated."""
    connected = Connected(seeded_random(seed << 40 | index))
    connected.run()
    if index % MEASURED_EVERY == 0:
        connected.check_memory()
    return connected


def run_range(seed: int, start: int, stop: int) -> Findings:
    findings = Findings()
    for index in range(start, stop):
        try:
            connected = run_one(seed, index)
        except Exception as error:  # Any exception is a finding.
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            findings.failures.append(f"tools/fuzz_wire.py --seed {seed} --index {index}  # {text}")
        else:
            findings.digest ^= zlib.crc32(b"%d" % index, connected.digest)
            code = connected.broken_by
            findings.ends["survived" if code is None else code.name] += 1
    return findings


def run_all(seed: int, inputs: int, jobs: int) -> Findings:
    step = 2_000
    ranges = [(start, min(start + step, inputs)) for start in range(0, inputs, step)]
    total = Findings()
    done = 0
    # "spawn": a fork would copy locks of the caller's threads.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for findings in pool.map(run_range, *zip(*((seed, *each) for each in ranges), strict=True)):
            total.add(findings)
            done = min(done + step, inputs)
            print(f"\rfuzz: {done} of {inputs} inputs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return total


def reproduce(seed: int, index: int) -> int:
    """Run one input and print the error."""
    try:
        connected = run_one(seed, index)
    except Exception:  # It is printed.
        traceback.print_exc()
        return 1
    end = "survived" if connected.broken_by is None else connected.broken_by.name
    print(f"seed {seed} index {index}: {end}, digest {connected.digest:08x}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--index", type=int, help="run only this input and print the error")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if arguments.index is not None:
        return reproduce(arguments.seed, arguments.index)
    findings = run_all(arguments.seed, arguments.inputs, arguments.jobs)
    for end, count in findings.ends.most_common():
        print(f"{count:8} {end}")
    for failure in findings.failures[:20]:
        print(f"FAILED {failure}")
    print(
        f"fuzz: {arguments.inputs} inputs of seed {arguments.seed},"
        f" {len(findings.failures)} failures, digest {findings.digest:08x}"
    )
    return int(bool(findings.failures))


if __name__ == "__main__":
    sys.exit(main())
