"""The dependency manager: one look for all that is heard in a turn, and silence after the end."""

from proxyless.xds.config import XdsConfig
from tests.spec.xds_world import (
    CDS,
    EDS,
    LDS,
    RDS,
    SERVICE,
    World,
    cluster,
    dns,
    endpoints,
    listener,
    route_config,
    set_resource,
    start_plain,
    unavailable,
)


def test_nothing_is_told_inside_a_call() -> None:
    world = World()
    set_resource(world.watches, listener())
    set_resource(world.watches, route_config("a"))
    set_resource(world.watches, cluster("a"))
    set_resource(world.watches, endpoints("a", "10.0.0.1:80"))
    assert world.events == []
    world.settle()
    assert len(world.events) == 1


def test_what_is_heard_twice_in_a_turn_is_told_once() -> None:
    world = start_plain("a")
    count = len(world.events)
    world.say(*(endpoints("a", f"10.0.0.{number}:80") for number in range(1, 9)))
    assert len(world.events) == count + 1
    [entry] = world.entries("a")
    assert entry.endpoints == endpoints("a", "10.0.0.8:80")


def test_closed_it_watches_nothing_and_says_nothing() -> None:
    world = start_plain("a")
    held = world.manager.subscribe("b")
    world.settle()
    count = len(world.events)
    set_resource(world.watches, endpoints("a", "10.0.0.2:80"))
    world.manager.close()
    world.manager.close()
    world.settle()
    assert [world.watches.names(kind) for kind in (LDS, RDS, CDS, EDS)] == [set()] * 4
    late = world.manager.subscribe("c")
    late.release()
    held.release()
    held.release()
    world.settle()
    assert len(world.events) == count
    assert world.watches.names(CDS) == set()
    assert world.clock.timers_pending == 0


def test_address_literal_in_a_dns_cluster_has_brackets() -> None:
    world = World()
    world.say(listener(), route_config("a"), dns("a", "::1", 443))
    assert list(world.dns.resolvers) == ["[::1]:443"]
    world.dns.answer("[::1]:443", "[::1]:443")
    world.settle()
    assert isinstance(world.events[-1], XdsConfig)


def test_same_trouble_is_told_once() -> None:
    world = World()
    for _ in range(3):
        world.refuse(LDS, SERVICE, unavailable("no server"))
    assert world.events == [f'error listener "{SERVICE}": no server (node id "node-1")']
