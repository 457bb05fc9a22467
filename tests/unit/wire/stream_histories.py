"""All histories of a real stream of either role, and the states that they may reach."""

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Final

from proxyless.base import Status, StatusCode
from proxyless.wire import (
    ClientStream,
    ErrorCode,
    RemoteProtocolError,
    ServerStream,
    UsageError,
    compress,
)
from proxyless.wire import frames as kinds
from proxyless.wire.stream_states import HalfState
from tests.worlds.wire import (
    HEAD,
    OK_TRAILERS,
    REQUEST,
    CallRecorder,
    HandlerRecorder,
    RawClient,
    RawPeer,
    RawServer,
    data,
    headers,
    prefixed,
    rst_stream,
    settings,
)

IDLE = HalfState.IDLE
IDLE_ENDING = HalfState.IDLE_ENDING
OPEN = HalfState.OPEN
ENDING = HalfState.ENDING
HALF_CLOSED = HalfState.HALF_CLOSED
UNDELIVERED = HalfState.UNDELIVERED
CLOSED = HalfState.CLOSED

SENDING = {
    (IDLE, OPEN),
    (IDLE, IDLE_ENDING),
    (IDLE, HALF_CLOSED),
    (IDLE, CLOSED),
    (IDLE_ENDING, ENDING),
    (IDLE_ENDING, CLOSED),
    (OPEN, ENDING),
    (OPEN, HALF_CLOSED),
    (OPEN, CLOSED),
    (ENDING, HALF_CLOSED),
    (ENDING, CLOSED),
    (HALF_CLOSED, CLOSED),
}
RECEIVING = {
    (IDLE, OPEN),
    (IDLE, CLOSED),
    (OPEN, HALF_CLOSED),
    (OPEN, UNDELIVERED),
    (OPEN, CLOSED),
    (HALF_CLOSED, CLOSED),
    (UNDELIVERED, UNDELIVERED),
    (UNDELIVERED, CLOSED),
}

# Pairs of sending and receiving, by the state of RFC 9113 section 5.1 and the role.
CLIENT_PAIRS = {
    "idle": {(IDLE, IDLE), (IDLE_ENDING, IDLE)},
    "open": {(OPEN, IDLE), (ENDING, IDLE), (OPEN, OPEN), (ENDING, OPEN)},
    "half-closed (local)": {(HALF_CLOSED, IDLE), (HALF_CLOSED, OPEN)},
    "closed": {(CLOSED, UNDELIVERED), (CLOSED, CLOSED)},
}
SERVER_PAIRS = {
    "open": {(IDLE, OPEN), (OPEN, OPEN), (ENDING, OPEN)},
    "half-closed (remote)": {(IDLE, HALF_CLOSED), (OPEN, HALF_CLOSED), (ENDING, HALF_CLOSED)},
    "closed": {(CLOSED, CLOSED)},
}

PACKED = prefixed(compress("gzip", b"message"), compressed=1)
GZIP = ("grpc-encoding", "gzip")
WINDOW = (kinds.INITIAL_WINDOW_SIZE, 65535)
NO_WINDOW = (kinds.INITIAL_WINDOW_SIZE, 0)
GONE = Status(StatusCode.UNAVAILABLE, "gone")


class Side:
    """One real stream, its peer, and what its listener was called with."""

    def __init__(self, peer: RawPeer, recorder: CallRecorder | HandlerRecorder) -> None:
        self.peer: Final = peer
        self.recorder: Final = recorder
        self.stream: Final = recorder.stream


def waiting_client() -> Side:
    """A client's stream over the peer's stream limit, without a window."""
    server = RawServer(announce=(NO_WINDOW, (kinds.MAX_CONCURRENT_STREAMS, 0)))
    return Side(server, server.call())


def requested_server() -> Side:
    """A server's stream whose request head is received, without a window."""
    client = RawClient()
    client.send(settings(NO_WINDOW), headers(1, [*REQUEST, GZIP]))
    return Side(client, client.owner.handlers[0])


def client_stream(side: Side) -> ClientStream:
    assert isinstance(side.stream, ClientStream)
    return side.stream


def server_stream(side: Side) -> ServerStream:
    assert isinstance(side.stream, ServerStream)
    return side.stream


Step = Callable[[Side], object]
STREAM_STEPS: dict[str, Step] = {
    "send message": lambda side: side.stream.send_message(b"message"),
    "hold": lambda side: side.stream.hold(),
    "release": lambda side: side.stream.release(),
    "reset": lambda side: side.stream.reset(ErrorCode.CANCEL, GONE),
    "peer sends message": lambda side: side.peer.send(data(1, PACKED)),
    "peer sends last message": lambda side: side.peer.send(data(1, PACKED, end=True)),
    "peer resets": lambda side: side.peer.send(rst_stream(1, ErrorCode.CANCEL)),
    "peer opens window": lambda side: side.peer.send(settings(WINDOW)),
    "connection is lost": lambda side: side.peer.core.lose(GONE),
}


CLIENT_STEPS: dict[str, Step] = STREAM_STEPS | {
    "send last message": lambda side: side.stream.send_message(b"last", end_stream=True),
    "close sending": lambda side: client_stream(side).close_sending(),
    "peer sends head": lambda side: side.peer.send(headers(1, [*HEAD, GZIP])),
    "peer sends trailers": lambda side: side.peer.send(headers(1, OK_TRAILERS, end=True)),
    "peer raises limit": lambda side: side.peer.send(settings((kinds.MAX_CONCURRENT_STREAMS, 9))),
}
SERVER_STEPS: dict[str, Step] = STREAM_STEPS | {
    "send head": lambda side: server_stream(side).send_head(),
    "send status": lambda side: server_stream(side).send_status(),
    "peer sends trailers": lambda side: side.peer.send(headers(1, [("k", "v")], end=True)),
}


def check_invariants(side: Side) -> None:
    """Check what each pair of states implies for the rest of the stream."""
    stream, core = side.stream, side.peer.core
    assert (stream.sending is CLOSED) is stream.receiving.is_closed is stream.is_ended
    assert (stream.id in core.streams) is not (stream.is_ended or stream.id == 0)
    assert side.recorder.count("end") == (stream.receiving is CLOSED)
    if stream.sending in {IDLE_ENDING, ENDING}:
        assert stream.queue is not None
    if stream.sending in {HALF_CLOSED, CLOSED}:
        assert stream.queue is None
    if stream.receiving is UNDELIVERED:
        assert stream.held_messages is not None


def key_of(side: Side) -> Hashable:
    """Everything that later steps depend on; histories with the same key are not distinguished."""
    stream = side.stream
    is_queued, is_held = stream.queue is not None, stream.held_messages is not None
    window = (stream.send_window > 0, side.peer.core.peer.initial_window_bytes > 0)
    return stream.sending, stream.receiving, is_queued, stream.is_held, is_held, window


def walk(create: Callable[[], Side], steps: Mapping[str, Step]) -> set[tuple[HalfState, HalfState]]:
    """Take every step in every situation; return the pairs of states reached."""
    histories: deque[tuple[Step, ...]] = deque([()])
    visited: set[Hashable] = set()
    pairs = set()
    while histories:
        history = histories.popleft()
        side = create()
        for step in history:
            with suppress(UsageError, RemoteProtocolError):
                step(side)
            check_invariants(side)
        pairs.add((side.stream.sending, side.stream.receiving))
        if (key := key_of(side)) not in visited:
            visited.add(key)
            histories += [(*history, step) for step in steps.values()]
    return pairs
