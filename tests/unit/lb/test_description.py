"""Unit tests of proxyless.lb.description, and of each policy's `describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyless.assembly import Registries
from proxyless.base import OK, Endpoint, State, Status, StatusCode, ValidationErrors
from proxyless.lb import LbNode, PickInfo, Update
from proxyless.lb.config import PolicyConfig
from proxyless.lb.description import (
    annotate,
    as_child,
    describe_policy,
    describe_subchannel,
    format_seconds,
    join_notes,
    ready_addresses,
    wrap,
)
from proxyless.lb.graceful_switch import GracefulSwitchPolicy
from proxyless.lb.hierarchy import with_path
from proxyless.lb.policies.least_request import LeastRequestConfig, LeastRequestFactory
from proxyless.lb.policies.pick_first import PickFirstConfig, PickFirstFactory
from proxyless.lb.policies.priority import PriorityChildConfig, PriorityConfig, PriorityFactory
from proxyless.lb.policies.ring_hash import RingHashConfig, RingHashFactory
from proxyless.lb.policies.round_robin import RoundRobinConfig, RoundRobinFactory
from proxyless.lb.policies.weighted_target import (
    NO_TARGETS,
    TargetConfig,
    WeightedTargetConfig,
    WeightedTargetFactory,
)
from proxyless.testing import FakeHelper, address

if TYPE_CHECKING:
    from proxyless.lb import PolicyFactory

FAILED = Status(StatusCode.UNAVAILABLE, "it is down")
ROUND_ROBIN = PolicyConfig(RoundRobinFactory(), RoundRobinConfig())


class Bare:
    """Policy without `describe`, as an application may have written it."""

    def update(self, update: Update) -> Status:
        return OK

    def exit_idle(self) -> None:
        return

    def reset_backoff(self) -> None:
        return

    def close(self) -> None:
        return


class Buggy(Bare):
    """Policy whose `describe` raises."""

    def describe(self) -> LbNode:
        raise ZeroDivisionError("no endpoints")


# Nodes


def test_policy_without_describe_has_the_state_of_its_report() -> None:
    node = as_child(
        describe_policy(Bare(), "bare"), "a", state=State.TRANSIENT_FAILURE, failure=FAILED
    )
    assert node == LbNode("a", "bare", "TRANSIENT_FAILURE", "it is down", problem="it is down")


def test_description_contains_the_exception_when_describe_raises() -> None:
    node = describe_policy(Buggy(), "buggy")
    assert node.detail == "describe raised ZeroDivisionError: no endpoints"


@pytest.mark.parametrize(
    ("node", "complaint"),
    [
        (LbNode(state="ready"), "ValueError: state is 'ready', wanted the name of a State"),
        (LbNode(detail=cast("str", 3)), "TypeError: 3 is int, wanted str"),
        (LbNode(children=(LbNode("a", state="up"),)), "ValueError: state is 'up', wanted"),
        (cast("LbNode", "READY"), "TypeError: "),
    ],
)
def test_description_contains_an_error_when_describe_returns_invalid_values(
    node: LbNode, complaint: str
) -> None:
    policy = Bare()
    policy.describe = lambda: node  # type: ignore[attr-defined]
    node = describe_policy(policy, "mine")
    assert node.detail.startswith(f"describe raised {complaint}")
    assert not node.children


def test_parent_state_fills_in_missing_states_of_child_and_first_grandchildren() -> None:
    node = as_child(wrap(wrap(LbNode(policy="bare"))), state=State.CONNECTING)
    assert [node.state, node.children[0].state, node.children[0].children[0].state] == [
        "CONNECTING"
    ] * 3


def test_description_has_both_states_when_child_and_parent_differ() -> None:
    child = LbNode(policy="p", state="CONNECTING")
    node = as_child(child, state=State.TRANSIENT_FAILURE, failure=FAILED)
    assert (node.state, node.detail) == (
        "CONNECTING",
        "counts as TRANSIENT_FAILURE; it is down",
    )
    assert node.problem == "it is down"


def test_notes_are_added_to_subchannels_only() -> None:
    leaf = describe_subchannel(address("a"), State.READY)
    tree = LbNode(policy="x", children=(LbNode(str(address("a")), "pick_first", children=(leaf,)),))
    noted = annotate(tree, {str(address("a")): "ejected 3 s"})
    assert noted.children[0].detail == ""
    assert noted.children[0].children[0].detail == "ejected 3 s"
    assert annotate(tree, {}) is tree


def test_ready_addresses_are_those_of_ready_nodes_in_use() -> None:
    one, other = (describe_subchannel(address(name), State.READY) for name in "ab")
    unused = LbNode("p1", "x", "READY", children=(other,), in_use=False)
    failing = LbNode("p2", "x", "TRANSIENT_FAILURE", children=(other,))
    tree = LbNode("", "p", "READY", children=(LbNode("p0", "x", "READY", "", (one, one)), unused))
    assert ready_addresses(tree) == [str(address("a"))]
    assert ready_addresses(failing) == []


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 s"), (7.24, "7.2 s"), (12.0, "12 s"), (893.4, "893 s")]
)
def test_seconds_are_rounded(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_notes_are_joined_without_empty_ones() -> None:
    assert join_notes("", "a", "", "b") == "a; b"


# Policies


class DescribedPolicyWorld:
    """One policy and its parent."""

    def __init__(self, factory: PolicyFactory) -> None:
        self.helper = FakeHelper()
        self.policy = factory.create(self.helper)

    def update(self, config: object, *endpoints: str | Endpoint) -> None:
        made = tuple(
            each if isinstance(each, Endpoint) else Endpoint((address(each),)) for each in endpoints
        )
        self.policy.update(Update(made, config))

    def become(self, name: str, *states: State) -> None:
        for state in states:
            self.helper.connection(name).become(state)
            self.helper.clock.advance(0.0)

    def describe(self) -> LbNode:
        return describe_policy(self.policy, "it")


def shape(node: LbNode) -> Any:  # noqa: ANN401 - a tree of tuples
    """Names and states."""
    return node.name, node.state, *(shape(child) for child in node.children)


def test_pick_first_describes_the_addresses_of_its_pass() -> None:
    world = DescribedPolicyWorld(PickFirstFactory())
    world.update(PickFirstConfig(), "a", "b")
    world.become("a", State.CONNECTING, State.TRANSIENT_FAILURE)
    world.become("b", State.CONNECTING)
    a, b = (str(address(name)) for name in "ab")
    assert shape(world.describe()) == (
        "",
        "CONNECTING",
        (a, "TRANSIENT_FAILURE"),
        (b, "CONNECTING"),
    )
    world.become("b", State.TRANSIENT_FAILURE)
    assert "failed to connect to all addresses" in world.describe().detail


def test_pick_first_describes_how_to_connect_when_idle() -> None:
    world = DescribedPolicyWorld(PickFirstFactory())
    world.update(PickFirstConfig(), "a")
    world.become("a", State.CONNECTING, State.READY, State.IDLE)
    node = world.describe()
    assert (node.state, node.children) == ("IDLE", ())
    assert node.detail == "connects when an RPC comes, to one of 1 addresses"


def test_round_robin_describes_and_counts_its_endpoints() -> None:
    world = DescribedPolicyWorld(RoundRobinFactory())
    world.update(RoundRobinConfig(), "a", "b")
    world.become("a", State.CONNECTING, State.READY)
    world.become("b", State.CONNECTING, State.TRANSIENT_FAILURE)
    node = world.describe()
    assert (node.state, node.detail) == ("READY", "1 of 2 endpoints are READY")
    by_name = {child.name: child for child in node.children}
    assert by_name[str(address("a"))].policy == "pick_first"
    failing = by_name[str(address("b"))]
    assert failing.state == "TRANSIENT_FAILURE"
    assert failing.detail == failing.problem
    assert ready_addresses(node) == [str(address("a"))]


def test_least_request_describes_requests_in_flight() -> None:
    world = DescribedPolicyWorld(LeastRequestFactory())
    world.update(LeastRequestConfig(), "a")
    world.become("a", State.CONNECTING, State.READY)
    world.helper.picker.pick(PickInfo("/s/m")).tracker.on_start()  # type: ignore[union-attr]
    assert world.describe().children[0].detail == "1 requests in flight"


def test_ring_hash_describes_endpoints_that_are_not_connected() -> None:
    world = DescribedPolicyWorld(RingHashFactory())
    world.update(RingHashConfig(), "a", "b")
    details = [(child.state, child.detail) for child in world.describe().children]
    assert details == [("IDLE", "weight 1")] * 2


def priorities(*names: str) -> PriorityConfig:
    return PriorityConfig({name: PriorityChildConfig(ROUND_ROBIN) for name in names}, names)


def at(path: str, name: str) -> Endpoint:
    return with_path(Endpoint((address(name),)), (path,))


def test_priority_describes_the_choice_and_the_failover_timer() -> None:
    world = DescribedPolicyWorld(PriorityFactory())
    world.update(priorities("p0", "p1"), at("p0", "a"), at("p1", "b"))
    world.helper.clock.advance(2.8)
    node = world.describe()
    assert node.detail == "uses priority 0, 'p0': failover timer is pending"
    p0, p1 = node.children
    assert (p0.policy, p0.in_use) == ("round_robin", True)
    assert p0.detail == "0 of 1 endpoints are READY; failover timer 7.2 s left"
    assert p1 == LbNode("p1", "round_robin", "", "not needed so far", in_use=False)


def test_priority_describes_a_child_whose_failover_timer_fired() -> None:
    world = DescribedPolicyWorld(PriorityFactory())
    world.update(priorities("p0", "p1"), at("p0", "a"), at("p1", "b"))
    world.become("a", State.CONNECTING)
    world.helper.clock.advance(10.0)
    world.become("b", State.CONNECTING, State.READY)
    p0, p1 = world.describe().children
    assert p0.state == "CONNECTING"
    assert "counts as TRANSIENT_FAILURE; child 'p0': failover timeout (10s) expired" in p0.detail
    assert (p0.in_use, p1.in_use) == (False, True)


def test_priority_describes_the_remaining_retention_time() -> None:
    world = DescribedPolicyWorld(PriorityFactory())
    world.update(priorities("p0"), at("p0", "a"))
    world.become("a", State.CONNECTING, State.READY)
    world.update(priorities("p1"), at("p1", "b"))
    world.helper.clock.advance(7.0)
    gone = world.describe().children[1]
    assert gone.name == "p0"
    assert gone.detail.endswith("not in the config any more; retained 893 s")
    assert not gone.in_use


def test_weighted_target_describes_weights() -> None:
    world = DescribedPolicyWorld(WeightedTargetFactory())
    targets = {"x": TargetConfig(3, ROUND_ROBIN), "y": TargetConfig(0, ROUND_ROBIN)}
    world.update(WeightedTargetConfig(targets), at("x", "a"), at("y", "b"))
    x, y = world.describe().children
    assert (x.detail, x.in_use) == ("0 of 1 endpoints are READY; weight 3", True)
    assert (y.detail, y.in_use) == ("0 of 1 endpoints are READY; weight 0", False)
    world.update(WeightedTargetConfig({}))
    assert world.describe().detail == NO_TARGETS


def test_graceful_switch_is_described_only_during_a_switch() -> None:
    helper = FakeHelper()
    switch = GracefulSwitchPolicy(helper)
    assert switch.describe() == LbNode()
    assert switch.describe_child("a") is None
    pick_first = PolicyConfig(PickFirstFactory(), PickFirstConfig())
    endpoints = (Endpoint((address("a"),)),)
    switch.update(Update(endpoints, pick_first))
    helper.connection("a").become(State.CONNECTING)
    assert switch.describe().policy == "pick_first"
    assert switch.describe_child(str(address("a"))) == switch.describe().children[0]
    assert switch.describe_child("unknown") is None
    switch.update(Update(endpoints, ROUND_ROBIN))
    node = switch.describe()
    assert node.policy == "graceful_switch"
    assert [(each.name, each.policy, each.in_use) for each in node.children] == [
        ("current", "pick_first", True),
        ("pending", "round_robin", False),
    ]
    switch.close()


# Every policy, in any history


CHILD: dict[str, Any] = {"childPolicy": [{"round_robin": {}}]}
CONFIGS: dict[str, dict[str, Any]] = {
    "pick_first": {},
    "round_robin": {},
    "random": {},
    "least_request_experimental": {},
    "proxyless.peak_ewma": {},
    "weighted_round_robin": {},
    "ring_hash_experimental": {"minRingSize": 4, "maxRingSize": 8},
    "random_subsetting_experimental": {"subsetSize": 2, **CHILD},
    "outlier_detection_experimental": {"successRateEjection": {}, **CHILD},
    "xds_cluster_impl_experimental": {"cluster": "unit-view", **CHILD},
    "xds_override_host_experimental": {"clusterName": "c", **CHILD},
    "xds_cluster_manager_experimental": {"children": {"a": CHILD}},
}


@pytest.mark.parametrize("kind", CONFIGS)
@given(data=st.data())
@settings(max_examples=20)
def test_policy_describes_the_state_that_it_reported(kind: str, data: st.DataObject) -> None:
    registry = Registries().policies
    factory = registry.find(kind)
    assert factory is not None
    errors = ValidationErrors()
    config = factory.parse_config(CONFIGS[kind], errors, registry)
    assert errors.ok
    world = DescribedPolicyWorld(factory)
    world.update(config, "a", "b")
    for _ in range(data.draw(st.integers(1, 20))):
        take_any_step(world, config, data)
        node = world.describe()
        assert "describe raised" not in node.detail
        report = world.helper.reports[-1]
        placed = as_child(node, state=report.state, failure=report.picker.status)
        assert placed.state == report.state.name
        assert bool(placed.problem) == (report.state is State.TRANSIENT_FAILURE)
    world.policy.close()


def take_any_step(world: DescribedPolicyWorld, config: object, data: st.DataObject) -> None:
    changes: list[tuple[Any, State]] = [
        (each, state)
        for each in world.helper.connections
        for state in State
        if each.handles and each.can_become(state)
    ]
    match data.draw(st.sampled_from(["change"] * 6 + ["update", "advance", "exit_idle"])):
        case "change" if changes:
            connection, state = data.draw(st.sampled_from(changes))
            connection.become(state)
        case "update":
            world.update(config, *data.draw(st.lists(st.sampled_from("abcd"), unique=True)))
        case "exit_idle":
            world.policy.exit_idle()
        case _:
            world.helper.clock.advance(1.0)
    world.helper.settle()
