"""WorldState: the state of mesh and backends while a plan is made, in the plan's own time.

Each method appends an action of the run. Every cluster that RPCs are routed to has at least one
usable backend, except in steps that remove config on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxyless.runtime import Random
    from tools.fuzz_mesh.mesh import Mesh

T = TypeVar("T")
Kind = Literal[
    "serve", "sleep", "start", "kill", "drain", "pause", "hang", "continue", "break_streams"
]  # fmt: skip

BACKENDS: Final = 8
# Clients have applied a change after this time, and the control plane has removed old clusters.
SETTLE_S: Final = 0.8
# A client tries a lost backend again after at most this time plus this share of its downtime:
# gRPC's backoff is 1 s, grows by 1.6, and is jittered by 20 %.
BACKOFF_S: Final = 2.5
BACKOFF_SHARE: Final = 1.2


@frozen
class Action:
    """One action of a run."""

    kind: Kind
    backend: int = -1
    seconds: float = 0.0
    mesh: Mesh | None = None

    def __str__(self) -> str:
        if self.kind == "sleep":
            return f"sleep {self.seconds:.2f} s"
        return f"{self.kind} {self.backend}" if self.backend >= 0 else self.kind


@frozen
class Step:
    """Actions of one step, and the time until the next step."""

    name: str
    actions: tuple[Action, ...]
    wait_s: float
    # RPCs may fail with UNAVAILABLE from its start until this long after its actions.
    outage_s: float = 0.0


@dataclass
class _BackendState:
    is_up: bool = True
    is_stopped: bool = False
    down_at_s: float = 0.0
    usable_at_s: float = 0.0


def pick(rng: Random, choices: Sequence[T]) -> T:
    return choices[rng.randrange(len(choices))]


def sample(rng: Random, choices: Iterable[T], count: int) -> list[T]:
    """At most `count` of them, in random order."""
    drawn = list(choices)
    rng.shuffle(drawn)
    return drawn[:count]


class WorldState:
    """Changed by the planner only."""

    def __init__(self, rng: Random, mesh: Mesh) -> None:
        self.rng: Final = rng
        self.mesh = mesh
        self.now_s = 0.0
        self._backends: Final = [_BackendState() for _ in range(BACKENDS)]
        self._actions: list[Action] = []
        self._outage_s = 0.0
        # When the mesh last changed.
        self._served_s = 0.0

    def take_step(self, name: str, wait_s: float) -> Step:
        """What was done since the last call, and the time that passes then."""
        step = Step(name, tuple(self._actions), wait_s, self._outage_s)
        self._actions, self._outage_s = [], 0.0
        self.now_s += wait_s
        return step

    # Questions

    def is_up(self, backend: int) -> bool:
        state = self._backends[backend]
        return state.is_up and not state.is_stopped

    def is_usable(self, backend: int) -> bool:
        """Whether a client that knew the backend all the time is connected to it, or can be."""
        return self.is_up(backend) and self.now_s >= self._backends[backend].usable_at_s

    def is_served(self, mesh: Mesh | None = None, without: Iterable[int] = ()) -> bool:
        """Whether every cluster that is routed to has a usable backend, if these are lost."""
        served = self.mesh if mesh is None else mesh
        lost = set(without)

        def has_backend(cluster: str) -> bool:
            return any(
                backend not in lost and self.is_usable(backend)
                for leaf in served.leaves_of(cluster)
                for backend in leaf.in_use
            )

        return all(map(has_backend, served.targets))

    def choose(self, *, is_up: bool) -> list[int]:
        """Backends that are up, or that are down, in random order."""
        return sample(self.rng, (n for n in range(BACKENDS) if self.is_up(n) == is_up), BACKENDS)

    def listed(self) -> list[int]:
        """Backends that are endpoints of clusters that are routed to."""
        found = {
            backend
            for cluster in self.mesh.targets
            for leaf in self.mesh.leaves_of(cluster)
            for backend in leaf.in_use
        }
        return sorted(found)

    # Actions

    def serve(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._served_s = self.now_s
        self._actions.append(Action("serve", mesh=mesh))

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self._actions.append(Action("sleep", seconds=seconds))

    def settle(self) -> None:
        """Wait until clients have applied the last change: before a backend goes."""
        missing_s = self._served_s + SETTLE_S - self.now_s
        if missing_s > 0:
            self.sleep(missing_s)

    def expect_outage(self, seconds: float) -> None:
        """RPCs may fail in this step, and for this time after it."""
        self._outage_s = seconds

    def break_streams(self) -> None:
        self._actions.append(Action("break_streams"))

    def lose(self, backend: int, *, kind: Kind = "kill") -> None:
        """Kill or drain a backend."""
        state = self._backends[backend]
        state.is_up, state.down_at_s = False, self.now_s
        self._actions.append(Action(kind, backend))

    def start(self, backend: int, *, is_known: bool = True) -> None:
        """Start a backend again. Clients that lost it may be in backoff, others connect at once."""
        state = self._backends[backend]
        state.is_up = True
        downtime_s = self.now_s - state.down_at_s
        backoff_s = BACKOFF_S + BACKOFF_SHARE * downtime_s if is_known else 0.0
        state.usable_at_s = self.now_s + backoff_s
        self._actions.append(Action("start", backend))

    def pause(self, backend: int) -> None:
        """Let it answer nothing, on the connections that it has."""
        self._backends[backend].is_stopped = True
        self._actions.append(Action("pause", backend))

    def hang(self, backend: int) -> None:
        """Make it a black hole: its connections are lost, new ones are made and never answered."""
        self._backends[backend].is_stopped = True
        self._actions.append(Action("hang", backend))

    def resume(self, backend: int) -> None:
        self._backends[backend].is_stopped = False
        self._actions.append(Action("continue", backend))
