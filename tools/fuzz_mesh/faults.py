"""Random faults: backends that are killed, drained or hang, and config that is lost and restored.

Each function carries a fault out on the `WorldState` and returns a text, or returns None where it
does not apply. A fault leaves a usable backend in every cluster that is routed to, or both
clients are expected to fail for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from tools.fuzz_mesh.changes import CHANGES, LEAVES
from tools.fuzz_mesh.mesh import AGGREGATE, Group, Leaf, Mesh, number_priorities
from tools.fuzz_mesh.state import BACKOFF_S, BACKOFF_SHARE, WorldState, pick, sample

if TYPE_CHECKING:
    from proxyless.runtime import Random
    from tools.fuzz_mesh.state import Kind

T = TypeVar("T")
Fault = Callable[[WorldState], str | None]

CHANGE_TRIES: Final = 20
PAUSE_S: Final = 0.3
HOLE_S: Final = (0.5, 1.5, 3.5, 3.5)
# Longer than the failover timeout of the priority policy, which is 10 s.
LONG_HOLE_S: Final = 12.0
OUTAGE_S: Final = (0.2, 1.0, 2.5)
# Clients have received restored config after this time.
RETURN_S: Final = 2.0
# Shorter than the first backoff, so that both clients reconnect at about the same time.
RELIST_S: Final = 0.3
BLACKOUT_S: Final = (0.1, 0.3, 0.6)


def draw_weighted(rng: Random, choices: tuple[tuple[int, T], ...]) -> T:
    at = rng.randrange(sum(weight for weight, _ in choices))
    for weight, choice in choices:
        if at < weight:
            return choice
        at -= weight
    raise AssertionError("the weights add up")


def apply_changes(state: WorldState, count: int) -> str | None:
    """Serve a mesh with this many changes at once; None if no usable one was drawn."""
    for _ in range(CHANGE_TRIES):
        mesh, texts = state.mesh, []
        for _ in range(count):
            drawn = draw_weighted(state.rng, CHANGES)(state.rng, mesh)
            if drawn is not None:
                mesh = drawn[0]
                texts.append(drawn[1])
        if mesh != state.mesh and state.is_served(mesh):
            state.serve(mesh)
            return "; ".join(texts)
    return None


# Backends


def _lose_one(state: WorldState, kind: Kind) -> int | None:
    for backend in sample(state.rng, state.listed(), 3):
        if state.is_up(backend) and state.is_served(without=[backend]):
            state.settle()
            state.lose(backend, kind=kind)
            return backend
    return None


def kill_one(state: WorldState) -> str | None:
    backend = _lose_one(state, "kill")
    return None if backend is None else f"kill {backend}"


def drain_one(state: WorldState) -> str | None:
    backend = _lose_one(state, "drain")
    return None if backend is None else f"drain {backend}"


def flap(state: WorldState) -> str | None:
    """Kill a backend and start it again."""
    backend = _lose_one(state, "kill")
    if backend is None:
        return None
    state.sleep(state.rng.uniform(0.05, 0.6))
    state.start(backend)
    return f"flap {backend}"


def kill_group(state: WorldState) -> str | None:
    """Kill all endpoints of a locality."""
    leaf, group = _draw_used_group(state)
    lost = [backend for backend in group.in_use if state.is_up(backend)]
    if not lost or not state.is_served(without=lost):
        return None
    state.settle()
    for backend in lost:
        state.lose(backend)
    return f"kill {lost}, which is {leaf.name}/{group.zone} in priority {group.priority}"


def black_out(state: WorldState) -> str | None:
    """Kill all endpoints of a cluster that is routed to, and start them again."""
    cluster = pick(state.rng, sorted(state.mesh.targets))
    used = {each for leaf in state.mesh.leaves_of(cluster) for each in leaf.in_use}
    lost = sorted(each for each in used if state.is_up(each))
    state.settle()
    for backend in lost:
        state.lose(backend)
    state.sleep(pick(state.rng, BLACKOUT_S))
    for backend in lost:
        state.start(backend)
    state.expect_outage(BACKOFF_S + BACKOFF_SHARE * max(BLACKOUT_S))
    return f"blackout of {lost}, which is {cluster}"


def pause(state: WorldState) -> str | None:
    """Stop a backend in use for less time than any deadline."""
    running = [backend for backend in state.listed() if state.is_up(backend)]
    if not running:
        return None
    backend = pick(state.rng, running)
    state.pause(backend)
    state.sleep(PAUSE_S)
    state.resume(backend)
    return f"pause {backend}"


def start_one(state: WorldState) -> str | None:
    down = state.choose(is_up=False)
    if not down:
        return None
    state.start(down[0])
    return f"start {down[0]}"


def start_all(state: WorldState) -> str | None:
    down = state.choose(is_up=False)
    for backend in down:
        state.start(backend)
    return f"start {down}" if down else None


# Black holes: connections are accepted, and there are no responses


def _draw_used_group(state: WorldState) -> tuple[Leaf, Group]:
    cluster = pick(state.rng, sorted(state.mesh.targets))
    leaf = pick(state.rng, state.mesh.leaves_of(cluster))
    return leaf, pick(state.rng, leaf.groups)


def _serve_groups(state: WorldState, leaf: Leaf, groups: list[Group]) -> None:
    new = replace(leaf, groups=number_priorities(groups))
    leaves = tuple(new if each.name == leaf.name else each for each in state.mesh.leaves)
    state.serve(replace(state.mesh, leaves=leaves))


def _fall_in(state: WorldState, put: Callable[[Leaf, Group, int], list[Group]]) -> str | None:
    """Stop an unused backend, list it, and resume it after a while."""
    leaf, group = _draw_used_group(state)
    used = state.listed()
    free = [each for each in state.choose(is_up=True) if each not in used]
    free = [each for each in free if each not in leaf.in_use and state.is_usable(each)]
    if not free or any(free[0] in each.backends for each in leaf.groups):
        return None
    hole = free[0]
    seconds = pick(state.rng, HOLE_S) if state.rng.randrange(12) else LONG_HOLE_S
    state.settle()
    state.hang(hole)
    _serve_groups(state, leaf, put(leaf, group, hole))
    state.sleep(seconds / 2)
    changed = apply_changes(state, 1) if state.rng.randrange(3) == 0 else None
    state.sleep(seconds / 2)
    state.resume(hole)
    text = f"{leaf.name}/{group.zone} in priority {group.priority}: {hole} hangs for {seconds} s"
    return text if changed is None else f"{text}; meanwhile {changed}"


def hole_instead(state: WorldState) -> str | None:
    """The hole replaces all endpoints of a locality."""

    def put(leaf: Leaf, group: Group, hole: int) -> list[Group]:
        new = replace(group, backends=(hole,), draining=frozenset())
        return [new if each is group else each for each in leaf.groups]

    text = _fall_in(state, put)
    return None if text is None else f"hole instead of {text}"


def hole_beside(state: WorldState) -> str | None:
    """The hole is one more endpoint of a locality, the first one."""

    def put(leaf: Leaf, group: Group, hole: int) -> list[Group]:
        new = replace(group, backends=(hole, *group.backends))
        return [new if each is group else each for each in leaf.groups]

    text = _fall_in(state, put)
    return None if text is None else f"hole beside {text}"


def hole_above(state: WorldState) -> str | None:
    """The hole is a new highest priority."""

    def put(leaf: Leaf, _group: Group, hole: int) -> list[Group]:
        below = [replace(each, priority=each.priority + 1) for each in leaf.groups]
        return [Group("w", 0, 1, (hole,)), *below]

    text = _fall_in(state, put)
    return None if text is None else f"hole above {text}"


# Config


def _lose_config(state: WorldState, *without: Mesh) -> None:
    """Serve these meshes one after the other, and then the previous one."""
    before = state.mesh
    for mesh in without:
        state.serve(mesh)
        state.sleep(pick(state.rng, OUTAGE_S))
    state.serve(before)
    state.expect_outage(RETURN_S)


def lose_listener(state: WorldState) -> str | None:
    _lose_config(state, replace(state.mesh, has_listener=False))
    return "listener lost and back"


def lose_cluster(state: WorldState) -> str | None:
    name = pick(state.rng, sorted(state.mesh.targets | {LEAVES[0]}))
    _lose_config(state, replace(state.mesh, lost=frozenset({name})))
    return f"cluster {name} lost and back"


def lose_cluster_and_listener(state: WorldState) -> str | None:
    name = pick(state.rng, (*LEAVES, AGGREGATE))
    lost = replace(state.mesh, lost=frozenset({name}))
    _lose_config(state, lost, replace(lost, has_listener=False))
    return f"cluster {name} and then the listener lost, both back"


def break_streams(state: WorldState) -> str | None:
    state.break_streams()
    return "ADS streams broken"


def relist(state: WorldState) -> str | None:
    """Kill a backend, unlist it, start it again, and make it the only endpoint."""
    leaf, group = _draw_used_group(state)
    backend = pick(state.rng, group.backends)
    holders = [each.name for each in state.mesh.leaves if backend in each.in_use]
    others = [replace(each, backends=_except(each, backend)) for each in leaf.groups]
    if holders != [leaf.name] or not any(each.backends for each in others):
        return None
    if not state.is_up(backend) or not state.is_served(without=[backend]):
        return None
    state.settle()
    state.lose(backend)
    _serve_groups(state, leaf, others)
    state.sleep(RELIST_S)
    state.start(backend, is_known=False)
    _serve_groups(state, leaf, [Group(group.zone, 0, 1, (backend,))])
    return f"{leaf.name}: {backend} dies, is unlisted, starts, and is all there is"


def _except(group: Group, backend: int) -> tuple[int, ...]:
    return tuple(each for each in group.backends if each != backend)


FAULTS: Final[tuple[tuple[int, Fault], ...]] = (
    (4, kill_one),
    (3, kill_group),
    (2, drain_one),
    (2, flap),
    (1, black_out),
    (1, pause),
    (3, start_one),
    (3, start_all),
    (3, hole_instead),
    (2, hole_beside),
    (2, hole_above),
    (2, lose_listener),
    (2, lose_cluster),
    (1, lose_cluster_and_listener),
    (1, break_streams),
    (2, relist),
)
