"""Comparison of our connections with those of `h2`.

One h2 connection is our peer; a second one, the shadow, has our role and reads the same bytes. Our
callbacks must agree with the shadow's events, the peer must accept what we send, and after each
step all three must agree about every window.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalResponseReceived,
    PingAckReceived,
    RemoteSettingsChanged,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hpack import Decoder, Encoder, HPACKError
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import StatusCode
from proxyless.wire import ErrorCode, Limits, RemoteProtocolError
from proxyless.wire import frames as kinds
from proxyless.wire.hpack import decode_fields, encode_fields
from proxyless.wire.status import end_of_reset
from tests.worlds.wire import (
    HEAD,
    OK_TRAILERS,
    REQUEST,
    CallRecorder,
    ClientSide,
    RawClient,
    RawServer,
    answer,
    block,
    data,
    frame,
    goaway,
    headers,
    ping,
    prefixed,
    rst_stream,
    window_update,
)
from tests.worlds.wire import settings as settings_frame

Pairs = list[tuple[bytes, bytes]]

LIMITS = Limits(
    stream_window_bytes=70_000, stream_window_bytes_max=200_000, connection_window_bytes=100_000
)
STREAMS = (1, 3, 5)


def new_h2(*, client_side: bool, **local_settings: int) -> H2Connection:
    config = H2Configuration(client_side=client_side, header_encoding=None)
    connection = H2Connection(config)
    for name, value in local_settings.items():
        connection.local_settings[SettingCodes[name]] = value
    connection.local_settings.acknowledge()
    connection.max_inbound_frame_size = connection.local_settings.max_frame_size
    return connection


def new_peer(*, client_side: bool, **local_settings: int) -> H2Connection:
    """An h2 connection as our peer, which has sent its settings."""
    peer = new_h2(client_side=client_side)
    peer.update_settings({SettingCodes[name]: value for name, value in local_settings.items()})
    peer.clear_outbound_data_buffer()
    return peer


@dataclass
class Chopper:
    """Splits bytes into pieces of sizes that Hypothesis draws, repeated in a cycle."""

    sizes: list[int]
    at: int = 0

    def pieces(self, whole: bytes) -> list[bytes]:
        pieces: list[bytes] = []
        while whole:
            size = self.sizes[self.at % len(self.sizes)]
            self.at += 1
            pieces.append(whole[:size])
            whole = whole[size:]
        return pieces


CHOPPERS = st.lists(st.integers(1, 200), min_size=1, max_size=8).map(Chopper)


# What a stream received, by our recorders and by h2's events


@dataclass
class StreamEvents:
    """The events that h2 reported for one stream."""

    head: Pairs | None = None
    informational: int = 0
    payload: bytes = b""
    trailers: Pairs | None = None
    is_ended: bool = False
    reset: int | None = None

    def messages(self) -> tuple[list[bytes], bytes]:
        """Complete messages, and what is left over."""
        found: list[bytes] = []
        rest = self.payload
        while len(rest) >= 5 and len(rest) >= 5 + int.from_bytes(rest[1:5], "big"):
            size = int.from_bytes(rest[1:5], "big")
            found.append(rest[5 : 5 + size])
            rest = rest[5 + size :]
        return found, rest


@dataclass
class Shadow:
    """The h2 connection that reads the same bytes as ours."""

    connection: H2Connection
    streams: dict[int, StreamEvents] = field(default_factory=dict)
    others: list[Event] = field(default_factory=list)

    def receive(self, received: bytes) -> None:
        for event in self.connection.receive_data(received):
            self.note(event)

    def note(self, event: Event) -> None:
        stream_id: int | None = getattr(event, "stream_id", None)
        if not stream_id:
            self.others.append(event)
            return
        events = self.streams.setdefault(stream_id, StreamEvents())
        match event:
            case ResponseReceived(headers=fields) | RequestReceived(headers=fields):
                events.head = plain(fields)
            case InformationalResponseReceived():
                events.informational += 1
            case DataReceived(data=payload):
                events.payload += payload or b""
            case TrailersReceived(headers=fields):
                events.trailers = plain(fields)
            case StreamEnded():
                events.is_ended = True
            case StreamReset(error_code=code):
                events.reset = int(code or 0)
            case _:
                pass

    def count(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in self.others)


def plain(fields: Any) -> Pairs:  # noqa: ANN401 - h2's own type is a union of tuples
    return [(bytes(name), bytes(value)) for name, value in fields]


# Actions of the peer

# Bytes, or a number of zeros, which is shorter when Hypothesis shows an example.
Payload = bytes | int
PAYLOADS = st.binary(max_size=30) | st.integers(0, 30_000)
Action = tuple[str, int, int, Payload]


def octets(payload: Payload) -> bytes:
    return payload if isinstance(payload, bytes) else bytes(payload)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "head",
                "head",
                "data",
                "data",
                "data",
                "cut",
                "end",
                "end_data",
                "informational",
                "reset",
                "ping",
                "settings",
                "window",
                "stream_window",
            ]
        ),
        st.sampled_from(STREAMS),
        st.integers(0, 255),
        PAYLOADS,
    ),
    max_size=25,
)


class Acting:
    """Performs drawn actions on an h2 connection, as far as they are legal there."""

    def __init__(self, peer: H2Connection) -> None:
        self.peer = peer
        self.headed: set[int] = set()
        self.ended: set[int] = set()
        self.unsent: dict[int, bytes] = {}

    def act(self, action: Action) -> bytes:
        kind, stream_id, number, drawn = action
        payload = octets(drawn)
        match kind:
            case "ping":
                self.peer.ping(payload[:8].ljust(8, b"."))
            case "window":
                self.peer.increment_flow_control_window(number * 100 + 1)
            case "settings":
                self.peer.update_settings(
                    {
                        SettingCodes.INITIAL_WINDOW_SIZE: number * 1000,
                        SettingCodes.MAX_CONCURRENT_STREAMS: number,
                        SettingCodes.MAX_FRAME_SIZE: 16_384 + number,
                    }
                )
            case _:
                if stream_id not in self.ended:
                    self.act_on_stream(kind, stream_id, number, payload)
        return self.peer.data_to_send()

    def act_on_stream(self, kind: str, stream_id: int, number: int, payload: bytes) -> None:
        is_headed = stream_id in self.headed
        match kind:
            case "stream_window" if is_headed or self.peer.config.client_side is False:
                self.peer.increment_flow_control_window(number + 1, stream_id)
            case "reset" if is_headed or self.peer.config.client_side is False:
                self.peer.reset_stream(stream_id, number % 14)
                self.ended.add(stream_id)
            case "data" if is_headed:
                self.send(stream_id, prefixed(payload), number, 1 << 30)
            case "cut" if is_headed:
                self.send(stream_id, prefixed(payload), number, number % 8)
            case _:
                self.send_block(kind, stream_id, payload, is_headed=is_headed)

    def send(self, stream_id: int, payload: bytes, number: int, size_max: int) -> None:
        """Send what is left of earlier messages and this one, as far as the windows admit."""
        payload = self.unsent.get(stream_id, b"") + payload
        window = self.peer.local_flow_control_window(stream_id)
        size = max(min(window, self.peer.max_outbound_frame_size, size_max + 256) - 256, 0)
        padding = number if number % 3 == 0 else None
        if size or window > 256:
            self.peer.send_data(stream_id, payload[:size], pad_length=padding)
        self.unsent[stream_id] = payload[size:]

    def send_block(self, kind: str, stream_id: int, payload: bytes, *, is_headed: bool) -> None:
        raise NotImplementedError


class ActingServer(Acting):
    """An h2 server that responds to our calls."""

    def send_block(self, kind: str, stream_id: int, payload: bytes, *, is_headed: bool) -> None:
        value = payload[:20].hex()
        match kind:
            case "informational" if not is_headed:
                self.peer.send_headers(stream_id, [(":status", "103"), ("k", value)])
            case "head" if not is_headed:
                self.peer.send_headers(stream_id, [*HEAD, ("k", value)])
                self.headed.add(stream_id)
            case "end" if is_headed:
                trailers = [("grpc-status", str(len(payload) % 3)), ("t", value)]
                self.peer.send_headers(stream_id, trailers, end_stream=True)
                self.ended.add(stream_id)
            case "end":
                fields = [*HEAD, ("grpc-status", "5"), ("t", value)]
                self.peer.send_headers(stream_id, fields, end_stream=True)
                self.ended.add(stream_id)
            case "end_data" if is_headed:
                self.peer.send_data(stream_id, b"", end_stream=True)
                self.ended.add(stream_id)


class ActingClient(Acting):
    """An h2 client that calls our server."""

    def send_block(self, kind: str, stream_id: int, payload: bytes, *, is_headed: bool) -> None:
        value = payload[:20].hex()
        match kind:
            case "head" if not is_headed and stream_id > max(self.headed, default=0):
                self.peer.send_headers(stream_id, [*REQUEST, ("k", value)])
                self.headed.add(stream_id)
            case "end" if is_headed:
                self.peer.send_headers(stream_id, [("t", value)], end_stream=True)
                self.ended.add(stream_id)
            case "end_data" if is_headed:
                self.peer.send_data(stream_id, b"", end_stream=True)
                self.ended.add(stream_id)


# Our client against an h2 server


class ClientTrio:
    """Our client, an h2 server, and an h2 client as the shadow of ours."""

    def __init__(self, chopper: Chopper) -> None:
        self.chopper = chopper
        self.ours = ClientSide(LIMITS)
        self.peer = new_peer(client_side=False)
        self.peer.initiate_connection()
        self.shadow = Shadow(self.new_shadow())
        self.server = ActingServer(self.peer)
        self.pass_on(self.peer.data_to_send())
        self.calls = {stream_id: self.ours.call(b"request") for stream_id in STREAMS}
        for stream_id in STREAMS:
            self.shadow.connection.send_headers(stream_id, REQUEST)
            self.shadow.connection.send_data(stream_id, prefixed(b"request"), end_stream=True)
        self.reply()

    def new_shadow(self) -> H2Connection:
        shadow = new_h2(
            client_side=True,
            HEADER_TABLE_SIZE=0,
            ENABLE_PUSH=0,
            INITIAL_WINDOW_SIZE=LIMITS.stream_window_bytes,
            MAX_FRAME_SIZE=LIMITS.frame_bytes_max,
        )
        shadow.initiate_connection()
        shadow.increment_flow_control_window(LIMITS.connection_window_bytes - 65_535)
        return shadow

    def pass_on(self, output: bytes) -> None:
        """Pass the server's bytes to us in pieces and to the shadow, and our reply back."""
        for piece in self.chopper.pieces(output):
            self.ours.core.receive(piece)
        self.shadow.receive(output)
        self.reply()

    def reply(self) -> None:
        output = self.ours.core.outbound.take_output()
        while output:
            self.peer.receive_data(output)
            output = self.peer.data_to_send()
            for piece in self.chopper.pieces(output):
                self.ours.core.receive(piece)
            self.shadow.receive(output)
            output = self.ours.core.outbound.take_output()

    def expect_same_windows(self) -> None:
        """What we may send, and what the server may send."""
        core = self.ours.core
        assert core.outbound.window == self.shadow.connection.outbound_flow_control_window
        assert core._recv_window == self.peer.outbound_flow_control_window  # noqa: SLF001
        for stream_id, stream in core.streams.items():
            shadow = self.shadow.connection.streams[stream_id]
            assert stream.send_window == shadow.outbound_flow_control_window
            peer = self.peer.streams[stream_id]
            assert stream.recv_window == peer.outbound_flow_control_window

    def expect_same_events(self) -> None:
        for stream_id, call in self.calls.items():
            expect_same_call(self.shadow.streams.get(stream_id, StreamEvents()), call)
        owner = self.ours.owner
        assert owner.count("settings") == self.shadow.count(RemoteSettingsChanged)
        assert self.ours.core.peer.initial_window_bytes == (
            self.shadow.connection.remote_settings.initial_window_size
        )
        assert self.ours.core.peer.concurrent_streams_max == min(
            self.shadow.connection.remote_settings.max_concurrent_streams, 2**31 - 1
        )


