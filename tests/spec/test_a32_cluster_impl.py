"""What holds for a cluster as a whole: its limit, its drops, its localities, its load reports.

Specs: A32 (circuit breaker), A27 (drops), A52 (localities), LRS, A54 (statuses), A28 (the cluster
manager above). The counters are the process's own, so the worlds below share them.
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
from proxyless.xds.bootstrap import Bootstrap
from proxyless.xds.filters.attributes import CLUSTER
from proxyless.xds.lb.cluster_manager import ClusterManagerFactory
from proxyless.xds.resources import DropCategory, EdsCluster, RetryOnPolicy
from tests.cluster_world import cluster as cluster_message
from tests.cluster_world import parsed_cluster
from tests.spec.channel_world import ChannelWorld, FakeSelector, RecordingPicker
from tests.spec.children_world import ChildrenWorld, stub_config
from tests.spec.mesh_world import PATH, MeshWorld
from tests.spec.xds_world import (
    CDS,
    EDS,
    LDS,
    RDS,
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
from tests.xds_client_world import ClientWorld, LoadStatsResponse, server_config

if TYPE_CHECKING:
    from proxyless.channel import Call
    from tests.spec.channel_world import Observer
    from tests.spec.xds_world import FakeType

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
BROKEN = StreamEnd(Status(StatusCode.UNAVAILABLE, "broken"))
RETRIES = RetryOnPolicy(frozenset({StatusCode.UNAVAILABLE}), 4, 0.1, 0.1)


def limited(limit: int, *resources: object, **settings: Any) -> MeshWorld:  # noqa: ANN401
    """Cluster a with this limit, at A; retries are on, so that a drop shows that it is one."""
    world = MeshWorld()
    world.start(
        hosts(host(route("a", retry=RETRIES))),
        cluster("a", max_concurrent_requests=limit, **settings),
        endpoints("a", A),
        *resources,
    )
    return world


def expect_dropped(world: MeshWorld, path: str = PATH, text: str = "circuit breaker") -> None:
    """An RPC is dropped at once: also a patient one, and it is not sent again."""
    for wait_for_ready in (True, False):
        _, observer = world.call(path, wait_for_ready=wait_for_ready)
        assert observer.status.code is StatusCode.UNAVAILABLE
        assert text in observer.status.details


def calls(world: MeshWorld, count: int, path: str = PATH) -> list[tuple[Call, Observer]]:
    """So many RPCs that are under way."""
    made = [world.call(path) for _ in range(count)]
    assert all(observer.is_running for _, observer in made)
    return made


# ---------------------------------------------------------------------------------------------
# Circuit breaker


@pytest.mark.spec("A32-01")
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
def test_limit_is_the_first_of_default_priority(thresholds: list[Any], limit: int) -> None:
    message = cluster_message(name="a", circuit_breakers={"thresholds": thresholds})
    world = MeshWorld()
    world.start(route_config("a"), parsed_cluster(message), endpoints("a", A))
    calls(world, limit)
    expect_dropped(world)


@pytest.mark.spec("A32-01")
def test_limit_is_for_the_process_whatever_the_channel() -> None:
    one, two = limited(3), limited(3)
    calls(one, 2)
    calls(two, 1)
    expect_dropped(one)
    expect_dropped(two)
    one.answer_all()
    calls(two, 2)
    expect_dropped(one)


@pytest.mark.spec("A32-01")
def test_limit_counts_use_as_a_leaf_of_an_aggregate() -> None:
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


@pytest.mark.spec("A32-01")
def test_another_service_name_is_another_count() -> None:
    one, two = limited(1), limited(1, endpoints("other", A), discovery=EdsCluster("other"))
    calls(one, 1)
    calls(two, 1)
    expect_dropped(one)
    expect_dropped(two)


@pytest.mark.spec("A32-01")
def test_renamed_service_counts_anew_on_the_connections_it_has() -> None:
    world = limited(2)
    old = calls(world, 2)
    expect_dropped(world)
    renamed = eds("a", "renamed", max_concurrent_requests=2)
    world.say(renamed, endpoints("renamed", A))
    new = calls(world, 2)
    expect_dropped(world)
    assert world.backend(A).accepts == 1
    # Each RPC ends where it began: two slots are freed by the new ones, none by the old.
    for _, observer in old:
        world.streams(A)[0].answer()
        assert observer.status == OK
    expect_dropped(world)
    for _, observer in new:
        world.streams(A)[0].answer()
        assert observer.status == OK
    calls(world, 2)
    other = limited(2)
    calls(other, 2)
    expect_dropped(other)


@pytest.mark.spec("A32-02")
def test_slot_is_freed_however_an_rpc_ends() -> None:
    world = limited(1)
    calls(world, 1)
    expect_dropped(world)
    world.streams(A)[0].answer()
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


@pytest.mark.spec("A32-02")
def test_rpc_that_backs_off_holds_no_slot() -> None:
    world = limited(1)
    [(_, first)] = calls(world, 1)
    world.streams(A)[0].end(BROKEN)
    [(_, second)] = calls(world, 1)
    # The slot is taken when the time has come to send again: that attempt is dropped.
    world.clock.advance(0.2)
    assert first.status.code is StatusCode.UNAVAILABLE
    assert "circuit breaker" in first.status.details
    assert second.is_running


@pytest.mark.spec("A32-02")
def test_queued_rpcs_take_no_slot() -> None:
    world = MeshWorld()
    world.backend(A).is_up = False
    world.start(route_config("a"), cluster("a", max_concurrent_requests=2), endpoints("a", A))
    waiting = [world.call(wait_for_ready=True)[1] for _ in range(5)]
    assert all(observer.is_running for observer in waiting)
    world.backend(A).up()
    world.settle()
    # When they are picked for, two fit and the others are dropped.
    assert len(world.streams(A)) == 2
    dropped = [each for each in waiting if not each.is_running]
    assert {each.status.code for each in dropped} == {StatusCode.UNAVAILABLE}
    assert len(dropped) == 3


def test_lowered_limit_holds_for_rpcs_under_way() -> None:
    """As A32 says of gRPC, other than of Envoy: the count goes on."""
    world = limited(5)
    calls(world, 5)
    world.say(cluster("a", max_concurrent_requests=3))
    for _ in range(3):
        expect_dropped(world)
        world.streams(A)[0].answer()
    calls(world, 1)
    expect_dropped(world)
    world.say(cluster("a", max_concurrent_requests=4))
    calls(world, 1)
    expect_dropped(world)


# ---------------------------------------------------------------------------------------------
# Drops


@pytest.mark.spec("A32-03")
def test_drops_come_before_the_pick() -> None:
    world = MeshWorld()
    world.backend(A).is_up = False
    drops = (DropCategory("throttle", 1_000_000),)
    world.start(
        hosts(host(route("a", retry=RETRIES))), cluster("a"), endpoints("a", A, drops=drops)
    )
    expect_dropped(world, text="EDS-configured drop: throttle")
    assert world.channel.state is State.READY
    world.say(endpoints("a", A))
    world.backend(A).up()
    world.clock.advance(1.0)
    assert world.serve() == A


@pytest.mark.spec("A32-03")
def test_everything_dropped_needs_no_endpoints() -> None:
    world = MeshWorld()
    drops = (DropCategory("rest", 1_000_000),)
    world.start(route_config("a"), cluster("a"), endpoints("a", drops=drops))
    assert world.channel.state is State.READY
    expect_dropped(world, text="rest")


@pytest.mark.spec("A27-24", "A32-03")
def test_categories_are_rolled_in_order_each_for_what_the_others_left() -> None:
    world = MeshWorld()
    drops = (DropCategory("first", 300_000), DropCategory("second", 500_000))
    world.start(
        hosts(host(route("a", retry=RETRIES))), cluster("a"), endpoints("a", A, drops=drops)
    )
    seen: Counter[str] = Counter()
    for _ in range(2000):
        _, observer = world.call()
        if observer.is_running:
            world.answer_all()
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
def test_localities_share_by_weight_and_only_those_that_are_ready() -> None:
    world = MeshWorld()
    near, far, dead = (
        locality("x", A, weight=3),
        locality("y", B, weight=1),
        locality("z", C, weight=5),
    )
    world.backend(C).is_up = False
    world.start(route_config("a"), cluster("a", lb_config=WRR), prioritized("a", [near, far, dead]))
    served = Counter(world.serve() for _ in range(2000))
    assert served[A] == pytest.approx(1500, abs=80)
    assert served[A] + served[B] == 2000
    world.backend(C).up()
    world.clock.advance(1.0)
    served = Counter(world.serve() for _ in range(1800))
    assert served[C] == pytest.approx(1000, abs=90)
    assert served[A] == pytest.approx(600, abs=90)
    # Weights alone may change; nothing is connected anew.
    world.say(prioritized("a", [locality("x", A, weight=1), locality("y", B, weight=9)]))
    served = Counter(world.serve() for _ in range(1000))
    assert served[B] == pytest.approx(900, abs=50)
    assert (world.backend(A).accepts, world.backend(B).accepts) == (1, 1)


# ---------------------------------------------------------------------------------------------
# Load reports


class ReportedWorld(MeshWorld):
    """A mesh whose load a real XdsClient reports, to a server that wants to hear each second."""

    def __init__(self, *servers: str) -> None:
        super().__init__()
        self.reports = ClientWorld(
            bootstrap=Bootstrap(servers=tuple(map(server_config, servers or ("a",))))
        )
        self.load_stats = self.reports.client.load_stats

    def take(self, uri: str = "a") -> dict[tuple[str, str], Any]:
        """What the server hears a second later, by cluster and service."""
        self.reports.settle()
        wanted = LoadStatsResponse(send_all_clusters=True)
        wanted.load_reporting_interval.FromSeconds(1)
        lrs = self.reports.server(uri).lrs
        if not getattr(lrs, "is_asked", False):
            lrs.say(wanted.SerializeToString())
            lrs.is_asked = True  # type: ignore[attr-defined]
        self.reports.settle()
        lrs.take_requests()
        self.reports.clock.advance(1)
        [report] = lrs.take_requests()
        return {
            (each.cluster_name, each.cluster_service_name): each for each in report.cluster_stats
        }


def localities_of(stats: Any) -> dict[str, tuple[int, int, int, int]]:  # noqa: ANN401
    """By zone: issued, succeeded, failed, in progress."""
    return {
        each.locality.zone: (
            each.total_issued_requests,
            each.total_successful_requests,
            each.total_error_requests,
            each.total_requests_in_progress,
        )
        for each in stats.upstream_locality_stats
    }


@pytest.mark.spec("LRS-01", "A74-02", "A32-02")
def test_load_of_a_cluster_is_reported_through_the_client_of_the_channel() -> None:
    world = ReportedWorld()
    drops = (DropCategory("throttle", 300_000),)
    world.start(
        route_config("a"),
        eds("a", "service", lrs_server=server_config(), max_concurrent_requests=2),
        prioritized("service", [locality("x", A)], drops=()),
    )
    for _ in range(3):
        world.serve()
    calls(world, 2)
    world.streams(A)[0].end(BROKEN)
    calls(world, 1)
    expect_dropped(world)
    [(key, stats)] = world.take().items()
    assert key == ("a", "service")
    assert localities_of(stats) == {"x": (6, 3, 1, 2)}
    assert stats.total_dropped_requests == 2
    assert list(stats.dropped_requests) == [], "the circuit breaker's drops have no category"
    # Counted from new, but for those in progress; drops have their category.
    world.say(prioritized("service", [locality("x", A), locality("y", B)], drops=drops))
    dropped = 0
    for _ in range(50):
        _, observer = world.call()
        dropped += observer.ends != [] and "throttle" in observer.status.details
        for at in (A, B):
            for stream in world.streams(at)[2 if at == A else 0 :]:
                stream.answer()
    [stats] = world.take().values()
    [category] = stats.dropped_requests
    assert (category.category, category.dropped_count) == ("throttle", dropped)
    assert 5 < dropped < 30


@pytest.mark.spec("LRS-01")
def test_reports_begin_move_and_end_with_the_resource() -> None:
    world = ReportedWorld("a", "b")
    world.start(route_config("a"), cluster("a"), endpoints("a", A))
    world.serve()
    assert world.reports.server("a").streams == [], "nobody wants it"
    world.say(cluster("a", lrs_server=server_config("a")))
    world.serve()
    # The connection was there before; its RPCs count all the same.
    assert localities_of(world.take()["a", ""]) == {"a": (1, 1, 0, 0)}
    _, running = world.call()
    world.say(cluster("a", lrs_server=server_config("b")))
    world.serve()
    assert not world.reports.server("a").lrs.is_open
    assert localities_of(world.take("b")["a", ""]) == {"a": (1, 1, 0, 0)}
    world.answer_all()
    assert running.status == OK
    world.say(cluster("a"))
    world.serve()
    assert not world.reports.server("b").lrs.is_open
    assert world.backend(A).accepts == 1


@pytest.mark.spec("LRS-01")
def test_load_of_a_renamed_service_has_the_new_name() -> None:
    world = ReportedWorld()
    server = server_config()
    world.start(route_config("a"), eds("a", "s1", lrs_server=server), endpoints("s1", A))
    world.serve()
    world.say(eds("a", "s2", lrs_server=server), endpoints("s2", A))
    world.serve()
    taken = world.take()
    assert {key: localities_of(stats) for key, stats in taken.items()} == {
        ("a", "s1"): {"a": (1, 1, 0, 0)},
        ("a", "s2"): {"a": (1, 1, 0, 0)},
    }


@pytest.mark.spec("LRS-01", "A75-11")
def test_leaf_of_an_aggregate_reports_as_itself() -> None:
    world = ReportedWorld()
    world.start(
        route_config("top"),
        aggregate("top", "a", "b"),
        cluster("a", lrs_server=server_config()),
        cluster("b"),
        *(endpoints(name, at) for name, at in (("a", A), ("b", B))),
    )
    world.serve()
    assert list(world.take()) == [("a", "")]


@pytest.mark.spec("LRS-02")
def test_trouble_with_reports_does_not_touch_rpcs() -> None:
    world = ReportedWorld()
    world.start(route_config("a"), cluster("a", lrs_server=server_config()), endpoints("a", A))
    world.reports.settle()
    world.reports.server().lrs.end(Status(StatusCode.UNIMPLEMENTED, "not here"))
    world.serve()
    world.reports.clock.advance(200)
    world.serve()
    assert localities_of(world.take()["a", ""]) == {"a": (2, 2, 0, 0)}, "and nothing is lost"


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


def expect_rewritten(observer: Observer, status: Status) -> None:
    """What the RPC ended with is what the control plane said, unless that may not be said."""
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
        # A resolver that has an error to tell does not say OK.
        *product(("service config", "endpoints"), [each for each in StatusCode if each]),
    ],
)
def test_code_of_the_application_is_not_the_control_plane_s(source: str, code: StatusCode) -> None:
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
def test_trouble_with_a_resource_is_unavailable(
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
def test_trouble_with_a_name_is_unavailable() -> None:
    world = MeshWorld()
    world.start(route_config("named"), dns("named", "backend.example"))
    world.dns.fail("backend.example:80", Status(StatusCode.NOT_FOUND, "no such host"))
    world.settle()
    _, observer = world.call()
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert "no such host" in observer.status.details


# ---------------------------------------------------------------------------------------------
# The cluster manager's state and retention

STATES = (State.READY, State.CONNECTING, State.IDLE, State.TRANSIENT_FAILURE)


def managed(*names: str) -> ChildrenWorld:
    world = ChildrenWorld(ClusterManagerFactory())
    manage(world, *names)
    return world


def manage(world: ChildrenWorld, *names: str) -> None:
    children = {name: {"childPolicy": stub_config(name)} for name in names}
    assert world.update(config={"children": children}) == OK


def picks_of(world: ChildrenWorld, name: str) -> object:
    attributes = EMPTY_ATTRIBUTES.with_(CLUSTER, name)
    return world.picker.pick(PickInfo(PATH, (), attributes))


@pytest.mark.spec("A28-07")
@pytest.mark.parametrize("states", list(product(STATES, repeat=3)))
def test_state_is_the_best_of_the_children(states: tuple[State, ...]) -> None:
    world = managed("a", "b", "c")
    for name, state in zip("abc", states, strict=True):
        world.say(name, state)
    world.expect_state(next(each for each in STATES if each in states))


@pytest.mark.spec("A28-07")
@pytest.mark.parametrize("later", list(product((State.CONNECTING, State.IDLE), repeat=2)))
def test_child_that_fails_counts_as_failing_until_it_is_ready(later: tuple[State, State]) -> None:
    world = managed("a", "b")
    for name in "ab":
        world.say(name, State.TRANSIENT_FAILURE)
    for name, state in zip("ab", later, strict=True):
        world.say(name, state)
        world.expect_state(State.TRANSIENT_FAILURE)
    # Its picker is its own all the same.
    assert isinstance(picks_of(world, "a"), Queue)
    world.say("a", State.READY)
    world.expect_state(State.READY)
    world.say("a", State.CONNECTING)
    world.expect_state(State.CONNECTING)


@pytest.mark.spec("A28-08")
def test_removed_child_is_kept_but_neither_picked_from_nor_counted() -> None:
    world = managed("a", "b")
    world.say("a", State.READY)
    world.say("b", State.CONNECTING)
    first = world.child("a")
    manage(world, "b")
    world.expect_state(State.CONNECTING)
    assert isinstance(picks_of(world, "a"), Drop)
    first.says(State.READY)
    world.expect_state(State.CONNECTING)
    world.advance(15 * 60 - 1)
    world.expect_children("a", "b")
    # It comes back as it was.
    manage(world, "a", "b")
    assert world.child("a") is first
    world.expect_state(State.READY)
    assert isinstance(picks_of(world, "a"), Queue)
    assert first.picks == 1
    # Its time begins again when it leaves again.
    manage(world, "b")
    world.advance(15 * 60 - 1)
    world.expect_children("a", "b")
    world.advance(2)
    world.expect_children("b")
    assert first.is_closed
    manage(world, "a", "b")
    assert world.child("a") is not first


@pytest.mark.spec("A28-08")
def test_connections_of_a_removed_cluster_are_used_again() -> None:
    world = MeshWorld()
    world.start(
        route_config("a"),
        *(cluster(name) for name in "ab"),
        endpoints("a", A),
        endpoints("b", B),
    )
    assert world.serve() == A
    world.say(route_config("b"))
    world.clock.advance(14 * 60.0)
    assert world.children == {"b"}
    world.say(route_config("a"))
    assert world.serve() == A
    assert world.backend(A).accepts == 1
    world.say(route_config("b"))
    world.clock.advance(15 * 60.0)
    world.say(route_config("a"))
    assert world.serve() == A
    assert world.backend(A).accepts == 2
