"""Regression tests for bugs of other implementations of pick_first and of idleness.

The numbers are those of "Pitfalls" in docs/spec/lb.md, which refers to the reports.
"""

import pytest

from proxyless.lb import Update
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from tests.worlds.policies import (
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    DeadAddresses,
    PolicyWorld,
    endpoint,
    unavailable,
)


@pytest.fixture
def world() -> PolicyWorld:
    return PolicyWorld(PickFirstFactory())


def connect(world: PolicyWorld, name: str) -> None:
    world[name].connecting()
    world[name].ready()


@pytest.mark.parametrize("listed", [("a",), ("a", "b"), ("b", "a"), ("b",)])
def test_pitfall_11_update_between_pick_and_connecting_leaves_idle(
    world: PolicyWorld, listed: tuple[str, ...]
) -> None:
    """grpc-go#8615, grpc-java#12395."""
    world.update("a")
    connect(world, "a")
    world["a"].idle()
    world.expect_state(IDLE)
    world.take_requests()
    assert world.pick() is None
    world.settle()
    assert world.take_requests() == ["a"]
    # No subchannel is CONNECTING yet.
    world.update(*listed)
    world.pick()
    world.settle()
    first = listed[0]
    assert world[first].is_requested
    connect(world, first)
    world.expect_state(READY)
    world.expect_pick(first)


def test_pitfall_11_idle_picker_works_more_than_once(world: PolicyWorld) -> None:
    world.update("a")
    connect(world, "a")
    world["a"].idle()
    picker = world.picker
    world.take_requests()
    for _ in range(3):
        picker.pick(world.rpc)
        world.settle()
    assert set(world.take_requests()) == {"a"}


def test_pitfall_12_address_that_failed_before_its_turn_does_not_stop_the_pass() -> None:
    """grpc#38714, grpc#40162: the failure was recorded before the pass reached the address."""
    world = PolicyWorld(PickFirstFactory())
    world.share("b", CONNECTING)
    world.update("a", "b", "c")
    world["b"].fail("b refused")
    world["a"].connecting()
    world["a"].fail("a refused")
    assert world["c"].is_requested
    world["c"].connecting()
    world["c"].fail("c refused")
    world.expect_state(FAILURE)
    world["b"].idle()
    assert world["b"].is_requested, "it does not reconnect"


def test_pitfall_12_policy_fails_and_attempts_are_repeated() -> None:
    """grpc#34717 (a pass closed too early), grpc-java#11082 (TRANSIENT_FAILURE never reached)."""
    world = PolicyWorld(PickFirstFactory())
    DeadAddresses(world)
    world.update("a", "b", "c")
    world.advance(10.0)
    world.expect_state(FAILURE)
    for _ in range(5):
        world.take_requests()
        world.advance(300.0)
        assert set(world.take_requests()) == {"a", "b", "c"}
        world.expect_state(FAILURE)


def test_pitfall_13_new_list_keeps_the_failure_and_skips_addresses_in_backoff(
    world: PolicyWorld,
) -> None:
    """grpc#33753."""
    world.update("a")
    world["a"].connecting()
    world["a"].fail()
    world.take_requests()
    world.update("a", "b")
    assert world.take_requests() == ["b"], "b waits for the backoff of a"
    world["b"].connecting()
    world.expect_state(FAILURE)
    world["b"].ready()
    world.expect_state(READY)


def test_pitfall_14_reresolution_is_requested_repeatedly_during_a_failure() -> None:
    """grpc-node#2602, grpc#16070."""
    world = PolicyWorld(PickFirstFactory())
    DeadAddresses(world)
    world.update("a", "b")
    world.advance(10.0)
    requested = world.reresolutions
    assert requested >= 1
    for _ in range(3):
        world.advance(600.0)
        assert world.reresolutions > requested
        requested = world.reresolutions


def test_pitfall_15_broken_connection_is_not_replaced_without_a_pick(world: PolicyWorld) -> None:
    """grpc-node#2680."""
    world.update("a", "b")
    connect(world, "a")
    world.take_requests()
    world["a"].idle()
    world.expect_state(IDLE)
    world.advance(3600.0)
    assert world.take_requests() == []


@pytest.mark.parametrize("state", [CONNECTING, READY, FAILURE, IDLE])
def test_pitfall_16_notification_after_close_is_ignored(world: PolicyWorld, state: object) -> None:
    """grpc#38144, grpc#38998: a notification queued before the shutdown."""
    world.update("a", "b")
    listeners = list(world["a"]._listeners)  # noqa: SLF001 - as a queue would hold them
    world.take_requests()
    reports = len(world.helper.reports)
    world.policy.close()
    for listener in listeners:
        listener(state, unavailable("late"))  # type: ignore[arg-type]
    world.advance(100.0)
    assert len(world.helper.reports) == reports
    assert world.subchannels == []


def test_pitfall_16_ready_of_a_replaced_subchannel_is_ignored(world: PolicyWorld) -> None:
    """grpc-java#12958, grpc-java#12968."""
    world.update("a")
    world["a"].connecting()
    listeners = list(world["a"]._listeners)  # noqa: SLF001
    world.update("b")
    for listener in listeners:
        listener(READY, unavailable("late"))
    assert world.state is not READY
    connect(world, "b")
    world.expect_pick("b")


def test_pitfall_17_policy_recovers_from_an_empty_update_while_idle(world: PolicyWorld) -> None:
    """grpc#18598."""
    world.update("a")
    connect(world, "a")
    world["a"].idle()
    world.update()
    world.expect_state(FAILURE)
    world.update("a")
    world.pick()
    world.settle()
    connect(world, "a")
    world.expect_state(READY)


def test_pitfall_18_shuffling_does_not_change_the_list_of_the_resolver(world: PolicyWorld) -> None:
    """grpc-go#8610, and a shuffle in place that raced with the resolver."""
    listed = tuple(endpoint(str(number)) for number in range(50))
    before = [str(each) for each in listed]
    config = world.parse({"shuffleAddressList": True})
    firsts = set()
    for _ in range(5):
        world.policy.update(Update(listed, config))
        firsts.update(world.take_requests())
    assert [str(each) for each in listed] == before
    assert len(firsts) > 1, "the lists are not shuffled"


def test_pitfall_18_updates_leak_no_health_watch() -> None:
    """grpc#35865: a second health watcher for each update."""
    world = PolicyWorld(RoundRobinFactory(), others=(PickFirstFactory(),))
    world.update("a", "b")
    for name in ("a", "b"):
        connect(world, name)
    for _ in range(10):
        world.update("b", "a")
        world.update("a", "b")
    for subchannel in world.subchannels:
        assert len(subchannel._health_listeners) == 1  # noqa: SLF001
