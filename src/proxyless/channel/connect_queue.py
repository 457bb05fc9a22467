"""ConnectQueue: starts the connection attempts of all subchannels of a loop in slices.

Thousands of attempts may be due at once: a new list of endpoints, or the ends of their backoffs.
The holders of subchannels (see `pool`) take turns, so that one with thousands of attempts does not
delay the others; and the ends of backoffs wait until no other work does.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.runtime import Work

# Units of `runtime.work_queue`: an attempt that is refused takes about 0.3 ms in all turns.
UNITS_PER_STEP: Final = 25


class ConnectQueue:
    """The waiting steps of subchannels, by holder."""

    def __init__(self, work: Work) -> None:
        self._work: Final = work
        self.by_holder: Final[dict[object, HolderJob]] = {}
        self._backoffs: Final = BackoffJob()

    def add(self, holder: object, step: Callable[[], None]) -> None:
        """Call `step` once: now, or in one of the next turns, when it may be out of date."""
        job = self.by_holder.get(holder)
        if job is None:
            # Usual, so it makes no job.
            if self._work.take(UNITS_PER_STEP):
                step()
                return
            job = self.by_holder[holder] = HolderJob(self, holder)
        job.steps.append(step)
        self._work.run(job, UNITS_PER_STEP)

    def add_backoff_end(self, step: Callable[[], None]) -> None:
        """Call `step` once, like `add`, but with lower priority."""
        self._backoffs.steps.append(step)
        self._work.run_in_background(self._backoffs, UNITS_PER_STEP)


class BackoffJob:
    """The waiting steps of all subchannels whose backoff is over."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps: Final[deque[Callable[[], None]]] = deque()

    def step(self) -> bool:
        self.steps.popleft()()
        return bool(self.steps)


class HolderJob:
    """The waiting steps of one holder."""

    __slots__ = ("_holder", "_owner", "steps")

    def __init__(self, owner: ConnectQueue, holder: object) -> None:
        self._owner: Final = owner
        self._holder: Final = holder
        self.steps: Final[deque[Callable[[], None]]] = deque()

    def step(self) -> bool:
        step = self.steps.popleft()
        if not self.steps:
            # First: the step may add another one, and then needs a new job.
            del self._owner.by_holder[self._holder]
            step()
            return False
        step()
        return True
