"""A61: Happy Eyeballs and health watches of pick_first."""

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, Attributes
from proxyless.lb.attributes import HEALTH_WATCH
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.pick_first.config import CONNECTION_ATTEMPT_DELAY
from proxyless.lb.policies.pick_first.happy_eyeballs import NO_OVERLAP_S
from proxyless.testing import ANY_RPC
from tests.worlds.policies import (
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    Name,
    PolicyWorld,
    ScriptedSubchannel,
)

WITH_HEALTH = EMPTY_ATTRIBUTES.with_(HEALTH_WATCH, True)
TICK_S = 0.001


@pytest.fixture
def world() -> PolicyWorld:
    return PolicyWorld(PickFirstFactory())


def with_delay(delay_s: float) -> Attributes:
    return EMPTY_ATTRIBUTES.with_(CONNECTION_ATTEMPT_DELAY, delay_s)


def fail(world: PolicyWorld, *names: Name) -> None:
    for name in names:
        world[name].connecting()
        world[name].fail(f"{name} refused")


# ---------------------------------------------------------------------------------------------
# The delay


@pytest.mark.spec("HE-01")
@pytest.mark.parametrize(
    ("configured_s", "delay_s"),
    [(None, 0.25), (0.3, 0.3), (0.1, 0.1), (0.01, 0.1), (-1, 0.1), (2, 2), (2.1, 2), (3600, 2)],
)
def test_connection_attempt_delay_is_limited_to_its_bounds(
    world: PolicyWorld, configured_s: float | None, delay_s: float
) -> None:
    attributes = EMPTY_ATTRIBUTES if configured_s is None else with_delay(configured_s)
    world.update("a", "b", "c", attributes=attributes)
    world["a"].connecting()
    world.take_requests()
    world.advance(delay_s - TICK_S)
    world.expect_requests()
    world.advance(TICK_S)
    world.expect_requests("b")


@pytest.mark.spec("HE-01")
def test_no_delay_runs_for_the_last_address(world: PolicyWorld) -> None:
    world.update("a", "b")
    assert world.clock.timers_pending == 1
    world.advance(0.25)
    assert world.clock.timers_pending == 0
    world.update("c")
    assert world.clock.timers_pending == 0
    world.update("d", "e")
    assert world.clock.timers_pending == 1
    fail(world, "d")  # The delay of d does not run on for e.
    assert world.clock.timers_pending == 0


def test_addresses_are_tried_one_at_a_time_when_overlap_is_off(world: PolicyWorld) -> None:
    """Decision D8."""
    world.update("a", "b", attributes=with_delay(NO_OVERLAP_S))
    world["a"].connecting()
    world.advance(3600)
    world.expect_requests("a")
    world["a"].fail()
    world.expect_requests("b")


@pytest.mark.spec("HE-02")
def test_next_address_is_tried_concurrently_when_the_delay_is_over(
    world: PolicyWorld,
) -> None:
    world.update("a", "b", "c")
    world["a"].connecting()
    world.advance(0.25)
    world["b"].connecting()
    world.expect_requests("a", "b")
    world["a"].ready()  # The first attempt was not cancelled.
    world.expect_pick("a")


@pytest.mark.spec("HE-02")
def test_next_address_is_tried_at_once_with_a_new_delay_after_a_failure(world: PolicyWorld) -> None:
    world.update("a", "b", "c")
    world.advance(0.2)
    fail(world, "a")
    world.expect_requests("a", "b")
    world["b"].connecting()
    world.advance(0.25 - TICK_S)
    world.expect_requests()
    world.advance(TICK_S)
    world.expect_requests("c")


@pytest.mark.spec("HE-02")
def test_failure_of_an_earlier_address_does_not_shorten_the_delay(world: PolicyWorld) -> None:
    world.update("a", "b", "c")
    world["a"].connecting()
    world.advance(0.25)
    world["b"].connecting()
    world.take_requests()
    world["a"].fail()
    world.advance(0.25 - TICK_S)
    world.expect_requests()
    world.advance(TICK_S)
    world.expect_requests("c")


