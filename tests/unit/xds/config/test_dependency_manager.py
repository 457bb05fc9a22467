"""The dependency manager: one notification per turn of the loop, and none after `close`."""

from proxyless.xds.config import ClusterConfig, ClusterError, XdsConfig
from tests.worlds.xds_dependencies import (
    CDS,
    EDS,
    LDS,
    RDS,
    DependencyWorld,
    set_resource,
    start_plain,
)
from tests.worlds.xds_resources import (
    SERVICE,
    cluster,
    dns,
    endpoints,
    listener,
    route_config,
    unavailable,
)


def test_watcher_is_not_called_inside_a_call() -> None:
    world = DependencyWorld()
    set_resource(world.watches, listener())
    set_resource(world.watches, route_config("a"))
    set_resource(world.watches, cluster("a"))
    set_resource(world.watches, endpoints("a", "10.0.0.1:80"))
    assert world.events == []
    world.settle()
    assert len(world.events) == 1


def test_watcher_is_called_once_for_all_updates_of_a_turn() -> None:
    world = start_plain("a")
    count = len(world.events)
    world.publish(*(endpoints("a", f"10.0.0.{number}:80") for number in range(1, 9)))
    assert len(world.events) == count + 1
    [entry] = world.entries("a")
    assert entry.endpoints == endpoints("a", "10.0.0.8:80")


def test_manager_watches_and_publishes_nothing_after_close() -> None:
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


def test_dns_name_has_brackets_when_it_is_an_ipv6_address() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a"), dns("a", "::1", 443))
    assert list(world.dns.resolvers) == ["[::1]:443"]
    world.dns.respond("[::1]:443", "[::1]:443")
    world.settle()
    assert isinstance(world.events[-1], XdsConfig)


def test_same_error_is_published_once() -> None:
    world = DependencyWorld()
    for _ in range(3):
        world.publish_error(LDS, SERVICE, unavailable("no server"))
    assert world.events == [f'error listener "{SERVICE}": no server (node id "node-1")']


def held_config(world: DependencyWorld) -> XdsConfig:
    assert world.watcher.held is not None
    return world.watcher.held


def test_held_config_has_subscribed_clusters_only_when_listener_is_lost() -> None:
    world = start_plain("a", "b")
    subscription = world.manager.subscribe("a")
    routes = world.config.route_config
    world.remove(LDS, SERVICE)
    lost = held_config(world)
    assert lost.route_config is routes
    assert list(lost.clusters) == ["a"]
    world.publish(endpoints("a", "10.0.0.2:80"))
    assert held_config(world) is not lost
    entry = held_config(world).find("a")
    assert isinstance(entry, ClusterConfig)
    assert entry.endpoints == endpoints("a", "10.0.0.2:80")
    world.remove(CDS, "a")
    assert isinstance(held_config(world).find("a"), ClusterError)
    subscription.release()
    world.settle()
    assert held_config(world).clusters == {}
    assert world.watches.names(CDS) == set()


def test_error_is_published_once_when_subscribed_clusters_do_not_change() -> None:
    world = start_plain("a", "b")
    subscription = world.manager.subscribe("a")
    world.remove(LDS, SERVICE)
    count = len(world.events)
    held = world.watcher.held
    world.publish(cluster("b"), endpoints("b", "10.0.0.9:80"))
    world.remove(LDS, SERVICE)
    assert (len(world.events), world.watcher.held) == (count, held)
    subscription.release()


def test_held_config_is_none_when_there_was_no_config() -> None:
    world = DependencyWorld()
    subscription = world.manager.subscribe("a")
    world.remove(LDS, SERVICE)
    world.publish(cluster("a"), endpoints("a", "10.0.0.1:80"))
    assert world.events == [f'does not exist listener "{SERVICE}"']
    assert world.watcher.held is None
    subscription.release()


def test_wait_is_measured_from_when_each_resource_went_missing() -> None:
    world = start_plain("a")
    world.publish(route_config("a", "b"))
    world.clock.advance(3.0)
    assert waits_s(world) == {'cluster "b"': 3.0}
    world.publish(cluster("b"))
    world.clock.advance(2.0)
    world.publish(endpoints("a", "10.0.0.2:80"))
    assert waits_s(world) == {'endpoints "b" of cluster "b"': 2.0}
    world.publish(endpoints("b", "10.0.0.3:80"))
    assert waits_s(world) == {}
    world.publish(route_config("a", "c"))
    assert waits_s(world) == {'cluster "c"': 0.0}


def waits_s(world: DependencyWorld) -> dict[str, float]:
    waits = world.manager.waits_s(world.manager.plan())
    return {str(missing): waited_s for missing, waited_s in waits.items()}
