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
from proxyless.lb.policies.pick_first import PickFirstFactory, PickFirstPolicy
from proxyless.lb.policies.pick_first.policy import Phase
from proxyless.testing import ANY_RPC
from proxyless.testing.fakes import CHANGES
from tests.worlds.policies import CONNECTING, FAILURE, IDLE, READY, Name, PolicyWorld


@pytest.fixture
def world() -> PolicyWorld:
    return PolicyWorld(PickFirstFactory())


def test_state_changes_are_traced(world: PolicyWorld) -> None:
    with hits(world.trace, "pick_first.state") as events:
        world.update("a")
        world["a"].fail("refused")
    assert [event.fields["after"] for event in events] == [CONNECTING, FAILURE]
    assert "refused" in str(events[-1].fields["status"])


def test_notifications_of_a_released_subchannel_are_ignored(world: PolicyWorld) -> None:
    """Even if a subchannel breaks its contract, a released candidate must not be selected."""
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


def test_health_of_an_unselected_subchannel_is_ignored(world: PolicyWorld) -> None:
    world.update("a")
    world["a"].ready()
    candidate = world.policy._selected  # type: ignore[attr-defined]
    world["a"].idle()
    world.expect_never()
    candidate.on_health(READY, OK)
    world.expect_reports()


def test_repeated_ready_of_the_selected_subchannel_is_ignored(world: PolicyWorld) -> None:
    world.update("a")
    world["a"].ready()
    world["a"].ready()
    world.expect_reports(CONNECTING, READY)


def test_picks_schedule_one_exit_idle(world: PolicyWorld) -> None:
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


def test_policy_does_nothing_after_close_inside_its_report(world: PolicyWorld) -> None:
    """Parents must not do this, but pending actions must not use released subchannels."""
    world.update("a", "b")
    world["a"].fail()
    world["a"].idle()
    world.helper.react = lambda state: world.policy.close() if state is FAILURE else None
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
# The health of a selected candidate changes, its connection is lost, or its address is removed.
PHASE_CHANGES |= {
    phase: {Phase.NO_ADDRESSES, Phase.IDLE, after_loss, *healths, Phase.SHUTDOWN}
    for phase, after_loss, healths in (
        (Phase.READY, Phase.CONNECTING, SELECTED - {Phase.READY}),
        (Phase.HEALTH_CONNECTING, Phase.CONNECTING, SELECTED - {Phase.HEALTH_CONNECTING}),
        (Phase.HEALTH_FAILURE, Phase.TRANSIENT_FAILURE, {Phase.READY}),
    )
}


class PhaseRecorder(PickFirstPolicy):
    """pick_first that records all changes of its phase, even several within one call."""

    changes: set[tuple[Phase, Phase]]

    def _enter(self, phase: Phase, *picker: object) -> None:
        if phase is not self._phase:
            self.changes.add((self._phase, phase))
        super()._enter(phase, *picker)  # type: ignore[arg-type]


def check_phase(policy: PickFirstPolicy, world: PolicyWorld) -> None:
    """Check the other attributes and the last report against the phase."""
    phase = policy._phase
    assert (policy._selected is not None) is phase.is_selected is (phase in SELECTED)
    assert (policy._pass is not None) is (phase in IN_PASS)
    held = len(policy._targets) if phase in IN_PASS else int(phase.is_selected)
    assert len(policy._candidates) == len(world.subchannels) == held
    assert policy._exit_idle_timer.pending <= (phase is Phase.IDLE)
    if world.helper.reports and phase is not Phase.SHUTDOWN:
        assert world.state is (phase.state or FAILURE)


Step = Callable[[PolicyWorld], object]


