"""In which state is a policy whose children are in these states?

Specs: RR-02, WT-03 and A62 (sticky TRANSIENT_FAILURE).

Counting makes the answer independent of the number of children. Policies with a rule of their own
(ring_hash) read the counts.
"""

from typing import Final

from proxyless.base import State

_NONE: Final = dict.fromkeys(State, 0)

# The first state that any child is in decides what is shown; TRANSIENT_FAILURE if none is listed.
Ranking = tuple[tuple[State, State], ...]

# For policies that connect by themselves: an IDLE child is about to be connected.
IDLE_IS_CONNECTING: Final[Ranking] = (
    (State.READY, State.READY),
    (State.CONNECTING, State.CONNECTING),
    (State.IDLE, State.CONNECTING),
)

# For policies whose children may well rest.
IDLE_IS_IDLE: Final[Ranking] = (
    (State.READY, State.READY),
    (State.CONNECTING, State.CONNECTING),
    (State.IDLE, State.IDLE),
)


class StateCounts(dict[State, int]):
    """Number of children in each state. Changed by the owner of the children."""

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


def aggregate(counts: StateCounts, ranking: Ranking) -> State:
    """The state to show for all children together."""
    for state, shown in ranking:
        if counts[state]:
            return shown
    return State.TRANSIENT_FAILURE


def stick(before: State, reported: State) -> State:
    """The state to count a child with: one that fails is failing until it is READY."""
    if before is State.TRANSIENT_FAILURE and reported is not State.READY:
        return before
    return reported
