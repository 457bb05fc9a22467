"""Execution of a story on a stage: its steps, the views, and the verdict."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Final, Protocol

from proxyless.demo.stage import Settings, open_stage
from proxyless.demo.story import STORY, WINDOW_S, Stage, StepLog, hold_s_at
from proxyless.demo.verdict import Evidence, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxyless.demo.stage import LiveStage
    from proxyless.demo.story import Observation, Step
    from proxyless.demo.view import View

# Time between two checks, and between two views.
CHECK_S: Final = 0.05
SHOW_S: Final = 0.125


class Viewer(Protocol):
    """Output of views. `show` must be fast and must not raise: it runs between RPCs."""

    def show(self, view: View) -> None: ...


class ObservableStage(Stage, Protocol):
    """A stage with observations."""

    def now_s(self) -> float:
        """Seconds since the demo began."""

    def observe(self, since_s: float, moved: str) -> Observation:
        """Results of the RPCs that started and ended since then."""


class Player:
    """Executes a story on a stage. It owns the logs of the steps."""

    def __init__(
        self,
        stage: ObservableStage,
        story: Sequence[Step],
        speed: float,
        on_change: Callable[[Player], None],
    ) -> None:
        self._stage: Final = stage
        self._story: Final = story
        self._speed: Final = speed
        self._on_change: Final = on_change
        # One log per started step; the last step may still run.
        self.logs: list[StepLog] = []

    async def play(self) -> None:
        """Execute all steps in turn, up to the first whose check does not hold in time."""
        for step in self._story:
            await self._play_step(step)
            if self.logs[-1].seen_s is None:
                return

    async def _play_step(self, step: Step) -> None:
        now_s = self._stage.now_s
        self.logs.append(StepLog(step.key, now_s()))
        self._on_change(self)
        result = step.act(self._stage)
        moved = (await result if isawaitable(result) else result) or ""
        acted_s = now_s()
        self._update_log(acted_s=acted_s, moved=moved)
        while mismatch := self._check(step, acted_s, moved):
            if now_s() > acted_s + step.limit_s:
                self._update_log(got=mismatch)
                return
            await asyncio.sleep(CHECK_S)
        # The check held for the whole window.
        self._update_log(seen_s=now_s() - WINDOW_S)
        await asyncio.sleep(hold_s_at(step, self._speed))
        self._update_log(ended_s=now_s())

    def _check(self, step: Step, acted_s: float, moved: str) -> str:
        since_s = self._stage.now_s() - WINDOW_S
        if since_s < acted_s:
            return "it has just begun"
        return step.check(self._stage.observe(since_s, moved))

    def _update_log(self, **fields: float | str) -> None:
        self.logs[-1] = replace(self.logs[-1], **fields)  # type: ignore[arg-type]
        self._on_change(self)


async def run_demo(settings: Settings, viewers: Sequence[Viewer]) -> Verdict:
    """Start all processes, execute the story, judge it. OSError if a backend cannot be started."""
    async with open_stage(settings) as stage:

        def show(player: Player, verdict: Verdict | None = None) -> None:
            view = stage.take_view(STORY, player.logs, verdict)
            for viewer in viewers:
                viewer.show(view)

        player = Player(stage, STORY, settings.speed, show)
        await _play_under_load(stage, player, show)
        record = stage.record
        verdict = judge(Evidence(STORY, player.logs, record.started, record.rpcs))
        show(player, verdict)
    return verdict


async def _play_under_load(
    stage: LiveStage, player: Player, show: Callable[[Player], None]
) -> None:
    loads = stage.loads()
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(load.run()) for load in loads]
        showing = group.create_task(_show_repeatedly(player, show))
        await player.play()
        for load in loads:
            load.stop()
        await asyncio.wait(running)
        showing.cancel()


async def _show_repeatedly(player: Player, show: Callable[[Player], None]) -> None:
    while True:
        show(player)
        await asyncio.sleep(SHOW_S)
