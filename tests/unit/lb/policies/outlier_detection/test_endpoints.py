"""Unit tests of proxyless.lb.policies.outlier_detection.endpoints."""

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, EMPTY_METADATA, Metadata, State, Status, StatusCode
from proxyless.lb.policies.outlier_detection.endpoints import (
    NEVER_EJECTED,
    CountedEndpoint,
    EjectionState,
    EndpointIndex,
    EndpointView,
    OutlierSubchannel,
)
from proxyless.lb.policies.pick_first import PickFirstFactory
from tests.worlds.policies import (
    CONNECTING,
    FAILURE,
    READY,
    PolicyWorld,
    ScriptedSubchannel,
    address,
    endpoint,
)

EJECTED = EjectionState(1.0, 1)


class End:
    """End of an attempt."""

    trailing_metadata: Metadata = EMPTY_METADATA

    def __init__(self, code: StatusCode = StatusCode.OK) -> None:
        self.status = Status(code)


class Watch:
    """Health watch that records its notifications."""

    def __init__(self, subchannel: OutlierSubchannel) -> None:
        self.states: list[State] = []
        self.cancels_when_ejected: Watch | None = None
        self.cancel = subchannel.watch_health(self._on_health)

    def _on_health(self, state: State, status: Status) -> None:
        self.states.append(state)
        if self.cancels_when_ejected is not None and state is FAILURE:
            self.cancels_when_ejected.cancel()


@pytest.fixture
def index() -> EndpointIndex:
    index = EndpointIndex()
    index.replace_endpoints([endpoint(("a", "a6")), endpoint("b")])
    return index


def add(index: EndpointIndex, name: str) -> tuple[OutlierSubchannel, ScriptedSubchannel]:
    world = PolicyWorld(PickFirstFactory())
    inner = world.helper.create_subchannel(address(name), EMPTY_ATTRIBUTES)
    return index.add_subchannel(inner, address(name)), inner


def find(index: EndpointIndex, name: str) -> CountedEndpoint:
    [found] = [each for each in index.endpoints if address(name) in each.addresses]
    return found


def eject(index: EndpointIndex, name: str, ejection: EjectionState = EJECTED) -> None:
    one = find(index, name)
    one.ejection = ejection
    for subchannel in index.subchannels_of(one):
        subchannel.update_health()


def test_take_counts_resets_the_counters(index: EndpointIndex) -> None:
    one, _ = add(index, "a")
    other, _ = add(index, "a6")
    one.counter.on_start()
    one.counter.on_end(End())
    other.counter.on_end(End(StatusCode.CANCELLED))
    other.counter.on_end(End(StatusCode.INTERNAL))
    assert find(index, "a").take_counts() == EndpointView(1, 2)
    assert find(index, "a").take_counts() == EndpointView(0, 0)


def test_attempt_counts_for_the_endpoint_at_its_end(
    index: EndpointIndex,
) -> None:
    subchannel, _ = add(index, "a")
    before = find(index, "a")
    subchannel.counter.on_start()
    index.replace_endpoints([endpoint("a")])
    subchannel.counter.on_end(End())
    assert before.take_counts() == EndpointView(0, 0)
    assert find(index, "a").take_counts() == EndpointView(1, 0)


def test_attempt_is_not_counted_when_its_address_is_not_listed(index: EndpointIndex) -> None:
    subchannel, _ = add(index, "a")
    index.replace_endpoints([])
    subchannel.counter.on_end(End())
    index.replace_endpoints([endpoint(("a", "a6"))])
    assert find(index, "a").take_counts() == EndpointView(0, 0)


def test_replace_endpoints_returns_the_removed_ones(index: EndpointIndex) -> None:
    left = find(index, "a")
    assert index.replace_endpoints([endpoint("b"), endpoint("b"), endpoint("c")]) == [left]
    assert [str(each) for each in index.endpoints] == [str(address("b")), str(address("c"))]


def test_subchannel_belongs_to_the_first_endpoint_with_its_address(index: EndpointIndex) -> None:
    index.replace_endpoints([endpoint("b"), endpoint(("a", "b"))])
    subchannel, _ = add(index, "b")
    assert subchannel.counter.endpoint is next(iter(index.endpoints))
    whole = find(index, "a")
    assert list(index.subchannels_of(whole)) == []


def test_ejection_notifies_every_watch_of_every_address(index: EndpointIndex) -> None:
    one, _ = add(index, "a")
    other, _ = add(index, "a6")
    watches = [Watch(one), Watch(one), Watch(other)]
    eject(index, "a")
    assert [watch.states for watch in watches] == [[READY, FAILURE]] * 3
    eject(index, "a", NEVER_EJECTED)
    assert [watch.states for watch in watches] == [[READY, FAILURE, READY]] * 3


def test_cancelled_watch_is_not_notified(index: EndpointIndex) -> None:
    subchannel, inner = add(index, "a")
    watch = Watch(subchannel)
    watch.cancel()
    eject(index, "a")
    inner.set_health(CONNECTING)
    assert watch.states == [READY]


def test_watch_is_not_notified_when_another_listener_cancels_it(index: EndpointIndex) -> None:
    subchannel, _ = add(index, "a")
    first, second = Watch(subchannel), Watch(subchannel)
    first.cancels_when_ejected = second
    eject(index, "a")
    assert second.states == [READY]


def test_released_subchannel_is_removed_and_not_notified(index: EndpointIndex) -> None:
    subchannel, inner = add(index, "a")
    watch = Watch(subchannel)
    subchannel.release()
    assert inner.is_released
    assert index.is_empty
    assert index.subchannels == []
    subchannel.update_health()
    assert watch.states == [READY]


def test_update_health_does_not_notify_twice(index: EndpointIndex) -> None:
    subchannel, _ = add(index, "b")
    watch = Watch(subchannel)
    for ejection in (NEVER_EJECTED, EJECTED, EJECTED, EjectionState(2.0, 2), NEVER_EJECTED):
        eject(index, "b", ejection)
    assert watch.states == [READY, FAILURE, READY]
