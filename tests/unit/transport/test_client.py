"""Unit tests of proxyless.transport.client."""

import weakref
from collections.abc import Callable
from itertools import product

import pytest

from bench.transport_calls import UnaryCall
from proxyless.base import Status, StatusCode
from proxyless.transport import (
    ClientTls,
    ClientTransport,
    KeepaliveConfig,
    TransportOptions,
    client_context,
)
from proxyless.transport.client import REFUSAL_BACKOFF_S
from proxyless.wire import ErrorCode
from proxyless.wire import frames as kinds
from proxyless.wire.frames import STREAM_ID_MASK
from tests.certificates import CertificateAuthority, server_context, shake_hands
from tests.worlds.fake_sockets import BLOCK, ClientTransportWorld, is_over, turn
from tests.worlds.wire import answer, goaway, ping, rst_stream, settings, window_update

PING_PAYLOAD = b"keepaliv"


# Becoming ready


async def test_transport_is_ready_after_the_peers_settings() -> None:
    world = ClientTransportWorld(send_settings=False)
    world.transport.connection_made(world.socket)
    assert world.transport.settled is None
    world.peer_sends(settings())
    assert (await world.transport.wait_settled()).is_ok
    world.peer_sends(settings())
    assert world.transport.is_usable


@pytest.mark.parametrize(
    ("first_bytes", "text"),
    [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "peer answered 'HTTP/1.1 400 Bad Request': it speaks HTTP/1, wanted HTTP/2",
        ),
        (
            b"220 mail.example ESMTP\r\n",
            "peer does not speak HTTP/2: its first bytes are b'220 mail.example ESMTP'",
        ),
    ],
    ids=["HTTP/1", "other"],
)
async def test_transport_is_not_ready_when_the_peer_sends_something_else(
    first_bytes: bytes, text: str
) -> None:
    world = ClientTransportWorld(send_settings=False)
    world.transport.connection_made(world.socket)
    world.peer_sends(first_bytes)
    assert (await world.transport.wait_settled()).details == f"peer broke HTTP/2: {text}"
    assert world.socket.is_closed


async def test_transport_is_not_ready_when_the_connection_is_lost_before() -> None:
    world = ClientTransportWorld(send_settings=False)
    world.transport.connection_made(world.socket)
    world.socket.lose()
    await turn()
    assert (await world.transport.wait_settled()).details == "connection lost: closed by peer"


# The authority of a call (A81)


async def test_without_tls_a_call_may_have_any_authority() -> None:
    assert ClientTransportWorld().transport.refuse_authority("a.test") is None


async def test_with_tls_a_call_may_have_an_authority_of_the_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vouching = CertificateAuthority()
    peer, _ = shake_hands(
        client_context(ClientTls(root_certificates=vouching.certificate_pem)),
        server_context(*vouching.issue(["api.test", "a.test"])),
        "api.test",
    )
    world = ClientTransportWorld()
    requested: list[str] = []

    def get_extra_info(name: str) -> object:
        requested.append(name)
        return peer

    monkeypatch.setattr(world.socket, "get_extra_info", get_extra_info)
    for authority in ("a.test", "a.test", "a.test:443"):
        assert world.transport.refuse_authority(authority) is None
    text = "authority 'b.test:443': TLS: certificate has other names than 'b.test'"
    for _ in range(2):
        refused = world.transport.refuse_authority("b.test:443")
        assert refused == Status(StatusCode.UNAUTHENTICATED, text)
    assert world.transport.refuse_authority("a.test") is None
    # The certificate is read again only for another authority.
    assert requested == ["ssl_object"] * 4


async def test_authority_is_refused_if_one_of_several_connections_refuses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    oldest, other = ClientTransportWorld().transport, ClientTransportWorld().transport
    assert oldest.refuse_authority("a.test") is None
    refusal = Status(StatusCode.UNAUTHENTICATED, "other names")
    monkeypatch.setattr(
        ClientTransport, "compare_authority", lambda each, _: refusal if each is other else None
    )
    oldest.set_siblings((other,))
    assert oldest.refuse_authority("a.test") == refusal
    oldest.set_siblings(())
    assert oldest.refuse_authority("a.test") is None


# Refused calls


async def test_refused_call_is_sent_again_after_a_delay() -> None:
    world = ClientTransportWorld()
    calls = [UnaryCall(world.transport, BLOCK, b"x") for _ in range(2)]
    await turn()
    world.take_frames()
    world.peer_sends(rst_stream(3, ErrorCode.REFUSED_STREAM))
    assert is_over(calls[1])
    UnaryCall(world.transport, BLOCK, b"again")
    world.clock.advance(REFUSAL_BACKOFF_S - 0.001)
    await turn()
    assert world.take_frames().of(kinds.HEADERS) == []
    world.clock.advance(0.001)
    await turn()
    assert [frame.stream_id for frame in world.take_frames().of(kinds.HEADERS)] == [5]


