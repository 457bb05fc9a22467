"""What least_request (A48), weighted_round_robin (A58) and random have in common with round_robin.

"The same subchannel connectivity management logic implemented in the `round_robin` policy" - A48.
"""

import pytest

from proxyless.lb import PolicyFactory
from proxyless.lb.policies.least_request import LeastRequestFactory
from proxyless.lb.policies.random import RandomFactory
from proxyless.lb.policies.weighted_round_robin import WeightedRoundRobinFactory
from tests.spec.lb_world import (
    CONNECTING,
    FAILURE,
    READY,
    DeadAddresses,
    Name,
    World,
    unavailable,
)

# How long removed endpoints take RPCs at most.
RETENTION_S = 30.0

FACTORIES: list[PolicyFactory] = [
    LeastRequestFactory(),
    WeightedRoundRobinFactory(),
    RandomFactory(),
]


@pytest.fixture(params=FACTORIES, ids=lambda factory: str(factory.name))
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def ready(world: World, *names: Name) -> None:
    for name in names:
        world[name].connecting()
        world[name].ready()


def fail(world: World, *names: Name) -> None:
    for name in names:
        world[name].connecting()
        world[name].fail(f"{name} refused")


def picked(world: World, picks: int = 100) -> set[object]:
    return set(world.picks(picks))


@pytest.mark.spec("LR-04", "WRR-10")
def test_all_endpoints_connect_at_once(world: World) -> None:
    world.update("a", "b", "c")
    assert sorted(world.take_requests()) == ["a", "b", "c"]
    world.expect_reports(CONNECTING)
    world.expect_picker_queues()


@pytest.mark.spec("LR-04", "WRR-10")
def test_one_ready_is_enough(world: World) -> None:
    world.update("a", "b", "c")
    fail(world, "a")
    world.expect_reports(CONNECTING)
    ready(world, "b")
    world.expect_reports(READY)
    fail(world, "c")
    world.expect_state(READY)
    assert picked(world) == {"b"}


@pytest.mark.spec("LR-04", "WRR-10")
def test_every_ready_endpoint_is_picked_and_no_other(world: World) -> None:
    world.update("a", "b", "c", "d")
    ready(world, "a", "b", "c")
    assert picked(world) == {"a", "b", "c"}
    world["b"].idle()
    assert picked(world) == {"a", "c"}


@pytest.mark.spec("LR-04", "WRR-10")
def test_only_when_all_fail_it_fails_and_says_why(world: World) -> None:
    world.update("a", "b", note="from dns")
    fail(world, "a")
    world.expect_reports(CONNECTING)
    fail(world, "b")
    world.expect_reports(FAILURE)
    text = "connections to all backends failing; last error: "
    world.expect_pick_fails(text, "b refused (from dns)")


@pytest.mark.spec("LR-04", "WRR-10")
def test_an_endpoint_that_tries_again_does_not_end_failure(world: World) -> None:
    world.update("a", "b")
    fail(world, "a", "b")
    world.expect_reports(CONNECTING, FAILURE)
    world["a"].idle()
    world["a"].connecting()
    world.expect_reports()
    world["a"].ready()
    world.expect_reports(READY)


@pytest.mark.spec("LR-04", "WRR-10")
def test_an_idle_endpoint_is_connected_at_once_and_counts_as_connecting(world: World) -> None:
    world.update("a")
    ready(world, "a")
    world.take_requests()
    world["a"].idle()
    world.expect_reports(CONNECTING, READY, CONNECTING)
    assert world.reresolutions == 1
    world.settle()
    world.expect_requests("a")


@pytest.mark.spec("LR-04", "WRR-08")
def test_an_endpoint_that_is_listed_twice_is_there_once(world: World) -> None:
    world.update(("a", "b"), "c", ("b", "a"), "c")
    assert sorted(world.take_requests()) == ["a", "c"]
    ready(world, "a", "c")
    world.expect_subchannels("a", "c")
    picks = world.picks(2_000)
    # Twice the turns of the other would be 1,333.
    assert all(900 <= picks.count(name) <= 1_100 for name in "ac")


@pytest.mark.spec("LR-04", "WRR-10")
def test_kept_endpoints_keep_their_connections_and_removed_ones_leave(world: World) -> None:
    world.update("a", "b", "c")
    ready(world, "a", "b", "c")
    kept = world["b"]
    world.take_requests()
    world.update("d", "b")
    world.expect_state(READY)
    assert picked(world) == {"b"}
    assert world["b"] is kept
    world.expect_requests("d")
    world.expect_subchannels("b", "d")


