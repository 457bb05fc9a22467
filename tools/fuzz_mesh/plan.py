"""make_plan: the steps of a seed. A seed gives the same plan in every process.

In the last step all backends are up, and the complete config is served.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.runtime import seeded_random
from tools.fuzz_mesh.changes import draw_mesh
from tools.fuzz_mesh.faults import FAULTS, apply_changes, draw_weighted
from tools.fuzz_mesh.state import WorldState

if TYPE_CHECKING:
    from proxyless.runtime import Random
    from tools.fuzz_mesh.mesh import Mesh
    from tools.fuzz_mesh.state import Step

STEPS_MAX: Final = 10_000
CHANGES_MAX: Final = 3
# The share of steps that are faults, in percent.
FAULTS_PERCENT: Final = 45
LAST_STEP: Final = "all backends up"


@frozen
class Plan:
    """The steps of a run."""

    seed: int
    mesh: Mesh
    steps: tuple[Step, ...]

    def until(self, step: int) -> Plan:
        """The plan up to and including this step, and the last step."""
        kept = self.steps[: step + 1]
        last = self.steps[-1]
        return self if last in kept else replace(self, steps=(*kept, last))


def make_plan(seed: int, seconds: float) -> Plan:
    rng = seeded_random(seed)
    mesh = draw_mesh(rng)
    state = WorldState(rng, mesh)
    steps: list[Step] = []
    while state.now_s < seconds and len(steps) < STEPS_MAX:
        if (name := _draw_step(state)) is not None:
            steps.append(state.take_step(name, _draw_wait_s(rng)))
    return Plan(seed, mesh, (*steps, _end(state)))


def _draw_step(state: WorldState) -> str | None:
    """Choose a change or fault; None if it does not apply, or leaves no usable backend."""
    if not state.is_served():
        # A backend has just been started: give clients time to connect.
        state.sleep(0.5)
        return "wait"
    if state.rng.randrange(100) < FAULTS_PERCENT:
        return draw_weighted(state.rng, FAULTS)(state)
    is_single = state.rng.randrange(3)
    return apply_changes(state, 1 if is_single else 1 + state.rng.randrange(CHANGES_MAX))


def _draw_wait_s(rng: Random) -> float:
    """Mostly about a second; some steps overlap, and some have time to settle."""
    match rng.randrange(20):
        case 0 | 1 | 2 | 3 | 4:
            return rng.uniform(0.0, 0.2)
        case 5 | 6 | 7:
            return rng.uniform(1.5, 3.0)
        case _:
            return rng.uniform(0.4, 1.5)


def _end(state: WorldState) -> Step:
    for backend in state.choose(is_up=False):
        state.start(backend)
    state.serve(replace(state.mesh, has_listener=True, lost=frozenset()))
    return state.take_step(LAST_STEP, 0.0)
