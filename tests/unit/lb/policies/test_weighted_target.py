"""Unit tests of proxyless.lb.policies.weighted_target; see spec/test_weighted_target.py."""

import itertools
from collections.abc import Mapping, Sequence

import pytest

from proxyless.base import OK, State, Status, ValidationErrors, hits
from proxyless.lb import (
    FailPicker,
    Picker,
    PickInfo,
    PickResult,
    PolicyRegistry,
    Queue,
    QueuePicker,
)
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.weighted_target import (
    NO_TARGETS,
    UPDATE_UNITS,
    Combined,
    TargetView,
    WeightedTargetFactory,
    WeightedTargetPicker,
    combine,
    parse_config,
)
from proxyless.runtime.work_queue import UNITS_PER_TURN
from proxyless.testing import ANY_RPC
from tests.worlds.child_policies import ParentPolicyWorld, stub_config
from tests.worlds.policies import CONNECTING, FAILURE, IDLE, READY, SlicedWorld, unavailable

REGISTRY = PolicyRegistry([PickFirstFactory()])

X, Y, Z = QueuePicker(), QueuePicker(), QueuePicker()


# ---------------------------------------------------------------------------------------------
# Decision


@pytest.mark.parametrize(
    ("targets", "combined"),
    [
        ([], Combined(FAILURE)),
        ([(0, READY, X)], Combined(FAILURE)),
        ([(1, READY, X)], Combined(READY, ((1, X),))),
        ([(1, READY, X), (2, FAILURE, Y), (3, READY, Z)], Combined(READY, ((1, X), (3, Z)))),
        ([(1, CONNECTING, X), (9, FAILURE, Y), (9, IDLE, Z)], Combined(CONNECTING)),
        ([(1, IDLE, X), (9, FAILURE, Y)], Combined(IDLE)),
        ([(4, FAILURE, X), (5, FAILURE, Y)], Combined(FAILURE, ((4, X), (5, Y)))),
        ([(0, READY, X), (5, FAILURE, Y)], Combined(FAILURE, ((5, Y),))),
    ],
)
def test_combine_returns_state_and_shares(
    targets: list[tuple[int, State, Picker]], combined: Combined
) -> None:
    assert combine(TargetView(*target) for target in targets) == combined


BEFORE = unavailable("refused")


@pytest.mark.parametrize(
    ("pickers", "failure"),
    [
        ([FailPicker(unavailable("one")), FailPicker(unavailable("two"))], unavailable("one")),
        ([X, FailPicker(unavailable("two"))], unavailable("two")),
        ([X, Y], unavailable("connecting again after: refused")),
    ],
)
def test_failure_is_that_of_the_first_target_whose_picker_fails(
    pickers: list[Picker], failure: Status
) -> None:
    assert combine(TargetView(1, FAILURE, each, BEFORE) for each in pickers).failure == failure


def test_failure_is_ok_when_failing_targets_have_no_error() -> None:
    assert combine([TargetView(1, FAILURE, X)]).failure is OK


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_combine_does_not_depend_on_the_order(size: int) -> None:
    ranks = [READY, CONNECTING, IDLE, FAILURE]
    for states in itertools.product(ranks, repeat=size):
        combined = combine(TargetView(1, state, X) for state in states)
        assert combined.state is min(states, key=ranks.index)
        is_picked = combined.state in {READY, FAILURE}
        assert len(combined.shares) == (states.count(combined.state) if is_picked else 0)


# ---------------------------------------------------------------------------------------------
# Picker


class NamedPicker(Picker):
    """Records its name in each pick."""

    __slots__ = ("_name", "_picked")

    def __init__(self, name: str, picked: list[str]) -> None:
        self._name = name
        self._picked = picked

    def pick(self, info: PickInfo) -> PickResult:
        self._picked.append(self._name)
        return Queue()


