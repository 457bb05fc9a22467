"""round_robin: every endpoint that is connected takes its turn."""

from collections import Counter

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, Key
from proxyless.lb.policies.round_robin import RoundRobinFactory
from tests.spec.lb_world import (
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    Name,
    World,
    endpoint,
    unavailable,
)


@pytest.fixture
def world() -> World:
    return World(RoundRobinFactory())


def ready(world: World, *names: Name) -> None:
    for name in names:
        world[name].connecting()
        world[name].ready()


def fail(world: World, *names: Name) -> None:
    for name in names:
        world[name].connecting()
        world[name].fail(f"{name} refused")


def shares(world: World, picks: int) -> Counter[object]:
    return Counter(world.picks(picks))


# ---------------------------------------------------------------------------------------------
# Children


@pytest.mark.spec("RR-01")
def test_all_endpoints_connect_at_once(world: World) -> None:
    world.update("a", "b", "c")
    assert sorted(world.take_requests()) == ["a", "b", "c"]
    world.expect_reports(CONNECTING)
    world.expect_picker_queues()


@pytest.mark.spec("RR-01")
def test_connecting_starts_at_a_random_endpoint_and_goes_around() -> None:
    orders = set()
    for seed in range(15):
        world = World(RoundRobinFactory(), seed=seed)
        world.update("a", "b", "c")
        orders.add("".join(world.take_requests()))
    assert orders == {"abc", "bca", "cab"}


@pytest.mark.spec("RR-01")
def test_an_endpoint_has_one_connection_to_the_first_address_that_works(world: World) -> None:
    world.update(("a", "b"), "c")
    assert sorted(world.take_requests()) == ["a", "c"]
    fail(world, "a")
    world.expect_requests("b")
    ready(world, "b", "c")
    assert shares(world, 10) == {"b": 5, "c": 5}
    world.expect_subchannels("b", "c")


@pytest.mark.spec("RR-01")
def test_an_endpoint_is_the_set_of_its_addresses(world: World) -> None:
    world.update(("a", "b"), ("c", "d"))
    ready(world, "a", "c")
    connected = world["a"]
    world.take_requests()
    world.share("c", IDLE)
    world.update(("d", "c", "e"), ("b", "a"))
    assert world["a"] is connected
    world.expect_requests("d")  # {c, d, e} is another endpoint than {c, d} was.
    world.expect_subchannels("a", "c", "d", "e")


@pytest.mark.spec("RR-01")
def test_an_endpoint_listed_twice_has_one_turn(world: World) -> None:
    world.update(("a", "b"), "c", ("b", "a"), "c")
    ready(world, "a", "c")
    assert shares(world, 10) == {"a": 5, "c": 5}


# ---------------------------------------------------------------------------------------------
# States


@pytest.mark.spec("RR-02")
def test_one_ready_is_enough(world: World) -> None:
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
def test_only_when_all_fail_it_fails(world: World) -> None:
    world.update("a", "b")
    fail(world, "a")
    world.expect_reports(CONNECTING)
    fail(world, "b")
    world.expect_reports(FAILURE)


@pytest.mark.spec("RR-02")
def test_a_child_that_is_idle_is_connected_at_once_and_counts_as_connecting(world: World) -> None:
    world.update("a")
    ready(world, "a")
    world.take_requests()
    world["a"].idle()
    world.expect_reports(CONNECTING, READY, CONNECTING)
    world.expect_picker_queues()
    world.settle()
    world.expect_requests("a")


@pytest.mark.spec("RR-02")
def test_an_idle_child_beside_failing_ones_counts_as_connecting(world: World) -> None:
    world.update("a", "b")
    ready(world, "a")
    fail(world, "b")
    world["a"].idle()
    world.expect_state(CONNECTING)


# ---------------------------------------------------------------------------------------------
# Picks


@pytest.mark.spec("RR-03")
@pytest.mark.parametrize("rounds", [1, 7])
def test_every_ready_endpoint_gets_the_same_number_of_picks(world: World, rounds: int) -> None:
    world.update("a", "b", "c", "d", "e")
    ready(world, "a", "b", "c", "d")
    fail(world, "e")
    assert shares(world, 4 * rounds) == dict.fromkeys("abcd", rounds)


@pytest.mark.spec("RR-03")
def test_any_n_picks_in_a_row_reach_all_n_endpoints(world: World) -> None:
    world.update("a", "b", "c")
    ready(world, "a", "b", "c")
    picks = world.picks(20)
    assert all(len(set(picks[i : i + 3])) == 3 for i in range(17))


@pytest.mark.spec("RR-03")
def test_the_first_pick_goes_to_a_random_endpoint() -> None:
    firsts = set()
    for seed in range(15):
        world = World(RoundRobinFactory(), seed=seed)
        world.update("a", "b", "c")
        ready(world, "a", "b", "c")
        firsts.add(world.pick())
    assert firsts == {"a", "b", "c"}


@pytest.mark.spec("RR-03")
def test_an_endpoint_that_loses_its_connection_gets_no_more_picks(world: World) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world["a"].idle()
    assert shares(world, 6) == {"b": 6}


# ---------------------------------------------------------------------------------------------
# Failure


@pytest.mark.spec("RR-04")
def test_failing_picks_say_the_last_error_and_each_new_one(world: World) -> None:
    world.update("a", "b")
    fail(world, "a", "b")
    world.expect_pick_fails("connections to all backends failing; last error: ", "b refused")
    world["a"].idle()
    world["a"].connecting()
    world["a"].fail("a refused again")
    world.expect_pick_fails("connections to all backends failing; last error: ", "refused again")


