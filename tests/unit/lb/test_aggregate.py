"""Unit tests of proxyless.lb.aggregate."""

from itertools import product

import pytest

from proxyless.base import State
from proxyless.lb.aggregate import (
    IDLE_IS_CONNECTING,
    IDLE_IS_IDLE,
    StateCounts,
    aggregate,
    sticky_state,
)

IDLE, C, R, F = State.IDLE, State.CONNECTING, State.READY, State.TRANSIENT_FAILURE
STATES = (IDLE, C, R, F)


def counts_of(*states: State) -> StateCounts:
    counts = StateCounts()
    for state in states:
        counts.add(state)
    return counts


@pytest.mark.parametrize("states", list(product(STATES, repeat=3)))
def test_aggregate_returns_the_state_of_highest_precedence(states: tuple[State, ...]) -> None:
    best = min(states, key=(R, C, IDLE, F).index)
    assert aggregate(counts_of(*states), IDLE_IS_IDLE) is best
    assert aggregate(counts_of(*states), IDLE_IS_CONNECTING) is (C if best is IDLE else best)


def test_aggregate_returns_transient_failure_without_children() -> None:
    assert aggregate(StateCounts(), IDLE_IS_IDLE) is F
    assert aggregate(StateCounts(), IDLE_IS_CONNECTING) is F


def test_counts_change_with_add_move_and_remove() -> None:
    counts = counts_of(C, C, F)
    counts.move(C, R)
    counts.move(F, F)
    counts.remove(F)
    assert [counts[state] for state in STATES] == [0, 1, 1, 0]


@pytest.mark.parametrize("change", [lambda c: c.remove(R), lambda c: c.move(R, C)])
def test_counts_raise_when_a_state_has_no_child(change: object) -> None:
    assert callable(change)
    with pytest.raises(AssertionError, match="a child in READY was counted"):
        change(counts_of(C))


@pytest.mark.parametrize(("before", "reported"), list(product(STATES, repeat=2)))
def test_sticky_state_leaves_transient_failure_only_for_ready(
    before: State, reported: State
) -> None:
    expected = F if before is F and reported is not R else reported
    assert sticky_state(before, reported) is expected
