"""Unit tests of tools.simulation.plans."""

from dataclasses import replace

from proxyless.controlplane import CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG, Snapshot
from tools.simulation.plans import ROUTES, SERVICE, ClusterPlan, MeshPlan, generation_of

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


def test_plan_has_all_resources_of_its_service() -> None:
    snapshot = PLAN.to_snapshot(Snapshot.of([]))
    assert snapshot.check().ok
    assert set(snapshot.resources(LISTENER)) == {SERVICE}
    assert set(snapshot.resources(ROUTE_CONFIG)) == {ROUTES}
    assert set(snapshot.resources(CLUSTER)) == {"a", "b", "top"}
    assert set(snapshot.resources(ENDPOINTS)) == {"a", "b"}


def test_routes_keep_their_version_when_endpoints_change() -> None:
    before = PLAN.to_snapshot(Snapshot.of([]))
    after = PLAN.with_clusters(b=ClusterPlan((("10.0.0.5:80",),))).to_snapshot(before)
    assert after.version_of(ENDPOINTS) != before.version_of(ENDPOINTS)
    assert after.version_of(ROUTE_CONFIG) == before.version_of(ROUTE_CONFIG)


def test_new_routes_are_a_new_generation() -> None:
    after = PLAN.rerouted(default={"b": 1}, blue={"a": 1})
    assert after.generation == PLAN.generation + 1
    assert after.lanes == {"": {"b": 1}, "blue": {"a": 1}}
    assert after.routed == {"a", "b"}


def test_pruned_plan_keeps_the_leaves_of_routed_clusters() -> None:
    assert set(PLAN.pruned().clusters) == {"a", "b", "top"}
    assert set(PLAN.rerouted(default={"b": 1}, blue={"b": 1}).pruned().clusters) == {"b"}


def test_live_priorities_have_no_draining_endpoints() -> None:
    assert PLAN.clusters["a"].live_priorities == (
        frozenset({"10.0.0.1:80"}),
        frozenset({"10.0.0.3:80"}),
    )


def test_resources_of_a_cluster_have_the_settings_of_its_plan() -> None:
    plan = ClusterPlan(
        (("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"), ("10.0.0.4:80",)),
        localities=2,
        drop_share=0.1,
        max_requests=7,
        has_outlier_detection=True,
    )
    cluster, found = plan.to_resources("a", has_sessions=False, has_load_reports=False)
    assert cluster.circuit_breakers.thresholds[0].max_requests.value == 7
    assert cluster.outlier_detection.enforcing_failure_percentage.value == 100
    assert found.policy.drop_overloads[0].drop_percentage.numerator == 100_000
    places = [
        (each.priority, each.load_balancing_weight.value, len(each.lb_endpoints))
        for each in found.endpoints
    ]
    assert places == [(0, 1, 2), (0, 3, 1), (1, 1, 1)]
    assert len({each.locality.zone for each in found.endpoints}) == 3


def test_dns_cluster_has_no_eds_resource() -> None:
    plan = ClusterPlan(dns_name="web.mesh", max_requests=7)
    [cluster] = plan.to_resources("a", has_sessions=True, has_load_reports=True)
    where = cluster.load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address
    assert (where.address, where.port_value) == ("web.mesh", 50051)
    assert not plan.has_eds


def test_mesh_with_faults_and_sessions_is_complete() -> None:
    snapshot = replace(PLAN, has_injected_faults=True, has_sessions=True).to_snapshot(
        Snapshot.of([])
    )
    assert snapshot.check().ok


def test_generation_is_parsed_from_the_name_of_a_virtual_host() -> None:
    assert generation_of("generation-12") == 12
    assert generation_of("api.example") == 0
