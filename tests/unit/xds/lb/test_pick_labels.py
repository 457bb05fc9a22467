"""Unit tests of proxyless.xds.lb.pick_labels."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, OK, Locality, Status, StatusCode
from proxyless.lb import QUEUE, Complete, Fail
from proxyless.lb.api import Picker, PickInfo, PickResult
from proxyless.lb.attributes import PICK_LABELS
from proxyless.lb.pickers import FailPicker
from proxyless.metrics.instruments import BACKEND_SERVICE, LOCALITY
from proxyless.xds.lb.pick_labels import LocalityPicker, ServicePicker

DOWN = Status(StatusCode.UNAVAILABLE, "down")
HERE = Complete(cast("Any", SimpleNamespace(locality=Locality("r", "z", "s"))))
RESULTS = [HERE, QUEUE, Fail(DOWN)]


class Answering(Picker):
    """Answers as told."""

    __slots__ = ("_result",)

    def __init__(self, result: PickResult) -> None:
        self._result = result

    def pick(self, info: PickInfo) -> PickResult:
        return self._result


def measured() -> tuple[PickInfo, dict[str, str]]:
    labels: dict[str, str] = {}
    return PickInfo("/a/b", (), EMPTY_ATTRIBUTES.with_(PICK_LABELS, labels)), labels


@pytest.mark.parametrize("result", RESULTS)
def test_the_cluster_is_said_whatever_the_pick_comes_to(result: PickResult) -> None:
    info, labels = measured()
    assert ServicePicker(Answering(result), "orders").pick(info) is result
    assert labels == {BACKEND_SERVICE: "orders"}


@pytest.mark.parametrize("result", RESULTS)
def test_the_locality_is_said_if_there_is_a_backend(result: PickResult) -> None:
    info, labels = measured()
    assert LocalityPicker(Answering(result)).pick(info) is result
    wanted = {LOCALITY: '{region="r", zone="z", sub_zone="s"}'} if result is HERE else {}
    assert labels == wanted


@pytest.mark.parametrize("result", RESULTS)
def test_an_rpc_that_nobody_measures_is_picked_for_all_the_same(result: PickResult) -> None:
    info = PickInfo("/a/b")
    assert ServicePicker(LocalityPicker(Answering(result)), "orders").pick(info) is result


def test_the_status_is_that_of_the_picker_inside() -> None:
    for picker, status in ((FailPicker(DOWN), DOWN), (Answering(QUEUE), OK)):
        assert ServicePicker(picker, "orders").status == status
        assert LocalityPicker(picker).status == status