@pytest.mark.spec("HE-03")
def test_first_ready_subchannel_is_selected_and_all_others_are_released(world: PolicyWorld) -> None:
    world.update("a", "b", "c", "d")
    world["a"].connecting()
    world.advance(0.25)
    world["b"].connecting()
    world["b"].ready()
    world.expect_subchannels("b")
    assert world.clock.timers_pending == 0
    world.take_requests()
    world.advance(10)
    world.expect_requests()
    world.expect_pick("b")


@pytest.mark.spec("HE-03")
def test_a_pass_ends_when_each_address_failed_once(world: PolicyWorld) -> None:
    world.update("a", "b", "c")
    world["a"].connecting()
    fail(world, "a")
    world["a"].idle()
    fail(world, "b")
    world["c"].connecting()
    assert (world.state, world.reresolutions) == (CONNECTING, 0)
    world["c"].fail()
    assert (world.state, world.reresolutions) == (FAILURE, 1)


# ---------------------------------------------------------------------------------------------
# States of subchannels at the start of a pass


@pytest.mark.spec("HE-04")
def test_address_that_is_already_connecting_is_not_requested_again(world: PolicyWorld) -> None:
    world.share("a", CONNECTING)
    world.update("a", "b")
    world.expect_reports(CONNECTING)
    world.expect_requests()
    world.advance(0.25)
    world.expect_requests("b")
    world["b"].connecting()
    world["b"].fail()
    world["a"].fail()
    world.expect_reports(FAILURE)


@pytest.mark.spec("HE-04")
def test_addresses_already_in_failure_are_skipped_at_once(
    world: PolicyWorld,
) -> None:
    world.share("a", FAILURE)
    world.share("b", FAILURE)
    world.update("a", "b", "c", "d")
    world.expect_requests("c")
    world["c"].connecting()
    world["c"].fail()
    world["d"].connecting()
    world["d"].fail()
    world.expect_reports(CONNECTING, FAILURE)  # a and b count as failed.


@pytest.mark.spec("HE-04")
def test_policy_fails_at_once_when_the_whole_list_is_already_in_failure(world: PolicyWorld) -> None:
    world.share("a", FAILURE, "a refused")
    world.update("a")
    world.expect_reports(FAILURE)
    world.expect_pick_fails("a refused")
    assert world.reresolutions == 1
    world["a"].idle()
    world.expect_requests("a")


@pytest.mark.spec("HE-04")
def test_400_failing_addresses_cause_no_recursion(world: PolicyWorld) -> None:
    names = [str(number) for number in range(400)]
    for name in names:
        world.share(name, FAILURE)
    world.update(*names, "a")
    world.expect_requests("a")


@pytest.mark.spec("HE-04")
def test_400_attempts_that_fail_inside_the_request_cause_no_recursion(
    world: PolicyWorld,
) -> None:
    def refuse(subchannel: ScriptedSubchannel) -> None:
        subchannel.connecting()
        subchannel.fail()

    world.helper.attempt = refuse
    names = [str(number) for number in range(400)]
    world.update(*names)
    world.expect_requests(*names)
    world.expect_reports(CONNECTING, FAILURE)


@pytest.mark.spec("A62-01", "HE-04")
def test_shared_connection_is_selected_when_its_turn_comes(world: PolicyWorld) -> None:
    """Decision D47."""
    world.share("c", READY)
    world.update("a", "b", "c")
    world.expect_reports(CONNECTING)
    world.expect_requests("a")
    fail(world, "a")
    world.advance(0.25 - TICK_S)
    world.expect_requests("b")
    world.expect_state(CONNECTING)
    world.advance(TICK_S)
    world.expect_reports(READY)
    world.expect_requests()
    world.expect_pick("c")
    world.expect_subchannels("c")
    assert world.clock.timers_pending == 0


@pytest.mark.spec("HE-04")
def test_shared_connection_is_selected_at_once_when_it_is_first(world: PolicyWorld) -> None:
    world.share("b", READY)
    world.share("a", FAILURE)
    world.update("a", "b", "c")
    world.expect_reports(READY)
    world.expect_requests()
    world.expect_pick("b")


@pytest.mark.spec("A62-01")
def test_connection_made_for_another_policy_waits_for_its_turn(world: PolicyWorld) -> None:
    """Decision D47."""
    world.update("a", "b")
    world["b"].connecting()
    world["b"].ready()
    world.expect_reports(CONNECTING)
    world["a"].connecting()
    world["a"].ready()
    world.expect_reports(READY)
    world.expect_pick("a")
    world.expect_subchannels("a")


