"""Configs with collections of endpoints (LEDS): completeness, errors, addresses, limits."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from proxyless.base import Locality, Status, StatusCode, parse_address
from proxyless.xds.client.api import NoAnswer
from proxyless.xds.config import endpoint_join
from proxyless.xds.resources import EndpointInfo, EndpointResource, LocalityEndpoints
from tests.worlds.xds_dependencies import EDS, LEDS, DependencyWorld, start_plain
from tests.worlds.xds_resources import cluster, endpoints, listener, route_config

A, B = (f"xdstp://mesh/envoy.config.endpoint.v3.LbEndpoint/{name}/*" for name in "ab")
SILENT = NoAnswer(StatusCode.NOT_FOUND, "not sent in 15 s, nor anything else")


def collected(name: str, *collections: str) -> EndpointResource:
    """Return one priority for each collection."""
    priorities = tuple(
        (LocalityEndpoints(Locality(zone=str(number)), 1, (), None, each),)
        for number, each in enumerate(collections)
    )
    return EndpointResource(name=name, priorities=priorities, collections=collections)


def put(world: DependencyWorld, collection: str, *addresses: str) -> None:
    members = {
        f"{collection[:-1]}{each}": EndpointInfo((parse_address(each),)) for each in addresses
    }
    world.watches.put(LEDS, collection, MappingProxyType(members))
    world.settle()


def shown(world: DependencyWorld, name: str = "c") -> list[list[str]]:
    """The addresses of each priority."""
    found = world.entries(name)[0].endpoints
    assert found is not None
    return [
        [str(endpoint.addresses[0]) for locality in priority for endpoint in locality.endpoints]
        for priority in found.priorities
    ]


def started(*collections: str) -> DependencyWorld:
    world = DependencyWorld()
    world.publish(listener(), route_config("c"), cluster("c"), collected("c", *collections))
    return world


@pytest.mark.spec("LE-10", "A95-02")
def test_config_waits_for_all_collections_of_its_endpoints() -> None:
    world = started(A, B)
    assert world.watches.names(LEDS) == {A, B}
    assert world.events == []
    put(world, A, "10.0.0.1:80", "10.0.0.2:80")
    assert world.events == []
    (missing,) = world.manager.plan().missing
    assert str(missing) == f'endpoint "{B}" of cluster "c"'
    put(world, B)
    assert shown(world) == [["10.0.0.1:80", "10.0.0.2:80"], []]
    assert world.entries("c")[0].resolution_note == 'node id "node-1"'


@pytest.mark.spec("LE-10")
def test_change_of_one_member_is_a_config_with_that_change() -> None:
    world = started(A, B)
    put(world, A, "10.0.0.1:80", "10.0.0.2:80")
    put(world, B, "10.0.0.3:80")
    before = world.config
    put(world, B, "10.0.0.3:80", "10.0.0.4:80")
    assert shown(world) == [["10.0.0.1:80", "10.0.0.2:80"], ["10.0.0.3:80", "10.0.0.4:80"]]
    assert world.config is not before
    count = len(world.events)
    world.manager.on_change()
    world.settle()
    assert len(world.events) == count, "nothing has changed"


@pytest.mark.spec("LE-10")
def test_old_endpoints_are_used_until_the_collection_of_new_ones_is_there() -> None:
    world = start_plain("c")
    world.publish(collected("c", A))
    assert shown(world) == [["10.0.0.1:80"]]
    put(world, A, "10.0.0.2:80")
    assert shown(world) == [["10.0.0.2:80"]]
    world.publish(endpoints("c", "10.0.0.3:80"))
    assert shown(world) == [["10.0.0.3:80"]]
    assert world.watches.names(LEDS) == set()


@pytest.mark.spec("LE-11")
def test_other_localities_are_used_when_a_collection_does_not_exist() -> None:
    world = started(A, B)
    world.remove(LEDS, A)
    put(world, B, "10.0.0.3:80")
    assert shown(world) == [[], ["10.0.0.3:80"]]
    assert f'endpoint "{A}": does not exist' in world.entries("c")[0].resolution_note
    put(world, A, "10.0.0.1:80")
    assert shown(world) == [["10.0.0.1:80"], ["10.0.0.3:80"]]
    assert "does not exist" not in world.entries("c")[0].resolution_note


@pytest.mark.spec("LE-11")
def test_ambient_error_of_a_collection_is_in_the_note() -> None:
    world = started(A)
    put(world, A, "10.0.0.1:80")
    world.publish_ambient_error(LEDS, A, Status(StatusCode.INVALID_ARGUMENT, "a member is bad"))
    assert shown(world) == [["10.0.0.1:80"]]
    assert "a member is bad" in world.entries("c")[0].resolution_note


@pytest.mark.spec("LE-11", "HOLD-01")
def test_collection_that_no_server_answers_holds_the_config_in_force() -> None:
    world = start_plain("c")
    world.publish(route_config("d"), cluster("d"), collected("d", A))
    world.publish_error(LEDS, A, SILENT)
    assert "c" in world.config.clusters
    (awaited,) = world.manager.plan().unanswered
    assert awaited.subject == f'endpoint "{A}"'
    put(world, A, "10.0.0.9:80")
    assert list(world.config.clusters) == ["d"]


@pytest.mark.spec("LE-12")
def test_address_in_two_collections_is_used_in_the_first_locality() -> None:
    """A control plane that moves an endpoint adds it there before it removes it here."""
    world = started(A, B)
    put(world, A, "10.0.0.1:80", "10.0.0.2:80")
    put(world, B, "10.0.0.2:80", "10.0.0.3:80")
    assert shown(world) == [["10.0.0.1:80", "10.0.0.2:80"], ["10.0.0.3:80"]]
    put(world, A, "10.0.0.1:80")
    assert shown(world) == [["10.0.0.1:80"], ["10.0.0.2:80", "10.0.0.3:80"]]


@pytest.mark.spec("LE-12")
def test_endpoints_beyond_the_limit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_join, "ENDPOINTS_MAX", 3)
    world = started(A, B)
    put(world, A, "10.0.0.1:80", "10.0.0.2:80")
    put(world, B, "10.0.0.3:80", "10.0.0.4:80")
    assert shown(world) == [["10.0.0.1:80", "10.0.0.2:80"], ["10.0.0.3:80"]]
    assert "1 are left out, wanted at most 3" in world.entries("c")[0].resolution_note


@pytest.mark.spec("LE-10")
def test_watches_of_collections_end_with_their_cluster() -> None:
    world = started(A)
    put(world, A, "10.0.0.1:80")
    world.publish(route_config("d"), cluster("d"), endpoints("d", "10.0.0.2:80"))
    assert (world.watches.names(LEDS), world.watches.names(EDS)) == (set(), {"d"})
    world.manager.close()
