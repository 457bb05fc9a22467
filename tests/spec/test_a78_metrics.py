"""A78 and A89: metrics of xDS clients and policies, and locality labels of attempts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, Status, StatusCode
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.pick_first.config import CONNECTION_ATTEMPT_DELAY
from proxyless.metrics.instruments import (
    ATTEMPT_DURATION,
    ATTEMPT_RECEIVED,
    ATTEMPT_SENT,
    PICK_FIRST_ATTEMPTS_FAILED,
    PICK_FIRST_ATTEMPTS_SUCCEEDED,
    PICK_FIRST_DISCONNECTIONS,
    WRR_FALLBACK,
    WRR_NOT_YET_USABLE,
    WRR_STALE,
    WRR_WEIGHTS,
    XDS_CONNECTED,
    XDS_RESOURCES,
    XDS_SERVER_FAILURE,
    XDS_UPDATES_INVALID,
    XDS_UPDATES_VALID,
)
from proxyless.xds.bootstrap import IGNORE_RESOURCE_DELETION, Bootstrap, Node
from proxyless.xds.client import XdsClients
from proxyless.xds.client.pool import SHARED_TARGET
from tests.worlds.endpoint_weights import NO_BLACKOUT, WeightedWorld
from tests.worlds.meshes import MeshWorld
from tests.worlds.policies import CONNECTING, READY, PolicyWorld
from tests.worlds.stats_plugins import TARGET, RecordingPlugin
from tests.worlds.xds_clients import (
    FakeXdsTransports,
    WatchRecorder,
    XdsClientWorld,
    server_config,
    text,
)
from tests.worlds.xds_resources import (
    aggregate,
    cluster,
    endpoints,
    locality,
    prioritized,
    route_config,
)

LISTENER = "test.v3.Listener"
ROUTES = "test.v3.RouteConfiguration"


@pytest.fixture
def plugin() -> RecordingPlugin:
    return RecordingPlugin()


# ---------------------------------------------------------------------------------------------
# The xDS client


@pytest.fixture
def client(plugin: RecordingPlugin) -> XdsClientWorld:
    return XdsClientWorld(metrics=plugin.metrics)


@pytest.mark.spec("A78-01")
def test_connected_gauge_is_1_until_the_server_fails_and_again_after_its_first_response(
    client: XdsClientWorld, plugin: RecordingPlugin
) -> None:
    client.watch(client.listeners, "x")
    # "this will be set to 1 when the stream is initially created"
    assert plugin.gauges(XDS_CONNECTED) == {(TARGET, "a"): 1}
    client.server().fail()
    assert plugin.gauges(XDS_CONNECTED) == {(TARGET, "a"): 0}
    client.server().recover()
    client.settle()
    # "Once set to 0, it will be reset to 1 when we receive the first response"
    assert plugin.gauges(XDS_CONNECTED) == {(TARGET, "a"): 0}
    client.clock.advance(10)
    client.server().respond(client.listeners, text("x"))
    assert plugin.gauges(XDS_CONNECTED) == {(TARGET, "a"): 1}
    client.close()
    assert plugin.gauges(XDS_CONNECTED) == {}


@pytest.mark.spec("A78-02")
def test_a_failure_is_counted_when_a_server_goes_from_healthy_to_unhealthy(
    client: XdsClientWorld, plugin: RecordingPlugin
) -> None:
    client.watch(client.listeners, "x")
    failed = (TARGET, "a")
    for _ in range(3):
        client.server().fail()
    client.clock.advance(3_600)
    assert plugin.counts(XDS_SERVER_FAILURE) == {failed: 1}
    client.server().recover()
    client.clock.advance(200)
    client.server().respond(client.listeners, text("x"))
    # A stream that ends without a response is a failure; one that ends after a response is not.
    client.server().ads.end(Status(StatusCode.UNAVAILABLE, "restart"))
    client.settle()
    assert plugin.counts(XDS_SERVER_FAILURE) == {failed: 1}
    client.clock.advance(200)
    client.server().ads.end(Status(StatusCode.UNAVAILABLE, "restart"))
    client.settle()
    assert plugin.counts(XDS_SERVER_FAILURE) == {failed: 2}
    assert plugin.gauges(XDS_CONNECTED) == {failed: 0}
    client.close()


@pytest.mark.spec("A78-03", "A78-04")
def test_valid_and_invalid_resources_are_counted_changed_or_not(
    client: XdsClientWorld, plugin: RecordingPlugin
) -> None:
    for name in ("x", "y", "z"):
        client.watch(client.listeners, name)
    client.watch(client.routes, "r")
    server = client.server()
    server.respond(client.listeners, text("x"), text("y"), text("z", "bad"))
    server.respond(client.listeners, text("x"), text("y"), text("z", "bad"), version="2")
    server.respond(client.routes, text("r"))
    assert plugin.counts(XDS_UPDATES_VALID) == {
        (TARGET, "a", LISTENER): 4,
        (TARGET, "a", ROUTES): 1,
    }
    assert plugin.counts(XDS_UPDATES_INVALID) == {(TARGET, "a", LISTENER): 2}
    client.close()


@pytest.mark.spec("A78-05")
def test_resources_are_counted_by_authority_state_and_type(plugin: RecordingPlugin) -> None:
    world = XdsClientWorld(server_config("a", IGNORE_RESOURCE_DELETION), metrics=plugin.metrics)
    for name in ("fresh", "good", "bad", "worse", "gone"):
        world.watch(world.listeners, name)
    world.watch(world.routes, "r")
    server = world.server()
    server.respond(world.listeners, text("good"), text("worse"), text("bad", "bad"), text("gone"))
    server.respond(world.listeners, text("good"), text("worse", "bad"), version="2")
    states = {labels[1:3]: number for labels, number in plugin.gauges(XDS_RESOURCES).items()}
    assert all(labels[0] == TARGET for labels in plugin.gauges(XDS_RESOURCES))
    assert plugin.gauges(XDS_RESOURCES)[TARGET, "#old", "requested", ROUTES] == 1
    assert states["#old", "acked"] == 1
    assert states["#old", "nacked"] == 1
    assert states["#old", "nacked_but_cached"] == 1
    assert states["#old", "does_not_exist_but_cached"] == 1
    world.clock.advance(15)
    assert plugin.gauges(XDS_RESOURCES)[TARGET, "#old", "does_not_exist", ROUTES] == 1
    world.close()
    assert plugin.gauges(XDS_RESOURCES) == {}


@pytest.mark.spec("A78-06")
def test_shared_client_is_measured_by_the_plugins_of_its_first_channel(
    plugin: RecordingPlugin,
) -> None:
    world = XdsClientWorld()
    later = RecordingPlugin()
    clients = XdsClients(FakeXdsTransports(world.clock), world.tools)
    bootstrap = Bootstrap(servers=(server_config(),), node=Node("edge-7"))
    first = clients.acquire(bootstrap, TARGET, metrics=plugin.metrics)
    assert clients.acquire(bootstrap, TARGET, metrics=later.metrics) is first
    first.watch(world.listeners, "x", WatchRecorder())
    assert plugin.gauges(XDS_CONNECTED) == {(TARGET, "a"): 1}
    assert later.gauges(XDS_CONNECTED) == {}
    clients.close()
    world.close()


def test_target_label_is_the_shared_one_when_several_targets_share_a_client(
    plugin: RecordingPlugin,
) -> None:
    world = XdsClientWorld()
    clients = XdsClients(FakeXdsTransports(world.clock), world.tools)
    bootstrap = Bootstrap(servers=(server_config(),), node=Node("edge-7"))
    shared = clients.acquire(bootstrap, TARGET, shared=True, metrics=plugin.metrics)
    shared.watch(world.listeners, "x", WatchRecorder())
    assert plugin.gauges(XDS_CONNECTED) == {(SHARED_TARGET, "a"): 1}
    clients.close()
    world.close()


# ---------------------------------------------------------------------------------------------
# Labels of attempts

HERE = '{region="", zone="a", sub_zone=""}'
THERE = '{region="", zone="b", sub_zone=""}'
OF_ATTEMPTS = (ATTEMPT_DURATION, ATTEMPT_SENT, ATTEMPT_RECEIVED)


@pytest.fixture
def mesh(plugin: RecordingPlugin) -> MeshWorld:
    return MeshWorld(metrics=plugin.metrics)


def expect_labels(plugin: RecordingPlugin, *expected: tuple[str, str, str]) -> None:
    """Status, locality and backend service of every attempt that ended, in order."""
    for instrument in OF_ATTEMPTS:
        assert [labels[2:-1] for labels, _ in plugin.values(instrument)] == list(expected)


@pytest.mark.spec("A78-16", "A89-01")
def test_attempt_has_the_labels_of_its_locality_and_cluster(
    mesh: MeshWorld, plugin: RecordingPlugin
) -> None:
    mesh.start(
        route_config("one"),
        cluster("one"),
        prioritized("one", [locality("a", "10.0.0.1:80")], [locality("b", "10.0.0.2:80")]),
    )
    assert mesh.send_rpc() == "10.0.0.1:80"
    mesh.backend("10.0.0.1:80").down()
    mesh.clock.advance(20)
    assert mesh.send_rpc() == "10.0.0.2:80"
    expect_labels(plugin, ("OK", HERE, "one"), ("OK", THERE, "one"))


@pytest.mark.spec("A89-03")
def test_backend_service_is_the_leaf_when_the_cluster_is_an_aggregate(
    mesh: MeshWorld, plugin: RecordingPlugin
) -> None:
    mesh.start(
        route_config("top"),
        aggregate("top", "x", "y"),
        cluster("x"),
        cluster("y"),
        endpoints("x", "10.0.0.1:80"),
        endpoints("y", "10.0.0.2:80"),
    )
    assert mesh.send_rpc() == "10.0.0.1:80"
    mesh.backend("10.0.0.1:80").down()
    mesh.clock.advance(20)
    assert mesh.send_rpc() == "10.0.0.2:80"
    expect_labels(plugin, ("OK", HERE, "x"), ("OK", HERE, "y"))


@pytest.mark.spec("A78-16", "A89-02")
def test_failed_rpc_has_the_backend_service_of_its_cluster(
    mesh: MeshWorld, plugin: RecordingPlugin
) -> None:
    mesh.backend("10.0.0.1:80").is_up = False
    mesh.start(route_config("one"), cluster("one"), endpoints("one", "10.0.0.1:80"))
    mesh.clock.advance(20)
    _, observer = mesh.call()
    assert observer.status.code is StatusCode.UNAVAILABLE
    expect_labels(plugin, ("UNAVAILABLE", "", "one"))


@pytest.mark.spec("A78-16", "A89-02")
def test_rpc_that_waits_until_its_deadline_has_the_backend_service(
    mesh: MeshWorld, plugin: RecordingPlugin
) -> None:
    mesh.backend("10.0.0.1:80").is_up = False
    mesh.start(route_config("one"), cluster("one"), endpoints("one", "10.0.0.1:80"))
    mesh.clock.advance(20)
    mesh.call(timeout_s=5.0, wait_for_ready=True)
    mesh.clock.advance(5)
    expect_labels(plugin, ("DEADLINE_EXCEEDED", "", "one"))


# ---------------------------------------------------------------------------------------------
# pick_first


@pytest.fixture
def first(plugin: RecordingPlugin) -> PolicyWorld:
    world = PolicyWorld(PickFirstFactory())
    world.helper.context = replace(world.context, metrics=plugin.metrics)
    return world


def attempts_of(plugin: RecordingPlugin) -> tuple[int, int, int]:
    """Connection attempts that succeeded, that failed, and disconnections."""
    for instrument in PICK_FIRST:
        assert set(plugin.counts(instrument)) <= {(TARGET,)}
    succeeded, failed, lost = (plugin.count_of(each) for each in PICK_FIRST)
    return succeeded, failed, lost


PICK_FIRST = (PICK_FIRST_ATTEMPTS_SUCCEEDED, PICK_FIRST_ATTEMPTS_FAILED, PICK_FIRST_DISCONNECTIONS)


@pytest.mark.spec("A78-12", "A78-13", "A78-14")
def test_pick_first_counts_attempts_and_disconnections(
    first: PolicyWorld, plugin: RecordingPlugin
) -> None:
    first.update("a", "b")
    first["a"].connecting()
    assert attempts_of(plugin) == (0, 0, 0)
    first["a"].fail()
    first["b"].connecting()
    assert attempts_of(plugin) == (0, 1, 0)
    first["b"].ready()
    assert attempts_of(plugin) == (1, 1, 0)
    first["b"].idle()
    assert attempts_of(plugin) == (1, 1, 1)


@pytest.mark.spec("A78-15")
def test_only_the_successful_attempt_is_counted_when_two_run_at_once(
    first: PolicyWorld, plugin: RecordingPlugin
) -> None:
    first.update("a", "b", attributes=EMPTY_ATTRIBUTES.with_(CONNECTION_ATTEMPT_DELAY, 0.25))
    a = first["a"]
    a.connecting()
    first.advance(0.25)
    b = first["b"]
    b.connecting()
    a.ready()
    assert attempts_of(plugin) == (1, 0, 0)
    assert first.subchannels == [a]


def test_failure_is_counted_only_after_connecting(
    first: PolicyWorld, plugin: RecordingPlugin
) -> None:
    first.share("a", CONNECTING)
    first.update("a", "b")
    # It was never reported as CONNECTING: the attempt was over before.
    first["b"].fail()
    assert attempts_of(plugin) == (0, 0, 0)
    first["a"].ready()
    assert attempts_of(plugin) == (1, 0, 0)


@pytest.mark.spec("A78-12")
def test_attempt_for_another_policy_is_not_counted_when_it_succeeds_before_its_turn(
    first: PolicyWorld, plugin: RecordingPlugin
) -> None:
    first.update("a", "b")
    first["b"].connecting()
    first["b"].ready()
    assert attempts_of(plugin) == (0, 0, 0)
    first["a"].connecting()
    first["a"].fail()
    first.expect_pick("b")
    assert attempts_of(plugin) == (0, 1, 0)


@pytest.mark.spec("A78-14", "A78-15")
def test_shared_connection_that_is_ready_is_not_counted_as_an_attempt(
    first: PolicyWorld, plugin: RecordingPlugin
) -> None:
    first.share("a", READY)
    first.update("a")
    first.expect_pick("a")
    assert attempts_of(plugin) == (0, 0, 0)
    first["a"].idle()
    assert attempts_of(plugin) == (0, 0, 1)


# ---------------------------------------------------------------------------------------------
# weighted_round_robin


@pytest.fixture
def weighted(plugin: RecordingPlugin) -> WeightedWorld:
    world = WeightedWorld()
    world.helper.context = replace(world.context, metrics=plugin.metrics)
    return world


LABELS = (TARGET, "", "")


def reset(plugin: RecordingPlugin) -> None:
    """Reset all measurements."""
    plugin.__init__()  # type: ignore[misc]


def weights_of(plugin: RecordingPlugin) -> tuple[list[float], int, int, int]:
    """Weights; endpoints not yet usable; endpoints with a stale weight; fallbacks."""
    weights = sorted(value for _, value in plugin.values(WRR_WEIGHTS))
    kinds = (WRR_NOT_YET_USABLE, WRR_STALE, WRR_FALLBACK)
    not_yet, stale, fallbacks = (plugin.count_of(each) for each in kinds)
    return weights, not_yet, stale, fallbacks


@pytest.mark.spec("A78-07", "A78-08", "A78-09")
def test_weights_are_recorded_with_every_update(
    weighted: WeightedWorld, plugin: RecordingPlugin
) -> None:
    weighted.start("a", "b", "c", config=NO_BLACKOUT)
    reset(plugin)
    weighted.advance(1)
    assert weights_of(plugin) == ([0, 0, 0], 3, 0, 1)
    weighted.weigh(a=1, b=2)
    reset(plugin)
    weighted.advance(1)
    assert weights_of(plugin) == ([0, 1, 2], 1, 0, 0)
    assert {labels for labels, _ in plugin.values(WRR_WEIGHTS)} == {LABELS}


@pytest.mark.spec("A78-08", "A78-09", "A78-10")
def test_a_weight_within_the_blackout_is_not_yet_usable_and_an_old_one_is_stale(
    weighted: WeightedWorld, plugin: RecordingPlugin
) -> None:
    weighted.start("a", "b", config={"blackoutPeriod": "10s", "weightExpirationPeriod": "60s"})
    weighted.weigh(a=1, b=2)
    reset(plugin)
    weighted.advance(1)
    assert weights_of(plugin) == ([0, 0], 2, 0, 1)
    weighted.advance(9)
    reset(plugin)
    weighted.advance(1)
    assert weights_of(plugin) == ([1, 2], 0, 0, 0)
    weighted.advance(60)
    reset(plugin)
    weighted.advance(1)
    assert weights_of(plugin) == ([0, 0], 0, 2, 1)


@pytest.mark.spec("A78-08")
def test_single_endpoint_is_counted_as_a_fallback(
    weighted: WeightedWorld, plugin: RecordingPlugin
) -> None:
    weighted.start("a", config=NO_BLACKOUT)
    assert weights_of(plugin) == ([0], 1, 0, 1)


@pytest.mark.spec("A78-11", "A89-04")
def test_weights_have_the_labels_of_locality_and_cluster(
    mesh: MeshWorld, plugin: RecordingPlugin
) -> None:
    weighted: dict[str, object] = {"weighted_round_robin": {}}
    by_locality = ({"xds_wrr_locality_experimental": {"childPolicy": [weighted]}},)
    mesh.start(
        route_config("one"),
        cluster("one", lb_config=by_locality),
        prioritized("one", [locality("a", "10.0.0.1:80"), locality("b", "10.0.0.2:80")]),
    )
    found = {labels for labels, _ in plugin.values(WRR_WEIGHTS)}
    assert found == {(TARGET, HERE, "one"), (TARGET, THERE, "one")}
    for instrument in (WRR_NOT_YET_USABLE, WRR_FALLBACK):
        assert set(plugin.counts(instrument)) == found
