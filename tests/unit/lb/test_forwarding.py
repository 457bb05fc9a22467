"""Unit tests of proxyless.lb.forwarding."""

import pytest

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    EMPTY_METADATA,
    OK,
    Address,
    Attributes,
    Metadata,
    State,
    Status,
)
from proxyless.lb.api import CallEnd, Complete, HeadTracker, Subchannel
from proxyless.lb.forwarding import ForwardingHelper, ForwardingSubchannel, join_trackers
from proxyless.lb.orca import LoadReport
from proxyless.lb.pickers import QUEUE_PICKER
from proxyless.lb.policies.pick_first import PickFirstFactory, PickFirstPolicy
from proxyless.testing import ANY_RPC
from tests.worlds.policies import (
    CONNECTING,
    FAILURE,
    READY,
    PolicyWorld,
    ScriptedSubchannel,
    address,
)


class OkEnd:
    """End of a successful attempt."""

    @property
    def status(self) -> Status:
        return OK

    @property
    def trailing_metadata(self) -> Metadata:
        return EMPTY_METADATA


class RecordingTracker:
    """Tracker that records its calls."""

    def __init__(self, name: str, events: list[str]) -> None:
        self._name = name
        self._events = events

    def on_start(self) -> None:
        self._events.append(f"{self._name} start")

    def on_end(self, end: CallEnd) -> None:
        self._events.append(f"{self._name} end {end.status}")


@pytest.fixture
def world() -> PolicyWorld:
    return PolicyWorld(PickFirstFactory())


@pytest.fixture
def inner(world: PolicyWorld) -> ScriptedSubchannel:
    return world.helper.create_subchannel(address("a"), EMPTY_ATTRIBUTES)


def test_helper_forwards_every_call(world: PolicyWorld) -> None:
    helper = ForwardingHelper(world.helper)
    assert helper.context is world.context
    assert helper.create_subchannel(address("a"), EMPTY_ATTRIBUTES) is world.subchannels[-1]
    helper.update_state(CONNECTING, QUEUE_PICKER)
    world.expect_reports(CONNECTING)
    helper.request_reresolution()
    assert world.reresolutions == 1


def test_subchannel_forwards_every_call(world: PolicyWorld, inner: ScriptedSubchannel) -> None:
    outer = ForwardingSubchannel(inner)
    assert outer.address == address("a")
    states: list[State] = []
    healths: list[State] = []
    loads: list[LoadReport] = []
    outer.watch(lambda state, error: states.append(state))
    cancel = outer.watch_health(lambda state, error: healths.append(state))
    stop_loads = outer.watch_load_reports(5, loads.append)
    inner.report_load(LoadReport(qps=1))
    stop_loads()
    assert (loads, inner.load_watches) == ([LoadReport(qps=1)], [])
    outer.request_connection()
    outer.reset_backoff()
    assert (len(world.take_requests()), inner.backoff_resets) == (1, 1)
    inner.connecting()
    cancel()
    inner.set_health(FAILURE, "bad")
    assert (states, healths) == ([State.IDLE, CONNECTING], [READY])
    outer.release()
    assert inner.is_released


def test_parent_result_has_the_inner_subchannel(
    inner: ScriptedSubchannel,
) -> None:
    outer = ForwardingSubchannel(inner)
    picked = Complete(outer)
    assert outer.to_parent_result(picked).subchannel is inner
    assert outer.to_parent_result(picked).tracker is None
    assert outer.to_parent_result(picked) is outer.to_parent_result(picked)


def test_parent_result_keeps_the_authority(inner: ScriptedSubchannel) -> None:
    outer = ForwardingSubchannel(inner)
    assert outer.to_parent_result(Complete(outer)).authority == ""
    assert outer.to_parent_result(Complete(outer, authority="a.test")).authority == "a.test"


def test_parent_result_calls_the_outer_tracker_first(inner: ScriptedSubchannel) -> None:
    events: list[str] = []
    outer = ForwardingSubchannel(inner, RecordingTracker("outer", events))
    picked = Complete(outer, RecordingTracker("child", events))
    tracker = outer.to_parent_result(picked).tracker
    assert tracker is not None
    tracker.on_start()
    tracker.on_end(OkEnd())
    assert events == ["outer start", "child start", "outer end OK", "child end OK"]


def test_parent_result_is_replaced_when_the_child_result_changes(inner: ScriptedSubchannel) -> None:
    events: list[str] = []
    outer = ForwardingSubchannel(inner)
    first, second = (Complete(outer, RecordingTracker(name, events)) for name in "ab")
    assert outer.to_parent_result(first).tracker is first.tracker
    assert outer.to_parent_result(second).tracker is second.tracker


def test_parent_result_is_forgotten_for_every_child_result_when_it_is_cleared(
    inner: ScriptedSubchannel,
) -> None:
    outer = ForwardingSubchannel(inner)
    first, second = Complete(outer), Complete(outer)
    made = outer.to_parent_result(first), outer.to_parent_result(second)
    assert (first.parent_result, second.parent_result) == (None, made[1])
    outer.clear_results()
    assert second.parent_result is None
    assert outer.to_parent_result(second) is not made[1]


class RecordingHeadTracker(HeadTracker, RecordingTracker):
    """Tracker that also records response headers."""

    def on_start(self) -> None:
        RecordingTracker.on_start(self)

    def on_head(self) -> None:
        self._events.append(f"{self._name} head")

    def on_end(self, end: CallEnd) -> None:
        RecordingTracker.on_end(self, end)


@pytest.mark.parametrize(
    ("first", "second", "heads"),
    [
        (RecordingHeadTracker, RecordingTracker, ["a head"]),
        (RecordingTracker, RecordingHeadTracker, ["b head"]),
        (RecordingHeadTracker, RecordingHeadTracker, ["a head", "b head"]),
    ],
)
def test_joined_trackers_are_called_with_headers_when_one_needs_them(
    first: type[RecordingTracker], second: type[RecordingTracker], heads: list[str]
) -> None:
    events: list[str] = []
    pair = join_trackers(first("a", events), second("b", events))
    assert isinstance(pair, HeadTracker)
    pair.on_start()
    pair.on_head()
    pair.on_end(OkEnd())
    assert events == ["a start", "b start", *heads, "a end OK", "b end OK"]


def test_joined_trackers_are_no_head_tracker_when_none_needs_headers() -> None:
    pair = join_trackers(RecordingTracker("a", []), RecordingTracker("b", []))
    assert not isinstance(pair, HeadTracker)


def test_join_trackers_returns_the_only_tracker() -> None:
    tracker = RecordingTracker("only", [])
    assert join_trackers(None, None) is None
    assert join_trackers(tracker, None) is tracker
    assert join_trackers(None, tracker) is tracker


def test_child_uses_wrapped_subchannels_of_a_forwarding_helper(world: PolicyWorld) -> None:

    class Between(ForwardingHelper):
        __slots__ = ()

        def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
            return ForwardingSubchannel(world.helper.create_subchannel(address, attributes))

    child = PickFirstPolicy(Between(world.helper))
    world.policy = child
    world.update("a")
    world["a"].ready()
    result = world.picker.pick(ANY_RPC)
    assert isinstance(result, Complete)
    assert isinstance(result.subchannel, ForwardingSubchannel)
    assert result.subchannel.to_parent_result(result).subchannel is world["a"]
