"""Do the promises hold in every order of events, up to a depth that a test can afford?

`make interleavings` goes deeper. Both stories have rules of their own beside the product
(`tear_orders`, `priority_orders`); that a broken product is noticed is shown by `make mutants`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

import pytest

from tests.sim import priority_orders, tear_orders
from tools.simulation.explore import Chooser, explore

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

T = TypeVar("T")

TELLERS = [tear_orders.tell, priority_orders.tell]


# A short look first: what is plainly broken is said within a second.
@pytest.mark.timeout(240)
@pytest.mark.spec("A31-32", "A31-33", "A31-38", "A74-05", "A74-16", "A74-17", "A74-18")
@pytest.mark.parametrize(("depth", "orders"), [(5, 15_181), (7, 939_520)])
def test_changes_that_overlap_are_met_whole_in_every_order(depth: int, orders: int) -> None:
    found = explore(tear_orders.tell, depth)
    assert not found.violations, str(found.violations[0])
    assert found.orders == orders


@pytest.mark.timeout(240)
@pytest.mark.spec("A56-26", "A56-29", "A56-33", "A56-43", "A56-45", "A56-46", "A56-58", "A56-59")
@pytest.mark.parametrize(("depth", "orders"), [(3, 2_460), (5, 656_293)])
def test_priorities_that_flap_are_chosen_by_the_rules_in_every_order(
    depth: int, orders: int
) -> None:
    found = explore(priority_orders.tell, depth)
    assert not found.violations, str(found.violations[0])
    assert found.orders == orders


# ---------------------------------------------------------------------------------------------
# Whether states that are taken for one are one


class Blind:
    """Chooses as another does, and forgets states; but notes which state led to which."""

    def __init__(self, chooser: Chooser, known: dict[Hashable, Hashable]) -> None:
        self._chooser = chooser
        self._known = known
        self._way: Hashable = None

    def choose(self, options: Sequence[T], state: Callable[[], Hashable]) -> T | None:
        here = state()
        if self._way is not None:
            assert self._known.setdefault(self._way, here) == here, f"{self._way} was two states"
        chosen = self._chooser.choose(options)
        self._way = (here, str(chosen))
        return chosen


@pytest.mark.parametrize("tell", TELLERS)
def test_states_that_are_taken_for_one_lead_to_the_same_states(
    tell: Callable[[Chooser], None],
) -> None:
    known: dict[Hashable, Hashable] = {}
    depth = 3

    def story(chooser: Chooser) -> None:
        tell(cast("Chooser", Blind(chooser, known)))

    blind, pruned = explore(story, depth), explore(tell, depth)
    assert not blind.violations, str(blind.violations[0])
    assert blind.orders == pruned.orders
    assert (blind.pruned, blind.states) == (0, blind.tellings)
    assert pruned.tellings < blind.tellings
    assert len(set(known.values())) <= pruned.states
