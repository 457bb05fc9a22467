"""round_robin: picks of the connected endpoints in turn."""

from collections import Counter

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, Key
from proxyless.lb.description import describe_policy, ready_addresses
from proxyless.lb.policies.round_robin import RoundRobinFactory
from tests.worlds.policies import (
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    Name,
    PolicyWorld,
    address,
    endpoint,
    unavailable,
)

MOMENT_S = 0.001
# Longest time for which removed endpoints get RPCs.
RETENTION_S = 30.0


@pytest.fixture
def world() -> PolicyWorld:
    return PolicyWorld(RoundRobinFactory())


def ready(world: PolicyWorld, *names: Name) -> None:
    for name in names:
        world[name].connecting()
        world[name].ready()


def fail(world: PolicyWorld, *names: Name) -> None:
    for name in names:
        world[name].connecting()
        world[name].fail(f"{name} refused")


def shares(world: PolicyWorld, picks: int) -> Counter[object]:
    return Counter(world.picks(picks))


# ---------------------------------------------------------------------------------------------
# Children


@pytest.mark.spec("RR-01")
def test_all_endpoints_connect_at_once(world: PolicyWorld) -> None:
    world.update("a", "b", "c")
    assert sorted(world.take_requests()) == ["a", "b", "c"]
    world.expect_reports(CONNECTING)
    world.expect_picker_queues()


@pytest.mark.spec("RR-01")
def test_endpoints_are_connected_in_order_from_a_random_one() -> None:
    orders = set()
    for seed in range(15):
        world = PolicyWorld(RoundRobinFactory(), seed=seed)
        world.update("a", "b", "c")
        orders.add("".join(world.take_requests()))
    assert orders == {"abc", "bca", "cab"}


@pytest.mark.spec("RR-01")
def test_endpoint_has_one_connection_to_the_first_address_that_works(world: PolicyWorld) -> None:
    world.update(("a", "b"), "c")
    assert sorted(world.take_requests()) == ["a", "c"]
    fail(world, "a")
    world.expect_requests("b")
    ready(world, "b", "c")
    assert shares(world, 10) == {"b": 5, "c": 5}
    world.expect_subchannels("b", "c")


@pytest.mark.spec("RR-01")
def test_endpoint_is_identified_by_the_set_of_its_addresses(world: PolicyWorld) -> None:
    world.update(("a", "b"), ("c", "d"))
    ready(world, "a", "c")
    connected = world["a"]
    world.take_requests()
    world.share("c", IDLE)
    world.update(("d", "c", "e"), ("b", "a"))
    assert world["a"] is connected
    world.expect_requests("d")  # {c, d, e} is not the endpoint {c, d}.
    world.expect_subchannels("a", "c", "d", "e")


@pytest.mark.spec("RR-01")
def test_endpoint_that_is_listed_twice_has_one_turn(world: PolicyWorld) -> None:
    world.update(("a", "b"), "c", ("b", "a"), "c")
    ready(world, "a", "c")
    assert shares(world, 10) == {"a": 5, "c": 5}


# ---------------------------------------------------------------------------------------------
# States


@pytest.mark.spec("RR-02")
def test_policy_is_ready_when_one_endpoint_is_ready(world: PolicyWorld) -> None:
    world.update("a", "b", "c")
    world.expect_state(CONNECTING)
    fail(world, "a")
    world.expect_state(CONNECTING)
    ready(world, "b")
    world.expect_reports(CONNECTING, READY)
    fail(world, "c")
    world.expect_state(READY)
    assert shares(world, 5) == {"b": 5}


@pytest.mark.spec("RR-02")
def test_policy_fails_only_when_all_endpoints_fail(world: PolicyWorld) -> None:
    world.update("a", "b")
    fail(world, "a")
    world.expect_reports(CONNECTING)
    fail(world, "b")
    world.expect_reports(FAILURE)


@pytest.mark.spec("RR-02")
def test_idle_child_is_reconnected_at_once_and_counts_as_connecting(
    world: PolicyWorld,
) -> None:
    world.update("a")
    ready(world, "a")
    world.take_requests()
    world["a"].idle()
    world.expect_reports(CONNECTING, READY, CONNECTING)
    world.expect_picker_queues()
    world.settle()
    world.expect_requests("a")


@pytest.mark.spec("RR-02")
def test_idle_child_counts_as_connecting_when_others_fail(world: PolicyWorld) -> None:
    world.update("a", "b")
    ready(world, "a")
    fail(world, "b")
    world["a"].idle()
    world.expect_state(CONNECTING)


# ---------------------------------------------------------------------------------------------
# Picks


