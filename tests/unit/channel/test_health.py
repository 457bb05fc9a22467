"""Unit tests of proxyless.channel.health; see also spec/test_a17.py."""

from itertools import product

import pytest
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import OK, IpAddress, State, Status, StatusCode
from proxyless.channel.health import (
    IMMEDIATE_RETRIES_MAX,
    IMMEDIATE_RETRIES_S,
    Disconnected,
    Effect,
    Ended,
    Event,
    Health,
    HealthBackoffOver,
    HealthConnected,
    OpenStream,
    Phase,
    Responded,
    ServingStatus,
    Stop,
    Wait,
    decode_response,
    encode_request,
)
from proxyless.runtime import seeded_random

ADDRESS = IpAddress("10.0.0.1", 80)
SERVING, NOT_SERVING = Responded(1), Responded(2)
LOST = Disconnected(State.IDLE, OK)
BROKEN = Ended(Status(StatusCode.INTERNAL, "broken\nand two lines"), 0.0)
UNIMPLEMENTED = Ended(Status(StatusCode.UNIMPLEMENTED, "what?"), 0.0)

INT32 = st.integers(-(2**31), 2**31 - 1)


# Wire format


@given(st.text())
def test_request_equals_the_encoding_of_protobuf(service: str) -> None:
    data = encode_request(service)
    assert data == health_pb2.HealthCheckRequest(service=service).SerializeToString()


def test_request_replaces_characters_that_cannot_be_encoded() -> None:
    request = health_pb2.HealthCheckRequest.FromString(encode_request("a\ud800"))
    assert request.service == "a?"


@given(INT32, st.binary(max_size=200), st.integers(0, 2**64 - 1))
def test_response_is_parsed_with_unknown_fields(status: int, text: bytes, number: int) -> None:
    # A message with fields that a response does not have.
    others = [
        _field(2, 2, _varint(len(text)) + text),
        _field(3, 0, _varint(number)),
        _field(4, 1, bytes(8)),
        _field(200, 5, bytes(4)),
    ]
    answer = health_pb2.HealthCheckResponse(status=status).SerializeToString()
    for at in range(len(others) + 1):
        data = b"".join([*others[:at], answer, *others[at:]])
        assert decode_response(data) == status % 2**32


@given(st.binary(max_size=24))
def test_malformed_message_is_no_response(data: bytes) -> None:
    read = decode_response(data)
    try:
        status = health_pb2.HealthCheckResponse.FromString(data).status
    except DecodeError:
        # Protobuf also rejects fields without a number.
        return
    # And it accepts groups, which proto3 does not have.
    assert read in {status % 2**32, None}


@pytest.mark.parametrize(
    "data",
    [b"\x08", b"\x08\x80", b"\x08" + b"\x80" * 10 + b"\x01", b"\x12\x05four", b"\x09\0", b"\x0b"],
)
def test_truncated_message_is_no_response(data: bytes) -> None:
    assert decode_response(data) is None


def test_last_of_several_values_counts_and_an_empty_message_is_unknown() -> None:
    assert decode_response(b"\x08\x02\x08\x01") == 1
    assert decode_response(b"") == ServingStatus.UNKNOWN.value


def test_response_is_limited_in_size() -> None:
    """Parsing takes time per field, and a message could have two million of them."""
    field = _field(2, 0, _varint(0))
    serving = b"\x08\x01"
    assert decode_response(serving + field * 511) == ServingStatus.SERVING.value
    assert decode_response(serving + field * 512) is None


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


# State machine


def health(service: str = "shop") -> Health:
    return Health(ADDRESS, service, seeded_random(1))


