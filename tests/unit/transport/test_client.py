"""Unit tests of proxyless.transport.client."""

from collections.abc import Callable
from itertools import product

import pytest

from bench.transport_calls import UnaryCall
from proxyless.base import Status, StatusCode
from proxyless.transport import ClientTls, KeepaliveConfig, TransportOptions, client_context
from proxyless.transport.client import REFUSAL_REMEMBERED_S
from proxyless.wire import ErrorCode
from proxyless.wire import frames as kinds
from proxyless.wire.frames import STREAM_ID_MASK
from tests.certificates import CertificateAuthority, server_context, shake_hands
from tests.unit.transport.world import BLOCK, ClientWorld, is_over, turn
from tests.wire_world import answer, goaway, ping, rst_stream, settings, window_update

PING_PAYLOAD = b"keepaliv"


# Becoming ready


async def test_it_is_ready_when_the_peers_settings_are_here() -> None:
    world = ClientWorld(greet=False)
    world.transport.connection_made(world.socket)
    assert not world.transport.ready.done()
    world.say(settings())
    assert world.transport.ready.result().is_ok
    world.say(settings())
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
async def test_it_is_refused_if_the_peer_says_something_else(first_bytes: bytes, text: str) -> None:
    world = ClientWorld(greet=False)
    world.transport.connection_made(world.socket)
    world.say(first_bytes)
    assert world.transport.ready.result().details == f"peer broke HTTP/2: {text}"
    assert world.socket.is_closed


async def test_it_is_refused_if_the_connection_is_lost_before() -> None:
    world = ClientWorld(greet=False)
    world.transport.connection_made(world.socket)
    world.socket.lose()
    await turn()
    assert world.transport.ready.result().details == "connection lost: closed by peer"


# The authority of a call (A81)


async def test_without_tls_a_call_may_have_any_authority() -> None:
    assert ClientWorld().transport.refuse_authority("a.test") is None


async def test_with_tls_one_that_the_certificate_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    vouching = CertificateAuthority()
    peer, _ = shake_hands(
        client_context(ClientTls(root_certificates=vouching.certificate_pem)),
        server_context(*vouching.issue(["api.test", "a.test"])),
        "api.test",
    )
    world = ClientWorld()
    asked: list[str] = []

    def tell(name: str) -> object:
        asked.append(name)
        return peer

    monkeypatch.setattr(world.socket, "get_extra_info", tell)
    for authority in ("a.test", "a.test", "a.test:443"):
        assert world.transport.refuse_authority(authority) is None
    text = "authority 'b.test:443': TLS: certificate has other names than 'b.test'"
    for _ in range(2):
        refused = world.transport.refuse_authority("b.test:443")
        assert refused == Status(StatusCode.UNAUTHENTICATED, text)
    assert world.transport.refuse_authority("a.test") is None
    # A certificate is read again for another authority only.
    assert asked == ["ssl_object"] * 4


# Refused calls


async def test_a_refused_call_is_sent_again_after_a_while() -> None:
    world = ClientWorld()
    calls = [UnaryCall(world.transport, BLOCK, b"x") for _ in range(2)]
    await turn()
    world.hear()
    world.say(rst_stream(3, ErrorCode.REFUSED_STREAM))
    assert is_over(calls[1])
    UnaryCall(world.transport, BLOCK, b"again")
    world.clock.advance(REFUSAL_REMEMBERED_S - 0.001)
    await turn()
    assert world.hear().of(kinds.HEADERS) == []
    world.clock.advance(0.001)
    await turn()
    assert [frame.stream_id for frame in world.hear().of(kinds.HEADERS)] == [5]


async def test_a_lost_connection_leaves_no_timer_of_a_refusal() -> None:
    world = ClientWorld()
    for _ in range(2):
        UnaryCall(world.transport, BLOCK, b"x")
    world.say(rst_stream(3, ErrorCode.REFUSED_STREAM))
    world.transport.connection_lost(None)
    assert not world.clock.advance_to_next()


# Becoming unusable