def test_shared_connection_lost_before_its_turn_is_requested_in_its_turn(
    world: PolicyWorld,
) -> None:
    world.share("c", READY)
    world.update("a", "b", "c")
    world["c"].idle()
    fail(world, "a", "b")
    world.expect_requests("a", "b", "c")
    world["c"].connecting()
    world["c"].ready()
    world.expect_pick("c")


def test_attempt_of_the_previous_pass_is_selected_before_its_turn(world: PolicyWorld) -> None:
    """The rule for shared subchannels does not apply: the policy itself requested it."""
    world.update("a", "b")
    world["a"].connecting()
    world.update("c", "a", "b")
    world["a"].ready()
    world.expect_pick("a")
    world.expect_subchannels("a")


@pytest.mark.spec("HE-05")
def test_failure_before_the_turn_of_an_address_does_not_count(world: PolicyWorld) -> None:
    world.update("a", "b")
    world["a"].connecting()
    world["b"].connecting()  # For another policy that shares it.
    world["b"].fail()
    world["b"].idle()
    world.take_requests()
    world["a"].fail()
    world.expect_state(CONNECTING)
    world.expect_requests("b")
    world["b"].connecting()
    world["b"].fail()
    world.expect_state(FAILURE)


@pytest.mark.spec("HE-06")
def test_idle_addresses_are_connected_at_once_after_the_pass(world: PolicyWorld) -> None:
    world.update("a", "b", "c")
    fail(world, "a")
    world["a"].idle()  # Not requested yet: the pass is at b.
    world.expect_requests("a", "b")
    fail(world, "b")
    world["b"].idle()
    world.expect_requests("c")
    world["c"].connecting()
    world["c"].fail()
    assert sorted(world.take_requests()) == ["a", "b"]  # Those that are IDLE.
    world["c"].idle()
    world.expect_requests("c")  # And c when it becomes IDLE.


def test_attempt_is_repeated_when_it_ends_in_idle_without_failing(world: PolicyWorld) -> None:
    world.update("a", "b")
    world["a"].connecting()
    world["a"].idle()
    world.expect_requests("a", "a")


# ---------------------------------------------------------------------------------------------
# The order of addresses


def order_of_attempts(world: PolicyWorld) -> list[Name]:
    order: list[Name] = []
    while requested := world.take_requests():
        order += requested
        fail(world, *requested)
    return order


@pytest.mark.spec("HE-07", "HE-08")
@pytest.mark.parametrize(
    ("listed", "order"),
    [
        ("a b c d a6 b6", "a a6 b b6 c d"),
        ("a6 b6 a b c d", "a6 a b6 b c d"),
        ("a b c", "a b c"),
        ("a au a6 b bu b6", "a au a6 b bu b6"),  # Unix sockets are a separate family.
        ("au bu a b", "au a bu b"),
        ("a4in6 a b6", "a4in6 b6 a"),  # A mapped address is an IPv4 one.
        ("a a b a b", "a b"),
    ],
)
def test_address_families_alternate_and_each_address_is_tried_once(
    world: PolicyWorld, listed: str, order: str
) -> None:
    world.update(*listed.split())
    assert order_of_attempts(world) == order.split()


@pytest.mark.spec("HE-07")
def test_endpoints_are_flattened_before_families_are_interleaved(world: PolicyWorld) -> None:
    world.update(("a", "a6"), ("b", "b6"), ("c", "a"))
    assert order_of_attempts(world) == ["a", "a6", "b", "b6", "c"]


@pytest.mark.spec("HE-07")
def test_endpoints_are_shuffled_before_families_are_interleaved(world: PolicyWorld) -> None:
    orders: set[tuple[Name, ...]] = set()
    for _ in range(30):
        world.update(("a", "b"), ("c6", "d6"), config={"shuffleAddressList": True})
        orders.add(tuple(order_of_attempts(world)))
        world.update()
    assert orders == {("a", "c6", "b", "d6"), ("c6", "a", "d6", "b")}


# ---------------------------------------------------------------------------------------------
# Updates