# How each phase is reached.
WAYS: dict[Phase, list[Event]] = {
    Phase.DISCONNECTED: [],
    Phase.REQUESTED: [HealthConnected()],
    Phase.RESPONDED: [HealthConnected(), SERVING],
    Phase.BACKOFF: [HealthConnected(), BROKEN],
    Phase.UNCHECKED: [HealthConnected(), UNIMPLEMENTED],
}
EVENTS: dict[str, Event] = {
    "connected": HealthConnected(),
    "lost": LOST,
    "serving": SERVING,
    "not serving": NOT_SERVING,
    "unreadable": Responded(None),
    "unimplemented": UNIMPLEMENTED,
    "ended": BROKEN,
    "backoff over": HealthBackoffOver(),
}
# Next phase, state and effect of an event; all other events change nothing.
STEPS: dict[tuple[Phase, str], tuple[Phase, State, type[Effect] | None]] = {
    (Phase.DISCONNECTED, "connected"): (Phase.REQUESTED, State.CONNECTING, OpenStream),
    (Phase.DISCONNECTED, "lost"): (Phase.DISCONNECTED, State.IDLE, None),
    (Phase.REQUESTED, "lost"): (Phase.DISCONNECTED, State.IDLE, Stop),
    (Phase.REQUESTED, "serving"): (Phase.RESPONDED, State.READY, None),
    (Phase.REQUESTED, "not serving"): (Phase.RESPONDED, State.TRANSIENT_FAILURE, None),
    (Phase.REQUESTED, "unreadable"): (Phase.BACKOFF, State.TRANSIENT_FAILURE, Wait),
    (Phase.REQUESTED, "unimplemented"): (Phase.UNCHECKED, State.READY, None),
    (Phase.REQUESTED, "ended"): (Phase.BACKOFF, State.TRANSIENT_FAILURE, Wait),
    (Phase.RESPONDED, "lost"): (Phase.DISCONNECTED, State.IDLE, Stop),
    (Phase.RESPONDED, "serving"): (Phase.RESPONDED, State.READY, None),
    (Phase.RESPONDED, "not serving"): (Phase.RESPONDED, State.TRANSIENT_FAILURE, None),
    (Phase.RESPONDED, "unreadable"): (Phase.BACKOFF, State.TRANSIENT_FAILURE, Wait),
    (Phase.RESPONDED, "unimplemented"): (Phase.UNCHECKED, State.READY, None),
    (Phase.RESPONDED, "ended"): (Phase.REQUESTED, State.CONNECTING, OpenStream),
    (Phase.BACKOFF, "lost"): (Phase.DISCONNECTED, State.IDLE, Stop),
    (Phase.BACKOFF, "backoff over"): (Phase.REQUESTED, State.CONNECTING, OpenStream),
    (Phase.UNCHECKED, "lost"): (Phase.DISCONNECTED, State.IDLE, None),
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
    ("event", "expected"),
    [
        (NOT_SERVING, "{} is NOT_SERVING"),
        (Responded(3), "{} is SERVICE_UNKNOWN"),
        (Responded(0), "{} is UNKNOWN"),
        (Responded(9), "{} is in status 9, which is not known"),
        (Responded(None), "response about {} cannot be read"),
        (BROKEN, "watch of {} ended with INTERNAL: broken and two lines"),
        (Ended(OK, 0.0), "watch of {} ended with OK"),
    ],
)
def test_failure_names_address_service_and_reason(event: Event, expected: str) -> None:
    for service, whose in (("shop", "service 'shop'"), ("", "server")):
        subject = health(service)
        subject.step(HealthConnected())
        subject.step(event)
        text = f"10.0.0.1:80: health check: {expected.format(whose)}"
        assert subject.status == Status(StatusCode.UNAVAILABLE, text)


def test_health_is_the_state_of_the_subchannel_without_a_connection() -> None:
    subject = health()
    refused = Status(StatusCode.UNAVAILABLE, "refused")
    subject.step(Disconnected(State.TRANSIENT_FAILURE, refused))
    assert (subject.state, subject.status) == (State.TRANSIENT_FAILURE, refused)


def waits(subject: Health, count: int) -> list[float]:
    """The backoff after each of this many streams without a response."""
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
def test_backoff_is_reset_by_a_response_or_a_connection(restart: list[Event]) -> None:
    subject = health()
    subject.step(HealthConnected())
    for _ in range(2):
        for number, delay_s in enumerate(waits(subject, 15)):
            base_s = min(1.6**number, 120)
            assert base_s * 0.8 <= delay_s <= base_s * 1.2
        for event in restart:
            subject.step(event)


def test_backoff_is_not_reset_by_a_response_that_cannot_be_parsed() -> None:
    subject = health()
    subject.step(HealthConnected())
    waits(subject, 5)
    effect = subject.step(Responded(None))
    assert isinstance(effect, Wait)
    assert effect.delay_s > 5


def end_after_response(subject: Health, now_s: float) -> Effect | None:
    """The effect after a stream with a response has ended."""
    subject.step(SERVING)
    return subject.step(Ended(BROKEN.status, now_s))


def test_backoff_is_used_when_streams_respond_and_end_repeatedly() -> None:
    subject = health()
    subject.step(HealthConnected())
    for _ in range(IMMEDIATE_RETRIES_MAX):
        assert end_after_response(subject, 0.0) == OpenStream()
    for now_s in (0.0, 1.0, IMMEDIATE_RETRIES_S - 0.1):
        effect = end_after_response(subject, now_s)
        assert isinstance(effect, Wait)
        # A response resets the backoff, so it does not grow.
        assert 0.8 <= effect.delay_s <= 1.2
        assert (subject.phase, subject.state) == (Phase.BACKOFF, State.TRANSIENT_FAILURE)
        assert "ended with INTERNAL" in subject.status.details
        subject.step(HealthBackoffOver())


def test_stream_is_reopened_at_once_when_it_lasted_for_a_while() -> None:
    subject = health()
    subject.step(HealthConnected())
    for number in range(20):
        assert end_after_response(subject, number * 4.0) == OpenStream()
