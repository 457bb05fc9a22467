"""Slices: bounded parts of long work, of which each turn of the loop runs one.

Work is a generator that yields the work of each step. Its unit is about a microsecond, but it is
counted (bytes, elements), not measured, so that slices are the same on every machine and under a
virtual clock. All xDS clients of a loop share one `SliceQueue`, so the bound is that of a turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Final, TypeVar

from proxyless.runtime import Soon

if TYPE_CHECKING:
    from proxyless.runtime import Clock

T = TypeVar("T")

# Yields the work of each step, and returns the result.
Steps = Generator[int, None, T]

# Work of one turn: about 5 ms here, so that a slower machine stays far below 50 ms.
SLICE_WORK: Final = 5_000
# Work that parsers do between two steps: less is not worth a step.
STEP_WORK: Final = 500


def finish(steps: Steps[T]) -> T:
    """Run all steps at once."""
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        result: T = stop.value
        return result


class Job:
    """Work that was given to a `SliceQueue`."""

    __slots__ = ("steps",)

    def __init__(self, steps: Steps[None]) -> None:
        # None after the last step, and after `cancel`.
        self.steps: Steps[None] | None = steps

    @property
    def is_finished(self) -> bool:
        return self.steps is None

    def cancel(self) -> None:
        """Do not run the remaining steps. No-op after the last one."""
        self.steps = None


class SliceQueue:
    """Jobs of one loop, which take turns. Work beyond the slice of a turn waits for the next."""

    __slots__ = ("_jobs", "_left", "_run_soon", "turn")

    def __init__(self, clock: Clock) -> None:
        self._jobs: deque[Job] = deque()
        self._run_soon = Soon(clock, self._run)
        # Work that is left in this turn. Small jobs change it without a timer, so it may also be
        # what earlier turns left.
        self._left = SLICE_WORK
        # Number of turns in which waiting jobs ran. If it changed, a job did not run at once.
        self.turn = 0

    def run(self, steps: Steps[None]) -> Job | None:
        """Run the steps, from now on. None if they are finished."""
        if not self._jobs:
            for work in steps:
                self._left -= work
                if self._left <= 0:
                    break
            else:
                if self._left < SLICE_WORK >> 1:
                    self._run_soon.request()
                return None
        job = Job(steps)
        self._jobs.append(job)
        self._run_soon.request()
        return job

    def _run(self) -> None:
        self.turn += 1
        self._left = SLICE_WORK
        try:
            while self._jobs and self._left > 0:
                self._run_job(self._jobs.popleft())
        finally:
            # Even if a step raised, the other jobs go on.
            if self._jobs:
                self._run_soon.request()

    def _run_job(self, job: Job) -> None:
        try:
            for work in job.steps or ():
                self._left -= work
                if job.steps is None:
                    return
                if self._left <= 0:
                    # Behind the others, so that a control plane cannot hold them up.
                    self._jobs.append(job)
                    return
        except BaseException:
            job.cancel()
            raise
        job.cancel()
