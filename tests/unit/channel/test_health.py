"""Unit tests of proxyless.channel.health; see also spec/test_a17.py."""

from itertools import product

import pytest
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import OK, IpAddress, State, Status, StatusCode
from proxyless.channel.health import (
    ASKED_AT_ONCE_MAX,
    ASKED_AT_ONCE_S,
    Answered,
    Ask,
    Disconnected,
    Effect,
    Ended,
    Event,
    Health,
    HealthBackoffOver,
    HealthConnected,
    Phase,
    ServingStatus,
    Stop,
    Wait,
    decode_answer,
    encode_question,
)
from proxyless.runtime import seeded_random

ADDRESS = IpAddress("10.0.0.1", 80)
SERVING, NOT_SERVING = Answered(1), Answered(2)
LOST = Disconnected(State.IDLE, OK)
BROKEN = Ended(Status(StatusCode.INTERNAL, "broken\nand two lines"), 0.0)
UNIMPLEMENTED = Ended(Status(StatusCode.UNIMPLEMENTED, "what?"), 0.0)

INT32 = st.integers(-(2**31), 2**31 - 1)


# ---------------------------------------------------------------------------------------------
# On the wire


@given(st.text())
def test_a_question_is_what_protobuf_makes_of_it(service: str) -> None:
    data = encode_question(service)
    assert data == health_pb2.HealthCheckRequest(service=service).SerializeToString()


def test_a_name_that_is_no_text_is_asked_for_all_the_same() -> None:
    request = health_pb2.HealthCheckRequest.FromString(encode_question("a\ud800"))
    assert request.service == "a?"


@given(INT32, st.binary(max_size=200), st.integers(0, 2**64 - 1))
def test_an_answer_is_read_whatever_else_is_in_it(status: int, text: bytes, number: int) -> None:
    # Another message of the service, with fields that an answer does not have.
    others = [
        _field(2, 2, _varint(len(text)) + text),
        _field(3, 0, _varint(number)),
        _field(4, 1, bytes(8)),
        _field(200, 5, bytes(4)),
    ]
    answer = health_pb2.HealthCheckResponse(status=status).SerializeToString()
    for at in range(len(others) + 1):
        data = b"".join([*others[:at], answer, *others[at:]])
        assert decode_answer(data) == status % 2**32


@given(st.binary(max_size=24))
def test_what_is_no_message_is_no_answer(data: bytes) -> None:
    read = decode_answer(data)
    try:
        status = health_pb2.HealthCheckResponse.FromString(data).status
    except DecodeError:
        # Protobuf refuses more: fields without a number.
        return
    # And reads more: groups, which proto3 cannot even declare.
    assert read in {status % 2**32, None}


@pytest.mark.parametrize(
    "data",
    [b"\x08", b"\x08\x80", b"\x08" + b"\x80" * 10 + b"\x01", b"\x12\x05four", b"\x09\0", b"\x0b"],
)
def test_what_ends_too_early_is_no_answer(data: bytes) -> None:
    assert decode_answer(data) is None


def test_the_last_of_several_counts_and_nothing_is_unknown() -> None:
    assert decode_answer(b"\x08\x02\x08\x01") == 1
    assert decode_answer(b"") == ServingStatus.UNKNOWN.value


def test_an_answer_may_grow_but_not_without_a_limit() -> None:
    """Each field costs a step, and a peer could write two million of them."""
    field = _field(2, 0, _varint(0))
    serving = b"\x08\x01"
    assert decode_answer(serving + field * 511) == ServingStatus.SERVING.value
    assert decode_answer(serving + field * 512) is None


def test_the_statuses_are_those_of_the_protocol() -> None:
    known = health_pb2.HealthCheckResponse.ServingStatus.items()
    assert dict(known) == {each.name: each.value for each in ServingStatus}


def _field(number: int, kind: int, payload: bytes) -> bytes:
    return _varint(number << 3 | kind) + payload


def _varint(number: int) -> bytes:
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


# ---------------------------------------------------------------------------------------------
# The decision


def health(service: str = "shop") -> Health:
    return Health(ADDRESS, service, seeded_random(1))


# How each phase is reached.
WAYS: dict[Phase, list[Event]] = {
    Phase.NOTHING: [],
    Phase.ASKING: [HealthConnected()],
    Phase.TOLD: [HealthConnected(), SERVING],
    Phase.WAITING: [HealthConnected(), BROKEN],
    Phase.UNCHECKED: [HealthConnected(), UNIMPLEMENTED],
}
EVENTS: dict[str, Event] = {
    "connected": HealthConnected(),
    "lost": LOST,
    "serving": SERVING,
    "not serving": NOT_SERVING,
    "unreadable": Answered(None),
    "unimplemented": UNIMPLEMENTED,
    "ended": BROKEN,
    "backoff over": HealthBackoffOver(),
}
# Where an event leads and what it asks for; all others change nothing.
STEPS: dict[tuple[Phase, str], tuple[Phase, State, type[Effect] | None]] = {
    (Phase.NOTHING, "connected"): (Phase.ASKING, State.CONNECTING, Ask),
    (Phase.NOTHING, "lost"): (Phase.NOTHING, State.IDLE, None),
    (Phase.ASKING, "lost"): (Phase.NOTHING, State.IDLE, Stop),
    (Phase.ASKING, "serving"): (Phase.TOLD, State.READY, None),
    (Phase.ASKING, "not serving"): (Phase.TOLD, State.TRANSIENT_FAILURE, None),
    (Phase.ASKING, "unreadable"): (Phase.WAITING, State.TRANSIENT_FAILURE, Wait),
    (Phase.ASKING, "unimplemented"): (Phase.UNCHECKED, State.READY, None),
    (Phase.ASKING, "ended"): (Phase.WAITING, State.TRANSIENT_FAILURE, Wait),
    (Phase.TOLD, "lost"): (Phase.NOTHING, State.IDLE, Stop),
    (Phase.TOLD, "serving"): (Phase.TOLD, State.READY, None),
    (Phase.TOLD, "not serving"): (Phase.TOLD, State.TRANSIENT_FAILURE, None),
    (Phase.TOLD, "unreadable"): (Phase.WAITING, State.TRANSIENT_FAILURE, Wait),
    (Phase.TOLD, "unimplemented"): (Phase.UNCHECKED, State.READY, None),
    (Phase.TOLD, "ended"): (Phase.ASKING, State.CONNECTING, Ask),
    (Phase.WAITING, "lost"): (Phase.NOTHING, State.IDLE, Stop),
    (Phase.WAITING, "backoff over"): (Phase.ASKING, State.CONNECTING, Ask),
    (Phase.UNCHECKED, "lost"): (Phase.NOTHING, State.IDLE, None),
}


