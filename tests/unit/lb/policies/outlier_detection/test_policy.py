"""Unit tests of proxyless.lb.policies.outlier_detection.policy."""

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxyless.base import EMPTY_METADATA, Event, Metadata, Status, StatusCode
from proxyless.lb import QUEUE_PICKER, Complete, FailPicker
from proxyless.lb.policies.outlier_detection import OutlierDetectionFactory
from proxyless.lb.policies.outlier_detection.policy import CountingPicker, OutlierDetectionPolicy
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.lb.view import ready_addresses
from tests.spec.lb_world import (
    ANY_RPC,
    CHANGE,
    CHANGES,
    READY,
    Name,
    World,
    address,
    unavailable,
)

ON = {
    "failurePercentageEjection": {"threshold": 50, "minimumHosts": 1, "requestVolume": 3},
    "successRateEjection": {"stdevFactor": 500, "minimumHosts": 2, "requestVolume": 3},
    "maxEjectionPercent": 60,
}


class End:
    """How an attempt ended."""

    trailing_metadata: Metadata = EMPTY_METADATA

    def __init__(self, code: StatusCode) -> None:
        self.status = Status(code)


def test_a_picker_tells_why_its_child_fails() -> None:
    assert CountingPicker(FailPicker(unavailable("why"))).status == unavailable("why")
    assert CountingPicker(QUEUE_PICKER).status.is_ok


def test_pickers_have_no_dictionary() -> None:
    assert not hasattr(CountingPicker(QUEUE_PICKER), "__dict__")


class AnyHistory(RuleBasedStateMachine):
    """Lists, connections, RPCs, time and configs in any order; what must hold after each."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(OutlierDetectionFactory(), others=(RoundRobinFactory(),))
        self.listed: set[Name] = set()
        self.is_on = True
        # By what the trace says.
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
        # Whatever is connected stays connected when subchannels are made anew.
        for each in self.world.live:
            self.world.share(self.world.name(each.address), each.state)
        self.is_on = is_on
        self.listed = set(names[:size])
        config = {"childPolicy": [{"round_robin": {}}], **(ON if is_on else {})}
        self.world.update(*names[:size], config=config)
        self.world.settle()
        self.world.shared.clear()

    @precondition(lambda self: self.world.live)
    @rule(data=st.data())
    def change_subchannel(self, data: st.DataObject) -> None:
        subchannel = data.draw(st.sampled_from(self.world.live), "subchannel")
        state = data.draw(st.sampled_from(CHANGES[subchannel.state]), "state")
        CHANGE[state](subchannel)
        self.world.settle()

    @rule()
    def connect_all(self) -> None:
        for subchannel in self.world.live:
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
        """Endpoints that are not listed and take RPCs."""
        return set(self.world.live_names) - self.listed

    @invariant()
    def rpcs_go_to_whoever_is_connected_and_not_ejected(self) -> None:
        world = self.world
        assert set(world.live_names) >= self.listed
        usable = {
            name
            for name in self.listed
            if world[name].state is READY and str(address(name)) not in self.ejected
        }
        picked = set(world.picks(2 * len(world.live))) if world.state is READY else set()
        # Removed endpoints take RPCs only as long as no listed one can.
        assert not self.retained or not usable
        assert picked == usable | self.retained

    @invariant()
    def only_some_are_ejected(self) -> None:
        assert self.ejected <= {str(address(name)) for name in self.listed}
        assert self.is_on or not self.ejected

    @invariant()
    def there_is_a_timer_while_there_is_something_to_decide(self) -> None:
        assert self.world.clock.timers_pending == self.is_on + bool(self.retained)

    def teardown(self) -> None:
        self.world.policy.close()
        self.world.expect_closed()


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=40, stateful_step_count=40)


def test_it_shows_who_is_ejected_and_since_when() -> None:
    world = World(OutlierDetectionFactory(), others=(RoundRobinFactory(),))
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


def test_with_no_rules_it_says_that_it_is_off() -> None:
    world = World(OutlierDetectionFactory(), others=(RoundRobinFactory(),))
    world.update("a", config={"childPolicy": [{"round_robin": {}}]})
    assert isinstance(world.policy, OutlierDetectionPolicy)
    assert world.policy.describe().detail == "off"
