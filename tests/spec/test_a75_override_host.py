"""A75: sessions stay on their host, across priorities and whatever the child thinks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, Endpoint, Locality, State, Status, hits
from proxyless.lb import Complete, PickInfo, Queue, SubchannelPicker, Update
from proxyless.lb.attributes import HOLDER
from proxyless.lb.hierarchy import path_of, with_path
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.priority import PriorityFactory
from proxyless.lb.policies.priority.policy import FAILOVER_TIMEOUT_S
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.testing import check_policy
from proxyless.xds.config import ClusterConfig, XdsConfig
from proxyless.xds.config.attributes import HEALTH_STATUS, HOSTNAME, LOCALITY, XDS_CONFIG
from proxyless.xds.filters.attributes import OVERRIDE_HOST, OverrideHost
from proxyless.xds.lb.override_host import OverrideHostFactory
from proxyless.xds.resources import HealthStatus
from tests.spec.children_world import StubFactory, stub_config
from tests.spec.lb_world import (
    ANY_RPC,
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    FakeSubchannel,
    Name,
    World,
    address,
    unavailable,
)
from tests.spec.xds_world import cluster, host, listener, route, route_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.base import Address, Attributes
    from proxyless.lb import PickResult

ALL: Final = frozenset(HealthStatus)
UNDRAINED: Final = frozenset({HealthStatus.UNKNOWN, HealthStatus.HEALTHY})
IDLE_TIMEOUT_S: Final = 60.0
SWEEP: Final = "override_host.sweep_scheduled"


def backend(*names: Name, health: HealthStatus = HealthStatus.UNKNOWN) -> Endpoint:
    attributes = (
        EMPTY_ATTRIBUTES.with_(HEALTH_STATUS, health)
        .with_(LOCALITY, Locality(zone=names[0]))
        .with_(HOSTNAME, f"{names[0]}.example")
    )
    return Endpoint(tuple(map(address, names)), attributes)


def draining(*names: Name) -> Endpoint:
    return backend(*names, health=HealthStatus.DRAINING)


def texts(*names: Name) -> tuple[str, ...]:
    return tuple(str(address(name)) for name in names)


class OverrideWorld(World):
    """The policy above a priority policy, as in the tree of a cluster."""

    def __init__(self) -> None:
        self.stubs = StubFactory()
        others = (PriorityFactory(), RoundRobinFactory(), PickFirstFactory(), self.stubs)
        super().__init__(OverrideHostFactory(), others=others)
        # Addresses that got a subchannel while they still had another.
        self.handed_over: list[Name] = []

    def create_subchannel(self, address: Address, attributes: Attributes) -> FakeSubchannel:
        self._names.setdefault(address, self._name_of(address))
        if any(each.address == address for each in self.live):
            self.handed_over.append(self.name(address))
        return super().create_subchannel(address, attributes)

    def _name_of(self, at: Address) -> Name:
        return next(name for name in "abcdefgh" if at in {address(name), address(f"{name}6")})

    # What the test does.

    def serve(
        self,
        *priorities: Sequence[Endpoint | Name],
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        statuses: frozenset[HealthStatus] = UNDRAINED,
        names: tuple[str, ...] = ("p0", "p1", "p2"),
        child: list[dict[str, object]] | None = None,
    ) -> Status:
        """What the control plane says: endpoints by priority, and the cluster's settings."""
        made = [
            with_path(each if isinstance(each, Endpoint) else backend(each), (name,))
            for name, priority in zip(names, priorities, strict=False)
            for each in priority
        ]
        used = names[: len(priorities)]
        children: dict[str, object] = {name: {"config": [{"round_robin": {}}]} for name in used}
        config = {"children": children, "priorities": list(used)}
        return self.tell(
            tuple(made),
            child or [{"priority_experimental": config}],
            idle_timeout_s=idle_timeout_s,
            override_host_status=statuses,
        )

    def tell(
        self,
        endpoints: tuple[Endpoint, ...] | Status,
        child: list[dict[str, object]],
        *,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        override_host_status: frozenset[HealthStatus] = UNDRAINED,
    ) -> Status:
        settings = {"idle_timeout_s": idle_timeout_s, "override_host_status": override_host_status}
        entry = ClusterConfig("c", cluster("c", None, **settings))
        xds_config = XdsConfig(listener(), route_config("c"), host(route("c")), {"c": (entry,)})
        attributes = EMPTY_ATTRIBUTES.with_(XDS_CONFIG, xds_config)
        config = self.parse({"clusterName": "c", "childPolicy": child})
        return self.policy.update(Update(endpoints, config, attributes))

    def connect(self, *names: Name) -> None:
        for name in names:
            self[name].connecting()
            self[name].ready()

    def session(self, *names: Name) -> tuple[Name | Status | None, OverrideHost]:
        """Pick for an RPC whose cookie has these addresses."""
        override = OverrideHost(texts(*names))
        self.rpc = PickInfo("/a/b", attributes=EMPTY_ATTRIBUTES.with_(OVERRIDE_HOST, override))
        try:
            return self.pick(), override
        finally:
            self.rpc = ANY_RPC

    def raw_session(self, *names: Name) -> PickResult:
        override = OverrideHost(texts(*names))
        info = PickInfo("/a/b", attributes=EMPTY_ATTRIBUTES.with_(OVERRIDE_HOST, override))
        return self.picker.pick(info)

    def sticks(self, name: Name) -> None:
        """A session that lives there is served there."""
        assert self.session(name)[0] == name

    def own(self, name: Name) -> None:
        """Have the policy hold a subchannel, READY, to a host that the child does not connect."""
        assert self.session(name)[0] is None
        self.settle()
        assert self.session(name)[0] is None
        self.settle()
        self.connect(name)
        self.sticks(name)


