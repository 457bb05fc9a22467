"""Unit tests of proxyless.lb.pickers."""

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, OK, Status, StatusCode
from proxyless.lb.api import QUEUE, Complete, Fail, Picker, PickInfo, PickResult
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker, IdlePicker, SubchannelPicker
from proxyless.lb.policies.pick_first import PickFirstFactory
from tests.spec.lb_world import ANY_RPC, FakeSubchannel, World, address

UNAVAILABLE = Status(StatusCode.UNAVAILABLE, "nothing works")


def complete() -> Complete:
    world = World(PickFirstFactory())
    return Complete(FakeSubchannel(world, address("a"), EMPTY_ATTRIBUTES))


def test_a_queue_picker_queues() -> None:
    assert QUEUE_PICKER.pick(ANY_RPC) is QUEUE
    assert QUEUE_PICKER.status is OK


def test_a_fail_picker_fails_and_says_why() -> None:
    picker = FailPicker(UNAVAILABLE)
    assert picker.pick(ANY_RPC) == Fail(UNAVAILABLE)
    assert picker.status is UNAVAILABLE


def test_a_pick_allocates_no_result() -> None:
    result = complete()
    for picker in (FailPicker(UNAVAILABLE), SubchannelPicker(result)):
        assert picker.pick(ANY_RPC) is picker.pick(ANY_RPC)
    assert SubchannelPicker(result).pick(ANY_RPC) is result


def test_a_failure_has_a_reason() -> None:
    with pytest.raises(AssertionError, match="a failure has a code other than OK"):
        FailPicker(OK)


def test_an_idle_picker_queues_and_tells_of_every_pick() -> None:
    told: list[int] = []
    picker = IdlePicker(lambda: told.append(1))
    assert [picker.pick(ANY_RPC) for _ in range(3)] == [QUEUE] * 3
    assert len(told) == 3


def test_a_picker_needs_nothing_but_pick() -> None:
    class Mine(Picker):
        __slots__ = ()

        def pick(self, info: PickInfo) -> PickResult:
            return QUEUE

    assert Mine().status is OK
    assert not hasattr(Mine(), "__dict__")
