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
from proxyless.lb.api import CallEnd, Complete, Subchannel
from proxyless.lb.forwarding import ForwardingHelper, ForwardingSubchannel, join_trackers
from proxyless.lb.orca import LoadReport
from proxyless.lb.pickers import QUEUE_PICKER
from proxyless.lb.policies.pick_first import PickFirst, PickFirstFactory
from tests.spec.lb_world import (
    ANY_RPC,
    CONNECTING,
    FAILURE,
    READY,
    FakeSubchannel,
    World,
    address,
)


class OkEnd:
    """The end of an attempt that went well."""

    @property
    def status(self) -> Status:
        return OK

    @property
    def trailing_metadata(self) -> Metadata:
        return EMPTY_METADATA


class Notes:
    """A tracker that notes what it hears."""

    def __init__(self, name: str, heard: list[str]) -> None:
        self._name = name
        self._heard = heard

    def on_start(self) -> None:
        self._heard.append(f"{self._name} start")

    def on_end(self, end: CallEnd) -> None:
        self._heard.append(f"{self._name} end {end.status}")


@pytest.fixture
def world() -> World:
    return World(PickFirstFactory())


@pytest.fixture
def inner(world: World) -> FakeSubchannel:
    return world.create_subchannel(address("a"), EMPTY_ATTRIBUTES)


def test_a_helper_passes_everything_on(world: World) -> None:
    helper = ForwardingHelper(world)
    assert helper.context is world.context
    assert helper.create_subchannel(address("a"), EMPTY_ATTRIBUTES) is world.live[-1]
    helper.update_state(CONNECTING, QUEUE_PICKER)
    world.expect_reports(CONNECTING)
    helper.request_reresolution()
    assert world.reresolutions == 1


def test_a_subchannel_passes_everything_on(world: World, inner: FakeSubchannel) -> None:
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
    inner.health(FAILURE, "bad")
    assert (states, healths) == ([State.IDLE, CONNECTING], [READY])
    outer.release()
    assert inner.is_released


def test_a_pick_of_the_outer_subchannel_is_passed_on_as_one_of_the_inner(
    inner: FakeSubchannel,
) -> None:
    outer = ForwardingSubchannel(inner)
    picked = Complete(outer)
    assert outer.pass_on(picked).subchannel is inner
    assert outer.pass_on(picked).tracker is None
    assert outer.pass_on(picked) is outer.pass_on(picked)


def test_the_authority_that_a_child_chose_is_passed_on(inner: FakeSubchannel) -> None:
    outer = ForwardingSubchannel(inner)
    assert outer.pass_on(Complete(outer)).authority == ""
    assert outer.pass_on(Complete(outer, authority="a.test")).authority == "a.test"


def test_trackers_of_all_levels_are_told_outside_first(inner: FakeSubchannel) -> None:
    heard: list[str] = []
    outer = ForwardingSubchannel(inner, Notes("outer", heard))
    picked = Complete(outer, Notes("child", heard))
    tracker = outer.pass_on(picked).tracker
    assert tracker is not None
    tracker.on_start()
    tracker.on_end(OkEnd())
    assert heard == ["outer start", "child start", "outer end OK", "child end OK"]


def test_another_result_for_the_same_subchannel_is_not_mixed_up(inner: FakeSubchannel) -> None:
    heard: list[str] = []
    outer = ForwardingSubchannel(inner)
    first, second = (Complete(outer, Notes(name, heard)) for name in "ab")
    assert outer.pass_on(first).tracker is first.tracker
    assert outer.pass_on(second).tracker is second.tracker


def test_joining_with_nothing_is_the_tracker_itself() -> None:
    tracker = Notes("only", [])
    assert join_trackers(None, None) is None
    assert join_trackers(tracker, None) is tracker
    assert join_trackers(None, tracker) is tracker


def test_a_policy_can_stand_between_a_child_and_its_subchannels(world: World) -> None:

    class Between(ForwardingHelper):
        __slots__ = ()

        def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
            return ForwardingSubchannel(world.create_subchannel(address, attributes))

    child = PickFirst(Between(world))
    world.policy = child
    world.update("a")
    world["a"].ready()
    result = world.picker.pick(ANY_RPC)
    assert isinstance(result, Complete)
    assert isinstance(result.subchannel, ForwardingSubchannel)
    assert result.subchannel.pass_on(result).subchannel is world["a"]
