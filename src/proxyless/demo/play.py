"""How is a story played on a stage, shown, and judged?"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from proxyless.demo.stage import Settings, open_stage
from proxyless.demo.story import STORY, WINDOW_S, Stage, StepLog, hold_s_at
from proxyless.demo.verdict import Evidence, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxyless.demo.stage import LiveStage
    from proxyless.demo.story import Seen, Step
    from proxyless.demo.view import View

# Between two looks at what is there, and between two views.
LOOK_S: Final = 0.05
SHOW_S: Final = 0.125


class Viewer(Protocol):
    """Who shows views. Must not raise, and not take long: it runs between RPCs."""

    def show(self, view: View) -> None: ...


class Playable(Stage, Protocol):
    """A stage that can be looked at."""

    def now_s(self) -> float:
        """Seconds since the demo began."""
        ...

    def seen(self, since_s: float, about: str) -> Seen:
        """What RPCs have shown that began and ended since then."""
        ...


class Player:
    """Plays a story on a stage. Driven by the clock."""

    def __init__(
        self,
        stage: Playable,
        story: Sequence[Step],
        speed: float,
        on_change: Callable[[Player], None],
    ) -> None:
        # Fixed at construction.
        self._stage: Final = stage
        self._story: Final = story
        self._speed: Final = speed
        self._on_change: Final = on_change
        # Of the steps that were reached; the last one may still run.
        self.logs: list[StepLog] = []

    async def play(self) -> None:
        """All steps in turn; the first that is not seen is the last."""
        for step in self._story:
            await self._play_step(step)
            if self.logs[-1].seen_s is None:
                return

    async def _play_step(self, step: Step) -> None:
        now_s = self._stage.now_s
        self.logs.append(StepLog(step.key, now_s()))
        self._on_change(self)
        about = await step.act(self._stage) or ""
        acted_s = now_s()
        self._note(acted_s=acted_s, about=about)
        while lack := self._lack(step, acted_s, about):
            if now_s() > acted_s + step.patience_s:
                self._note(got=lack)
                return
            await asyncio.sleep(LOOK_S)
        # It was so all through the window.
        self._note(seen_s=now_s() - WINDOW_S)
        await asyncio.sleep(hold_s_at(step, self._speed))
        self._note(ended_s=now_s())

    def _lack(self, step: Step, acted_s: float, about: str) -> str:
        since_s = self._stage.now_s() - WINDOW_S
        if since_s < acted_s:
            return "it has just begun"
        return step.want(self._stage.seen(since_s, about))

    def _note(self, **what: float | str) -> None:
        self.logs[-1] = replace(self.logs[-1], **what)  # type: ignore[arg-type]
        self._on_change(self)


async def run_demo(settings: Settings, viewers: Sequence[Viewer]) -> Verdict:
    """Everything from the first process to the verdict. OSError if a backend cannot be started."""
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
        showing = group.create_task(_show_often(player, show))
        await player.play()
        for load in loads:
            load.stop()
        await asyncio.wait(running)
        showing.cancel()


async def _show_often(player: Player, show: Callable[[Player], None]) -> None:
    while True:
        show(player)
        await asyncio.sleep(SHOW_S)
