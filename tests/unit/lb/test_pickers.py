"""Unit tests of proxyless.lb.pickers."""

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, OK, Status, StatusCode
from proxyless.lb.api import QUEUE, Complete, Fail, Picker, PickInfo, PickResult
from proxyless.lb.attributes import PICK_LABELS
from proxyless.lb.pickers import (
    QUEUE_PICKER,
    FailPicker,
    IdlePicker,
    NotePicker,
    SubchannelPicker,
)
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.testing import ANY_RPC
from tests.worlds.policies import PolicyWorld, address

UNAVAILABLE = Status(StatusCode.UNAVAILABLE, "nothing works")


def complete() -> Complete:
    world = PolicyWorld(PickFirstFactory())
    return Complete(world.helper.create_subchannel(address("a"), EMPTY_ATTRIBUTES))


def test_queue_picker_queues() -> None:
    assert QUEUE_PICKER.pick(ANY_RPC) is QUEUE
    assert QUEUE_PICKER.status is OK


def test_fail_picker_fails_with_its_status() -> None:
    picker = FailPicker(UNAVAILABLE)
    assert picker.pick(ANY_RPC) == Fail(UNAVAILABLE)
    assert picker.status is UNAVAILABLE


def test_picker_returns_the_same_result_for_each_pick() -> None:
    result = complete()
    for picker in (FailPicker(UNAVAILABLE), SubchannelPicker(result)):
        assert picker.pick(ANY_RPC) is picker.pick(ANY_RPC)
    assert SubchannelPicker(result).pick(ANY_RPC) is result


def test_fail_picker_rejects_the_status_ok() -> None:
    with pytest.raises(AssertionError, match="a failure has a code other than OK"):
        FailPicker(OK)


def test_idle_picker_queues_and_calls_on_pick_for_every_pick() -> None:
    calls: list[int] = []
    picker = IdlePicker(lambda: calls.append(1))
    assert [picker.pick(ANY_RPC) for _ in range(3)] == [QUEUE] * 3
    assert len(calls) == 3


def test_picker_subclass_inherits_the_status_ok() -> None:
    class Mine(Picker):
        __slots__ = ()

        def pick(self, info: PickInfo) -> PickResult:
            return QUEUE

    assert Mine().status is OK
    assert not hasattr(Mine(), "__dict__")


def test_note_picker_adds_its_note_to_the_labels_of_a_measured_rpc() -> None:
    failing = NotePicker(FailPicker(UNAVAILABLE), "key", "value")
    labels: dict[str, str] = {}
    info = PickInfo("/s/m", (), EMPTY_ATTRIBUTES.with_(PICK_LABELS, labels))
    assert failing.pick(info) == failing.pick(ANY_RPC) == Fail(UNAVAILABLE)
    assert labels == {"key": "value"}
    assert (failing.status, failing.is_reconnecting) == (UNAVAILABLE, False)
