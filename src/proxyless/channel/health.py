"""Is a connected backend fit for RPCs, after what it says itself?

Specs: A17 (client-side health checking), "GRPC Health Checking Protocol".

Theory of operation. A backend is asked once per connection, by `grpc.health.v1.Health/Watch`, and
answers now and whenever its health changes. `Health` decides: an event goes in, the health changes,
and what is to be done comes out as an effect. It knows no stream and no loop.

    NOTHING → (connected) ASKING → (answer) TOLD → (end) ASKING
                          ASKING → (end) WAITING → (backoff over) ASKING
                          TOLD → (end, for the fourth time in a while) WAITING
                          ASKING, TOLD → (end with UNIMPLEMENTED) UNCHECKED

Every state goes back to NOTHING when the connection is lost: then the health is the connection's
own state. Who asks, and on which stream, is the business of `health_checker`.
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


# ---------------------------------------------------------------------------------------------
# On the wire: messages of one field each, so there is no protobuf


class ServingStatus(Enum):
    """What a backend may answer, by its number in `HealthCheckResponse`."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    # The answer of `Watch` if the backend does not know the service, or not yet.
    SERVICE_UNKNOWN = 3


# The one field of either message, and how a field may be written.
_SERVICE_TAG: Final = b"\x0a"
_STATUS_FIELD: Final = 1
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {_FIXED64: 8, _FIXED32: 4}
# A varint has seven bits in each byte, and in all but the last this one.
_MORE: Final = 0x80
_VARINT_BYTES_MAX: Final = 10
_ENUM_MASK: Final = 2**32 - 1
# An answer has two bytes, and room for fields that it may get. Fields cost us more than the peer.
_ANSWER_BYTES_MAX: Final = 1024


def encode_question(service: str) -> bytes:
    """A `HealthCheckRequest`: how is this service? The empty name is the whole server."""
    name = service.encode("utf-8", "replace")
    return _SERVICE_TAG + _encode_varint(len(name)) + name if name else b""


def decode_answer(message: bytes) -> int | None:
    """The number in a `HealthCheckResponse`, known to `ServingStatus` or not; None: unreadable."""
    if len(message) > _ANSWER_BYTES_MAX:
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
    """The number that begins there, and where it ends. IndexError if it does not end."""
    number = 0
    for place in range(_VARINT_BYTES_MAX):
        byte = data[at + place]
        number += (byte % _MORE) * _MORE**place
        if byte < _MORE:
            return number, at + place + 1
    raise IndexError(f"varint is longer than {_VARINT_BYTES_MAX} bytes")


# ---------------------------------------------------------------------------------------------
# The decision


@frozen
class HealthConnected:
    """There is a connection to ask on."""


@frozen
class Disconnected:
    """There is none, and this is what became of it."""

    state: State
    status: Status


@frozen
class Answered:
    """The backend said this; None if it cannot be read."""

    number: int | None


@frozen
class Ended:
    """The stream is over, and we did not end it."""

    status: Status
    now_s: float


@frozen
class HealthBackoffOver:
    """The time to wait after a stream has passed."""


Event = HealthConnected | Disconnected | Answered | Ended | HealthBackoffOver


@frozen
class Ask:
    """Open a stream. There is none."""


@frozen
class Wait:
    """End the stream if there is one, and say after this time that the backoff is over."""

    delay_s: float


@frozen
class Stop:
    """End the stream, or the wait for the next one."""


Effect = Ask | Wait | Stop


# How many streams that brought an answer are followed by the next one at once, in what time. A17
# has no limit; but who answers and ends, as a proxy may that knows no streams, would be asked as
# fast as both of us can.
ASKED_AT_ONCE_MAX: Final = 3
ASKED_AT_ONCE_S: Final = 10.0


class Phase(Enum):
    """How far the conversation on this connection is."""

    NOTHING = "no connection"
    ASKING = "a stream, and no answer yet"
    TOLD = "a stream, and at least one answer"
    WAITING = "no stream: the last one brought nothing, or several ended early"
    UNCHECKED = "the backend does not know how to answer"


