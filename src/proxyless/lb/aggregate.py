"""Aggregation of the children's connectivity states into one state.

Specs: RR-02, WT-03 and A62 (sticky TRANSIENT_FAILURE).

The cost does not depend on the number of children: states are counted. ring_hash has a rule of its
own and reads the counts.
"""

from typing import Final

from proxyless.base import State

_NONE: Final = dict.fromkeys(State, 0)

# Pairs of a child state and the aggregated state. The first pair whose child state occurs applies;
# without one the aggregated state is TRANSIENT_FAILURE.
Precedence = tuple[tuple[State, State], ...]

# For policies that connect IDLE children at once.
IDLE_IS_CONNECTING: Final[Precedence] = (
    (State.READY, State.READY),
    (State.CONNECTING, State.CONNECTING),
    (State.IDLE, State.CONNECTING),
)

# For policies whose children may stay IDLE.
IDLE_IS_IDLE: Final[Precedence] = (
    (State.READY, State.READY),
    (State.CONNECTING, State.CONNECTING),
    (State.IDLE, State.IDLE),
)


class StateCounts(dict[State, int]):
    """Number of children in each state."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_NONE)

    def add(self, state: State) -> None:
        self[state] += 1

    def remove(self, state: State) -> None:
        assert self[state] > 0, f"a child in {state} was counted"
        self[state] -= 1

    def move(self, before: State, after: State) -> None:
        if before is not after:
            self.remove(before)
            self.add(after)


def aggregate(counts: StateCounts, precedence: Precedence) -> State:
    for child_state, state in precedence:
        if counts[child_state]:
            return state
    return State.TRANSIENT_FAILURE


def sticky_state(before: State, reported: State) -> State:
    """State to count a child as: TRANSIENT_FAILURE is sticky until the child reports READY."""
    if before is State.TRANSIENT_FAILURE and reported is not State.READY:
        return before
    return reported
