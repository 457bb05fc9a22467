"""WorkQueue: jobs run in slices of `UNITS_PER_TURN`, and waiting jobs take turns."""

import gc
from collections.abc import Iterator
from functools import partial

import pytest

from proxyless.runtime import (
    UNLIMITED_WORK,
    ActionsJob,
    StepsJob,
    VirtualClock,
    WorkQueue,
    work_queue,
)
from proxyless.runtime.garbage import DEFERRED_THRESHOLD, FullCollections
from proxyless.runtime.work_queue import COLLECTION_DELAY_S, UNITS_PER_TURN, Steps, finish

# Four steps per turn.
UNITS = UNITS_PER_TURN // 4
HALF = UNITS_PER_TURN // 2


class RecordedJob:
    """A job of some steps, which are recorded with its name."""

    def __init__(self, name: str, steps: int, log: list[str]) -> None:
        self._name = name
        self._left = steps
        self._log = log

    def step(self) -> bool:
        self._left -= 1
        self._log.append(self._name)
        return self._left > 0


class WorkQueueWorld:
    """A queue on a virtual clock, and the steps that ran."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.queue = WorkQueue(self.clock)
        self._log: list[str] = []

    def job(self, name: str, steps: int) -> RecordedJob:
        return RecordedJob(name, steps, self._log)

    def take_log(self) -> str:
        text = "".join(self._log)
        self._log.clear()
        return text


@pytest.fixture
def world() -> WorkQueueWorld:
    return WorkQueueWorld()


def test_units_are_taken_until_the_turn_has_none(world: WorkQueueWorld) -> None:
    assert [world.queue.take(UNITS) for _ in range(5)] == [True] * 4 + [False]
    world.queue.run(world.job("a", 1), UNITS)
    assert world.take_log() == ""
    world.clock.advance(0)
    assert world.take_log() == "a"
    assert UNLIMITED_WORK.take(UNITS_PER_TURN + 1)


def test_short_job_runs_at_once(world: WorkQueueWorld) -> None:
    world.queue.run(world.job("a", 4), UNITS)
    assert world.take_log() == "aaaa"
    world.clock.advance(0)
    assert world.take_log() == ""
    assert world.clock.timers_pending == 0


def test_long_job_continues_in_the_next_turns(world: WorkQueueWorld) -> None:
    job = world.job("a", 10)
    world.queue.run(job, UNITS)
    assert world.take_log() == "aaaa"
    assert world.queue.is_waiting(job)
    world.clock.advance(0)
    assert world.take_log() == "aaaaaa"
    assert not world.queue.is_waiting(job)


def test_waiting_jobs_take_turns(world: WorkQueueWorld) -> None:
    world.queue.run(world.job("a", 9), UNITS)
    world.queue.run(world.job("b", 2), UNITS)
    world.queue.run(world.job("c", 2), UNITS)
    assert world.take_log() == "aaaa"
    world.clock.advance(0)
    assert world.take_log() == "abcabcaaa"


def test_waiting_job_is_not_queued_twice(world: WorkQueueWorld) -> None:
    job = world.job("a", 5)
    world.queue.run(job, UNITS)
    world.queue.run(job, UNITS)
    world.clock.advance(0)
    assert world.take_log() == "aaaaa"


def test_cancelled_job_runs_no_further_step(world: WorkQueueWorld) -> None:
    job = world.job("a", 9)
    world.queue.run(job, UNITS)
    world.queue.cancel(job)
    world.queue.cancel(job)
    world.clock.advance(0)
    assert world.take_log() == "aaaa"


def test_charged_units_are_not_available_in_the_same_turn(world: WorkQueueWorld) -> None:
    world.queue.charge(3 * UNITS)
    world.queue.run(world.job("a", 3), UNITS)
    assert world.take_log() == "a"
    world.clock.advance(0)
    assert world.take_log() == "aa"


def test_background_job_gets_the_rest_and_at_least_one_step(world: WorkQueueWorld) -> None:
    world.queue.run(world.job("a", 12), UNITS)
    world.queue.run_in_background(world.job("b", 3), UNITS)
    assert world.take_log() == "aaaa"
    world.clock.advance(0)
    assert world.take_log() == "baaa" + "baaa" + "baa"


def test_background_job_runs_at_once_when_nothing_waits(world: WorkQueueWorld) -> None:
    world.queue.run_in_background(world.job("b", 2), UNITS)
    assert world.take_log() == "bb"


def test_job_that_raises_ends_and_others_continue(world: WorkQueueWorld) -> None:
    class BrokenJob:
        def step(self) -> bool:
            raise ValueError("broken")

    world.queue.charge(UNITS_PER_TURN)
    world.queue.run(BrokenJob(), UNITS)
    world.queue.run(world.job("a", 2), UNITS)
    with pytest.raises(ValueError, match="broken"):
        world.clock.advance(0)
    world.clock.advance(0)
    assert world.take_log() == "aa"


def test_unlimited_work_runs_jobs_to_their_end(world: WorkQueueWorld) -> None:
    job = world.job("a", 1000)
    UNLIMITED_WORK.run(job, UNITS)
    assert len(world.take_log()) == 1000
    assert not UNLIMITED_WORK.is_waiting(job)
    UNLIMITED_WORK.run_in_background(world.job("b", 2), UNITS)
    UNLIMITED_WORK.charge(UNITS_PER_TURN)
    UNLIMITED_WORK.cancel(job)
    assert world.take_log() == "bb"


def test_actions_are_called_once_in_order_in_slices(world: WorkQueueWorld) -> None:
    called: list[int] = []
    count = 2 * UNITS_PER_TURN // UNITS
    world.queue.run(ActionsJob([partial(called.append, each) for each in range(count)]), UNITS)
    assert 0 < len(called) < count
    world.clock.advance(0)
    assert called == list(range(count))


@pytest.fixture
def thresholds(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int, int]]:
    """The collector's thresholds, which no queue of another test has raised."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    monkeypatch.setattr(work_queue, "FULL_COLLECTIONS", FullCollections())
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_full_collections_are_deferred_while_jobs_wait(
    thresholds: tuple[int, int, int], world: WorkQueueWorld
) -> None:
    world.queue.run(world.job("a", 4), UNITS)
    assert gc.get_threshold() == thresholds
    world.queue.run(world.job("b", 2), UNITS)
    world.queue.run_in_background(world.job("c", 5), UNITS)
    deferred = (*thresholds[:2], DEFERRED_THRESHOLD)
    assert gc.get_threshold() == deferred
    world.clock.advance(0)
    assert world.take_log()[-1] == "c"
    assert gc.get_threshold() == deferred
    world.clock.advance(COLLECTION_DELAY_S)
    assert gc.get_threshold() == thresholds


