"""Unit tests of proxyless.lb.policies.per_endpoint.endpoint_list."""

from collections import Counter
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import EMPTY_ATTRIBUTES, OK, Address, Endpoint, Key, State, Status
from proxyless.lb.api import Complete, Helper, Picker, Policy, Update
from proxyless.lb.attributes import HEALTH_WATCH
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker, SubchannelPicker
from proxyless.lb.policies.per_endpoint import EndpointChild, EndpointList
from proxyless.lb.policies.per_endpoint.endpoint_list import FEW_READY, FIRST_UNITS, START_UNITS
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.pick_first.config import CONNECTION_ATTEMPT_DELAY
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.runtime.work_queue import UNITS_PER_TURN
from tests.worlds.policies import (
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    PolicyWorld,
    SlicedWorld,
    address,
    endpoint,
    unavailable,
)

WEIGHT = Key[int]("weight")


class StubPolicy:
    """Policy that records its calls."""

    def __init__(self, helper: Helper) -> None:
        self.helper = helper
        self.updates: list[Update] = []
        self.calls: Counter[str] = Counter()

    def update(self, update: Update) -> Status:
        self.updates.append(update)
        return OK

    def exit_idle(self) -> None:
        self.calls["exit_idle"] += 1

    def reset_backoff(self) -> None:
        self.calls["reset_backoff"] += 1

    def close(self) -> None:
        self.calls["close"] += 1

    def report(self, state: State) -> None:
        picker: Picker = QUEUE_PICKER
        if state is READY:
            picker = SubchannelPicker(
                Complete(self.helper.create_subchannel(address("z"), EMPTY_ATTRIBUTES))
            )
        elif state is FAILURE:
            picker = FailPicker(unavailable("stub"))
        self.helper.update_state(state, picker)


class StubChild(EndpointChild):
    """Child with a stub policy."""

    __slots__ = ("stub",)

    def create_policy(self) -> Policy:
        self.stub = StubPolicy(self)
        return self.stub


class LazyChild(StubChild):
    """Child that creates its policy when it is connected."""

    is_lazy = True
    __slots__ = ()


class Children:
    """List under test, and its reports."""

    def __init__(self, child_type: type[StubChild] = StubChild) -> None:
        self.world = PolicyWorld(PickFirstFactory())
        self.reports: list[tuple[StubChild, State]] = []
        self.list = EndpointList(self.world.helper, child_type, self._on_report)

    def _on_report(self, child: StubChild, before: State) -> None:
        self.reports.append((child, before))

    def update(self, *endpoints: str | tuple[str, ...] | Endpoint) -> None:
        self.list.update(tuple(map(endpoint, endpoints)), EMPTY_ATTRIBUTES)

    def __getitem__(self, name: str) -> StubChild:
        [found] = [each for each in self.list.children if address(name) in each.endpoint.key]
        return found

    @property
    def updates_sent(self) -> int:
        return sum(len(child.stub.updates) for child in self.list.children)


@pytest.fixture
def children() -> Children:
    return Children()


@pytest.fixture
def lazy() -> Children:
    return Children(LazyChild)


def heavy(name: str) -> Endpoint:
    return endpoint(name, EMPTY_ATTRIBUTES.with_(WEIGHT, 9))


def test_child_update_has_its_endpoint_and_the_health_watch(children: Children) -> None:
    children.update(("a", "b"))
    [update] = children["a"].stub.updates
    assert update.endpoints == (endpoint(("a", "b")),)
    assert update.attributes.get(HEALTH_WATCH) is True


def test_update_reaches_only_changed_children(children: Children) -> None:
    names = [str(number) for number in range(100)]
    children.update(*names)
    assert children.updates_sent == 100
    kept = children["7"]
    children.update(*names)
    children.update(*reversed(names))
    children.update(*names[:50], "a", *names[51:])
    assert children.updates_sent == 100
    assert children["7"] is kept
    children.update(*names[:50], heavy("a"), *names[51:])
    assert [len(child.stub.updates) for child in children.list.children].count(2) == 1
    assert children["a"].stub.updates[1].endpoints == (heavy("a"),)


def test_changed_update_attributes_reach_all_children(children: Children) -> None:
    children.update("a", "b")
    attributes = EMPTY_ATTRIBUTES.with_(CONNECTION_ATTEMPT_DELAY, 1.0)
    children.list.update((endpoint("a"), endpoint("c")), attributes)
    for name in ("a", "c"):
        sent = children[name].stub.updates[-1].attributes
        assert sent.get(CONNECTION_ATTEMPT_DELAY) == 1.0


def test_attributes_that_children_do_not_read_cause_no_update(children: Children) -> None:
    children.update("a", "b")
    before = len(children["a"].stub.updates)
    children.list.update((endpoint("a"), endpoint("b")), EMPTY_ATTRIBUTES.with_(WEIGHT, 1))
    assert len(children["a"].stub.updates) == before