async def test_a_lost_connection_leaves_no_timer_of_a_refusal() -> None:
    world = ClientTransportWorld()
    for _ in range(2):
        UnaryCall(world.transport, BLOCK, b"x")
    world.peer_sends(rst_stream(3, ErrorCode.REFUSED_STREAM))
    world.transport.connection_lost(None)
    assert not world.clock.advance_to_next()


# Becoming unusable

End = Callable[[ClientTransportWorld], None]
DROPPED = Status(StatusCode.UNAVAILABLE, "the test drops it")
ENDS: dict[str, tuple[End, str]] = {
    "goaway": (
        lambda world: world.peer_sends(goaway(STREAM_ID_MASK, 0, b"bye")),
        "peer is going away: NO_ERROR: bye",
    ),
    "broken": (
        lambda world: world.peer_sends(window_update(0, 0)),
        "peer broke HTTP/2: WINDOW_UPDATE by 0",
    ),
    "lost": (
        lambda world: world.transport.connection_lost(None),
        "connection lost: closed by peer",
    ),
    "close": (lambda world: world.transport.close(), "connection closed by us"),
    "drain": (lambda world: world.transport.drain(), "connection drained by us"),
    "abort": (lambda world: world.transport.abort(DROPPED), "the test drops it"),
}


@pytest.mark.parametrize(("first", "second"), list(product(ENDS, ENDS)))
async def test_on_unusable_is_called_once_with_the_first_reason(first: str, second: str) -> None:
    world = ClientTransportWorld()
    call = UnaryCall(world.transport, BLOCK, b"message")
    ENDS[first][0](world)
    assert not world.transport.is_usable
    late = UnaryCall(world.transport, BLOCK, b"message")
    assert late.end is not None
    assert late.end.is_unprocessed
    ENDS[second][0](world)
    if call.end is None:
        world.peer_sends(answer(1, b"reply"))
    assert call.end is not None
    await world.transport.wait_closed()
    world.expect_unusable(ENDS[first][1])
    assert world.transport.calls == 0


async def test_on_unusable_may_close_the_transport() -> None:
    world = ClientTransportWorld()
    call = UnaryCall(world.transport, BLOCK, b"message")
    world.transport.on_unusable = lambda _: world.transport.close()
    world.peer_sends(goaway(0, ErrorCode.NO_ERROR))
    assert call.end is not None
    await world.transport.wait_closed()


@pytest.mark.parametrize(
    ("code", "debug", "complains"),
    [
        (ErrorCode.ENHANCE_YOUR_CALM, b"too_many_pings", True),
        (ErrorCode.ENHANCE_YOUR_CALM, b"something else", False),
        (ErrorCode.NO_ERROR, b"too_many_pings", False),
    ],
)
async def test_has_pinged_too_often_is_set_before_on_unusable_is_called(
    code: int, debug: bytes, complains: bool
) -> None:
    world = ClientTransportWorld()
    known: list[bool] = []
    world.transport.on_unusable = lambda _: known.append(world.transport.has_pinged_too_often)
    world.peer_sends(goaway(0, code, debug))
    assert known == [complains]
    await turn()


@pytest.mark.spec("A94-03")
async def test_unusable_cause_is_the_first_one() -> None:
    world = ClientTransportWorld()
    causes = [world.transport.unusable_cause]
    world.peer_sends(goaway(0, ErrorCode.ENHANCE_YOUR_CALM, b"calm"))
    causes.append(world.transport.unusable_cause)
    world.transport.connection_lost(ConnectionResetError("reset"))
    causes.append(world.transport.unusable_cause)
    assert causes == [None, ErrorCode.ENHANCE_YOUR_CALM, ErrorCode.ENHANCE_YOUR_CALM]
    await turn()


async def test_unusable_cause_is_the_error_of_the_socket() -> None:
    world, error = ClientTransportWorld(), ConnectionResetError("reset")
    world.transport.connection_lost(error)
    assert world.transport.unusable_cause is error
    await turn()


def lose_as_a_loop_does(transport: ClientTransport) -> None:
    """The traceback of the error refers to this frame, which refers to the transport."""
    try:
        raise ConnectionResetError("reset")
    except OSError as error:
        transport.connection_lost(error)


@pytest.mark.parametrize("keepalive", [KeepaliveConfig(), KeepaliveConfig(time_s=30.0)])
async def test_lost_transport_is_freed_with_the_error_of_its_socket(
    keepalive: KeepaliveConfig,
) -> None:
    world = ClientTransportWorld(TransportOptions(keepalive=keepalive))
    freed = weakref.ref(world.transport)
    lose_as_a_loop_does(world.transport)
    await turn()
    del world
    assert freed() is None


