"""Unit tests of proxyless.xds.view.offline. Broken meshes are in tests/unit/observe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.assembly import Registries
from proxyless.base import OK, Status, StatusCode
from proxyless.controlplane import dns_cluster, listener, route, route_config
from proxyless.runtime.work_queue import finish
from proxyless.xds.bootstrap import Bootstrap, ChannelCreds, ServerConfig
from proxyless.xds.client import DecodeContext
from proxyless.xds.client.codec import decode_members_in_steps
from proxyless.xds.view import (
    ConfigError,
    ConfigTarget,
    XdsConfig,
    find_collection,
    resolve_offline,
    resource_types,
)

if TYPE_CHECKING:
    from proxyless.protos import Proto
    from proxyless.xds.config.plan import Plan

GONE = Status(StatusCode.NOT_FOUND, "does not exist")
SERVER = ServerConfig("unknown", ChannelCreds("insecure"))
MESH = (
    listener("api", "routes"),
    route_config("routes", route(cluster="a")),
    dns_cluster("a", "host", 80),
)


def resolve(*resources: Proto, error: Status = OK) -> tuple[Plan, list[str]]:
    """The plan, and the names of the resources that were looked up."""
    registries = Registries()
    serialized_by_key = {
        (f"type.googleapis.com/{each.DESCRIPTOR.full_name}", each.name): each.SerializeToString()
        for each in resources
    }
    names: list[str] = []

    def find(type_url: str, name: str) -> tuple[bytes | None, Status]:
        names.append(name)
        serialized = serialized_by_key.get((type_url, name))
        return serialized, GONE if serialized is None else error

    types = resource_types(registries.policies, registries.filters)
    context = DecodeContext(SERVER, Bootstrap(servers=(SERVER,)))
    return resolve_offline(ConfigTarget("api", "api"), types, context, find), names


def test_each_resource_is_looked_up_once_and_dns_names_count_as_resolved() -> None:
    plan, names = resolve(*MESH)
    assert isinstance(plan.outcome, XdsConfig)
    assert names == ["api", "routes", "a"]
    assert list(plan.dns) == [("host", 80)]


def test_resource_with_an_error_stays_in_use() -> None:
    plan, _ = resolve(*MESH, error=Status(StatusCode.UNAVAILABLE, "stale"))
    assert isinstance(plan.outcome, XdsConfig)


def test_outcome_is_an_error_when_the_listener_does_not_exist() -> None:
    plan, names = resolve()
    assert isinstance(plan.outcome, ConfigError)
    assert plan.outcome.does_not_exist
    assert names == ["api"]


def test_collection_has_the_members_of_its_path() -> None:
    resources = {
        ("T", "xdstp://mesh/T/web/1"): b"1",
        ("T", "xdstp://mesh/T/other/2"): b"2",
        ("U", "xdstp://mesh/T/web/3"): b"3",
    }
    found = find_collection("T", "xdstp://mesh/T/web/*", resources)
    assert found is not None
    assert finish(decode_members_in_steps(found)) == [("xdstp://mesh/T/web/1", b"1")]
    assert find_collection("T", "xdstp://mesh/T/none/*", resources) is None
