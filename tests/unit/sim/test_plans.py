"""Does a plan become the configuration that it stands for?"""

from proxyless.controlplane import CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG, Snapshot
from proxyless.sim.plans import ROUTES, SERVICE, ClusterPlan, MeshPlan, generation_of

PLAN = MeshPlan(
    lanes={"": {"a": 1, "b": 3}, "blue": {"top": 1}},
    clusters={
        "a": ClusterPlan(
            (("10.0.0.1:80", "10.0.0.2:80"), ("10.0.0.3:80",)), frozenset({"10.0.0.2:80"})
        ),
        "b": ClusterPlan((("10.0.0.4:80",),)),
        "top": ClusterPlan(leaves=("a", "b")),
    },
)


def test_a_plan_has_all_that_its_service_needs() -> None:
    snapshot = PLAN.to_snapshot(Snapshot.of([]))
    assert snapshot.check().ok
    assert set(snapshot.resources(LISTENER)) == {SERVICE}
    assert set(snapshot.resources(ROUTE_CONFIG)) == {ROUTES}
    assert set(snapshot.resources(CLUSTER)) == {"a", "b", "top"}
    assert set(snapshot.resources(ENDPOINTS)) == {"a", "b"}


def test_a_change_of_endpoints_changes_no_route() -> None:
    before = PLAN.to_snapshot(Snapshot.of([]))
    after = PLAN.with_clusters(b=ClusterPlan((("10.0.0.5:80",),))).to_snapshot(before)
    assert after.version_of(ENDPOINTS) != before.version_of(ENDPOINTS)
    assert after.version_of(ROUTE_CONFIG) == before.version_of(ROUTE_CONFIG)


def test_new_routes_are_a_new_generation() -> None:
    after = PLAN.rerouted(default={"b": 1}, blue={"a": 1})
    assert after.generation == PLAN.generation + 1
    assert after.lanes == {"": {"b": 1}, "blue": {"a": 1}}
    assert after.routed == {"a", "b"}


def test_pruning_keeps_the_leaves_of_what_is_routed() -> None:
    assert set(PLAN.pruned().clusters) == {"a", "b", "top"}
    assert set(PLAN.rerouted(default={"b": 1}, blue={"b": 1}).pruned().clusters) == {"b"}


def test_draining_endpoints_are_not_for_rpcs() -> None:
    assert PLAN.clusters["a"].live_priorities == (
        frozenset({"10.0.0.1:80"}),
        frozenset({"10.0.0.3:80"}),
    )


def test_a_virtual_host_says_its_generation() -> None:
    assert generation_of("generation-12") == 12
    assert generation_of("api.example") == 0
