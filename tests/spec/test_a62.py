"""A62: pick_first with sticky TRANSIENT_FAILURE and shuffling."""

from collections import Counter
from itertools import pairwise
from typing import cast

import pytest

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    HTTP_PROXY,
    Endpoint,
    HttpProxy,
    IpAddress,
    Key,
    State,
    ValidationErrors,
)
from proxyless.lb import PolicyRegistry, Update
from proxyless.lb.policies.pick_first import PickFirstFactory
from tests.worlds.policies import (
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    DeadAddresses,
    Name,
    PolicyWorld,
    ScriptedSubchannel,
    endpoint,
)

GUARD = "GRPC_EXPERIMENTAL_PICKFIRST_LB_CONFIG"
SHUFFLE = {"shuffleAddressList": True}
BACKOFF_MAX_S = 120 * 1.2
WEIGHT = Key[int]("weight")


@pytest.fixture
def world() -> PolicyWorld:
    return PolicyWorld(PickFirstFactory())


def fail_all(world: PolicyWorld, *names: Name) -> None:
    """Fail the connection attempts of a pass one after the other."""
    for name in names:
        world[name].connecting()
        world[name].fail(f"{name} refused")


def parse_errors(json: dict[str, object]) -> str:
    errors = ValidationErrors()
    PickFirstFactory().parse_config(json, errors, PolicyRegistry())
    return str(errors)


# ---------------------------------------------------------------------------------------------
# Base behaviour


@pytest.mark.spec("A62-01")
def test_addresses_are_tried_in_order_and_the_first_that_connects_is_used(
    world: PolicyWorld,
) -> None:
    world.update("a", "b", "c")
    world.expect_requests("a")
    fail_all(world, "a")
    world.expect_requests("b")
    world["b"].connecting()
    world["b"].ready()
    world.expect_state(READY)
    assert world.picks(10) == ["b"] * 10
    world.expect_requests()


@pytest.mark.spec("A62-01")
def test_losing_and_untried_subchannels_are_released(world: PolicyWorld) -> None:
    world.update("a", "b", "c")
    world["a"].connecting()
    world.advance(0.25)
    world["b"].connecting()
    world["b"].ready()
    world.expect_subchannels("b")


@pytest.mark.spec("A62-02")
def test_policy_is_idle_until_a_pick_after_its_connection_broke(world: PolicyWorld) -> None:
    world.update("a", "b")
    fail_all(world, "a")
    world["b"].ready()
    world["b"].idle()
    world.expect_state(IDLE)
    world.expect_subchannels()
    world.take_requests()
    world.advance(3600)
    world.expect_requests()
    world.expect_picker_queues()
    world.settle()
    world.expect_state(CONNECTING)
    world.expect_requests("a")  # From the top of the list.


@pytest.mark.spec("A62-02")
def test_policy_is_idle_until_exit_idle_after_its_connection_broke(world: PolicyWorld) -> None:
    world.update("a", "b")
    world["a"].ready()
    world["a"].idle()
    world.take_requests()
    world.policy.exit_idle()
    world.expect_reports(CONNECTING, READY, IDLE, CONNECTING)
    world.expect_requests("a")


@pytest.mark.spec("A62-03")
def test_a_broken_connection_requests_reresolution_once(world: PolicyWorld) -> None:
    world.update("a")
    world["a"].ready()
    assert world.reresolutions == 0
    world["a"].idle()
    world.expect_picker_queues()
    world.settle()
    assert world.reresolutions == 1


# ---------------------------------------------------------------------------------------------
# Sticky TRANSIENT_FAILURE


@pytest.mark.spec("A62-04")
def test_picks_fail_with_the_last_error_when_all_addresses_failed(world: PolicyWorld) -> None:
    world.update("a", "b")
    fail_all(world, "a", "b")
    world.expect_reports(CONNECTING, FAILURE)
    world.expect_pick_fails("failed to connect to all addresses", "b refused")