def pick_all(weights: Sequence[int], numbers: Sequence[float]) -> str:
    picked: list[str] = []
    shares = [(weight, NamedPicker(chr(97 + i), picked)) for i, weight in enumerate(weights)]
    remaining = iter(numbers)
    picker = WeightedTargetPicker(shares, lambda: next(remaining))
    for _ in numbers:
        picker.pick(ANY_RPC)
    return "".join(picked)


def test_shares_are_adjacent() -> None:
    assert pick_all([1, 2, 1], [0, 0.2499, 0.25, 0.5, 0.7499, 0.75, 0.9999]) == "aabbbcc"


def test_each_unit_of_weight_is_equally_likely() -> None:
    weights = [3, 1, 4, 1, 5]
    total = sum(weights)
    picked = pick_all(weights, [(unit + 0.5) / total for unit in range(total)])
    assert picked == "aaabccccdeeeee"


def test_last_picker_is_used_when_rounding_reaches_the_total() -> None:
    assert pick_all([2**32 - 1, 2**32 - 1], [1 - 2**-53, 1.0]) == "bb"


def test_picker_has_the_status_that_it_is_given() -> None:
    failure = unavailable("refused")
    assert WeightedTargetPicker([(1, X), (1, Y)], lambda: 0.0, failure).status is failure
    assert WeightedTargetPicker([(1, X), (1, Y)], lambda: 0.0).status is OK


def test_picker_has_no_dict() -> None:
    assert not hasattr(WeightedTargetPicker([(1, X), (1, Y)], lambda: 0.0), "__dict__")


# ---------------------------------------------------------------------------------------------
# Config and policy


def test_parser_reports_all_errors() -> None:
    errors = ValidationErrors()
    good: Mapping[str, object] = {"weight": 1, "childPolicy": [{"pick_first": {}}]}
    parse_config({"targets": {"a": {}, "b": good, "c": {**good, "weight": -3}}}, errors, REGISTRY)
    assert str(errors) == (
        '[field:targets["a"].weight error:is missing, wanted an integer from 0 to 4294967295; '
        'field:targets["a"].childPolicy error:is missing, wanted a list of policies; '
        'field:targets["c"].weight error:is -3, wanted an integer from 0 to 4294967295]'
    )


@pytest.fixture
def world() -> ParentPolicyWorld:
    return ParentPolicyWorld(WeightedTargetFactory())


def weigh(world: ParentPolicyWorld, *names: str) -> None:
    targets = {name: {"weight": 1, "childPolicy": stub_config(name)} for name in names}
    world.update(config={"targets": targets})


def test_targets_that_wait_for_an_update_may_all_be_removed() -> None:
    world = SlicedWorld(WeightedTargetFactory(), others=(PickFirstFactory(),))
    target = {"weight": 1, "childPolicy": [{"pick_first": {}}]}
    names = [str(number) for number in range(UNITS_PER_TURN // UPDATE_UNITS + 2)]
    world.update(config={"targets": dict.fromkeys(names, target)})
    world.update(config={"targets": {}})
    world.clock.advance(0)
    assert world.picker.status.details == NO_TARGETS


def test_state_changes_are_traced(world: ParentPolicyWorld) -> None:
    with hits(world.trace, "weighted_target.state") as events:
        weigh(world, "a")
        world.report("a", READY, READY, FAILURE)
    assert [event.fields["after"] for event in events] == [CONNECTING, READY, READY, FAILURE]


def test_picker_of_the_only_ready_child_is_used(world: ParentPolicyWorld) -> None:
    weigh(world, "a", "b")
    world.report("a", READY)
    world.expect_uses("a")


def test_report_that_changes_nothing_is_not_forwarded(world: ParentPolicyWorld) -> None:
    weigh(world, "a", "b")
    world.report("a", READY)
    world.expect_never(FAILURE)
    world.report("b", CONNECTING, FAILURE, CONNECTING)
    world.child("a").report_again()
    world.expect_reports()


def test_policy_ignores_calls_before_its_first_update(world: ParentPolicyWorld) -> None:
    world.policy.exit_idle()
    world.policy.reset_backoff()
    world.expect_reports()
    world.policy.close()
    world.expect_closed()