@pytest.mark.spec("RR-03")
@pytest.mark.parametrize("rounds", [1, 7])
def test_every_ready_endpoint_gets_the_same_number_of_picks(
    world: PolicyWorld, rounds: int
) -> None:
    world.update("a", "b", "c", "d", "e")
    ready(world, "a", "b", "c", "d")
    fail(world, "e")
    assert shares(world, 4 * rounds) == dict.fromkeys("abcd", rounds)


@pytest.mark.spec("RR-03")
def test_any_n_picks_in_a_row_reach_all_n_endpoints(world: PolicyWorld) -> None:
    world.update("a", "b", "c")
    ready(world, "a", "b", "c")
    picks = world.picks(20)
    assert all(len(set(picks[i : i + 3])) == 3 for i in range(17))


@pytest.mark.spec("RR-03")
def test_the_first_pick_goes_to_a_random_endpoint() -> None:
    firsts = set()
    for seed in range(15):
        world = PolicyWorld(RoundRobinFactory(), seed=seed)
        world.update("a", "b", "c")
        ready(world, "a", "b", "c")
        firsts.add(world.pick())
    assert firsts == {"a", "b", "c"}


@pytest.mark.spec("RR-03")
def test_an_endpoint_that_loses_its_connection_gets_no_more_picks(world: PolicyWorld) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world["a"].idle()
    assert shares(world, 6) == {"b": 6}


# ---------------------------------------------------------------------------------------------
# Failure


@pytest.mark.spec("RR-04")
def test_picks_fail_with_the_newest_error(world: PolicyWorld) -> None:
    world.update("a", "b")
    fail(world, "a", "b")
    world.expect_pick_fails("connections to all backends failing; last error: ", "b refused")
    world["a"].idle()
    world["a"].connecting()
    world["a"].fail("a refused again")
    world.expect_pick_fails("connections to all backends failing; last error: ", "refused again")


@pytest.mark.spec("RR-04")
def test_policy_stays_in_failure_when_a_child_reconnects(world: PolicyWorld) -> None:
    world.update("a", "b")
    fail(world, "a", "b")
    world.expect_reports(CONNECTING, FAILURE)
    world["a"].idle()
    world["a"].connecting()
    world.expect_reports()
    world["a"].ready()
    world.expect_reports(READY)


@pytest.mark.spec("RR-04")
def test_unhealthy_children_fail_like_unreachable_ones(world: PolicyWorld) -> None:
    world.update("a")
    ready(world, "a")
    world["a"].set_health(FAILURE, "not serving")
    world.expect_pick_fails("connections to all backends failing; last error: not serving")


@pytest.mark.spec("RR-04")
def test_failing_picks_do_not_name_an_endpoint_when_it_is_removed(world: PolicyWorld) -> None:
    world.update("a", "b")
    fail(world, "a", "b")
    world.expect_pick_fails("b refused")
    world.update("a")
    world.expect_state(FAILURE)
    world.expect_pick_fails("a refused")


# ---------------------------------------------------------------------------------------------
# New lists


@pytest.mark.spec("RR-05")
def test_connections_are_kept_for_listed_endpoints_and_released_for_removed_ones(
    world: PolicyWorld,
) -> None:
    world.update("a", "b", "c")
    ready(world, "a", "b", "c")
    kept = world["b"]
    world.take_requests()
    world.update("d", "b")
    world.expect_state(READY)
    assert shares(world, 6) == {"b": 6}
    assert world["b"] is kept
    world.expect_requests("d")
    world.expect_subchannels("b", "d")
    ready(world, "d")
    assert shares(world, 6) == {"b": 3, "d": 3}


@pytest.mark.spec("RR-05")
def test_no_pick_fails_when_one_endpoint_stays_in_changing_lists(world: PolicyWorld) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.expect_reports(CONNECTING, READY, READY)
    for names in ("ac", "cda", "a", "xyza", "a"):
        world.update(*names)
        assert set(world.picks(4)) == {"a"}
    world.expect_never(CONNECTING, FAILURE)


@pytest.mark.spec("RR-05")
def test_an_update_is_reported_once(world: PolicyWorld) -> None:
    world.update("a", "b", "c")
    ready(world, "a", "b", "c")
    for name in "defg":
        world.share(name, READY)
    world.expect_never()
    world.update("d", "e", "f", "g", "a")
    world.expect_reports(READY)
    assert shares(world, 10) == dict.fromkeys("defga", 2)


def test_equal_update_is_not_reported(world: PolicyWorld) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.expect_never()
    world.update("a", "b")
    world.expect_reports()


