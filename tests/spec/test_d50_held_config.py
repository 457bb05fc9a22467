"""D50: routes in force are held while no control plane answers for the resources of new ones."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from proxyless.base import Status, StatusCode
from proxyless.metrics.instruments import XDS_HELD_CONFIGS
from proxyless.xds.bootstrap import DELTA
from proxyless.xds.client.api import EarlyDeletion, NoAnswer
from proxyless.xds.config import ClusterError
from tests.worlds.stats_plugins import RecordingPlugin
from tests.worlds.xds_clients import (
    TextType,
    WatchRecorder,
    XdsClientWorld,
    server_config,
    text,
)
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
        f'listener "{SERVICE}": routes in force are held, new ones wait for the answer of '
        'an xds server about cluster "b"'
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
def test_timer_is_no_answer_while_a_response_is_under_way() -> None:
    world = XdsClientWorld()
    server = world.server()
    x, y = world.watch(world.listeners, "x"), world.watch(world.routes, "y")
    server.respond(world.listeners, text("x"))
    server.ads.is_receiving = True
    world.clock.advance(15)
    (slow,) = y.take()
    assert isinstance(slow, NoAnswer)
    assert slow.details == (
        'route configuration "y": not sent by xds server "a" in 15 s, a response is under way '
        '(node id "edge-7")'
    )
    # It starts again with the response, which may be one without this resource.
    server.ads.is_receiving = False
    server.respond(world.listeners, text("x", "v2"))
    world.clock.advance(15)
    (missing,) = y.take()
    assert type(missing) is Status
    assert x.take() == ["v1", "v2"]
    world.close()


@pytest.mark.spec("HOLD-09")
def test_timer_is_no_answer_while_a_response_is_decoded() -> None:
    world = XdsClientWorld()
    server = world.server()
    x, y = world.watch(world.listeners, "x"), world.watch(world.routes, "y")
    server.respond(world.listeners, text("x"))
    server.ads.is_alive = False
    world.clock.advance(15)
    # So many that they are decided in several turns; the host answers in the second one.
    others = [text(f"other-{number}", "v" * 100) for number in range(1000)]
    server.ads.send_to_client(server.response(world.routes, [*others, text("y")], "2", None))
    (answer,) = server.ads.unanswered
    world.clock.call_later(0, answer)
    world.clock.advance(5)
    slow, *values = y.take()
    assert isinstance(slow, NoAnswer)
    assert values == ["v1"]
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


# ---------------------------------------------------------------------------------------------
# Deletions at the start of a stream


class RestartWorld(XdsClientWorld):
    """A client with a listener, routes and a cluster, whose server was restarted."""

    def __init__(self, *features: str) -> None:
        super().__init__(server_config("a", *features))
        self.x = self.watch(self.listeners, "x")
        self.y = self.watch(self.routes, "y")
        self.c = self.watch(self.clusters, "c")
        for resource_type, name in self.watched:
            self.send(resource_type, name)
        assert [each.take() for each in (self.x, self.y, self.c)] == [["v1"]] * 3
        self.restart()

    @property
    def watched(self) -> list[tuple[TextType, str]]:
        return [(self.listeners, "x"), (self.routes, "y"), (self.clusters, "c")]

    @property
    def is_delta(self) -> bool:
        return DELTA in self.bootstrap.servers[0].features

    def restart(self) -> None:
        self.server().ads.end()
        self.clock.advance(5)

    def send(self, resource_type: TextType, name: str, value: str = "v1") -> None:
        if self.is_delta:
            self.server().respond_delta(resource_type, (name, "1", text(name, value)))
        else:
            self.server().respond(resource_type, text(name, value))

    def delete(self, resource_type: TextType, name: str) -> None:
        if self.is_delta:
            self.server().respond_delta(resource_type, removed=[name])
        else:
            self.server().respond(resource_type)

    def delete_early(self) -> None:
        self.delete(self.clusters, "c")
        (early,) = self.c.take()
        assert isinstance(early, NoAnswer)
        assert early.code is StatusCode.NOT_FOUND

    def take_deletion(self) -> str:
        (final,) = self.c.take()
        assert type(final) is Status
        assert final.code is StatusCode.NOT_FOUND
        return final.details


VARIANTS = pytest.mark.parametrize("features", [(), (DELTA,)], ids=["state of the world", "delta"])


@pytest.mark.spec("HOLD-10")
@VARIANTS
def test_deletion_before_the_routes_of_a_new_stream_is_final_when_these_are_answered(
    features: tuple[str, ...],
) -> None:
    world = RestartWorld(*features)
    world.delete_early()
    world.send(world.listeners, "x")
    assert world.c.take() == []
    world.send(world.routes, "y")
    assert "deleted by xds server" in world.take_deletion()
    assert world.y.take() == []
    # It is reported once.
    world.send(world.routes, "y", "v2")
    world.clock.advance(100)
    assert world.c.take() == []
    world.close()


@pytest.mark.spec("HOLD-10")
@VARIANTS
def test_deletion_after_the_routes_of_a_new_stream_is_final(features: tuple[str, ...]) -> None:
    world = RestartWorld(*features)
    world.send(world.routes, "y", "v2")
    world.send(world.listeners, "x")
    world.delete(world.clusters, "c")
    assert "deleted by xds server" in world.take_deletion()
    world.close()


@pytest.mark.spec("HOLD-10")
def test_deletion_on_the_first_stream_is_final() -> None:
    world = XdsClientWorld()
    server = world.server()
    world.watch(world.routes, "y")
    c = world.watch(world.clusters, "c")
    server.respond(world.clusters, text("c"))
    server.respond(world.clusters)
    (_, deleted) = c.take()
    assert type(deleted) is Status
    world.close()


@pytest.mark.spec("HOLD-10")
@VARIANTS
def test_deletion_before_the_routes_is_final_15_s_after_the_first_response(
    features: tuple[str, ...],
) -> None:
    world = RestartWorld(*features)
    world.delete_early()
    world.clock.advance(5)
    # Another response does not make it longer.
    world.delete(world.clusters, "c")
    world.c.take()
    world.clock.advance(9.9)
    assert world.c.take() == []
    world.clock.advance(0.1)
    assert "deleted by xds server" in world.take_deletion()
    world.send(world.listeners, "x")
    world.send(world.routes, "y")
    assert world.c.take() == []
    world.close()


@pytest.mark.spec("HOLD-10")
@VARIANTS
def test_deletion_later_than_15_s_after_the_first_response_is_final(
    features: tuple[str, ...],
) -> None:
    world = RestartWorld(*features)
    world.send(world.clusters, "c", "v2")
    world.clock.advance(15)
    assert world.c.take() == ["v2"]
    # An incremental server does not send unchanged listeners and routes again.
    world.delete(world.clusters, "c")
    assert "deleted by xds server" in world.take_deletion()
    world.close()


@pytest.mark.spec("HOLD-10")
def test_early_deletion_waits_while_the_host_of_the_server_is_gone() -> None:
    world = RestartWorld()
    world.delete_early()
    world.server().ads.is_alive = False
    world.clock.advance(100)
    assert world.c.take() == []
    world.server().ads.is_alive = True
    world.restart()
    world.delete(world.clusters, "c")
    assert world.c.take() == []
    world.clock.advance(15)
    assert "deleted by xds server" in world.take_deletion()
    world.close()


def test_time_that_an_early_deletion_waits_is_shown() -> None:
    world = RestartWorld()
    world.delete_early()
    world.clock.advance(5)
    key = (world.clusters.type_url, "c")
    (view,) = world.client.servers()
    assert view.waits[key] == pytest.approx(10.0)
    # The host has not answered the PING yet.
    world.server().ads.is_alive = False
    world.clock.advance(10)
    (view,) = world.client.servers()
    assert view.waits[key] == 0.0
    world.close()


@pytest.mark.spec("HOLD-10")
def test_early_deletion_waits_while_a_response_is_under_way() -> None:
    world = RestartWorld()
    world.delete_early()
    world.server().ads.is_receiving = True
    world.clock.advance(20)
    assert world.c.take() == []
    world.server().ads.is_receiving = False
    world.send(world.listeners, "x")
    world.send(world.routes, "y", "v2")
    assert "deleted by xds server" in world.take_deletion()
    world.close()


@pytest.mark.spec("HOLD-10")
def test_deletion_in_a_first_response_whose_stream_ends_is_early() -> None:
    world = RestartWorld()
    server, clock = world.server(), world.clock
    # So many that they are decided in several turns.
    others = [text(f"other-{number}", "v" * 100) for number in range(1000)]
    server.ads.send_to_client(server.response(world.clusters, others, "2", None))
    clock.call_later(0, server.ads.end)
    clock.advance(1)
    (early,) = world.c.take()
    assert isinstance(early, NoAnswer)
    clock.advance(5)
    world.send(world.clusters, "c")
    assert world.c.take() == ["v1"]
    world.close()


@pytest.mark.spec("HOLD-10")
def test_deletion_that_ends_after_the_next_stream_has_begun_becomes_final() -> None:
    world = RestartWorld()
    server, clock = world.server(), world.clock
    # So that the next stream is opened at once.
    clock.advance(3)
    others = [text(f"other-{number}", "v" * 100) for number in range(4000)]
    server.ads.send_to_client(server.response(world.clusters, others, "2", None))
    clock.call_later(0, server.ads.end)
    clock.advance(1)
    (early,) = world.c.take()
    assert isinstance(early, NoAnswer)
    # The server does not send clusters again.
    world.send(world.listeners, "x")
    world.send(world.routes, "y")
    clock.advance(15.1)
    assert "not sent by xds server" in world.take_deletion()
    world.close()


@pytest.mark.spec("HOLD-10")
def test_route_configuration_waits_for_listeners_only() -> None:
    world = XdsClientWorld(server_config("a", DELTA))
    server = world.server()
    names = [
        (world.listeners, "x"),
        (world.routes, "y"),
        (world.routes, "z"),
        (world.clusters, "c"),
    ]
    _, y, *_ = [world.watch(resource_type, name) for resource_type, name in names]
    for resource_type, name in names:
        server.respond_delta(resource_type, (name, "1", text(name)))
    assert y.take() == ["v1"]
    server.ads.end()
    world.clock.advance(5)
    server.respond_delta(world.listeners, ("x", "1", text("x")))
    server.respond_delta(world.routes, removed=["y"])
    (final,) = y.take()
    assert type(final) is Status
    world.close()


@pytest.mark.spec("HOLD-10")
@VARIANTS
def test_cluster_that_comes_after_its_early_deletion_is_in_use(features: tuple[str, ...]) -> None:
    world = RestartWorld(*features)
    world.delete_early()
    world.send(world.clusters, "c")
    assert world.c.take() == ["v1"]
    world.send(world.listeners, "x")
    world.send(world.routes, "y")
    world.clock.advance(100)
    assert world.c.take() == []
    world.close()


@pytest.mark.spec("HOLD-10")
@pytest.mark.parametrize("is_lost", [False, True], ids=["restart", "outage"])
def test_early_deletion_waits_on_the_next_stream_as_well(is_lost: bool) -> None:
    world = RestartWorld()
    world.delete_early()
    world.server().is_up = not is_lost
    world.restart()
    if is_lost:
        world.server().fail()
        world.clock.advance(100)
        world.server().recover()
        world.settle()
    world.send(world.listeners, "x")
    world.send(world.routes, "y")
    assert world.c.take() == []
    world.delete(world.clusters, "c")
    assert "deleted by xds server" in world.take_deletion()
    world.close()


@pytest.mark.spec("HOLD-10")
def test_cluster_that_was_never_sent_is_not_known_as_early() -> None:
    """The newest routes named it when the control plane went away."""
    world = RestartWorld(DELTA)
    new = world.watch(world.clusters, "new")
    world.delete(world.clusters, "new")
    (early,) = new.take()
    assert isinstance(early, EarlyDeletion)
    assert early.details == (
        'cluster "new": does not exist (not known by xds server "a", which has not sent listeners '
        'and routes again yet) (node id "edge-7")'
    )
    world.send(world.listeners, "x")
    world.send(world.routes, "y")
    (final,) = new.take()
    assert type(final) is Status
    world.close()


@pytest.mark.spec("HOLD-10")
@VARIANTS
def test_deletion_by_a_fallback_server_waits_for_its_routes(features: tuple[str, ...]) -> None:
    servers = [server_config("a", *features), server_config("b", *features)]
    world = XdsClientWorld(*servers)
    first, second = world.server("a"), world.server("b")
    keys = ((world.listeners, "x"), (world.routes, "y"), (world.clusters, "c"))
    recorders = [world.watch(resource_type, name) for resource_type, name in keys]
    for resource_type, name in keys:
        if features:
            first.respond_delta(resource_type, (name, "1", text(name)))
        else:
            first.respond(resource_type, text(name))
    assert [each.take() for each in recorders] == [["v1"]] * 3
    # The next routes name a cluster that the first server does not send any more.
    world.watch(world.clusters, "new")
    first.is_up = False
    first.ads.end()
    first.fail()
    world.clock.advance(5)
    if features:
        second.respond_delta(world.clusters, removed=["c"])
    else:
        second.respond(world.clusters)
    (early,) = recorders[-1].take()
    assert isinstance(early, EarlyDeletion)
    world.close()


@pytest.mark.spec("HOLD-10")
def test_early_deletion_does_not_wait_for_routes_that_are_not_watched_any_more() -> None:
    world = XdsClientWorld()
    server = world.server()
    recorders = [WatchRecorder() for _ in range(4)]
    keys = [(world.listeners, "x"), (world.routes, "y"), (world.clusters, "c")]
    cancels = [
        world.client.watch(resource_type, name, recorder)
        for (resource_type, name), recorder in zip(keys, recorders, strict=False)
    ]
    world.settle()
    for resource_type, name in keys:
        server.respond(resource_type, text(name))
    server.ads.end()
    world.clock.advance(5)
    server.respond(world.clusters)
    recorders[2].take()
    server.respond(world.listeners, text("x", "v2"))
    cancels[1]()
    world.client.watch(world.routes, "z", recorders[3])
    world.settle()
    server.respond(world.routes, text("z"))
    (final,) = recorders[2].take()
    assert type(final) is Status
    # Nothing is left of a cluster whose watch ended.
    server.respond(world.clusters, text("c"))
    server.ads.end()
    world.clock.advance(5)
    server.respond(world.clusters)
    cancels[2]()
    world.settle()
    server.respond(world.listeners, text("x"))
    server.respond(world.routes, text("z"))
    world.close()


@pytest.mark.spec("HOLD-10")
def test_routes_in_force_keep_a_cluster_that_was_deleted_before_they_were_sent_again() -> None:
    world = start_plain("a", "b")
    before = list(world.events)
    world.publish_error(CDS, "a", EarlyDeletion(StatusCode.NOT_FOUND, "does not exist"))
    assert world.events == before
    # The clusters of the routes go on changing.
    world.publish(endpoints("a", "10.0.0.7:80"))
    assert addresses(world, "a") == ["10.0.0.7:80"]
    # The next routes do not need it.
    world.publish(route_config("b"))
    world.remove(CDS, "a")
    assert set(world.config.clusters) == {"b"}


@pytest.mark.spec("HOLD-10")
def test_routes_in_force_keep_endpoints_that_were_deleted_before_the_routes_were_sent_again() -> (
    None
):
    world = start_plain("a")
    before = list(world.events)
    early = EarlyDeletion(StatusCode.NOT_FOUND, "does not exist")
    world.publish_error(EDS, "a", early)
    world.publish_error(CDS, "a", early)
    assert world.events == before
    world.publish(route_config("b"), cluster("b"), endpoints("b", "10.0.0.2:80"))
    assert set(world.config.clusters) == {"b"}


@pytest.mark.spec("HOLD-10")
def test_routes_in_force_stay_when_they_are_deleted_before_the_listener_was_sent_again() -> None:
    world = start_plain("a")
    before = list(world.events)
    world.publish_error(RDS, "routes", EarlyDeletion(StatusCode.NOT_FOUND, "does not exist"))
    assert world.events == before
    world.publish(listener("other"), route_config("a", name="other"))
    assert world.config.route_config.name == "other"


@pytest.mark.spec("HOLD-10")
def test_deletion_is_final_for_routes_that_still_name_the_cluster() -> None:
    world = start_plain("a")
    world.publish_error(CDS, "a", EarlyDeletion(StatusCode.NOT_FOUND, "does not exist"))
    world.remove(CDS, "a")
    found = world.config.clusters["a"]
    assert isinstance(found, ClusterError)
    assert found.does_not_exist


@pytest.mark.spec("HOLD-07", "HOLD-10")
def test_early_deletion_is_final_at_once_when_the_hold_is_disabled() -> None:
    world = DependencyWorld(holds_config=False)
    world.publish(listener(), route_config("a"), cluster("a"), endpoints("a", "10.0.0.1:80"))
    world.publish_error(CDS, "a", EarlyDeletion(StatusCode.NOT_FOUND, "does not exist"))
    found = world.config.clusters["a"]
    assert isinstance(found, ClusterError)
    assert found.does_not_exist
