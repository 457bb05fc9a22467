"""Unit tests of proxyless.lb.policies.round_robin; see spec/test_round_robin.py."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxyless.base import hits
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.testing.fakes import CHANGES
from tests.worlds.policies import CONNECTING, FAILURE, IDLE, READY, Name, PolicyWorld

# The maximum time that removed endpoints take RPCs.
RETENTION_S = 30


@pytest.fixture
def world() -> PolicyWorld:
    return PolicyWorld(RoundRobinFactory())


def test_state_changes_are_traced(world: PolicyWorld) -> None:
    with hits(world.trace, "round_robin.state") as events:
        world.update("a")
        world["a"].ready()
    assert [event.fields["after"] for event in events] == [CONNECTING, READY]


def test_picker_has_no_dict(world: PolicyWorld) -> None:
    world.update("a")
    world["a"].ready()
    assert not hasattr(world.picker, "__dict__")


def test_picker_is_extended_when_endpoints_become_ready(world: PolicyWorld) -> None:
    """A new picker for each READY endpoint would make the total cost quadratic."""
    world.update("a", "b", "c")
    world["a"].ready()
    first = world.picker
    for name in "bc":
        world[name].ready()
        assert world.picker is first
    assert Counter(world.picks(6)) == dict.fromkeys("abc", 2)


def test_picker_is_replaced_when_an_endpoint_is_lost(world: PolicyWorld) -> None:
    world.update("a", "b", "c")
    for name in "abc":
        world[name].ready()
    before = world.picker
    world["a"].idle()
    assert world.picker is not before
    assert Counter(world.picks(4)) == dict.fromkeys("bc", 2)
    after = world.picker
    world.settle()
    world["a"].ready()
    assert world.picker is after
    assert Counter(world.picks(3)) == dict.fromkeys("abc", 1)


def test_each_endpoint_is_picked_once_per_round_after_updates(world: PolicyWorld) -> None:
    world.update("a", "b")
    world["a"].ready()
    world.share("c", READY)
    world.update("a", "b", "c")
    world["b"].ready()
    assert Counter(world.picks(6)) == dict.fromkeys("abc", 2)


class AnyHistory(RuleBasedStateMachine):
    """Random updates, state changes and delays, with invariants that hold after each."""

    def __init__(self) -> None:
        super().__init__()
        self.world = PolicyWorld(RoundRobinFactory())
        self.listed: set[Name] = set()

    @initialize(names=st.permutations("abcde"), size=st.integers(1, 5))
    def first_update(self, names: list[Name], size: int) -> None:
        self.update(names, size)

    @rule(names=st.permutations("abcde"), size=st.integers(0, 5))
    def update(self, names: list[Name], size: int) -> None:
        before = {self.world.name(each.address): each for each in self.world.subchannels}
        ready = {name for name, each in before.items() if each.state is READY}
        self.listed = set(names[:size])
        self.world.update(*names[:size])
        for name in self.listed & before.keys():
            assert self.world[name] is before[name], "a kept endpoint lost its connection"
        if self.listed - before.keys() and not self.listed & ready:
            assert self.retained == ready, "a READY endpoint was released too early"

    @property
    def retained(self) -> set[Name]:
        """Endpoints that are not listed and take RPCs."""
        return set(self.world.subchannel_names) - self.listed

    @precondition(lambda self: self.world.subchannels)
    @rule(data=st.data())
    def change_subchannel(self, data: st.DataObject) -> None:
        subchannel = data.draw(st.sampled_from(self.world.subchannels), "subchannel")
        state = data.draw(st.sampled_from(CHANGES[subchannel.state]), "state")
        subchannel.become(state)
        self.world.settle()

    @invariant()
    def picks_go_around_what_is_ready(self) -> None:
        world = self.world
        assert set(world.subchannel_names) >= self.listed
        ready = sorted(name for name in world.subchannel_names if world[name].state is READY)
        assert not self.retained or set(ready) == self.retained
        assert (world.state is READY) == bool(ready)
        if ready:
            assert sorted(map(str, world.picks(len(ready)))) == ready
        elif world.state is CONNECTING:
            world.expect_picker_queues()
        else:
            world.expect_pick_fails()

    @invariant()
    def no_subchannel_stays_idle(self) -> None:
        for subchannel in self.world.subchannels:
            assert subchannel.state is not IDLE or subchannel.is_requested

    @invariant()
    def failure_means_that_every_endpoint_fails(self) -> None:
        failing = {name for name in self.listed if self.world[name].state is FAILURE}
        if self.listed and failing == self.listed:
            assert self.world.state is FAILURE

    @rule(seconds=st.sampled_from([1, 30]))
    def advance(self, seconds: int) -> None:
        self.world.advance(seconds)
        assert seconds < RETENTION_S or not self.retained

    def teardown(self) -> None:
        self.world.policy.close()
        self.world.expect_closed()


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=40, stateful_step_count=40)
