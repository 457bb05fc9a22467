"""A75: policy tree of a cluster, and aggregates as a priority policy over cds policies."""

from __future__ import annotations

from typing import Any

import pytest

from proxyless.base import OK, Status, StatusCode
from proxyless.wire import StreamEnd
from proxyless.xds.lb.cds.priority_children import child_name
from proxyless.xds.resources import DropCategory, HealthStatus, OutlierDetection
from tests.worlds.meshes import MeshWorld, spying
from tests.worlds.session_meshes import cookie, session_listener
from tests.worlds.xds_dependencies import CDS
from tests.worlds.xds_resources import (
    aggregate,
    cluster,
    dns,
    endpoints,
    host,
    hosts,
    locality,
    prioritized,
    route,
    route_config,
)

A, B, C, D = (f"10.0.0.{number}:80" for number in range(1, 5))

PRIORITY = "priority_experimental"
CDS_POLICY = "cds_experimental"
OUTLIER = "outlier_detection_experimental"
IMPL = "xds_cluster_impl_experimental"
OVERRIDE = "xds_override_host_experimental"
LEAF_LAYERS = (OUTLIER, IMPL, OVERRIDE, PRIORITY)


def config_of(update: Any) -> Any:  # noqa: ANN401
    return update.config


def layers_below(config: Any) -> list[str]:  # noqa: ANN401
    """Names of the policies below, as long as each has one child."""
    names = []
    while (child := _only_child(config)) is not None:
        names.append(child.name)
        config = child.config
    return names


def _only_child(config: Any) -> Any:  # noqa: ANN401
    return getattr(config, "child_policy", getattr(config, "child", None))


def aggregate_mesh(world: MeshWorld, *leaves: str) -> MeshWorld:
    """An aggregate called top; leaf x has its endpoint at A, y at B, z at C."""
    places = {"x": A, "y": B, "z": C}
    world.start(
        route_config("top"),
        aggregate("top", *leaves),
        *(cluster(name) for name in places),
        *(endpoints(name, address) for name, address in places.items()),
    )
    return world


# ---------------------------------------------------------------------------------------------
# The tree


@pytest.mark.spec("A75-01")
def test_aggregate_is_a_priority_policy_with_one_cds_child_per_leaf() -> None:
    registries, spies = spying(CDS_POLICY, PRIORITY)
    aggregate_mesh(MeshWorld(registries), "x", "y")
    top = next(
        config_of(update)
        for update in spies[PRIORITY].updates
        if config_of(update).priorities == ("x", "y")
    )
    assert {child.policy.name for child in top.children.values()} == {CDS_POLICY}
    assert [child.policy.config.cluster for child in top.children.values()] == ["x", "y"]


@pytest.mark.spec("A75-02")
def test_nested_aggregates_become_one_priority_policy() -> None:
    registries, spies = spying(PRIORITY)
    world = MeshWorld(registries)
    world.start(
        route_config("top"),
        aggregate("top", "nested", "z"),
        aggregate("nested", "x", "y"),
        *(cluster(name) for name in "xyz"),
        *(endpoints(name, A) for name in "xyz"),
    )
    of_aggregates = [
        config_of(update).priorities
        for update in spies[PRIORITY].updates
        if not config_of(update).priorities[0].startswith("{")
    ]
    assert of_aggregates
    assert set(of_aggregates) == {("x", "y", "z")}
    # One for the aggregate, one for the only leaf that is used.
    assert len(spies[PRIORITY].alive) == 2


@pytest.mark.spec("A75-03")
def test_policies_of_a_cluster_are_nested_in_the_order_of_a75() -> None:
    registries, spies = spying(OUTLIER, *LEAF_LAYERS)
    world = MeshWorld(registries)
    lb_config: Any = ({"xds_wrr_locality_experimental": {"childPolicy": [{"round_robin": {}}]}},)
    world.start(route_config("a"), cluster("a", lb_config=lb_config), endpoints("a", A))
    config = config_of(spies[OUTLIER].updates[-1])
    assert layers_below(config) == [IMPL, OVERRIDE, PRIORITY]
    priority = config_of(spies[PRIORITY].updates[-1])
    [child] = priority.children.values()
    assert child.policy.name == "xds_wrr_locality_experimental"
    assert child.policy.config.child_policy.name == "round_robin"
    assert world.send_rpc() == A


