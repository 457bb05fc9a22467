"""Unit tests of proxyless.lb.policies.priority.policy; see spec/test_a56.py."""

import itertools

import pytest

from proxyless.base import State, hits
from proxyless.lb.policies.priority import PriorityFactory
from proxyless.lb.policies.priority.choice import ChildView, Create, Reason, Use, choose
from proxyless.lb.policies.priority.policy import (
    CHILD_POLICY_CACHE,
    FAILOVER_TIMEOUT_S,
    KEEPS_CONNECTING,
    Switches,
    read_switches,
)
from proxyless.lb.retained_child import RETENTION_S
from tests.worlds.child_policies import ParentPolicyWorld, stub_config
from tests.worlds.policies import CONNECTING, FAILURE, IDLE, READY

IS_READY = ChildView(READY, failover_timer_pending=False)
IS_IDLE = ChildView(IDLE, failover_timer_pending=False)
FAILS = ChildView(FAILURE, failover_timer_pending=False)
CONNECTS = ChildView(CONNECTING, failover_timer_pending=True)
CONNECTS_WITHOUT_TIMER = ChildView(CONNECTING, failover_timer_pending=False)


# ---------------------------------------------------------------------------------------------
# Decision


@pytest.mark.parametrize(
    ("children", "choice"),
    [
        ([None, IS_READY], Create(0)),
        ([FAILS, None, IS_READY], Create(1)),
        ([CONNECTS_WITHOUT_TIMER, None], Create(1)),
        ([IS_READY, None], Use(0, Reason.CONNECTED, 1)),
        ([IS_IDLE, IS_READY], Use(0, Reason.CONNECTED, 1)),
        ([FAILS, IS_READY, CONNECTS], Use(1, Reason.CONNECTED, 2)),
        ([CONNECTS, IS_READY], Use(0, Reason.ATTEMPTING, 1)),
        ([FAILS, CONNECTS, IS_READY], Use(1, Reason.ATTEMPTING, 2)),
        ([CONNECTS_WITHOUT_TIMER, IS_READY], Use(1, Reason.CONNECTED, 2)),
        (
            [CONNECTS_WITHOUT_TIMER, CONNECTS_WITHOUT_TIMER, FAILS],
            Use(0, Reason.STILL_CONNECTING, 3),
        ),
        ([FAILS, CONNECTS_WITHOUT_TIMER, FAILS], Use(1, Reason.STILL_CONNECTING, 3)),
        ([FAILS, FAILS, FAILS], Use(2, Reason.EXHAUSTED, 3)),
        ([FAILS], Use(0, Reason.EXHAUSTED, 1)),
    ],
)
def test_choose_returns_the_expected_choice(
    children: list[ChildView | None], choice: Create | Use
) -> None:
    assert choose(children) == choice


def test_choose_raises_without_children() -> None:
    with pytest.raises(AssertionError, match="empty priority list"):
        choose([])


VIEWS = [
    None,
    *(
        ChildView(state, is_pending)
        for state in (READY, IDLE, CONNECTING, FAILURE)
        for is_pending in (True, False)
    ),
]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_choice_does_not_depend_on_children_that_were_not_considered(size: int) -> None:
    for children in itertools.product(VIEWS, repeat=size):
        choice = choose(children)
        if isinstance(choice, Create):
            assert choose([*children[: choice.priority], None]) == choice
        else:
            assert 0 <= choice.priority < choice.considered <= size
            assert None not in children[: choice.considered]
            if choice.reason in {Reason.CONNECTED, Reason.ATTEMPTING}:
                assert choose(children[: choice.considered]) == choice
            else:
                assert choice.considered == size


# ---------------------------------------------------------------------------------------------
# Switches


@pytest.mark.parametrize(
    ("variable", "value", "switches"),
    [
        (KEEPS_CONNECTING, "true", Switches(keeps_connecting=True)),
        (KEEPS_CONNECTING, " TRUE ", Switches(keeps_connecting=True)),
        (KEEPS_CONNECTING, "false", Switches()),
        (KEEPS_CONNECTING, "", Switches()),
        (CHILD_POLICY_CACHE, "false", Switches(retains_removed=False)),
        (CHILD_POLICY_CACHE, "False", Switches(retains_removed=False)),
        (CHILD_POLICY_CACHE, "true", Switches()),
        (CHILD_POLICY_CACHE, "", Switches()),
    ],
)
def test_switches_are_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, switches: Switches
) -> None:
    assert read_switches() == Switches()
    monkeypatch.setenv(variable, value)
    assert read_switches() == switches


# ---------------------------------------------------------------------------------------------
# Policy


@pytest.fixture
def world() -> ParentPolicyWorld:
    return ParentPolicyWorld(PriorityFactory())


def prioritize(world: ParentPolicyWorld, *names: str, inner_priorities: int = 1) -> None:
    """Update the policy; the first child has this number of inner priorities."""
    children: dict[str, dict[str, object]] = {name: {"config": stub_config(name)} for name in names}
    children[names[0]]["innerPriorities"] = inner_priorities
    world.update(config={"children": children, "priorities": list(names)})


