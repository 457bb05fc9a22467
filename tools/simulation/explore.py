"""Exhaustive exploration of the event orders of a small world.

A story is a function that creates a new world and calls its `Chooser` for the next event, until
that returns None. `explore` runs the story once for each order of events up to some depth. Each run
starts from the beginning, so the world must be deterministic.

If the story passes the state of its world, an order that reaches an earlier state is not followed
further. The state must contain everything that later events and checks depend on. The count of
orders is exact in any case.

The search is breadth first, so a violation is found in the fewest steps. Random orders of large
worlds are in `scenario`.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

T = TypeVar("T")

# The search ends then: one bug causes violations in thousands of orders.
VIOLATIONS_MAX: Final = 5


class Chooser:
    """Chooses the events of one run of a story. Called by the story."""

    __slots__ = ("_path", "labels", "options", "state")

    def __init__(self, path: Sequence[int]) -> None:
        # The index of the option at each choice.
        self._path: Final = path
        # The chosen options as text.
        self.labels: list[str] = []
        # At the end of the path: the number of options, and the state there. Without a state from
        # the story, each path has its own state.
        self.options: int | None = None
        self.state: Hashable = tuple(path)

    def choose(self, options: Sequence[T], state: Callable[[], Hashable] | None = None) -> T | None:
        """Choose an option. Returns None if the story has to end, and if there are no options."""
        assert self.options is None, "the story calls again after None"
        step = len(self.labels)
        if step == len(self._path):
            self.options = len(options)
            if state is not None:
                self.state = state()
            return None
        chosen = options[self._path[step]]
        self.labels.append(str(chosen))
        return chosen


@frozen
class Violation:
    """An order in which a check failed."""

    order: tuple[str, ...]
    error: Exception

    def __str__(self) -> str:
        # Assertion texts of pytest have several lines.
        text = str(self.error).partition("\n")[0]
        return f"{' > '.join(self.order)}: {type(self.error).__name__}: {text}"


@frozen
class Exploration:
    """Result of an exploration. Counts are exact unless violations ended it early."""

    depth: int
    # Sequences of `depth` steps, and shorter ones without a next step.
    orders: int
    # Distinct states, including the first one.
    states: int
    # Number of runs of the story.
    runs: int
    # Runs that reached an earlier state.
    pruned: int
    # Whether the last step led to no new state, so that longer orders have no new states either.
    is_complete: bool
    violations: tuple[Violation, ...]

    def __str__(self) -> str:
        last = "all there are" if self.is_complete else "more beyond"
        return (
            f"depth {self.depth}, {self.orders:,} orders, {self.states:,} distinct states "
            f"({last}), {self.runs:,} runs, {len(self.violations)} violations"
        )


@dataclass(slots=True)
class _Search:
    """State of the search. States have numbers, in the order in which they were found."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    # By number: the states that the options lead to.
    successors: list[list[int]] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    runs: int = 0
    pruned: int = 0

    def run(self, story: Callable[[Chooser], None], path: tuple[int, ...]) -> tuple[int, int]:
        """Run the story along a path: the number of the state at its end, and its new options."""
        self.runs += 1
        chooser = Chooser(path)
        try:
            story(chooser)
        except Exception as error:  # Every exception is a violation.
            self.violations.append(Violation(tuple(chooser.labels), error))
            return self._number(("violation", path)), 0
        assert chooser.options is not None, f"the story ended by itself after {chooser.labels}"
        if chooser.state in self.numbers:
            self.pruned += 1
            return self.numbers[chooser.state], 0
        return self._number(chooser.state), chooser.options

    def _number(self, state: Hashable) -> int:
        self.successors.append([])
        return self.numbers.setdefault(state, len(self.numbers))

    def count_orders(self, depth: int) -> int:
        """Paths from the first state with this many steps, or to a state without successors."""
        ended, ways = 0, Counter({0: 1})
        for _ in range(depth):
            longer: Counter[int] = Counter()
            for number, times in ways.items():
                if not self.successors[number]:
                    ended += times
                for successor in self.successors[number]:
                    longer[successor] += times
            ways = longer
        return ended + ways.total()


def explore(
    story: Callable[[Chooser], None], depth: int, *, violations_max: int = VIOLATIONS_MAX
) -> Exploration:
    """Run the story in every order of at most `depth` steps."""
    search = _Search()
    number, options = search.run(story, ())
    # Paths to new states, the numbers of these states, and the numbers of their options.
    frontier: deque[tuple[tuple[int, ...], int, int]] = deque([((), number, options)])
    deepest_new = 0
    while frontier and len(search.violations) < violations_max:
        path, number, options = frontier.popleft()
        if len(path) == depth:
            break
        for option in range(options):
            longer = (*path, option)
            seen_before = len(search.numbers)
            successor, its_options = search.run(story, longer)
            search.successors[number].append(successor)
            if len(search.numbers) > seen_before:
                deepest_new = len(longer)
                frontier.append((longer, successor, its_options))
    return Exploration(
        depth=depth,
        orders=search.count_orders(depth),
        states=len(search.numbers),
        runs=search.runs,
        pruned=search.pruned,
        is_complete=deepest_new < depth and not search.violations,
        violations=tuple(search.violations[:violations_max]),
    )
