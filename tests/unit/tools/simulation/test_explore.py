"""Unit tests of tools.simulation.explore."""

from collections.abc import Callable, Hashable
from itertools import product
from math import comb

import pytest

from tools.simulation.explore import VIOLATIONS_MAX, Chooser, Exploration, explore


def words(letters: str, orders: list[str]) -> Callable[[Chooser], None]:
    """A story that records the order of its steps."""

    def story(chooser: Chooser) -> None:
        word = ""
        while (letter := chooser.choose(letters)) is not None:
            word += letter
        orders.append(word)

    return story


def test_every_order_is_run_once_shorter_ones_first() -> None:
    orders: list[str] = []
    found = explore(words("abc", orders), 3)
    assert orders == ["".join(each) for size in range(4) for each in product("abc", repeat=size)]
    assert (found.orders, found.states, found.runs) == (27, 1 + 3 + 9 + 27, 40)
    assert (found.pruned, found.is_complete, found.violations) == (0, False, ())


def test_no_steps_are_one_order() -> None:
    orders: list[str] = []
    found = explore(words("ab", orders), 0)
    assert orders == [""]
    assert (found.orders, found.states) == (1, 1)


def walk(chooser: Chooser) -> None:
    """A walk on a grid, to the right and up: several orders lead to the same place."""
    at = [0, 0]
    while (step := chooser.choose((0, 1), lambda: tuple(at))) is not None:
        at[step] += 1


def test_repeated_states_are_pruned_and_their_orders_counted() -> None:
    found = explore(walk, 20)
    assert found.orders == 2**20
    assert found.states == sum(depth + 1 for depth in range(21))
    # From each place that is not on the edge, two ways; most of them meet.
    assert found.runs == 1 + 2 * sum(depth + 1 for depth in range(20))
    assert found.pruned == found.runs - found.states
    assert not found.is_complete


def small_walk(chooser: Chooser) -> None:
    """The same on a grid of 3 by 3, from one corner to the other."""
    at = [0, 0]
    while (
        step := chooser.choose([way for way in (0, 1) if at[way] < 2], lambda: tuple(at))
    ) is not None:
        at[step] += 1


@pytest.mark.parametrize(("depth", "orders"), [(2, 4), (3, 6), (4, comb(4, 2)), (9, comb(4, 2))])
def test_orders_that_end_count_once(depth: int, orders: int) -> None:
    assert explore(small_walk, depth).orders == orders


def test_exploration_is_complete_when_no_state_is_beyond_the_depth() -> None:
    assert not explore(small_walk, 4).is_complete
    assert explore(small_walk, 5).is_complete


def lamp(chooser: Chooser, *, with_state: bool = True) -> None:
    """A lamp with two states, switched any number of times."""
    is_on = False

    def state() -> Hashable:
        return is_on

    while (step := chooser.choose(("on", "off"), state if with_state else None)) is not None:
        is_on = step == "on"


def test_recurring_state_is_followed_once_and_its_orders_are_counted() -> None:
    found = explore(lamp, 10)
    assert (found.orders, found.states, found.runs) == (2**10, 2, 5)
    assert found.is_complete


def test_orders_are_equal_with_and_without_states() -> None:
    found = explore(lambda chooser: lamp(chooser, with_state=False), 7)
    assert found.orders == explore(lamp, 7).orders == 2**7
    assert found.runs == 2**8 - 1


def breaks_on(word: str) -> Callable[[Chooser], None]:
    def story(chooser: Chooser) -> None:
        word_so_far = ""
        while (letter := chooser.choose("ab")) is not None:
            word_so_far += letter
            assert not word_so_far.endswith(word), f"ends with {word}"

    return story


def test_violation_is_found_in_the_fewest_steps() -> None:
    found = explore(breaks_on("aba"), 6)
    assert found.violations[0].order == ("a", "b", "a")
    assert str(found.violations[0]).startswith("a > b > a: AssertionError: ends with aba")
    assert not found.is_complete
    assert "5 violations" in str(found)


def test_exploration_stops_at_the_maximum_of_violations() -> None:
    assert len(explore(breaks_on("a"), 9).violations) == VIOLATIONS_MAX
    first = explore(breaks_on("a"), 9, violations_max=1)
    assert len(first.violations) == 1
    assert first.runs < 5


def test_orders_after_a_violation_are_not_run() -> None:
    found = explore(breaks_on("b"), 3, violations_max=100)
    assert [each.order for each in found.violations] == [("b",), ("a", "b"), ("a", "a", "b")]


def test_story_that_raises_at_once_is_a_violation_without_steps() -> None:
    def story(chooser: Chooser) -> None:
        raise RuntimeError("no world")

    [violation] = explore(story, 3).violations
    assert str(violation) == ": RuntimeError: no world"


def test_story_that_chooses_after_its_end_is_a_violation() -> None:
    def story(chooser: Chooser) -> None:
        chooser.choose("a")
        chooser.choose("a")

    [violation] = explore(story, 1).violations
    assert "calls again" in str(violation)


def test_story_that_ends_by_itself_is_misuse() -> None:
    with pytest.raises(AssertionError, match="ended by itself"):
        explore(lambda chooser: None, 1)


def test_the_result_reads_as_a_sentence() -> None:
    found = Exploration(7, 78_125, 3_412, 9_000, 5_588, False, ())
    text = "depth 7, 78,125 orders, 3,412 distinct states (more beyond), 9,000 runs, "
    assert str(found) == f"{text}0 violations"