@pytest.mark.spec("A62-05")
def test_no_failure_is_reported_before_every_address_failed(world: PolicyWorld) -> None:
    world.update("a", "b", "c")
    world["a"].connecting()
    world.advance(0.25)
    world["b"].connecting()
    world.advance(0.25)
    world["c"].connecting()
    for name in ("b", "c"):  # Out of order.
        world[name].fail()
        world.expect_state(CONNECTING)
        world.expect_picker_queues()
    world["b"].idle()  # Its backoff is over; a has not failed yet.
    world["a"].fail("a refused")
    world.expect_reports(CONNECTING, FAILURE)
    world.expect_pick_fails("a refused")


@pytest.mark.spec("A62-06")
def test_policy_stays_in_failure_until_a_subchannel_is_ready(world: PolicyWorld) -> None:
    world.update("a", "b")
    fail_all(world, "a", "b")
    world.expect_reports(CONNECTING, FAILURE)
    for name in ("a", "b"):
        world[name].idle()
        world[name].connecting()
    world.expect_reports()
    world.expect_pick_fails()
    world["b"].ready()
    world.expect_reports(READY)
    world.expect_pick("b")


@pytest.mark.spec("A62-07")
def test_subchannels_reconnect_after_backoff_without_an_rpc(world: PolicyWorld) -> None:
    world.update("a", "b")
    fail_all(world, "a", "b")
    world.take_requests()
    world["b"].idle()
    world.expect_requests("b")
    world["a"].idle()
    world.expect_requests("a")


@pytest.mark.spec("A62-07", "A62-08")
def test_attempts_are_repeated_without_limit(world: PolicyWorld) -> None:
    network = DeadAddresses(world)
    world.update("a", "b")
    world.advance(10)
    world.expect_state(FAILURE)
    world.expect_never(IDLE, READY)
    world.advance(60 * BACKOFF_MAX_S)
    world.expect_never(IDLE, CONNECTING, READY)
    for attempts in network.attempts.values():
        gaps_s = [later - earlier for earlier, later in pairwise(attempts)]
        assert len(gaps_s) > 50
        assert max(gaps_s) <= BACKOFF_MAX_S
    world.expect_state(FAILURE)


@pytest.mark.spec("A62-09")
def test_failure_needs_a_full_pass_again_after_a_success(
    world: PolicyWorld,
) -> None:
    world.update("a", "b")
    fail_all(world, "a", "b")
    world["a"].idle()
    world["a"].connecting()
    world["a"].ready()
    world["a"].idle()
    world.expect_reports(CONNECTING, FAILURE, READY, IDLE)
    world.policy.exit_idle()
    fail_all(world, "a")
    world.expect_reports(CONNECTING)
    fail_all(world, "b")
    world.expect_reports(FAILURE)


@pytest.mark.spec("A62-10")
def test_new_list_is_tried_without_leaving_failure(world: PolicyWorld) -> None:
    world.update("a", "b")
    fail_all(world, "a", "b")
    world.expect_reports(CONNECTING, FAILURE)
    world.take_requests()
    world.update("b", "c")  # b is in backoff, so c is tried at once.
    world.expect_requests("c")
    world["c"].connecting()
    world.expect_reports()
    world["c"].ready()
    world.expect_reports(READY)
    world.expect_pick("c")


@pytest.mark.spec("A62-10")
def test_policy_stays_in_failure_when_the_whole_new_list_is_in_backoff(world: PolicyWorld) -> None:
    world.update("a", "b")
    fail_all(world, "a", "b")
    before = world.reresolutions
    world.update("b", "a")
    world.update("b")
    world.expect_state(FAILURE)
    # Otherwise a resolver that answers at once would loop.
    assert world.reresolutions == before
    world.take_requests()
    world["b"].idle()
    world.expect_requests("b")


@pytest.mark.spec("A62-11")
@pytest.mark.parametrize("cause", ["empty", "error"])
def test_failure_for_lack_of_addresses_is_not_sticky(world: PolicyWorld, cause: str) -> None:
    status = world.update() if cause == "empty" else world.resolver_error("no such host")
    assert not status.is_ok
    world.expect_reports(FAILURE)
    world.expect_pick_fails("empty address list" if cause == "empty" else "no such host")
    world.update("a")
    world.expect_reports(CONNECTING)
    world.expect_requests("a")


