"""Unit tests of the slices of long work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyless.runtime import VirtualClock
from proxyless.xds.client.slices import SLICE_WORK, SliceQueue, finish

if TYPE_CHECKING:
    from proxyless.xds.client.slices import Job, Steps


class SliceWorld:
    """A queue, and the steps that ran."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.queue = SliceQueue(self.clock)
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
        self.queue._run()
        return self.take()


HALF = SLICE_WORK // 2


def test_small_work_is_finished_at_once_without_a_timer() -> None:
    world = SliceWorld()
    assert world.queue.run(world.steps("a", 1, 1)) is None
    assert world.take() == ["a", "a", "a ended"]
    assert (world.clock.timers_pending, world.queue.turn) == (0, 0)


def test_work_beyond_a_slice_runs_in_the_next_turns() -> None:
    world = SliceWorld()
    job = world.queue.run(world.steps("a", *[HALF] * 5))
    assert job is not None
    assert world.take() == ["a", "a"]
    assert world.run_turn() == ["a", "a"]
    assert world.run_turn() == ["a", "a ended"]
    world.clock.advance(0)
    assert (world.take(), world.clock.timers_pending) == ([], 0)


def test_jobs_take_turns() -> None:
    world = SliceWorld()
    world.queue.run(world.steps("a", *[SLICE_WORK] * 3))
    world.queue.run(world.steps("b", *[SLICE_WORK] * 2))
    assert world.take() == ["a"]
    turns = [world.run_turn() for _ in range(5)]
    assert turns == [["a"], ["b"], ["a"], ["b"], ["a ended", "b ended"]]


def test_small_work_of_many_uses_up_the_slice_of_a_turn() -> None:
    world = SliceWorld()
    for _ in range(3):
        world.queue.run(world.steps("a", HALF - 1))
    assert world.take() == ["a", "a ended", "a", "a ended", "a"]
    world.clock.advance(0)
    assert world.take() == ["a ended"]


def test_cancelled_job_does_not_go_on() -> None:
    world = SliceWorld()
    first = world.queue.run(world.steps("a", *[SLICE_WORK] * 3))
    world.queue.run(world.steps("b", 1))
    assert first is not None
    first.cancel()
    world.take()
    world.clock.advance(0)
    assert (world.take(), world.clock.timers_pending) == (["b", "b ended"], 0)


def test_job_does_not_go_on_when_a_step_cancels_it() -> None:
    world = SliceWorld()
    jobs: list[Job] = []

    def cancel() -> Steps[None]:
        yield SLICE_WORK
        jobs[0].cancel()
        world.ran.append("cancelled")
        yield 1
        world.ran.append("went on")

    job = world.queue.run(cancel())
    assert job is not None
    jobs.append(job)
    world.clock.advance(0)
    assert (world.take(), world.clock.timers_pending) == (["cancelled"], 0)


def test_other_jobs_go_on_when_one_raises() -> None:
    world = SliceWorld()

    def fail() -> Steps[None]:
        yield SLICE_WORK
        raise LookupError("a bug")

    job = world.queue.run(fail())
    assert job is not None
    world.queue.run(world.steps("b", 1))
    states = [job.is_finished]
    with pytest.raises(LookupError):
        world.clock.advance(0)
    assert [*states, job.is_finished] == [False, True]
    world.clock.advance(0)
    assert world.take() == ["b", "b ended"]


def test_finish_runs_all_steps_and_returns_the_result() -> None:
    def count() -> Steps[str]:
        yield SLICE_WORK
        yield SLICE_WORK
        return "done"

    assert finish(count()) == "done"