@pytest.mark.spec("LR-04", "WRR-10")
def test_an_update_is_reported_once_and_one_that_changes_nothing_not_at_all(world: World) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    for name in "cde":
        world.share(name, READY)
    world.expect_never()
    world.update("c", "d", "e", "a")
    world.expect_reports(READY)
    world.update("c", "d", "e", "a")
    world.expect_reports()


@pytest.mark.spec("LR-04", "WRR-10", "RR-08")
def test_removed_endpoints_take_rpcs_until_a_new_one_is_ready(world: World) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.expect_never()
    world.update("c", "d")
    assert picked(world) == {"a", "b"}
    fail(world, "d")
    assert picked(world) == {"a", "b"}
    world.expect_never(CONNECTING, FAILURE)
    ready(world, "c")
    assert picked(world) == {"c"}
    world.expect_subchannels("c", "d")


@pytest.mark.spec("LR-04", "WRR-10", "RR-08")
def test_removed_endpoints_are_released_when_all_new_ones_fail_or_time_is_over(
    world: World,
) -> None:
    world.update("a")
    ready(world, "a")
    world.update("b")
    assert picked(world) == {"a"}
    fail(world, "b")
    world.expect_pick_fails("b refused")
    world["b"].idle()
    ready(world, "b")
    world.update("c")
    assert picked(world) == {"b"}
    world.advance(RETENTION_S)
    world.expect_state(CONNECTING)
    world.expect_subchannels("c")


@pytest.mark.spec("LR-04", "WRR-10", "RR-09")
def test_removed_endpoints_leave_nothing_behind_when_the_policy_is_closed(world: World) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.update("c")
    world["a"].idle()
    assert picked(world) == {"b"}
    world.policy.close()
    world.expect_closed()


@pytest.mark.spec("LR-04", "WRR-10")
def test_an_empty_list_is_a_failure_and_is_refused(world: World) -> None:
    world.update("a")
    ready(world, "a")
    assert world.update() == unavailable("empty address list")
    world.expect_pick_fails("empty address list")
    world.expect_subchannels()
    world.update("b")
    world.expect_state(CONNECTING)


@pytest.mark.spec("LR-04", "WRR-10")
def test_a_resolver_error_counts_only_without_a_list(world: World) -> None:
    assert world.resolver_error("no such host") == unavailable("no such host")
    world.expect_pick_fails("no such host")
    world.update("a", "b")
    ready(world, "a", "b")
    world.expect_never()
    assert not world.resolver_error("name server is down").is_ok
    world.expect_reports()
    assert picked(world) == {"a", "b"}


@pytest.mark.spec("LR-04", "WRR-10")
def test_close_leaves_nothing_behind(world: World) -> None:
    world.update("a", "b", ("c", "d"))
    ready(world, "a", "b", "c")
    world["b"].idle()
    world.policy.close()
    world.expect_closed()


# ---------------------------------------------------------------------------------------------
# Bugs that others had


@pytest.mark.spec("LR-04", "WRR-10")
def test_bug_grpc_java_6650_flapping_backends_do_not_keep_it_connecting(world: World) -> None:
    world.update("a", "b")
    DeadAddresses(world)
    for name in world.take_requests():
        world[name].connecting()
        world[name].fail()
    # Each tries again at its own pace, so that at most times one of them is CONNECTING.
    for name in "ab":
        world[name].idle()
    world.expect_reports(CONNECTING, FAILURE)
    world.advance(600)
    world.expect_never(CONNECTING)
    world.expect_pick_fails("connections to all backends failing")


@pytest.mark.spec("LR-04", "WRR-10")
def test_bug_grpc_31939_a_new_list_does_not_churn_the_connections_it_keeps(world: World) -> None:
    world.update("a", "b", "c")
    ready(world, "a", "b", "c")
    world.expect_never()
    created = world.created
    world.update("b", "c", "d")
    # All that stay are picked from the first report on; nobody waits for the first READY of d.
    world.expect_reports(READY)
    assert picked(world) == {"b", "c"}
    ready(world, "d")
    world.expect_reports(READY)
    assert picked(world) == {"b", "c", "d"}
    assert world.created == created + 1