@pytest.mark.spec("A62-11")
def test_empty_list_replaces_a_good_one(world: PolicyWorld) -> None:
    world.update("a")
    world["a"].ready()
    world.update()
    world.expect_state(FAILURE)
    world.expect_subchannels()


@pytest.mark.spec("A62-11")
def test_resolver_error_is_ignored_after_a_good_list(world: PolicyWorld) -> None:
    world.update("a", "b")
    world["a"].ready()
    world.expect_reports(CONNECTING, READY)
    world.resolver_error()
    world.expect_reports()
    world.expect_pick("a")
    world["a"].idle()
    world.policy.exit_idle()
    world.take_requests()
    fail_all(world, "a")
    world.expect_requests("b")


@pytest.mark.spec("A62-12")
def test_reresolution_is_requested_at_first_failure_and_after_every_n_more(
    world: PolicyWorld,
) -> None:
    world.update("a", "b", "c")
    fail_all(world, "a", "b")
    assert world.reresolutions == 0
    fail_all(world, "c")
    assert world.reresolutions == 1
    for again in range(1, 4):
        for name in ("c", "a", "b"):
            assert world.reresolutions == again
            world[name].idle()
            world[name].connecting()
            world[name].fail(f"{name} refused {again} times")
        assert world.reresolutions == again + 1
        world.expect_pick_fails(f"b refused {again} times")


# ---------------------------------------------------------------------------------------------
# Shuffling


@pytest.mark.spec("A62-19")
@pytest.mark.parametrize("json", [{}, {"shuffleAddressList": False}, SHUFFLE, {"other": 1}])
def test_valid_config_is_accepted(json: dict[str, object]) -> None:
    assert parse_errors(json) == "[]"


@pytest.mark.spec("A62-19")
@pytest.mark.parametrize("value", [666, 0, "true", [], {}])
def test_a_shuffle_flag_that_is_not_a_boolean_is_rejected(value: object) -> None:
    text = parse_errors({"shuffleAddressList": value})
    assert text.startswith("[field:shuffleAddressList error:is ")
    assert text.endswith(", wanted a boolean]")


def order_of_attempts(world: PolicyWorld, names: str) -> str:
    """Fail each address once; return the order of the attempts."""
    tried = ""
    for _ in names:
        [name] = world.take_requests()
        tried += name
        fail_all(world, name)
    return tried


@pytest.mark.spec("A62-19", "A62-20")
@pytest.mark.parametrize("config", [{}, {"shuffleAddressList": False}])
def test_order_is_kept_on_every_update_when_shuffling_is_off(
    world: PolicyWorld, config: dict[str, object]
) -> None:
    for names in ("abcdefgh", "hgfedcba", "cadbehgf"):
        world.update(*names, config=config)
        assert order_of_attempts(world, names) == names
        world.update()


@pytest.mark.spec("A62-21")
def test_all_orders_are_equally_likely_when_shuffling_is_on(world: PolicyWorld) -> None:
    orders: Counter[str] = Counter()
    for _ in range(6000):
        world.update("a", "b", "c", config=SHUFFLE)
        orders[order_of_attempts(world, "abc")] += 1
        world.update()
    assert len(orders) == 6
    assert all(abs(count - 1000) <= 150 for count in orders.values()), orders


@pytest.mark.spec("A62-22")
@pytest.mark.parametrize("seed", range(5))
def test_a_list_is_shuffled_once_when_it_is_received(seed: int) -> None:
    world = PolicyWorld(PickFirstFactory(), seed=seed)
    world.update(*"abcdefgh", config=SHUFFLE)
    [first] = world.take_requests()
    for _ in range(5):
        world[first].ready()
        world[first].idle()
        world.policy.exit_idle()
        world.expect_requests(first)


