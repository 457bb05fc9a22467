"""Unit tests of proxyless.xds.lb.pick_labels."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, OK, Locality, Status, StatusCode
from proxyless.lb import QUEUE, Complete, Fail
from proxyless.lb.api import Picker, PickInfo, PickResult
from proxyless.lb.attributes import PICK_LABELS
from proxyless.lb.pickers import FailPicker
from proxyless.metrics.instruments import LOCALITY
from proxyless.xds.lb.pick_labels import LocalityPicker

DOWN = Status(StatusCode.UNAVAILABLE, "down")
HERE = Complete(cast("Any", SimpleNamespace(locality=Locality("r", "z", "s"))))
RESULTS = [HERE, QUEUE, Fail(DOWN)]


class FixedPicker(Picker):
    """Returns one result."""

    __slots__ = ("_result",)

    def __init__(self, result: PickResult) -> None:
        self._result = result

    def pick(self, info: PickInfo) -> PickResult:
        return self._result


def measured() -> tuple[PickInfo, dict[str, str]]:
    labels: dict[str, str] = {}
    return PickInfo("/a/b", (), EMPTY_ATTRIBUTES.with_(PICK_LABELS, labels)), labels


@pytest.mark.parametrize("result", RESULTS)
def test_locality_is_recorded_when_the_pick_is_complete(result: PickResult) -> None:
    info, labels = measured()
    assert LocalityPicker(FixedPicker(result)).pick(info) is result
    expected = {LOCALITY: '{region="r", zone="z", sub_zone="s"}'} if result is HERE else {}
    assert labels == expected


@pytest.mark.parametrize("result", RESULTS)
def test_rpc_without_labels_is_picked(result: PickResult) -> None:
    info = PickInfo("/a/b")
    assert LocalityPicker(FixedPicker(result)).pick(info) is result


def test_status_is_that_of_the_inner_picker() -> None:
    for picker, status in ((FailPicker(DOWN), DOWN), (FixedPicker(QUEUE), OK)):
        assert LocalityPicker(picker).status == status
