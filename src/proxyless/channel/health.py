"""Health of one service at one connected backend (pure).

Specs: A17 (client-side health checking), "GRPC Health Checking Protocol".

Theory of operation. The client calls `grpc.health.v1.Health/Watch` once per connection; the backend
responds at once and after each change. An event goes in, the health changes, and an effect comes
out, which `health_checker` enacts.

    DISCONNECTED → (connected) REQUESTED → (response) RESPONDED → (end) REQUESTED
                   REQUESTED → (end) BACKOFF → (backoff over) REQUESTED
                   RESPONDED → (end, for the fourth time in a while) BACKOFF
                   REQUESTED, RESPONDED → (end with UNIMPLEMENTED) UNCHECKED

When the connection is lost, every phase returns to DISCONNECTED, and the health is the state of the
subchannel.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final

from proxyless.base import OK, Backoff, State, Status, StatusCode, one_line
from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from proxyless.base import Address
    from proxyless.runtime import Random


class ServingStatus(Enum):
    """`HealthCheckResponse.ServingStatus`."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    # Used only by `Watch`.
    SERVICE_UNKNOWN = 3


# Wire format. Each message has one field, so protobuf is not imported for it.
_SERVICE_TAG: Final = b"\x0a"
_STATUS_FIELD: Final = 1
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {_FIXED64: 8, _FIXED32: 4}
# The continuation bit of a varint.
_MORE: Final = 0x80
_VARINT_BYTES_MAX: Final = 10
_ENUM_MASK: Final = 2**32 - 1
# A response has two bytes, and may get more fields. Parsing them costs more than sending them.
_RESPONSE_BYTES_MAX: Final = 1024


def encode_request(service: str) -> bytes:
    """A `HealthCheckRequest`. The empty name is the whole server."""
    name = service.encode("utf-8", "replace")
    return _SERVICE_TAG + _encode_varint(len(name)) + name if name else b""


def decode_response(message: bytes) -> int | None:
    """The number in a `HealthCheckResponse`; None if it cannot be parsed."""
    if len(message) > _RESPONSE_BYTES_MAX:
        return None
    number, at = 0, 0
    try:
        while at < len(message):
            tag, at = _decode_varint(message, at)
            kind = tag & 7
            if kind in _FIXED_BYTES:
                at += _FIXED_BYTES[kind]
                continue
            value, at = _decode_varint(message, at)
            if kind == _BYTES:
                at += value
            elif kind != _VARINT:
                return None
            elif tag >> 3 == _STATUS_FIELD:
                number = value & _ENUM_MASK
    except IndexError:
        return None
    return number if at == len(message) else None


def _encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= _MORE:
        encoded.append(number % _MORE + _MORE)
        number //= _MORE
    encoded.append(number)
    return bytes(encoded)


