"""Fault injection filter: random delays and aborts of RPCs.

Specs: A33. If the config allows it, headers of the RPC set delay and status code, and a smaller
percentage than the config's. Config and parser are in `fault`.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from proxyless.base import OK, Status, StatusCode
from proxyless.wire.status import status_of_http
from proxyless.xds.filters.rpc_filter import RpcFilter

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.runtime import Random
    from proxyless.xds.filters.fault import FaultConfig, Percentage
    from proxyless.xds.filters.rpc_filter import RoutedRpc

DELAY_HEADER: Final = "x-envoy-fault-delay-request"
DELAY_PERCENTAGE_HEADERS: Final = ("x-envoy-fault-delay-request-percentage",)
ABORT_HEADER: Final = "x-envoy-fault-abort-grpc-request"
ABORT_HTTP_HEADER: Final = "x-envoy-fault-abort-request"
# The second is the spelling of C-core.
ABORT_PERCENTAGE_HEADERS: Final = (
    "x-envoy-fault-abort-request-percentage",
    "x-envoy-fault-abort-percentage",
)

ABORT_DETAILS: Final = "Fault injected"

_CODES: Final = {int(code): code for code in StatusCode}
_HTTP_STATUSES: Final = range(200, 600)
# A header with a longer number is ignored: parsing a very long one is slow.
_DIGITS_MAX: Final = 15
_MS_PER_S: Final = 1000


class ActiveFaults:
    """The number of delayed RPCs. Loops of several threads change it, hence the lock."""

    __slots__ = ("_lock", "count")

    def __init__(self) -> None:
        self._lock: Final = Lock()
        self.count = 0

    def add(self, number: int) -> None:
        with self._lock:
            self.count += number


PROCESS_FAULTS: Final = ActiveFaults()


class FaultFilter:
    """Injects faults into the RPCs of one route."""

    __slots__ = ("_active", "_config", "_random")

    def __init__(
        self, config: FaultConfig, random: Random, active: ActiveFaults = PROCESS_FAULTS
    ) -> None:
        self._config: Final = config
        self._random: Final = random
        self._active: Final = active

    def on_rpc(self, rpc: RoutedRpc) -> RpcFilter | None:
        delay_s = self._choose_delay_s(rpc.metadata)
        abort = self._choose_abort(rpc.metadata)
        if not delay_s and abort is None:
            return None
        limit = self._config.max_active_faults
        if limit is not None and self._active.count >= limit:
            return None
        return InjectedFault(delay_s, abort, self._active)

    def _choose_delay_s(self, metadata: Metadata) -> float:
        delay = find_delay(self._config, metadata)
        return delay.value if delay is not None and self._is_chosen(delay) else 0.0

    def _choose_abort(self, metadata: Metadata) -> Status | None:
        abort = find_abort(self._config, metadata)
        if abort is None or not self._is_chosen(abort):
            return None
        # "as if it has immediately received trailing metadata … with the status OK" - A33
        return OK if abort.value is StatusCode.OK else Status(abort.value, ABORT_DETAILS)

    def _is_chosen(self, chance: Chance[Any]) -> bool:
        if chance.numerator >= chance.denominator:
            return True
        return chance.numerator > 0 and self._random.randrange(chance.denominator) < (
            chance.numerator
        )


V = TypeVar("V")


class Chance(NamedTuple, Generic[V]):
    """A fault and its probability for RPCs with the same metadata."""

    value: V
    numerator: int
    denominator: int

    def describe(self) -> str:
        """The share of RPCs as text; empty if it is 0."""
        if not self.numerator:
            return ""
        percent = 100 * self.numerator / self.denominator
        return f"{percent:.4g} % of RPCs" if self.numerator < self.denominator else "every RPC"


def find_delay(config: FaultConfig, metadata: Metadata) -> Chance[float] | None:
    """The possible delay of an RPC in seconds."""
    delay = config.delay
    if delay is None:
        return None
    delay_s = delay.delay_s
    headers: tuple[str, ...] = ()
    if delay_s is None:
        delay_s = (_read_number(metadata, DELAY_HEADER) or 0) / _MS_PER_S
        headers = DELAY_PERCENTAGE_HEADERS
    return _chance(delay_s, delay.percentage, metadata, headers) if delay_s > 0 else None


def find_abort(config: FaultConfig, metadata: Metadata) -> Chance[StatusCode] | None:
    """The possible status code of an RPC that is not sent."""
    abort = config.abort
    if abort is None:
        return None
    code = abort.code
    headers: tuple[str, ...] = ()
    if code is None:
        code, headers = _read_code(metadata), ABORT_PERCENTAGE_HEADERS
    return None if code is None else _chance(code, abort.percentage, metadata, headers)


def _chance(
    value: V, percentage: Percentage, metadata: Metadata, headers: tuple[str, ...]
) -> Chance[V]:
    """A header can only lower the percentage."""
    requested = (_read_number(metadata, header) for header in headers)
    numerator = min([percentage.numerator, *(each for each in requested if each is not None)])
    return Chance(value, numerator, percentage.denominator)


class InjectedFault(RpcFilter):
    """The faults of one RPC. They are active during the delay; an abort takes no time."""

    __slots__ = ("_active", "_is_counted", "abort", "delay_s")

    def __init__(self, delay_s: float, abort: Status | None, active: ActiveFaults) -> None:
        self.delay_s: Final = delay_s
        self.abort: Final = abort
        self._active: Final = active
        self._is_counted = False

    def on_delay_start(self) -> None:
        if self.delay_s and not self._is_counted:
            self._is_counted = True
            self._active.add(1)

    def on_delay_end(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._active.add(-1)


def _read_number(metadata: Metadata, header: str) -> int | None:
    """The header's number. An invalid one is ignored (A33)."""
    text = next((value for key, value in metadata if key == header), None)
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()):
        return None
    return int(text) if len(text) <= _DIGITS_MAX else None


def _read_code(metadata: Metadata) -> StatusCode | None:
    """The status code that a header of the RPC sets; None without a valid one."""
    number = _read_number(metadata, ABORT_HEADER)
    if number in _CODES:
        return _CODES[number]
    http_status = _read_number(metadata, ABORT_HTTP_HEADER)
    if http_status is None or http_status not in _HTTP_STATUSES:
        return None
    return status_of_http(http_status, "").code
