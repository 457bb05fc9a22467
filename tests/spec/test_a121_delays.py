"""A121, a draft: delays of RPCs in a mesh, by kind."""

from __future__ import annotations

import pytest

from proxyless.base import OK
from proxyless.metrics.instruments import ATTEMPT_DELAY, CALL_DELAY
from proxyless.xds.resources import (
    ClusterSpecifierPlugin,
    PathMatcher,
    PluginChoice,
    Route,
    RouteAction,
    RouteConfiguration,
)
from tests.worlds.meshes import MeshWorld
from tests.worlds.stats_plugins import RecordingPlugin
from tests.worlds.xds_resources import (
    cluster,
    endpoints,
    host,
    listener,
    locality,
    prioritized,
    route_config,
)

A, B = "10.0.0.1:80", "10.0.0.2:80"


class DelayedMesh(MeshWorld):
    """A mesh whose channel is measured."""

    def __init__(self) -> None:
        self.plugin = RecordingPlugin()
        super().__init__(metrics=self.plugin.metrics)

    @property
    def delays(self) -> list[tuple[str, float]]:
        """Kind and time of each delay: of calls, then of attempts."""
        found = (*self.plugin.values(CALL_DELAY), *self.plugin.values(ATTEMPT_DELAY))
        return [(labels[1], value) for labels, value in found]


@pytest.mark.spec("A121-01", "A121-03")
def test_an_rpc_waits_for_its_config_and_then_for_a_priority() -> None:
    mesh = DelayedMesh()
    mesh.publish(listener(), route_config("one"), cluster("one"))
    _, observer = mesh.call()
    mesh.clock.advance(3.0)
    mesh.backend(A).is_up = False
    mesh.publish(prioritized("one", [locality("a", A)], [locality("b", B)]))
    mesh.settle()
    mesh.respond_to_all()
    assert observer.status == OK
    assert mesh.delays == [("resolving", 3.0), ("p0:connecting", 0.0), ("p1:connecting", 0.0)]


@pytest.mark.spec("A121-02")
def test_an_rpc_waits_for_a_cluster_that_is_fetched_on_demand() -> None:
    mesh = DelayedMesh()
    lb_config = ({"cds_experimental": {"cluster": "dynamic", "isDynamic": True}},)
    to_plugin = Route(
        path=PathMatcher("prefix", "/"), action=RouteAction(choice=PluginChoice("plugin"))
    )
    mesh.start(
        RouteConfiguration(
            name="routes",
            virtual_hosts=(host(to_plugin),),
            plugins=(ClusterSpecifierPlugin("plugin", lb_config),),
        )
    )
    _, observer = mesh.call()
    mesh.clock.advance(2.0)
    mesh.publish(cluster("dynamic"), endpoints("dynamic", A))
    mesh.settle()
    mesh.respond_to_all()
    assert observer.status == OK
    assert mesh.delays == [("cds_dynamic_discovery", 2.0), ("p0:connecting", 0.0)]
