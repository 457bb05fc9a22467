"""The outlier detection algorithms: which endpoints are ejected, and which are unejected.

Specs: A50 (both algorithms, ejection times), A61 (endpoints, not addresses), A91 (detection
methods, unenforced ejections); OD-05 to OD-08.

`detect` and `sweep` are pure functions of the counters of the last interval. Each change has a
reason. Imported with the first sweep.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from math import fsum, sqrt
from typing import Final

from proxyless.base.frozen import frozen
from proxyless.lb.policies.outlier_detection.config import (
    PERCENT_MAX,
    EjectionRules,
    FailurePercentageEjection,
    SuccessRateEjection,
)
from proxyless.lb.policies.outlier_detection.endpoints import EjectionState, EndpointView

# A factor of 1900 means 1.9 standard deviations.
STDEV_FACTOR_UNIT: Final = 1000

# Returns a random integer from 0 to 99.
RandomPercent = Callable[[], int]


class ChangeKind(Enum):
    """Kind of a change; the value is part of the trace event's name."""

    EJECTED = "ejected"
    UNEJECTED = "unejected"
    MULTIPLIER_DECREMENTED = "multiplier_decremented"


@frozen
class Change:
    """New ejection state of the endpoint at this index."""

    index: int
    kind: ChangeKind
    ejection: EjectionState
    reason: str


class Method(Enum):
    """The algorithm that found an outlier; the value is a metric label (A91)."""

    SUCCESS_RATE = "success_rate"
    FAILURE_PERCENTAGE = "failure_percentage"


class Unenforced(Enum):
    """Why an outlier is not ejected; the value is a metric label (A91)."""

    ENFORCEMENT_PERCENTAGE = "enforcement_percentage"
    MAX_EJECTION_OVERFLOW = "max_ejection_overflow"


@frozen
class Outlier:
    """Endpoint to eject, subject to the enforcement percentage and the ejection limit."""

    index: int
    enforcement_percentage: int
    reason: str
    method: Method


@frozen
class Detection:
    """An outlier, and whether it is ejected."""

    outlier: Outlier
    # None: it is ejected.
    unenforced: Unenforced | None = None


def sweep(
    rules: EjectionRules,
    endpoints: Sequence[EndpointView],
    now_s: float,
    detections: Iterable[Detection],
) -> list[Change]:
    """Return the changes at the end of an interval, in the order of the endpoints."""
    reasons = {
        each.outlier.index: each.outlier.reason for each in detections if each.unenforced is None
    }
    changes: list[Change] = []
    for index, endpoint in enumerate(endpoints):
        before = endpoint.ejection
        if index in reasons:
            after = EjectionState(now_s, before.multiplier + 1)
            changes.append(Change(index, ChangeKind.EJECTED, after, reasons[index]))
        elif before.ejected_at_s is not None:
            ejected_for_s = rules.ejection_time_s(before.multiplier)
            # "the current time is after" - A50: `>`, not `>=`.
            if now_s > before.ejected_at_s + ejected_for_s:
                after = EjectionState(None, before.multiplier)
                reason = f"{ejected_for_s:g} s are over"
                changes.append(Change(index, ChangeKind.UNEJECTED, after, reason))
        elif before.multiplier:
            after, reason = (
                EjectionState(None, before.multiplier - 1),
                "was not ejected in the interval",
            )
            changes.append(Change(index, ChangeKind.MULTIPLIER_DECREMENTED, after, reason))
    return changes


def detect(
    rules: EjectionRules, endpoints: Sequence[EndpointView], random: RandomPercent
) -> list[Detection]:
    """Find the outliers that are not ejected yet, and decide which of them to eject."""
    ejected = {index for index, each in enumerate(endpoints) if each.ejection.is_ejected}
    found: list[Detection] = []
    for outlier in _find_outliers(rules, endpoints):
        # Differs from A50, which allows an ejected address to be ejected again: RPCs that were in
        # progress, or the other algorithm, would increase the multiplier twice for one cause.
        if outlier.index in ejected:
            continue
        # "will eject at least one address regardless of the value" - A50
        is_limit_reached = PERCENT_MAX * len(ejected) >= rules.max_ejection_percent * len(endpoints)
        if ejected and is_limit_reached:
            found.append(Detection(outlier, Unenforced.MAX_EJECTION_OVERFLOW))
        elif random() >= outlier.enforcement_percentage:
            found.append(Detection(outlier, Unenforced.ENFORCEMENT_PERCENTAGE))
        else:
            ejected.add(outlier.index)
            found.append(Detection(outlier))
    return found


def _find_outliers(rules: EjectionRules, endpoints: Sequence[EndpointView]) -> Iterable[Outlier]:
    if rules.success_rate is not None:
        yield from find_low_success_rates(rules.success_rate, endpoints)
    if rules.failure_percentage is not None:
        yield from find_high_failure_percentages(rules.failure_percentage, endpoints)


def find_low_success_rates(
    rules: SuccessRateEjection, endpoints: Sequence[EndpointView]
) -> Iterator[Outlier]:
    """Find endpoints whose success rate is too many standard deviations below the mean."""
    busy = _find_busy(endpoints, rules.request_volume, rules.minimum_hosts)
    rates = [each.successes / each.volume for _, each in busy]
    # If all rates are equal, rounding must not make an outlier.
    if not rates or min(rates) == max(rates):
        return
    mean = fsum(rates) / len(rates)
    stdev = sqrt(fsum((rate - mean) ** 2 for rate in rates) / len(rates))
    limit = mean - stdev * (rules.stdev_factor / STDEV_FACTOR_UNIT)
    for (index, _), rate in zip(busy, rates, strict=True):
        if rate < limit:
            reason = f"success rate {rate:.4g} is below {limit:.4g}, the mean is {mean:.4g}"
            yield Outlier(index, rules.enforcement_percentage, reason, Method.SUCCESS_RATE)


def find_high_failure_percentages(
    rules: FailurePercentageEjection, endpoints: Sequence[EndpointView]
) -> Iterator[Outlier]:
    """Find endpoints with a percentage of failed RPCs above the threshold."""
    for index, each in _find_busy(endpoints, rules.request_volume, rules.minimum_hosts):
        if PERCENT_MAX * each.failures > rules.threshold * each.volume:
            reason = f"{each.failures} of {each.volume} RPCs failed, more than {rules.threshold} %"
            yield Outlier(index, rules.enforcement_percentage, reason, Method.FAILURE_PERCENTAGE)


def _find_busy(
    endpoints: Sequence[EndpointView], request_volume: int, minimum_hosts: int
) -> list[tuple[int, EndpointView]]:
    """Return endpoints with enough RPCs, with their indices; none if below `minimum_hosts`."""
    # An endpoint without RPCs has no rate, even if the config requires none.
    enough = max(request_volume, 1)
    busy = [(index, each) for index, each in enumerate(endpoints) if each.volume >= enough]
    return busy if len(busy) >= minimum_hosts else []
