"""What happens in the demo, and what must be seen then?

A step is data: what is done, what must be seen, how long that may take and how long it is shown.
What is done goes through `Stage`, what must be seen is a pure function of `Seen`, so the story can
be tested without a mesh.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base.frozen import frozen
from proxyless.demo.mesh import DNS, NEW, OLD, names_in, names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from proxyless.demo.traffic import Rpc

# Something is seen when it was so for this long.
WINDOW_S: Final = 0.5
# How long the new cluster is late, at least: less could not be told from a slow machine.
LATE_S_MIN: Final = 1.0
# After a kill there must be a whole second in which all is well.
CALM_S: Final = 1.0


class Stage(Protocol):
    """What a step may do. All of it has happened when the call returns."""

    async def kill(self, zone: str) -> None:
        """End all backends of the zone with SIGKILL."""
        ...

    async def revive(self, zone: str) -> None:
        """Start all backends of the zone, at the ports they had."""
        ...

    def move_session_endpoint(self) -> str:
        """Give the endpoint where the session lives the other priority; returns its name."""
        ...

    def route_to(self, cluster: str, *, is_late: bool = False) -> None:
        """Send all RPCs to another cluster. If that is late, the client hears of it later."""
        ...

    def release(self) -> None:
        """Tell the client what was late."""
        ...

    async def stop_control_plane(self) -> None:
        """End it, and with it every stream to it."""
        ...

    async def start_control_plane(self) -> None:
        """Start it again at the same port; it knows nothing of its clients."""
        ...


@frozen
class Seen:
    """What the last moment has shown."""

    # Who answered the load, and how many RPCs failed.
    served: frozenset[str]
    failed: int
    # Who answered the session, and on which connections.
    session: frozenset[tuple[str, str]]
    # Who answers the load if all are well.
    first_choice: frozenset[str]
    # The version of the routes that the client has accepted, and the one that is served.
    routes_held: str = ""
    routes_served: str = ""
    # What the step is about, if it chose: the endpoint that was moved.
    about: str = ""


Act = Callable[[Stage], Awaitable[str | None]]
# Empty if it is so, else what is instead.
Want = Callable[[Seen], str]


@frozen
class Step:
    """One thing that happens."""

    key: str
    title: str
    # What must be seen, in words.
    wanted: str
    act: Act
    want: Want
    # How long it may take until it is seen, and how long it is shown then, at normal speed.
    patience_s: float = 10.0
    hold_s: float = 2.0
    hold_s_min: float = 0.2


@frozen
class StepLog:
    """What came of a step. Times are seconds since the demo began."""

    key: str
    started_s: float
    # When all was done, and when it was seen; None if it was not.
    acted_s: float | None = None
    seen_s: float | None = None
    ended_s: float | None = None
    about: str = ""
    # What was there in place of what was wanted, if patience is over.
    got: str = ""


def look(
    rpcs: Iterable[Rpc], *, since_s: float
) -> tuple[frozenset[str], int, frozenset[tuple[str, str]]]:
    """Who answered the load, how many failed, who answered the session; of RPCs since then."""
    recent = [rpc for rpc in rpcs if rpc.started_s >= since_s]
    load = frozenset(rpc.backend for rpc in recent if rpc.is_ok and not rpc.is_session)
    session = frozenset((rpc.backend, rpc.peer) for rpc in recent if rpc.is_ok and rpc.is_session)
    return load, sum(not rpc.is_ok for rpc in recent), session


# What must be seen


def served_by(names: Iterable[str]) -> Want:
    """All of these answer, nobody else does, and no RPC fails."""
    wanted = frozenset(names)
    return lambda seen: _compare(seen, wanted)


def served_by_first_choice(seen: Seen) -> str:
    """As `served_by`, with what the mesh itself says."""
    return _compare(seen, seen.first_choice)


def session_stays(seen: Seen) -> str:
    """The load follows the mesh, the session stays on the moved endpoint and its connection."""
    names = {name for name, _ in seen.session}
    if names != {seen.about} or len(seen.session) != 1:
        return f"the session is on {_list(names)}, by {len(seen.session)} connections"
    return served_by_first_choice(seen)


def routes_known_but_not_used(seen: Seen) -> str:
    """The client has accepted the new routes, and RPCs still go where they went."""
    if seen.routes_held != seen.routes_served:
        return f"the client has the routes of generation {seen.routes_held or 'none'}"
    return _compare(seen, names_of(NEW), is_excluded=True)


def _compare(seen: Seen, names: frozenset[str], *, is_excluded: bool = False) -> str:
    if seen.failed:
        return f"{seen.failed} RPCs failed in the last {WINDOW_S:g} s"
    is_so = bool(seen.served) and (not seen.served & names if is_excluded else seen.served == names)
    return "" if is_so else f"RPCs are answered by {_list(seen.served)}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nobody"


# What is done


async def _nothing(_stage: Stage) -> None:
    """The step is what was there before."""


def _kill(zone: str) -> Act:
    return lambda stage: stage.kill(zone)


async def _revive_all(stage: Stage) -> None:
    for zone in ("a", "b"):
        await stage.revive(zone)


async def _move(stage: Stage) -> str:
    return stage.move_session_endpoint()


async def _route_to_late_cluster(stage: Stage) -> None:
    stage.route_to(NEW, is_late=True)


async def _release(stage: Stage) -> None:
    stage.release()


async def _stop_control_plane(stage: Stage) -> None:
    await stage.stop_control_plane()


async def _start_control_plane(stage: Stage) -> None:
    await stage.start_control_plane()
    stage.route_to(OLD)


STORY: Final[Sequence[Step]] = (
    Step(
        "calm",
        "everything is well",
        "zone a, priority 0, answers every RPC",
        _nothing,
        served_by_first_choice,
        patience_s=5.0,
    ),
    Step(
        "kill-a",
        "zone a is killed",
        "zone b, priority 1, answers every RPC",
        _kill("a"),
        served_by(names_in("b")),
        patience_s=5.0,
        hold_s=3.0,
        hold_s_min=CALM_S,
    ),
    Step(
        "kill-b",
        "zone b is killed as well",
        "the DNS fallback in zone c answers every RPC",
        _kill("b"),
        served_by(names_of(DNS)),
        patience_s=5.0,
        hold_s_min=CALM_S,
    ),
    Step(
        "back",
        "zones a and b are back",
        "zone a answers every RPC again",
        _revive_all,
        served_by_first_choice,
        patience_s=20.0,
        hold_s=2.5,
    ),
    Step(
        "move",
        "the session's endpoint changes priority",
        "the load follows, the session stays on its connection",
        _move,
        session_stays,
        hold_s=3.0,
    ),
    Step(
        "route",
        "a route changes to a cluster that is late",
        "the client has the new route, RPCs stay with the old cluster",
        _route_to_late_cluster,
        routes_known_but_not_used,
        hold_s=2.5,
        hold_s_min=LATE_S_MIN,
    ),
    Step(
        "late",
        "the late cluster arrives",
        "greeter-v2 answers every RPC",
        _release,
        served_by_first_choice,
    ),
    Step(
        "stop",
        "the control plane stops",
        "RPCs do not notice",
        _stop_control_plane,
        served_by_first_choice,
    ),
    Step(
        "start",
        "the control plane is back, with other routes",
        "the client follows: the first cluster answers every RPC",
        _start_control_plane,
        served_by_first_choice,
        patience_s=20.0,
    ),
)


def hold_s_at(step: Step, speed: float) -> float:
    """How long the step is shown once it is seen."""
    return max(step.hold_s / speed, step.hold_s_min)


def by_key(logs: Iterable[StepLog]) -> Mapping[str, StepLog]:
    return {log.key: log for log in logs}