@pytest.mark.spec("A75-04", "A75-06")
def test_cluster_policies_are_kept_when_priorities_change() -> None:
    registries, spies = spying(OUTLIER, IMPL, OVERRIDE)
    world = MeshWorld(registries)
    world.start(
        route_config("a"), cluster("a"), prioritized("a", [locality("x", A)], [locality("y", B)])
    )
    assert world.send_rpc() == A
    world.backend(A).down()
    world.clock.advance(1.0)
    assert world.send_rpc() == B
    world.publish(prioritized("a", [locality("y", B)], [locality("x", A)]))
    world.publish(prioritized("a", [locality("z", C)]))
    world.settle()
    assert world.send_rpc() == C
    for spy in spies.values():
        assert len(spy.created) == 1
        assert len(spy.alive) == 1


@pytest.mark.spec("A75-05")
def test_ejection_is_kept_when_an_endpoint_moves_to_another_priority() -> None:
    world = MeshWorld()
    outlier = OutlierDetection(
        {
            "interval": "10s",
            "baseEjectionTime": "300s",
            "maxEjectionPercent": 50,
            "failurePercentageEjection": {
                "threshold": 50,
                "enforcementPercentage": 100,
                "minimumHosts": 2,
                "requestVolume": 5,
            },
        }
    )
    world.start(
        route_config("a"),
        cluster("a", outlier_detection=outlier),
        prioritized("a", [locality("x", A, B)], [locality("y", C)]),
    )
    for _ in range(20):
        world.call()
        for stream in world.streams(A):
            stream.end(_error())
        world.respond_to_all()
    world.clock.advance(10.0)
    assert {world.send_rpc() for _ in range(4)} == {B}, "A is not ejected"
    world.publish(prioritized("a", [locality("x", B)], [locality("y", A, C)]))
    world.backend(B).down()
    world.clock.advance(1.0)
    assert {world.send_rpc() for _ in range(4)} == {C}, "the ejection of A ended with its move"
    world.clock.advance(310.0)
    assert {world.send_rpc() for _ in range(4)} == {A, C}


def _error() -> StreamEnd:
    return StreamEnd(Status(StatusCode.UNKNOWN, "broken"))


@pytest.mark.spec("A75-06")
def test_circuit_breaker_and_drops_apply_to_all_priorities_of_a_cluster() -> None:
    world = MeshWorld()
    world.start(
        route_config("a"),
        cluster("a", max_concurrent_requests=2),
        prioritized("a", [locality("x", A)], [locality("y", B)]),
    )
    world.call()
    world.backend(A).is_up = False
    [stream] = world.streams(A)
    world.backend(A).down()
    world.clock.advance(1.0)
    world.call()
    assert len(world.streams(B)) == 1
    _, third = world.call()
    assert third.status.code is StatusCode.UNAVAILABLE
    assert "circuit breaker" in third.status.details
    stream.end(_error())
    _, fourth = world.call()
    assert fourth.is_running
    drops = (DropCategory("all", 1_000_000),)
    world.publish(prioritized("a", [locality("x", A)], [locality("y", B)], drops=drops))
    _, fifth = world.call()
    assert "EDS-configured drop: all" in fifth.status.details


@pytest.mark.spec("A75-07")
def test_aggregate_fails_over_to_the_next_leaf_and_back() -> None:
    world = aggregate_mesh(MeshWorld(), "x", "y")
    assert world.send_rpc() == A
    world.backend(A).down()
    world.clock.advance(1.0)
    assert world.send_rpc() == B
    world.backend(A).up()
    world.clock.advance(1.0)
    assert world.send_rpc() == A


@pytest.mark.spec("A75-08")
def test_both_priorities_of_a_leaf_are_tried_before_the_next_leaf() -> None:
    world = MeshWorld()
    slow = world.backend(A)
    slow.connect = lambda: None  # type: ignore[method-assign]
    world.start(
        route_config("top"),
        aggregate("top", "x", "y"),
        cluster("x"),
        prioritized("x", [locality("p", A)], [locality("q", B)]),
        cluster("y"),
        endpoints("y", C),
    )
    _, waiting = world.call(wait_for_ready=True)
    world.clock.advance(9.9)
    assert world.backend(B).accepts == world.backend(C).accepts == 0
    world.clock.advance(0.2)
    assert world.backend(B).accepts == 1, "the second priority of the first leaf is not used"
    assert world.backend(C).accepts == 0
    world.respond_to_all()
    assert waiting.status == OK


@pytest.mark.spec("A75-08")
def test_new_priority_of_a_leaf_is_tried_when_added_while_its_failover_timer_runs() -> None:
    world = MeshWorld()
    world.backend(A).connect = lambda: None  # type: ignore[method-assign]
    world.start(
        route_config("top"),
        aggregate("top", "x", "y"),
        *(cluster(name) for name in "xy"),
        prioritized("x", [locality("p", A)]),
        endpoints("y", C),
    )
    _, waiting = world.call(wait_for_ready=True)
    world.clock.advance(5.0)
    world.publish(prioritized("x", [locality("p", A)], [locality("q", B)]))
    world.clock.advance(5.1)
    assert world.backend(B).accepts == 1, "the second priority of the first leaf is not used"
    assert world.backend(C).accepts == 0
    world.respond_to_all()
    assert waiting.status == OK


