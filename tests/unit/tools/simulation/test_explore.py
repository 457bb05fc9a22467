"""Unit tests of tools.simulation.explore."""

from collections.abc import Callable, Hashable
from itertools import product
from math import comb

import pytest

from tools.simulation.explore import VIOLATIONS_MAX, Chooser, Exploration, explore


def words(letters: str, told: list[str]) -> Callable[[Chooser], None]:
    """A story whose every moment is noted."""

    def story(chooser: Chooser) -> None:
        word = ""
        while (letter := chooser.choose(letters)) is not None:
            word += letter
        told.append(word)

    return story


def test_every_order_is_told_once_shorter_ones_first() -> None:
    told: list[str] = []
    found = explore(words("abc", told), 3)
    assert told == ["".join(each) for size in range(4) for each in product("abc", repeat=size)]
    assert (found.orders, found.states, found.runs) == (27, 1 + 3 + 9 + 27, 40)
    assert (found.pruned, found.is_complete, found.violations) == (0, False, ())


def test_no_steps_are_one_order() -> None:
    told: list[str] = []
    found = explore(words("ab", told), 0)
    assert told == [""]
    assert (found.orders, found.states) == (1, 1)


def walk(chooser: Chooser) -> None:
    """On a grid, to the right and up: where one is does not say how one came."""
    at = [0, 0]
    while (step := chooser.choose((0, 1), lambda: tuple(at))) is not None:
        at[step] += 1


def test_states_that_were_there_are_not_followed_and_their_orders_count() -> None:
    found = explore(walk, 20)
    assert found.orders == 2**20
    assert found.states == sum(depth + 1 for depth in range(21))
    # From each place that is not on the edge, two ways; most of them meet.
    assert found.runs == 1 + 2 * sum(depth + 1 for depth in range(20))
    assert found.pruned == found.runs - found.states
    assert not found.is_complete


def small_walk(chooser: Chooser) -> None:
    """The same on a board of 3 by 3, from one corner to the other."""
    at = [0, 0]
    while (
        step := chooser.choose([way for way in (0, 1) if at[way] < 2], lambda: tuple(at))
    ) is not None:
        at[step] += 1


@pytest.mark.parametrize(("depth", "orders"), [(2, 4), (3, 6), (4, comb(4, 2)), (9, comb(4, 2))])
def test_orders_that_end_count_once(depth: int, orders: int) -> None:
    assert explore(small_walk, depth).orders == orders


def test_it_says_when_there_is_nothing_more_to_see() -> None:
    assert not explore(small_walk, 4).is_complete
    assert explore(small_walk, 5).is_complete


def lamp(chooser: Chooser, *, with_state: bool = True) -> None:
    """Two states for ever."""
    is_on = False

    def state() -> Hashable:
        return is_on

    while (step := chooser.choose(("on", "off"), state if with_state else None)) is not None:
        is_on = step == "on"


def test_a_state_that_returns_is_followed_once_and_counted_as_often_as_it_comes() -> None:
    found = explore(lamp, 10)
    assert (found.orders, found.states, found.runs) == (2**10, 2, 5)
    assert found.is_complete


def test_with_and_without_states_the_counts_are_the_same() -> None:
    told = explore(lambda chooser: lamp(chooser, with_state=False), 7)
    assert told.orders == explore(lamp, 7).orders == 2**7
    assert told.runs == 2**8 - 1


def breaks_on(word: str) -> Callable[[Chooser], None]:
    def story(chooser: Chooser) -> None:
        said = ""
        while (letter := chooser.choose("ab")) is not None:
            said += letter
            assert not said.endswith(word), f"said {word}"

    return story


def test_what_breaks_is_found_in_the_fewest_steps() -> None:
    found = explore(breaks_on("aba"), 6)
    assert found.violations[0].order == ("a", "b", "a")
    assert str(found.violations[0]).startswith("a > b > a: AssertionError: said aba")
    assert not found.is_complete
    assert "5 violations" in str(found)


def test_it_stops_when_it_has_seen_enough() -> None:
    assert len(explore(breaks_on("a"), 9).violations) == VIOLATIONS_MAX
    first = explore(breaks_on("a"), 9, violations_max=1)
    assert len(first.violations) == 1
    assert first.runs < 5


def test_after_what_broke_nothing_is_tried() -> None:
    told = explore(breaks_on("b"), 3, violations_max=100)
    assert [each.order for each in told.violations] == [("b",), ("a", "b"), ("a", "a", "b")]


def test_a_story_that_breaks_at_once_is_a_violation_without_steps() -> None:
    def story(chooser: Chooser) -> None:
        raise RuntimeError("no world")

    [violation] = explore(story, 3).violations
    assert str(violation) == ": RuntimeError: no world"


def test_a_story_must_end_when_it_is_told_to() -> None:
    def story(chooser: Chooser) -> None:
        chooser.choose("a")
        chooser.choose("a")

    [violation] = explore(story, 1).violations
    assert "calls again" in str(violation)


def test_a_story_that_ends_by_itself_is_misuse() -> None:
    with pytest.raises(AssertionError, match="ended by itself"):
        explore(lambda chooser: None, 1)


def test_the_result_reads_as_a_sentence() -> None:
    found = Exploration(7, 78_125, 3_412, 9_000, 5_588, False, ())
    text = "depth 7, 78,125 orders, 3,412 distinct states (more beyond), 9,000 runs, "
    assert str(found) == f"{text}0 violations"