def expect_same_call(events: StreamEvents, call: CallRecorder) -> None:
    """Our callbacks for one call agree with the events of h2."""
    messages, rest = events.messages()
    assert call.messages == messages
    assert call.count("head") == (events.head is not None and not is_trailers_only(events))
    if call.count("head"):
        assert events.head is not None
        assert dict(call.head.metadata)["k"].encode() == dict(events.head)[b"k"]  # type: ignore[union-attr]
    if events.reset is not None:
        assert call.end == end_of_reset(events.reset)
    elif not events.is_ended:
        call.expect_open()
    elif events.trailers is None and not is_trailers_only(events):
        call.expect_end(StatusCode.INTERNAL)
    else:
        fields = dict(events.trailers or events.head or [])
        code = StatusCode(int(fields[b"grpc-status"]))
        if code is StatusCode.OK and rest:
            code = StatusCode.INTERNAL
        end = call.expect_end(code)
        assert ("t", fields[b"t"].decode()) in end.trailers


def is_trailers_only(events: StreamEvents) -> bool:
    return events.head is not None and b"grpc-status" in dict(events.head)


@given(ACTIONS, CHOPPERS)
def test_a_client_reports_what_h2_reports(actions: list[Action], chopper: Chopper) -> None:
    trio = ClientTrio(chopper)
    for action in actions:
        trio.pass_on(trio.server.act(action))
        trio.expect_same_windows()
    trio.expect_same_events()


