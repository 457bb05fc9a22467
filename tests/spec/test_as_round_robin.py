"""Connectivity management of least_request (A48), weighted_round_robin (A58), peak_ewma and random.

"The same subchannel connectivity management logic implemented in the `round_robin` policy" - A48.
"""

import pytest

from proxyless.lb import PolicyFactory
from proxyless.lb.policies.least_request import LeastRequestFactory
from proxyless.lb.policies.peak_ewma import PeakEwmaFactory
from proxyless.lb.policies.random import RandomFactory
from proxyless.lb.policies.weighted_round_robin import WeightedRoundRobinFactory
from tests.worlds.policies import (
    CONNECTING,
    FAILURE,
    READY,
    DeadAddresses,
    Name,
    PolicyWorld,
    unavailable,
)

# Longest time for which removed endpoints get RPCs.
RETENTION_S = 30.0

FACTORIES: list[PolicyFactory] = [
    LeastRequestFactory(),
    PeakEwmaFactory(),
    WeightedRoundRobinFactory(),
    RandomFactory(),
]


@pytest.fixture(params=FACTORIES, ids=lambda factory: str(factory.name))
def world(request: pytest.FixtureRequest) -> PolicyWorld:
    return PolicyWorld(request.param)


def ready(world: PolicyWorld, *names: Name) -> None:
    for name in names:
        world[name].connecting()
        world[name].ready()


def fail(world: PolicyWorld, *names: Name) -> None:
    for name in names:
        world[name].connecting()
        world[name].fail(f"{name} refused")


def picked(world: PolicyWorld, picks: int = 100) -> set[object]:
    return set(world.picks(picks))


@pytest.mark.spec("LR-04", "PE-08", "WRR-10")
def test_all_endpoints_connect_at_once(world: PolicyWorld) -> None:
    world.update("a", "b", "c")
    assert sorted(world.take_requests()) == ["a", "b", "c"]
    world.expect_reports(CONNECTING)
    world.expect_picker_queues()


@pytest.mark.spec("LR-04", "PE-08", "WRR-10")
def test_policy_is_ready_when_one_endpoint_is_ready(world: PolicyWorld) -> None:
    world.update("a", "b", "c")
    fail(world, "a")
    world.expect_reports(CONNECTING)
    ready(world, "b")
    world.expect_reports(READY)
    fail(world, "c")
    world.expect_state(READY)
    assert picked(world) == {"b"}


@pytest.mark.spec("LR-04", "PE-08", "WRR-10")
def test_only_ready_endpoints_are_picked(world: PolicyWorld) -> None:
    world.update("a", "b", "c", "d")
    ready(world, "a", "b", "c")
    assert picked(world) == {"a", "b", "c"}
    world["b"].idle()
    assert picked(world) == {"a", "c"}


@pytest.mark.spec("LR-04", "PE-08", "WRR-10")
def test_policy_fails_with_the_last_error_when_all_endpoints_fail(world: PolicyWorld) -> None:
    world.update("a", "b", note="from dns")
    fail(world, "a")
    world.expect_reports(CONNECTING)
    fail(world, "b")
    world.expect_reports(FAILURE)
    text = "connections to all backends failing; last error: "
    world.expect_pick_fails(text, "b refused (from dns)")


@pytest.mark.spec("LR-04", "PE-08", "WRR-10")
def test_policy_stays_in_failure_when_an_endpoint_reconnects(world: PolicyWorld) -> None:
    world.update("a", "b")
    fail(world, "a", "b")
    world.expect_reports(CONNECTING, FAILURE)
    world["a"].idle()
    world["a"].connecting()
    world.expect_reports()
    world["a"].ready()
    world.expect_reports(READY)


@pytest.mark.spec("LR-04", "PE-08", "WRR-10")
def test_idle_endpoint_is_reconnected_at_once_and_counts_as_connecting(world: PolicyWorld) -> None:
    world.update("a")
    ready(world, "a")
    world.take_requests()
    world["a"].idle()
    world.expect_reports(CONNECTING, READY, CONNECTING)
    assert world.reresolutions == 1
    world.settle()
    world.expect_requests("a")


