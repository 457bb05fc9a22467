"""Bugs that other implementations of pick_first and of idleness had, each of them shown not ours.

The numbers are those of "Pitfalls" in docs/spec/lb.md, where the reports are named.
"""

import pytest

from proxyless.lb import Update
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from tests.spec.lb_world import (
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    DeadAddresses,
    World,
    endpoint,
    unavailable,
)


@pytest.fixture
def world() -> World:
    return World(PickFirstFactory())


def connect(world: World, name: str) -> None:
    world[name].connecting()
    world[name].ready()


@pytest.mark.parametrize("listed", [("a",), ("a", "b"), ("b", "a"), ("b",)])
def test_pitfall_11_update_between_pick_and_connecting_does_not_wedge_in_idle(
    world: World, listed: tuple[str, ...]
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
    # Nobody has said CONNECTING yet.
    world.update(*listed)
    world.pick()
    world.settle()
    first = listed[0]
    assert world[first].is_requested
    connect(world, first)
    world.expect_state(READY)
    world.expect_pick(first)


def test_pitfall_11_idle_picker_works_more_than_once(world: World) -> None:
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
    """grpc#38714, grpc#40162: the failure was noted before the pass reached the address."""
    world = World(PickFirstFactory())
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
    assert world["b"].is_requested, "it goes on trying"


def test_pitfall_12_failure_is_reached_and_attempts_never_end() -> None:
    """grpc#34717 (a pass closed too early), grpc-java#11082 (TRANSIENT_FAILURE never reached)."""
    world = World(PickFirstFactory())
    DeadAddresses(world)
    world.update("a", "b", "c")
    world.advance(10.0)
    world.expect_state(FAILURE)
    for _ in range(5):
        world.take_requests()
        world.advance(300.0)
        assert set(world.take_requests()) == {"a", "b", "c"}
        world.expect_state(FAILURE)


def test_pitfall_13_new_list_keeps_the_failure_and_skips_who_is_in_backoff(world: World) -> None:
    """grpc#33753."""
    world.update("a")
    world["a"].connecting()
    world["a"].fail()
    world.take_requests()
    world.update("a", "b")
    assert world.take_requests() == ["b"], "nobody waits for the backoff of a"
    world["b"].connecting()
    world.expect_state(FAILURE)
    world["b"].ready()
    world.expect_state(READY)


def test_pitfall_14_failure_that_lasts_asks_for_fresh_addresses_again_and_again() -> None:
    """grpc-node#2602, grpc#16070."""
    world = World(PickFirstFactory())
    DeadAddresses(world)
    world.update("a", "b")
    world.advance(10.0)
    asked = world.reresolutions
    assert asked >= 1
    for _ in range(3):
        world.advance(600.0)
        assert world.reresolutions > asked
        asked = world.reresolutions


def test_pitfall_15_broken_connection_is_not_replaced_by_itself(world: World) -> None:
    """grpc-node#2680."""
    world.update("a", "b")
    connect(world, "a")
    world.take_requests()
    world["a"].idle()
    world.expect_state(IDLE)
    world.advance(3600.0)
    assert world.take_requests() == []


@pytest.mark.parametrize("state", [CONNECTING, READY, FAILURE, IDLE])
def test_pitfall_16_what_was_said_before_the_end_changes_nothing_after_it(
    world: World, state: object
) -> None:
    """grpc#38144, grpc#38998: a notification queued before the shutdown."""
    world.update("a", "b")
    listeners = list(world["a"]._listeners)  # noqa: SLF001 - as a queue would hold them
    world.take_requests()
    reports = len(world._reports)  # noqa: SLF001
    world.policy.close()
    for listener in listeners:
        listener(state, unavailable("late"))  # type: ignore[arg-type]
    world.advance(100.0)
    assert len(world._reports) == reports  # noqa: SLF001
    assert world.live == []


def test_pitfall_16_ready_from_a_replaced_subchannel_is_not_used(world: World) -> None:
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


def test_pitfall_17_empty_update_while_idle_is_over_with_the_next_list(world: World) -> None:
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


def test_pitfall_18_shuffling_leaves_the_resolvers_list_alone(world: World) -> None:
    """grpc-go#8610, and a shuffle in place that raced with the resolver."""
    listed = tuple(endpoint(f"#{number}") for number in range(50))
    before = [str(each) for each in listed]
    config = world.parse({"shuffleAddressList": True})
    firsts = set()
    for _ in range(5):
        world.policy.update(Update(listed, config))
        firsts.update(world.take_requests())
    assert [str(each) for each in listed] == before
    assert len(firsts) > 1, "each list that comes is shuffled"


def test_pitfall_18_updates_leak_no_health_watch() -> None:
    """grpc#35865: a second health watcher for each update."""
    world = World(RoundRobinFactory(), others=(PickFirstFactory(),))
    world.update("a", "b")
    for name in ("a", "b"):
        connect(world, name)
    for _ in range(10):
        world.update("b", "a")
        world.update("a", "b")
    for subchannel in world.live:
        assert len(subchannel._health_listeners) == 1  # noqa: SLF001
