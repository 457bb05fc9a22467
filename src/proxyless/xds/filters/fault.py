"""Config of the fault injection filter, which delays or aborts a share of the RPCs.

Specs: A33. `upstream_cluster`, `downstream_nodes`, `headers`, the response rate limit and all
fields about Envoy's runtime are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import StatusCode
from proxyless.base.frozen import frozen
from proxyless.wire.status import status_of_http
from proxyless.xds.filters.api import want_message
from proxyless.xds.filters.fault_filter import FaultFilter, find_abort, find_delay
from proxyless.xds.parsing.proto_fields import read_denominator, read_duration_s, read_uint32

if TYPE_CHECKING:
    from proxyless.base import Metadata, ValidationErrors
    from proxyless.protos import Proto
    from proxyless.runtime import Random
    from proxyless.xds.parsing.http_filters import FilterMessage

FAULT_TYPE: Final = "envoy.extensions.filters.http.fault.v3.HTTPFault"


@frozen
class Percentage:
    """The share of affected RPCs. A header may give a smaller numerator (A33)."""

    numerator: int = 0
    # 100, 10,000 or a million.
    denominator: int = 100


@frozen
class FaultDelay:
    """Delay of RPCs before they are sent."""

    # None: a header of the RPC sets it.
    delay_s: float | None
    percentage: Percentage


@frozen
class FaultAbort:
    """Status code of RPCs that are not sent."""

    # None: a header of the RPC sets it.
    code: StatusCode | None
    percentage: Percentage


@frozen
class FaultConfig:
    """Delay and abort, which are independent random choices."""

    delay: FaultDelay | None = None
    abort: FaultAbort | None = None
    # No further faults while this many RPCs of the process are delayed; None is no limit.
    max_active_faults: int | None = None

    def describe(self, metadata: Metadata) -> str:
        """The effect on an RPC with this metadata, for explanations."""
        delay, limit = find_delay(self, metadata), self.max_active_faults
        parts = [self.describe_abort(metadata)]
        if delay is not None and (share := delay.describe()):
            parts.insert(0, f"delays {share} by {delay.value:g} s")
        text = "; ".join(filter(None, parts))
        if not text or limit == 0:
            return "does nothing to the RPC"
        return text if limit is None else f"{text}; as long as fewer than {limit} RPCs are delayed"

    def describe_abort(self, metadata: Metadata) -> str:
        """The share of RPCs with this metadata that are aborted; empty if none are."""
        abort = find_abort(self, metadata)
        if abort is None or self.max_active_faults == 0 or not (share := abort.describe()):
            return ""
        return f"aborts {share} with {abort.value.name}"

    def aborts_every_rpc(self, metadata: Metadata) -> bool:
        abort = find_abort(self, metadata)
        is_certain = abort is not None and abort.numerator >= abort.denominator
        return is_certain and self.max_active_faults is None


class FaultFilterFactory:
    """Factory of the fault injection filter."""

    config_types: Final = (FAULT_TYPE,)
    override_types: Final = (FAULT_TYPE,)
    is_terminal: Final = False

    def parse_config(self, message: FilterMessage, errors: ValidationErrors) -> FaultConfig:
        fault = want_message(message, FAULT_TYPE, errors)
        return FaultConfig() if fault is None else _parse_fault(fault, errors)

    parse_override = parse_config

    def create(self, config: object, override: object | None, random: Random) -> FaultFilter | None:
        # An override replaces the whole config.
        fault = config if override is None else override
        assert isinstance(fault, FaultConfig), "the config has this filter's type"
        if fault.delay is None and fault.abort is None:
            return None
        return FaultFilter(fault, random)


def _parse_fault(message: Proto, errors: ValidationErrors) -> FaultConfig:
    delay = abort = None
    if message.HasField("delay"):
        with errors.field("delay"):
            delay = _parse_delay(message.delay, errors)
    if message.HasField("abort"):
        with errors.field("abort"):
            abort = _parse_abort(message.abort, errors)
    return FaultConfig(delay, abort, read_uint32(message, "max_active_faults"))


def _parse_delay(delay: Proto, errors: ValidationErrors) -> FaultDelay | None:
    percentage = _parse_percentage(delay, errors)
    # The name of the oneof is misspelled in Envoy's API.
    match delay.WhichOneof("fault_delay_secifier"):
        case "fixed_delay":
            return FaultDelay(read_duration_s(delay, "fixed_delay", errors), percentage)
        case "header_delay":
            return FaultDelay(None, percentage)
        case _:
            return None


def _parse_abort(abort: Proto, errors: ValidationErrors) -> FaultAbort | None:
    percentage = _parse_percentage(abort, errors)
    match abort.WhichOneof("error_type"):
        case "grpc_status":
            return FaultAbort(_parse_code(abort.grpc_status, errors), percentage)
        case "http_status":
            return FaultAbort(status_of_http(abort.http_status, "").code, percentage)
        case "header_abort":
            return FaultAbort(None, percentage)
        case _:
            return None


def _parse_code(number: int, errors: ValidationErrors) -> StatusCode:
    try:
        return StatusCode(number)
    except ValueError:
        with errors.field("grpc_status"):
            errors.add(f"is {number}, wanted a status code from 0 to {max(StatusCode)}")
        return StatusCode.UNKNOWN


def _parse_percentage(fault: Proto, errors: ValidationErrors) -> Percentage:
    """The field of a delay or an abort. Unset is 0 %."""
    if not fault.HasField("percentage"):
        return Percentage()
    with errors.field("percentage"):
        denominator = read_denominator(fault.percentage, errors)
    return Percentage(min(fault.percentage.numerator, denominator), denominator)