def test_new_child_is_created_before_an_old_one_is_closed(children: Children) -> None:
    children.update("a")
    old = children["a"].stub
    order: list[str] = []
    old.close = lambda: order.append("closed")  # type: ignore[method-assign]

    class Noted(StubChild):
        __slots__ = ()

        def create_policy(self) -> Policy:
            order.append("created")
            return super().create_policy()

    children.list._child_type = Noted
    children.update(("a", "b"))
    assert order == ["created", "closed"]


def test_reports_of_a_closed_child_are_ignored(children: Children) -> None:
    children.update("a", "b")
    removed = children["a"]
    removed.stub.report(READY)
    children["b"].stub.report(READY)
    children.update("b")
    assert removed.stub.calls["close"] == 1
    assert list(children.list.ready) == [children["b"]]
    removed.stub.report(READY)
    removed.stub.report(IDLE)
    children.list.connect_soon(removed)
    children.world.settle()
    assert list(children.list.ready) == [children["b"]]
    assert removed.stub.calls["exit_idle"] == 0
    assert len(children.reports) == 2


def test_retained_child_is_closed_after_its_report_when_it_is_no_longer_ready(
    children: Children,
) -> None:
    children.update("a")
    removed = children["a"]
    removed.stub.report(READY)
    children.update("b")
    assert list(children.list.retained) == list(children.list.ready) == [removed]
    removed.stub.report(IDLE)
    assert children.reports[-1] == (removed, READY)
    assert not children.list.ready
    assert removed.stub.calls["close"] == 0  # It is not called inside its report.
    children.world.settle()
    assert removed.stub.calls == {"close": 1}
    assert children.world.clock.timers_pending == 0


def test_retained_child_is_updated_when_it_is_listed_again(children: Children) -> None:
    children.update("a")
    removed = children["a"]
    removed.stub.report(READY)
    children.update("b")
    assert len(removed.stub.updates) == 1
    children.update(heavy("a"), "b")
    assert children["a"] is removed
    assert removed.stub.updates[-1].endpoints == (heavy("a"),)
    assert not children.list.retained
    assert children.list.counts[READY] == 1


def test_retained_children_are_closed_after_new_ones_start_when_one_is_ready_at_once(
    children: Children,
) -> None:
    children.update("a")
    removed = children["a"].stub
    removed.report(READY)
    children.update("b")

    class ReadyChild(StubChild):
        __slots__ = ()

        def create_policy(self) -> Policy:
            assert removed.calls["close"] == 0  # A connection may be shared.
            policy = super().create_policy()
            self.stub.report(READY)
            return policy

    children.list._child_type = ReadyChild
    children.update("c", "d")
    assert removed.calls["close"] == 1
    assert set(children.list.ready) == {children["c"], children["d"]}


def test_lazy_children_are_never_retained(lazy: Children) -> None:
    lazy.update("a")
    lazy.list.connect(lazy["a"])
    removed = lazy["a"].stub
    removed.report(READY)
    lazy.update("b")
    assert removed.calls["close"] == 1
    assert not lazy.list.ready


def test_list_tracks_counts_and_ready_children(children: Children) -> None:
    children.update("a", "b", "c")
    assert children.list.counts[CONNECTING] == 3
    version = children.list.ready_version
    children["a"].stub.report(READY)
    children["b"].stub.report(FAILURE)
    assert [children.list.counts[state] for state in (READY, FAILURE, CONNECTING)] == [1, 1, 1]
    assert list(children.list.ready) == [children["a"]]
    assert children.list.ready_version > version
    version = children.list.ready_version
    children["b"].stub.report(FAILURE)
    assert children.list.ready_version == version
    children["a"].stub.report(READY)
    assert children.list.ready_version > version  # It has a new picker.
    version = children.list.ready_version
    children["a"].stub.report(CONNECTING)
    assert children.list.ready_version > version
    assert not children.list.ready


def test_failing_child_keeps_its_state_and_picker_when_it_reconnects(children: Children) -> None:
    children.update("a")
    children["a"].stub.report(FAILURE)
    children["a"].stub.report(CONNECTING)
    children["a"].stub.report(IDLE)
    assert children["a"].state is FAILURE
    assert not children["a"].picker.status.is_ok
    assert len(children.reports) == 1
    children.world.settle()
    assert children["a"].stub.calls["exit_idle"] == 1  # It must not stay IDLE.


def test_idle_child_is_connected_after_its_report(children: Children) -> None:
    children.update("a", "b")
    for name in ("a", "b", "a"):
        children[name].stub.report(IDLE)
    assert children["a"].stub.calls["exit_idle"] == 0
    assert children.world.clock.timers_pending == 1
    children.world.settle()
    assert [children[name].stub.calls["exit_idle"] for name in "ab"] == [1, 1]


def test_child_is_kept_when_the_number_of_duplicates_changes(children: Children) -> None:
    children.update("a")
    child = children["a"]
    for names in ("aa", "aba", "aab", "a", "aaa", "ba"):
        children.update(*names)
        assert children["a"] is child
        assert len(children.list.children) == len(set(names))
    children.update("b")
    assert child.stub.calls["close"] == 1


