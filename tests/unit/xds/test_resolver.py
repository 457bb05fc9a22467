"""Unit tests of the resolver of xDS targets."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

import pytest

from proxyless.base import OK, Status, StatusCode
from proxyless.resolver import ResolverContext, ResolverOptions, ResolverResult, Target
from proxyless.runtime import AsyncioNetwork, VirtualClock, seeded_random
from proxyless.xds.bootstrap import Bootstrap, ChannelCreds, Node, ServerConfig
from proxyless.xds.filters import FilterRegistry
from proxyless.xds.resolver import FailedResolver, XdsResolver, XdsResolverFactory, XdsTools
from tests.worlds.meshes import MeshWorld
from tests.worlds.xds_dependencies import CDS, LDS, TYPES, FakeDns, Watches, set_resource
from tests.worlds.xds_resources import (
    cluster,
    endpoints,
    host,
    hosts,
    listener,
    route,
    route_config,
)

if TYPE_CHECKING:
    from proxyless.xds.client import XdsClient

SERVER = ServerConfig("control-plane:443", ChannelCreds("insecure"))
BOOTSTRAP = Bootstrap(servers=(SERVER,), node=Node(id="node-1"))


class Client:
    def __init__(self, clock: VirtualClock) -> None:
        self.watches = Watches(clock)
        self.watch = self.watches.watch


class FactoryWorld:
    """A factory, the number of its clients, and the results of its resolvers."""

    def __init__(self, bootstrap: Bootstrap | Status = BOOTSTRAP, bootstrap_file: str = "") -> None:
        self.clock = VirtualClock()
        self.client = Client(self.clock)
        self.acquired: list[str] = []
        self.released = 0
        self.results: list[ResolverResult] = []
        self.factory = XdsResolverFactory(lambda: bootstrap, self._tools, bootstrap_file)

    def _tools(self) -> XdsTools:
        return XdsTools(self._acquire, self._release, TYPES, FilterRegistry(), FakeDns())

    def _acquire(self, bootstrap: Bootstrap, target: str, shared: bool | None) -> XdsClient:
        self.acquired.append(target)
        return cast("XdsClient", self.client)

    def _release(self, client: XdsClient) -> None:
        self.released += 1

    def on_result(self, result: ResolverResult) -> Status:
        self.results.append(result)
        return OK

    def create(
        self, path: str = "/api", authority: str = "", default_authority: str | None = None
    ) -> XdsResolver | FailedResolver:
        options = ResolverOptions(authority=default_authority)
        context = ResolverContext(AsyncioNetwork(), self.clock, seeded_random(1), options=options)
        return self.factory.create(Target("xds", authority, path), self, context)


@pytest.mark.parametrize("path", ["", "/", "/api/"])
def test_create_raises_when_the_target_has_no_name(path: str) -> None:
    with pytest.raises(ValueError, match="has no name"):
        FactoryWorld().create(path)


def test_default_authority_is_the_encoded_name_of_the_target() -> None:
    factory = FactoryWorld().factory
    assert factory.default_authority(Target("xds", "", "/a b")) == "a%20b"


@pytest.mark.parametrize(
    "world",
    [
        FactoryWorld(Status(StatusCode.UNAVAILABLE, "no bootstrap")),
        FactoryWorld(Bootstrap(servers=(SERVER,))),
    ],
)
def test_failed_resolver_publishes_the_status_after_start(world: FactoryWorld) -> None:
    resolver = world.create(authority="unknown.example")
    assert isinstance(resolver, FailedResolver)
    resolver.start()
    assert world.results == [], "not inside the call"
    world.clock.advance(0)
    [result] = world.results
    assert isinstance(result.endpoints, Status)
    assert result.endpoints.code is StatusCode.UNAVAILABLE
    resolver.request_reresolution()
    resolver.reset_backoff()
    resolver.close()
    assert world.acquired == []


def test_failed_resolver_publishes_nothing_when_it_is_closed_before() -> None:
    world = FactoryWorld(Status(StatusCode.UNAVAILABLE, "no bootstrap"))
    resolver = world.create()
    resolver.start()
    resolver.close()
    world.clock.advance(0)
    assert world.results == []


def test_client_is_acquired_for_the_target_and_released_once() -> None:
    world = FactoryWorld()
    resolver = world.create()
    resolver.start()
    assert world.client.watches.names(LDS) == {"api"}
    assert world.acquired == ["xds:///api"]
    resolver.request_reresolution()
    resolver.reset_backoff()
    resolver.close()
    resolver.close()
    assert world.released == 1
    assert world.client.watches.names(LDS) == set()


@pytest.mark.parametrize(
    ("file", "option"),
    [("", ""), ("mesh.json", " --bootstrap mesh.json"), ("a b", " --bootstrap 'a b'")],
)
def test_next_command_names_the_file_when_the_application_does(file: str, option: str) -> None:
    resolver = FactoryWorld(bootstrap_file=file).create()
    assert isinstance(resolver, XdsResolver)
    command = resolver.name_command("/shop.Orders/Get")
    assert command == f"proxyless explain shop.Orders/Get --target xds:///api{option}"


@pytest.mark.parametrize(("default_authority", "is_found"), [(None, False), ("other", True)])
def test_virtual_host_is_chosen_by_the_authority(
    default_authority: str | None, is_found: bool
) -> None:
    world = FactoryWorld()
    resolver = world.create(default_authority=default_authority)
    resolver.start()
    watches = world.client.watches
    watches.put(LDS, "api", listener(hosts(host(route("a"), domains=("other",)))))
    set_resource(watches, cluster("a"))
    set_resource(watches, endpoints("a", "10.0.0.1:80"))
    world.clock.advance(0)
    [result] = world.results
    assert isinstance(result.endpoints, Status) is not is_found
    resolver.close()


def test_service_config_is_the_same_object_when_it_is_equal() -> None:
    world = MeshWorld()
    world.start(route_config("a"), cluster("a"), endpoints("a", "10.0.0.1:80"))
    parsed = world.channel.config.service_config
    world.publish(endpoints("a", "10.0.0.2:80"))
    assert world.channel.config.service_config is parsed
    world.publish(route_config("a", "b"), cluster("b"), endpoints("b", "10.0.0.3:80"))
    assert world.channel.config.service_config is not parsed


def test_route_table_is_reused_when_the_virtual_host_is_the_same() -> None:
    world = MeshWorld()
    world.start(route_config("a"), cluster("a"), endpoints("a", "10.0.0.1:80"))
    table = world.resolver._table
    world.publish(endpoints("a", "10.0.0.2:80"))
    assert world.resolver._table is table
    world.publish(route_config("a"))
    assert world.resolver._table is not table


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan", "s"])
def test_default_timeout_is_ignored_and_logged_when_it_is_invalid(
    text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GRPC_XDS_DEFAULT_ROUTE_TIMEOUT", text)
    resolver = FactoryWorld().create()
    assert isinstance(resolver, XdsResolver)
    resolver.start()
    assert resolver._selector_tools is not None
    assert resolver._selector_tools.default_timeout_s == 15.0
    assert f"is {text!r}, wanted a time in seconds" in caplog.text
    resolver.close()


# ---------------------------------------------------------------------------------------------
# Logs


def test_loss_of_routes_and_its_end_are_logged_with_the_text_of_failed_rpcs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "proxyless.xds.resolver")
    world = MeshWorld()
    world.start(route_config("a"), cluster("a"), endpoints("a", "10.0.0.1:80"))
    world.remove(LDS, "orders")
    _, observer = world.call()
    world.publish(listener())
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", observer.status.details),
        ("INFO", 'listener "orders": RPCs are routed again'),
    ]
    assert observer.status.details == 'listener "orders": does not exist (node id "node-1")'


def test_loss_is_logged_once_when_held_clusters_change(caplog: pytest.LogCaptureFixture) -> None:
    world = MeshWorld()
    world.backend("10.0.0.1:80").is_up = False
    world.start(route_config("a"), cluster("a"), endpoints("a", "10.0.0.1:80"))
    world.call(wait_for_ready=True)
    caplog.set_level(logging.INFO, "proxyless.xds.resolver")
    world.remove(LDS, "orders")
    world.publish(endpoints("a", "10.0.0.1:80", "10.0.0.2:80"))
    world.remove(CDS, "a")
    found = [each for each in caplog.records if each.name == "proxyless.xds.resolver"]
    assert [each.getMessage() for each in found] == [
        'listener "orders": does not exist (node id "node-1")'
    ]


def test_failed_resolver_logs_its_status(caplog: pytest.LogCaptureFixture) -> None:
    world = FactoryWorld()
    resolver = world.create(authority="unknown.example")
    resolver.start()
    world.clock.advance(0)
    [result] = world.results
    assert isinstance(result.endpoints, Status)
    assert result.endpoints.details.endswith(' (node id "node-1")')
    assert [each.getMessage() for each in caplog.records] == [result.endpoints.details]
