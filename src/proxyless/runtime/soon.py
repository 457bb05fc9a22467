"""Actions that run in the next turn of the event loop, so that no call is made re-entrantly.

Soon       runs an action once for all requests before it
SoonQueue  runs an action once for all items that were added before it
"""

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from proxyless.runtime.clock import IDLE_TIMER, Clock

T = TypeVar("T")


class Soon:
    """Runs an action in the next turn of the loop, once for all requests before it."""

    __slots__ = ("_action", "_clock", "_timer")

    def __init__(self, clock: Clock, action: Callable[[], None]) -> None:
        self._clock: Final = clock
        self._action: Final = action
        self._timer = IDLE_TIMER

    def request(self) -> None:
        if not self._timer.pending:
            self._timer = self._clock.call_later(0, self._action)

    def cancel(self) -> None:
        self._timer.cancel()

    @property
    def pending(self) -> bool:
        """Whether the action will run."""
        return self._timer.pending


class SoonQueue(Soon, Generic[T]):
    """Distinct items for an action that runs in the next turn, in the order of `add`.

    `request` runs the action even without items.
    """

    __slots__ = ("_items", "_take")

    def __init__(self, clock: Clock, take: Callable[[list[T]], object]) -> None:
        super().__init__(clock, self._run)
        self._take: Final = take
        self._items: dict[T, None] = {}

    def add(self, item: T) -> None:
        self._items[item] = None
        self.request()

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def _run(self) -> None:
        items, self._items = self._items, {}
        self._take(list(items))