@pytest.fixture
def world() -> OverrideWorld:
    return OverrideWorld()


def two_priorities(world: OverrideWorld, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
    """ "a" and "b" carry traffic, "c" and "d" stand by."""
    world.serve(["a", "b"], ["c", "d"], idle_timeout_s=idle_timeout_s)
    world.connect("a", "b")
    world.expect_state(READY)
    world.take_requests()


# ---------------------------------------------------------------------------------------------
# The map


@pytest.mark.spec("A75-29", "A75-30")
def test_hosts_mirror_the_endpoints_of_all_priorities(world: OverrideWorld) -> None:
    two_priorities(world)
    world.own("c")
    world.own("d")
    kept = world["c"]
    world.serve(["a"], [backend("c", health=HealthStatus.HEALTHY)])
    # At once, however lately it was used.
    world.expect_subchannels("a", "c")
    assert world["c"] is kept
    world.sticks("c")
    # "d" and "b" are unknown now: the child picks.
    assert world.session("d")[0] == "a"
    assert world.session("b")[0] == "a"
    world.serve(["a"], ["d"])
    world.expect_subchannels("a")
    assert world.session("d")[0] is None, "a host that is back starts without a subchannel"


@pytest.mark.spec("A75-30")
def test_a_host_that_returns_while_the_child_held_on_is_found_again(world: OverrideWorld) -> None:
    world.serve(["a"], ["b"])
    world.connect("a")
    # The child that had "a" is not updated any more, but lives on for a while.
    world.serve(["b"], names=("p1",))
    world.connect("b")
    assert world.session("a")[0] == "b"
    world.serve(["b"], ["a"], names=("p1", "p2"))
    world.sticks("a")
    world.expect_subchannels("a", "b")


@pytest.mark.spec("A75-31")
def test_draining_endpoints_are_hidden_from_the_child(world: OverrideWorld) -> None:
    stub = stub_config("s")
    for statuses in (UNDRAINED, ALL):
        world.serve(["a", draining("b")], statuses=statuses, child=[dict(stub[0])])
        assert world.stubs.made[-1].endpoints == [(str(address("a")), ("p0",))]


@pytest.mark.spec("A75-31")
def test_draining_hosts_take_sessions_only_if_the_cluster_says_so(world: OverrideWorld) -> None:
    world.serve(["a", draining("b")], statuses=ALL)
    world.connect("a")
    assert world.session("b")[0] is None
    world.serve(["a", draining("b")], statuses=UNDRAINED)
    assert world.session("b")[0] == "a"


@pytest.mark.spec("A75-31")
def test_a_draining_host_without_sessions_by_config_is_closed(world: OverrideWorld) -> None:
    world.serve(["a", "b"])
    world.connect("a", "b")
    world.sticks("b")
    world.serve(["a", draining("b")])
    world.expect_subchannels("a")


@pytest.mark.spec("A75-32", "A75-49")
def test_a_session_gets_its_host_of_a_priority_that_never_started(world: OverrideWorld) -> None:
    two_priorities(world)
    world.own("c")
    # Nothing else of that priority, and nobody else goes there.
    world.expect_subchannels("a", "b", "c")
    assert set(world.picks(10)) == {"a", "b"}
    assert {world.session("c")[0] for _ in range(4)} == {"c"}


@pytest.mark.spec("A75-33", "A75-42")
def test_what_no_session_used_is_closed_with_the_childs_interest(world: OverrideWorld) -> None:
    world.serve(["a", "b"], statuses=ALL)
    world.connect("a", "b")
    world.picks(4)
    world.serve(["a", draining("b")], statuses=ALL)
    world.expect_subchannels("a")


@pytest.mark.spec("A75-33", "A75-42")
def test_a_priority_that_is_not_needed_any_more_keeps_nothing_unused(world: OverrideWorld) -> None:
    world.serve(["a"], ["b"])
    world["a"].connecting()
    world["a"].fail()
    world.connect("b")
    assert world.pick() == "b"
    world["a"].idle()
    world.connect("a")
    # The priority policy retains it for 15 minutes, and then lets go.
    world.advance(16 * 60)
    world.expect_subchannels("a")


@pytest.mark.spec("A75-41", "A75-44")
def test_what_the_child_releases_is_kept_for_its_sessions(world: OverrideWorld) -> None:
    world.serve(["a", "b"], statuses=ALL)
    world.connect("a", "b")
    world.sticks("b")
    before, created = world["b"], world.created
    world.advance(IDLE_TIMEOUT_S - 0.001)
    world.serve(["a", draining("b")], statuses=ALL)
    assert world["b"] is before, "the very same connection"
    assert world.created == created
    world.sticks("b")
    assert set(world.picks(4)) == {"a"}
    # It is the policy that follows its state now.
    before.idle()
    assert world.session("b")[0] is None
    before.connecting()
    before.ready()
    world.sticks("b")


@pytest.mark.spec("A75-42")
def test_what_was_used_too_long_ago_is_not_kept(world: OverrideWorld) -> None:
    world.serve(["a", "b"], statuses=ALL)
    world.connect("a", "b")
    world.sticks("b")
    world.advance(IDLE_TIMEOUT_S)
    world.serve(["a", draining("b")], statuses=ALL)
    world.expect_subchannels("a")


@pytest.mark.spec("A75-41")
def test_the_child_hears_nothing_of_what_it_released(world: OverrideWorld) -> None:
    world.serve(["a", "b"], statuses=ALL)
    world.connect("a", "b")
    world.sticks("b")
    world.serve(["a", draining("b")], statuses=ALL)
    kept = world["b"]
    world.take_requests()
    kept.fail()
    # A child that still listened would ask for a new connection or for new endpoints.
    assert world.reresolutions == 0
    kept.idle()
    world.settle()
    assert "b" not in world.take_requests()


@pytest.mark.spec("A75-43")
def test_the_child_takes_over_what_it_asks_for(world: OverrideWorld) -> None:
    two_priorities(world)
    world.own("c")
    before = world["c"]
    world.share("c", READY)
    world.serve(["a", "b", "c"])
    world.expect_subchannels("a", "b", "c")
    assert world["c"] is not before
    assert before.is_released
    # The old one was there until the new one was, so that they can share a connection.
    assert world.handed_over == ["c"]
    world.sticks("c")
    # It is the child's now: no sweep takes it.
    world.advance(10 * IDLE_TIMEOUT_S)
    world.expect_subchannels("a", "b", "c")


@pytest.mark.spec("A75-44")
def test_each_state_of_an_owned_subchannel_makes_a_picker(world: OverrideWorld) -> None:
    two_priorities(world)
    world.session("c")
    world.expect_never()
    world.settle()
    world.expect_reports(READY)
    for change in (FakeSubchannel.connecting, FakeSubchannel.fail, FakeSubchannel.idle):
        change(world["c"])
        world.expect_reports(READY)
    world["c"].connecting()
    world["c"].ready()
    world.expect_reports(READY, READY)


@pytest.mark.spec("A75-44")
def test_who_waits_for_a_host_of_a_resting_priority_is_told(world: OverrideWorld) -> None:
    """The priority policy does not report what a child does that is not in use."""
    world.serve(["a"], ["b"])
    world["a"].connecting()
    world.advance(FAILOVER_TIMEOUT_S)
    world["b"].connecting()
    world["a"].ready()
    assert world.session("b")[0] is None
    world.expect_never()
    world["b"].ready()
    world.expect_reports(READY)
    world.sticks("b")
    # The loss of a host that sessions use, too.
    world["b"].idle()
    world.expect_reports(READY)


def test_who_waits_for_what_the_child_gives_up_chooses_again(world: OverrideWorld) -> None:
    world.serve(["a"], child=[dict(stub_config("s")[0])])
    child = world.stubs.made[-1]
    child.says(CONNECTING)
    child.connects_to("a")
    world["a"].connecting()
    assert world.session("a")[0] is None
    world.expect_never()
    child._subchannels.pop().release()  # noqa: SLF001 - as the child does it, without a report
    world.expect_subchannels()
    world.expect_reports()
    world.settle()
    world.expect_reports(CONNECTING)
    assert world.session("a")[0] is None
    world.settle()
    world.expect_subchannels("a")


# ---------------------------------------------------------------------------------------------
# The sweep


@pytest.mark.spec("A75-36", "A75-38")
def test_the_first_sweep_is_an_idle_timeout_after_the_first_addresses(world: OverrideWorld) -> None:
    child: list[dict[str, object]] = [{"round_robin": {}}]
    world.tell(unavailable("no endpoints yet"), child)
    assert world.clock.timers_pending == 0
    with hits(world.trace, SWEEP) as runs:
        world.serve(["a"])
    assert [run.fields["delay_s"] for run in runs] == [IDLE_TIMEOUT_S]
    with hits(world.trace, SWEEP) as runs:
        world.advance(IDLE_TIMEOUT_S)
    assert [run.fields["delay_s"] for run in runs] == [IDLE_TIMEOUT_S]


@pytest.mark.spec("A75-34", "A75-37", "A75-38", "A75-40")
def test_sweeps_run_when_the_first_host_expires(world: OverrideWorld) -> None:
    world.serve(["a", "b", "c"], statuses=ALL)
    world.connect("a", "b", "c")
    world.sticks("a")
    world.sticks("b")
    world.advance(5)
    with hits(world.trace, SWEEP) as runs:
        world.serve([draining("a"), draining("b"), "c"], statuses=ALL)
        world.sticks("a")
        world.sticks("b")
        world.advance(55)
        world.expect_subchannels("a", "b", "c")
        world.sticks("a")
        world.advance(4.999)
        world.expect_subchannels("a", "b", "c")
        world.advance(0.001)
        world.expect_subchannels("a", "c")
    assert [run.fields["delay_s"] for run in runs] == [55, 5, 55]
    world.advance(54.999)
    world.expect_subchannels("a", "c")
    world.advance(0.001)
    world.expect_subchannels("c")


@pytest.mark.spec("A75-35", "A75-37")
def test_rpcs_without_a_session_keep_nothing_alive(world: OverrideWorld) -> None:
    world.serve(["a", "b"], statuses=ALL)
    world.connect("a", "b")
    world.sticks("b")
    world.advance(IDLE_TIMEOUT_S - 1)
    assert set(world.picks(10)) == {"a", "b"}
    world.serve(["a", draining("b")], statuses=ALL)
    world.expect_subchannels("a", "b")
    world.advance(5)
    world.expect_subchannels("a")


@pytest.mark.spec("A75-37")
def test_sweeps_leave_alone_what_the_child_holds(world: OverrideWorld) -> None:
    world.serve(["a", "b"])
    world.connect("a", "b")
    world.sticks("b")
    world.advance(100 * IDLE_TIMEOUT_S)
    world.expect_subchannels("a", "b")


@pytest.mark.spec("A75-34")
def test_a_new_session_uses_the_host_that_the_child_picked(world: OverrideWorld) -> None:
    world.serve(["a", "b"], statuses=ALL)
    world.connect("a", "b")
    used = world.session()[0]
    other = "b" if used == "a" else "a"
    world.serve([draining("a"), draining("b"), "c"], statuses=ALL)
    world.connect("c")
    world.expect_subchannels(str(used), "c")
    assert other not in world.live_names


@pytest.mark.spec("A75-34")
def test_a_pick_that_is_queued_or_passed_by_is_no_use(world: OverrideWorld) -> None:
    world.serve(["a", "b"], statuses=ALL)
    world.connect("a")
    world["b"].connecting()
    assert world.session("b")[0] is None
    assert world.session("b", "a")[0] == "a"
    world.serve(["a", draining("b")], statuses=ALL)
    world.expect_subchannels("a")


@pytest.mark.spec("A75-37")
def test_a_sweep_spares_what_a_session_still_waits_for(world: OverrideWorld) -> None:
    two_priorities(world, idle_timeout_s=1)
    world.session("c")
    world.settle()
    world.session("c")
    world.settle()
    world["c"].connecting()
    # Connecting takes longer than any sweep is away.
    world.advance(30)
    world["c"].ready()
    world.sticks("c")
    # Once nobody uses it, the next sweep takes it; who waited for it chooses again.
    world.expect_never()
    world.advance(5)
    world.expect_subchannels("a", "b")
    world.expect_reports(READY)


@pytest.mark.spec("A75-39")
@pytest.mark.parametrize("idle_timeout_s", [0.0, 1.0, 4.999])
def test_sweeps_are_five_seconds_apart_or_more(world: OverrideWorld, idle_timeout_s: float) -> None:
    with hits(world.trace, SWEEP) as runs:
        two_priorities(world, idle_timeout_s=idle_timeout_s)
        world.own("c")
        world.advance(4.999)
        assert len(runs) == 1
        world.expect_subchannels("a", "b", "c")
        world.advance(20)
    assert [run.fields["delay_s"] for run in runs] == [5.0] * 5
    world.expect_subchannels("a", "b")


@pytest.mark.spec("A75-37")
def test_updates_do_not_put_off_a_sweep_that_is_due(world: OverrideWorld) -> None:
    two_priorities(world)
    world.own("c")
    for _ in range(18):
        world.clock.advance(4)
        world.serve(["a", "b"], ["c", "d"])
    world.expect_subchannels("a", "b")


@pytest.mark.spec("A75-45")
def test_a_changed_idle_timeout_counts_at_once(world: OverrideWorld) -> None:
    two_priorities(world, idle_timeout_s=3600)
    world.own("c")
    with hits(world.trace, SWEEP) as runs:
        world.serve(["a", "b"], ["c", "d"], idle_timeout_s=10)
    assert [run.fields["delay_s"] for run in runs] == [10]
    world.advance(9.999)
    world.expect_subchannels("a", "b", "c")
    world.advance(0.001)
    world.expect_subchannels("a", "b")


@pytest.mark.spec("A75-45")
def test_a_changed_idle_timeout_counts_without_endpoints_too(world: OverrideWorld) -> None:
    world.serve(["a", "b"], child=[{"round_robin": {}}])
    with hits(world.trace, SWEEP) as runs:
        world.tell(unavailable("no such host"), [{"round_robin": {}}], idle_timeout_s=7)
    assert [run.fields["delay_s"] for run in runs] == [7]


@pytest.mark.spec("A75-45")
def test_what_a_shorter_idle_timeout_ended_is_swept_next(world: OverrideWorld) -> None:
    two_priorities(world, idle_timeout_s=3600)
    world.own("c")
    world.advance(1000)
    world.serve(["a", "b"], ["c", "d"], idle_timeout_s=500)
    world.advance(5)
    world.expect_subchannels("a", "b")


@pytest.mark.spec("A75-45", "A75-53", "A55-05")
def test_changed_statuses_count_at_once(world: OverrideWorld) -> None:
    healthy = backend("b", health=HealthStatus.HEALTHY)
    world.serve(["a", healthy])
    world.connect("a", "b")
    world.sticks("b")
    world.expect_never()
    world.serve(["a", healthy], statuses=frozenset({HealthStatus.UNKNOWN}))
    world.expect_reports(READY)
    assert {world.session("b")[0] for _ in range(4)} == {"a", "b"}, "READY, but not eligible"
    world.sticks("a")
    world.serve(["a", healthy], statuses=frozenset())
    assert {world.session("a")[0] for _ in range(4)} == {"a", "b"}


@pytest.mark.spec("A75-46")
def test_close_lets_go_of_everything(world: OverrideWorld) -> None:
    two_priorities(world)
    world.own("c")
    world.sticks("a")
    # Somebody wants a subchannel, but it is too late.
    assert world.session("d")[0] is None
    world.expect_never()
    world.policy.close()
    world.expect_closed()
    picker = world.picker
    info = PickInfo(
        "/a/b", attributes=EMPTY_ATTRIBUTES.with_(OVERRIDE_HOST, OverrideHost(texts("d")))
    )
    picker.pick(info)
    assert world.clock.timers_pending == 0, "an old picker wakes nobody"
    world.advance(10 * IDLE_TIMEOUT_S)
    world.expect_reports()
    world.expect_closed()


# ---------------------------------------------------------------------------------------------
# Priorities


@pytest.mark.spec("A75-47")
def test_a_session_follows_its_endpoint_into_another_priority(world: OverrideWorld) -> None:
    two_priorities(world)
    world.sticks("b")
    created = world.created
    world.serve(["a"], ["b", "d"])
    assert {world.session("b")[0] for _ in range(4)} == {"b"}
    assert set(world.picks(4)) == {"a"}
    assert world.created == created, "the connection stays"


@pytest.mark.spec("A75-48")
def test_a_session_outlives_the_child_that_served_it(world: OverrideWorld) -> None:
    world.serve(["a", "b"], names=("old",))
    world.connect("a", "b")
    before = world["b"]
    world.share("a", READY)
    world.serve(["a"], ["b"], names=("new", "newer"))
    for _ in range(20):
        # Longer than children without use are retained.
        world.sticks("b")
        world.advance(IDLE_TIMEOUT_S - 1)
    assert world["b"] is before
    assert set(world.picks(4)) == {"a"}


# ---------------------------------------------------------------------------------------------
# The picker


@pytest.mark.spec("A75-50", "A75-70")
def test_an_rpc_without_a_session_is_the_childs(world: OverrideWorld) -> None:
    world.serve(["a"])
    world.connect("a")
    first, second = world.picker.pick(ANY_RPC), world.picker.pick(ANY_RPC)
    assert isinstance(first, Complete)
    assert first.subchannel is world["a"]
    assert first is second, "nothing is made for each RPC"


@pytest.mark.spec("A75-51", "A75-68")
def test_a_new_session_is_told_where_it_went(world: OverrideWorld) -> None:
    world.serve([backend("a", "a6")])
    world.connect("a")
    name, override = world.session()
    assert name == "a"
    assert override.actual_addresses == texts("a", "a6")


@pytest.mark.spec("A75-52", "A75-54", "A75-55")
def test_the_first_ready_host_of_the_cookie_is_used(world: OverrideWorld) -> None:
    world.serve(["a", "b", "c", "d"], ["e"])
    world.connect("b", "c")
    world["d"].connecting()
    # Unknown, none, CONNECTING and IDLE ones do not matter then, and nothing is done to them.
    world.take_requests()
    name, override = world.session("h", "e", "d", "a", "c", "b")
    assert (name, override.actual_addresses) == ("c", texts("c"))
    world.settle()
    world.expect_requests()
    assert "e" not in world.live_names


@pytest.mark.spec("A75-55")
@pytest.mark.parametrize("state", [CONNECTING, FAILURE])
def test_an_override_needs_nothing_of_the_child(world: OverrideWorld, state: State) -> None:
    world.serve(["a", "b"], statuses=ALL)
    world.connect("a", "b")
    world.sticks("b")
    world.serve(["a", draining("b")], statuses=ALL)
    world["a"].idle()
    world.settle()
    world["a"].connecting()
    if state is FAILURE:
        world["a"].fail()
    world.expect_state(state)
    name, override = world.session("b")
    assert (name, override.actual_addresses) == ("b", texts("b"))


@pytest.mark.spec("A75-56", "A75-57", "A75-58")
def test_the_first_idle_host_is_connected_soon(world: OverrideWorld) -> None:
    world.serve(["a", "b", "c"], ["d"])
    world["a"].connecting()
    world.take_requests()
    for _ in range(3):
        assert isinstance(world.raw_session("d", "a", "c", "b"), Queue)
    world.expect_requests()
    world.settle()
    world.expect_requests("c")
    world.expect_subchannels("a", "b", "c")


@pytest.mark.spec("A75-59", "A75-61")
def test_a_connecting_host_is_waited_for(world: OverrideWorld) -> None:
    world.serve(["a", "b"], ["c"])
    world.connect("b")
    world["a"].connecting()
    world.take_requests()
    timers = world.clock.timers_pending
    assert world.session("c", "a")[0] is None
    assert world.clock.timers_pending == timers
    world.settle()
    world.expect_requests()
    world.expect_subchannels("a", "b")


@pytest.mark.spec("A75-60")
def test_the_first_host_without_a_subchannel_gets_one(world: OverrideWorld) -> None:
    two_priorities(world)
    assert world.session("d", "c")[0] is None
    world.expect_subchannels("a", "b")
    world.settle()
    world.expect_subchannels("a", "b", "d")


@pytest.mark.spec("A75-61")
@pytest.mark.parametrize("state", [READY, IDLE, CONNECTING])
def test_no_subchannel_is_made_while_a_host_is_better(world: OverrideWorld, state: State) -> None:
    world.serve(["a"], ["c"])
    if state is not IDLE:
        world["a"].connecting()
    if state is READY:
        world["a"].ready()
    assert world.session("c", "a")[0] == ("a" if state is READY else None)
    world.settle()
    assert "c" not in world.live_names


@pytest.mark.spec("A75-62")
def test_hosts_that_fail_are_left_to_the_child(world: OverrideWorld) -> None:
    world.serve(["a", "b", draining("c")])
    world.connect("a")
    world["b"].connecting()
    world["b"].fail()
    name, override = world.session("b", "c", "h")
    assert (name, override.actual_addresses) == ("a", texts("a"))
    world["a"].idle()
    world.settle()
    world["a"].connecting()
    world["a"].fail("refused")
    assert isinstance(world.session("b", "a")[0], Status)


@pytest.mark.spec("A75-63")
def test_a_host_that_fails_does_not_keep_another_from_being_made(world: OverrideWorld) -> None:
    world.serve(["a", "b"], ["c"])
    world.connect("a")
    world["b"].connecting()
    world["b"].fail()
    assert world.session("b", "c")[0] is None
    world.settle()
    world.expect_subchannels("a", "b", "c")


@pytest.mark.spec("A75-64")
def test_an_rpc_is_queued_until_its_host_is_connected(world: OverrideWorld) -> None:
    two_priorities(world)
    picked: list[Name | Status | None] = []
    world.react = lambda _: picked.append(world.session("c")[0])
    assert world.session("c")[0] is None
    world.settle()
    # A new picker found it IDLE, and asked for the connection.
    assert picked == [None]
    world.expect_requests("c")
    world["c"].connecting()
    assert picked == [None, None]
    world["c"].ready()
    assert picked == [None, None, "c"]


@pytest.mark.spec("A75-65")
def test_many_rpcs_make_one_subchannel(world: OverrideWorld) -> None:
    two_priorities(world)
    created = world.created
    for _ in range(100):
        assert world.session("c")[0] is None
    world.settle()
    for _ in range(100):
        assert world.session("c")[0] is None
    world.settle()
    assert world.created == created + 1
    world.expect_subchannels("a", "b", "c")


@pytest.mark.spec("A75-66")
def test_a_subchannel_for_a_session_is_like_one_of_the_childs(world: OverrideWorld) -> None:
    world.serve(["a"], [backend("c", health=HealthStatus.HEALTHY)])
    world.connect("a")
    world.session("c")
    world.settle()
    made = world["c"].attributes
    assert made.get(LOCALITY) == Locality(zone="c")
    assert made.get(HOSTNAME) == "c.example"
    assert path_of(Endpoint((address("c"),), made)) == ()
    # Just as the child would have asked for it, so that both share a connection.
    world.serve([backend("c", health=HealthStatus.HEALTHY)])
    assert world["c"].attributes.without(HOLDER) == made


@pytest.mark.spec("A75-67")
def test_a_host_that_vanished_gets_no_subchannel(world: OverrideWorld) -> None:
    two_priorities(world)
    created = world.created
    world.expect_never()
    assert world.session("c")[0] is None
    world.serve(["a", "b"], ["d"])
    world.expect_reports(READY)
    world.settle()
    assert world.created == created
    assert world.session("c")[0] in {"a", "b"}


@pytest.mark.spec("A75-68")
def test_nothing_is_said_about_a_host_that_is_not_listed(world: OverrideWorld) -> None:
    world.serve(["a"], child=[dict(stub_config("s")[0])])
    child = world.stubs.made[-1]
    for name, actual in (("h", ()), ("a", texts("a"))):
        child.connects_to(name)
        subchannel = child._subchannels[-1]  # noqa: SLF001 - as the child sees it
        child.picker, child.state = SubchannelPicker(Complete(subchannel)), READY
        child.repeats()
        picked, override = world.session("h")
        assert (picked, override.actual_addresses) == (name, actual)


@pytest.mark.spec("A75-69")
def test_what_the_child_does_not_complete_says_nothing(world: OverrideWorld) -> None:
    world.serve(["a"])
    name, override = world.session()
    assert (name, override.actual_addresses) == (None, ())
    world["a"].connecting()
    world["a"].fail()
    failure, override = world.session("h")
    assert isinstance(failure, Status)
    assert override.actual_addresses == ()


@pytest.mark.spec("A75-71")
def test_the_connected_address_comes_first(world: OverrideWorld) -> None:
    world.serve([backend("a", "b", "c")], ["d"])
    world["a"].connecting()
    world["a"].fail()
    world.advance(1)
    world.connect("b")
    name, override = world.session()
    assert (name, override.actual_addresses) == ("b", texts("b", "a", "c"))


def test_the_policy_keeps_the_rules_of_all_policies() -> None:
    for child in ("round_robin", "pick_first"):
        config = {"clusterName": "c", "childPolicy": [{child: {}}]}
        check_policy(OverrideHostFactory(), config=config, seeds=range(10))


def test_backoff_of_owned_subchannels_is_reset_too(world: OverrideWorld) -> None:
    two_priorities(world)
    world.own("c")
    world.policy.reset_backoff()
    assert world["c"].backoff_resets == 1


def test_configs_need_a_cluster_and_a_child(world: OverrideWorld) -> None:
    with pytest.raises(ValueError, match="clusterName"):
        world.parse({"childPolicy": [{"round_robin": {}}]})
    with pytest.raises(ValueError, match="childPolicy"):
        world.parse({"clusterName": "c"})