def test_the_actions_cover_every_event() -> None:
    """Otherwise the comparison above would be trivial."""
    trio = ClientTrio(Chopper([7]))
    actions: list[Action] = [
        ("informational", 1, 0, b"x"),
        ("head", 1, 0, b"x"),
        ("data", 1, 3, b"message"),
        ("data", 1, 4, bytes(15_000)),
        ("ping", 1, 0, b"x"),
        ("settings", 1, 77, b"x"),
        ("window", 1, 9, b"x"),
        ("stream_window", 1, 9, b"x"),
        ("end", 1, 0, b"xyz"),
        ("head", 3, 0, b"x"),
        ("cut", 3, 7, b"xyz"),
        ("end_data", 3, 0, b""),
        ("reset", 5, 8, b""),
    ]
    for action in actions:
        output = trio.server.act(action)
        assert output, f"{action} does something"
        trio.pass_on(output)
    trio.expect_same_events()
    assert [call.end is not None for call in trio.calls.values()] == [True] * 3
    assert len(trio.calls[1].messages) == 2
    assert trio.shadow.streams[1].informational == 1


# Our server against an h2 client


class ServerTrio:
    """Our server, an h2 client, and an h2 server as the shadow of ours."""

    def __init__(self, chopper: Chopper) -> None:
        self.chopper = chopper
        self.ours = RawClient(LIMITS, handshake=False)
        self.peer = new_peer(client_side=True)
        self.peer.initiate_connection()
        self.shadow = Shadow(
            new_h2(
                client_side=False,
                HEADER_TABLE_SIZE=4096,
                INITIAL_WINDOW_SIZE=LIMITS.stream_window_bytes,
                MAX_FRAME_SIZE=LIMITS.frame_bytes_max,
            )
        )
        self.shadow.connection.initiate_connection()
        self.shadow.connection.increment_flow_control_window(
            LIMITS.connection_window_bytes - 65_535
        )
        self.client = ActingClient(self.peer)
        # The client's events.
        self.client_events = Shadow(self.peer)
        self.pass_on(self.peer.data_to_send())

    def pass_on(self, output: bytes) -> None:
        while output:
            for piece in self.chopper.pieces(output):
                self.ours.core.receive(piece)
            self.shadow.receive(output)
            output = self.reply()

    def reply(self) -> bytes:
        self.client_events.receive(self.ours.core.outbound.take_output())
        return self.peer.data_to_send()

    def expect_same_windows(self) -> None:
        core = self.ours.core
        assert core._recv_window == self.peer.outbound_flow_control_window  # noqa: SLF001
        for stream_id, stream in core.streams.items():
            peer = self.peer.streams[stream_id]
            assert stream.recv_window == peer.outbound_flow_control_window
            shadow = self.shadow.connection.streams[stream_id]
            assert stream.send_window == shadow.outbound_flow_control_window
        assert core.outbound.window == self.shadow.connection.outbound_flow_control_window

    def expect_same_events(self) -> None:
        handlers = {handler.stream.id: handler for handler in self.ours.owner.handlers}
        heads = {key: events for key, events in self.shadow.streams.items() if events.head}
        assert sorted(handlers) == sorted(heads)
        for stream_id, events in heads.items():
            handler = handlers[stream_id]
            messages, rest = events.messages()
            handler.expect_messages(*messages)
            fields = dict(events.head or [])
            assert ("k", fields[b"k"].decode()) in handler.request.metadata
            assert handler.request.path.encode() == fields[b":path"]
            if events.reset is not None:
                assert handler.end == end_of_reset(events.reset)
            elif events.is_ended and rest:
                handler.expect_end()
            else:
                handler.expect_open()
                assert handler.count("half_close") == events.is_ended