async def test_a_connection_without_tls_is_not_encrypted() -> None:
    world = ClientTransportWorld()
    assert not world.transport.is_encrypted
    world.transport.close()
    await turn()


async def test_connection_closes_after_its_last_call_when_the_peer_goes_away() -> None:
    world = ClientTransportWorld()
    call = UnaryCall(world.transport, BLOCK, b"message")
    world.peer_sends(goaway(1))
    await turn()
    assert not world.socket.is_closed
    world.peer_sends(answer(1, b"reply"))
    assert call.message == b"reply"
    await world.transport.wait_closed()


async def test_on_unusable_is_called_when_stream_ids_are_exhausted() -> None:
    world = ClientTransportWorld()
    world.transport._wire._next_stream_id = STREAM_ID_MASK
    last = UnaryCall(world.transport, BLOCK, b"message")
    late = UnaryCall(world.transport, BLOCK, b"message")
    assert late.end is not None
    assert late.end.is_unprocessed
    assert len(world.unusable) == 1
    world.peer_sends(answer(STREAM_ID_MASK, b"reply"))
    assert last.message == b"reply"
    await world.transport.wait_closed()


# A peer that refuses calls


@pytest.mark.parametrize("refusals", [1, 2])
async def test_calls_wait_after_a_refusal_for_others_to_end_or_for_a_delay(refusals: int) -> None:
    world = ClientTransportWorld()
    for _ in range(4):
        UnaryCall(world.transport, BLOCK, b"message")
    await turn()
    for stream_id in (7, 5)[:refusals]:
        world.peer_sends(rst_stream(stream_id, ErrorCode.REFUSED_STREAM))
    world.take_frames()
    again = [UnaryCall(world.transport, BLOCK, b"message") for _ in range(3)]
    await turn()
    assert world.take_frames().frames == []
    world.peer_sends(answer(1, b"reply"))
    assert [frame.stream_id for frame in world.take_frames().of(kinds.HEADERS)] == [9]
    world.clock.advance(REFUSAL_BACKOFF_S)
    await turn()
    assert [frame.stream_id for frame in world.take_frames().of(kinds.HEADERS)] == [11, 13]
    assert not any(is_over(call) for call in again)
    world.transport.close()
    await turn()
    assert world.clock.timers_pending == 0


# Keepalive


def watchful(
    *, time_s: float = 10.0, timeout_s: float = 20.0, permit: bool = False, pings_max: int = 2
) -> TransportOptions:
    keepalive = KeepaliveConfig(
        time_s=time_s,
        timeout_s=timeout_s,
        permit_without_calls=permit,
        pings_without_data_max=pings_max,
    )
    return TransportOptions(keepalive=keepalive)


class KeepaliveWorld(ClientTransportWorld):
    """Counts PINGs per period."""

    def pings_after(self, seconds: float) -> int:
        self.clock.advance(seconds)
        sent = self.take_frames().of(kinds.PING)
        assert {frame.payload for frame in sent} <= {PING_PAYLOAD}
        return len(sent)

    def answer_ping(self) -> None:
        self.peer_sends(ping(PING_PAYLOAD, ack=True))


async def test_without_keepalive_no_timer_is_ever_started() -> None:
    world = ClientTransportWorld()
    UnaryCall(world.transport, BLOCK, b"message")
    assert world.clock.timers_pending == 0
    world.transport.close()
    await turn()


async def test_silent_peer_is_pinged_after_the_keepalive_time() -> None:
    world = KeepaliveWorld(watchful())
    UnaryCall(world.transport, BLOCK, b"message")
    world.take_frames()
    assert world.pings_after(9.9) == 0
    assert world.pings_after(0.1) == 1
    world.transport.close()
    await turn()


async def test_received_bytes_postpone_the_ping() -> None:
    world = KeepaliveWorld(watchful())
    UnaryCall(world.transport, BLOCK, b"message")
    world.take_frames()
    world.clock.advance(9)
    world.peer_sends(window_update(0, 1))
    assert world.pings_after(9.9) == 0
    assert world.pings_after(0.1) == 1
    world.transport.close()
    await turn()


@pytest.mark.parametrize("reply", [ping(PING_PAYLOAD, ack=True), window_update(0, 1)])
async def test_any_byte_answers_a_ping_and_pings_continue_at_the_interval(reply: bytes) -> None:
    world = KeepaliveWorld(watchful(pings_max=0))
    UnaryCall(world.transport, BLOCK, b"message")
    world.take_frames()
    assert world.pings_after(10) == 1
    for _ in range(5):
        world.peer_sends(reply)
        assert world.pings_after(9.9) == 0
        assert world.pings_after(0.1) == 1
    assert world.transport.is_usable
    world.transport.close()
    await turn()


