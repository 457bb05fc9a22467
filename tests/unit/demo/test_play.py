"""Unit tests of proxyless.demo.play: a story on a stub stage, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from proxyless.demo.play import CHECK_S, Player
from proxyless.demo.story import WINDOW_S, Observation, Step, served_by
from proxyless.sim.loop import START_S, SimLoop
from tests.worlds.demo_stages import RecordingStage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    from proxyless.demo.story import Stage, StepLog


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop()
    yield loop
    loop.close()


class StubStage(RecordingStage):
    """A stage where backend b1 answers from some time on."""

    def __init__(self, loop: SimLoop, served_from_s: float) -> None:
        super().__init__()
        self._loop = loop
        self._served_from_s = served_from_s
        self.requests: list[tuple[float, str]] = []

    def now_s(self) -> float:
        return self._loop.time() - START_S

    def observe(self, since_s: float, moved: str) -> Observation:
        self.requests.append((since_s, moved))
        served = frozenset({"b1"} if since_s >= self._served_from_s else ())
        return Observation(served, 0, frozenset(), frozenset(), moved=moved)


def kill(stage: Stage) -> Awaitable[str | None]:
    return stage.kill("a")


STEP = Step("kill", "a dies", "b answers", kill, served_by(["b1"]), limit_s=5.0, hold_s=2.0)


def play(
    loop: SimLoop, story: Sequence[Step], *, served_from_s: float = 0.0, speed: float = 1.0
) -> tuple[StubStage, list[StepLog], list[int]]:
    """The stage, the logs, and the number of logs at each change."""
    stage = StubStage(loop, served_from_s)
    changes: list[int] = []
    player = Player(stage, story, speed, lambda player: changes.append(len(player.logs)))
    loop.run_until_complete(player.play())
    return stage, player.logs, changes


def test_step_is_seen_when_its_check_held_for_a_whole_window(loop: SimLoop) -> None:
    stage, [log], _ = play(loop, [STEP], served_from_s=1.0)
    assert stage.done == ["kill a"]
    assert (log.started_s, log.acted_s) == (0.0, 0.0)
    assert log.seen_s == pytest.approx(1.0, abs=CHECK_S)
    assert log.ended_s == pytest.approx(1.0 + WINDOW_S + 2.0, abs=CHECK_S)
    assert min(since_s for since_s, _ in stage.requests) >= 0.0, "RPCs before the step are ignored"


def test_speed_shortens_the_time_of_a_step(loop: SimLoop) -> None:
    _, [log], _ = play(loop, [STEP], speed=4.0)
    assert log.ended_s == pytest.approx(WINDOW_S + 0.5, abs=CHECK_S)


def test_story_ends_at_a_step_that_is_not_seen_in_time(loop: SimLoop) -> None:
    stage, [log], _ = play(loop, [STEP, STEP], served_from_s=99.0)
    assert log.seen_s is None
    assert log.got == "RPCs are answered by no backend"
    assert stage.now_s() == pytest.approx(5.0, abs=2 * CHECK_S)


def test_steps_follow_each_other_and_each_change_is_notified(loop: SimLoop) -> None:
    _, logs, changes = play(loop, [STEP, replace(STEP, key="again")])
    assert [log.key for log in logs] == ["kill", "again"]
    assert logs[1].started_s == logs[0].ended_s
    assert changes == [1, 1, 1, 1, 2, 2, 2, 2]


def test_moved_endpoint_is_passed_to_observations(loop: SimLoop) -> None:
    step = replace(STEP, act=lambda stage: stage.move_session_endpoint())
    stage, [log], _ = play(loop, [step])
    assert log.moved == "a1"
    assert {moved for _, moved in stage.requests} == {"a1"}