@given(ACTIONS, CHOPPERS)
def test_a_server_reports_what_h2_reports(actions: list[Action], chopper: Chopper) -> None:
    trio = ServerTrio(chopper)
    for action in actions:
        trio.pass_on(trio.client.act(action))
        trio.expect_same_windows()
    trio.expect_same_events()


@given(st.lists(st.lists(PAYLOADS, max_size=4), min_size=1, max_size=3), CHOPPERS)
def test_h2_reads_the_responses_of_our_server(
    replies: list[list[Payload]], chopper: Chopper
) -> None:
    trio = ServerTrio(chopper)
    for n, drawn in enumerate(replies):
        stream_id = 2 * n + 1
        messages = [octets(payload) for payload in drawn]
        trio.peer.send_headers(stream_id, REQUEST, end_stream=True)
        trio.pass_on(trio.peer.data_to_send())
        stream = trio.ours.owner.handlers[-1].stream
        for message in messages:
            stream.send_message(message)
        stream.send_status()
        exchange(trio)
        events = trio.client_events.streams[stream_id]
        assert events.messages() == (messages, b"")
        assert events.is_ended
        last = events.trailers if messages else events.head
        assert last is not None
        assert (b"grpc-status", b"0") in last


def exchange(trio: ServerTrio) -> None:
    """Pass bytes on until neither side has output, acknowledging what the client read."""
    acknowledged = 0
    while True:
        output = trio.reply()
        total = sum(len(events.payload) for events in trio.client_events.streams.values())
        if total > acknowledged:
            trio.peer.increment_flow_control_window(total - acknowledged)
            for stream_id, events in trio.client_events.streams.items():
                if not events.is_ended:
                    trio.peer.increment_flow_control_window(total - acknowledged, stream_id)
            acknowledged = total
            output += trio.peer.data_to_send()
        if not output:
            return
        for piece in trio.chopper.pieces(output):
            trio.ours.core.receive(piece)


