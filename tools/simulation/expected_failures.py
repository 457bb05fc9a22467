"""Failures that the config asks for, and checkers of their number.

Drops, circuit breakers, outlier detection and the fault filter make RPCs fail, or keep them from
sound endpoints. `checkers` excuses such failures; the checkers here verify that they occur only
where they are configured, and in the configured share.

Records only give a lower and an upper bound of the number of RPCs under way. A checker reports a
violation if both bounds violate the rule.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import sqrt
from typing import TYPE_CHECKING, Final

from tools.simulation.plans import ABORT_PERCENT, EJECTION_INTERVAL_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.simulation.records import Ejection, RpcRecord
    from tools.simulation.scenario import Scenario

# Texts of statuses of dropped RPCs, and the code of the fault filter.
_DROPPED: Final = "EDS-configured drop"
_TOO_MANY: Final = "circuit breaker drop"
_ABORTED: Final = "ABORTED"
# Tolerance of random shares: standard deviations, and a margin for small numbers.
_DEVIATIONS: Final = 6.0
_FEW: Final = 5.0


def is_expected_failure(rpc: RpcRecord) -> bool:
    """Whether drops, a circuit breaker or the fault filter made the RPC fail.

    An RPC that was dropped because its cluster does not exist is not an expected failure.
    """
    is_dropped = bool(rpc.picks) and rpc.picks[-1].answer == "Drop"
    is_configured = is_dropped and (_DROPPED in rpc.details or _TOO_MANY in rpc.details)
    return is_configured or rpc.code == _ABORTED


def check_drops(scenario: Scenario) -> Iterator[str]:
    """An RPC is only dropped if its cluster does not exist, has drops or is full."""
    for rpc in scenario.recorder.rpcs.values():
        for pick in rpc.picks:
            if pick.answer != "Drop" or rpc.view_of(pick).is_error:
                continue
            where = f"{rpc.name}: dropped by {pick.cluster!r} at {pick.at_s:.3f} s"
            if pick is not rpc.picks[-1]:
                yield f"{where}, and picked for again"
            elif rpc.is_cancelled_by_us:
                continue
            elif _DROPPED in rpc.details and not rpc.view_of(pick).drop_share:
                yield f"{where}, which has no drops"
            elif not is_expected_failure(rpc):
                yield f"{where}: {rpc.details!r}, though there is such a cluster"


def check_drop_share(scenario: Scenario) -> Iterator[str]:
    """The share of dropped picks is about that of the config in force."""
    picks = dropped = 0
    expected = variance = 0.0
    for rpc in scenario.recorder.rpcs.values():
        for pick in rpc.picks:
            view = rpc.view_of(pick)
            if not view.drop_share or _is_aggregate(scenario, pick.cluster):
                continue
            picks += 1
            expected += view.drop_share
            variance += view.drop_share * (1.0 - view.drop_share)
            dropped += pick.answer == "Drop" and _DROPPED in rpc.details
    if abs(dropped - expected) > _DEVIATIONS * sqrt(variance) + _FEW:
        yield f"{dropped} of {picks} picks were dropped, wanted about {expected:.0f}"


def check_circuit_breakers(scenario: Scenario) -> Iterator[str]:
    """No cluster exceeds its limit of RPCs, and RPCs are only dropped at the limit."""
    limit = scenario.options.max_requests
    rpcs = list(scenario.recorder.rpcs.values())
    if not limit:
        full = [rpc.name for rpc in rpcs if _TOO_MANY in rpc.details]
        yield from (f"{name}: {_TOO_MANY}, though there is no limit" for name in full)
        return
    for cluster in sorted({pick.cluster for rpc in rpcs for pick in rpc.picks}):
        if not _is_aggregate(scenario, cluster):
            yield from _check_most(cluster, limit, rpcs)
    starts_s = sorted(pick.at_s for rpc in rpcs for pick, _, _ in rpc.attempts)
    ends_s = sorted(over_s for rpc in rpcs for _, over_s, _ in rpc.attempts)
    for rpc in rpcs:
        if _TOO_MANY in rpc.details:
            at_s = rpc.picks[-1].at_s
            found = bisect_right(starts_s, at_s) - bisect_left(ends_s, at_s)
            if found < limit:
                yield f"{rpc.name}: {_TOO_MANY} with {found} under way, wanted {limit}"


def _check_most(cluster: str, limit: int, rpcs: list[RpcRecord]) -> Iterator[str]:
    """Check the lower bound: only successful attempts, whose end is known exactly."""
    changes: list[tuple[float, int]] = []
    for rpc in rpcs:
        for pick, over_s, is_in_vain in rpc.attempts:
            if pick.cluster == cluster and not is_in_vain:
                # An end sorts before a start at the same time.
                changes += [(pick.at_s, 1), (over_s, -1)]
    under_way = 0
    for at_s, change in sorted(changes):
        under_way += change
        if under_way > limit:
            yield f"cluster {cluster!r} has {under_way} RPCs at {at_s:.3f} s, wanted {limit}"
            return


def check_ejections(scenario: Scenario) -> Iterator[str]:
    """Outlier detection only ejects endpoints that failed, for at most the maximum time."""
    for at_s, client, endpoint in scenario.recorder.late_releases:
        yield f"{client}: {endpoint} came back at {at_s:.3f} s, after longer than it may be ejected"
    for ejection in scenario.recorder.ejections:
        text = f"{ejection.client}: {','.join(sorted(ejection.addresses))} ejected"
        if not scenario.options.has_outlier_detection:
            yield f"{text}, though outlier detection is not configured"
        elif not _has_failed(scenario, ejection):
            yield f"{text} at {ejection.start_s:.3f} s without a failure"


def _has_failed(scenario: Scenario, ejection: Ejection) -> bool:
    """Whether an attempt of this client at this endpoint failed shortly before."""
    since_s = ejection.start_s - 2 * EJECTION_INTERVAL_S
    return any(
        pick.address in ejection.addresses
        and is_in_vain
        and since_s <= over_s
        and pick.at_s <= ejection.start_s
        for rpc in scenario.recorder.rpcs.values()
        if rpc.client.name == ejection.client
        for pick, over_s, is_in_vain in rpc.attempts
    )


def check_injected_faults(scenario: Scenario) -> Iterator[str]:
    """The share of aborted RPCs is at most that of the fault filter."""
    codes = [rpc.code for rpc in scenario.recorder.rpcs.values()]
    aborted = codes.count(_ABORTED)
    share = ABORT_PERCENT / 100 if scenario.options.has_injected_faults else 0.0
    expected = share * len(codes)
    most = expected + _DEVIATIONS * sqrt(expected) + _FEW if share else 0.0
    if aborted > most:
        yield f"{aborted} of {len(codes)} RPCs were aborted, wanted about {expected:.0f}"


def _is_aggregate(scenario: Scenario, cluster: str) -> bool:
    return any(form.leaves for form in scenario.cluster_forms.get(cluster, ()))


EXPECTED_FAILURE_CHECKERS: Final = (
    check_drops,
    check_drop_share,
    check_circuit_breakers,
    check_ejections,
    check_injected_faults,
)