@pytest.mark.spec("A62-22")
def test_each_update_is_shuffled_anew(world: PolicyWorld) -> None:
    firsts: set[Name] = set()
    for _ in range(20):
        world.update(*"abcdefgh", config=SHUFFLE)
        firsts.update(world.take_requests())
    assert len(firsts) > 4


@pytest.mark.spec("A62-23")
def test_shuffling_moves_endpoints_not_their_addresses(world: PolicyWorld) -> None:
    pairs = [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]
    orders = set()
    for _ in range(20):
        world.update(*pairs, config=SHUFFLE)
        order = order_of_attempts(world, "abcdefgh")
        assert {order[i : i + 2] for i in range(0, 8, 2)} == {"ab", "cd", "ef", "gh"}
        orders.add(order)
        world.update()
    assert len(orders) > 5


@pytest.mark.spec("A62-23")
def test_shuffling_does_not_change_the_list_of_the_resolver(world: PolicyWorld) -> None:
    found = [endpoint((name, f"{name}6")) for name in "abcdefgh"]
    before = list(found)
    orders = set()
    for _ in range(10):
        config = world.parse(SHUFFLE)
        world.policy.update(Update(cast("tuple[Endpoint, ...]", found), config))
        [first] = world.take_requests()
        orders.add(first)
        world.update()
    assert len(orders) > 1, "it is not shuffled"
    assert found == before
    assert all(one is other for one, other in zip(found, before, strict=True))


@pytest.mark.spec("A62-24")
def test_a_connection_survives_shuffling(world: PolicyWorld) -> None:
    world.update(*"abcdefgh")
    world["a"].ready()
    world.take_requests()
    for _ in range(20):
        world.update(*"abcdefgh", config=SHUFFLE)
    world.expect_reports(CONNECTING, READY)
    world.expect_requests()
    world.expect_pick("a")


# test_xds_validation_clusters.py covers the guard for the xDS message.