End = Callable[[ClientWorld], None]
DROPPED = Status(StatusCode.UNAVAILABLE, "the test drops it")
ENDS: dict[str, tuple[End, str]] = {
    "goaway": (
        lambda world: world.say(goaway(STREAM_ID_MASK, 0, b"bye")),
        "peer is going away: NO_ERROR: bye",
    ),
    "broken": (
        lambda world: world.say(window_update(0, 0)),
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
async def test_the_owner_is_told_once_and_of_the_first_reason(first: str, second: str) -> None:
    world = ClientWorld()
    call = UnaryCall(world.transport, BLOCK, b"message")
    ENDS[first][0](world)
    assert not world.transport.is_usable
    late = UnaryCall(world.transport, BLOCK, b"message")
    assert late.end is not None
    assert late.end.is_unprocessed
    ENDS[second][0](world)
    if call.end is None:
        world.say(answer(1, b"reply"))
    assert call.end is not None
    await world.transport.wait_closed()
    world.expect_unusable(ENDS[first][1])
    assert world.transport.calls == 0


async def test_an_owner_may_close_inside_the_notice() -> None:
    world = ClientWorld()
    call = UnaryCall(world.transport, BLOCK, b"message")
    world.transport._on_unusable = lambda _: world.transport.close()
    world.say(goaway(0, ErrorCode.NO_ERROR))
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
async def test_a_complaint_about_pings_is_known_before_the_owner_is_told(
    code: int, debug: bytes, complains: bool
) -> None:
    world = ClientWorld()
    known: list[bool] = []
    world.transport._on_unusable = lambda _: known.append(world.transport.has_pinged_too_often)
    world.say(goaway(0, code, debug))
    assert known == [complains]
    await turn()


async def test_a_connection_that_goes_away_closes_after_its_last_call() -> None:
    world = ClientWorld()
    call = UnaryCall(world.transport, BLOCK, b"message")
    world.say(goaway(1))
    await turn()
    assert not world.socket.is_closed
    world.say(answer(1, b"reply"))
    assert call.message == b"reply"
    await world.transport.wait_closed()


async def test_a_connection_without_stream_ids_tells_its_owner() -> None:
    world = ClientWorld()
    world.transport._wire._next_stream_id = STREAM_ID_MASK
    last = UnaryCall(world.transport, BLOCK, b"message")
    late = UnaryCall(world.transport, BLOCK, b"message")
    assert late.end is not None
    assert late.end.is_unprocessed
    assert len(world.unusable) == 1
    world.say(answer(STREAM_ID_MASK, b"reply"))
    assert last.message == b"reply"
    await world.transport.wait_closed()


# A peer that refuses calls


@pytest.mark.parametrize("refusals", [1, 2])
async def test_after_a_refusal_calls_wait_for_others_to_end_or_for_a_moment(refusals: int) -> None:
    world = ClientWorld()
    for _ in range(4):
        UnaryCall(world.transport, BLOCK, b"message")
    await turn()
    for stream_id in (7, 5)[:refusals]:
        world.say(rst_stream(stream_id, ErrorCode.REFUSED_STREAM))
    world.hear()
    again = [UnaryCall(world.transport, BLOCK, b"message") for _ in range(3)]
    await turn()
    assert world.hear().frames == []
    world.say(answer(1, b"reply"))
    assert [frame.stream_id for frame in world.hear().of(kinds.HEADERS)] == [9]
    world.clock.advance(REFUSAL_REMEMBERED_S)
    await turn()
    assert [frame.stream_id for frame in world.hear().of(kinds.HEADERS)] == [11, 13]
    assert not any(is_over(call) for call in again)
    world.transport.close()
    await turn()
    assert world.clock.timers_pending == 0


# Deadlines


async def test_a_deadline_is_called_back_at_its_time() -> None:
    world = ClientWorld()
    fired: list[float] = []
    world.transport.expire_later(5.0, lambda: fired.append(world.clock.now_s()))
    world.clock.advance(4.999)
    assert fired == []
    world.clock.advance(10)
    assert fired == [105.0]
    world.transport.close()
    await turn()


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


class KeepaliveWorld(ClientWorld):
    """Counts the PINGs of each stretch of time."""

    def pings_after(self, seconds: float) -> int:
        self.clock.advance(seconds)
        sent = self.hear().of(kinds.PING)
        assert {frame.payload for frame in sent} <= {PING_PAYLOAD}
        return len(sent)

    def answer_ping(self) -> None:
        self.say(ping(PING_PAYLOAD, ack=True))


async def test_without_keepalive_no_timer_is_ever_started() -> None:
    world = ClientWorld()
    UnaryCall(world.transport, BLOCK, b"message")
    assert world.clock.timers_pending == 0
    world.transport.close()
    await turn()


async def test_a_silent_peer_is_asked_after_the_time() -> None:
    world = KeepaliveWorld(watchful())
    UnaryCall(world.transport, BLOCK, b"message")
    world.hear()
    assert world.pings_after(9.9) == 0
    assert world.pings_after(0.1) == 1
    world.transport.close()
    await turn()


async def test_whatever_is_heard_puts_the_question_off() -> None:
    world = KeepaliveWorld(watchful())
    UnaryCall(world.transport, BLOCK, b"message")
    world.hear()
    world.clock.advance(9)
    world.say(window_update(0, 1))
    assert world.pings_after(9.9) == 0
    assert world.pings_after(0.1) == 1
    world.transport.close()
    await turn()


@pytest.mark.parametrize("reply", [ping(PING_PAYLOAD, ack=True), window_update(0, 1)])
async def test_any_byte_answers_and_questions_go_on_at_the_interval(reply: bytes) -> None:
    world = KeepaliveWorld(watchful(pings_max=0))
    UnaryCall(world.transport, BLOCK, b"message")
    world.hear()
    assert world.pings_after(10) == 1
    for _ in range(5):
        world.say(reply)
        assert world.pings_after(9.9) == 0
        assert world.pings_after(0.1) == 1
    assert world.transport.is_usable
    world.transport.close()
    await turn()


async def test_a_peer_that_does_not_answer_in_time_is_given_up() -> None:
    world = KeepaliveWorld(watchful())
    call = UnaryCall(world.transport, BLOCK, b"message")
    world.hear()
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
    assert world.clock.timers_pending == 0
    await turn()


async def test_an_idle_connection_is_asked_only_with_permission() -> None:
    quiet, eager = KeepaliveWorld(watchful()), KeepaliveWorld(watchful(permit=True))
    assert quiet.pings_after(1000) == 0
    assert eager.pings_after(10) == 1
    for world in (quiet, eager):
        world.transport.close()
    await turn()


async def test_a_call_on_a_connection_that_died_while_idle_finds_out() -> None:
    world = KeepaliveWorld(watchful())
    world.clock.advance(995)
    call = UnaryCall(world.transport, BLOCK, b"message")
    world.hear()
    assert world.pings_after(10) == 1
    world.clock.advance(20)
    assert call.end is not None
    await turn()


async def test_without_data_it_asks_twice_and_then_once_a_minute() -> None:
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


async def test_data_gives_a_slowed_connection_back_its_speed() -> None:
    world = KeepaliveWorld(watchful(permit=True))
    for seconds in (10, 10, 60):
        assert world.pings_after(seconds) == 1
        world.answer_ping()
    assert world.pings_after(15) == 0
    call = UnaryCall(world.transport, BLOCK, b"message")
    world.hear()
    # The connection was dead, and the slow interval does not hide that.
    assert world.pings_after(10) == 1
    world.clock.advance(20)
    assert call.end is not None
    await turn()


@pytest.mark.parametrize("has_call", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("is_pinged", [False, True], ids=["quiet", "pinged"])
@pytest.mark.parametrize("end", ENDS)
async def test_however_a_connection_ends_no_timer_stays(
    end: str, is_pinged: bool, has_call: bool
) -> None:
    world = KeepaliveWorld(watchful(permit=True))
    if has_call:
        UnaryCall(world.transport, BLOCK, b"message")
    if is_pinged:
        world.clock.advance(10)
    ENDS[end][0](world)
    if world.transport.calls:  # Going away and draining let it finish.
        world.say(answer(1, b"reply"))
    await world.transport.wait_closed()
    assert world.clock.timers_pending == 0
    assert len(world.deadlines) == 0
