"""Story of the demo: its steps, and the expected effect of each.

A step is data: an action, a check, the time limit of the check, and how long the step is shown.
Actions are calls of `Stage` and checks are functions of an `Observation`, so the story can be
tested without a mesh.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base.frozen import frozen
from proxyless.demo.mesh import DNS, NEW, OLD, names_in, names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from proxyless.demo.traffic import Rpc

# A check must hold for this long.
WINDOW_S: Final = 0.5
# Minimum delay of the new cluster: less could not be distinguished from a slow machine.
LATE_S_MIN: Final = 1.0
# After a kill there must be a whole second without failures.
CALM_S: Final = 1.0


class Stage(Protocol):
    """Actions of steps. An action is complete when the call returns."""

    async def kill(self, zone: str) -> None:
        """Kill all backends of the zone with SIGKILL."""

    async def revive(self, zone: str) -> None:
        """Start all backends of the zone, at the ports they had."""

    def move_session_endpoint(self) -> str:
        """Move the endpoint of the session to the other priority; returns its name."""

    def route_to(self, cluster: str, *, is_late: bool = False) -> None:
        """Route all RPCs to another cluster. `is_late`: withhold that cluster until `release`."""

    def release(self) -> None:
        """Send the withheld cluster."""

    async def stop_control_plane(self) -> None: ...

    async def start_control_plane(self) -> None:
        """Start the control plane again at the same port, without state of its clients."""


@frozen
class Observation:
    """Results of the RPCs of the last window."""

    # Backends that answered the load, and the number of failed RPCs.
    served: frozenset[str]
    failed: int
    # Backends that answered the session, each with the connection.
    session: frozenset[tuple[str, str]]
    # Backends that answer the load if all are healthy.
    first_choice: frozenset[str]
    # Version of the routes that the client has accepted, and the one that is served.
    routes_held: str = ""
    routes_served: str = ""
    # Endpoint that the step has moved.
    moved: str = ""


# Returns the name of the moved endpoint, if there is one.
Act = Callable[[Stage], Awaitable[str | None] | str | None]
# Returns an empty string if the check holds, else what was observed.
Check = Callable[[Observation], str]


@frozen
class Step:
    """One step of the story."""

    key: str
    title: str
    # The check in words.
    expected: str
    act: Act
    check: Check
    # Time limit of the check, and how long the step is shown then, at normal speed.
    limit_s: float = 10.0
    hold_s: float = 2.0
    hold_s_min: float = 0.2


@frozen
class StepLog:
    """Result of a step. Times are seconds since the demo began."""

    key: str
    started_s: float
    # When the action was complete, when the check held, and the end of the step.
    acted_s: float | None = None
    seen_s: float | None = None
    ended_s: float | None = None
    moved: str = ""
    # What was observed instead, if the check did not hold in time.
    got: str = ""


def summarize(
    rpcs: Iterable[Rpc], *, since_s: float
) -> tuple[frozenset[str], int, frozenset[tuple[str, str]]]:
    """`served`, `failed` and `session` of an observation, from the RPCs started since then."""
    recent = [rpc for rpc in rpcs if rpc.started_s >= since_s]
    load = frozenset(rpc.backend for rpc in recent if rpc.is_ok and not rpc.is_session)
    session = frozenset((rpc.backend, rpc.peer) for rpc in recent if rpc.is_ok and rpc.is_session)
    return load, sum(not rpc.is_ok for rpc in recent), session


def served_by(names: Iterable[str]) -> Check:
    """Exactly these backends answer, and no RPC fails."""
    expected = frozenset(names)
    return lambda observed: _compare(observed, expected)


def served_by_first_choice(observed: Observation) -> str:
    """Exactly the backends of the first choice answer, and no RPC fails."""
    return _compare(observed, observed.first_choice)


def session_stays(observed: Observation) -> str:
    """The load follows the mesh, the session stays on the moved endpoint and its connection."""
    names = {name for name, _ in observed.session}
    if names != {observed.moved} or len(observed.session) != 1:
        return f"the session is on {_list(names)}, by {len(observed.session)} connections"
    return served_by_first_choice(observed)


def routes_held_but_not_used(observed: Observation) -> str:
    """The client has accepted the new routes, and RPCs still go to the old cluster."""
    if observed.routes_held != observed.routes_served:
        return f"the client has the routes of generation {observed.routes_held or 'none'}"
    return _compare(observed, names_of(NEW), is_excluded=True)


def _compare(observed: Observation, names: frozenset[str], *, is_excluded: bool = False) -> str:
    if observed.failed:
        return f"{observed.failed} RPCs failed in the last {WINDOW_S:g} s"
    served = observed.served
    holds = bool(served) and (not served & names if is_excluded else served == names)
    return "" if holds else f"RPCs are answered by {_list(served)}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "no backend"


async def _revive_all(stage: Stage) -> None:
    for zone in ("a", "b"):
        await stage.revive(zone)


async def _start_control_plane(stage: Stage) -> None:
    await stage.start_control_plane()
    stage.route_to(OLD)


STORY: Final[Sequence[Step]] = (
    Step(
        "calm",
        "everything is well",
        "zone a, priority 0, answers every RPC",
        lambda _: None,
        served_by_first_choice,
        limit_s=5.0,
    ),
    Step(
        "kill-a",
        "zone a is killed",
        "zone b, priority 1, answers every RPC",
        lambda stage: stage.kill("a"),
        served_by(names_in("b")),
        limit_s=5.0,
        hold_s=3.0,
        hold_s_min=CALM_S,
    ),
    Step(
        "kill-b",
        "zone b is killed as well",
        "the DNS fallback in zone c answers every RPC",
        lambda stage: stage.kill("b"),
        served_by(names_of(DNS)),
        limit_s=5.0,
        hold_s_min=CALM_S,
    ),
    Step(
        "back",
        "zones a and b are back",
        "zone a answers every RPC again",
        _revive_all,
        served_by_first_choice,
        limit_s=20.0,
        hold_s=2.5,
    ),
    Step(
        "move",
        "the session's endpoint changes priority",
        "the load follows, the session stays on its connection",
        lambda stage: stage.move_session_endpoint(),
        session_stays,
        hold_s=3.0,
    ),
    Step(
        "route",
        "a route changes to a cluster that is late",
        "the client has the new route, RPCs stay with the old cluster",
        lambda stage: stage.route_to(NEW, is_late=True),
        routes_held_but_not_used,
        hold_s=2.5,
        hold_s_min=LATE_S_MIN,
    ),
    Step(
        "late",
        "the late cluster arrives",
        "greeter-v2 answers every RPC",
        lambda stage: stage.release(),
        served_by_first_choice,
    ),
    Step(
        "stop",
        "the control plane stops",
        "RPCs do not notice",
        lambda stage: stage.stop_control_plane(),
        served_by_first_choice,
    ),
    Step(
        "start",
        "the control plane is back, with other routes",
        "the client follows: the first cluster answers every RPC",
        _start_control_plane,
        served_by_first_choice,
        limit_s=20.0,
    ),
)


def hold_s_at(step: Step, speed: float) -> float:
    """How long the step is shown after its check holds."""
    return max(step.hold_s / speed, step.hold_s_min)


def by_key(logs: Iterable[StepLog]) -> Mapping[str, StepLog]:
    return {log.key: log for log in logs}
