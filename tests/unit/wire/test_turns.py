"""Unit tests of proxyless.wire.turns."""

from functools import partial
from itertools import pairwise

from proxyless.wire.limits import COST_PER_TURN_MAX
from proxyless.wire.turns import Turns
from tests.worlds.wire import ManualTurns


def test_budget_is_unlimited_without_a_schedule() -> None:
    turns = Turns()
    turns.left -= 1 << 60
    assert turns.left > 0


def test_deferred_actions_run_in_the_next_turn_once_and_in_order() -> None:
    turns, ran = ManualTurns(), list[str]()

    def first() -> None:
        ran.append("first")

    def second() -> None:
        ran.append("second")

    for action in (second, first, second):
        turns.defer(action)
    assert ran == []
    assert turns.take()
    assert ran == ["second", "first"]
    assert not turns.take()


def test_budget_is_filled_up_when_a_turn_with_deferred_actions_begins() -> None:
    turns = ManualTurns()
    turns.left = -5
    turns.defer(lambda: None)
    assert turns.left == -5
    turns.take()
    assert turns.left == COST_PER_TURN_MAX


def test_actions_that_find_the_budget_used_up_are_first_in_the_next_turn() -> None:
    turns, ran = ManualTurns(), list[int]()

    def spend(number: int) -> None:
        ran.append(number)
        turns.left -= COST_PER_TURN_MAX
        if number < 3:
            turns.defer(partial(spend, number + 10))

    for number in range(4):
        turns.defer(partial(spend, number))
    for _ in range(4):
        turns.take()
    assert ran == [0, 1, 2, 3]
    turns.take_all()
    assert ran == [0, 1, 2, 3, 10, 11, 12]


def test_items_beyond_the_budget_are_spread_over_the_next_turns_in_order() -> None:
    turns, acted = ManualTurns(), list[int]()
    turns.spread(range(25), COST_PER_TURN_MAX // 10, acted.append)
    counts = [len(acted)]
    while turns.take():
        counts.append(len(acted))
    assert counts[0] < 25
    assert acted == list(range(25))
    assert max(after - before for before, after in pairwise([0, *counts])) <= 11