def test_changes_of_a_child_are_traced(world: ParentPolicyWorld) -> None:
    with hits(world.trace, "priority.child") as events:
        prioritize(world, "p0", "p1")
        world.advance(FAILOVER_TIMEOUT_S)
        world.report("p0", READY, FAILURE, READY)
        world.advance(RETENTION_S)
    assert [(event.fields["child"], event.fields["change"]) for event in events] == [
        ("p0", "created"),
        ("p0", "failover timer fired"),
        ("p1", "created"),
        ("p1", "deactivated"),
        ("p1", "reactivated"),
        ("p1", "deactivated"),
        ("p1", "failover timer fired"),
        ("p1", "destroyed"),
    ]


@pytest.mark.parametrize("state", [READY, IDLE, CONNECTING, FAILURE])
def test_report_that_changes_nothing_is_not_forwarded(
    world: ParentPolicyWorld, state: State
) -> None:
    prioritize(world, "p0", "p1")
    world.report("p0", FAILURE)
    world.report("p0", READY)
    world.expect_never(IDLE)
    world.report("p1", state)
    world.policy.reset_backoff()
    world.expect_reports()


def test_policy_ignores_calls_before_its_first_update(world: ParentPolicyWorld) -> None:
    world.policy.exit_idle()
    world.policy.reset_backoff()
    world.expect_reports()
    world.policy.close()
    world.expect_closed()


# The failover timer of a child with priorities of its own


@pytest.mark.parametrize(
    ("numbers", "deadline_s"),
    [
        pytest.param([1, 2], 20.0, id="longer"),
        pytest.param([1, 2, 3], 30.0, id="longer twice"),
        pytest.param([3, 1], 10.0, id="shorter"),
        pytest.param([1, 2, 1, 2], 20.0, id="longer, shorter and longer"),
    ],
)
def test_failover_timer_follows_the_number_of_inner_priorities_while_it_runs(
    world: ParentPolicyWorld, numbers: list[int], deadline_s: float
) -> None:
    for number in numbers:
        prioritize(world, "p0", "p1", inner_priorities=number)
        world.advance(3.0)
    world.advance(deadline_s - 3.0 * len(numbers) - 0.001)
    world.expect_children("p0")
    world.advance(0.001)
    world.expect_children("p0", "p1")


def test_failover_timer_fires_at_once_when_the_shorter_deadline_has_passed(
    world: ParentPolicyWorld,
) -> None:
    prioritize(world, "p0", "p1", inner_priorities=3)
    world.advance(15.0)
    prioritize(world, "p0", "p1", inner_priorities=1)
    world.expect_children("p0")
    world.advance(0)
    world.expect_children("p0", "p1")


def test_failover_timer_that_is_due_is_put_off_when_priorities_return_in_the_same_turn(
    world: ParentPolicyWorld,
) -> None:
    prioritize(world, "p0", "p1", inner_priorities=3)
    world.advance(15.0)
    prioritize(world, "p0", "p1", inner_priorities=1)
    prioritize(world, "p0", "p1", inner_priorities=2)
    world.advance(4.999)
    world.expect_children("p0")
    world.advance(0.001)
    world.expect_children("p0", "p1")


def test_restarted_failover_timer_counts_from_its_restart_when_priorities_are_added(
    world: ParentPolicyWorld,
) -> None:
    prioritize(world, "p0", "p1")
    world.advance(5.0)
    world.report("p0", READY, CONNECTING)
    world.advance(9.0)
    prioritize(world, "p0", "p1", inner_priorities=2)
    world.advance(10.999)
    world.expect_children("p0")
    world.advance(0.001)
    world.expect_children("p0", "p1")


@pytest.mark.parametrize("state", [READY, IDLE, FAILURE])
def test_failover_timer_stays_cancelled_when_the_number_of_inner_priorities_changes(
    world: ParentPolicyWorld, state: State
) -> None:
    prioritize(world, "p0")
    world.report("p0", state)
    prioritize(world, "p0", inner_priorities=2)
    assert world.clock.timers_pending == 0


def test_failover_timer_is_not_started_again_when_it_has_fired_and_priorities_are_added(
    world: ParentPolicyWorld,
) -> None:
    prioritize(world, "p0")
    world.advance(FAILOVER_TIMEOUT_S)
    prioritize(world, "p0", inner_priorities=2)
    assert world.clock.timers_pending == 0


# The newest picker


@pytest.mark.parametrize("current", ["p0", "p1"])
def test_newest_picker_is_published_when_a_failing_child_becomes_connecting(
    world: ParentPolicyWorld, current: str
) -> None:
    prioritize(world, "p0", "p1")
    world.report("p0", FAILURE)
    world.report("p1", FAILURE)
    world.expect_state(FAILURE)
    world.report(current, CONNECTING)
    world.expect_uses(current)
    world.expect_picker_queues()
    world.report(current, CONNECTING)
    world.expect_uses(current)
