"""Exhaustive exploration of the orders in which the events of a small world can come.

A story is a function that makes a fresh world and asks its `Chooser` what happens next, until that
says None. `explore` calls it again and again, so that after so many steps every order has been
seen. Nothing is copied or undone: to come to a moment is to live through all of it again, which
is right for any world that is the same each time.

If the story says in which state its world is, an order that comes to a state that was there before
is not followed further: what can happen from there has been tried, or will be. The state has to
hold all that the future depends on, checks included. Orders are counted all the same, exactly.

Moments are visited breadth first, so what is found is found in the fewest steps. This is for small
worlds and all orders; for large worlds and orders by chance see `scenario`.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

T = TypeVar("T")

# What broke is clear from a few; a broken rule breaks in thousands of orders.
VIOLATIONS_MAX: Final = 5


class Chooser:
    """Says what happens next in one telling of a story. Driven by the story."""

    __slots__ = ("_path", "labels", "options", "state")

    def __init__(self, path: Sequence[int]) -> None:
        # Fixed at construction: which option to take, at each choice.
        self._path: Final = path
        # What was chosen so far, for people to read.
        self.labels: list[str] = []
        # At the end of the path: how many ways lead on, and the state there. A story that does
        # not say in which state it is, is in a state of its own on each path.
        self.options: int | None = None
        self.state: Hashable = tuple(path)

    def choose(self, options: Sequence[T], state: Callable[[], Hashable] | None = None) -> T | None:
        """One of these, or None: the story is to end here. Also None if there are none."""
        assert self.options is None, "the story was told to end, and asks again"
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
    """An order in which something did not hold."""

    order: tuple[str, ...]
    error: Exception

    def __str__(self) -> str:
        # An assertion that pytest explains has many lines.
        text = str(self.error).partition("\n")[0]
        return f"{' > '.join(self.order)}: {type(self.error).__name__}: {text}"


@frozen
class Exploration:
    """What came of it. Counts are exact, unless there were violations: those end it early."""

    depth: int
    # Sequences of that many steps, and shorter ones after which nothing can happen.
    orders: int
    # States that differ, the first one included.
    states: int
    # How often the story was told.
    tellings: int
    # Tellings that came to a state that was there before.
    pruned: int
    # Whether the last step led to no new state: then no longer order can show anything new.
    is_complete: bool
    violations: tuple[Violation, ...]

    def __str__(self) -> str:
        last = "all there are" if self.is_complete else "more beyond"
        return (
            f"depth {self.depth}, {self.orders:,} orders, {self.states:,} distinct states "
            f"({last}), {self.tellings:,} tellings, {len(self.violations)} violations"
        )


@dataclass(slots=True)
class _Search:
    """What is known so far. States have numbers, in the order in which they were first seen."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    # By number: which states each option leads to.
    successors: list[list[int]] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    tellings: int = 0
    pruned: int = 0

    def tell(self, story: Callable[[Chooser], None], path: tuple[int, ...]) -> tuple[int, int]:
        """To the end of this path: the number of the state there, and its options if it is new."""
        self.tellings += 1
        chooser = Chooser(path)
        try:
            story(chooser)
        except Exception as error:  # Whatever it is, it is what was looked for.
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
        """Ways from the first state, of that many steps or to where nothing follows."""
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
    """Tell the story in every order of at most so many steps."""
    search = _Search()
    number, options = search.tell(story, ())
    # Paths whose states are new, the numbers of those states, and their options.
    frontier: deque[tuple[tuple[int, ...], int, int]] = deque([((), number, options)])
    deepest_new = 0
    while frontier and len(search.violations) < violations_max:
        path, number, options = frontier.popleft()
        if len(path) == depth:
            break
        for option in range(options):
            longer = (*path, option)
            seen_before = len(search.numbers)
            successor, its_options = search.tell(story, longer)
            search.successors[number].append(successor)
            if len(search.numbers) > seen_before:
                deepest_new = len(longer)
                frontier.append((longer, successor, its_options))
    return Exploration(
        depth=depth,
        orders=search.count_orders(depth),
        states=len(search.numbers),
        tellings=search.tellings,
        pruned=search.pruned,
        is_complete=deepest_new < depth and not search.violations,
        violations=tuple(search.violations[:violations_max]),
    )
