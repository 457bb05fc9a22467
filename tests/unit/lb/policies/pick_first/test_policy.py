"""Unit tests of proxyless.lb.policies.pick_first.policy."""

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from proxyless.base import EMPTY_ATTRIBUTES, OK, State, Status, hits
from proxyless.lb.attributes import HEALTH_WATCH
from proxyless.lb.policies.pick_first import PickFirst, PickFirstFactory
from proxyless.lb.policies.pick_first.policy import Phase
from tests.spec.lb_world import (
    ANY_RPC,
    CHANGE,
    CHANGES,
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    Name,
    World,
)


@pytest.fixture
def world() -> World:
    return World(PickFirstFactory())


def test_state_changes_are_traced(world: World) -> None:
    with hits(world.trace, "pick_first.state") as events:
        world.update("a")
        world["a"].fail("refused")
    assert [event.fields["after"] for event in events] == [CONNECTING, FAILURE]
    assert "refused" in str(events[-1].fields["status"])


def test_what_a_released_subchannel_says_is_not_heard(world: World) -> None:
    """A subchannel that breaks its contract must not select itself on a policy that moved on."""
    world.update("a", "b")
    released = world["a"]
    listeners = list(released._listeners)
    world.update("c", "b")
    world.expect_never()
    for listener in listeners:
        listener(READY, OK)
        listener(FAILURE, Status(world.resolver_error().code, "late"))
    world.expect_reports()
    world.policy.close()
    for listener in listeners:
        listener(READY, OK)
    world.expect_reports()


def test_health_of_a_subchannel_that_is_not_used_any_more_is_not_heard(world: World) -> None:
    world.update("a")
    world["a"].ready()
    candidate = world.policy._selected  # type: ignore[attr-defined]
    world["a"].idle()
    world.expect_never()
    candidate.on_health(READY, OK)
    world.expect_reports()


def test_a_second_ready_of_the_selected_subchannel_changes_nothing(world: World) -> None:
    world.update("a")
    world["a"].ready()
    world["a"].ready()
    world.expect_reports(CONNECTING, READY)


def test_one_pick_wakes_it_only_once(world: World) -> None:
    world.update("a")
    world["a"].ready()
    world["a"].idle()
    world.picks(5)
    assert world.clock.timers_pending == 1
    old_picker = world.picker
    world.policy.exit_idle()
    assert world.clock.timers_pending == 0
    old_picker.pick(ANY_RPC)
    assert world.clock.timers_pending == 0


def test_a_parent_that_closes_it_inside_a_report_hears_no_more(world: World) -> None:
    """Parents should not, but what is left to be done must not reach what was released."""
    world.update("a", "b")
    world["a"].fail()
    world["a"].idle()
    world.react = lambda state: world.policy.close() if state is FAILURE else None
    world.take_requests()
    world["b"].fail()
    world.expect_requests()
    world.expect_closed()


# Phases

WITH_HEALTH = EMPTY_ATTRIBUTES.with_(HEALTH_WATCH, True)

SELECTED = {Phase.READY, Phase.HEALTH_CONNECTING, Phase.HEALTH_FAILURE}
IN_PASS = {Phase.CONNECTING, Phase.TRANSIENT_FAILURE}

# Every change of phase, by the phase before.
PHASE_CHANGES = {
    Phase.NO_ADDRESSES: {Phase.CONNECTING, Phase.SHUTDOWN},
    Phase.IDLE: {Phase.NO_ADDRESSES, Phase.CONNECTING, Phase.SHUTDOWN},
    Phase.CONNECTING: {Phase.NO_ADDRESSES, Phase.TRANSIENT_FAILURE, *SELECTED, Phase.SHUTDOWN},
    # Sticky: not to IDLE, CONNECTING or HEALTH_CONNECTING.
    Phase.TRANSIENT_FAILURE: {
        Phase.NO_ADDRESSES,
        Phase.READY,
        Phase.HEALTH_FAILURE,
        Phase.SHUTDOWN,
    },
}
# A selected candidate changes its health, is lost, or is taken off the list.
PHASE_CHANGES |= {
    phase: {Phase.NO_ADDRESSES, Phase.IDLE, after_loss, *healths, Phase.SHUTDOWN}
    for phase, after_loss, healths in (
        (Phase.READY, Phase.CONNECTING, SELECTED - {Phase.READY}),
        (Phase.HEALTH_CONNECTING, Phase.CONNECTING, SELECTED - {Phase.HEALTH_CONNECTING}),
        (Phase.HEALTH_FAILURE, Phase.TRANSIENT_FAILURE, {Phase.READY}),
    )
}


class PhaseRecorder(PickFirst):
    """pick_first that records changes of its phase, within one call too."""

    changes: set[tuple[Phase, Phase]]

    def _enter(self, phase: Phase, *picker: object) -> None:
        if phase is not self._phase:
            self.changes.add((self._phase, phase))
        super()._enter(phase, *picker)  # type: ignore[arg-type]


def check_phase(policy: PickFirst, world: World) -> None:
    """What the phase says about the rest of the policy, and about what it reports."""
    phase = policy._phase
    assert (policy._selected is not None) is phase.is_selected is (phase in SELECTED)
    assert (policy._pass is not None) is (phase in IN_PASS)
    held = len(policy._targets) if phase in IN_PASS else int(phase.is_selected)
    assert len(policy._candidates) == len(world.live) == held
    assert policy._wake_timer.pending <= (phase is Phase.IDLE)
    if world._reports and phase is not Phase.SHUTDOWN:
        assert world.state is (phase.state or FAILURE)


