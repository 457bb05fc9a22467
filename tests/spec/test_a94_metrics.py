"""A94: labels of the subchannels of a mesh; metrics of the drops of its clusters."""

from __future__ import annotations

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, StatusCode
from proxyless.lb.attributes import BACKEND_SERVICE, LOCALITY_LABEL
from proxyless.metrics.instruments import (
    CIRCUIT_BREAKER_DROPS,
    CLUSTER_DROPS,
)
from proxyless.xds.resources import DropCategory
from tests.worlds.meshes import MeshWorld
from tests.worlds.stats_plugins import TARGET, RecordingPlugin
from tests.worlds.xds_resources import (
    aggregate,
    cluster,
    endpoints,
    locality,
    prioritized,
    route_config,
)

A, B = "10.0.0.1:80", "10.0.0.2:80"
HERE = '{region="", zone="a", sub_zone=""}'
THERE = '{region="", zone="b", sub_zone=""}'
ALL = 1_000_000


@pytest.fixture
def plugin() -> RecordingPlugin:
    return RecordingPlugin()


@pytest.fixture
def mesh(plugin: RecordingPlugin) -> MeshWorld:
    return MeshWorld(metrics=plugin.metrics)


@pytest.mark.spec("A94-05")
def test_subchannels_have_the_labels_of_their_cluster_and_locality(mesh: MeshWorld) -> None:
    mesh.backend(A).is_up = False
    mesh.start(
        route_config("top"),
        aggregate("top", "x", "y"),
        cluster("x"),
        cluster("y"),
        prioritized("x", [locality("a", A)]),
        prioritized("y", [locality("b", B)]),
    )
    mesh.clock.advance(20)
    assert mesh.send_rpc() == B
    for address, labels in ((A, ("x", HERE)), (B, ("y", THERE))):
        (handle,) = mesh.backend(address).handles
        found = handle.measured
        assert (found.get(BACKEND_SERVICE), found.get(LOCALITY_LABEL)) == labels


def test_subchannels_have_no_labels_without_plugins() -> None:
    mesh = MeshWorld()
    mesh.start(route_config("one"), cluster("one"), endpoints("one", A))
    assert mesh.send_rpc() == A
    (handle,) = mesh.backend(A).handles
    assert handle.measured is EMPTY_ATTRIBUTES


def test_drops_are_counted_by_category(mesh: MeshWorld, plugin: RecordingPlugin) -> None:
    drops = (DropCategory("none", 0), DropCategory("maintenance", ALL))
    mesh.start(route_config("one"), cluster("one"), endpoints("one", A, drops=drops))
    for _ in range(2):
        _, observer = mesh.call()
        assert observer.status.code is StatusCode.UNAVAILABLE
    assert plugin.counts(CLUSTER_DROPS) == {(TARGET, "maintenance", "one"): 2}
    assert plugin.counts(CIRCUIT_BREAKER_DROPS) == {}


def test_drops_of_the_circuit_breaker_are_counted(mesh: MeshWorld, plugin: RecordingPlugin) -> None:
    mesh.start(route_config("one"), cluster("one", max_concurrent_requests=1), endpoints("one", A))
    running, _ = mesh.call()
    _, observer = mesh.call()
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert plugin.counts(CIRCUIT_BREAKER_DROPS) == {(TARGET, "one"): 1}
    assert plugin.counts(CLUSTER_DROPS) == {}
    running.cancel()