@pytest.mark.spec("A62-27")
@pytest.mark.parametrize("value", ["false", "False", "FALSE"])
def test_shuffling_is_ignored_when_the_guard_is_false(
    world: PolicyWorld, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(GUARD, value)
    assert parse_errors({"shuffleAddressList": 666}) == "[]"
    world.update(*"abcdefgh", config=SHUFFLE)
    assert order_of_attempts(world, "abcdefgh") == "abcdefgh"
    world.expect_state(FAILURE)
    world["a"].idle()
    world["a"].connecting()
    world.expect_state(FAILURE)  # The guard does not affect sticky TRANSIENT_FAILURE.


@pytest.mark.spec("A62-27")
@pytest.mark.parametrize("value", ["true", "", "anything"])
def test_shuffling_is_honoured_unless_the_guard_is_false(
    world: PolicyWorld, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(GUARD, value)
    assert parse_errors({"shuffleAddressList": 666}) != "[]"
    world.update(*"abcdefgh", config=SHUFFLE)
    assert order_of_attempts(world, "abcdefgh") != "abcdefgh"


# ---------------------------------------------------------------------------------------------
# Behaviour that no gRFC specifies


def test_policy_is_idle_when_an_update_lacks_the_connected_address(world: PolicyWorld) -> None:
    """Decision D9."""
    world.update("a", "b")
    world["a"].ready()
    world.take_requests()
    world.update("b", "c")
    world.expect_reports(CONNECTING, READY, IDLE)
    world.expect_subchannels()
    world.expect_requests()
    world.expect_picker_queues()
    world.settle()
    world.expect_requests("b")


def test_connection_is_kept_when_attributes_change(world: PolicyWorld) -> None:
    world.update("a", "b")
    world["a"].ready()
    world.take_requests()
    world.update(endpoint("a", EMPTY_ATTRIBUTES.with_(WEIGHT, 2)), "b")
    world.expect_reports(CONNECTING, READY, READY)
    world.expect_requests()
    world.expect_pick("a")
    assert world["a"].attributes.get(WEIGHT) == 2


def renewed(world: PolicyWorld) -> tuple[ScriptedSubchannel, ScriptedSubchannel]:
    """The selected subchannel of an address whose attributes have changed, and the new one."""
    world.update("a", "b")
    world["a"].ready()
    # Changed attributes need another subchannel.
    world.share("a", IDLE)
    world.update(endpoint("a", EMPTY_ATTRIBUTES.with_(WEIGHT, 2)), "b")
    world.expect_reports(CONNECTING, READY)
    world.expect_requests("a", "a")
    old, new = world.subchannels
    return old, new


def test_connection_for_changed_attributes_replaces_the_old_one_when_it_is_ready(
    world: PolicyWorld,
) -> None:
    old, new = renewed(world)
    new.connecting()
    new.fail()
    world.expect_reports()
    # Its backoff is over.
    new.idle()
    world.expect_requests("a")
    new.connecting()
    world.expect_reports()
    assert not old.is_released
    new.ready()
    world.expect_reports(READY)
    assert world["a"] is new
    new.idle()
    world.expect_reports(IDLE)
    world.expect_subchannels()


def test_newest_attributes_are_used_when_they_change_again(world: PolicyWorld) -> None:
    _, second = renewed(world)
    heavier = endpoint("a", EMPTY_ATTRIBUTES.with_(WEIGHT, 3))
    # A new address does not interrupt the attempt under way.
    world.update(endpoint("a", second.attributes), "b", "c")
    assert second in world.subchannels
    world.expect_requests()
    world.update(heavier, "b", "c")
    assert second not in world.subchannels
    world.expect_requests("a")
    old, third = world.subchannels
    assert third.attributes.get(WEIGHT) == 3
    # The first attributes again.
    world.update("a", "b", "c")
    assert world["a"] is old
    world.expect_requests()
    world.expect_reports()


@pytest.mark.parametrize("state", [IDLE, CONNECTING, FAILURE])
def test_replacement_is_released_when_the_old_connection_is_lost(
    world: PolicyWorld, state: State
) -> None:
    """pick_first becomes IDLE only if the lost subchannel is IDLE (A105)."""
    old, new = renewed(world)
    old.become(state)
    assert (old.is_released, new.is_released) == (True, True)
    if state is IDLE:
        world.expect_reports(IDLE)
        world.expect_subchannels()
    else:
        world.expect_reports(CONNECTING)
        world.expect_subchannels("a", "b")
        assert world["a"].attributes.get(WEIGHT) == 2


def test_replacement_is_released_when_the_policy_is_closed(world: PolicyWorld) -> None:
    _, new = renewed(world)
    world.policy.reset_backoff()
    assert new.backoff_resets == 1
    world.policy.close()
    world.expect_subchannels()


def test_replacement_is_released_when_an_update_lacks_its_address(world: PolicyWorld) -> None:
    renewed(world)
    world.update("b")
    world.expect_reports(IDLE)
    world.expect_subchannels()


def test_changed_proxy_is_used_by_the_next_connection(world: PolicyWorld) -> None:
    """Decision D41: a lookup of the proxy's name may return other addresses each time."""
    proxies = [HttpProxy(IpAddress("10.9.9.9", port)) for port in (1, 2)]
    first, second = (endpoint("a", EMPTY_ATTRIBUTES.with_(HTTP_PROXY, each)) for each in proxies)
    world.update(first)
    world["a"].ready()
    world.take_requests()
    world.share("a", IDLE)
    world.update(second)
    world.expect_requests()
    assert world["a"].attributes == first.attributes
    world["a"].idle()
    world.policy.exit_idle()
    assert world["a"].attributes == second.attributes


def test_changed_attributes_reach_a_shared_connection(world: PolicyWorld) -> None:
    world.update("a", "b")
    world["a"].ready()
    world.share("a", READY)
    world.update(endpoint("a", endpoint("a").attributes.with_(WEIGHT, 2)), "b")
    world.expect_reports(CONNECTING, READY, READY)
    world.expect_pick("a")
    assert world["a"].attributes.get(WEIGHT) == 2
    world["a"].idle()
    world.expect_reports(IDLE)
