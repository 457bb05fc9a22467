"""The cds policy: configs of the policies below, and notes in failures."""

import logging

import pytest

from proxyless.base import Status, StatusCode
from proxyless.lb import QUEUE_PICKER, Fail, FailPicker
from proxyless.testing import ANY_RPC
from proxyless.xds.config import ClusterConfig
from proxyless.xds.lb.cds.policy import FailureNotePicker, aggregate_policies, leaf_policies
from tests.worlds.meshes import MeshWorld
from tests.worlds.xds_dependencies import CDS
from tests.worlds.xds_resources import (
    cluster,
    dns,
    endpoints,
    locality,
    prioritized,
    route_config,
)


def test_leaf_may_try_all_its_priorities_before_the_next_leaf() -> None:
    two = prioritized("a", [locality("x", "10.0.0.1:80")], [locality("y", "10.0.0.2:80")])
    leaves = (
        ClusterConfig("a", cluster("a"), two),
        ClusterConfig("b", cluster("b"), endpoints("b")),
        ClusterConfig("c", cluster("c"), None),
    )
    assert aggregate_policies(leaves).leaves == (("a", 2), ("b", 1), ("c", 1))


def test_reresolution_requests_are_ignored_for_eds_only() -> None:
    for kind, is_ignored in ((cluster("a"), True), (dns("a", "host.example"), False)):
        found = leaf_policies(ClusterConfig("a", kind), ("p0",), kind.lb_config)
        assert found.ignore_reresolution_requests is is_ignored


def test_cluster_and_note_are_added_to_failures_only() -> None:
    failure = Status(StatusCode.UNAVAILABLE, "down")
    leaf = FailureNotePicker(FailPicker(failure), "leaf", "note")
    result = leaf.pick(ANY_RPC)
    assert isinstance(result, Fail)
    assert result.status == leaf.status
    assert leaf.status == Status(StatusCode.UNAVAILABLE, 'cluster "leaf": down (note)')
    # The aggregate does not repeat the note of the leaf.
    assert FailureNotePicker(leaf, "top", "note").status.details == (
        'cluster "top": cluster "leaf": down (note)'
    )
    assert FailureNotePicker(QUEUE_PICKER, "leaf", "note").pick(ANY_RPC) is QUEUE_PICKER.pick(
        ANY_RPC
    )


def test_node_id_is_once_and_last_in_a_failure() -> None:
    below = Status(StatusCode.UNAVAILABLE, 'down (endpoints "a": gone (node id "n"))')
    note = 'endpoints "a": gone (node id "n")'
    leaf = FailureNotePicker(FailPicker(below), "a", note, "n")
    text = 'cluster "a": down (endpoints "a": gone) (node id "n")'
    assert leaf.status.details == text
    # The aggregate's note is its own.
    top = FailureNotePicker(leaf, "top", "", "n")
    assert top.status.details == f'cluster "top": {text}'


def test_failure_of_cluster_is_logged_once_with_the_text_of_its_rpcs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "proxyless.xds.lb.cds")
    world = MeshWorld()
    world.backend("10.0.0.1:80").is_up = False
    world.start(route_config("a"), cluster("a"), endpoints("a", "10.0.0.1:80"))
    _, observer = world.call()
    world.settle()
    assert [each.getMessage() for each in caplog.records] == [observer.status.details]
    caplog.clear()
    for _ in range(3):
        world.remove(CDS, "a")
        world.publish(route_config("a"))
    _, observer = world.call()
    world.settle()
    assert [each.getMessage() for each in caplog.records] == [observer.status.details]