def test_connect_soon_does_nothing_after_close(children: Children) -> None:
    children.update("a")
    child = children["a"]
    child.stub.report(IDLE)
    children.list.close()
    children.list.connect_soon(child)
    assert children.world.clock.timers_pending == 0


def test_scheduled_connection_is_dropped_when_the_child_is_removed(children: Children) -> None:
    children.update("a", "b")
    removed, kept = children["a"].stub, children["b"].stub
    removed.report(IDLE)
    kept.report(IDLE)
    children.update("b")
    children.world.settle()
    assert (removed.calls["exit_idle"], kept.calls["exit_idle"]) == (0, 1)


def test_lazy_child_has_no_policy_until_it_is_connected(lazy: Children) -> None:
    lazy.update("a", "b")
    assert [child.policy for child in lazy.list.children] == [None, None]
    assert lazy.list.counts[IDLE] == 2
    lazy.list.reset_backoff()
    lazy.list.connect_soon(lazy["b"])
    lazy.world.settle()
    assert lazy["a"].policy is None
    assert len(lazy["b"].stub.updates) == 1
    lazy.update(heavy("a"), heavy("b"))
    assert len(lazy["b"].stub.updates) == 2
    lazy["b"].stub.report(IDLE)
    lazy.world.settle()
    assert lazy["b"].stub.calls["exit_idle"] == 0
    lazy.list.connect_soon(lazy["b"])
    lazy.world.settle()
    assert lazy["b"].stub.calls["exit_idle"] == 1
    lazy.update("b")
    started = lazy["b"].stub
    lazy.list.close()
    assert started.calls["close"] == 1


def test_children_are_listed_in_the_order_of_the_endpoints(children: Children) -> None:
    children.update("a", "b", "c")
    children.update("c", "d", "c", "a")
    assert list(children.list.listed) == [children[name] for name in "cdca"]


def test_set_endpoint_is_called_only_for_changed_endpoints(children: Children) -> None:
    endpoints_set: list[Endpoint] = []

    class Noted(StubChild):
        __slots__ = ()

        def set_endpoint(self, endpoint: Endpoint) -> None:
            super().set_endpoint(endpoint)
            endpoints_set.append(endpoint)

    children.list._child_type = Noted
    children.update("a", "b")
    children.update(endpoint("b"), endpoint("a"), "c")
    children.update("b", heavy("a"), "c")
    assert endpoints_set == [*map(endpoint, "abc"), heavy("a")]


def test_connect_updates_or_exits_idle_at_once(lazy: Children) -> None:
    lazy.update("a")
    lazy.list.connect(lazy["a"])
    assert len(lazy["a"].stub.updates) == 1
    lazy.list.connect(lazy["a"])
    assert lazy["a"].stub.calls["exit_idle"] == 1


NAMES = st.sampled_from(["a", "b", "c", "d", ("a", "b"), ("b", "a"), ("c", "d", "a")])
LISTS = st.lists(st.tuples(NAMES, st.booleans()), max_size=8)


@given(st.lists(LISTS, max_size=6))
def test_children_match_the_last_list_after_any_history(
    lists: list[list[tuple[str | tuple[str, ...], bool]]],
) -> None:
    children = Children()
    alive: dict[frozenset[Address], StubChild] = {}
    for listed in lists:
        endpoints = [
            endpoint(names, heavy("a").attributes if is_heavy else EMPTY_ATTRIBUTES)
            for names, is_heavy in listed
        ]
        children.update(*endpoints)
        now = {child.endpoint.key: child for child in children.list.children}
        assert set(now) == {each.key for each in endpoints}
        for key in now.keys() & alive.keys():
            assert now[key] is alive[key]
        for key in alive.keys() - now.keys():
            assert alive[key].stub.calls["close"] == 1
        for child in now.values():
            assert child.stub.updates[-1].endpoints == (child.endpoint,)
            listed_as = [each for each in endpoints if each.key == child.endpoint.key]
            assert child.endpoint == listed_as[0]
            assert child.stub.calls["close"] == 0
        assert children.list.counts[CONNECTING] == len(now)
        alive = dict(now)


@pytest.mark.parametrize(
    ("ready", "units"),
    [
        (0, START_UNITS + FIRST_UNITS),
        (FEW_READY - 1, START_UNITS + FIRST_UNITS),
        (FEW_READY, START_UNITS),
    ],
)
def test_fewer_children_are_started_in_a_turn_until_some_are_ready(ready: int, units: int) -> None:
    names = [str(number) for number in range(200)]
    world = SlicedWorld(RoundRobinFactory(), others=(PickFirstFactory(),))
    if ready:
        world.update(*names[:ready])
        world.clock.advance(0)
        for subchannel in world.subchannels:
            subchannel.ready()
        world.clock.advance(0)
    world.update(*names)
    assert len(world.subchannels) - ready == ceil(UNITS_PER_TURN / units)