@pytest.mark.spec("RR-04")
def test_a_child_that_tries_again_does_not_end_failure(world: World) -> None:
    world.update("a", "b")
    fail(world, "a", "b")
    world.expect_reports(CONNECTING, FAILURE)
    world["a"].idle()
    world["a"].connecting()
    world.expect_reports()
    world["a"].ready()
    world.expect_reports(READY)


@pytest.mark.spec("RR-04")
def test_unhealthy_children_fail_like_unreachable_ones(world: World) -> None:
    world.update("a")
    ready(world, "a")
    world["a"].health(FAILURE, "not serving")
    world.expect_pick_fails("connections to all backends failing; last error: not serving")


@pytest.mark.spec("RR-04")
def test_failing_picks_do_not_name_an_endpoint_when_it_is_removed(world: World) -> None:
    world.update("a", "b")
    fail(world, "a", "b")
    world.expect_pick_fails("b refused")
    world.update("a")
    world.expect_state(FAILURE)
    world.expect_pick_fails("a refused")


# ---------------------------------------------------------------------------------------------
# New lists


@pytest.mark.spec("RR-05")
def test_kept_endpoints_keep_their_connections_and_removed_ones_leave(world: World) -> None:
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
def test_no_pick_fails_while_the_list_changes_around_one_endpoint(world: World) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.expect_reports(CONNECTING, READY, READY)
    for names in ("ac", "cda", "a", "xyza", "a"):
        world.update(*names)
        assert set(world.picks(4)) == {"a"}
    world.expect_never(CONNECTING, FAILURE)


@pytest.mark.spec("RR-05")
def test_an_update_is_reported_once(world: World) -> None:
    world.update("a", "b", "c")
    ready(world, "a", "b", "c")
    for name in "defg":
        world.share(name, READY)
    world.expect_never()
    world.update("d", "e", "f", "g", "a")
    world.expect_reports(READY)
    assert shares(world, 10) == dict.fromkeys("defga", 2)


def test_an_update_that_changes_nothing_is_not_reported(world: World) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.expect_never()
    world.update("a", "b")
    world.expect_reports()


def test_a_list_of_only_new_endpoints_makes_picks_wait(world: World) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.update("c", "d")
    world.expect_state(CONNECTING)
    world.expect_picker_queues()


@pytest.mark.spec("RR-06")
def test_an_empty_list_is_a_failure_and_is_refused(world: World) -> None:
    world.update("a")
    ready(world, "a")
    assert world.update() == unavailable("empty address list")
    world.expect_state(FAILURE)
    world.expect_pick_fails("empty address list")
    world.expect_subchannels()
    world.update("b")
    world.expect_state(CONNECTING)


@pytest.mark.spec("RR-06")
def test_a_resolver_error_without_a_list_is_a_failure(world: World) -> None:
    assert world.resolver_error("no such host") == unavailable("no such host")
    world.expect_reports(FAILURE)
    world.expect_pick_fails("no such host")
    world.update("a")
    world.expect_reports(CONNECTING)


@pytest.mark.spec("RR-06")
def test_a_resolver_error_after_a_list_changes_nothing(world: World) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.expect_reports(CONNECTING, READY, READY)
    assert not world.resolver_error().is_ok
    world.expect_reports()
    assert shares(world, 4) == {"a": 2, "b": 2}


@pytest.mark.spec("RR-07")
def test_a_new_list_on_which_everything_fails_is_a_failure(world: World) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.update("c", "d")
    fail(world, "c", "d")
    world.expect_state(FAILURE)
    world.expect_pick_fails("d refused")


# ---------------------------------------------------------------------------------------------
# The rest


def test_changed_attributes_of_an_endpoint_reach_new_subchannels(world: World) -> None:
    weight = Key[int]("weight")
    heavy = EMPTY_ATTRIBUTES.with_(weight, 2)
    world.update("a", "b")
    ready(world, "b")
    world.update(endpoint("a", heavy), endpoint("b", heavy))
    assert world["a"].attributes.get(weight) == 2
    world.expect_pick("b")


def test_reresolution_requests_are_passed_on(world: World) -> None:
    world.update("a", "b")
    ready(world, "a")
    world["a"].idle()
    assert world.reresolutions == 1


def test_reset_backoff_reaches_every_subchannel(world: World) -> None:
    world.update("a", "b")
    world.policy.reset_backoff()
    assert [each.backoff_resets for each in world.live] == [1, 1]


def test_exit_idle_does_not_wait(world: World) -> None:
    world.update("a")
    ready(world, "a")
    world["a"].idle()
    world.take_requests()
    world.policy.exit_idle()
    world.expect_requests("a")


def test_close_leaves_nothing_behind(world: World) -> None:
    world.update("a", "b", ("c", "d"))
    ready(world, "a", "b")
    world["b"].idle()
    world.policy.close()
    world.expect_closed()


def test_error_texts_carry_the_resolution_note(world: World) -> None:
    assert world.update(note="from dns") == unavailable("empty address list (from dns)")
    world.update("a", note="from xds")
    fail(world, "a")
    text = (
        "connections to all backends failing; last error: "
        "failed to connect to all addresses; last error: a refused (from xds)"
    )
    world.expect_pick_fails(text)


def test_any_config_is_accepted(world: World) -> None:
    assert world.update("a", config={"whatever": 1}).is_ok
