"""Unit tests of proxyless.lb.policies.outlier_detection.algorithms."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.lb.policies.outlier_detection.algorithms import (
    Change,
    ChangeKind,
    Method,
    Unenforced,
    detect,
    find_high_failure_percentages,
    find_low_success_rates,
)
from proxyless.lb.policies.outlier_detection.algorithms import sweep as sweep_detections
from proxyless.lb.policies.outlier_detection.config import (
    EjectionRules,
    FailurePercentageEjection,
    SuccessRateEjection,
)
from proxyless.lb.policies.outlier_detection.endpoints import (
    NEVER_EJECTED,
    EjectionState,
    EndpointView,
)

NOW_S = 100.0


def never() -> int:
    """Random percent that is not below any enforcement percentage."""
    return 100


def always() -> int:
    return 0


def sweep(
    rules: EjectionRules,
    endpoints: Sequence[EndpointView],
    now_s: float,
    random: Callable[[], int],
) -> list[Change]:
    return sweep_detections(rules, endpoints, now_s, detect(rules, endpoints, random))


def find_ejected(
    rules: EjectionRules, endpoints: Sequence[EndpointView], random: Callable[[], int]
) -> list[int]:
    found = detect(rules, endpoints, random)
    return [each.outlier.index for each in found if each.unenforced is None]


# ---------------------------------------------------------------------------------------------
# Reference implementation


class ReferenceSweep:
    """A50 with exact numbers, except that an ejected endpoint is not ejected again."""

    def __init__(
        self, rules: EjectionRules, endpoints: Sequence[EndpointView], numbers: Iterator[int]
    ) -> None:
        self.rules = rules
        self.endpoints = endpoints
        self.numbers = numbers
        self.ejected_at = [each.ejection.ejected_at_s for each in endpoints]
        self.multiplier = [each.ejection.multiplier for each in endpoints]

    def run(self) -> list[EjectionState]:
        if self.rules.success_rate is not None:
            self.success_rate(self.rules.success_rate)
        if self.rules.failure_percentage is not None:
            self.failure_percentage(self.rules.failure_percentage)
        for i in range(len(self.endpoints)):
            ejected_at = self.ejected_at[i]
            if ejected_at is None:
                self.multiplier[i] = max(self.multiplier[i] - 1, 0)
                continue
            base, most = self.rules.base_ejection_time_s, self.rules.max_ejection_time_s
            if ejected_at + min(base * self.multiplier[i], max(base, most)) < NOW_S:
                self.ejected_at[i] = None
        return [EjectionState(*each) for each in zip(self.ejected_at, self.multiplier, strict=True)]

    def success_rate(self, rule: SuccessRateEjection) -> None:
        rates = {
            i: Fraction(each.successes, each.volume)
            for i, each in enumerate(self.endpoints)
            if each.volume and each.volume >= rule.request_volume
        }
        if not rates or len(rates) < rule.minimum_hosts:
            return
        mean = sum(rates.values(), Fraction()) / len(rates)
        variance = sum(((rate - mean) ** 2 for rate in rates.values()), Fraction()) / len(rates)
        for i, rate in rates.items():
            if self.is_limit_reached():
                return
            # mean - rate > stdev × factor, squared, to avoid roots and rounding.
            below = mean - rate
            if below > 0 and below**2 > variance * Fraction(rule.stdev_factor, 1000) ** 2:
                self.draw_and_eject(i, rule.enforcement_percentage)

    def failure_percentage(self, rule: FailurePercentageEjection) -> None:
        busy = [
            i
            for i, each in enumerate(self.endpoints)
            if each.volume and each.volume >= rule.request_volume
        ]
        if len(busy) < rule.minimum_hosts:
            return
        for i in busy:
            if self.is_limit_reached():
                return
            each = self.endpoints[i]
            if Fraction(100 * each.failures, each.volume) > rule.threshold:
                self.draw_and_eject(i, rule.enforcement_percentage)

    def is_limit_reached(self) -> bool:
        ejected = sum(at is not None for at in self.ejected_at)
        percentage = Fraction(100 * ejected, len(self.endpoints))
        return ejected > 0 and percentage >= self.rules.max_ejection_percent

    def draw_and_eject(self, i: int, percentage: int) -> None:
        if self.ejected_at[i] is None and next(self.numbers) < percentage:
            self.ejected_at[i] = NOW_S
            self.multiplier[i] += 1


def after(endpoints: Sequence[EndpointView], changes: Sequence[Change]) -> list[EjectionState]:
    ejections = [each.ejection for each in endpoints]
    for change in changes:
        assert ejections[change.index] != change.ejection, "a change that changes nothing"
        ejections[change.index] = change.ejection
    return ejections


COUNTS = [(0, 0), (1, 3), (2, 2), (0, 4), (4, 0)]
RATE = SuccessRateEjection(stdev_factor=1000, minimum_hosts=2, request_volume=4)
ANY_BELOW_MEAN = SuccessRateEjection(stdev_factor=0, minimum_hosts=1, request_volume=0)
FAILED = FailurePercentageEjection(threshold=50, minimum_hosts=2, request_volume=4)
ANY_FAILED = FailurePercentageEjection(threshold=0, minimum_hosts=0, request_volume=0)


@pytest.mark.parametrize("percent", [0, 33, 34, 67, 100])
@pytest.mark.parametrize(
    ("rate", "failed"),
    [(RATE, None), (None, FAILED), (RATE, FAILED), (ANY_BELOW_MEAN, ANY_FAILED)],
)
def test_sweep_matches_the_reference_for_all_small_inputs(
    rate: SuccessRateEjection | None, failed: FailurePercentageEjection | None, percent: int
) -> None:
    rules = EjectionRules(
        max_ejection_percent=percent, success_rate=rate, failure_percentage=failed
    )
    ejections = [NEVER_EJECTED, EjectionState(NOW_S - 10, 1)]
    kinds = [EndpointView(*counts, each) for counts in COUNTS for each in ejections]
    for endpoints in itertools.product(kinds, repeat=3):
        changes = sweep(rules, endpoints, NOW_S, always)
        expected = ReferenceSweep(rules, endpoints, itertools.repeat(0)).run()
        assert after(endpoints, changes) == expected, endpoints


@pytest.mark.parametrize("ejected_at_s", [0.0, 39.0, 40.0, 69.0, 70.0, 71.0, NOW_S])
@pytest.mark.parametrize("multiplier", [1, 2, 3])
@pytest.mark.parametrize("longest_s", [0.0, 30.0, 45.0, 60.0, 300.0])
def test_endpoint_is_unejected_when_the_reference_does(
    ejected_at_s: float, multiplier: int, longest_s: float
) -> None:
    rules = EjectionRules(max_ejection_time_s=longest_s, failure_percentage=FAILED)
    endpoints = [EndpointView(0, 0, EjectionState(ejected_at_s, multiplier))]
    changes = sweep(rules, endpoints, NOW_S, always)
    assert after(endpoints, changes) == ReferenceSweep(rules, endpoints, itertools.repeat(0)).run()


views = st.builds(
    EndpointView,
    st.integers(0, 20),
    st.integers(0, 20),
    st.builds(
        EjectionState, st.none() | st.sampled_from([0.0, 50.0, 70.0, 95.0]), st.integers(0, 3)
    ).filter(lambda each: not each.is_ejected or each.multiplier > 0),
)
percents = st.integers(0, 100)
rule_sets = st.builds(
    EjectionRules,
    base_ejection_time_s=st.sampled_from([0.0, 5.0, 30.0]),
    max_ejection_time_s=st.sampled_from([0.0, 30.0, 300.0]),
    max_ejection_percent=percents,
    success_rate=st.none()
    | st.builds(
        SuccessRateEjection,
        # Not 0: then the limit is the mean, and rounding decides for a rate that equals it.
        stdev_factor=st.sampled_from([7, 500, 1900, 4001]),
        enforcement_percentage=percents,
        minimum_hosts=st.integers(0, 5),
        request_volume=st.integers(0, 10),
    ),
    failure_percentage=st.none()
    | st.builds(
        FailurePercentageEjection,
        threshold=percents,
        enforcement_percentage=percents,
        minimum_hosts=st.integers(0, 5),
        request_volume=st.integers(0, 10),
    ),
)


@given(rule_sets, st.lists(views, max_size=12), st.lists(st.integers(0, 99), min_size=24))
def test_sweep_matches_the_reference_for_random_inputs(
    rules: EjectionRules, endpoints: list[EndpointView], numbers: list[int]
) -> None:
    sweep_numbers, reference_numbers = iter(numbers), iter(numbers)
    changes = sweep(rules, endpoints, NOW_S, lambda: next(sweep_numbers))
    assert after(endpoints, changes) == ReferenceSweep(rules, endpoints, reference_numbers).run()
    assert list(sweep_numbers) == list(reference_numbers), "the number of random numbers differs"


# ---------------------------------------------------------------------------------------------
# Invariants


@given(rule_sets, st.lists(views, max_size=12), st.integers(0, 99))
def test_ejections_stop_at_the_maximum_percentage(
    rules: EjectionRules, endpoints: list[EndpointView], number: int
) -> None:
    new = find_ejected(rules, endpoints, lambda: number)
    if new:
        before_last = sum(each.ejection.is_ejected for each in endpoints) + len(new) - 1
        is_first = before_last == 0
        assert is_first or 100 * before_last < rules.max_ejection_percent * len(endpoints)


@given(rule_sets, st.lists(views, max_size=12))
def test_no_endpoint_is_ejected_without_rpcs(
    rules: EjectionRules, endpoints: list[EndpointView]
) -> None:
    idle = [EndpointView(0, 0, each.ejection) for each in endpoints]
    assert find_ejected(rules, idle, always) == []


@given(rule_sets, st.lists(views, max_size=12))
def test_no_endpoint_is_ejected_when_enforcement_never_applies(
    rules: EjectionRules, endpoints: list[EndpointView]
) -> None:
    changes = sweep(rules, endpoints, NOW_S, never)
    assert all(change.kind is not ChangeKind.EJECTED for change in changes)


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(2, 50), st.integers(0, 5000))
def test_equal_success_rates_have_no_outliers(
    successes: int, failures: int, size: int, factor: int
) -> None:
    """Rounding makes the mean of equal rates differ from them."""
    rules = SuccessRateEjection(stdev_factor=factor, minimum_hosts=0, request_volume=0)
    assert not list(find_low_success_rates(rules, [EndpointView(successes, failures)] * size))


@given(st.permutations(range(8)))
def test_outliers_do_not_depend_on_the_order(order: list[int]) -> None:
    endpoints = [EndpointView(10 * each, 70 - 10 * each) for each in range(8)]
    rates = SuccessRateEjection(stdev_factor=500, minimum_hosts=8, request_volume=1)
    failed = FailurePercentageEjection(threshold=40, request_volume=1)
    shuffled = [endpoints[place] for place in order]
    for found, again in (
        (find_low_success_rates(rates, endpoints), find_low_success_rates(rates, shuffled)),
        (
            find_high_failure_percentages(failed, endpoints),
            find_high_failure_percentages(failed, shuffled),
        ),
    ):
        assert {each.index for each in found} == {order[each.index] for each in again}


@pytest.mark.parametrize(
    ("number", "is_ejected"), [(0, True), (29, True), (30, False), (99, False)]
)
def test_endpoint_is_ejected_when_the_random_number_is_below_the_percentage(
    number: int, is_ejected: bool
) -> None:
    failed = FailurePercentageEjection(enforcement_percentage=30, minimum_hosts=1, request_volume=1)
    rules = EjectionRules(failure_percentage=failed)
    assert bool(find_ejected(rules, [EndpointView(0, 9)], lambda: number)) is is_ejected


def detections(rules: EjectionRules, *failures: int) -> list[tuple[int, str, str | None]]:
    """Index, method and unenforced reason of each outlier, of endpoints with 10 RPCs each."""
    endpoints = [EndpointView(10 - each, each) for each in failures]
    return [
        (each.outlier.index, each.outlier.method.value, each.unenforced and each.unenforced.value)
        for each in detect(rules, endpoints, always)
    ]


@pytest.mark.spec("A91-02")
def test_outliers_are_unenforced_when_the_ejection_limit_is_reached() -> None:
    failed = FailurePercentageEjection(threshold=50, minimum_hosts=1, request_volume=1)
    rules = EjectionRules(max_ejection_percent=10, failure_percentage=failed)
    overflow, method = Unenforced.MAX_EJECTION_OVERFLOW.value, Method.FAILURE_PERCENTAGE.value
    assert detections(rules, 9, 0, 9, 9) == [
        (0, method, None),
        (2, method, overflow),
        (3, method, overflow),
    ]


@pytest.mark.spec("A91-02")
def test_outliers_are_unenforced_when_the_enforcement_percentage_is_zero() -> None:
    failed = FailurePercentageEjection(
        threshold=50, enforcement_percentage=0, minimum_hosts=1, request_volume=1
    )
    rules = EjectionRules(max_ejection_percent=100, failure_percentage=failed)
    assert detections(rules, 9, 0) == [(0, "failure_percentage", "enforcement_percentage")]


@pytest.mark.spec("A91-01")
def test_an_outlier_of_both_algorithms_is_ejected_by_the_first_only() -> None:
    rules = EjectionRules(
        max_ejection_percent=100,
        success_rate=SuccessRateEjection(stdev_factor=500, minimum_hosts=3, request_volume=1),
        failure_percentage=FailurePercentageEjection(
            threshold=50, minimum_hosts=1, request_volume=1
        ),
    )
    assert detections(rules, 0, 0, 9) == [(2, "success_rate", None)]


# ---------------------------------------------------------------------------------------------
# Reasons


def test_each_change_has_a_reason() -> None:
    rules = EjectionRules(
        max_ejection_percent=100,
        success_rate=SuccessRateEjection(stdev_factor=1900, minimum_hosts=5, request_volume=10),
        failure_percentage=FailurePercentageEjection(minimum_hosts=1, request_volume=2),
    )
    endpoints = [
        EndpointView(2, 8),
        *[EndpointView(10, 0)] * 4,
        EndpointView(0, 2),
        EndpointView(0, 0, EjectionState(0, 2)),
        EndpointView(0, 0, EjectionState(None, 2)),
        EndpointView(0, 0, EjectionState(99, 1)),
    ]
    assert sweep(rules, endpoints, NOW_S, always) == [
        Change(
            0,
            ChangeKind.EJECTED,
            EjectionState(NOW_S, 1),
            "success rate 0.2 is below 0.232, the mean is 0.84",
        ),
        Change(
            5, ChangeKind.EJECTED, EjectionState(NOW_S, 1), "2 of 2 RPCs failed, more than 85 %"
        ),
        Change(6, ChangeKind.UNEJECTED, EjectionState(None, 2), "60 s are over"),
        Change(
            7,
            ChangeKind.MULTIPLIER_DECREMENTED,
            EjectionState(None, 1),
            "was not ejected in the interval",
        ),
    ]