# What we send


@given(
    st.lists(st.integers(0, 60_000), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 40_000), st.sampled_from([0, 1, 3])), max_size=30),
)
def test_h2_agrees_about_the_window_after_every_frame_we_send(
    sizes: list[int], grants: list[tuple[int, int]]
) -> None:
    ours = ClientSide()
    server = new_peer(client_side=False)
    server.initiate_connection()
    ours.core.receive(server.data_to_send())
    calls = [ours.call(), ours.call()]
    for n, size in enumerate(sizes):
        calls[n % 2].stream.send_message(bytes(size))
    shadow = Shadow(server)
    for grant, stream_id in [(1, 0), *grants, *[(70_000, n) for n in (0, 1, 3)] * 6]:
        shadow.receive(ours.core.outbound.take_output())
        server.increment_flow_control_window(grant, stream_id or None)
        ours.core.receive(server.data_to_send())
        shadow.receive(ours.core.outbound.take_output())
        inbound = server._inbound_flow_control_window_manager  # noqa: SLF001 - no public name
        assert ours.core.outbound.window == inbound.current_window_size
        for call in calls:
            peer = server.streams[call.stream.id]._inbound_window_manager  # noqa: SLF001
            assert call.stream.send_window == peer.current_window_size
    for n, call in enumerate(calls):
        assert call.stream.is_writable
        sent = [bytes(size) for size in sizes[n::2]]
        assert shadow.streams[call.stream.id].messages() == (sent, b"")