def test_full_collections_are_deferred_again_by_a_job_that_waits_before_they_are_resumed(
    thresholds: tuple[int, int, int], world: WorkQueueWorld
) -> None:
    world.queue.run(world.job("a", 10), UNITS)
    world.clock.advance(0)
    world.clock.advance(COLLECTION_DELAY_S / 2)
    # Its last turn is after the time at which collections would have been resumed.
    job = world.job("b", 1000)
    world.queue.run(job, UNITS)
    world.clock.advance(0)
    assert not world.queue.is_waiting(job)
    world.clock.advance(COLLECTION_DELAY_S * 0.75)
    assert gc.get_threshold() != thresholds
    # Work that does not have to wait defers nothing.
    world.queue.run(world.job("c", 1), UNITS)
    world.clock.advance(COLLECTION_DELAY_S * 0.25)
    assert gc.get_threshold() == thresholds


def test_full_collections_are_resumed_after_a_cancelled_job(
    thresholds: tuple[int, int, int], world: WorkQueueWorld
) -> None:
    job = world.job("a", 10)
    world.queue.run(job, UNITS)
    assert gc.get_threshold() != thresholds
    world.queue.cancel(job)
    world.clock.advance(0)
    world.clock.advance(COLLECTION_DELAY_S)
    assert gc.get_threshold() == thresholds


def test_full_collections_are_resumed_without_delay_if_no_job_waits(
    thresholds: tuple[int, int, int], world: WorkQueueWorld
) -> None:
    world.queue.run(world.job("a", 10), UNITS)
    world.queue.resume_collections()
    assert gc.get_threshold() != thresholds
    world.clock.advance(0)
    assert gc.get_threshold() != thresholds
    world.queue.resume_collections()
    assert (gc.get_threshold(), world.clock.timers_pending) == (thresholds, 0)


def test_full_collections_are_resumed_when_a_queue_is_abandoned(
    thresholds: tuple[int, int, int],
) -> None:
    abandoned = WorkQueueWorld()
    abandoned.queue.run(abandoned.job("a", 10), UNITS)
    assert gc.get_threshold() != thresholds
    del abandoned
    gc.collect()
    assert gc.get_threshold() == thresholds


# Steps of generators


