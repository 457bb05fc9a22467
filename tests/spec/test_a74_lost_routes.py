"""A74 and A31: RPCs that hold a cluster while the listener or the routes cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyless.base import OK, Status, StatusCode
from proxyless.xds.resources import Listener
from tests.worlds.meshes import MeshWorld
from tests.worlds.xds_dependencies import CDS, EDS, LDS, RDS
from tests.worlds.xds_resources import (
    SERVICE,
    aggregate,
    cluster,
    eds,
    endpoints,
    host,
    hosts,
    listener,
    route,
    route_config,
    unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.worlds.channels import CallObserver

A, B = "10.0.0.1:80", "10.0.0.2:80"


def lose_listener(world: MeshWorld) -> None:
    world.remove(LDS, SERVICE)


def lose_routes(world: MeshWorld) -> None:
    world.remove(RDS, "routes")


def lose_virtual_host(world: MeshWorld) -> None:
    world.publish(hosts(host(route("a"), domains=("other.example",))))


def lose_api_listener(world: MeshWorld) -> None:
    world.publish(Listener(SERVICE, None))


LOSSES = [lose_listener, lose_routes, lose_virtual_host, lose_api_listener]

every_loss = pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)


def start_waiting(*resources: object, routed: str = "a") -> tuple[MeshWorld, CallObserver]:
    """A world in which the backend at A refuses connections, and a wait-for-ready RPC to it."""
    world = MeshWorld()
    world.backend(A).is_up = False
    world.start(route_config(routed), cluster("a"), endpoints("a", A), *resources)
    _, waiting = world.call(wait_for_ready=True)
    assert waiting.is_running
    return world, waiting


def assert_released(world: MeshWorld) -> None:
    """Check that the cluster is neither referenced nor watched."""
    assert world.in_use("a") == 0
    assert world.children == set()
    assert world.watches.names(CDS) == set()
    assert world.watches.names(EDS) == set()


@pytest.mark.spec("A74-48", "A74-49")
@every_loss
def test_new_endpoints_reach_routed_rpc_when_routes_are_lost(
    lose: Callable[[MeshWorld], None],
) -> None:
    world, waiting = start_waiting()
    lose(world)
    world.clock.advance(5.0)
    assert waiting.is_running
    assert world.watches.names(CDS) == {"a"}
    world.publish(endpoints("a", B))
    [stream] = world.streams(B)
    stream.respond()
    world.settle()
    assert waiting.status == OK
    assert_released(world)


@pytest.mark.spec("A31-41", "A31-42")
@every_loss
def test_deleted_cluster_drops_routed_rpc_when_routes_are_lost(
    lose: Callable[[MeshWorld], None],
) -> None:
    world, waiting = start_waiting()
    lose(world)
    assert waiting.is_running
    world.remove(CDS, "a")
    assert waiting.status == Status(
        StatusCode.UNAVAILABLE, 'cluster "a": does not exist (node id "node-1")'
    )
    assert_released(world)


@pytest.mark.spec("A31-43", "A74-57")
def test_failed_cluster_keeps_routed_rpc_waiting_when_listener_is_lost() -> None:
    """An error that is not "does not exist" ends RPCs that are not wait-for-ready only."""
    world = MeshWorld()
    world.backend(A).connect = lambda: None  # type: ignore[method-assign]
    world.start(route_config("a"), cluster("a"), endpoints("a", A))
    _, plain = world.call()
    _, waiting = world.call(wait_for_ready=True)
    lose_listener(world)
    world.watches.put(CDS, "a", unavailable("refused"))
    world.settle()
    assert plain.status == unavailable('cluster "a": refused (node id "node-1")')
    assert waiting.is_running
    world.publish(cluster("a"), endpoints("a", B))
    world.settle()
    world.respond_to_all()
    assert waiting.status == OK
    assert_released(world)


@pytest.mark.spec("A74-49")
def test_new_endpoint_resource_reaches_routed_rpc_when_listener_is_lost() -> None:
    world, waiting = start_waiting()
    lose_listener(world)
    world.publish(eds("a", "other"))
    assert waiting.is_running
    assert world.watches.names(EDS) == {"other"}
    world.publish(endpoints("other", B))
    world.respond_to_all()
    assert waiting.status == OK
    assert_released(world)


@pytest.mark.spec("A74-49")
def test_new_leaf_of_aggregate_reaches_routed_rpc_when_listener_is_lost() -> None:
    world, waiting = start_waiting(aggregate("all", "a"), routed="all")
    lose_listener(world)
    world.publish(cluster("b"), endpoints("b", B), aggregate("all", "b"))
    world.settle()
    world.respond_to_all()
    assert waiting.status == OK
    assert_released(world)


@pytest.mark.spec("A74-49")
def test_new_endpoints_reach_routed_rpc_when_returned_listener_waits_for_routes() -> None:
    """The loss of the listener lasts until the routes of the returned listener arrive."""
    world, waiting = start_waiting()
    lose_listener(world)
    world.publish(listener("slow"))
    _, plain = world.call()
    assert 'listener "orders": does not exist' in plain.status.details
    world.publish(endpoints("a", B))
    world.respond_to_all()
    assert waiting.status == OK
    assert_released(world)
    world.publish(route_config("a", name="slow"))
    world.settle()
    assert world.send_rpc() == B


@pytest.mark.spec("A74-29")
@every_loss
def test_routed_rpc_and_new_rpcs_are_served_when_routes_return(
    lose: Callable[[MeshWorld], None],
) -> None:
    world, waiting = start_waiting()
    lose(world)
    world.publish(listener(), route_config("a"), endpoints("a", B))
    world.settle()
    world.respond_to_all()
    assert waiting.status == OK
    assert world.send_rpc() == B