@pytest.mark.parametrize("table_bytes", [0, 100, 4096, 65_536])
def test_h2_servers_with_any_table_size_read_our_requests(table_bytes: int) -> None:
    ours = ClientSide()
    server = new_peer(client_side=False)
    server.update_settings({SettingCodes.HEADER_TABLE_SIZE: table_bytes})
    server.initiate_connection()
    shadow = Shadow(server)
    ours.core.receive(server.data_to_send())
    for stream_id in STREAMS:
        ours.call(b"x")
        shadow.receive(ours.core.outbound.take_output())
        ours.core.receive(server.data_to_send())
        assert shadow.streams[stream_id].is_ended


@pytest.mark.parametrize("table_bytes", [0, 100, 4096, 65_536])
def test_h2_clients_with_any_table_size_read_our_responses(table_bytes: int) -> None:
    trio = ServerTrio(Chopper([1000]))
    trio.peer.update_settings({SettingCodes.HEADER_TABLE_SIZE: table_bytes})
    trio.pass_on(trio.peer.data_to_send())
    for stream_id in STREAMS:
        trio.peer.send_headers(stream_id, REQUEST, end_stream=True)
        trio.pass_on(trio.peer.data_to_send())
        stream = trio.ours.owner.handlers[-1].stream
        stream.send_message(b"reply")
        stream.send_status()
        trio.pass_on(trio.reply())
        assert trio.client_events.streams[stream_id].messages() == ([b"reply"], b"")
        assert trio.client_events.streams[stream_id].is_ended


def test_h2_reads_our_pings_resets_and_goaway() -> None:
    ours = ClientSide()
    server = new_peer(client_side=False)
    server.initiate_connection()
    ours.core.receive(server.data_to_send())
    shadow = Shadow(server)
    call = ours.call(b"x")
    ours.core.ping(b"12345678")
    call.stream.cancel()
    shadow.receive(ours.core.outbound.take_output())
    assert shadow.streams[1].reset == ErrorCode.CANCEL
    ours.core.receive(server.data_to_send())
    assert ours.owner.values("ping_ack") == [b"12345678"]
    server.ping(b"87654321")
    ours.core.receive(server.data_to_send())
    ours.core.close(ErrorCode.ENHANCE_YOUR_CALM, "bye")
    shadow.receive(ours.core.outbound.take_output())
    assert shadow.count(PingAckReceived) == 1
    (last,) = (event for event in shadow.others if isinstance(event, ConnectionTerminated))
    assert (last.error_code, last.additional_data) == (ErrorCode.ENHANCE_YOUR_CALM, b"bye")


# Connection errors. Known differences are left out: h2 accepts RST_STREAM on idle streams and DATA
# after the end of a stream, and rejects every frame after GOAWAY.

BROKEN = [
    data(0, b"x"),
    data(9, b"x"),
    headers(1, HEAD) + frame(kinds.DATA, 8, 1, b"\x05abc"),
    headers(0, HEAD),
    headers(2, HEAD),
    headers(1, b"\xbe"),
    headers(1, b"\x00\x05name"),
    headers(1, b"\x04\x84\xff\xff\xff\xff"),
    answer(1) + headers(1, OK_TRAILERS, end=True),
    frame(kinds.HEADERS, 0, 1, block(HEAD)) + ping(),
    frame(kinds.HEADERS, 0, 1, block(HEAD)) + frame(kinds.CONTINUATION, 4, 3),
    frame(kinds.CONTINUATION, 4, 1, block(HEAD)),
    frame(kinds.HEADERS, 0, 1, b"\x20") + frame(kinds.CONTINUATION, 0, 1) * 100,
    rst_stream(0, 8),
    frame(kinds.RST_STREAM, 0, 1, bytes(3)),
    frame(kinds.SETTINGS, 0, 1),
    frame(kinds.SETTINGS, 0, 0, bytes(5)),
    frame(kinds.SETTINGS, 1, 0, bytes(6)),
    settings_frame((kinds.INITIAL_WINDOW_SIZE, 2**31)),
    settings_frame((kinds.MAX_FRAME_SIZE, 16_383)),
    settings_frame((kinds.ENABLE_PUSH, 2)),
    frame(kinds.PUSH_PROMISE, 4, 1, bytes(4) + block(REQUEST)),
    frame(kinds.PING, 0, 1, bytes(8)),
    frame(kinds.PING, 0, 0, bytes(7)),
    frame(kinds.GOAWAY, 0, 1, bytes(8)),
    frame(kinds.GOAWAY, 0, 0, bytes(7)),
    window_update(0, 0),
    window_update(0, 2**31 - 1),
    window_update(9, 1),
    frame(kinds.WINDOW_UPDATE, 0, 0, bytes(3)),
    frame(kinds.PRIORITY, 0, 0, bytes(5)),
    frame(kinds.DATA, 0, 1, bytes(300_000)),
]