def steps_of(world: PolicyWorld) -> dict[str, Step]:
    """Return the possible next events by name."""
    steps: dict[str, Step] = {
        "one address": lambda world: world.update("a", attributes=WITH_HEALTH),
        "two addresses": lambda world: world.update("b", "a", attributes=WITH_HEALTH),
        "no address": lambda world: world.update(attributes=WITH_HEALTH),
        "resolver error": lambda world: world.resolver_error(),
        "exit idle": lambda world: world.policy.exit_idle(),
        "time": lambda world: world.advance(0.25),
        "close": lambda world: world.policy.close(),
    }
    for index, subchannel in enumerate(world.subchannels):
        for state in CHANGES[subchannel.state]:
            steps[f"{index} {state}"] = partial(change_state, index, state)
        # The health may be known before a candidate is selected. One of two candidates is enough.
        if index == 0 and subchannel.state in {CONNECTING, READY}:
            for health in (READY, CONNECTING, FAILURE):
                steps[f"{index} health {health}"] = partial(change_health, index, health)
    return steps


def change_state(index: int, state: State, world: PolicyWorld) -> None:
    world.subchannels[index].become(state)


def change_health(index: int, health: State, world: PolicyWorld) -> None:
    world.subchannels[index].set_health(health, "sick" if health is FAILURE else "")


def key_of(policy: PickFirstPolicy, world: PolicyWorld) -> Hashable:
    """Return the key of a state; only one history is explored for each key."""
    live = tuple((each.address, each.state, each.connection.health) for each in world.subchannels)
    return policy._phase, len(policy._targets), live


def test_phases_change_only_as_listed_in_all_histories() -> None:
    changes: set[tuple[Phase, Phase]] = set()
    histories: deque[tuple[Step, ...]] = deque([()])
    visited: set[Hashable] = set()
    while histories:
        history = histories.popleft()
        world = PolicyWorld(PickFirstFactory())
        policy = PhaseRecorder(world.helper)
        policy.changes = changes
        world.policy = policy
        for step in history:
            step(world)
            check_phase(policy, world)
        if (key := key_of(policy, world)) not in visited:
            visited.add(key)
            if policy._phase is not Phase.SHUTDOWN:
                histories += [(*history, step) for step in steps_of(world).values()]
    listed = {(before, after) for before, row in PHASE_CHANGES.items() for after in row}
    assert changes == listed


class AnyHistory(RuleBasedStateMachine):
    """Random updates, state changes, delays and picks, with invariants that hold after each."""

    def __init__(self) -> None:
        super().__init__()
        self.world = PolicyWorld(PickFirstFactory())
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

    @precondition(lambda self: self.world.subchannels)
    @rule(data=st.data())
    def change_subchannel(self, data: st.DataObject) -> None:
        subchannel = data.draw(st.sampled_from(self.world.subchannels), "subchannel")
        state = data.draw(st.sampled_from(CHANGES[subchannel.state]), "state")
        was_failing = self.world.state is FAILURE
        self.world.expect_never()
        subchannel.become(state)
        if was_failing:
            self.world.expect_never(CONNECTING, IDLE)

    @rule(seconds=st.sampled_from([0, 0.1, 0.25, 1]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)
        if seconds == 1 and self.world.state in {CONNECTING, FAILURE}:
            # The pass has reached each of the four addresses.
            assert READY not in {each.state for each in self.world.subchannels}

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
            assert (world.state, world.subchannels) == (FAILURE, [])
            return
        match world.state:
            case State.READY:
                [selected] = world.subchannels
                assert selected.state is READY
                world.expect_pick(world.name(selected.address))
            case State.IDLE:
                assert not world.subchannels
            case _:
                assert sorted(world.subchannel_names) == sorted(self.listed)

    @invariant()
    def attempts_never_end(self) -> None:
        world = self.world
        if not self.listed or world.state not in {CONNECTING, FAILURE}:
            return
        in_progress = [
            each for each in world.subchannels if each.state is CONNECTING or each.is_requested
        ]
        in_backoff = [each for each in world.subchannels if each.state is FAILURE]
        is_any_ready = any(each.state is READY for each in world.subchannels)
        # A shared connection is not selected only while an earlier address is attempted.
        if world.state is CONNECTING or is_any_ready:
            assert in_progress
        assert in_progress or in_backoff

    def teardown(self) -> None:
        self.world.policy.close()
        self.world.expect_closed()


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=60, stateful_step_count=40)
