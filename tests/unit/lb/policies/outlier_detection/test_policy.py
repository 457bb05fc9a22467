"""Unit tests of proxyless.lb.policies.outlier_detection.policy."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxyless.base import EMPTY_ATTRIBUTES, EMPTY_METADATA, Event, Metadata, Status, StatusCode
from proxyless.lb import QUEUE_PICKER, Complete, FailPicker
from proxyless.lb.attributes import BACKEND_SERVICE
from proxyless.lb.description import ready_addresses
from proxyless.lb.forwarding import ForwardingSubchannel
from proxyless.lb.pickers import SubchannelPicker
from proxyless.lb.policies.outlier_detection import OutlierDetectionFactory
from proxyless.lb.policies.outlier_detection.policy import (
    OutlierDetectionPicker,
    OutlierDetectionPolicy,
)
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.metrics.instruments import EJECTIONS_ENFORCED, EJECTIONS_UNENFORCED
from proxyless.testing import ANY_RPC
from proxyless.testing.fakes import CHANGES
from tests.worlds.policies import READY, Name, PolicyWorld, address, unavailable
from tests.worlds.stats_plugins import TARGET, RecordingPlugin

ON = {
    "failurePercentageEjection": {"threshold": 50, "minimumHosts": 1, "requestVolume": 3},
    "successRateEjection": {"stdevFactor": 500, "minimumHosts": 2, "requestVolume": 3},
    "maxEjectionPercent": 60,
}


class End:
    """End of an attempt."""

    trailing_metadata: Metadata = EMPTY_METADATA

    def __init__(self, code: StatusCode) -> None:
        self.status = Status(code)


def test_picker_has_the_status_of_its_child() -> None:
    assert OutlierDetectionPicker(FailPicker(unavailable("why"))).status == unavailable("why")
    assert OutlierDetectionPicker(QUEUE_PICKER).status.is_ok


def test_pick_of_a_subchannel_that_is_not_wrapped_is_returned_unchanged() -> None:
    """Even after the policy above, which has wrapped it, has cached its own result."""
    inner = PolicyWorld(OutlierDetectionFactory()).helper.create_subchannel(
        address("a"), EMPTY_ATTRIBUTES
    )
    result = Complete(ForwardingSubchannel(inner))
    result.subchannel.to_parent_result(result)  # type: ignore[attr-defined]
    assert OutlierDetectionPicker(SubchannelPicker(result)).pick(ANY_RPC) is result


def test_picker_has_no_dict() -> None:
    assert not hasattr(OutlierDetectionPicker(QUEUE_PICKER), "__dict__")


class AnyHistory(RuleBasedStateMachine):
    """Random updates, state changes, RPCs and delays, with invariants that hold after each."""

    def __init__(self) -> None:
        super().__init__()
        self.world = PolicyWorld(OutlierDetectionFactory(), others=(RoundRobinFactory(),))
        self.listed: set[Name] = set()
        self.is_on = True
        # From the trace.
        self.ejected: set[str] = set()
        self.world.trace.subscribe(self._on_event)

    def _on_event(self, event: Event) -> None:
        if event.name == "outlier_detection.ejected":
            assert str(event.fields["endpoint"]) not in self.ejected, "ejected twice"
            self.ejected.add(str(event.fields["endpoint"]))
        elif event.name == "outlier_detection.unejected":
            self.ejected.remove(str(event.fields["endpoint"]))

    @initialize(names=st.permutations("abcde"), size=st.integers(1, 5))
    def first_update(self, names: list[Name], size: int) -> None:
        self.update(names, size, is_on=True)

    @rule(
        names=st.permutations("abcde"),
        size=st.integers(1, 5),
        is_on=st.sampled_from([True, True, True, False]),
    )
    def update(self, names: list[Name], size: int, is_on: bool) -> None:
        # Connections stay open when subchannels are created again.
        for each in self.world.subchannels:
            self.world.share(self.world.name(each.address), each.state)
        self.is_on = is_on
        self.listed = set(names[:size])
        config = {"childPolicy": [{"round_robin": {}}], **(ON if is_on else {})}
        self.world.update(*names[:size], config=config)
        self.world.settle()
        self.world.helper.initial_states.clear()

    @precondition(lambda self: self.world.subchannels)
    @rule(data=st.data())
    def change_subchannel(self, data: st.DataObject) -> None:
        subchannel = data.draw(st.sampled_from(self.world.subchannels), "subchannel")
        state = data.draw(st.sampled_from(CHANGES[subchannel.state]), "state")
        subchannel.become(state)
        self.world.settle()

    @rule()
    def connect_all(self) -> None:
        for subchannel in self.world.subchannels:
            if subchannel.state is not READY:
                subchannel.ready()
        self.world.settle()

    @rule(code=st.sampled_from([StatusCode.OK, StatusCode.INTERNAL]), count=st.integers(1, 20))
    def run_rpcs(self, code: StatusCode, count: int) -> None:
        picked = self.world.picker.pick(ANY_RPC)
        if isinstance(picked, Complete) and picked.tracker is not None:
            for _ in range(count):
                picked.tracker.on_start()
                picked.tracker.on_end(End(code))

    @rule(seconds=st.sampled_from([0, 1, 10, 30, 100]))
    def advance(self, seconds: int) -> None:
        self.world.advance(seconds)

    @property
    def retained(self) -> set[Name]:
        """Endpoints that take RPCs though they are not listed."""
        return set(self.world.subchannel_names) - self.listed

    @invariant()
    def picks_use_connected_endpoints_that_are_not_ejected(self) -> None:
        world = self.world
        assert set(world.subchannel_names) >= self.listed
        usable = {
            name
            for name in self.listed
            if world[name].state is READY and str(address(name)) not in self.ejected
        }
        picked = set(world.picks(2 * len(world.subchannels))) if world.state is READY else set()
        # Removed endpoints take RPCs only as long as no listed one can.
        assert not self.retained or not usable
        assert picked == usable | self.retained

    @invariant()
    def only_listed_endpoints_are_ejected(self) -> None:
        assert self.ejected <= {str(address(name)) for name in self.listed}
        assert self.is_on or not self.ejected

    @invariant()
    def timer_is_pending_while_rules_are_configured(self) -> None:
        assert self.world.clock.timers_pending == self.is_on + bool(self.retained)

    def teardown(self) -> None:
        self.world.policy.close()
        self.world.expect_closed()


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=40, stateful_step_count=40)


def test_description_contains_ejected_endpoints_and_times() -> None:
    world = PolicyWorld(OutlierDetectionFactory(), others=(RoundRobinFactory(),))
    child: list[dict[str, Any]] = [{"round_robin": {}}]
    rules = {"failurePercentageEjection": {"threshold": 50, "minimumHosts": 1, "requestVolume": 1}}
    world.update("a", "b", config={**rules, "maxEjectionPercent": 100, "childPolicy": child})
    for name in "ab":
        world[name].connecting()
        world[name].ready()
    policy = world.policy
    assert isinstance(policy, OutlierDetectionPolicy)
    assert policy.describe().detail == "0 of 2 endpoints ejected; sweep in 10 s"
    for _ in range(2):
        picked = world.picker.pick(ANY_RPC)
        assert isinstance(picked, Complete)
        assert picked.tracker is not None
        is_bad = picked.subchannel.address == address("a")
        picked.tracker.on_end(End(StatusCode.UNAVAILABLE if is_bad else StatusCode.OK))
    world.advance(10.0)
    world.advance(2.0)
    node = policy.describe()
    assert node.detail == "1 of 2 endpoints ejected; sweep in 8 s"
    ejected = {child.name: child for child in node.children[0].children}[str(address("a"))]
    assert ejected.state == "TRANSIENT_FAILURE"
    assert ejected.children[0].detail == "ejected 2 s"
    assert ready_addresses(replace(node, policy="it")) == [str(address("b"))]


def test_description_is_off_without_rules() -> None:
    world = PolicyWorld(OutlierDetectionFactory(), others=(RoundRobinFactory(),))
    world.update("a", config={"childPolicy": [{"round_robin": {}}]})
    assert isinstance(world.policy, OutlierDetectionPolicy)
    assert world.policy.describe().detail == "off"


@pytest.mark.spec("A91-01", "A91-02", "A91-03")
def test_outliers_are_counted_by_method_and_reason() -> None:
    plugin = RecordingPlugin()
    world = PolicyWorld(OutlierDetectionFactory(), others=(RoundRobinFactory(),))
    world.helper.context = replace(world.context, metrics=plugin.metrics)
    child: list[dict[str, Any]] = [{"round_robin": {}}]
    rules = {"failurePercentageEjection": {"threshold": 50, "minimumHosts": 1, "requestVolume": 1}}
    service = EMPTY_ATTRIBUTES.with_(BACKEND_SERVICE, "orders")
    config = {**rules, "maxEjectionPercent": 10, "childPolicy": child}
    world.update("a", "b", config=config, attributes=service)
    for name in "ab":
        world[name].connecting()
        world[name].ready()
    for _ in range(2):
        picked = world.picker.pick(ANY_RPC)
        assert isinstance(picked, Complete)
        assert picked.tracker is not None
        picked.tracker.on_end(End(StatusCode.UNAVAILABLE))
    world.advance(10.0)
    method = "failure_percentage"
    assert plugin.counts(EJECTIONS_ENFORCED) == {(TARGET, method, "orders"): 1}
    overflow = (TARGET, method, "max_ejection_overflow", "orders")
    assert plugin.counts(EJECTIONS_UNENFORCED) == {overflow: 1}
