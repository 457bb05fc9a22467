"""Unit tests of tools.fuzz_mesh.plan."""

from __future__ import annotations

from collections import Counter

import pytest

from proxyless.controlplane import Snapshot
from tools.fuzz_mesh.faults import FAULTS
from tools.fuzz_mesh.mesh import Mesh, to_resources
from tools.fuzz_mesh.plan import LAST_STEP, Plan, make_plan
from tools.fuzz_mesh.state import BACKENDS
from tools.fuzz_xds import context, resource_types

SEEDS = range(40)
SECONDS = 60.0
ADDRESSES = [f"127.0.0.1:{50_000 + number}" for number in range(BACKENDS)]


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return [make_plan(seed, SECONDS) for seed in SEEDS]


def test_plan_is_the_same_when_the_seed_is_the_same(plans: list[Plan]) -> None:
    assert make_plan(SEEDS[0], SECONDS) == plans[0]
    assert plans[0].steps != plans[1].steps


def test_plan_keeps_its_beginning_and_its_end_when_it_is_cut(plans: list[Plan]) -> None:
    plan = plans[0]
    assert plan.until(2).steps == (*plan.steps[:3], plan.steps[-1])
    assert plan.until(len(plan.steps)) == plan
    assert plan.steps[-1].name == LAST_STEP


def test_plans_have_faults_of_every_kind(plans: list[Plan]) -> None:
    kinds = Counter(action.kind for plan in plans for step in plan.steps for action in step.actions)
    assert kinds.keys() == {
        "serve", "sleep", "start", "kill", "drain", "pause", "hang", "continue", "break_streams"
    }  # fmt: skip
    names = " ".join(step.name for plan in plans for step in plan.steps)
    texts = (
        "flap",
        "blackout",
        "pause",
        "hole instead",
        "hole beside",
        "hole above",
        "listener lost",
    )
    assert all(text in names for text in (*texts, "and then the listener", "is all there is"))
    assert len(FAULTS) == len({fault for _, fault in FAULTS})


def test_every_mesh_is_valid(plans: list[Plan]) -> None:
    meshes = [action.mesh for plan in plans[:3] for step in plan.steps for action in step.actions]
    for mesh in filter(None, meshes):
        resources = to_resources(mesh, ADDRESSES)
        Snapshot.of(resources, partial=not mesh.is_complete)
        for resource in resources:
            kind = resource_types()[resource.DESCRIPTOR.full_name]
            assert not kind.decode(resource.SerializeToString(), context()).error


def is_reachable(mesh: Mesh, up: set[int]) -> bool:
    """Whether every cluster that is routed to has a backend that is up."""
    return all(
        any(up & set(leaf.in_use) for leaf in mesh.leaves_of(cluster)) for cluster in mesh.targets
    )


def test_every_cluster_in_use_has_a_backend_that_is_up(plans: list[Plan]) -> None:
    for plan in plans:
        mesh, up = plan.mesh, set(range(BACKENDS))
        assert is_reachable(mesh, up)
        for step in plan.steps:
            for action in step.actions:
                if action.kind in {"kill", "drain"}:
                    up.discard(action.backend)
                elif action.kind == "start":
                    up.add(action.backend)
                mesh = action.mesh or mesh
                assert is_reachable(mesh, up) or step.name.startswith("blackout"), plan.seed
            assert is_reachable(mesh, up), plan.seed
        assert up == set(range(BACKENDS))
        assert mesh.is_complete
        assert mesh.has_listener