def _decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at this offset, and the offset after it. Raises IndexError if it is cut off."""
    number = 0
    for place in range(_VARINT_BYTES_MAX):
        byte = data[at + place]
        number += (byte % _MORE) * _MORE**place
        if byte < _MORE:
            return number, at + place + 1
    raise IndexError(f"varint is longer than {_VARINT_BYTES_MAX} bytes")


@frozen
class HealthConnected:
    """There is a connection."""


@frozen
class Disconnected:
    """There is no connection. State and status are those of the subchannel."""

    state: State
    status: Status


@frozen
class Responded:
    """The backend sent this number; None if it cannot be parsed."""

    number: int | None


@frozen
class Ended:
    """The backend or the connection ended the stream."""

    status: Status
    now_s: float


@frozen
class HealthBackoffOver:
    """The backoff after a stream is over."""


Event = HealthConnected | Disconnected | Responded | Ended | HealthBackoffOver


@frozen
class OpenStream:
    """Open a stream."""


@frozen
class Wait:
    """Cancel the stream, if any, and step with `HealthBackoffOver` after this time."""

    delay_s: float


@frozen
class Stop:
    """Cancel the stream, or the backoff timer."""


Effect = OpenStream | Wait | Stop

# Streams with a response that are reopened without backoff in this time. A17 has no limit, but
# a proxy that does not support streams may respond and end each one at once.
IMMEDIATE_RETRIES_MAX: Final = 3
IMMEDIATE_RETRIES_S: Final = 10.0


class Phase(Enum):
    """State of the health check on the current connection."""

    DISCONNECTED = "no connection"
    REQUESTED = "a stream without a response"
    RESPONDED = "a stream with a response"
    BACKOFF = "no stream: the last one had no response, or several ended early"
    UNCHECKED = "the backend does not implement health checking"


class Health:
    """State machine of one service at one backend.

    An event that does not fit the phase changes nothing.
    """

    def __init__(self, address: Address, service: str, random: Random) -> None:
        # Fixed at construction.
        self._address = address
        self._subject = f"service {service!r}" if service else "server"
        self._random = random
        # Published. The status is OK unless the state is TRANSIENT_FAILURE.
        self.state = State.IDLE
        self.status = OK
        self.phase = Phase.DISCONNECTED
        self._backoff = Backoff()
        # Times of the last streams that were reopened without backoff.
        self._retried_s: deque[float] = deque(maxlen=IMMEDIATE_RETRIES_MAX)

    def step(self, event: Event) -> Effect | None:
        """Apply the event; returns the effect."""
        match self.phase, event:
            case Phase.DISCONNECTED, HealthConnected():
                self._backoff.reset()
                return self._request()
            case phase, Disconnected(state, status):
                self._enter(Phase.DISCONNECTED, state, status)
                return None if phase in _QUIET else Stop()
            case Phase.REQUESTED | Phase.RESPONDED, Responded(number):
                return self._on_response(number)
            case Phase.REQUESTED | Phase.RESPONDED, Ended(status, now_s):
                return self._on_end(status, now_s)
            case Phase.BACKOFF, HealthBackoffOver():
                return self._request()
            case _:
                return None

    def _request(self) -> OpenStream:
        # "The subchannel will stay in state CONNECTING until it receives the first health-check
        # response" - A17; the same at each further attempt.
        self._enter(Phase.REQUESTED, State.CONNECTING)
        return OpenStream()

    def _on_response(self, number: int | None) -> Wait | None:
        if number is None:
            return self._wait(f"response about {self._subject} cannot be read")
        # "When the client receives a message … the backoff state is reset" - A17
        self._backoff.reset()
        if number == ServingStatus.SERVING.value:
            self._enter(Phase.RESPONDED, State.READY)
        else:
            failure = self._unavailable(f"{self._subject} is {_name(number)}")
            self._enter(Phase.RESPONDED, State.TRANSIENT_FAILURE, failure)
        return None

    def _on_end(self, status: Status, now_s: float) -> OpenStream | Wait | None:
        if status.code is StatusCode.UNIMPLEMENTED:
            # "the client will act as if health checking is disabled" - A17
            self._enter(Phase.UNCHECKED, State.READY)
            return None
        if self.phase is Phase.RESPONDED and self._may_retry_at_once(now_s):
            # "the next attempt will occur immediately" - A17. TRANSIENT_FAILURE would fail RPCs
            # that can wait for the response.
            self._retried_s.append(now_s)
            return self._request()
        details = f": {one_line(status.details)}" if status.details else ""
        return self._wait(f"watch of {self._subject} ended with {status.code.name}{details}")

    def _may_retry_at_once(self, now_s: float) -> bool:
        before_s = self._retried_s
        return len(before_s) < IMMEDIATE_RETRIES_MAX or now_s - before_s[0] >= IMMEDIATE_RETRIES_S

    def _wait(self, reason: str) -> Wait:
        self._enter(Phase.BACKOFF, State.TRANSIENT_FAILURE, self._unavailable(reason))
        return Wait(self._backoff.next_delay_s(self._random))

    def _unavailable(self, reason: str) -> Status:
        return Status(StatusCode.UNAVAILABLE, f"{self._address}: health check: {reason}")

    def _enter(self, phase: Phase, state: State, status: Status = OK) -> None:
        self.phase, self.state, self.status = phase, state, status


# Phases without a stream or a timer.
_QUIET: Final = frozenset({Phase.DISCONNECTED, Phase.UNCHECKED})


def _name(number: int) -> str:
    try:
        return ServingStatus(number).name
    except ValueError:
        return f"in status {number}, which is not known"
