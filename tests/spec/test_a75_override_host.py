"""A75: xds_override_host, which keeps sessions on their host across priorities and updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, OK, Endpoint, Locality, State, Status, StatusCode, hits
from proxyless.lb import QUEUE, Complete, Drop, Fail, Picker, PickInfo, Queue, SubchannelPicker
from proxyless.lb.attributes import HOLDER
from proxyless.lb.hierarchy import path_of
from proxyless.lb.policies.priority.policy import FAILOVER_TIMEOUT_S
from proxyless.testing import ANY_RPC, check_policy
from proxyless.xds.config.attributes import HOSTNAME, LOCALITY
from proxyless.xds.filters.attributes import OVERRIDE_HOST, OverrideHost
from proxyless.xds.lb.override_host import OverrideHostFactory
from proxyless.xds.resources import HealthStatus
from tests.worlds.child_policies import stub_config
from tests.worlds.override_hosts import IDLE_TIMEOUT_S, UNDRAINED, OverrideWorld, backend, texts
from tests.worlds.policies import CONNECTING, FAILURE, IDLE, READY, Name, address, unavailable

if TYPE_CHECKING:
    from proxyless.lb import PickResult

ALL: Final = frozenset(HealthStatus)
SWEEP: Final = "override_host.sweep_scheduled"


def draining(*names: Name) -> Endpoint:
    return backend(*names, health=HealthStatus.DRAINING)


@pytest.fixture
def world() -> OverrideWorld:
    return OverrideWorld()


def two_priorities(world: OverrideWorld, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
    """Priority 0 with "a" and "b", which is used, and priority 1 with "c" and "d"."""
    world.update_priorities(["a", "b"], ["c", "d"], idle_timeout_s=idle_timeout_s)
    world.connect("a", "b")
    world.expect_state(READY)
    world.take_requests()


# ---------------------------------------------------------------------------------------------
# The map of hosts


@pytest.mark.spec("A75-29", "A75-30")
def test_hosts_are_the_endpoints_of_all_priorities(world: OverrideWorld) -> None:
    two_priorities(world)
    world.own("c")
    world.own("d")
    kept = world["c"]
    world.update_priorities(["a"], [backend("c", health=HealthStatus.HEALTHY)])
    # "d" is released at once, even though a session has just used it.
    world.expect_subchannels("a", "c")
    assert world["c"] is kept
    world.expect_session_at("c")
    # "d" and "b" are not listed any more: the child picks.
    assert world.session("d")[0] == "a"
    assert world.session("b")[0] == "a"
    world.update_priorities(["a"], ["d"])
    world.expect_subchannels("a")
    assert world.session("d")[0] is None, "the returned host has its old subchannel"


@pytest.mark.spec("A75-30")
def test_returning_host_is_used_when_the_child_still_holds_its_subchannel(
    world: OverrideWorld,
) -> None:
    world.update_priorities(["a"], ["b"])
    world.connect("a")
    # The child with "a" is not updated any more, but is retained for a while.
    world.update_priorities(["b"], names=("p1",))
    world.connect("b")
    assert world.session("a")[0] == "b"
    world.update_priorities(["b"], ["a"], names=("p1", "p2"))
    world.expect_session_at("a")
    world.expect_subchannels("a", "b")


@pytest.mark.spec("A75-31")
def test_draining_endpoints_are_hidden_from_the_child(world: OverrideWorld) -> None:
    stub = stub_config("s")
    for statuses in (UNDRAINED, ALL):
        world.update_priorities(["a", draining("b")], statuses=statuses, child=[dict(stub[0])])
        assert world.stubs.created[-1].endpoints == [(str(address("a")), ("p0",))]


@pytest.mark.spec("A75-31")
def test_draining_host_keeps_sessions_only_when_its_status_is_configured(
    world: OverrideWorld,
) -> None:
    world.update_priorities(["a", draining("b")], statuses=ALL)
    world.connect("a")
    assert world.session("b")[0] is None
    world.update_priorities(["a", draining("b")], statuses=UNDRAINED)
    assert world.session("b")[0] == "a"


@pytest.mark.spec("A75-31")
def test_subchannel_of_a_draining_host_is_released_when_its_status_is_not_configured(
    world: OverrideWorld,
) -> None:
    world.update_priorities(["a", "b"])
    world.connect("a", "b")
    world.expect_session_at("b")
    world.update_priorities(["a", draining("b")])
    world.expect_subchannels("a")


@pytest.mark.spec("A75-32", "A75-49")
def test_session_uses_its_host_in_a_priority_that_is_not_in_use(world: OverrideWorld) -> None:
    two_priorities(world)
    world.own("c")
    # No other host of that priority is connected, and RPCs without a session do not use it.
    world.expect_subchannels("a", "b", "c")
    assert set(world.picks(10)) == {"a", "b"}
    assert {world.session("c")[0] for _ in range(4)} == {"c"}


@pytest.mark.spec("A75-33", "A75-42")
def test_subchannel_is_released_with_that_of_the_child_when_no_session_used_it(
    world: OverrideWorld,
) -> None:
    world.update_priorities(["a", "b"], statuses=ALL)
    world.connect("a", "b")
    world.picks(4)
    world.update_priorities(["a", draining("b")], statuses=ALL)
    world.expect_subchannels("a")


@pytest.mark.spec("A75-33", "A75-42")
def test_subchannels_of_a_destroyed_priority_are_released_when_no_session_used_them(
    world: OverrideWorld,
) -> None:
    world.update_priorities(["a"], ["b"])
    world["a"].connecting()
    world["a"].fail()
    world.connect("b")
    assert world.pick() == "b"
    world["a"].idle()
    world.connect("a")
    # The priority policy retains the child for 15 minutes, and then closes it.
    world.advance(16 * 60)
    world.expect_subchannels("a")


@pytest.mark.spec("A75-41", "A75-44")
def test_subchannel_released_by_the_child_is_kept_for_its_sessions(world: OverrideWorld) -> None:
    world.update_priorities(["a", "b"], statuses=ALL)
    world.connect("a", "b")
    world.expect_session_at("b")
    before, created = world["b"], world.helper.created
    world.advance(IDLE_TIMEOUT_S - 0.001)
    world.update_priorities(["a", draining("b")], statuses=ALL)
    assert world["b"] is before, "not the same subchannel"
    assert world.helper.created == created
    world.expect_session_at("b")
    assert set(world.picks(4)) == {"a"}
    # Now the policy itself watches its state.
    before.idle()
    assert world.session("b")[0] is None
    before.connecting()
    before.ready()
    world.expect_session_at("b")


@pytest.mark.spec("A75-42")
def test_subchannel_is_not_kept_when_its_last_use_is_longer_ago_than_the_idle_timeout(
    world: OverrideWorld,
) -> None:
    world.update_priorities(["a", "b"], statuses=ALL)
    world.connect("a", "b")
    world.expect_session_at("b")
    world.advance(IDLE_TIMEOUT_S)
    world.update_priorities(["a", draining("b")], statuses=ALL)
    world.expect_subchannels("a")


@pytest.mark.spec("A75-41")
def test_child_is_not_notified_of_a_subchannel_it_released(world: OverrideWorld) -> None:
    world.update_priorities(["a", "b"], statuses=ALL)
    world.connect("a", "b")
    world.expect_session_at("b")
    world.update_priorities(["a", draining("b")], statuses=ALL)
    kept = world["b"]
    world.take_requests()
    kept.fail()
    # A child that was notified would request a connection or a re-resolution.
    assert world.reresolutions == 0
    kept.idle()
    world.settle()
    assert "b" not in world.take_requests()


@pytest.mark.spec("A75-43")
def test_child_takes_over_the_subchannel_when_it_creates_one_for_the_same_host(
    world: OverrideWorld,
) -> None:
    two_priorities(world)
    world.own("c")
    before = world["c"]
    world.share("c", READY)
    world.update_priorities(["a", "b", "c"])
    world.expect_subchannels("a", "b", "c")
    assert world["c"] is not before
    assert before.is_released
    # The old one was released after the new one was created, so that both share a connection.
    assert world.handed_over == ["c"]
    world.expect_session_at("c")
    # The child holds it now: sweeps do not release it.
    world.advance(10 * IDLE_TIMEOUT_S)
    world.expect_subchannels("a", "b", "c")


@pytest.mark.spec("A75-44")
def test_each_state_change_of_an_owned_subchannel_publishes_a_picker(world: OverrideWorld) -> None:
    two_priorities(world)
    world.session("c")
    world.expect_never()
    world.settle()
    world.expect_reports(READY)
    for state in (CONNECTING, FAILURE, IDLE):
        world["c"].become(state)
        world.expect_reports(READY)
    world["c"].connecting()
    world["c"].ready()
    world.expect_reports(READY, READY)


@pytest.mark.spec("A75-44")
def test_queued_rpcs_are_picked_again_when_a_host_of_a_deactivated_priority_is_ready(
    world: OverrideWorld,
) -> None:
    """The priority policy does not forward reports of children that are not in use."""
    world.update_priorities(["a"], ["b"])
    world["a"].connecting()
    world.advance(FAILOVER_TIMEOUT_S)
    world["b"].connecting()
    world["a"].ready()
    assert world.session("b")[0] is None
    world.expect_never()
    world["b"].ready()
    world.expect_reports(READY)
    world.expect_session_at("b")
    # The loss of a host that sessions use is reported, too.
    world["b"].idle()
    world.expect_reports(READY)


def test_queued_rpcs_are_picked_again_when_the_child_releases_their_host(
    world: OverrideWorld,
) -> None:
    world.update_priorities(["a"], child=[dict(stub_config("s")[0])])
    child = world.stubs.created[-1]
    child.report(CONNECTING)
    child.create_subchannel("a")
    world["a"].connecting()
    assert world.session("a")[0] is None
    world.expect_never()
    child._subchannels.pop().release()  # noqa: SLF001 - released by the child without a report
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
    world.update_cluster(unavailable("no endpoints yet"), child)
    assert world.clock.timers_pending == 0
    with hits(world.trace, SWEEP) as runs:
        world.update_priorities(["a"])
    assert [run.fields["delay_s"] for run in runs] == [IDLE_TIMEOUT_S]
    with hits(world.trace, SWEEP) as runs:
        world.advance(IDLE_TIMEOUT_S)
    assert [run.fields["delay_s"] for run in runs] == [IDLE_TIMEOUT_S]


@pytest.mark.spec(
    "A75-34",
    "A75-37",
    "A75-38",
    "A75-40",
    reason="the script of A75-40 runs the timer through all of them",
)
def test_sweeps_run_when_the_first_host_expires(world: OverrideWorld) -> None:
    world.update_priorities(["a", "b", "c"], statuses=ALL)
    world.connect("a", "b", "c")
    world.expect_session_at("a")
    world.expect_session_at("b")
    world.advance(5)
    with hits(world.trace, SWEEP) as runs:
        world.update_priorities([draining("a"), draining("b"), "c"], statuses=ALL)
        world.expect_session_at("a")
        world.expect_session_at("b")
        world.advance(55)
        world.expect_subchannels("a", "b", "c")
        world.expect_session_at("a")
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
def test_rpcs_without_a_session_do_not_extend_the_idle_timeout(world: OverrideWorld) -> None:
    world.update_priorities(["a", "b"], statuses=ALL)
    world.connect("a", "b")
    world.expect_session_at("b")
    world.advance(IDLE_TIMEOUT_S - 1)
    assert set(world.picks(10)) == {"a", "b"}
    world.update_priorities(["a", draining("b")], statuses=ALL)
    world.expect_subchannels("a", "b")
    world.advance(5)
    world.expect_subchannels("a")


@pytest.mark.spec("A75-37")
def test_sweep_does_not_release_subchannels_of_the_child(world: OverrideWorld) -> None:
    world.update_priorities(["a", "b"])
    world.connect("a", "b")
    world.expect_session_at("b")
    world.advance(100 * IDLE_TIMEOUT_S)
    world.expect_subchannels("a", "b")


@pytest.mark.spec("A75-34")
def test_pick_of_the_child_for_a_new_session_counts_as_use_of_its_host(
    world: OverrideWorld,
) -> None:
    world.update_priorities(["a", "b"], statuses=ALL)
    world.connect("a", "b")
    used = world.session()[0]
    other = "b" if used == "a" else "a"
    world.update_priorities([draining("a"), draining("b"), "c"], statuses=ALL)
    world.connect("c")
    world.expect_subchannels(str(used), "c")
    assert other not in world.subchannel_names


@pytest.mark.spec("A75-34")
def test_queued_or_skipped_host_does_not_count_as_used(world: OverrideWorld) -> None:
    world.update_priorities(["a", "b"], statuses=ALL)
    world.connect("a")
    world["b"].connecting()
    assert world.session("b")[0] is None
    assert world.session("b", "a")[0] == "a"
    world.update_priorities(["a", draining("b")], statuses=ALL)
    world.expect_subchannels("a")


@pytest.mark.spec("A75-37")
def test_sweep_does_not_release_a_subchannel_while_it_is_connecting_for_a_session(
    world: OverrideWorld,
) -> None:
    two_priorities(world, idle_timeout_s=1)
    world.session("c")
    world.settle()
    world.session("c")
    world.settle()
    world["c"].connecting()
    # Connecting takes longer than the interval of sweeps.
    world.advance(30)
    world["c"].ready()
    world.expect_session_at("c")
    # The next sweep after its last use releases it, and queued RPCs are picked again.
    world.expect_never()
    world.advance(5)
    world.expect_subchannels("a", "b")
    world.expect_reports(READY)


@pytest.mark.spec("A75-39")
@pytest.mark.parametrize("idle_timeout_s", [0.0, 1.0, 4.999])
def test_sweeps_are_at_least_five_seconds_apart(
    world: OverrideWorld, idle_timeout_s: float
) -> None:
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
def test_updates_do_not_delay_a_sweep(world: OverrideWorld) -> None:
    two_priorities(world)
    world.own("c")
    for _ in range(18):
        world.clock.advance(4)
        world.update_priorities(["a", "b"], ["c", "d"])
    world.expect_subchannels("a", "b")


@pytest.mark.spec("A75-45")
def test_changed_idle_timeout_takes_effect_at_once(world: OverrideWorld) -> None:
    two_priorities(world, idle_timeout_s=3600)
    world.own("c")
    with hits(world.trace, SWEEP) as runs:
        world.update_priorities(["a", "b"], ["c", "d"], idle_timeout_s=10)
    assert [run.fields["delay_s"] for run in runs] == [10]
    world.advance(9.999)
    world.expect_subchannels("a", "b", "c")
    world.advance(0.001)
    world.expect_subchannels("a", "b")


@pytest.mark.spec("A75-45")
def test_changed_idle_timeout_takes_effect_when_the_update_has_no_endpoints(
    world: OverrideWorld,
) -> None:
    world.update_priorities(["a", "b"], child=[{"round_robin": {}}])
    with hits(world.trace, SWEEP) as runs:
        world.update_cluster(unavailable("no such host"), [{"round_robin": {}}], idle_timeout_s=7)
    assert [run.fields["delay_s"] for run in runs] == [7]


@pytest.mark.spec("A75-45")
def test_next_sweep_releases_subchannels_that_exceed_a_shortened_idle_timeout(
    world: OverrideWorld,
) -> None:
    two_priorities(world, idle_timeout_s=3600)
    world.own("c")
    world.advance(1000)
    world.update_priorities(["a", "b"], ["c", "d"], idle_timeout_s=500)
    world.advance(5)
    world.expect_subchannels("a", "b")


@pytest.mark.spec("A75-45", "A75-53", "A55-10")
def test_changed_override_host_status_takes_effect_at_once(world: OverrideWorld) -> None:
    healthy = backend("b", health=HealthStatus.HEALTHY)
    world.update_priorities(["a", healthy])
    world.connect("a", "b")
    world.expect_session_at("b")
    world.expect_never()
    world.update_priorities(["a", healthy], statuses=frozenset({HealthStatus.UNKNOWN}))
    world.expect_reports(READY)
    assert {world.session("b")[0] for _ in range(4)} == {"a", "b"}, (
        "a host is used whose status is not eligible"
    )
    world.expect_session_at("a")
    world.update_priorities(["a", healthy], statuses=frozenset())
    assert {world.session("a")[0] for _ in range(4)} == {"a", "b"}


@pytest.mark.spec("A75-46")
def test_close_releases_all_subchannels_and_timers(world: OverrideWorld) -> None:
    two_priorities(world)
    world.own("c")
    world.expect_session_at("a")
    # A pick requests a subchannel just before the policy is closed.
    assert world.session("d")[0] is None
    world.expect_never()
    world.policy.close()
    world.expect_closed()
    picker = world.picker
    info = PickInfo(
        "/a/b", attributes=EMPTY_ATTRIBUTES.with_(OVERRIDE_HOST, OverrideHost(texts("d")))
    )
    picker.pick(info)
    assert world.clock.timers_pending == 0, "an old picker schedules a callback"
    world.advance(10 * IDLE_TIMEOUT_S)
    world.expect_reports()
    world.expect_closed()


# ---------------------------------------------------------------------------------------------
# Priorities


@pytest.mark.spec("A75-47")
def test_a_session_follows_its_endpoint_into_another_priority(world: OverrideWorld) -> None:
    two_priorities(world)
    world.expect_session_at("b")
    created = world.helper.created
    world.update_priorities(["a"], ["b", "d"])
    assert {world.session("b")[0] for _ in range(4)} == {"b"}
    assert set(world.picks(4)) == {"a"}
    assert world.helper.created == created, "a new subchannel"


@pytest.mark.spec("A75-48")
def test_session_is_kept_when_the_child_that_served_it_is_destroyed(world: OverrideWorld) -> None:
    world.update_priorities(["a", "b"], names=("old",))
    world.connect("a", "b")
    before = world["b"]
    world.share("a", READY)
    world.update_priorities(["a"], ["b"], names=("new", "newer"))
    for _ in range(20):
        # All rounds together take longer than the retention of unused children.
        world.expect_session_at("b")
        world.advance(IDLE_TIMEOUT_S - 1)
    assert world["b"] is before
    assert set(world.picks(4)) == {"a"}


@pytest.mark.spec("A75-25")
def test_timer_of_the_longest_idle_timeout_does_not_fire(world: OverrideWorld) -> None:
    two_priorities(world, idle_timeout_s=315_576_000_000.999999999)
    world.own("c")
    assert world.clock.timers_pending > 0
    world.advance(3_000_000_000)
    assert "c" in world.subchannel_names


# ---------------------------------------------------------------------------------------------
# The picker


@pytest.mark.spec("A75-50", "A75-70")
def test_rpc_without_a_session_gets_the_pick_of_the_child(world: OverrideWorld) -> None:
    world.update_priorities(["a"])
    world.connect("a")
    first, second = world.picker.pick(ANY_RPC), world.picker.pick(ANY_RPC)
    assert isinstance(first, Complete)
    assert first.subchannel is world["a"]
    assert first is second, "a new result for each RPC"


@pytest.mark.spec("A75-51", "A75-68")
def test_new_session_gets_the_addresses_of_its_endpoint(world: OverrideWorld) -> None:
    world.update_priorities([backend("a", "a6")])
    world.connect("a")
    name, override = world.session()
    assert name == "a"
    assert override.actual_addresses == texts("a", "a6")


@pytest.mark.spec("A75-52", "A75-54", "A75-55")
def test_the_first_ready_host_of_the_cookie_is_used(world: OverrideWorld) -> None:
    world.update_priorities(["a", "b", "c", "d"], ["e"])
    world.connect("b", "c")
    world["d"].connecting()
    # Hosts that are not listed, without subchannel, CONNECTING or IDLE are skipped.
    world.take_requests()
    name, override = world.session("h", "e", "d", "a", "c", "b")
    assert (name, override.actual_addresses) == ("c", texts("c"))
    world.settle()
    world.expect_requests()
    assert "e" not in world.subchannel_names


@pytest.mark.spec("A75-55")
@pytest.mark.parametrize("state", [CONNECTING, FAILURE])
def test_host_of_the_cookie_is_used_whatever_the_state_of_the_child(
    world: OverrideWorld, state: State
) -> None:
    world.update_priorities(["a", "b"], statuses=ALL)
    world.connect("a", "b")
    world.expect_session_at("b")
    world.update_priorities(["a", draining("b")], statuses=ALL)
    world["a"].idle()
    world.settle()
    world["a"].connecting()
    if state is FAILURE:
        world["a"].fail()
    world.expect_state(state)
    name, override = world.session("b")
    assert (name, override.actual_addresses) == ("b", texts("b"))


@pytest.mark.spec("A75-56", "A75-57", "A75-58")
def test_connection_of_the_first_idle_host_is_requested_after_the_pick(
    world: OverrideWorld,
) -> None:
    world.update_priorities(["a", "b", "c"], ["d"])
    world["a"].connecting()
    world.take_requests()
    for _ in range(3):
        assert isinstance(world.raw_session("d", "a", "c", "b"), Queue)
    world.expect_requests()
    world.settle()
    world.expect_requests("c")
    world.expect_subchannels("a", "b", "c")


@pytest.mark.spec("A75-59", "A75-61")
def test_rpc_waits_when_its_host_is_connecting(world: OverrideWorld) -> None:
    world.update_priorities(["a", "b"], ["c"])
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
def test_no_subchannel_is_created_when_another_host_of_the_cookie_has_one(
    world: OverrideWorld, state: State
) -> None:
    world.update_priorities(["a"], ["c"])
    if state is not IDLE:
        world["a"].connecting()
    if state is READY:
        world["a"].ready()
    assert world.session("c", "a")[0] == ("a" if state is READY else None)
    world.settle()
    assert "c" not in world.subchannel_names


@pytest.mark.spec("A75-62")
def test_child_picks_when_the_hosts_of_the_cookie_fail(world: OverrideWorld) -> None:
    world.update_priorities(["a", "b", draining("c")])
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
def test_subchannel_is_created_for_the_next_host_when_the_first_fails(world: OverrideWorld) -> None:
    world.update_priorities(["a", "b"], ["c"])
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
    world.helper.react = lambda _: picked.append(world.session("c")[0])
    assert world.session("c")[0] is None
    world.settle()
    # The new picker found it IDLE, and requested a connection.
    assert picked == [None]
    world.expect_requests("c")
    world["c"].connecting()
    assert picked == [None, None]
    world["c"].ready()
    assert picked == [None, None, "c"]


@pytest.mark.spec("A75-65")
def test_many_rpcs_create_one_subchannel(world: OverrideWorld) -> None:
    two_priorities(world)
    created = world.helper.created
    for _ in range(100):
        assert world.session("c")[0] is None
    world.settle()
    for _ in range(100):
        assert world.session("c")[0] is None
    world.settle()
    assert world.helper.created == created + 1
    world.expect_subchannels("a", "b", "c")


@pytest.mark.spec("A75-66")
def test_subchannel_for_a_session_has_the_same_attributes_as_that_of_the_child(
    world: OverrideWorld,
) -> None:
    world.update_priorities(["a"], [backend("c", health=HealthStatus.HEALTHY)])
    world.connect("a")
    world.session("c")
    world.settle()
    made = world["c"].attributes
    assert made.get(LOCALITY) == Locality(zone="c")
    assert made.get(HOSTNAME) == "c.example"
    assert path_of(Endpoint((address("c"),), made)) == ()
    # The same as those of the child, so that both share a connection.
    world.update_priorities([backend("c", health=HealthStatus.HEALTHY)])
    assert world["c"].attributes.without(HOLDER) == made


@pytest.mark.spec("A75-67")
def test_no_subchannel_is_created_when_the_host_is_removed_before(world: OverrideWorld) -> None:
    two_priorities(world)
    created = world.helper.created
    world.expect_never()
    assert world.session("c")[0] is None
    world.update_priorities(["a", "b"], ["d"])
    world.expect_reports(READY)
    world.settle()
    assert world.helper.created == created
    assert world.session("c")[0] in {"a", "b"}


@pytest.mark.spec("A75-68")
def test_actual_addresses_are_empty_when_the_picked_host_is_not_listed(
    world: OverrideWorld,
) -> None:
    world.update_priorities(["a"], child=[dict(stub_config("s")[0])])
    child = world.stubs.created[-1]
    for name, actual in (("h", ()), ("a", texts("a"))):
        world.share(name, READY)
        child.create_subchannel(name)
        subchannel = child._subchannels[-1]  # noqa: SLF001 - the subchannel as the child holds it
        child.picker, child.state = SubchannelPicker(Complete(subchannel)), READY
        child.report_again()
        picked, override = world.session("h")
        assert (picked, override.actual_addresses) == (name, actual)


@pytest.mark.spec("A75-69")
@pytest.mark.parametrize("cookie", [(), ("h",)], ids=["no cookie", "unknown host"])
def test_queue_fail_and_drop_of_the_child_are_returned_unchanged(
    world: OverrideWorld, cookie: tuple[Name, ...]
) -> None:
    world.update_priorities(["a"], child=[dict(stub_config("s")[0])])
    child = world.stubs.created[-1]
    status = Status(StatusCode.UNAVAILABLE, "from the child")
    for state, result in ((READY, QUEUE), (FAILURE, Fail(status)), (READY, Drop(status))):
        child.picker, child.state = FixedPicker(result, status if state is FAILURE else OK), state
        child.report_again()
        override = OverrideHost(texts(*cookie))
        attributes = EMPTY_ATTRIBUTES.with_(OVERRIDE_HOST, override)
        assert world.picker.pick(PickInfo("/a/b", attributes=attributes)) is result
        assert override.actual_addresses == ()


class FixedPicker(Picker):
    """Returns the same result for every RPC."""

    def __init__(self, result: PickResult, status: Status) -> None:
        self._result = result
        self._status = status

    def pick(self, info: PickInfo) -> PickResult:
        return self._result

    @property
    def status(self) -> Status:
        return self._status


@pytest.mark.spec("A75-71")
def test_connected_address_is_the_first_of_the_actual_addresses(world: OverrideWorld) -> None:
    world.update_priorities([backend("a", "b", "c")], ["d"])
    world["a"].connecting()
    world["a"].fail()
    world.advance(1)
    world.connect("b")
    name, override = world.session()
    assert (name, override.actual_addresses) == ("b", texts("b", "a", "c"))


def test_policy_passes_the_checks_for_all_policies() -> None:
    for child in ("round_robin", "pick_first"):
        config = {"clusterName": "c", "childPolicy": [{child: {}}]}
        check_policy(OverrideHostFactory(), config=config, seeds=range(10))


def test_reset_backoff_reaches_owned_subchannels(world: OverrideWorld) -> None:
    two_priorities(world)
    world.own("c")
    world.policy.reset_backoff()
    assert world["c"].backoff_resets == 1


def test_config_is_refused_without_cluster_name_or_child_policy(world: OverrideWorld) -> None:
    with pytest.raises(ValueError, match="clusterName"):
        world.parse({"childPolicy": [{"round_robin": {}}]})
    with pytest.raises(ValueError, match="childPolicy"):
        world.parse({"clusterName": "c"})
