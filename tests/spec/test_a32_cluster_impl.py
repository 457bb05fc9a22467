"""Cluster-wide features: circuit breaker, drops, localities and load reports.

Specs: A32 (circuit breaker), A27 (drops), A52 (localities), LRS, A54 (statuses), A28 (the cluster
manager). The counters of RPCs are per process, so all worlds of one test share them.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, OK, State, Status, StatusCode
from proxyless.lb import Drop, Fail, PickInfo, Queue
from proxyless.wire import StreamEnd
from proxyless.xds.filters.attributes import CLUSTER
from proxyless.xds.lb.cluster_manager import ClusterManagerFactory
from proxyless.xds.resources import DropCategory, EdsCluster, RetryOnPolicy
from tests.worlds.channels import ChannelWorld, FakeSelector, RecordingPicker
from tests.worlds.child_policies import ParentPolicyWorld, stub_config
from tests.worlds.load_reports import LoadReportWorld, localities_of
from tests.worlds.meshes import PATH, MeshWorld, spying
from tests.worlds.xds_clients import server_config
from tests.worlds.xds_dependencies import CDS, EDS, LDS, RDS
from tests.worlds.xds_messages import cluster as cluster_message
from tests.worlds.xds_messages import lb_endpoint, parsed_cluster, parsed_endpoints
from tests.worlds.xds_messages import locality as locality_message
from tests.worlds.xds_resources import (
    SERVICE,
    aggregate,
    cluster,
    dns,
    eds,
    endpoints,
    host,
    hosts,
    locality,
    prioritized,
    route,
    route_config,
)

if TYPE_CHECKING:
    from proxyless.channel import Call
    from tests.worlds.channels import CallObserver
    from tests.worlds.xds_dependencies import FakeType

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
BROKEN = StreamEnd(Status(StatusCode.UNAVAILABLE, "broken"))
RETRIES = RetryOnPolicy(frozenset({StatusCode.UNAVAILABLE}), 4, 0.1, 0.1)


def limited(limit: int, *resources: object, **settings: Any) -> MeshWorld:  # noqa: ANN401
    """Cluster a with this limit, at A. A failed RPC is retried; a dropped one is not."""
    world = MeshWorld()
    world.start(
        hosts(host(route("a", retry=RETRIES))),
        cluster("a", max_concurrent_requests=limit, **settings),
        endpoints("a", A),
        *resources,
    )
    return world


def expect_dropped(world: MeshWorld, path: str = PATH, text: str = "circuit breaker") -> None:
    """Check that RPCs, wait-for-ready or not, are dropped at once and not retried."""
    for wait_for_ready in (True, False):
        _, observer = world.call(path, wait_for_ready=wait_for_ready)
        assert observer.status.code is StatusCode.UNAVAILABLE
        assert text in observer.status.details


def calls(world: MeshWorld, count: int, path: str = PATH) -> list[tuple[Call, CallObserver]]:
    """Start this many RPCs, which are then under way."""
    made = [world.call(path) for _ in range(count)]
    assert all(observer.is_running for _, observer in made)
    return made


# ---------------------------------------------------------------------------------------------
# Circuit breaker


@pytest.mark.spec("A32-01", "A32-04")
@pytest.mark.parametrize(
    ("thresholds", "limit"),
    [
        ([], 1024),
        ([{}], 1024),
        ([{"max_requests": {"value": 2}}, {"max_requests": {"value": 1}}], 2),
        (
            [{"priority": "HIGH", "max_requests": {"value": 1}}, {"max_requests": {"value": 3}}],
            3,
        ),
        ([{"max_requests": {"value": 0}}], 0),
    ],
)
def test_limit_is_the_first_threshold_of_default_priority(
    thresholds: list[Any], limit: int
) -> None:
    message = cluster_message(name="a", circuit_breakers={"thresholds": thresholds})
    world = MeshWorld()
    world.start(route_config("a"), parsed_cluster(message), endpoints("a", A))
    calls(world, limit)
    expect_dropped(world)


@pytest.mark.spec("A32-05", "A32-02")
def test_limit_is_shared_by_all_channels_of_the_process() -> None:
    one, two = limited(3), limited(3)
    calls(one, 2)
    calls(two, 1)
    expect_dropped(one)
    expect_dropped(two)
    one.respond_to_all()
    calls(two, 2)
    expect_dropped(one)


@pytest.mark.spec("A32-06")
def test_limit_includes_rpcs_of_aggregates_that_use_the_cluster() -> None:
    world = MeshWorld()
    world.start(
        hosts(host(route("top", "/to.Top/"), route("a"))),
        aggregate("top", "a"),
        cluster("a", max_concurrent_requests=2),
        endpoints("a", A),
    )
    calls(world, 1)
    calls(world, 1, "/to.Top/Method")
    expect_dropped(world)
    expect_dropped(world, "/to.Top/Method")


@pytest.mark.spec("A32-05")
def test_clusters_with_different_service_names_have_separate_counts() -> None:
    one, two = limited(1), limited(1, endpoints("other", A), discovery=EdsCluster("other"))
    calls(one, 1)
    calls(two, 1)
    expect_dropped(one)
    expect_dropped(two)


@pytest.mark.spec("A32-05")
def test_count_starts_at_0_on_the_same_connection_when_the_service_is_renamed() -> None:
    world = limited(2)
    old = calls(world, 2)
    expect_dropped(world)
    renamed = eds("a", "renamed", max_concurrent_requests=2)
    world.publish(renamed, endpoints("renamed", A))
    new = calls(world, 2)
    expect_dropped(world)
    assert world.backend(A).accepts == 1
    # An RPC frees a slot of the count it started with: the old RPCs free no new slot.
    for _, observer in old:
        world.streams(A)[0].respond()
        assert observer.status == OK
    expect_dropped(world)
    for _, observer in new:
        world.streams(A)[0].respond()
        assert observer.status == OK
    calls(world, 2)
    other = limited(2)
    calls(other, 2)
    expect_dropped(other)


@pytest.mark.spec("A32-02", "A32-07")
def test_slot_is_freed_whichever_way_an_rpc_ends() -> None:
    world = limited(1)
    calls(world, 1)
    expect_dropped(world)
    world.streams(A)[0].respond()
    [(call, _)] = calls(world, 1)
    expect_dropped(world)
    call.cancel()
    calls(world, 1)
    expect_dropped(world)
    world.streams(A)[0].head()
    world.streams(A)[0].end(BROKEN)
    _, observer = world.call(timeout_s=1.0)
    expect_dropped(world)
    world.clock.advance(1.1)
    assert observer.status.code is StatusCode.DEADLINE_EXCEEDED
    calls(world, 1)
    assert len(world.streams(A)) == 1


@pytest.mark.spec("A32-07")
def test_rpc_holds_no_slot_during_retry_backoff() -> None:
    world = limited(1)
    [(_, first)] = calls(world, 1)
    world.streams(A)[0].end(BROKEN)
    [(_, second)] = calls(world, 1)
    # No slot is free at the time of the retry, so that attempt is dropped.
    world.clock.advance(0.2)
    assert first.status.code is StatusCode.UNAVAILABLE
    assert "circuit breaker" in first.status.details
    assert second.is_running


@pytest.mark.spec("A32-07")
def test_queued_rpcs_take_no_slot() -> None:
    world = MeshWorld()
    world.backend(A).is_up = False
    world.start(route_config("a"), cluster("a", max_concurrent_requests=2), endpoints("a", A))
    waiting = [world.call(wait_for_ready=True)[1] for _ in range(5)]
    assert all(observer.is_running for observer in waiting)
    world.backend(A).up()
    world.settle()
    # When they are picked for, two get slots and the others are dropped.
    assert len(world.streams(A)) == 2
    dropped = [each for each in waiting if not each.is_running]
    assert {each.status.code for each in dropped} == {StatusCode.UNAVAILABLE}
    assert len(dropped) == 3


def test_lowered_limit_counts_rpcs_under_way() -> None:
    """As A32 says of gRPC, unlike Envoy: the count is kept."""
    world = limited(5)
    calls(world, 5)
    world.publish(cluster("a", max_concurrent_requests=3))
    for _ in range(3):
        expect_dropped(world)
        world.streams(A)[0].respond()
    calls(world, 1)
    expect_dropped(world)
    world.publish(cluster("a", max_concurrent_requests=4))
    calls(world, 1)
    expect_dropped(world)


# ---------------------------------------------------------------------------------------------
# Drops


@pytest.mark.spec("A32-03", "A32-09")
def test_drops_apply_before_the_pick_even_without_a_connection() -> None:
    world = MeshWorld()
    world.backend(A).is_up = False
    drops = (DropCategory("throttle", 1_000_000),)
    world.start(
        hosts(host(route("a", retry=RETRIES))), cluster("a"), endpoints("a", A, drops=drops)
    )
    expect_dropped(world, text="EDS-configured drop: throttle")
    assert world.channel.state is State.READY
    world.publish(endpoints("a", A))
    world.backend(A).up()
    world.clock.advance(1.0)
    assert world.send_rpc() == A


@pytest.mark.spec("A32-10")
def test_channel_is_ready_without_endpoints_when_all_rpcs_are_dropped() -> None:
    world = MeshWorld()
    drops = (DropCategory("rest", 1_000_000),)
    world.start(route_config("a"), cluster("a"), endpoints("a", drops=drops))
    assert world.channel.state is State.READY
    expect_dropped(world, text="rest")


@pytest.mark.spec("A27-55")
def test_drop_categories_apply_in_order_each_to_the_remaining_rpcs() -> None:
    world = MeshWorld()
    drops = (DropCategory("first", 300_000), DropCategory("second", 500_000))
    world.start(
        hosts(host(route("a", retry=RETRIES))), cluster("a"), endpoints("a", A, drops=drops)
    )
    seen: Counter[str] = Counter()
    for _ in range(2000):
        _, observer = world.call()
        if observer.is_running:
            world.respond_to_all()
        dropped = re.search(r"EDS-configured drop: (\w+)", observer.status.details)
        seen[dropped[1] if dropped else "served"] += 1
    assert seen["first"] == pytest.approx(600, abs=90)
    assert seen["second"] == pytest.approx(700, abs=90)
    assert seen["served"] == pytest.approx(700, abs=90)


# ---------------------------------------------------------------------------------------------
# Localities

WRR: tuple[dict[str, object], ...] = (
    {"xds_wrr_locality_experimental": {"childPolicy": [{"round_robin": {}}]}},
)


@pytest.mark.spec("A52-03")
def test_ready_localities_get_rpcs_in_proportion_to_their_weights() -> None:
    world = MeshWorld()
    near, far, dead = (
        locality("x", A, weight=3),
        locality("y", B, weight=1),
        locality("z", C, weight=5),
    )
    world.backend(C).is_up = False
    world.start(route_config("a"), cluster("a", lb_config=WRR), prioritized("a", [near, far, dead]))
    served = Counter(world.send_rpc() for _ in range(2000))
    assert served[A] == pytest.approx(1500, abs=80)
    assert served[A] + served[B] == 2000
    world.backend(C).up()
    world.clock.advance(1.0)
    served = Counter(world.send_rpc() for _ in range(1800))
    assert served[C] == pytest.approx(1000, abs=90)
    assert served[A] == pytest.approx(600, abs=90)
    # Changed weights do not need new connections.
    world.publish(prioritized("a", [locality("x", A, weight=1), locality("y", B, weight=9)]))
    served = Counter(world.send_rpc() for _ in range(1000))
    assert served[B] == pytest.approx(900, abs=50)
    assert (world.backend(A).accepts, world.backend(B).accepts) == (1, 1)


# ---------------------------------------------------------------------------------------------
# Endpoints


@pytest.mark.spec("A50-06")
def test_outlier_detection_is_in_the_tree_and_ejects_nothing_when_it_is_not_configured() -> None:
    registries, spies = spying("outlier_detection_experimental")
    world = MeshWorld(registries)
    world.start(route_config("a"), cluster("a"), endpoints("a", A, B))
    assert len(spies["outlier_detection_experimental"].alive) == 1
    for _ in range(300):
        _, observer = world.call()
        for stream in world.streams(A):
            stream.end(BROKEN)
        world.respond_to_all()
        assert not observer.is_running
        world.clock.advance(1.0)
    assert {world.send_rpc() for _ in range(4)} == {A, B}


@pytest.mark.spec("A61-02", "A61-03")
def test_additional_addresses_are_addresses_of_one_endpoint_with_one_connection() -> None:
    addresses = [
        {"address": {"socket_address": {"address": f"10.0.0.{number}", "port_value": 80}}}
        for number in (2, 3)
    ]
    first = lb_endpoint("10.0.0.1", endpoint={"additional_addresses": addresses})
    resource = parsed_endpoints(locality_message(first))
    [[only]] = resource.priorities
    assert [list(map(str, each.addresses)) for each in only.endpoints] == [[A, B, C]]
    world = MeshWorld()
    world.backend(A).is_up = False
    world.start(route_config("orders"), cluster("orders"), resource)
    world.clock.advance(1.0)
    assert {world.send_rpc() for _ in range(6)} == {B}
    assert [world.backend(each).accepts for each in (A, B, C)] == [0, 1, 0]
    world.backend(B).down()
    world.clock.advance(1.0)
    assert {world.send_rpc() for _ in range(6)} == {C}


# ---------------------------------------------------------------------------------------------
# Load reports


@pytest.mark.spec(
    "LRS-06", "LRS-07", "A32-08", "A74-02", reason="the counts of one mesh go through all of them"
)
def test_load_of_a_cluster_is_reported_by_the_xds_client() -> None:
    world = LoadReportWorld()
    drops = (DropCategory("throttle", 300_000),)
    world.start(
        route_config("a"),
        eds("a", "service", lrs_server=server_config(), max_concurrent_requests=2),
        prioritized("service", [locality("x", A)], drops=()),
    )
    for _ in range(3):
        world.send_rpc()
    calls(world, 2)
    world.streams(A)[0].end(BROKEN)
    calls(world, 1)
    expect_dropped(world)
    [(key, stats)] = world.take_report().items()
    assert key == ("a", "service")
    assert localities_of(stats) == {"x": (6, 3, 1, 2)}
    assert stats.total_dropped_requests == 2
    assert list(stats.dropped_requests) == [], "a drop of the circuit breaker has a category"
    # Counts start at 0 again, except for RPCs in progress; drops have their category.
    world.publish(prioritized("service", [locality("x", A), locality("y", B)], drops=drops))
    dropped = 0
    for _ in range(50):
        _, observer = world.call()
        dropped += observer.ends != [] and "throttle" in observer.status.details
        for at in (A, B):
            for stream in world.streams(at)[2 if at == A else 0 :]:
                stream.respond()
    [stats] = world.take_report().values()
    [category] = stats.dropped_requests
    assert (category.category, category.dropped_count) == ("throttle", dropped)
    assert 5 < dropped < 30


@pytest.mark.spec("LRS-04", "LRS-11")
def test_load_reports_start_move_and_stop_with_lrs_server_of_the_cluster() -> None:
    world = LoadReportWorld("a", "b")
    world.start(route_config("a"), cluster("a"), endpoints("a", A))
    world.send_rpc()
    assert world.reports.server("a").streams == [], "a report without lrs_server"
    world.publish(cluster("a", lrs_server=server_config("a")))
    world.send_rpc()
    # RPCs on a connection that existed before are counted.
    assert localities_of(world.take_report()["a", ""]) == {"a": (1, 1, 0, 0)}
    _, running = world.call()
    world.publish(cluster("a", lrs_server=server_config("b")))
    world.send_rpc()
    assert not world.reports.server("a").lrs.is_open
    assert localities_of(world.take_report("b")["a", ""]) == {"a": (1, 1, 0, 0)}
    world.respond_to_all()
    assert running.status == OK
    world.publish(cluster("a"))
    world.send_rpc()
    assert not world.reports.server("b").lrs.is_open
    assert world.backend(A).accepts == 1


@pytest.mark.spec("LRS-11")
def test_load_is_reported_under_the_new_name_when_the_service_is_renamed() -> None:
    world = LoadReportWorld()
    server = server_config()
    world.start(route_config("a"), eds("a", "s1", lrs_server=server), endpoints("s1", A))
    world.send_rpc()
    world.publish(eds("a", "s2", lrs_server=server), endpoints("s2", A))
    world.send_rpc()
    taken = world.take_report()
    assert {key: localities_of(stats) for key, stats in taken.items()} == {
        ("a", "s1"): {"a": (1, 1, 0, 0)},
        ("a", "s2"): {"a": (1, 1, 0, 0)},
    }


@pytest.mark.spec("LRS-01")
def test_clusters_of_one_server_share_a_load_stream() -> None:
    world = LoadReportWorld("a", "b")
    servers = {"one": "a", "two": "a", "three": "b", "silent": None}
    world.start(
        hosts(host(*(route(name, f"/{name}.") for name in servers))),
        *(
            cluster(name, lrs_server=None if server is None else server_config(server))
            for name, server in servers.items()
        ),
        *(endpoints(name, A) for name in servers),
    )
    for name in servers:
        assert world.send_rpc(f"/{name}.Service/Method") == A
    world.reports.settle()
    assert [len(world.reports.server(uri).streams) for uri in "ab"] == [1, 1]
    assert set(world.take_report("a")) == {("one", ""), ("two", "")}
    assert set(world.take_report("b")) == {("three", "")}


@pytest.mark.spec("LRS-12", "A75-11")
def test_load_of_a_leaf_is_reported_under_its_own_name() -> None:
    world = LoadReportWorld()
    world.start(
        route_config("top"),
        aggregate("top", "a", "b"),
        cluster("a", lrs_server=server_config()),
        cluster("b"),
        *(endpoints(name, at) for name, at in (("a", A), ("b", B))),
    )
    world.send_rpc()
    assert list(world.take_report()) == [("a", "")]


@pytest.mark.spec("LRS-10")
def test_rpcs_are_served_when_load_reports_fail() -> None:
    world = LoadReportWorld()
    world.start(route_config("a"), cluster("a", lrs_server=server_config()), endpoints("a", A))
    world.reports.settle()
    world.reports.server().lrs.end(Status(StatusCode.UNIMPLEMENTED, "not here"))
    world.send_rpc()
    world.reports.clock.advance(200)
    world.send_rpc()
    assert localities_of(world.take_report()["a", ""]) == {"a": (2, 2, 0, 0)}, "counts are lost"


# ---------------------------------------------------------------------------------------------
# Statuses

RESERVED = (
    StatusCode.OK,
    StatusCode.INVALID_ARGUMENT,
    StatusCode.NOT_FOUND,
    StatusCode.ALREADY_EXISTS,
    StatusCode.FAILED_PRECONDITION,
    StatusCode.ABORTED,
    StatusCode.OUT_OF_RANGE,
    StatusCode.DATA_LOSS,
)


def expect_rewritten(observer: CallObserver, status: Status) -> None:
    """Check that the RPC has this status, or INTERNAL if its code is reserved (A54)."""
    if status.code in RESERVED:
        assert observer.status.code is StatusCode.INTERNAL
        assert "from the tree" in observer.status.details
        if status.code is not StatusCode.OK:
            assert status.code.name in observer.status.details
    else:
        assert observer.status == status


@pytest.mark.spec("A54-01")
@pytest.mark.parametrize(
    ("source", "code"),
    [
        *product(("selector", "fail", "drop"), StatusCode),
        # The error of a resolver is never OK.
        *product(("service config", "endpoints"), [each for each in StatusCode if each]),
    ],
)
def test_reserved_status_code_of_the_control_plane_becomes_internal(
    source: str, code: StatusCode
) -> None:
    status = Status(code, "from the tree")
    world = ChannelWorld()
    world.channel.request_connection()
    match source:
        case "selector":
            world.resolve(FakeSelector(status))
        case "service config":
            world.resolve(service_config=status)
        case "endpoints":
            world.resolve(endpoints=status)
        case "fail":
            world.resolve()
            world.report(State.TRANSIENT_FAILURE, RecordingPicker(Fail(status)))
        case _:
            world.resolve()
            world.report(State.READY, RecordingPicker(Drop(status)))
    _, observer = world.call()
    expect_rewritten(observer, status)


@pytest.mark.spec("A54-02")
@pytest.mark.parametrize("code", [each for each in RESERVED if each is not StatusCode.OK])
@pytest.mark.parametrize(
    ("kind", "name"), [(LDS, SERVICE), (RDS, "routes"), (CDS, "a"), (EDS, "a")]
)
def test_rpcs_are_unavailable_when_a_resource_has_an_error(
    kind: FakeType, name: str, code: StatusCode
) -> None:
    world = MeshWorld()
    world.start(route_config("a"), cluster("a"), endpoints("a", A))
    world.watches.put(kind, name, Status(code, "is not there"))
    world.settle()
    world.settle()
    _, observer = world.call()
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert "is not there" in observer.status.details or "does not exist" in observer.status.details
    assert "illegal status code" not in observer.status.details


@pytest.mark.spec("A54-02")
def test_rpcs_are_unavailable_when_a_dns_name_has_an_error() -> None:
    world = MeshWorld()
    world.start(route_config("named"), dns("named", "backend.example"))
    world.dns.fail("backend.example:80", Status(StatusCode.NOT_FOUND, "no such host"))
    world.settle()
    _, observer = world.call()
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert "no such host" in observer.status.details


# ---------------------------------------------------------------------------------------------
# State and retention of the cluster manager

STATES = (State.READY, State.CONNECTING, State.IDLE, State.TRANSIENT_FAILURE)


def managed(*names: str) -> ParentPolicyWorld:
    world = ParentPolicyWorld(ClusterManagerFactory())
    manage(world, *names)
    return world


def manage(world: ParentPolicyWorld, *names: str) -> None:
    children = {name: {"childPolicy": stub_config(name)} for name in names}
    assert world.update(config={"children": children}) == OK


def picks_of(world: ParentPolicyWorld, name: str) -> object:
    attributes = EMPTY_ATTRIBUTES.with_(CLUSTER, name)
    return world.picker.pick(PickInfo(PATH, (), attributes))


@pytest.mark.spec("A28-07")
@pytest.mark.parametrize("states", list(product(STATES, repeat=3)))
def test_state_of_the_manager_is_the_best_of_its_children(states: tuple[State, ...]) -> None:
    world = managed("a", "b", "c")
    for name, state in zip("abc", states, strict=True):
        world.report(name, state)
    world.expect_state(next(each for each in STATES if each in states))


@pytest.mark.spec("A28-25")
@pytest.mark.parametrize("later", list(product((State.CONNECTING, State.IDLE), repeat=2)))
def test_failed_child_counts_as_failing_until_it_is_ready(later: tuple[State, State]) -> None:
    world = managed("a", "b")
    for name in "ab":
        world.report(name, State.TRANSIENT_FAILURE)
    for name, state in zip("ab", later, strict=True):
        world.report(name, state)
        world.expect_state(State.TRANSIENT_FAILURE)
    # The picker of the child is used nevertheless.
    assert isinstance(picks_of(world, "a"), Queue)
    world.report("a", State.READY)
    world.expect_state(State.READY)
    world.report("a", State.CONNECTING)
    world.expect_state(State.CONNECTING)


@pytest.mark.spec("A28-08", "A28-26")
def test_removed_child_is_retained_but_not_used_for_picks_or_state() -> None:
    world = managed("a", "b")
    world.report("a", State.READY)
    world.report("b", State.CONNECTING)
    first = world.child("a")
    manage(world, "b")
    world.expect_state(State.CONNECTING)
    assert isinstance(picks_of(world, "a"), Drop)
    first.report(State.READY)
    world.expect_state(State.CONNECTING)
    world.advance(15 * 60 - 1)
    world.expect_children("a", "b")
    # It returns in the state that it had.
    manage(world, "a", "b")
    assert world.child("a") is first
    world.expect_state(State.READY)
    assert isinstance(picks_of(world, "a"), Queue)
    assert first.picks == 1
    # The retention time starts anew when it is removed again.
    manage(world, "b")
    world.advance(15 * 60 - 1)
    world.expect_children("a", "b")
    world.advance(2)
    world.expect_children("b")
    assert first.is_closed
    manage(world, "a", "b")
    assert world.child("a") is not first


@pytest.mark.spec("A28-08")
def test_connections_of_a_removed_cluster_are_reused_within_15_minutes() -> None:
    world = MeshWorld()
    world.start(
        route_config("a"),
        *(cluster(name) for name in "ab"),
        endpoints("a", A),
        endpoints("b", B),
    )
    assert world.send_rpc() == A
    world.publish(route_config("b"))
    world.clock.advance(14 * 60.0)
    assert world.children == {"b"}
    world.publish(route_config("a"))
    assert world.send_rpc() == A
    assert world.backend(A).accepts == 1
    world.publish(route_config("b"))
    world.clock.advance(15 * 60.0)
    world.publish(route_config("a"))
    assert world.send_rpc() == A
    assert world.backend(A).accepts == 2