def test_picks_wait_for_new_endpoints_when_no_removed_one_is_ready(world: PolicyWorld) -> None:
    world.update("a", "b")
    fail(world, "a", "b")
    world.update("c", "d")
    world.expect_state(CONNECTING)
    world.expect_picker_queues()
    world.expect_subchannels("c", "d")


@pytest.mark.spec("RR-08")
def test_removed_endpoints_get_rpcs_until_a_new_one_is_ready(world: PolicyWorld) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.take_requests()
    world.expect_never()
    world.update("c", "d")
    assert sorted(world.take_requests()) == ["c", "d"]
    assert shares(world, 10) == {"a": 5, "b": 5}
    world["c"].connecting()
    fail(world, "d")
    assert shares(world, 10) == {"a": 5, "b": 5}
    world.expect_never(CONNECTING, FAILURE)
    world["c"].ready()
    world.expect_reports(READY)
    assert shares(world, 10) == {"c": 10}
    world.expect_subchannels("c", "d")
    assert world.clock.timers_pending == 0


@pytest.mark.spec("RR-07", "RR-08")
def test_removed_endpoints_are_released_when_all_new_ones_fail(world: PolicyWorld) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.update("c", "d")
    fail(world, "c")
    world.expect_state(READY)
    fail(world, "d")
    world.expect_state(FAILURE)
    world.expect_pick_fails("d refused")
    world.expect_subchannels("c", "d")
    assert world.clock.timers_pending == 0


@pytest.mark.spec("RR-08")
def test_removed_endpoints_are_released_when_the_only_new_one_failed_before(
    world: PolicyWorld,
) -> None:
    world.update("a", "b")
    ready(world, "a")
    fail(world, "b")
    world.update("b")
    world.expect_state(FAILURE)
    world.expect_pick_fails("b refused")
    world.expect_subchannels("b")


@pytest.mark.spec("RR-08")
def test_removed_endpoints_are_released_after_their_retention(world: PolicyWorld) -> None:
    world.update("a")
    ready(world, "a")
    world.expect_never()
    world.update("b")
    world.advance(RETENTION_S - MOMENT_S)
    world.expect_pick("a")
    world.expect_never(CONNECTING)
    world.advance(MOMENT_S)
    world.expect_reports(CONNECTING)
    world.expect_picker_queues()
    world.expect_subchannels("b")
    ready(world, "b")
    world.expect_pick("b")


@pytest.mark.spec("RR-08")
def test_removed_endpoints_are_released_at_once_unless_they_are_ready(world: PolicyWorld) -> None:
    world.update("a", "b", "c", "d")
    ready(world, "a", "d")
    fail(world, "b")
    world["c"].connecting()
    world["d"].set_health(FAILURE, "not serving")
    world.update("e")
    world.expect_subchannels("a", "e")
    assert shares(world, 4) == {"a": 4}


@pytest.mark.spec("RR-08")
def test_connection_is_kept_when_a_new_endpoint_has_the_address_of_a_removed_one(
    world: PolicyWorld,
) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.expect_never()
    world.update(("a", "c"), "d")
    world.expect_reports(READY)
    assert shares(world, 4) == {"a": 4}
    world.expect_subchannels("a", "d")


@pytest.mark.spec("RR-09")
def test_removed_endpoint_is_released_when_it_loses_its_connection(world: PolicyWorld) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.update("c")
    world.take_requests()
    world["a"].idle()
    assert shares(world, 4) == {"b": 4}
    world["b"].set_health(FAILURE, "not serving")
    world.expect_state(CONNECTING)
    world.expect_picker_queues()
    world.settle()
    world.expect_subchannels("c")
    world.expect_requests()  # Neither is reconnected.
    assert world.clock.timers_pending == 0


@pytest.mark.spec("RR-09")
def test_removed_endpoint_keeps_its_connection_when_it_is_listed_again(world: PolicyWorld) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    kept = world["a"]
    world.update("c")
    world.update("a", "c")
    assert shares(world, 4) == {"a": 4}
    assert world["a"] is kept
    world.expect_subchannels("a", "c")
    assert world.clock.timers_pending == 0
    world["a"].idle()
    world.settle()
    assert world.subchannel_names.count("a") == 1
    assert "a" in world.take_requests()  # A listed endpoint is reconnected.


@pytest.mark.spec("RR-09")
def test_retention_of_removed_endpoints_is_not_extended_by_further_lists(
    world: PolicyWorld,
) -> None:
    world.update("a")
    ready(world, "a")
    world.update("b")
    world.advance(RETENTION_S / 2)
    world.update("c", "d")
    world.expect_subchannels("a", "c", "d")
    world.expect_pick("a")
    world.resolver_error()
    world.expect_pick("a")
    world.advance(RETENTION_S / 2)
    world.expect_state(CONNECTING)
    world.expect_subchannels("c", "d")


