"""WorkQueue: runs long work in slices, so that one turn of the event loop stays short.

The queue has a number of units for each turn. A job runs at once as far as the units of the
current turn reach; the rest runs in the next turns, where the waiting jobs take turns. Background
jobs, the decoding of responses among them, get the units that the others leave, and at least one
step per turn. Work is counted, not timed, so that a simulation is reproducible. `UNLIMITED_WORK`
runs every job to its end at once.

While jobs wait, and a moment longer, full garbage collections are deferred (`garbage`): such work
creates many objects that stay.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from proxyless.runtime.clock import IDLE_TIMER, Clock
from proxyless.runtime.garbage import FULL_COLLECTIONS
from proxyless.runtime.soon import Soon

# A unit is about a microsecond of processor time, so a turn has about 5 ms: the first RPC of a
# large cluster waits for about seven turns, and should not take 50 ms. The limit for a turn is
# 50 ms, and a slow machine takes several times as long.
UNITS_PER_TURN: Final = 5_000
# Units between two steps of a generator: less is not worth a step.
STEP_UNITS: Final = 500
# A full collection takes some tenths of a second. The connections that the last steps have started
# do not wait for it, unless their peers are farther away than this.
COLLECTION_DELAY_S: Final = 0.2

T = TypeVar("T")

# Long work as a generator, which yields the units of each step and returns the result.
Steps = Generator[int, None, T]


class Job(Protocol):
    """Work that can be interrupted between two steps."""

    def step(self) -> bool:
        """Do the next part of the work; returns False if there is no more.

        Called again after False only if the job was given to the queue again.
        """


class Work(Protocol):
    """Interface of a `WorkQueue`."""

    def run(self, job: Job, units_per_step: int) -> None:
        """Run the job now as far as possible, and the rest in the next turns.

        No-op if the job is waiting already.
        """

    def run_in_background(self, job: Job, units_per_step: int) -> None:
        """Run the job like `run`, but after those that were given to `run`."""

    def run_steps(self, steps: Steps[None]) -> "StepsJob | None":
        """Run the steps like a background job. None if they have ended."""

    def cancel(self, job: Job) -> None:
        """Run no further steps of the job. Idempotent."""

    def charge(self, units: int) -> None:
        """Count work that was done outside of a job, or beyond the units of its step."""

    def take(self, units: int) -> bool:
        """Charge for work that the caller does now; False if this turn has no units left."""

    def is_waiting(self, job: Job) -> bool:
        """Whether steps of the job wait for the next turns."""

    def resume_collections(self) -> None:
        """Resume full garbage collections now, unless jobs wait. For a loop that may end now."""


class WorkQueue:
    """Jobs that wait for the next turn, and the units that are left in this one."""

    __slots__ = (
        "_background",
        "_clock",
        "_collection_timer",
        "_defers",
        "_full_collections",
        "_has_turn",
        "_jobs",
        "_next_turn",
        "_units",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._units = UNITS_PER_TURN
        # Requested as soon as a unit is used.
        self._next_turn = Soon(clock, self._on_turn)
        self._has_turn = False
        # The waiting jobs with their units per step; the first one is next.
        self._jobs: dict[Job, int] = {}
        self._background: dict[Job, int] = {}
        # Whether full garbage collections are deferred: since a job had to wait. The timer is
        # pending while no job waits any more.
        self._full_collections: Final = FULL_COLLECTIONS
        self._defers = False
        self._collection_timer = IDLE_TIMER

    def __del__(self) -> None:
        # The event loop was abandoned while jobs waited.
        if self._defers:
            self._full_collections.resume()

    def run(self, job: Job, units_per_step: int) -> None:
        if job not in self._jobs:
            self._run_now(job, units_per_step, self._jobs)

    def run_in_background(self, job: Job, units_per_step: int) -> None:
        if job in self._background:
            return
        if self._jobs:
            self._background[job] = units_per_step
        else:
            self._run_now(job, units_per_step, self._background)

    def run_steps(self, steps: Steps[None]) -> "StepsJob | None":
        if not self._jobs and not self._background:
            for units in steps:
                self._units -= units
                if self._units <= 0:
                    break
            else:
                # Small work makes no timer: the next turns may have what it leaves.
                if self._units < UNITS_PER_TURN >> 1:
                    self.charge(0)
                return None
        job = StepsJob(steps, self)
        self.charge(0)
        self._wait(job, 0, self._background)
        return job

    def cancel(self, job: Job) -> None:
        self._jobs.pop(job, None)
        self._background.pop(job, None)

    def charge(self, units: int) -> None:
        self._units -= units
        if not self._has_turn:
            self._has_turn = True
            self._next_turn.request()

    def take(self, units: int) -> bool:
        if self._units <= 0:
            return False
        self.charge(units)
        return True

    def is_waiting(self, job: Job) -> bool:
        return job in self._jobs or job in self._background

    def resume_collections(self) -> None:
        self._collection_timer.cancel()
        if self._defers and not self._jobs and not self._background:
            self._defers = False
            self._full_collections.resume()

    def _run_now(self, job: Job, units_per_step: int, jobs: dict[Job, int]) -> None:
        """Use the units that are left, and queue the job if it has more steps."""
        while self.take(units_per_step):
            if not job.step():
                return
        self._wait(job, units_per_step, jobs)

    def _wait(self, job: Job, units_per_step: int, jobs: dict[Job, int]) -> None:
        """Queue the job for the next turn, which has been requested."""
        jobs[job] = units_per_step
        if not self._defers:
            self._defers = True
            self._full_collections.defer()
        self._collection_timer.cancel()

    def _on_turn(self) -> None:
        self._units = UNITS_PER_TURN
        self._has_turn = False
        if self._background:
            self._run_next(self._background)
        while self._jobs and self._units > 0:
            self._run_next(self._jobs)
        while self._background and self._units > 0:
            self._run_next(self._background)
        is_over = self._defers and not self._jobs and not self._background
        if is_over and not self._collection_timer.pending:
            self._collection_timer = self._clock.call_later(
                COLLECTION_DELAY_S, self.resume_collections
            )

    def _run_next(self, jobs: dict[Job, int]) -> None:
        job = next(iter(jobs))
        units = jobs.pop(job)
        self.charge(units)
        # A step may give the job to the queue again.
        if job.step() and not self.is_waiting(job):
            jobs[job] = units


class ActionsJob:
    """Calls one action per step, in order: closes many policies, releases subchannels, imports."""

    __slots__ = ("_actions",)

    def __init__(self, actions: Sequence[Callable[[], object]]) -> None:
        assert actions, "a job has at least one step"
        self._actions: Final = deque(actions)

    def step(self) -> bool:
        self._actions.popleft()()
        return bool(self._actions)


class StepsJob:
    """Rest of the work that was given to `run_steps`."""

    __slots__ = ("_steps", "_work")

    def __init__(self, steps: Steps[None], work: Work) -> None:
        self._steps: Iterator[int] = steps
        self._work: Final = work

    def cancel(self) -> None:
        """Run no further steps; a step may call it, too. No-op after the last one."""
        self._steps = iter(())

    def step(self) -> bool:
        for units in self._steps:
            self._work.charge(units)
            return True
        return False


class UnlimitedWork:
    """Runs every job to its end at once. Singleton: UNLIMITED_WORK."""

    __slots__ = ()

    def run(self, job: Job, units_per_step: int) -> None:
        while job.step():
            pass

    run_in_background = run

    def run_steps(self, steps: Steps[None]) -> None:
        finish(steps)

    def cancel(self, job: Job) -> None:
        return

    def charge(self, units: int) -> None:
        return

    def take(self, units: int) -> bool:
        return True

    def is_waiting(self, job: Job) -> bool:
        return False

    def resume_collections(self) -> None:
        return


UNLIMITED_WORK: Final = UnlimitedWork()


def finish(steps: Generator[object, None, T]) -> T:
    """Run all steps at once."""
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        result: T = stop.value
        return result