Step = Callable[[World], object]


def steps_of(world: World) -> dict[str, Step]:
    """What may happen next."""
    steps: dict[str, Step] = {
        "one address": lambda world: world.update("a", attributes=WITH_HEALTH),
        "two addresses": lambda world: world.update("b", "a", attributes=WITH_HEALTH),
        "no address": lambda world: world.update(attributes=WITH_HEALTH),
        "resolver error": lambda world: world.resolver_error(),
        "exit idle": lambda world: world.policy.exit_idle(),
        "time": lambda world: world.advance(0.25),
        "close": lambda world: world.policy.close(),
    }
    for index, subchannel in enumerate(world.live):
        for state in CHANGES[subchannel.state]:
            steps[f"{index} {state}"] = partial(change_state, index, state)
        # Others may know the health of a candidate before it is selected. One of two is enough.
        if index == 0 and subchannel.state in {CONNECTING, READY}:
            for health in (READY, CONNECTING, FAILURE):
                steps[f"{index} health {health}"] = partial(change_health, index, health)
    return steps


def change_state(index: int, state: State, world: World) -> None:
    CHANGE[state](world.live[index])


def change_health(index: int, health: State, world: World) -> None:
    world.live[index].health(health, "sick" if health is FAILURE else "")


def key_of(policy: PickFirst, world: World) -> Hashable:
    """What decides how the policy goes on; histories with the same key are not told apart."""
    live = tuple((each.address, each.state, each._health) for each in world.live)
    return policy._phase, len(policy._targets), live


def test_phases_change_only_as_listed_in_all_histories() -> None:
    changes: set[tuple[Phase, Phase]] = set()
    histories: deque[tuple[Step, ...]] = deque([()])
    known: set[Hashable] = set()
    while histories:
        history = histories.popleft()
        world = World(PickFirstFactory())
        policy = PhaseRecorder(world)
        policy.changes = changes
        world.policy = policy
        for step in history:
            step(world)
            check_phase(policy, world)
        if (key := key_of(policy, world)) not in known:
            known.add(key)
            if policy._phase is not Phase.SHUTDOWN:
                histories += [(*history, step) for step in steps_of(world).values()]
    listed = {(before, after) for before, row in PHASE_CHANGES.items() for after in row}
    assert changes == listed


class AnyHistory(RuleBasedStateMachine):
    """Updates, connections, time and picks in any order; what must hold after each."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(PickFirstFactory())
        self.listed: set[Name] = set()

    @initialize(names=st.permutations("abcd"), size=st.integers(1, 4))
    def first_update(self, names: list[Name], size: int) -> None:
        self.update(names, size, shuffle=False)

    @rule(names=st.permutations("abcd"), size=st.integers(1, 4), shuffle=st.booleans())
    def update(self, names: list[Name], size: int, shuffle: bool) -> None:
        was_failing = bool(self.listed) and self.world.state is FAILURE
        self.listed = set(names[:size])
        self.world.expect_never()
        self.world.update(*names[:size], config={"shuffleAddressList": shuffle})
        if was_failing:
            self.world.expect_never(CONNECTING, IDLE)

    @rule()
    def empty_update(self) -> None:
        self.listed = set()
        self.world.update()

    @rule()
    def resolver_error(self) -> None:
        self.world.resolver_error()

    @precondition(lambda self: self.world.live)
    @rule(data=st.data())
    def change_subchannel(self, data: st.DataObject) -> None:
        subchannel = data.draw(st.sampled_from(self.world.live), "subchannel")
        state = data.draw(st.sampled_from(CHANGES[subchannel.state]), "state")
        was_failing = self.world.state is FAILURE
        self.world.expect_never()
        CHANGE[state](subchannel)
        if was_failing:
            self.world.expect_never(CONNECTING, IDLE)

    @rule(seconds=st.sampled_from([0, 0.1, 0.25, 1]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)
        if seconds == 1 and self.world.state in {CONNECTING, FAILURE}:
            # Each of four addresses has had its turn.
            assert READY not in {each.state for each in self.world.live}

    @rule()
    def exit_idle(self) -> None:
        self.world.policy.exit_idle()
        assert not (self.listed and self.world.state is IDLE)

    @rule()
    def pick(self) -> None:
        was_idle = self.world.state is IDLE
        self.world.pick()
        self.world.settle()
        assert not (was_idle and self.world.state is IDLE)

    @invariant()
    def state_fits_the_subchannels(self) -> None:
        world = self.world
        if not self.listed:
            assert (world.state, world.live) == (FAILURE, [])
            return
        match world.state:
            case State.READY:
                [selected] = world.live
                assert selected.state is READY
                world.expect_pick(world.name(selected.address))
            case State.IDLE:
                assert not world.live
            case _:
                assert sorted(world.live_names) == sorted(self.listed)

    @invariant()
    def it_never_gives_up(self) -> None:
        world = self.world
        if not self.listed or world.state not in {CONNECTING, FAILURE}:
            return
        under_way = [each for each in world.live if each.state is CONNECTING or each.is_requested]
        in_backoff = [each for each in world.live if each.state is FAILURE]
        is_any_ready = any(each.state is READY for each in world.live)
        # A shared connection waits for its turn only while an earlier address is tried.
        if world.state is CONNECTING or is_any_ready:
            assert under_way
        assert under_way or in_backoff

    def teardown(self) -> None:
        self.world.policy.close()
        self.world.expect_closed()


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=60, stateful_step_count=40)