@pytest.mark.spec("RR-09")
def test_removed_endpoints_are_released_when_the_list_is_empty(world: PolicyWorld) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.update("c")
    assert shares(world, 2) == {"a": 1, "b": 1}
    world.update()
    world.expect_pick_fails("empty address list")
    world.expect_closed()


@pytest.mark.spec("RR-09")
def test_removed_endpoints_are_released_when_the_policy_is_closed(world: PolicyWorld) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.update("c")
    assert shares(world, 2) == {"a": 1, "b": 1}
    world.policy.close()
    world.expect_closed()


def test_description_marks_removed_endpoints_while_they_get_rpcs(world: PolicyWorld) -> None:
    world.update("a")
    ready(world, "a")
    world.update("b", "c")
    world.advance(10)
    node = describe_policy(world.policy, "round_robin")
    assert node.state == "READY"
    assert node.detail == "0 of 2 endpoints are READY; 1 removed, in use for 20 s at most"
    shown = {child.name: "removed" in child.detail for child in node.children}
    assert shown == {str(address("a")): True, str(address("b")): False, str(address("c")): False}
    assert ready_addresses(node) == [str(address("a"))]


@pytest.mark.spec("RR-06")
def test_empty_list_is_refused_and_fails_rpcs(world: PolicyWorld) -> None:
    world.update("a")
    ready(world, "a")
    assert world.update() == unavailable("empty address list")
    world.expect_state(FAILURE)
    world.expect_pick_fails("empty address list")
    world.expect_subchannels()
    world.update("b")
    world.expect_state(CONNECTING)


@pytest.mark.spec("RR-06")
def test_resolver_error_fails_rpcs_when_there_is_no_list(world: PolicyWorld) -> None:
    assert world.resolver_error("no such host") == unavailable("no such host")
    world.expect_reports(FAILURE)
    world.expect_pick_fails("no such host")
    world.update("a")
    world.expect_reports(CONNECTING)


@pytest.mark.spec("RR-06")
def test_resolver_error_is_ignored_after_a_list(world: PolicyWorld) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.expect_reports(CONNECTING, READY, READY)
    assert not world.resolver_error().is_ok
    world.expect_reports()
    assert shares(world, 4) == {"a": 2, "b": 2}


@pytest.mark.spec("RR-07")
def test_policy_fails_when_all_endpoints_of_a_new_list_fail(world: PolicyWorld) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.update("c", "d")
    fail(world, "c", "d")
    world.expect_state(FAILURE)
    world.expect_pick_fails("d refused")


# ---------------------------------------------------------------------------------------------
# Attributes, forwarding, errors and close


def test_changed_attributes_of_an_endpoint_reach_new_subchannels(world: PolicyWorld) -> None:
    weight = Key[int]("weight")
    heavy = EMPTY_ATTRIBUTES.with_(weight, 2)
    world.update("a", "b")
    ready(world, "b")
    world.update(endpoint("a", heavy), endpoint("b", heavy))
    assert world["a"].attributes.get(weight) == 2
    world.expect_pick("b")


def test_reresolution_requests_are_forwarded(world: PolicyWorld) -> None:
    world.update("a", "b")
    ready(world, "a")
    world["a"].idle()
    assert world.reresolutions == 1


def test_reset_backoff_reaches_every_subchannel(world: PolicyWorld) -> None:
    world.update("a", "b")
    world.policy.reset_backoff()
    assert [each.backoff_resets for each in world.subchannels] == [1, 1]


def test_exit_idle_connects_at_once(world: PolicyWorld) -> None:
    world.update("a")
    ready(world, "a")
    world["a"].idle()
    world.take_requests()
    world.policy.exit_idle()
    world.expect_requests("a")


def test_close_releases_all_subchannels_and_timers(world: PolicyWorld) -> None:
    world.update("a", "b", ("c", "d"))
    ready(world, "a", "b")
    world["b"].idle()
    world.policy.close()
    world.expect_closed()


def test_error_text_has_the_resolution_note(world: PolicyWorld) -> None:
    assert world.update(note="from dns") == unavailable("empty address list (from dns)")
    world.update("a", note="from xds")
    fail(world, "a")
    text = (
        "connections to all backends failing; last error: "
        "failed to connect to all addresses; last error: a refused (from xds)"
    )
    world.expect_pick_fails(text)


def test_any_config_is_accepted(world: PolicyWorld) -> None:
    assert world.update("a", config={"whatever": 1}).is_ok
