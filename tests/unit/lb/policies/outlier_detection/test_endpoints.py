"""Unit tests of proxyless.lb.policies.outlier_detection.endpoints."""

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, EMPTY_METADATA, Metadata, State, Status, StatusCode
from proxyless.lb.policies.outlier_detection.algorithms import (
    NEVER_EJECTED,
    EndpointView,
    Standing,
)
from proxyless.lb.policies.outlier_detection.endpoints import (
    CountedEndpoint,
    OutlierSubchannel,
    Roster,
)
from proxyless.lb.policies.pick_first import PickFirstFactory
from tests.spec.lb_world import CONNECTING, FAILURE, READY, FakeSubchannel, World, address, endpoint

EJECTED = Standing(1.0, 1)


class End:
    """How an attempt ended."""

    trailing_metadata: Metadata = EMPTY_METADATA

    def __init__(self, code: StatusCode = StatusCode.OK) -> None:
        self.status = Status(code)


class Watch:
    """One health watch, and what it is told."""

    def __init__(self, subchannel: OutlierSubchannel) -> None:
        self.told: list[State] = []
        self.cancels_when_ejected: Watch | None = None
        self.cancel = subchannel.watch_health(self._on_health)

    def _on_health(self, state: State, status: Status) -> None:
        self.told.append(state)
        if self.cancels_when_ejected is not None and state is FAILURE:
            self.cancels_when_ejected.cancel()


@pytest.fixture
def roster() -> Roster:
    roster = Roster()
    roster.replace_endpoints([endpoint(("a", "a6")), endpoint("b")])
    return roster


def add(roster: Roster, name: str) -> tuple[OutlierSubchannel, FakeSubchannel]:
    world = World(PickFirstFactory())
    inner = world.create_subchannel(address(name), EMPTY_ATTRIBUTES)
    return roster.add_subchannel(inner, address(name)), inner


def find(roster: Roster, name: str) -> CountedEndpoint:
    [found] = [each for each in roster.endpoints if address(name) in each.addresses]
    return found


def eject(roster: Roster, name: str, standing: Standing = EJECTED) -> None:
    one = find(roster, name)
    one.standing = standing
    for subchannel in roster.subchannels_of(one):
        subchannel.follow()


def test_a_view_takes_the_counts_along(roster: Roster) -> None:
    one, _ = add(roster, "a")
    other, _ = add(roster, "a6")
    one.counter.on_start()
    one.counter.on_end(End())
    other.counter.on_end(End(StatusCode.CANCELLED))
    other.counter.on_end(End(StatusCode.INTERNAL))
    assert find(roster, "a").take_view() == EndpointView(1, 2)
    assert find(roster, "a").take_view() == EndpointView(0, 0)


def test_an_attempt_counts_for_the_endpoint_that_is_right_when_it_ends(roster: Roster) -> None:
    subchannel, _ = add(roster, "a")
    before = find(roster, "a")
    subchannel.counter.on_start()
    roster.replace_endpoints([endpoint("a")])
    subchannel.counter.on_end(End())
    assert before.take_view() == EndpointView(0, 0)
    assert find(roster, "a").take_view() == EndpointView(1, 0)


def test_what_is_not_listed_is_not_counted(roster: Roster) -> None:
    subchannel, _ = add(roster, "a")
    roster.replace_endpoints([])
    subchannel.counter.on_end(End())
    roster.replace_endpoints([endpoint(("a", "a6"))])
    assert find(roster, "a").take_view() == EndpointView(0, 0)


def test_those_that_leave_are_returned(roster: Roster) -> None:
    left = find(roster, "a")
    assert roster.replace_endpoints([endpoint("b"), endpoint("b"), endpoint("c")]) == [left]
    assert [str(each) for each in roster.endpoints] == [str(address("b")), str(address("c"))]


def test_an_address_that_two_endpoints_list_is_the_first_one_s(roster: Roster) -> None:
    roster.replace_endpoints([endpoint("b"), endpoint(("a", "b"))])
    subchannel, _ = add(roster, "b")
    assert subchannel.counter.endpoint is next(iter(roster.endpoints))
    whole = find(roster, "a")
    assert list(roster.subchannels_of(whole)) == []


def test_an_ejection_is_told_to_every_watch_of_every_address(roster: Roster) -> None:
    one, _ = add(roster, "a")
    other, _ = add(roster, "a6")
    watches = [Watch(one), Watch(one), Watch(other)]
    eject(roster, "a")
    assert [watch.told for watch in watches] == [[READY, FAILURE]] * 3
    eject(roster, "a", NEVER_EJECTED)
    assert [watch.told for watch in watches] == [[READY, FAILURE, READY]] * 3


def test_a_watch_that_was_cancelled_is_told_nothing(roster: Roster) -> None:
    subchannel, inner = add(roster, "a")
    watch = Watch(subchannel)
    watch.cancel()
    eject(roster, "a")
    inner.health(CONNECTING)
    assert watch.told == [READY]


def test_a_watch_that_another_one_cancels_is_told_nothing(roster: Roster) -> None:
    subchannel, _ = add(roster, "a")
    first, second = Watch(subchannel), Watch(subchannel)
    first.cancels_when_ejected = second
    eject(roster, "a")
    assert second.told == [READY]


def test_a_subchannel_that_is_released_is_gone(roster: Roster) -> None:
    subchannel, inner = add(roster, "a")
    watch = Watch(subchannel)
    subchannel.release()
    assert inner.is_released
    assert roster.is_empty
    assert roster.subchannels == []
    subchannel.follow()
    assert watch.told == [READY]


def test_following_twice_tells_nothing_twice(roster: Roster) -> None:
    subchannel, _ = add(roster, "b")
    watch = Watch(subchannel)
    for standing in (NEVER_EJECTED, EJECTED, EJECTED, Standing(2.0, 2), NEVER_EJECTED):
        eject(roster, "b", standing)
    assert watch.told == [READY, FAILURE, READY]