@pytest.mark.spec("A75-08")
def test_next_leaf_is_used_earlier_when_a_leaf_loses_a_priority() -> None:
    world = MeshWorld()
    for address in (A, B):
        world.backend(address).connect = lambda: None  # type: ignore[method-assign]
    world.start(
        route_config("top"),
        aggregate("top", "x", "y"),
        *(cluster(name) for name in "xy"),
        prioritized("x", [locality("p", A)], [locality("q", B)]),
        endpoints("y", C),
    )
    world.clock.advance(5.0)
    world.publish(prioritized("x", [locality("q", B)]))
    world.clock.advance(4.9)
    assert world.backend(C).accepts == 0
    world.clock.advance(0.2)
    assert world.backend(C).accepts == 1


@pytest.mark.spec("A75-09")
def test_policies_of_leaves_are_kept_when_leaves_are_reordered() -> None:
    registries, spies = spying(IMPL)
    world = aggregate_mesh(MeshWorld(registries), "x", "y")
    world.backend(A).down()
    world.clock.advance(1.0)
    assert world.send_rpc() == B
    world.publish(aggregate("top", "y", "x"))
    assert world.send_rpc() == B
    world.publish(aggregate("top", "y", "z"))
    assert world.send_rpc() == B
    assert world.backend(B).accepts == 1
    created = len(spies[IMPL].created)
    world.publish(aggregate("top", "z", "y"))
    world.settle()
    assert world.send_rpc() == C
    assert len(spies[IMPL].created) == created + 1


@pytest.mark.spec("A75-10")
def test_cluster_switches_between_eds_and_aggregate_in_place() -> None:
    world = MeshWorld()
    world.start(route_config("a"), cluster("a"), endpoints("a", A), cluster("x"), endpoints("x", B))
    assert world.send_rpc() == A
    for _ in range(3):
        _, running = world.call()
        world.publish(aggregate("a", "x"))
        world.settle()
        world.respond_to_all()
        assert running.status == OK
        assert world.send_rpc() == B
        world.publish(cluster("a"))
        world.settle()
        assert world.send_rpc() == A


@pytest.mark.spec("A75-11")
def test_limits_policy_and_drops_are_those_of_each_leaf() -> None:
    registries, spies = spying("pick_first", "round_robin")
    world = MeshWorld(registries)
    drops = (DropCategory("leaf", 1_000_000),)
    world.start(
        route_config("top"),
        aggregate("top", "x", "y", max_concurrent_requests=1, lb_config=({"pick_first": {}},)),
        cluster("x", lb_config=({"round_robin": {}},), max_concurrent_requests=3),
        endpoints("x", A),
        cluster("y"),
        endpoints("y", B, drops=drops),
    )
    calls = [world.call()[1] for _ in range(4)]
    assert [each.is_running for each in calls] == [True, True, True, False]
    assert len(spies["round_robin"].alive) == 1
    world.backend(A).down()
    world.clock.advance(1.0)
    _, dropped = world.call()
    assert "EDS-configured drop: leaf" in dropped.status.details


@pytest.mark.spec("A75-11")
def test_outlier_detection_is_that_of_the_leaf() -> None:
    registries, spies = spying(OUTLIER)
    world = MeshWorld(registries)
    world.start(
        route_config("top"),
        aggregate("top", "x", outlier_detection=OutlierDetection({"interval": "1s"})),
        cluster("x", outlier_detection=OutlierDetection({"interval": "7s"})),
        endpoints("x", A),
    )
    assert world.send_rpc() == A
    assert [config_of(update).interval_s for update in spies[OUTLIER].updates] == [7]


@pytest.mark.spec("A75-11")
@pytest.mark.parametrize("is_kept", [True, False])
def test_override_host_status_is_that_of_the_leaf(is_kept: bool) -> None:
    all_statuses, none = frozenset(HealthStatus), frozenset[HealthStatus]()
    of_top, of_leaf = (none, all_statuses) if is_kept else (all_statuses, none)
    world = MeshWorld()
    world.publish(
        session_listener(),
        route_config("top"),
        aggregate("top", "x", override_host_status=of_top),
        cluster("x", override_host_status=of_leaf),
        endpoints("x", A, B),
    )
    world.channel.request_connection()
    world.settle()
    served = {world.send_rpc(metadata=cookie(f"{A};top")) for _ in range(6)}
    assert served == ({A} if is_kept else {A, B})


