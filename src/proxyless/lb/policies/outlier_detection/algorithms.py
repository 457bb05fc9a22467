"""Which endpoints are outliers now, and which have been ejected for long enough?

Specs: A50 (both algorithms, ejection times), A61 (endpoints, not addresses); OD-05 to OD-08.

`sweep` is a pure function of what was counted in the last interval: time comes in as a number,
chance as a function, and each change comes out with its reason. What is counted, and how a
subchannel learns that it is ejected, is the business of `outlier_detection`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import chain
from math import fsum, sqrt
from typing import Final

from proxyless.base.frozen import frozen
from proxyless.lb.policies.outlier_detection.config import (
    PERCENT_MAX,
    EjectionRules,
    FailurePercentageEjection,
    SuccessRateEjection,
)

# A factor of 1900 stands for 1.9 standard deviations.
STDEV_FACTOR_UNIT: Final = 1000

# Draws an integer from 0 to 99.
DrawPercent = Callable[[], int]


# ---------------------------------------------------------------------------------------------
# What is known about endpoints


@frozen
class Standing:
    """Since when an endpoint is ejected, if it is, and by what its next ejection is multiplied."""

    ejected_at_s: float | None = None
    multiplier: int = 0

    @property
    def is_ejected(self) -> bool:
        return self.ejected_at_s is not None


NEVER_EJECTED: Final = Standing()


@frozen
class EndpointView:
    """All that the sweep may know about one endpoint: RPCs of the last interval, and standing."""

    successes: int
    failures: int
    standing: Standing = NEVER_EJECTED

    @property
    def volume(self) -> int:
        return self.successes + self.failures


class Kind(Enum):
    """What happens to an endpoint."""

    EJECTED = "ejected"
    UNEJECTED = "unejected"
    FORGIVEN = "forgiven"


@frozen
class Change:
    """The endpoint at this index has another standing from now on."""

    index: int
    kind: Kind
    standing: Standing
    reason: str


@frozen
class Outlier:
    """The endpoint at this index is to be ejected, if chance and the limit allow it."""

    index: int
    enforcement_percentage: int
    reason: str


# ---------------------------------------------------------------------------------------------
# Decision


def sweep(
    rules: EjectionRules, endpoints: Sequence[EndpointView], now_s: float, draw: DrawPercent
) -> list[Change]:
    """What changes at the end of an interval, in the order of the endpoints."""
    reasons = choose_ejections(rules, endpoints, draw)
    changes: list[Change] = []
    for index, endpoint in enumerate(endpoints):
        before = endpoint.standing
        if index in reasons:
            after = Standing(now_s, before.multiplier + 1)
            changes.append(Change(index, Kind.EJECTED, after, reasons[index]))
        elif before.ejected_at_s is not None:
            ejected_for_s = rules.ejection_time_s(before.multiplier)
            # "the current time is after" - A50; so not at that very time.
            if now_s > before.ejected_at_s + ejected_for_s:
                after, why = Standing(None, before.multiplier), f"{ejected_for_s:g} s are over"
                changes.append(Change(index, Kind.UNEJECTED, after, why))
        elif before.multiplier:
            after, why = Standing(None, before.multiplier - 1), "was not ejected in the interval"
            changes.append(Change(index, Kind.FORGIVEN, after, why))
    return changes


def choose_ejections(
    rules: EjectionRules, endpoints: Sequence[EndpointView], draw: DrawPercent
) -> dict[int, str]:
    """Which endpoints are to be ejected now, by index, and why."""
    ejected = {index for index, each in enumerate(endpoints) if each.standing.is_ejected}
    reasons: dict[int, str] = {}
    for outlier in _find_outliers(rules, endpoints):
        # "will eject at least one address regardless of the value" - A50
        is_limit_reached = PERCENT_MAX * len(ejected) >= rules.max_ejection_percent * len(endpoints)
        if ejected and is_limit_reached:
            break
        # Differs from A50, which lets an ejected address be ejected again: RPCs that were under
        # way, or the other algorithm, would multiply the time for one and the same trouble.
        if outlier.index not in ejected and draw() < outlier.enforcement_percentage:
            ejected.add(outlier.index)
            reasons[outlier.index] = outlier.reason
    return reasons


def _find_outliers(rules: EjectionRules, endpoints: Sequence[EndpointView]) -> Iterable[Outlier]:
    by_rate: Iterable[Outlier] = ()
    by_failures: Iterable[Outlier] = ()
    if rules.success_rate is not None:
        by_rate = find_low_success_rates(rules.success_rate, endpoints)
    if rules.failure_percentage is not None:
        by_failures = find_high_failure_percentages(rules.failure_percentage, endpoints)
    return chain(by_rate, by_failures)


def find_low_success_rates(
    rules: SuccessRateEjection, endpoints: Sequence[EndpointView]
) -> Iterator[Outlier]:
    """Those whose rate is too many standard deviations below the mean."""
    busy = _find_busy(endpoints, rules.request_volume, rules.minimum_hosts)
    rates = [each.successes / each.volume for _, each in busy]
    # Rounding must not make an outlier of one that is like all others.
    if not rates or min(rates) == max(rates):
        return
    mean = fsum(rates) / len(rates)
    stdev = sqrt(fsum((rate - mean) ** 2 for rate in rates) / len(rates))
    limit = mean - stdev * (rules.stdev_factor / STDEV_FACTOR_UNIT)
    for (index, _), rate in zip(busy, rates, strict=True):
        if rate < limit:
            reason = f"success rate {rate:.4g} is below {limit:.4g}, the mean is {mean:.4g}"
            yield Outlier(index, rules.enforcement_percentage, reason)


def find_high_failure_percentages(
    rules: FailurePercentageEjection, endpoints: Sequence[EndpointView]
) -> Iterator[Outlier]:
    """Those of whose RPCs more than the threshold have failed."""
    for index, each in _find_busy(endpoints, rules.request_volume, rules.minimum_hosts):
        if PERCENT_MAX * each.failures > rules.threshold * each.volume:
            reason = f"{each.failures} of {each.volume} RPCs failed, more than {rules.threshold} %"
            yield Outlier(index, rules.enforcement_percentage, reason)


def _find_busy(
    endpoints: Sequence[EndpointView], request_volume: int, minimum_hosts: int
) -> list[tuple[int, EndpointView]]:
    """Those with enough RPCs, and their indices; none if they are too few to compare."""
    # Without any RPC there is no rate, whatever the config says.
    enough = max(request_volume, 1)
    busy = [(index, each) for index, each in enumerate(endpoints) if each.volume >= enough]
    return busy if len(busy) >= minimum_hosts else []
