"""Random changes of a mesh: endpoints, priorities, weights, LB policies, routes, the aggregate.

Each function returns the new mesh and a text, or None where it does not apply. Functions ignore
the state of backends: the planner rejects a mesh without a usable backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tools.fuzz_mesh.mesh import AGGREGATE, POLICIES, Group, Leaf, Mesh, number_priorities
from tools.fuzz_mesh.state import BACKENDS, pick, sample

if TYPE_CHECKING:
    from proxyless.runtime import Random

Change = Callable[["Random", Mesh], tuple[Mesh, str] | None]

LEAVES: Final = ("a", "b", "c")
ZONES: Final = ("x", "y", "z")
GROUPS_MAX: Final = 3
PRIORITIES_MAX: Final = 3
WEIGHTS: Final = (1, 1, 2, 10, 100)


# Parts


def draw_mesh(rng: Random) -> Mesh:
    """A first mesh: all leaves have endpoints, and the first one is routed to."""
    leaves = tuple(Leaf(name, pick(rng, POLICIES[:2]), draw_groups(rng)) for name in LEAVES)
    return Mesh(leaves, aggregate=LEAVES[:2], default=((LEAVES[0], 1),))


def draw_groups(rng: Random) -> tuple[Group, ...]:
    """Groups of distinct localities and priorities; no backend is in two of them."""
    backends = sample(rng, range(BACKENDS), BACKENDS)
    groups = []
    for number in range(1 + rng.randrange(GROUPS_MAX)):
        zone, priority = ZONES[number], rng.randrange(number + 1)
        taken = tuple(backends.pop() for _ in range(1 + rng.randrange(2)))
        groups.append(Group(zone, priority, pick(rng, WEIGHTS), taken))
    return number_priorities(groups)


def _unlisted(leaf: Leaf) -> list[int]:
    listed = {backend for group in leaf.groups for backend in group.backends}
    return [backend for backend in range(BACKENDS) if backend not in listed]


def _replace_leaf(mesh: Mesh, leaf: Leaf) -> Mesh:
    return replace(
        mesh, leaves=tuple(leaf if each.name == leaf.name else each for each in mesh.leaves)
    )


def _replace_groups(mesh: Mesh, leaf: Leaf, groups: list[Group]) -> Mesh | None:
    """The mesh with these groups in the leaf; None if two are the same locality and priority."""
    numbered = number_priorities(groups)
    places = {(group.zone, group.priority) for group in numbered}
    if not numbered or len(places) < len(numbered):
        return None
    return _replace_leaf(mesh, replace(leaf, groups=numbered))


def _with_group(
    mesh: Mesh, leaf: Leaf, old: Group | None, new: Group | None, text: str
) -> tuple[Mesh, str] | None:
    """Replace, add or remove a group."""
    groups = [group for group in leaf.groups if group is not old]
    if new is not None:
        at = leaf.groups.index(old) if old is not None else len(groups)
        groups.insert(at, new)
    changed = _replace_groups(mesh, leaf, groups)
    return None if changed is None else (changed, f"{leaf.name}: {text}")


def _draw_place(rng: Random, mesh: Mesh) -> tuple[Leaf, Group]:
    """A leaf, mostly one that is routed to, and one of its groups."""
    used = [leaf for cluster in sorted(mesh.targets) for leaf in mesh.leaves_of(cluster)]
    leaf = pick(rng, used if rng.randrange(4) else mesh.leaves)
    return leaf, pick(rng, leaf.groups)


# Endpoints


def add_endpoint(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    leaf, group = _draw_place(rng, mesh)
    added = sample(rng, _unlisted(leaf), 1)
    backends = list(group.backends)
    for backend in added:
        backends.insert(rng.randrange(len(backends) + 1), backend)
    new = replace(group, backends=tuple(backends))
    return _with_group(mesh, leaf, group, new, f"add {added} to {group.zone}")


def remove_endpoint(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    leaf, group = _draw_place(rng, mesh)
    removed = pick(rng, group.backends)
    new = replace(group, backends=tuple(each for each in group.backends if each != removed))
    return _with_group(mesh, leaf, group, new, f"remove {removed} from {group.zone}")


def replace_endpoints(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    """All endpoints of a locality."""
    leaf, group = _draw_place(rng, mesh)
    backends = tuple(sample(rng, _unlisted(leaf), 1 + rng.randrange(2)))
    if not backends:
        return None
    new = replace(group, backends=backends, draining=frozenset())
    return _with_group(mesh, leaf, group, new, f"endpoints of {group.zone} become {backends}")


def replace_all_endpoints(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    """All localities and endpoints of a cluster."""
    leaf, _ = _draw_place(rng, mesh)
    changed = _replace_groups(mesh, leaf, list(draw_groups(rng)))
    return None if changed is None else (changed, f"{leaf.name}: other localities and endpoints")


def reorder_endpoints(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    leaf, group = _draw_place(rng, mesh)
    backends = tuple(sample(rng, group.backends, len(group.backends)))
    new = replace(group, backends=backends)
    return _with_group(mesh, leaf, group, new, f"endpoints of {group.zone} in another order")


def change_health(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    leaf, group = _draw_place(rng, mesh)
    draining = group.draining ^ {pick(rng, group.backends)}
    new = replace(group, draining=draining & set(group.backends))
    return _with_group(mesh, leaf, group, new, f"of {group.zone} {sorted(new.draining)} drain")


def change_weight(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    leaf, group = _draw_place(rng, mesh)
    new = replace(group, weight=pick(rng, WEIGHTS))
    return _with_group(mesh, leaf, group, new, f"{group.zone} weighs {new.weight}")


# Priorities


def move_locality(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    """To another priority, or to one between two others."""
    leaf, group = _draw_place(rng, mesh)
    spread = [replace(each, priority=2 * each.priority + 1) for each in leaf.groups]
    at = leaf.groups.index(group)
    spread[at] = replace(group, priority=rng.randrange(2 * PRIORITIES_MAX))
    changed = _replace_groups(mesh, leaf, spread)
    return None if changed is None else (changed, f"{leaf.name}: {group.zone} moves")


def split_locality(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    """Put a locality into a second priority, with some of its endpoints or with others."""
    leaf, group = _draw_place(rng, mesh)
    if len(leaf.groups) >= 2 * GROUPS_MAX:
        return None
    kept, moved = group.backends[:1], group.backends[1:]
    if not moved:
        moved = tuple(sample(rng, _unlisted(leaf), 1))
    if rng.randrange(2):
        kept, moved = moved, kept
    at = rng.randrange(PRIORITIES_MAX + 1)
    pair = [replace(group, backends=kept), replace(group, backends=moved, priority=at)]
    others = [each for each in leaf.groups if each is not group]
    changed = _replace_groups(mesh, leaf, [*others, *pair])
    return None if changed is None else (changed, f"{leaf.name}: {group.zone} in two priorities")


def reverse_priorities(_rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    leaf, _ = _draw_place(_rng, mesh)
    groups = [replace(each, priority=PRIORITIES_MAX * 2 - each.priority) for each in leaf.groups]
    changed = _replace_groups(mesh, leaf, groups)
    return None if changed is None else (changed, f"{leaf.name}: priorities reversed")


def add_priority(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    """Above, between or below the others."""
    leaf, _ = _draw_place(rng, mesh)
    backends = tuple(sample(rng, _unlisted(leaf), 1 + rng.randrange(2)))
    if len({group.priority for group in leaf.groups}) >= PRIORITIES_MAX or not backends:
        return None
    spread = [replace(each, priority=2 * each.priority + 1) for each in leaf.groups]
    new = Group(pick(rng, ZONES), 2 * rng.randrange(PRIORITIES_MAX), 1, backends)
    changed = _replace_groups(mesh, leaf, [*spread, new])
    return None if changed is None else (changed, f"{leaf.name}: new priority with {backends}")


def remove_priority(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    leaf, group = _draw_place(rng, mesh)
    kept = [each for each in leaf.groups if each.priority != group.priority]
    changed = _replace_groups(mesh, leaf, kept)
    text = f"{leaf.name}: priority {group.priority} removed"
    return None if changed is None else (changed, text)


# Clusters and routes


def change_policy(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    leaf, _ = _draw_place(rng, mesh)
    policy = pick(rng, POLICIES)
    return _replace_leaf(mesh, replace(leaf, policy=policy)), f"{leaf.name}: policy {policy}"


def change_aggregate(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    """Other leaves, or another order of them."""
    names = tuple(sample(rng, LEAVES, 1 + rng.randrange(len(LEAVES))))
    return replace(mesh, aggregate=names), f"aggregate of {', '.join(names)}"


def change_default_route(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    """To one cluster, the aggregate included, or to several by weight."""
    clusters = sample(rng, (*LEAVES, AGGREGATE), 1 if rng.randrange(3) else 2 + rng.randrange(2))
    weighted = tuple((name, pick(rng, WEIGHTS)) for name in clusters)
    return replace(mesh, default=weighted), f"default route to {', '.join(clusters)}"


def change_header_route(rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    gold = pick(rng, ("", *LEAVES, AGGREGATE))
    return replace(mesh, gold=gold), f"gold route to {gold}" if gold else "no gold route"


def change_hashing(_rng: Random, mesh: Mesh) -> tuple[Mesh, str] | None:
    is_hashed = not mesh.is_hashed
    return replace(mesh, is_hashed=is_hashed), "hash by header" if is_hashed else "hash at random"


CHANGES: Final[tuple[tuple[int, Change], ...]] = (
    (3, add_endpoint),
    (3, remove_endpoint),
    (4, replace_endpoints),
    (4, replace_all_endpoints),
    (1, reorder_endpoints),
    (2, change_health),
    (1, change_weight),
    (4, move_locality),
    (4, split_locality),
    (3, reverse_priorities),
    (3, add_priority),
    (2, remove_priority),
    (3, change_policy),
    (3, change_aggregate),
    (4, change_default_route),
    (2, change_header_route),
    (1, change_hashing),
)
