"""D50: routes in force are held while no control plane answers for the resources of new ones."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from proxyless.base import Status, StatusCode
from proxyless.metrics.instruments import XDS_HELD_CONFIGS
from proxyless.xds.client.api import NoAnswer
from proxyless.xds.config import ClusterError
from tests.worlds.stats_plugins import RecordingPlugin
from tests.worlds.xds_clients import XdsClientWorld, text
from tests.worlds.xds_dependencies import (
    CDS,
    EDS,
    LDS,
    RDS,
    DependencyWorld,
    FakeType,
    start_plain,
)
from tests.worlds.xds_resources import (
    SERVICE,
    aggregate,
    cluster,
    dns,
    eds,
    endpoints,
    listener,
    locality,
    prioritized,
    route_config,
    unavailable,
)

if TYPE_CHECKING:
    from proxyless.xds.resources import EndpointResource

AWAY = NoAnswer(StatusCode.UNAVAILABLE, 'xds server "a": does not answer: connection refused')
SILENT = NoAnswer(StatusCode.NOT_FOUND, "not sent in 15 s, nor anything else")


def addresses(world: DependencyWorld, name: str) -> list[str]:
    found = world.entries(name)[0].endpoints
    assert found is not None
    return [
        str(address)
        for priority in found.priorities
        for each in priority
        for endpoint in each.endpoints
        for address in endpoint.addresses
    ]


# ---------------------------------------------------------------------------------------------
# What is held


@pytest.mark.spec("HOLD-01", "HOLD-03")
@pytest.mark.parametrize("status", [AWAY, SILENT])
def test_routes_in_force_are_held_while_no_server_answers_for_a_new_cluster(
    status: NoAnswer,
) -> None:
    world = start_plain("a")
    before = list(world.events)
    world.publish(route_config("b"))
    world.publish_error(CDS, "b", status)
    assert world.events == before
    world.publish(cluster("b"))
    assert world.events == before
    world.publish(endpoints("b", "10.0.0.2:80"))
    assert set(world.config.clusters) == {"b"}


@pytest.mark.spec("HOLD-01")
def test_routes_in_force_are_held_while_no_server_answers_for_new_endpoints() -> None:
    world = start_plain("a")
    before = list(world.events)
    world.publish(route_config("b"), cluster("b"))
    world.publish_error(EDS, "b", AWAY)
    assert world.events == before
    world.publish(endpoints("b", "10.0.0.2:80"))
    assert addresses(world, "b") == ["10.0.0.2:80"]


@pytest.mark.spec("HOLD-01")
def test_routes_in_force_are_held_while_no_server_answers_for_a_new_route_configuration() -> None:
    world = start_plain("a")
    before = list(world.events)
    world.publish(listener("other"))
    world.publish_error(RDS, "other", AWAY)
    assert world.events == before
    world.publish(route_config("a", name="other"))
    assert world.config.route_config.name == "other"


@pytest.mark.spec("HOLD-01")
def test_endpoints_in_force_are_held_when_the_eds_service_is_renamed_in_an_outage() -> None:
    world = start_plain("a")
    before = list(world.events)
    world.publish(eds("a", "renamed"))
    world.publish_error(EDS, "renamed", AWAY)
    assert world.events == before
    world.publish(endpoints("renamed", "10.0.0.9:80"))
    assert addresses(world, "a") == ["10.0.0.9:80"]


@pytest.mark.spec("HOLD-01")
def test_route_back_to_a_dropped_cluster_is_held_while_no_server_answers() -> None:
    world = start_plain("a", "b")
    world.publish(route_config("b"))
    assert world.watches.names(CDS) == {"b"}
    before = list(world.events)
    world.watches.put(CDS, "a", AWAY)
    world.publish(route_config("a"))
    assert world.events == before
    assert set(world.config.clusters) == {"b"}


@pytest.mark.spec("HOLD-02")
def test_clusters_of_held_routes_go_on_changing() -> None:
    world = start_plain("a", "b")
    world.publish(route_config("new"))
    world.publish_error(CDS, "new", AWAY)
    # The clusters in force are watched, though no selector subscribes to them in this test.
    assert world.watches.names(CDS) == {"a", "b", "new"}
    world.publish(endpoints("a", "10.0.0.7:80"))
    assert addresses(world, "a") == ["10.0.0.7:80"]
    assert "new" not in world.config.clusters


@pytest.mark.spec("HOLD-02")
@pytest.mark.parametrize("deleted", [(CDS,), (EDS,), (EDS, CDS)])
def test_deleted_cluster_is_used_by_held_routes_until_the_hold_ends(
    deleted: tuple[FakeType, ...],
) -> None:
    world = start_plain("a")
    before = list(world.events)
    world.publish(route_config("b"))
    world.publish_error(CDS, "b", AWAY)
    for resource_type in deleted:
        world.remove(resource_type, "a")
    assert world.events == before
    assert addresses(world, "a") == ["10.0.0.1:80"]
    world.publish(cluster("b"), endpoints("b", "10.0.0.2:80"))
    assert set(world.config.clusters) == {"b"}


@pytest.mark.spec("HOLD-02")
def test_endpoints_in_force_go_on_changing_while_the_new_eds_service_is_unanswered() -> None:
    world = start_plain("a")
    world.publish(eds("a", "renamed"))
    world.publish_error(EDS, "renamed", AWAY)
    world.publish(endpoints("a", "10.0.0.7:80"))
    assert addresses(world, "a") == ["10.0.0.7:80"]
    world.remove(EDS, "a")
    assert addresses(world, "a") == ["10.0.0.7:80"]


@pytest.mark.spec("HOLD-02")
def test_leaves_in_force_go_on_changing_while_those_of_the_new_aggregate_are_unanswered() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("both"), aggregate("both", "near", "far"))
    world.publish(cluster("near"), endpoints("near", "10.0.0.1:80"), dns("far", "far.example"))
    world.dns.respond("far.example:80", "10.0.0.2:80")
    world.settle()
    world.publish(aggregate("both", "new"))
    world.publish_error(CDS, "new", AWAY)
    world.publish(endpoints("near", "10.0.0.7:80"))
    world.dns.respond("far.example:80", "10.0.0.8:80")
    world.settle()
    assert world.leaves("both") == ["both", "near", "far"]
    found = [each.endpoints for each in world.entries("both")[1:]]
    assert [str(each and each.priorities[0][0].endpoints[0].addresses[0]) for each in found] == [
        "10.0.0.7:80",
        "10.0.0.8:80",
    ]


# ---------------------------------------------------------------------------------------------
# What is not held


@pytest.mark.spec("HOLD-03")
@pytest.mark.parametrize(
    "status", [Status(StatusCode.NOT_FOUND, "does not exist"), unavailable("is invalid")]
)
def test_answer_of_a_server_ends_the_hold_even_if_it_is_an_error(status: Status) -> None:
    world = start_plain("a")
    world.publish(route_config("b"))
    world.publish_error(CDS, "b", AWAY)
    world.publish_error(CDS, "b", status)
    assert isinstance(world.config.clusters["b"], ClusterError)


@pytest.mark.spec("HOLD-03")
def test_routes_that_do_not_need_the_unanswered_resource_end_the_hold() -> None:
    world = start_plain("a")
    world.publish(route_config("b"))
    world.publish_error(CDS, "b", AWAY)
    world.publish(cluster("c"), endpoints("c", "10.0.0.3:80"), route_config("c"))
    assert set(world.config.clusters) == {"c"}


@pytest.mark.spec("HOLD-04")
def test_first_config_has_the_error_of_a_cluster_that_no_server_answered() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a", "b"), cluster("a"), endpoints("a", "10.0.0.1:80"))
    world.publish_error(CDS, "b", AWAY)
    assert isinstance(world.config.clusters["b"], ClusterError)
    assert addresses(world, "a") == ["10.0.0.1:80"]


@pytest.mark.spec("HOLD-04")
def test_first_listener_that_no_server_answered_is_an_error() -> None:
    world = DependencyWorld()
    world.publish_error(LDS, SERVICE, AWAY)
    assert world.events == [f'error listener "{SERVICE}": {AWAY.details} (node id "node-1")']


@pytest.mark.spec("HOLD-05")
def test_cluster_that_is_in_error_already_is_no_reason_to_hold_other_changes() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("a", "b"), cluster("a"), endpoints("a", "10.0.0.1:80"))
    world.publish_error(CDS, "b", AWAY)
    world.publish(cluster("c"), endpoints("c", "10.0.0.3:80"), route_config("c", "b"))
    assert set(world.config.clusters) == {"c", "b"}


@pytest.mark.spec("HOLD-05")
def test_config_whose_clusters_are_all_in_error_is_not_held() -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("misspelt"))
    world.remove(CDS, "misspelt")
    world.publish(cluster("a"), endpoints("a", "10.0.0.1:80"), route_config("a", "b"))
    world.publish_error(CDS, "b", AWAY)
    assert addresses(world, "a") == ["10.0.0.1:80"]
    assert isinstance(world.config.clusters["b"], ClusterError)


@pytest.mark.spec("HOLD-05")
@pytest.mark.parametrize("idle", [endpoints("idle"), prioritized("idle", [locality("empty")])])
def test_config_without_any_endpoint_is_not_held(idle: EndpointResource) -> None:
    world = DependencyWorld()
    world.publish(listener(), route_config("idle"), cluster("idle"), idle)
    world.publish(cluster("a"), endpoints("a", "10.0.0.1:80"), route_config("a", "b"))
    world.publish_error(CDS, "b", AWAY)
    assert addresses(world, "a") == ["10.0.0.1:80"]
    assert isinstance(world.config.clusters["b"], ClusterError)


@pytest.mark.spec("HOLD-05")
def test_nothing_is_held_after_the_listener_was_lost() -> None:
    world = start_plain("a")
    world.remove(LDS, SERVICE)
    world.publish(listener(), route_config("b"))
    world.publish_error(CDS, "b", AWAY)
    assert isinstance(world.config.clusters["b"], ClusterError)


@pytest.mark.spec("HOLD-05")
def test_subscription_to_an_unanswered_cluster_gets_its_error() -> None:
    world = start_plain("a")
    held = world.manager.subscribe("dynamic")
    world.settle()
    world.publish_error(CDS, "dynamic", AWAY)
    assert isinstance(world.config.clusters["dynamic"], ClusterError)
    held.release()


@pytest.mark.spec("HOLD-06")
def test_aggregate_is_held_while_none_of_its_leaves_is_complete() -> None:
    world = start_plain("a")
    before = list(world.events)
    world.publish(route_config("both"), aggregate("both", "near", "far"), cluster("far"))
    world.publish_error(CDS, "near", AWAY)
    world.publish_error(EDS, "far", AWAY)
    assert world.events == before
    # One complete leaf can serve; the other one is skipped, with a note (D24).
    world.publish(endpoints("far", "10.0.0.8:80"))
    assert world.leaves("both") == ["both", "far"]
    assert "does not answer" in world.entries("both")[0].resolution_note


@pytest.mark.spec("HOLD-06")
@pytest.mark.parametrize("backup", ["no endpoints", "deleted endpoints"])
def test_aggregate_is_held_while_its_complete_leaves_have_no_endpoints(backup: str) -> None:
    """A backup that is scaled to zero takes no RPC."""
    world = start_plain("a")
    before = list(world.events)
    world.publish(route_config("both"), aggregate("both", "near", "far"), cluster("far"))
    world.publish_error(CDS, "near", AWAY)
    if backup == "no endpoints":
        world.publish(endpoints("far"))
    else:
        world.publish_error(EDS, "far", Status(StatusCode.NOT_FOUND, "does not exist"))
    assert world.events == before
    world.publish(endpoints("far", "10.0.0.8:80"))
    assert world.leaves("both") == ["both", "far"]


@pytest.mark.spec("HOLD-07")
def test_new_routes_are_used_at_once_when_the_hold_is_disabled() -> None:
    world = DependencyWorld(holds_config=False)
    world.publish(listener(), route_config("a"), cluster("a"), endpoints("a", "10.0.0.1:80"))
    world.publish(route_config("b"))
    world.publish_error(CDS, "b", AWAY)
    assert isinstance(world.config.clusters["b"], ClusterError)


@pytest.mark.spec("HOLD-08")
def test_hold_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxyless.xds.resolver")
    world = start_plain("a")
    world.publish(route_config("b"))
    world.publish_error(CDS, "b", AWAY)
    world.clock.advance(12)
    world.publish(endpoints("a", "10.0.0.7:80"))
    world.publish(cluster("b"))
    world.publish(endpoints("b", "10.0.0.2:80"))
    first, last = caplog.messages
    assert first == (
        f'listener "{SERVICE}": routes in force are held, new ones wait for cluster "b", '
        "which no xds server has answered"
    )
    assert last == f'listener "{SERVICE}": routes are not held any more, after 12.0 s'


@pytest.mark.spec("HOLD-08")
def test_each_hold_is_counted_once() -> None:
    plugin = RecordingPlugin()
    world = DependencyWorld(metrics=plugin.metrics)
    world.publish(listener(), route_config("a"), cluster("a"), endpoints("a", "10.0.0.1:80"))
    for name in ("b", "c"):
        world.publish(route_config(name))
        world.publish_error(CDS, name, AWAY)
        world.publish(endpoints("a", f"10.0.0.{ord(name)}:80"))
        world.publish(cluster(name), endpoints(name, "10.0.0.2:80"))
    assert plugin.order.count(XDS_HELD_CONFIGS.name) == 2


# ---------------------------------------------------------------------------------------------
# Resource timer


@pytest.mark.spec("HOLD-09")
def test_timer_of_a_silent_stream_is_no_answer_and_starts_again_with_the_first_response() -> None:
    world = XdsClientWorld()
    server = world.server()
    x, y = world.watch(world.listeners, "x"), world.watch(world.routes, "y")
    world.clock.advance(15)
    (silent_x,), (silent_y,) = x.take(), y.take()
    assert isinstance(silent_x, NoAnswer)
    assert isinstance(silent_y, NoAnswer)
    server.respond(world.listeners, text("x"))
    assert (x.take(), y.take()) == (["v1"], [])
    world.clock.advance(14.9)
    assert y.take() == []
    world.clock.advance(0.1)
    (missing,) = y.take()
    assert type(missing) is Status
    assert missing.code is StatusCode.NOT_FOUND
    world.close()


@pytest.mark.spec("HOLD-09")
def test_timer_of_a_stream_with_a_response_means_that_the_resource_does_not_exist() -> None:
    world = XdsClientWorld()
    server = world.server()
    x, y = world.watch(world.listeners, "x"), world.watch(world.routes, "y")
    server.respond(world.listeners, text("x"))
    world.clock.advance(15)
    (missing,) = y.take()
    assert type(missing) is Status
    assert missing.code is StatusCode.NOT_FOUND
    assert x.take() == ["v1"]
    world.close()


@pytest.mark.spec("HOLD-09")
@pytest.mark.parametrize("is_quiet", [True, False], ids=["at once", "after another response"])
def test_timer_means_nothing_when_the_host_of_the_server_is_gone(is_quiet: bool) -> None:
    world = XdsClientWorld()
    server = world.server()
    x = world.watch(world.listeners, "x")
    if is_quiet:
        server.respond(world.listeners, text("x"))
    y = world.watch(world.routes, "y")
    world.clock.advance(1)
    if not is_quiet:
        server.respond(world.listeners, text("x"))
    server.ads.is_alive = False
    world.clock.advance(100)
    assert y.take() == []
    # Keepalive ends the connection, and the next one fails.
    server.is_up = False
    server.ads.end()
    server.fail()
    world.clock.advance(1)
    (away,) = y.take()
    assert isinstance(away, NoAnswer)
    assert away.code is StatusCode.UNAVAILABLE
    assert x.take()[0] == "v1"
    world.close()


@pytest.mark.spec("HOLD-09")
def test_timer_means_does_not_exist_when_a_quiet_server_is_alive() -> None:
    world = XdsClientWorld()
    server = world.server()
    x = world.watch(world.listeners, "x")
    server.respond(world.listeners, text("x"))
    world.clock.advance(1)
    y = world.watch(world.routes, "y")
    world.clock.advance(15)
    (missing,) = y.take()
    assert type(missing) is Status
    assert missing.code is StatusCode.NOT_FOUND
    assert x.take() == ["v1"]
    world.close()