class Health:
    """What is the health of one service at one backend, and what is to be done? Driven by events.

    An event that does not fit the phase changes nothing.
    """

    def __init__(self, address: Address, service: str, random: Random) -> None:
        # Fixed at construction.
        self._address = address
        self._whose = f"service {service!r}" if service else "server"
        self._random = random
        # What those who want to know are told. The status is OK unless it is TRANSIENT_FAILURE.
        self.state = State.IDLE
        self.status = OK
        self.phase = Phase.NOTHING
        self._backoff = Backoff()
        # When streams were last followed by another one at once.
        self._at_once_s: deque[float] = deque(maxlen=ASKED_AT_ONCE_MAX)

    def step(self, event: Event) -> Effect | None:
        """Take the event; say what is to be done."""
        match self.phase, event:
            case Phase.NOTHING, HealthConnected():
                self._backoff.reset()
                return self._ask()
            case phase, Disconnected(state, status):
                self._enter(Phase.NOTHING, state, status)
                return None if phase in _QUIET else Stop()
            case Phase.ASKING | Phase.TOLD, Answered(number):
                return self._on_answer(number)
            case Phase.ASKING | Phase.TOLD, Ended(status, now_s):
                return self._on_end(status, now_s)
            case Phase.WAITING, HealthBackoffOver():
                return self._ask()
            case _:
                return None

    def _ask(self) -> Ask:
        # "The subchannel will stay in state CONNECTING until it receives the first health-check
        # response" - A17; the same at each further attempt.
        self._enter(Phase.ASKING, State.CONNECTING)
        return Ask()

    def _on_answer(self, number: int | None) -> Wait | None:
        if number is None:
            # A peer that cannot spell is not asked again and again without a pause.
            return self._wait(f"answer about {self._whose} cannot be read")
        # "When the client receives a message … the backoff state is reset" - A17
        self._backoff.reset()
        if number == ServingStatus.SERVING.value:
            self._enter(Phase.TOLD, State.READY)
        else:
            failure = self._unavailable(f"{self._whose} is {_name(number)}")
            self._enter(Phase.TOLD, State.TRANSIENT_FAILURE, failure)
        return None

    def _on_end(self, status: Status, now_s: float) -> Ask | Wait | None:
        if status.code is StatusCode.UNIMPLEMENTED:
            # "the client will act as if health checking is disabled" - A17
            self._enter(Phase.UNCHECKED, State.READY)
            return None
        if self.phase is Phase.TOLD and self._may_ask_at_once(now_s):
            # "the next attempt will occur immediately" - A17. TRANSIENT_FAILURE would last no time
            # at all, and would fail RPCs that can wait for the answer.
            self._at_once_s.append(now_s)
            return self._ask()
        details = f": {one_line(status.details)}" if status.details else ""
        return self._wait(f"watch of {self._whose} ended with {status.code.name}{details}")

    def _may_ask_at_once(self, now_s: float) -> bool:
        before_s = self._at_once_s
        return len(before_s) < ASKED_AT_ONCE_MAX or now_s - before_s[0] >= ASKED_AT_ONCE_S

    def _wait(self, why: str) -> Wait:
        self._enter(Phase.WAITING, State.TRANSIENT_FAILURE, self._unavailable(why))
        return Wait(self._backoff.next_delay_s(self._random))

    def _unavailable(self, why: str) -> Status:
        return Status(StatusCode.UNAVAILABLE, f"{self._address}: health check: {why}")

    def _enter(self, phase: Phase, state: State, status: Status = OK) -> None:
        self.phase, self.state, self.status = phase, state, status


# There is nothing to stop.
_QUIET: Final = frozenset({Phase.NOTHING, Phase.UNCHECKED})


def _name(number: int) -> str:
    try:
        return ServingStatus(number).name
    except ValueError:
        return f"in status {number}, which is not known"