@pytest.mark.parametrize("bad", BROKEN)
def test_connection_errors_are_those_of_h2(bad: bytes) -> None:
    server = RawServer()
    server.opened(2)
    with pytest.raises(RemoteProtocolError):
        server.send(bad)
    with pytest.raises(ProtocolError):
        h2_with_two_calls().receive_data(bad)


FINE = [
    answer(1, b"a"),
    headers(1, [(":status", "103")]) + answer(1),
    goaway(3) + goaway(1),
    ping() + ping(ack=True),
    frame(0x77, 0xFF, 1, b"unknown") + frame(0x77, 0, 0),
    frame(kinds.PRIORITY, 0, 1, bytes(4) + b"\x05"),
    frame(kinds.PRIORITY, 0, 99, bytes(5)),
    settings_frame((0x99, 5), (kinds.MAX_HEADER_LIST_SIZE, 5)),
    answer(1) + window_update(1, 5) + rst_stream(1, 8),
    rst_stream(1, 0xFFFF),
    window_update(1, 2**31 - 1 - 65_535),
    headers(1, HEAD) + data(1, b"") * 5,
]


@pytest.mark.parametrize("fine", FINE)
def test_valid_frames_are_valid_for_h2(fine: bytes) -> None:
    server = RawServer()
    server.opened(2)
    server.send(fine)
    h2_with_two_calls().receive_data(fine)


def h2_with_two_calls() -> H2Connection:
    """An h2 client that has exchanged the same frames as our client."""
    client = new_h2(client_side=True, HEADER_TABLE_SIZE=0, ENABLE_PUSH=0)
    client.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = 2**20
    client.local_settings[SettingCodes.MAX_FRAME_SIZE] = 256 * 1024
    client.initiate_connection()
    client.receive_data(settings_frame() + frame(kinds.SETTINGS, 1))
    for stream_id in (1, 3):
        client.send_headers(stream_id, REQUEST)
        client.send_data(stream_id, prefixed(b"request"), end_stream=True)
    client.clear_outbound_data_buffer()
    return client


# Header compression

FIELDS = st.lists(
    st.tuples(
        st.sampled_from([b":path", b":status", b"te", b"grpc-status", b"cookie", b"x-any"])
        | st.binary(min_size=1, max_size=20),
        st.sampled_from([b"/", b"200", b"trailers", b"0", b""]) | st.binary(max_size=60),
    ),
    max_size=6,
)


@given(st.lists(FIELDS, max_size=5), st.booleans())
def test_a_sequence_of_blocks_is_decoded_as_by_hpack(lists: list[Pairs], huffman: bool) -> None:
    encoder, decoder = Encoder(), Decoder()
    encoder.header_table_size = 0
    for fields in lists:
        theirs = encoder.encode(fields, huffman=huffman)
        assert decode_fields(theirs, 16_384) == plain(decoder.decode(theirs, raw=True)) == fields
        ours = encode_fields(fields)
        assert plain(decoder.decode(ours, raw=True)) == decode_fields(ours, 16_384) == fields


@given(st.binary(max_size=40))
def test_bytes_that_hpack_rejects_are_rejected(encoded: bytes) -> None:
    decoder = Decoder(max_header_list_size=16_384)
    decoder.max_allowed_table_size = decoder.header_table_size = 0
    assert outcome(lambda: decode_fields(encoded, 16_384)) == outcome(
        lambda: plain(decoder.decode(encoded, raw=True))
    )


def outcome(decode: Callable[[], Pairs]) -> Pairs | str:
    try:
        return decode()
    except (RemoteProtocolError, HPACKError):
        return "rejected"