@pytest.mark.spec("HE-09")
def test_connection_is_kept_when_an_update_lists_its_address(world: PolicyWorld) -> None:
    world.update("a", "b")
    world["a"].ready()
    world.expect_reports(CONNECTING, READY)
    world.take_requests()
    connected = world["a"]
    world.update("c", "b", "a")
    world.expect_never(IDLE, CONNECTING, FAILURE)
    world.expect_requests()
    assert world["a"] is connected
    world.expect_pick("a")
    world["a"].idle()
    world.policy.exit_idle()
    world.expect_requests("c")  # The next pass uses the new list.


@pytest.mark.spec("HE-10")
def test_update_while_idle_does_not_connect(world: PolicyWorld) -> None:
    world.update("a")
    world["a"].ready()
    world["a"].idle()
    world.take_requests()
    world.update("b", "c")
    world.advance(3600)
    world.expect_state(IDLE)
    world.expect_requests()
    world.expect_picker_queues()
    world.settle()
    world.expect_requests("b")


@pytest.mark.spec("HE-10")
@pytest.mark.parametrize("trigger", ["pick", "exit_idle"])
def test_update_right_after_leaving_idle_is_used(world: PolicyWorld, trigger: str) -> None:
    world.update("a")
    world["a"].ready()
    world["a"].idle()
    world.take_requests()
    if trigger == "pick":
        world.expect_picker_queues()
    else:
        world.policy.exit_idle()
        world.expect_requests("a")
    world.update("b")  # Before anything has reported CONNECTING.
    world.settle()
    world.expect_requests("b")
    world["b"].connecting()
    world["b"].ready()
    world.expect_pick("b")


def test_pick_connects_after_each_idle_phase(world: PolicyWorld) -> None:
    world.update("a")
    for _ in range(3):
        world["a"].ready()
        world["a"].idle()
        world.take_requests()
        world.picks(3)
        world.settle()
        world.expect_requests("a")


def test_policy_recovers_from_an_empty_update_while_idle(world: PolicyWorld) -> None:
    world.update("a")
    world["a"].ready()
    world["a"].idle()
    world.update()
    world.expect_pick_fails("empty address list")
    world.take_requests()
    world.update("b")
    world.expect_requests("b")
    world["b"].ready()
    world.expect_pick("b")


def test_update_during_a_pass_restarts_it_with_the_current_states(world: PolicyWorld) -> None:
    world.update("a", "b", "c")
    fail(world, "a")
    world["b"].connecting()
    world.take_requests()
    world.update("d", "a", "b")
    world.expect_subchannels("a", "b", "d")
    world.expect_requests("d")
    fail(world, "d")
    world.expect_state(CONNECTING)  # a is in backoff and skipped, b is still CONNECTING.
    world.expect_requests()
    world["b"].fail()
    world.expect_state(FAILURE)


def test_equal_list_does_not_restart_the_pass(world: PolicyWorld) -> None:
    """Otherwise frequent updates would delay the second address forever."""
    world.update("a", "b")
    world["a"].connecting()
    for _ in range(5):
        world.advance(0.2)
        world.update("a", "b")
    world.expect_requests("a", "b")


# ---------------------------------------------------------------------------------------------
# The selected subchannel


@pytest.mark.spec("HE-11")
@pytest.mark.parametrize("next_state", ["connecting", "fail"])
def test_pass_starts_when_the_selected_subchannel_reconnects_by_itself(
    world: PolicyWorld, next_state: str
) -> None:
    world.update("a", "b")
    world["a"].ready()
    world.expect_reports(CONNECTING, READY)
    world.take_requests()
    getattr(world["a"], next_state)()
    world.expect_reports(CONNECTING)
    assert world.reresolutions == 1
    if next_state == "connecting":
        world.advance(0.25)
    world.expect_requests("b")
    world["b"].connecting()
    world["b"].ready()
    world.expect_pick("b")


@pytest.mark.spec("HE-11")
def test_policy_fails_when_its_only_selected_subchannel_fails(world: PolicyWorld) -> None:
    world.update("a")
    world["a"].ready()
    world["a"].fail("reset")
    world.expect_reports(CONNECTING, READY, CONNECTING, FAILURE)
    world.expect_pick_fails("reset")
    world["a"].idle()
    world["a"].connecting()
    world["a"].ready()
    world.expect_reports(READY)


