"""Tools that keep the callbacks of policies from re-entering: see `lb.api`, "Theory of operation".

Hold       postpones a policy's reaction while it calls its children
Soon       runs an action once, after the current call
SoonQueue  the same, with the items that it is for: children to connect, hosts to create
"""

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from proxyless.runtime import IDLE_TIMER, Clock

T = TypeVar("T")


class Hold:
    """Context manager around calls to children. `active` inside: reports are only recorded then.

    After the block, `react` is called once, unless the block raised. Not to be nested.
    """

    __slots__ = ("_react", "active")

    def __init__(self, react: Callable[[], object] | None = None) -> None:
        self._react: Final = react
        self.active = False

    def __enter__(self) -> None:
        self.active = True

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self.active = False
        if self._react is not None and error_type is None:
            self._react()


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


class SoonQueue(Soon, Generic[T]):
    """Items for an action that runs soon, each once, in the order in which they were added.

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