class StepsWorld:
    """A queue, and the steps that ran."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.queue = WorkQueue(self.clock)
        self.ran: list[str] = []

    def steps(self, name: str, *works: int) -> Steps[None]:
        for work in works:
            self.ran.append(name)
            yield work
        self.ran.append(f"{name} ended")

    def take(self) -> list[str]:
        ran, self.ran = self.ran, []
        return ran

    def run_turn(self) -> list[str]:
        """The steps of the next turn: `advance` would run all turns."""
        assert self.clock.timers_pending == 1
        self.queue._on_turn()
        return self.take()

    def finish(self) -> None:
        """Run all turns, and the full collections that were deferred."""
        self.clock.advance(COLLECTION_DELAY_S)
        assert self.clock.timers_pending == 0


def test_small_work_is_finished_at_once_without_a_timer() -> None:
    world = StepsWorld()
    assert world.queue.run_steps(world.steps("a", 1, 1)) is None
    assert world.take() == ["a", "a", "a ended"]
    assert world.clock.timers_pending == 0


def test_work_beyond_a_slice_runs_in_the_next_turns() -> None:
    world = StepsWorld()
    job = world.queue.run_steps(world.steps("a", *[HALF] * 5))
    assert job is not None
    assert world.take() == ["a", "a"]
    assert world.run_turn() == ["a", "a"]
    assert world.run_turn() == ["a", "a ended"]
    world.finish()
    assert world.take() == []


def test_steps_of_jobs_take_turns() -> None:
    world = StepsWorld()
    world.queue.run_steps(world.steps("a", *[UNITS_PER_TURN] * 3))
    world.queue.run_steps(world.steps("b", *[UNITS_PER_TURN] * 2))
    assert world.take() == ["a"]
    turns = [world.run_turn() for _ in range(5)]
    assert turns == [["a"], ["b"], ["a"], ["b"], ["a ended", "b ended"]]


def test_small_work_of_many_uses_up_the_slice_of_a_turn() -> None:
    world = StepsWorld()
    for _ in range(3):
        world.queue.run_steps(world.steps("a", HALF - 1))
    assert world.take() == ["a", "a ended", "a", "a ended", "a"]
    world.clock.advance(0)
    assert world.take() == ["a ended"]


def test_cancelled_job_does_not_go_on() -> None:
    world = StepsWorld()
    first = world.queue.run_steps(world.steps("a", *[UNITS_PER_TURN] * 3))
    world.queue.run_steps(world.steps("b", 1))
    assert first is not None
    first.cancel()
    world.take()
    world.finish()
    assert world.take() == ["b", "b ended"]


def test_job_does_not_go_on_when_a_step_cancels_it() -> None:
    world = StepsWorld()
    jobs: list[StepsJob] = []

    def cancel() -> Steps[None]:
        yield UNITS_PER_TURN
        jobs[0].cancel()
        world.ran.append("cancelled")
        yield 1
        world.ran.append("went on")

    job = world.queue.run_steps(cancel())
    assert job is not None
    jobs.append(job)
    world.finish()
    assert world.take() == ["cancelled"]


def test_steps_go_on_when_another_job_raises() -> None:
    world = StepsWorld()

    def fail() -> Steps[None]:
        yield UNITS_PER_TURN
        raise LookupError("a bug")

    job = world.queue.run_steps(fail())
    assert job is not None
    world.queue.run_steps(world.steps("b", 1))
    states = [world.queue.is_waiting(job)]
    with pytest.raises(LookupError):
        world.clock.advance(0)
    assert [*states, world.queue.is_waiting(job)] == [True, False]
    world.clock.advance(0)
    assert world.take() == ["b", "b ended"]


def test_steps_wait_for_jobs() -> None:
    world = StepsWorld()
    waiting = ActionsJob([lambda: world.ran.append("job")] * 2)
    world.queue.run(waiting, UNITS_PER_TURN)
    world.queue.run_steps(world.steps("a", *[HALF] * 2))
    assert world.take() == ["job"]
    # One step per turn while other jobs wait.
    assert world.run_turn() == ["a", "job"]
    assert world.run_turn() == ["a", "a ended"]


def test_unlimited_work_runs_all_steps_at_once() -> None:
    world = StepsWorld()
    UNLIMITED_WORK.run_steps(world.steps("a", *[UNITS_PER_TURN] * 2))
    assert world.take() == ["a", "a", "a ended"]


def test_finish_runs_all_steps_and_returns_the_result() -> None:
    def count() -> Steps[str]:
        yield UNITS_PER_TURN
        yield UNITS_PER_TURN
        return "done"

    assert finish(count()) == "done"