async def test_connection_is_aborted_when_the_peer_does_not_answer_in_time() -> None:
    world = KeepaliveWorld(watchful())
    call = UnaryCall(world.transport, BLOCK, b"message")
    world.take_frames()
    assert world.pings_after(10) == 1
    assert world.pings_after(19.9) == 0
    assert not is_over(call)
    world.clock.advance(0.1)
    assert call.end is not None
    assert call.end.status == Status(
        StatusCode.UNAVAILABLE, "keepalive: peer silent for 20 s after a PING"
    )
    assert world.socket.is_aborted
    world.expect_unusable("keepalive: peer silent for 20 s after a PING")
    assert isinstance(world.transport.unusable_cause, TimeoutError)
    assert world.clock.timers_pending == 0
    await turn()


async def test_probe_calls_back_when_its_ping_is_answered() -> None:
    world = KeepaliveWorld(watchful(time_s=300))
    call = UnaryCall(world.transport, BLOCK, b"message")
    world.take_frames()
    answers: list[str] = []
    world.transport.probe(lambda: answers.append("a"))
    assert world.pings_after(0) == 1
    assert answers == []
    world.answer_ping()
    assert answers == ["a"]
    world.answer_ping()
    world.clock.advance(100)
    assert (answers, is_over(call)) == (["a"], False)
    world.transport.close()
    await turn()


async def test_probes_at_the_same_time_share_one_ping() -> None:
    world = KeepaliveWorld(watchful(time_s=300))
    UnaryCall(world.transport, BLOCK, b"message")
    world.take_frames()
    answers: list[str] = []
    world.transport.probe(lambda: answers.append("a"))
    world.transport.probe(lambda: answers.append("b"))
    assert world.pings_after(0) == 1
    world.answer_ping()
    assert answers == ["a", "b"]
    world.transport.probe(lambda: answers.append("c"))
    assert world.pings_after(0) == 1
    world.transport.close()
    await turn()


async def test_connection_is_aborted_when_a_probe_is_not_answered_in_time() -> None:
    world = KeepaliveWorld(watchful(time_s=300))
    call = UnaryCall(world.transport, BLOCK, b"message")
    world.clock.advance(100)
    world.take_frames()
    world.transport.probe(lambda: pytest.fail("there was no answer"))
    assert world.pings_after(19.9) == 1
    assert not is_over(call)
    world.clock.advance(0.1)
    world.expect_unusable("keepalive: peer silent for 20 s after a PING")
    assert world.clock.timers_pending == 0
    await turn()


async def test_idle_connection_is_pinged_only_if_permitted() -> None:
    quiet, eager = KeepaliveWorld(watchful()), KeepaliveWorld(watchful(permit=True))
    assert quiet.pings_after(1000) == 0
    assert eager.pings_after(10) == 1
    for world in (quiet, eager):
        world.transport.close()
    await turn()


async def test_call_on_a_connection_that_died_while_idle_fails() -> None:
    world = KeepaliveWorld(watchful())
    world.clock.advance(995)
    call = UnaryCall(world.transport, BLOCK, b"message")
    world.take_frames()
    assert world.pings_after(10) == 1
    world.clock.advance(20)
    assert call.end is not None
    await turn()


async def test_connection_without_data_pings_twice_and_then_once_a_minute() -> None:
    world = KeepaliveWorld(watchful(permit=True))
    for _ in range(2):
        assert world.pings_after(10) == 1
        world.answer_ping()
    for _ in range(3):
        assert world.pings_after(59.9) == 0
        assert world.pings_after(0.1) == 1
        world.answer_ping()
    world.transport.close()
    await turn()


async def test_data_restores_the_ping_interval() -> None:
    world = KeepaliveWorld(watchful(permit=True))
    for seconds in (10, 10, 60):
        assert world.pings_after(seconds) == 1
        world.answer_ping()
    assert world.pings_after(15) == 0
    call = UnaryCall(world.transport, BLOCK, b"message")
    world.take_frames()
    # The dead connection is detected despite the slow interval before.
    assert world.pings_after(10) == 1
    world.clock.advance(20)
    assert call.end is not None
    await turn()


@pytest.mark.parametrize("has_call", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("is_pinged", [False, True], ids=["quiet", "pinged"])
@pytest.mark.parametrize("end", ENDS)
async def test_no_timer_is_left_after_any_end_of_a_connection(
    end: str, is_pinged: bool, has_call: bool
) -> None:
    world = KeepaliveWorld(watchful(permit=True))
    if has_call:
        UnaryCall(world.transport, BLOCK, b"message")
    if is_pinged:
        world.clock.advance(10)
    ENDS[end][0](world)
    if world.transport.calls:  # GOAWAY and drain let the call finish.
        world.peer_sends(answer(1, b"reply"))
    await world.transport.wait_closed()
    assert world.clock.timers_pending == 0
    assert len(world.deadlines) == 0
