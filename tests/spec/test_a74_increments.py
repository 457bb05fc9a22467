"""A74: a channel that followed any changes is in the state of a new one with the last resources.

Updates leave out what has not changed, and large ones are applied in slices; neither may leave a
cluster, a watch or an endpoint of an older config behind.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.lb.retained_child import RETENTION_S
from proxyless.runtime import Work, WorkQueue
from proxyless.xds.resources import (
    ClusterSpecifierPlugin,
    PathMatcher,
    PluginChoice,
    Route,
    RouteAction,
    RouteConfiguration,
)
from tests.worlds.meshes import MeshWorld
from tests.worlds.xds_dependencies import CDS, EDS, LDS, RDS, set_resource
from tests.worlds.xds_resources import (
    NOT_FOUND,
    aggregate,
    cluster,
    eds,
    endpoints,
    host,
    hosts,
    route,
)

if TYPE_CHECKING:
    from proxyless.base import Status

NAMES = "abcd"
ADDRESSES = tuple(f"10.0.0.{number}:80" for number in range(1, 4))
PLUGIN_PATH = "/plugin."
PATHS = (PLUGIN_PATH, *(f"/{number}." for number in range(len(NAMES))))
TYPES = {each.type_url: each for each in (LDS, RDS, CDS, EDS)}
# More than a cluster has endpoints.
RPCS = 2 * len(ADDRESSES)


def routes(clusters: list[str], dynamic: str) -> RouteConfiguration:
    """A route to each cluster, and one whose plugin chooses the dynamic cluster, if any."""
    to_clusters = [route(name, f"/{number}.") for number, name in enumerate(clusters)]
    if not dynamic:
        return hosts(host(*to_clusters))
    lb_config = ({"cds_experimental": {"cluster": dynamic, "isDynamic": True}},)
    to_plugin = RouteAction(choice=PluginChoice("plugin"))
    by_plugin = Route(path=PathMatcher("prefix", PLUGIN_PATH), action=to_plugin)
    plugins = (ClusterSpecifierPlugin("plugin", lb_config),)
    return replace(hosts(host(by_plugin, *to_clusters)), plugins=plugins)


names = st.sampled_from(NAMES)
resources = st.one_of(
    st.builds(routes, st.lists(names, min_size=1, unique=True), names | st.just("")),
    st.builds(cluster, names),
    st.builds(eds, names, names),
    st.builds(aggregate, names, names, names),
    st.builds(
        lambda name, addresses: endpoints(name, *addresses),
        names,
        st.lists(st.sampled_from(ADDRESSES), unique=True),
    ),
)
removals = st.tuples(st.sampled_from((CDS, EDS)), names)
changes = st.lists(resources | removals, min_size=1, max_size=6)
# Changes, and turns of the loop before those; 0 if everything before is done.
histories = st.lists(st.tuples(changes, st.integers(0, 6)), max_size=8)


class SlicedMesh(MeshWorld):
    """A mesh whose updates are applied in slices."""

    def make_work(self) -> Work:
        return WorkQueue(self.clock)

    def publish_later(self, changes: list[object], turns: int) -> None:
        """Publish these changes after this many turns of the loop."""
        if turns:
            self.clock.call_later(0, partial(self.publish_later, changes, turns - 1))
            return
        for change in changes:
            if isinstance(change, tuple):
                resource_type, name = change
                self.watches.put(resource_type, name, NOT_FOUND)
            else:
                set_resource(self.watches, change)

    def try_rpc(self, path: str) -> str | Status:
        """Send an RPC; returns the address of its backend, or its status."""
        _, observer = self.call(f"{path}Service/Method")
        if observer.ends:
            return observer.status
        [(address, stream)] = self.open_streams
        stream.respond()
        self.settle()
        return address

    def state(self) -> object:
        """Everything that an application or a control plane can notice."""
        config = self.resolver._config  # noqa: SLF001 - not public
        assert config is not None
        outcomes = {path: {self.try_rpc(path) for _ in range(RPCS)} for path in PATHS}
        watched = {each.type_url: self.watches.names(each) for each in TYPES.values()}
        return config.clusters, outcomes, watched, self.children


def copy_of(world: SlicedMesh) -> SlicedMesh:
    """A new channel with the resources of this one."""
    fresh = SlicedMesh()
    for (type_url, name), resource in world.watches._cached.items():  # noqa: SLF001 - not public
        fresh.watches.put(TYPES[type_url], name, resource)
    fresh.channel.request_connection()
    fresh.settle()
    return fresh


@given(histories, st.integers(1, 400))
def test_state_does_not_depend_on_the_history_of_the_resources(
    history: list[tuple[list[object], int]], units_per_turn: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("proxyless.runtime.work_queue.UNITS_PER_TURN", units_per_turn)
        world = SlicedMesh()
        clusters = [cluster(name) for name in NAMES]
        world.start(
            routes(["a"], "b"), *clusters, *(endpoints(name, ADDRESSES[0]) for name in NAMES)
        )
        turns = 0
        for changed, turns_before in history:
            if not turns_before:
                world.settle()
                turns = 0
            turns += turns_before
            world.publish_later(changed, turns)
        # Policies of clusters that left are closed.
        world.clock.advance(RETENTION_S)
        assert world.state() == copy_of(world).state()
