"""Exhaustive orders of events, up to a depth that a test can afford.

`make interleavings` goes deeper. Both stories (`tear_orders`, `priority_orders`) have their own
rules; `make mutants` shows that they detect a broken product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

import pytest

from tests.sim import priority_orders, tear_orders
from tools.simulation.explore import Chooser, explore

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

T = TypeVar("T")

STORIES = [tear_orders.run_story, priority_orders.run_story]


# A small depth first, so that an obvious bug is reported within a second.
@pytest.mark.spec(
    "A31-32",
    "A31-33",
    "A31-38",
    "A74-05",
    "A74-16",
    "A74-17",
    "A74-18",
    reason="each order of events is checked against all of them",
)
@pytest.mark.parametrize(("depth", "orders"), [(5, 15_181), (7, 939_520)])
def test_rpcs_see_no_part_of_overlapping_changes_in_every_order(depth: int, orders: int) -> None:
    found = explore(tear_orders.run_story, depth)
    assert not found.violations, str(found.violations[0])
    assert found.orders == orders


@pytest.mark.spec(
    "A56-26",
    "A56-29",
    "A56-33",
    "A56-43",
    "A56-45",
    "A56-46",
    "A56-58",
    "A56-59",
    reason="each order of events is compared with the pseudo-code",
)
@pytest.mark.parametrize(("depth", "orders"), [(3, 2_460), (5, 656_293)])
def test_priority_policy_follows_the_rules_in_every_order(depth: int, orders: int) -> None:
    found = explore(priority_orders.run_story, depth)
    assert not found.violations, str(found.violations[0])
    assert found.orders == orders


# ---------------------------------------------------------------------------------------------
# Check of the fingerprints: equal states must have equal successors


class StatelessChooser:
    """Chooser that does not pass states on, but records the successor of each state and event."""

    def __init__(self, chooser: Chooser, successors: dict[Hashable, Hashable]) -> None:
        self._chooser = chooser
        self._successors = successors
        self._last: Hashable = None

    def choose(self, options: Sequence[T], state: Callable[[], Hashable]) -> T | None:
        here = state()
        if self._last is not None:
            known = self._successors.setdefault(self._last, here)
            assert known == here, f"{self._last} has two successors"
        chosen = self._chooser.choose(options)
        self._last = (here, str(chosen))
        return chosen


@pytest.mark.parametrize("story", STORIES)
def test_equal_states_have_equal_successors(story: Callable[[Chooser], None]) -> None:
    successors: dict[Hashable, Hashable] = {}
    depth = 3

    def stateless_story(chooser: Chooser) -> None:
        story(cast("Chooser", StatelessChooser(chooser, successors)))

    blind, pruned = explore(stateless_story, depth), explore(story, depth)
    assert not blind.violations, str(blind.violations[0])
    assert blind.orders == pruned.orders
    assert (blind.pruned, blind.states) == (0, blind.runs)
    assert pruned.runs < blind.runs
    assert len(set(successors.values())) <= pruned.states