@pytest.mark.spec("HE-12")
def test_policy_is_ready_only_when_health_is_ready(world: PolicyWorld) -> None:
    world.update("a", "b", attributes=WITH_HEALTH)
    world["a"].connecting()
    world["a"].set_health(CONNECTING)
    world["a"].ready()
    world.expect_reports(CONNECTING)
    world.expect_picker_queues()
    world.expect_subchannels("a")
    world["a"].set_health(READY)
    world.expect_reports(READY)
    world.expect_pick("a")


@pytest.mark.spec("HE-12")
def test_bad_health_is_reported_as_failure_and_the_connection_is_kept(world: PolicyWorld) -> None:
    world.update("a", "b", attributes=WITH_HEALTH)
    world["a"].ready()
    connected = world["a"]
    world.expect_reports(CONNECTING, READY)
    world["a"].set_health(FAILURE, "not serving")
    world.expect_reports(FAILURE)
    world.expect_pick_fails("not serving")
    world["a"].set_health(CONNECTING)
    world.expect_reports()  # Sticky, like any failure.
    world["a"].set_health(READY)
    world.expect_reports(READY)
    assert world["a"] is connected
    assert world.reresolutions == 0
    world.expect_requests("a")


@pytest.mark.spec("HE-12")
def test_health_is_not_watched_when_the_attribute_is_not_set(world: PolicyWorld) -> None:
    world.update("a")
    world["a"].set_health(FAILURE, "ejected")
    world["a"].ready()
    world.expect_reports(CONNECTING, READY)
    assert world["a"].health_watches == 0


def test_health_of_a_connection_is_watched_once_despite_updates(world: PolicyWorld) -> None:
    world.update("a", "b", attributes=WITH_HEALTH)
    world["a"].ready()
    world.update("b", "a", attributes=WITH_HEALTH)
    assert world["a"].health_watches == 1


def test_health_is_watched_once_when_a_connection_returns_by_itself(world: PolicyWorld) -> None:
    world.update("a", attributes=WITH_HEALTH)
    world["a"].ready()
    world["a"].connecting()
    world["a"].set_health(CONNECTING)
    world["a"].ready()
    world.expect_reports(CONNECTING, READY, CONNECTING)
    world["a"].set_health(READY)
    # A watch that was not cancelled would report as well.
    world.expect_reports(READY)
    assert world["a"].health_watches == 2


def test_policy_is_idle_when_a_connection_in_bad_health_is_lost(world: PolicyWorld) -> None:
    world.update("a", attributes=WITH_HEALTH)
    world["a"].ready()
    world["a"].set_health(FAILURE, "not serving")
    world["a"].set_health(IDLE)
    world["a"].idle()
    world.expect_reports(CONNECTING, READY, FAILURE, IDLE)


# ---------------------------------------------------------------------------------------------
# Close, reset_backoff and errors


@pytest.mark.parametrize("state", ["connecting", "failing", "ready", "idle", "waking", "empty"])
def test_close_releases_all_subchannels_and_timers(world: PolicyWorld, state: str) -> None:
    world.update("a", "b")
    if state == "failing":
        fail(world, "a", "b")
    elif state != "connecting":
        world["a"].ready()
    if state in {"idle", "waking"}:
        world["a"].idle()
    if state == "waking":
        world.pick()
    if state == "empty":
        world.update()
    old = list(world.subchannels)
    picker = world.picker
    world.take_requests()
    world.expect_never()
    world.policy.close()
    world.expect_closed()
    assert all(subchannel.is_released for subchannel in old)
    if state == "idle":
        picker.pick(ANY_RPC)
    world.expect_closed()
    world.advance(3600)
    world.expect_reports()
    world.expect_requests()


def test_reset_backoff_reaches_every_subchannel(world: PolicyWorld) -> None:
    world.update("a", "b")
    world.policy.reset_backoff()
    assert [each.backoff_resets for each in world.subchannels] == [1, 1]
    world["a"].ready()
    world.policy.reset_backoff()
    assert [each.backoff_resets for each in world.subchannels] == [2]


def test_error_text_has_the_resolution_note(world: PolicyWorld) -> None:
    world.update("a", note="from dns")
    fail(world, "a")
    text = "failed to connect to all addresses; last error: a refused (from dns)"
    world.expect_pick_fails(text)