@pytest.mark.spec("A75-12", "A75-14")
@pytest.mark.parametrize("value", [None, "false", "1", "yes"])
def test_policy_of_the_aggregate_is_ignored(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """test_xds_validation_clusters.py checks that the resource is ACKed."""
    name = "GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT"
    monkeypatch.delenv(name, raising=False)
    if value is not None:
        monkeypatch.setenv(name, value)
    assert _leaf_policies() == {"round_robin"}


@pytest.mark.spec("A75-13", "A75-15")
def test_backward_compatible_aggregate_uses_its_own_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT", "true")
    assert _leaf_policies() == {"least_request_experimental"}
    # The same leaf, routed to directly, has its own policy.
    assert _leaf_policies("x") == {"round_robin"}
    assert _leaf_policies("top", "x") == {"least_request_experimental", "round_robin"}


@pytest.mark.spec("A75-13")
def test_aggregate_without_a_parsed_policy_uses_those_of_its_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The flag was set after the resource had come."""
    monkeypatch.setenv("GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT", "true")
    world = MeshWorld()
    top = aggregate("top", "x", lb_config=())
    world.start(route_config("top"), top, cluster("x"), endpoints("x", A))
    assert world.send_rpc() == A


def _leaf_policies(*routed: str) -> set[str]:
    """Leaf policies below the clusters that are routed to; by default the aggregate."""
    names = ("least_request_experimental", "round_robin")
    registries, spies = spying(*names)
    world = MeshWorld(registries)
    world.start(
        hosts(host(*(route(name, f"/{name}.") for name in routed or ("top",)))),
        aggregate("top", "x", lb_config=({"least_request_experimental": {}},)),
        cluster("x"),
        endpoints("x", A),
    )
    for name in routed or ("top",):
        assert world.send_rpc(f"/{name}.Service/Method") == A
    assert all(len(spies[name].alive) <= 1 for name in names)
    return {name for name in names if spies[name].alive}


def test_aggregate_of_eds_and_dns_fails_over_in_order() -> None:
    world = MeshWorld()
    world.start(
        route_config("top"),
        aggregate("top", "x", "named", "z"),
        cluster("x"),
        prioritized("x", [locality("p", A)], [locality("q", B)]),
        dns("named", "backend.example"),
        cluster("z"),
        endpoints("z", D),
    )
    world.dns.respond("backend.example:80", C)
    world.settle()
    for address in (A, B, C):
        assert world.send_rpc() == address
        world.backend(address).down()
        world.clock.advance(1.0)
    assert world.send_rpc() == D
    for address in (C, B, A):
        world.backend(address).up()
        world.clock.advance(1.0)
        assert world.send_rpc() == address


def test_deleted_aggregate_drops_rpcs_until_it_returns() -> None:
    world = aggregate_mesh(MeshWorld(), "x", "y")
    world.remove(CDS, "top")
    _, observer = world.call(wait_for_ready=True)
    assert observer.status.code is StatusCode.UNAVAILABLE
    world.publish(aggregate("top", "x", "y"))
    assert world.send_rpc() == A


@pytest.mark.parametrize("leaf", ["x", "y"])
def test_rpcs_wait_for_new_endpoints_of_a_leaf_when_all_leaves_failed(leaf: str) -> None:
    """D48, for the priorities of an aggregate."""
    world = aggregate_mesh(MeshWorld(), "x", "y")
    by_locality: dict[str, Any] = {
        "xds_wrr_locality_experimental": {"childPolicy": [{"round_robin": {}}]}
    }
    world.publish(*(cluster(name, lb_config=(by_locality,)) for name in "xy"))
    for address in (A, B):
        world.backend(address).down()
    world.clock.advance(1.0)
    _, failed = world.call()
    assert failed.status.code is StatusCode.UNAVAILABLE
    new = world.backend(D)
    new.is_up = False
    connect = new.connect
    new.connect = lambda: world.clock.call_later(5, connect)  # type: ignore[assignment]
    world.publish(endpoints(leaf, D))
    _, waiting = world.call()
    assert not waiting.ends, "the RPC fails by the endpoint of the other leaf"
    new.is_up = True
    world.clock.advance(6)
    world.respond_to_all()
    assert waiting.status == OK


def test_error_of_rpcs_names_the_current_cause_when_only_the_error_of_a_leaf_changes() -> None:
    world = MeshWorld()
    world.start(route_config("top"), aggregate("top", "x", "y"), cluster("x"), endpoints("x"))
    for cause in ("is rejected", "is rejected again"):
        world.watches.put(CDS, "y", Status(StatusCode.UNAVAILABLE, cause))
        world.settle()
        _, observer = world.call()
        assert f'(cluster "y": {cause})' in observer.status.details


def test_child_name_differs_from_the_name_of_the_leaf() -> None:
    assert child_name("x", 0) != "x"
