"""Unit tests of proxyless.lb.policies.weighted_round_robin.stride."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.lb.policies.weighted_round_robin.stride import (
    STRIDE_MAX,
    StrideScheduler,
    choose_strides,
)

WEIGHTS = st.lists(
    st.one_of(st.just(0.0), st.floats(min_value=5e-324, max_value=1.7e308)), min_size=1, max_size=30
)


def take(scheduler: StrideScheduler, count: int) -> list[int]:
    return [scheduler.next_index() for _ in range(count)]


# ---------------------------------------------------------------------------------------------
# Strides


@pytest.mark.parametrize("weights", [[0.0], [0.0, 0.0], [5.0], [0.0, 5.0, 0.0], [2.0, 2.0, 2.0]])
def test_strides_are_equal_with_fewer_than_two_weights_or_equal_ones(weights: list[float]) -> None:
    assert choose_strides(weights) == [STRIDE_MAX] * len(weights)


def test_strides_are_proportional_to_weights() -> None:
    assert choose_strides([1.0, 2.0, 3.0]) == [STRIDE_MAX // 3, 2 * STRIDE_MAX // 3, STRIDE_MAX]


def test_unknown_weight_gets_the_mean_of_the_others() -> None:
    assert choose_strides([1.0, 0.0, 3.0]) == choose_strides([1.0, 2.0, 3.0])


@given(WEIGHTS)
def test_strides_are_bounded_for_any_weights(weights: list[float]) -> None:
    strides = choose_strides(weights)
    assert len(strides) == len(weights)
    assert max(strides) == STRIDE_MAX
    assert min(strides) >= STRIDE_MAX // 1000


@given(st.lists(st.integers(1, 16), min_size=2, max_size=6))
def test_ratios_of_small_numbers_are_exact(weights: list[int]) -> None:
    scheduler = StrideScheduler([float(weight) for weight in weights], start=12_345)
    turns = Counter(take(scheduler, 3 * sum(weights)))
    assert turns == {index: 3 * weight for index, weight in enumerate(weights)}


# ---------------------------------------------------------------------------------------------
# Choices


@pytest.mark.parametrize("start", range(0, 4_000_000, 123_457))
def test_any_six_consecutive_choices_are_in_the_ratio_1_2_3(start: int) -> None:
    turns = take(StrideScheduler([1.0, 2.0, 3.0], start), 36)
    for first in range(30):
        assert Counter(turns[first : first + 6]) == {0: 1, 1: 2, 2: 3}


@given(WEIGHTS, st.integers(0, 2**32))
def test_choices_differ_from_the_exact_share_by_two_at_most(
    weights: list[float], start: int
) -> None:
    strides = choose_strides(weights)
    turns = Counter(take(StrideScheduler(weights, start), 300))
    # The index with the largest weight is chosen in every round.
    rounds = turns[strides.index(STRIDE_MAX)]
    for index, stride in enumerate(strides):
        assert abs(turns[index] - rounds * stride / STRIDE_MAX) <= 2


@given(WEIGHTS, st.integers(0, 2**32))
def test_index_with_the_largest_weight_is_chosen_in_every_round(
    weights: list[float], start: int
) -> None:
    """Therefore a choice takes at most as many visits as there are indices."""
    heaviest = choose_strides(weights).index(STRIDE_MAX)
    turns = take(StrideScheduler(weights, start), 200)
    assert heaviest in turns[: len(weights)]
    at = [number for number, index in enumerate(turns) if index == heaviest]
    assert all(later - earlier <= len(weights) for earlier, later in pairwise(at))


@pytest.mark.parametrize("size", [12, 1_000])
def test_choice_takes_few_visits_when_weights_are_moderate(size: int) -> None:
    weights = [1.0 + index % 4 for index in range(size)]
    turns = take(StrideScheduler(weights, start=7), 1_000)
    steps = sum((later - earlier - 1) % size + 1 for earlier, later in pairwise(turns))
    assert steps / len(turns) < 4 / 2.5 + 0.1


def test_scheduler_starts_at_the_given_index() -> None:
    starts = [StrideScheduler([0.0] * 3, start) for start in range(4)]
    assert [each.next_index() for each in starts] == [0, 1, 2, 0]


def test_choices_of_small_weights_are_spread_over_rounds() -> None:
    """Of ten indices that are chosen every ten rounds, about one is chosen in each round."""
    weights = [1.0] * 10 + [10.0]
    turns = take(StrideScheduler(weights, start=0), 200)
    rounds = "".join("|" if index == 10 else "x" for index in turns).split("|")
    assert max(map(len, rounds)) <= 3


def test_new_weights_apply_from_the_next_choice() -> None:
    scheduler = StrideScheduler([0.0, 0.0], start=0)
    assert take(scheduler, 3) == [0, 1, 0]
    scheduler.set_weights([1.0, 3.0])
    assert Counter(take(scheduler, 400)) == {0: 100, 1: 300}


def test_set_weights_changes_nothing_when_the_weights_are_equal() -> None:
    one, other = (StrideScheduler([1.0, 2.5, 4.0], start=3) for _ in range(2))
    for _ in range(100):
        other.set_weights([1.0, 2.5, 4.0])
        assert one.next_index() == other.next_index()
