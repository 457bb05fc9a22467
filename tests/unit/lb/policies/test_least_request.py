"""Unit tests of proxyless.lb.policies.least_request; see spec/test_least_request.py."""

from collections.abc import Sequence

import pytest

from proxyless.base import OK, Metadata, Status, hits
from proxyless.lb import CallTracker, Complete
from proxyless.lb.policies.least_request import (
    CountingEndpointChild,
    LeastRequestFactory,
    LeastRequestPicker,
)
from proxyless.testing import ANY_RPC, check_policy
from tests.worlds.policies import CONNECTING, READY, PolicyWorld, ScriptedSubchannel


class End:
    status: Status = OK
    trailing_metadata: Metadata = ()


@pytest.fixture
def world() -> PolicyWorld:
    world = PolicyWorld(LeastRequestFactory())
    world.update(*"abcd")
    for name in "abcd":
        world[name].ready()
    return world


def picker_with(
    world: PolicyWorld, choice_count: int, numbers: Sequence[float]
) -> LeastRequestPicker:
    """Return a picker of the endpoints that uses these random numbers."""
    children = _children(world)
    script = iter(numbers)
    return LeastRequestPicker(children, choice_count, lambda: next(script))


def _children(world: PolicyWorld) -> list[CountingEndpointChild]:
    picker = world.picker
    assert isinstance(picker, LeastRequestPicker)
    return picker._children


def pick(world: PolicyWorld, picker: LeastRequestPicker) -> str:
    result = picker.pick(ANY_RPC)
    assert isinstance(result, Complete)
    assert isinstance(result.subchannel, ScriptedSubchannel)
    return world.name(result.subchannel.address)


def busy(world: PolicyWorld, **rpcs: int) -> None:
    for child in _children(world):
        child.active_requests = rpcs.get(world.name(child.endpoint.addresses[0]), 0)


@pytest.mark.spec("LR-02")
@pytest.mark.parametrize(
    ("numbers", "picked"),
    [
        # Each of the four endpoints has a quarter of the interval.
        ([0.0, 0.3], "b"),
        ([0.3, 0.0], "b"),
        ([0.0, 0.999_999], "d"),
        ([0.0, 0.0], "a"),
        # Equal counts: the first one is picked.
        ([0.3, 0.6], "b"),
        ([0.6, 0.3], "c"),
    ],
)
def test_picker_chooses_the_least_loaded_endpoint_and_the_first_if_equal(
    world: PolicyWorld, numbers: list[float], picked: str
) -> None:
    busy(world, a=2, b=1, c=1, d=1)
    assert pick(world, picker_with(world, 2, numbers)) == picked


def test_picker_compares_choice_count_endpoints(world: PolicyWorld) -> None:
    busy(world, a=3, b=2, c=1)
    assert pick(world, picker_with(world, 4, [0.0, 0.3, 0.6, 0.9])) == "d"
    assert pick(world, picker_with(world, 3, [0.0, 0.3, 0.6, 0.9])) == "c"


def test_picker_returns_one_result_per_endpoint(world: PolicyWorld) -> None:
    results = {world.picker.pick(ANY_RPC) for _ in range(200)}
    assert len(results) == 4


def test_endpoint_counts_its_rpcs_in_progress(world: PolicyWorld) -> None:
    child = _children(world)[0]
    tracker: CallTracker = child
    for _ in range(3):
        tracker.on_start()
    tracker.on_end(End())
    assert child.active_requests == 2


def test_picker_has_no_dict(world: PolicyWorld) -> None:
    assert not hasattr(world.picker, "__dict__")


def test_state_changes_are_traced() -> None:
    world = PolicyWorld(LeastRequestFactory())
    with hits(world.trace, "least_request.state") as events:
        world.update("a")
        world["a"].ready()
    assert [event.fields["after"] for event in events] == [CONNECTING, READY]


@pytest.mark.parametrize("config", [{}, {"choiceCount": 10}])
def test_policy_conforms(config: dict[str, object]) -> None:
    check_policy(LeastRequestFactory(), config=config, seeds=range(25))