@pytest.mark.spec("LR-04", "WRR-08")
def test_endpoint_that_is_listed_twice_counts_once(world: PolicyWorld) -> None:
    world.update(("a", "b"), "c", ("b", "a"), "c")
    assert sorted(world.take_requests()) == ["a", "c"]
    ready(world, "a", "c")
    world.expect_subchannels("a", "c")
    picks = world.picks(2_000)
    # An endpoint that is counted twice would get 1,333 picks.
    assert all(900 <= picks.count(name) <= 1_100 for name in "ac")


@pytest.mark.spec("LR-04", "PE-08", "WRR-10")
def test_connections_are_kept_for_listed_endpoints_and_released_for_removed_ones(
    world: PolicyWorld,
) -> None:
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


@pytest.mark.spec("LR-04", "PE-08", "WRR-10")
def test_update_is_reported_once_and_an_equal_update_is_not_reported(
    world: PolicyWorld,
) -> None:
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
def test_removed_endpoints_get_rpcs_until_a_new_one_is_ready(world: PolicyWorld) -> None:
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
def test_removed_endpoints_are_released_when_all_new_ones_fail_or_their_retention_ends(
    world: PolicyWorld,
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
def test_removed_endpoints_are_released_when_the_policy_is_closed(
    world: PolicyWorld,
) -> None:
    world.update("a", "b")
    ready(world, "a", "b")
    world.update("c")
    world["a"].idle()
    assert picked(world) == {"b"}
    world.policy.close()
    world.expect_closed()


@pytest.mark.spec("LR-04", "PE-08", "WRR-10")
def test_empty_list_is_refused_and_fails_rpcs(world: PolicyWorld) -> None:
    world.update("a")
    ready(world, "a")
    assert world.update() == unavailable("empty address list")
    world.expect_pick_fails("empty address list")
    world.expect_subchannels()
    world.update("b")
    world.expect_state(CONNECTING)


@pytest.mark.spec("LR-04", "PE-08", "WRR-10")
def test_resolver_error_fails_rpcs_only_when_there_is_no_list(world: PolicyWorld) -> None:
    assert world.resolver_error("no such host") == unavailable("no such host")
    world.expect_pick_fails("no such host")
    world.update("a", "b")
    ready(world, "a", "b")
    world.expect_never()
    assert not world.resolver_error("name server is down").is_ok
    world.expect_reports()
    assert picked(world) == {"a", "b"}


@pytest.mark.spec("LR-04", "PE-08", "WRR-10")
def test_close_releases_all_subchannels_and_timers(world: PolicyWorld) -> None:
    world.update("a", "b", ("c", "d"))
    ready(world, "a", "b", "c")
    world["b"].idle()
    world.policy.close()
    world.expect_closed()


# ---------------------------------------------------------------------------------------------
# Bugs of other implementations


@pytest.mark.spec("LR-04", "PE-08", "WRR-10")
def test_bug_grpc_java_6650_policy_stays_in_failure_while_backends_reconnect(
    world: PolicyWorld,
) -> None:
    world.update("a", "b")
    DeadAddresses(world)
    for name in world.take_requests():
        world[name].connecting()
        world[name].fail()
    # Each retries after its own backoff, so that mostly one of them is CONNECTING.
    for name in "ab":
        world[name].idle()
    world.expect_reports(CONNECTING, FAILURE)
    world.advance(600)
    world.expect_never(CONNECTING)
    world.expect_pick_fails("connections to all backends failing")


@pytest.mark.spec("LR-04", "PE-08", "WRR-10")
def test_bug_grpc_31939_kept_connections_are_used_at_once_with_a_new_list(
    world: PolicyWorld,
) -> None:
    world.update("a", "b", "c")
    ready(world, "a", "b", "c")
    world.expect_never()
    created = world.helper.created
    world.update("b", "c", "d")
    # Endpoints that stay are picked from the first report on, before d is READY.
    world.expect_reports(READY)
    assert picked(world) == {"b", "c"}
    ready(world, "d")
    world.expect_reports(READY)
    assert picked(world) == {"b", "c", "d"}
    assert world.helper.created == created + 1