@pytest.mark.parametrize(("phase", "event"), list(product(Phase, EVENTS)))
def test_every_phase_meets_every_event(phase: Phase, event: str) -> None:
    subject = health()
    for each in WAYS[phase]:
        subject.step(each)
    assert subject.phase is phase
    unchanged = (phase, subject.state, None)
    effect = subject.step(EVENTS[event])
    expected_phase, state, kind = STEPS.get((phase, event), unchanged)
    assert (subject.phase, subject.state) == (expected_phase, state)
    assert (None if effect is None else type(effect)) is kind
    assert subject.status.is_ok is (state is not State.TRANSIENT_FAILURE)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (NOT_SERVING, "{} is NOT_SERVING"),
        (Answered(3), "{} is SERVICE_UNKNOWN"),
        (Answered(0), "{} is UNKNOWN"),
        (Answered(9), "{} is in status 9, which is not known"),
        (Answered(None), "answer about {} cannot be read"),
        (BROKEN, "watch of {} ended with INTERNAL: broken and two lines"),
        (Ended(OK, 0.0), "watch of {} ended with OK"),
    ],
)
def test_a_failure_names_address_service_and_answer(event: Event, said: str) -> None:
    for service, whose in (("shop", "service 'shop'"), ("", "server")):
        subject = health(service)
        subject.step(HealthConnected())
        subject.step(event)
        text = f"10.0.0.1:80: health check: {said.format(whose)}"
        assert subject.status == Status(StatusCode.UNAVAILABLE, text)


def test_without_a_connection_health_is_what_became_of_it() -> None:
    subject = health()
    refused = Status(StatusCode.UNAVAILABLE, "refused")
    subject.step(Disconnected(State.TRANSIENT_FAILURE, refused))
    assert (subject.state, subject.status) == (State.TRANSIENT_FAILURE, refused)


def waits(subject: Health, count: int) -> list[float]:
    """How long it waits after each of so many streams that bring nothing."""
    delays_s = []
    for _ in range(count):
        effect = subject.step(BROKEN)
        assert isinstance(effect, Wait)
        delays_s.append(effect.delay_s)
        subject.step(HealthBackoffOver())
    return delays_s


@pytest.mark.parametrize(
    "restart", [[SERVING, BROKEN], [NOT_SERVING, BROKEN], [LOST, HealthConnected()]]
)
def test_an_answer_and_a_connection_start_the_backoff_over(restart: list[Event]) -> None:
    subject = health()
    subject.step(HealthConnected())
    for _ in range(2):
        for number, delay_s in enumerate(waits(subject, 15)):
            base_s = min(1.6**number, 120)
            assert base_s * 0.8 <= delay_s <= base_s * 1.2
        for event in restart:
            subject.step(event)


def test_an_answer_that_cannot_be_read_does_not_start_the_backoff_over() -> None:
    subject = health()
    subject.step(HealthConnected())
    waits(subject, 5)
    effect = subject.step(Answered(None))
    assert isinstance(effect, Wait)
    assert effect.delay_s > 5


def end_after_answer(subject: Health, now_s: float) -> Effect | None:
    """What follows a stream that brought an answer and ended then."""
    subject.step(SERVING)
    return subject.step(Ended(BROKEN.status, now_s))


def test_who_answers_and_ends_again_and_again_is_asked_with_pauses() -> None:
    subject = health()
    subject.step(HealthConnected())
    for _ in range(ASKED_AT_ONCE_MAX):
        assert end_after_answer(subject, 0.0) == Ask()
    for now_s in (0.0, 1.0, ASKED_AT_ONCE_S - 0.1):
        effect = end_after_answer(subject, now_s)
        assert isinstance(effect, Wait)
        # An answer starts the backoff over, so it does not grow.
        assert 0.8 <= effect.delay_s <= 1.2
        assert (subject.phase, subject.state) == (Phase.WAITING, State.TRANSIENT_FAILURE)
        assert "ended with INTERNAL" in subject.status.details
        subject.step(HealthBackoffOver())


def test_streams_that_live_for_a_while_are_followed_at_once() -> None:
    subject = health()
    subject.step(HealthConnected())
    for number in range(20):
        assert end_after_answer(subject, number * 4.0) == Ask()
