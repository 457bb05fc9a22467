"""XdsClient: ADS and LRS streams, checked by requests of servers and notifications of watchers.

Specs: A27, A30, A46, A47, A53, A57, A71, A88, LRS.
"""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from proxyless.base import OK, Locality, Status, StatusCode
from proxyless.protos import message_class
from proxyless.xds.bootstrap import (
    DELTA,
    FAIL_ON_DATA_ERRORS,
    IGNORE_RESOURCE_DELETION,
    RESOURCE_TIMER_IS_TRANSIENT_ERROR,
    Authority,
    Bootstrap,
    Node,
    load_bootstrap,
)
from proxyless.xds.client import Cancel, DecodeContext, Decoded, ResourceStatus, XdsClients
from proxyless.xds.client.api import NoAnswer
from proxyless.xds.client.codec import ADS_PATH
from proxyless.xds.parsing import (
    ClusterType,
    EndpointType,
    ListenerType,
    RouteConfigurationType,
)
from tests.worlds.xds_clients import (
    GONE,
    DiscoveryResponse,
    FakeXdsTransports,
    LoadStatsResponse,
    TextType,
    WatchRecorder,
    XdsClientWorld,
    server_config,
    text,
)

AMBIENT = "ambient"


def names_of(requests: list[object]) -> list[list[str]]:
    return [list(request.resource_names) for request in requests]  # type: ignore[attr-defined]


# ---------------------------------------------------------------------------------------------
# Requests


@pytest.mark.spec("A30-01")
def test_only_v3_is_used_whatever_the_server_features() -> None:
    for features in ([], ["xds_v3"]):
        server = {
            "server_uri": "a",
            "channel_creds": [{"type": "insecure"}],
            "server_features": features,
        }
        bootstrap = load_bootstrap({"xds_servers": [server]}, {})
        assert isinstance(bootstrap, Bootstrap)
        world = XdsClientWorld(bootstrap=bootstrap)
        for kind in (ListenerType, RouteConfigurationType, ClusterType, EndpointType):
            named = TextType()
            named.type_url = kind.type_url
            world.watch(named, "x")
        assert world.server().ads.path.startswith("/envoy.service.discovery.v3.")
        type_urls = [request.type_url for request in world.server().take_requests()]
        assert len(type_urls) == 4
        assert all(".v3." in type_url and "api.v2" not in type_url for type_url in type_urls)
        world.close()


@pytest.mark.spec("A27-05", "A27-33")
def test_node_is_sent_only_with_the_first_request_of_each_stream() -> None:
    node = Node("edge-7", "edge", Locality("r", "z", "s"), {"a": [1, {"b": None}], "c": True})
    world = XdsClientWorld(bootstrap=Bootstrap(servers=(server_config(),), node=node))
    world.watch(world.listeners, "x")
    world.watch(world.routes, "r")
    assert (
        world.server().ads.path
        == ADS_PATH
        == ("/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources")
    )
    first, second = world.server().take_requests()
    assert (first.node.id, first.node.cluster) == ("edge-7", "edge")
    assert (first.node.locality.region, first.node.locality.sub_zone) == ("r", "s")
    assert json.loads(json.dumps(dict(first.node.metadata)["c"])) is True
    assert first.node.metadata["a"][1]["b"] is None
    assert first.node.user_agent_name == "proxyless"
    assert first.node.user_agent_version
    assert not second.HasField("node")
    world.server().respond(world.listeners, text("x"))
    assert not any(request.HasField("node") for request in world.server().take_requests())
    world.server().ads.end()
    world.clock.advance(2)
    again = world.server().take_requests()
    assert [request.HasField("node") for request in again] == [True, False]
    world.close()


@pytest.mark.spec("A27-06", "A27-34")
def test_client_features_are_sent_and_wrapped_resources_are_unwrapped() -> None:
    world = XdsClientWorld()
    watcher = world.watch(world.listeners, "x")
    (request,) = world.server().take_requests()
    assert set(request.node.client_features) == {
        "envoy.lb.does_not_support_overprovisioning",
        "xds.config.resource-in-sotw",
    }
    world.server().respond(world.listeners, text("x"), wrapped=True)
    assert watcher.take() == ["v1"]
    assert not world.server().take_requests()[0].HasField("error_detail")
    world.close()


@pytest.mark.spec("A27-07", "A27-35")
def test_version_is_kept_on_a_new_stream_and_the_nonce_is_not() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.watch(world.listeners, "y")
    world.watch(world.routes, "r")
    server = world.server()
    server.take_requests()
    server.respond(world.listeners, text("x"), text("y"), version="7", nonce="abc")
    (ack,) = server.take_requests()
    assert (ack.version_info, ack.response_nonce) == ("7", "abc")
    assert list(ack.resource_names) == ["x", "y"]
    # The other type has its own version and nonce.
    server.respond(world.routes, text("r"), version="2", nonce="def")
    (ack,) = server.take_requests()
    assert (ack.version_info, ack.response_nonce) == ("2", "def")
    # After a NACK the version stays, and the nonce is that of the refused response.
    server.respond(world.routes, text("r", "bad"), version="3", nonce="ghi")
    (nack,) = server.take_requests()
    assert (nack.version_info, nack.response_nonce) == ("2", "ghi")
    # A new name: all names, the accepted version, the last nonce.
    world.watch(world.routes, "s")
    (more,) = server.take_requests()
    assert (more.version_info, more.response_nonce) == ("2", "ghi")
    assert list(more.resource_names) == ["r", "s"]
    server.ads.end()
    world.clock.advance(2)
    requests = server.take_requests()
    assert [(each.version_info, each.response_nonce) for each in requests] == [("7", ""), ("2", "")]
    assert names_of(requests) == [["x", "y"], ["r", "s"]]
    world.close()


def test_watches_started_together_are_one_request() -> None:
    world = XdsClientWorld()
    for index in range(100):
        world.client.watch(world.listeners, f"x{index}", WatchRecorder())
    world.settle()
    assert [len(names) for names in names_of(world.server().take_requests())] == [100]
    world.close()


@pytest.mark.spec("A27-12", "A27-39")
def test_cancelled_watch_is_unsubscribed_and_the_last_one_closes_the_stream() -> None:
    world = XdsClientWorld()
    cancel_x = world.client.watch(world.listeners, "x", WatchRecorder())
    cancel_y = world.client.watch(world.listeners, "y", WatchRecorder())
    world.settle()
    world.server().respond(world.listeners, text("x"), text("y"))
    world.server().take_requests()
    cancel_x()
    world.settle()
    assert names_of(world.server().take_requests()) == [["y"]]
    assert [each.name for each in world.client.dump()] == ["y"]
    cancel_y()
    world.settle()
    assert world.server().open_ads == 0
    assert world.server().transports[0].is_closed
    # A later watch opens a new stream.
    watcher = world.watch(world.listeners, "y")
    assert watcher.take() == []
    assert world.server().open_ads == 1
    world.close()


@pytest.mark.spec("A27-40")
def test_watch_gets_no_cached_resource_when_the_unsubscribe_was_sent() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "y")
    world.client.watch(world.listeners, "x", WatchRecorder())()
    cancel = world.client.watch(world.listeners, "x", WatchRecorder())
    world.settle()
    world.server().respond(world.listeners, text("x"), text("y"))
    cancel()
    world.settle()
    watcher = world.watch(world.listeners, "x")
    assert watcher.take() == []
    world.server().respond(world.listeners, text("x"), text("y"), version="2")
    assert watcher.take() == ["v1"]
    world.close()


@pytest.mark.spec("A27-40")
def test_watch_gets_the_cached_resource_when_the_unsubscribe_was_not_sent() -> None:
    world = XdsClientWorld()
    cancel = world.client.watch(world.listeners, "x", WatchRecorder())
    world.settle()
    world.server().respond(world.listeners, text("x"))
    world.server().take_requests()
    cancel()
    watcher = WatchRecorder()
    world.client.watch(world.listeners, "x", watcher)
    world.settle()
    assert watcher.take() == ["v1"]
    assert world.server().take_requests() == []
    assert world.server().open_ads == 1
    world.close()


def test_request_has_no_names_when_the_last_watch_of_its_type_is_cancelled() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    cancel = world.client.watch(world.routes, "r", WatchRecorder())
    world.settle()
    world.server().take_requests()
    cancel()
    world.settle()
    (request,) = world.server().take_requests()
    assert (request.type_url, list(request.resource_names)) == (world.routes.type_url, [])
    # On a new stream a request without names would be a wildcard subscription.
    world.server().ads.end(GONE)
    world.clock.advance(5)
    assert names_of(world.server().take_requests()) == [["x"]]
    world.close()


# ---------------------------------------------------------------------------------------------
# Responses


@pytest.mark.spec("A27-08", "A27-36", "A27-37")
def test_watchers_share_a_subscription_and_late_ones_get_the_cached_resource() -> None:
    world = XdsClientWorld()
    first = world.watch(world.listeners, "x")
    world.server().take_requests()
    world.server().respond(world.listeners, text("x"), text("not requested"))
    assert first.take() == ["v1"]
    world.server().take_requests()
    late = WatchRecorder()
    world.client.watch(world.listeners, "x", late)
    assert late.take() == [], "no watcher is called inside watch"
    world.settle()
    assert late.take() == ["v1"]
    assert world.server().take_requests() == []
    assert [each.name for each in world.client.dump()] == ["x"]
    world.close()


@pytest.mark.spec("A27-08")
def test_watcher_is_notified_when_a_resource_sent_before_its_watch_is_sent_again() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"), text("y"))
    world.server().respond(world.listeners, text("x"), text("y"), version="2")
    assert world.listeners.decoded == 2
    y = world.watch(world.listeners, "y")
    assert y.take() == []
    world.server().respond(world.listeners, text("x"), text("y"), version="3")
    assert y.take() == ["v1"]
    world.close()


def test_watcher_is_not_called_after_cancel_even_if_its_notification_is_queued() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    late = WatchRecorder()
    cancel = world.client.watch(world.listeners, "x", late)
    cancel()
    cancel()
    world.settle()
    world.server().respond(world.listeners, text("x", "v2"))
    assert late.take() == []
    world.close()


def test_watcher_may_cancel_itself_and_others_while_it_is_notified() -> None:
    world = XdsClientWorld()
    cancels: list[Cancel] = []
    others = WatchRecorder()
    first = WatchRecorder(on_notification=lambda: [cancel() for cancel in cancels])  # type: ignore[arg-type]
    cancels.append(world.client.watch(world.listeners, "x", first))
    cancels.append(world.client.watch(world.listeners, "x", others))
    world.settle()
    world.server().respond(world.listeners, text("x"))
    assert (first.take(), others.take()) == (["v1"], [])
    assert world.server().open_ads == 0
    world.close()


@pytest.mark.spec("A27-09", "A27-38")
def test_resource_is_deleted_when_a_full_state_response_lacks_it() -> None:
    world = XdsClientWorld()
    x, y = world.watch(world.listeners, "x"), world.watch(world.listeners, "y")
    world.server().respond(world.listeners, text("x"))
    assert (x.take(), y.take()) == (["v1"], [])
    world.server().respond(world.listeners, version="2")
    assert x.take_codes() == ["NOT_FOUND"]
    # It was never received, so its timer still runs.
    assert y.take() == []
    world.clock.advance(15)
    assert y.take_codes() == ["NOT_FOUND"]
    # It may return, even unchanged.
    world.server().respond(world.listeners, text("x"), version="3")
    assert x.take() == ["v1"]
    world.close()


@pytest.mark.spec("A27-10")
def test_resource_is_kept_when_a_response_of_a_partial_state_type_lacks_it() -> None:
    world = XdsClientWorld()
    r, s = world.watch(world.routes, "r"), world.watch(world.routes, "s")
    world.server().respond(world.routes, text("r"))
    world.server().respond(world.routes, text("s"))
    world.server().respond(world.routes)
    world.clock.advance(100)
    assert (r.take(), s.take()) == (["v1"], ["v1"])
    assert [each.status for each in world.client.dump()] == [ResourceStatus.ACKED] * 2
    world.close()


@pytest.mark.spec("A27-11")
def test_resource_is_neither_published_nor_decoded_when_it_is_sent_again_unchanged() -> None:
    world = XdsClientWorld()
    watcher = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"), version="1")
    world.server().respond(world.listeners, text("x"), version="2")
    # Other bytes, but an equal resource.
    world.server().respond(world.listeners, text("x") + b" ", version="3")
    assert watcher.take() == ["v1"]
    assert world.listeners.decoded == 2
    assert world.client.dump()[0].version == "3"
    world.close()


@pytest.mark.spec("A27-13")
def test_next_message_is_read_after_the_watchers_were_notified() -> None:
    world = XdsClientWorld()
    server = world.server()
    reads_seen = []
    watcher = WatchRecorder(on_notification=lambda: reads_seen.append(server.ads.reads))
    for name in ("x", "y"):
        world.client.watch(world.listeners, name, watcher)
    world.settle()
    server.ads.send_to_client(server.response(world.listeners, [text("x"), text("y")]))
    server.ads.send_to_client(server.response(world.listeners, [text("x", "v2"), text("y")], "2"))
    world.settle()
    assert watcher.take() == ["v1", "v1", "v2"]
    assert reads_seen == [0, 0, 0]
    assert server.ads.reads == 1
    world.close()


@pytest.mark.spec("A27-41")
def test_watcher_may_start_watches_while_it_is_notified() -> None:
    world = XdsClientWorld()
    more = WatchRecorder()
    cancels = []

    def watch_more() -> None:
        cancels.append(world.client.watch(world.routes, "r", more))

    world.client.watch(world.listeners, "x", WatchRecorder(on_notification=watch_more))
    world.settle()
    server = world.server()
    server.respond(world.listeners, text("x"))
    assert names_of(server.take_requests()) == [["x"], ["x"], ["r"]]
    server.respond(world.routes, text("r"))
    assert more.take() == ["v1"]
    world.close()


def test_stream_continues_when_a_watcher_raises(caplog: pytest.LogCaptureFixture) -> None:
    world = XdsClientWorld()

    def fail() -> None:
        raise RuntimeError("a bug")

    world.client.watch(world.listeners, "x", WatchRecorder(on_notification=fail))
    watcher = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.server().respond(world.listeners, text("x", "v2"))
    assert watcher.take() == ["v1", "v2"]
    assert "a bug" in caplog.text
    world.close()


@pytest.mark.spec("A27-14")
def test_malformed_and_unknown_responses_are_ignored() -> None:
    world = XdsClientWorld()
    watcher = world.watch(world.listeners, "x")
    server = world.server()
    server.take_requests()
    server.ads.send_to_client(b"\xff\xff\xff\xff")
    unknown = DiscoveryResponse(type_url="type.googleapis.com/no.such.Type", nonce="u")
    server.ads.send_to_client(unknown.SerializeToString())
    # A supported type that was not requested on this stream.
    server.ads.send_to_client(server.response(world.routes, [text("r")]))
    server.ads.send_to_client(b"")
    world.settle()
    assert server.take_requests() == []
    server.respond(world.listeners, text("x"))
    assert watcher.take() == ["v1"]
    assert server.open_ads == 1
    world.close()


@pytest.mark.spec("A27-14")
def test_response_of_a_type_not_requested_on_this_stream_is_ignored() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    cancel = world.client.watch(world.routes, "r", WatchRecorder())
    world.settle()
    server = world.server()
    server.respond(world.listeners, text("x"))
    cancel()
    world.settle()
    server.ads.end()
    world.clock.advance(2)
    server.take_requests()
    server.respond(world.routes, text("r"))
    assert server.take_requests() == []
    assert world.routes.decoded == 0
    world.close()


# ---------------------------------------------------------------------------------------------
# Bad resources


@pytest.mark.spec("A46-01", "A46-04")
def test_one_bad_resource_among_a_thousand_does_not_affect_the_others() -> None:
    world = XdsClientWorld()
    watchers = [world.watch(world.listeners, f"x{index}") for index in range(1000)]
    world.server().take_requests()
    resources = [text(f"x{index}", "bad" if index == 500 else "v1") for index in range(1000)]
    world.server().respond(world.listeners, *resources, version="9")
    (nack,) = world.server().take_requests()
    assert nack.version_info == "9"
    assert nack.error_detail.code == StatusCode.INVALID_ARGUMENT
    assert nack.error_detail.message == 'listener "x500": value is bad (node id "edge-7")'
    codes = [watcher.take_codes() for watcher in watchers]
    assert codes.pop(500) == ["INVALID_ARGUMENT"]
    assert codes == [["v1"]] * 999
    world.close()


@pytest.mark.spec("A46-03", "A46-04")
def test_nack_lists_all_errors_and_keeps_the_version_when_all_resources_are_bad() -> None:
    world = XdsClientWorld()
    x, y = world.watch(world.listeners, "x"), world.watch(world.listeners, "y")
    world.server().respond(world.listeners, text("x"), text("y"), version="1")
    world.server().take_requests()
    x.take(), y.take()
    world.server().respond(world.listeners, text("x", "bad"), text("y", "bad"), b"{", version="2")
    (nack,) = world.server().take_requests()
    assert nack.version_info == "1"
    assert nack.error_detail.message == (
        'listener "x": value is bad; listener "y": value is bad; listener: is not JSON'
        ' (node id "edge-7")'
    )
    world.close()


@pytest.mark.spec("A46-02")
def test_resource_in_use_is_kept_when_an_update_is_refused() -> None:
    world = XdsClientWorld()
    watcher = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.server().respond(world.listeners, text("x", "bad"), version="2")
    assert watcher.take_codes() == ["v1", (AMBIENT, "INVALID_ARGUMENT")]
    (dump,) = world.client.dump()
    assert (dump.status, dump.version, dump.failed_version) == (ResourceStatus.NACKED, "1", "2")
    assert dump.serialized == text("x")
    assert dump.error.details == 'listener "x": value is bad (node id "edge-7")'
    late = world.watch(world.listeners, "x")
    assert late.take_codes() == ["v1", (AMBIENT, "INVALID_ARGUMENT")]
    world.close()


@pytest.mark.spec("A46-05")
def test_refused_first_version_is_an_error_and_not_does_not_exist() -> None:
    world = XdsClientWorld()
    watcher = world.watch(world.listeners, "x")
    world.clock.advance(10)
    world.server().respond(world.listeners, text("x", "bad"))
    (status,) = watcher.take()
    assert status == Status(
        StatusCode.INVALID_ARGUMENT, 'listener "x": value is bad (node id "edge-7")'
    )
    world.clock.advance(100)
    assert watcher.take() == []
    world.server().respond(world.listeners, text("x"), version="2")
    assert watcher.take() == ["v1"]
    world.close()


def test_rejected_resource_is_published_once_and_not_decoded_when_it_is_sent_again() -> None:
    world = XdsClientWorld()
    watcher = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.server().take_requests()
    for version in ("2", "3"):
        world.server().respond(world.listeners, text("x", "bad"), version=version)
        (nack,) = world.server().take_requests()
        assert nack.error_detail.message == 'listener "x": value is bad (node id "edge-7")'
    assert world.listeners.decoded == 2
    # Back to the resource that is in use.
    world.server().respond(world.listeners, text("x"), version="4")
    assert watcher.take_codes() == ["v1", (AMBIENT, "INVALID_ARGUMENT"), (AMBIENT, "OK")]
    assert world.client.dump()[0].status is ResourceStatus.ACKED
    world.close()


@pytest.mark.spec("A53-01", "A53-02")
def test_deletions_are_ignored_when_the_server_has_ignore_resource_deletion(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = XdsClientWorld(server_config("a", IGNORE_RESOURCE_DELETION))
    watcher = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    watcher.take()
    for version in ("2", "3", "4"):
        world.server().respond(world.listeners, version=version)
    assert watcher.take_codes() == [(AMBIENT, "NOT_FOUND")]
    assert world.client.dump()[0].serialized == text("x")
    logged = [record for record in caplog.records if "deleted" in record.getMessage()]
    assert len(logged) == 1
    assert 'listener "x"' in logged[0].getMessage()
    world.server().respond(world.listeners, text("x"), version="5")
    assert watcher.take() == [(AMBIENT, OK)]
    world.close()


# ---------------------------------------------------------------------------------------------
# Errors of the server


@pytest.mark.spec("A57-01", "A57-05")
def test_stream_end_before_any_response_is_an_outage_with_growing_backoff() -> None:
    world = XdsClientWorld()
    server = world.server()
    watcher = world.watch(world.listeners, "x")
    started = []
    for _ in range(60):
        started.append(world.clock.now_s())
        server.ads.end(Status(StatusCode.UNAVAILABLE, "going down"))
        streams = len(server.streams)
        while len(server.streams) == streams:
            assert world.clock.advance_to_next()
    # The text changes rarely, because each change is delivered to every watcher.
    silences = ["does not answer"]
    silences += [f"has not answered for over {each}" for each in ("1 min", "10 min")]
    reason = "stream ended before any response: UNAVAILABLE: going down"
    assert [(status.code, status.details) for status in watcher.take()] == [
        (StatusCode.UNAVAILABLE, f'xds server "a": {silence}: {reason} (node id "edge-7")')
        for silence in silences
    ]
    base_s = 1.0
    for before, after in pairwise(started):
        assert 0.5 * base_s <= round(after - before, 6) <= 1.5 * base_s
        base_s = min(base_s * 1.6, 20.0)
    assert base_s == 20.0
    world.close()


@pytest.mark.spec("A57-06")
def test_stream_end_after_a_response_is_no_error_and_resets_the_backoff() -> None:
    world = XdsClientWorld()
    server = world.server()
    watcher = world.watch(world.listeners, "x")
    for _ in range(10):
        server.ads.end(GONE)
        while not server.open_ads:
            world.clock.advance_to_next()
    world.settle()
    watcher.take()
    server.respond(world.listeners, text("x"))
    assert watcher.take() == ["v1"]
    world.clock.advance(60)
    server.ads.end(GONE)
    assert watcher.take() == []
    # The stream was open for 60 s, so the next one starts without backoff.
    world.settle()
    assert server.open_ads == 1
    server.ads.end(GONE)
    world.clock.advance(1.2)
    assert server.open_ads == 1
    assert watcher.take_codes() == [(AMBIENT, "UNAVAILABLE")]
    world.close()


def test_stream_is_opened_once_per_second_when_the_server_ends_each_after_a_response() -> None:
    world = XdsClientWorld()
    server = world.server()
    watcher = world.watch(world.listeners, "x")
    started_s = world.clock.now_s()
    for _ in range(50):
        server.respond(world.listeners, text("x"))
        server.ads.end(GONE)
        while not server.open_ads:
            world.clock.advance_to_next()
        world.settle()
    # Fifty reconnects, and one notification.
    assert watcher.take() == ["v1"]
    assert 0.8 * 50 <= world.clock.now_s() - started_s <= 1.2 * 50
    assert len(server.streams) == 51
    world.close()


@pytest.mark.spec("A57-02", "A57-09")
def test_watchers_are_notified_with_the_cause_when_the_server_is_unreachable() -> None:
    world = XdsClientWorld()
    server = world.server()
    server.is_up = False
    x = world.watch(world.listeners, "x")
    server.fail(Status(StatusCode.UNAVAILABLE, "10.0.0.1:443: connection refused"))
    world.settle()
    (status,) = x.take()
    assert status == NoAnswer(
        StatusCode.UNAVAILABLE,
        'xds server "a": does not answer: 10.0.0.1:443: connection refused (node id "edge-7")',
    )
    # The stream waits for ready, so there is no second one.
    assert len(server.streams) == 1
    # A new watcher is notified of the same error at once.
    y = world.watch(world.listeners, "y")
    assert y.take() == [status]
    server.recover()
    world.settle()
    server.respond(world.listeners, text("x"), text("y"))
    assert (x.take(), y.take()) == (["v1"], ["v1"])
    server.fail()
    world.settle()
    assert x.take_codes() == [(AMBIENT, "UNAVAILABLE")]
    world.close()


@pytest.mark.spec("A57-03")
def test_resource_timer_runs_only_on_a_connected_stream() -> None:
    world = XdsClientWorld()
    server = world.server()
    server.is_up = False
    watcher = world.watch(world.listeners, "x")
    world.clock.advance(1000)
    assert watcher.take() == []
    server.recover()
    world.clock.advance(14.9)
    assert watcher.take() == []
    world.clock.advance(0.1)
    assert watcher.take() == [
        NoAnswer(
            StatusCode.NOT_FOUND,
            'listener "x": not sent by xds server "a" in 15 s, nor anything else '
            '(node id "edge-7")',
        )
    ]
    world.close()


@pytest.mark.spec("A57-07")
def test_name_added_later_has_its_own_timer_and_a_cached_one_has_none() -> None:
    world = XdsClientWorld()
    x = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.clock.advance(10)
    y = world.watch(world.listeners, "y")
    world.clock.advance(14.9)
    assert y.take() == []
    world.clock.advance(0.1)
    assert y.take_codes() == ["NOT_FOUND"]
    world.clock.advance(100)
    assert x.take() == ["v1"]
    world.close()


@pytest.mark.spec("A57-08")
def test_resource_timer_is_restarted_on_a_new_stream() -> None:
    world = XdsClientWorld()
    server = world.server()
    x, y = world.watch(world.listeners, "x"), world.watch(world.listeners, "y")
    server.respond(world.listeners, text("x"))
    world.clock.advance(10)
    server.is_up = False
    server.ads.end()
    world.clock.advance(100)
    assert y.take() == []
    server.recover()
    world.clock.advance(14.9)
    assert y.take() == []
    world.clock.advance(0.1)
    assert (x.take(), y.take_codes()) == (["v1"], ["NOT_FOUND"])
    # Does-not-exist is notified once, not again on another stream.
    server.is_up = True
    server.ads.end()
    world.clock.advance(100)
    assert y.take() == []
    world.close()


@pytest.mark.spec("A57-04")
def test_cached_resource_stays_in_use_when_a_new_stream_does_not_send_it() -> None:
    world = XdsClientWorld()
    server = world.server()
    watcher = world.watch(world.listeners, "x")
    server.respond(world.listeners, text("x"))
    server.ads.end()
    world.clock.advance(10_000)
    assert watcher.take() == ["v1"]
    assert world.client.dump()[0].status is ResourceStatus.ACKED
    late = world.watch(world.listeners, "x")
    assert late.take() == ["v1"]
    world.close()


def test_outage_ends_for_all_types_when_the_server_responds_for_one() -> None:
    world = XdsClientWorld()
    x, r = world.watch(world.listeners, "x"), world.watch(world.routes, "r")
    server = world.server()
    server.respond(world.listeners, text("x"))
    server.respond(world.routes, text("r"))
    for _ in range(3):
        server.fail()
    assert server.open_ads == 1
    world.settle()
    server.respond(world.listeners, text("x"))
    assert x.take_codes() == ["v1", (AMBIENT, "UNAVAILABLE"), (AMBIENT, "OK")]
    assert r.take_codes() == ["v1", (AMBIENT, "UNAVAILABLE"), (AMBIENT, "OK")]
    world.close()


# ---------------------------------------------------------------------------------------------
# Several servers


def two_servers() -> XdsClientWorld:
    return XdsClientWorld(server_config("a"), server_config("b"))


@pytest.mark.spec("A71-01", "A71-04")
def test_next_server_is_used_only_when_a_resource_is_missing() -> None:
    world = two_servers()
    a, b = world.server("a"), world.server("b")
    x, gone = world.watch(world.listeners, "x"), world.watch(world.listeners, "gone")
    a.respond(world.listeners, text("x"))
    # A resource that does not exist does not count as missing.
    world.clock.advance(15)
    assert gone.take_codes() == ["NOT_FOUND"]
    a.fail()
    world.settle()
    assert b.streams == []
    assert x.take_codes() == ["v1", (AMBIENT, "UNAVAILABLE")]
    # A resource that is missing causes a fallback.
    y = world.watch(world.routes, "y")
    assert names_of(b.take_requests()) == [["x", "gone"], ["y"]]
    assert y.take() == []
    world.close()


@pytest.mark.spec("A71-01", "A71-04")
def test_next_server_is_used_when_the_first_one_was_silent_before_it_failed() -> None:
    world = two_servers()
    a, b = world.server("a"), world.server("b")
    watcher = world.watch(world.listeners, "x")
    # The timer of a server that has sent nothing does not say that the resource does not exist.
    world.clock.advance(15)
    assert watcher.take_codes() == ["NOT_FOUND"]
    a.fail()
    world.settle()
    assert names_of(b.take_requests()) == [["x"]]
    b.respond(world.listeners, text("x"))
    assert watcher.take_codes() == ["v1"]
    world.close()


@pytest.mark.spec("A71-01")
def test_no_fallback_for_a_missing_resource_when_the_server_is_reachable() -> None:
    world = two_servers()
    watcher = world.watch(world.listeners, "x")
    world.clock.advance(100)
    assert watcher.take_codes() == ["NOT_FOUND"]
    assert world.server("b").streams == []
    world.close()


@pytest.mark.spec("A95-01")
@pytest.mark.parametrize("is_on_reachability_only", [False, True])
def test_fallback_needs_no_missing_resource_with_fallback_on_reachability_only(
    is_on_reachability_only: bool,
) -> None:
    servers = (server_config("a"), server_config("b"))
    template = "xdstp://one/envoy.config.listener.v3.Listener/%s"
    authority = Authority(servers, template, fallback_on_reachability_only=is_on_reachability_only)
    world = XdsClientWorld(bootstrap=Bootstrap(servers=servers[:1], authorities={"one": authority}))
    name = "xdstp://one/test.v3.RouteConfiguration/r"
    watcher = world.watch(world.routes, name)
    world.server("a").respond(world.routes, text(name))
    assert watcher.take() == ["v1"]
    world.server("a").fail()
    world.settle()
    requested = [names_of(stream.take_requests()) for stream in world.server("b").streams]
    assert requested == ([[[name]]] if is_on_reachability_only else [])
    world.close()


@pytest.mark.spec("A71-02", "A71-06")
def test_fallback_subscribes_to_all_resources_and_ends_with_a_response_of_the_primary() -> None:
    world = two_servers()
    a, b = world.server("a"), world.server("b")
    a.is_up = False
    x, r = world.watch(world.listeners, "x"), world.watch(world.routes, "r")
    a.fail()
    world.settle()
    assert names_of(b.take_requests()) == [["x"], ["r"]]
    b.respond(world.listeners, text("x", "from b"))
    b.respond(world.routes, text("r", "from b"))
    assert (x.take(), r.take()) == (["from b"], ["from b"])
    # The primary server is still tried, and is used as soon as it responds.
    assert a.open_ads == 1
    a.recover()
    world.settle()
    assert b.open_ads == 1
    a.respond(world.listeners, text("x", "from a"))
    assert x.take() == ["from a"]
    assert b.open_ads == 0
    assert b.transports[0].is_closed
    assert world.client.dump()[1].serialized == text("r", "from b")
    a.respond(world.routes, text("r", "from a"))
    assert r.take() == ["from a"]
    world.close()


def test_server_that_is_listed_twice_has_one_stream() -> None:
    world = XdsClientWorld(server_config("a"), server_config("a"))
    a = world.server("a")
    a.is_up = False
    watcher = world.watch(world.listeners, "x")
    a.fail()
    world.settle()
    watcher.take()
    a.recover()
    world.settle()
    a.respond(world.listeners, text("x", "first"))
    assert watcher.take() == ["first"]
    assert a.open_ads == 1
    world.close()


@pytest.mark.spec("A71-06")
def test_resource_of_the_fallback_is_kept_when_the_primary_sends_nothing() -> None:
    world = two_servers()
    a, b = world.server("a"), world.server("b")
    a.is_up = False
    watcher = world.watch(world.listeners, "x")
    a.fail()
    world.settle()
    # The timers of both streams run from now on; one server responds.
    a.recover()
    world.settle()
    b.respond(world.listeners, text("x", "from b"))
    world.clock.advance(100)
    assert watcher.take() == ["from b"]
    assert b.open_ads == 1
    world.close()


@pytest.mark.spec("A47-10")
def test_stream_stays_open_when_another_authority_uses_the_server() -> None:
    a, b = server_config("a"), server_config("b")
    template = "xdstp://one/envoy.config.listener.v3.Listener/%s"
    bootstrap = Bootstrap(servers=(a, b), authorities={"one": Authority((b,), template)})
    world = XdsClientWorld(bootstrap=bootstrap)
    world.server("a").is_up = False
    other = "xdstp://one/test.v3.RouteConfiguration/r"
    world.watch(world.routes, "r")
    world.watch(world.routes, other)
    world.server("a").fail()
    world.settle()
    assert names_of(world.server("b").take_requests())[-1] == [other, "r"]
    world.server("a").recover()
    world.settle()
    world.server("a").respond(world.routes, text("r"))
    assert names_of(world.server("b").take_requests())[-1] == [other]
    assert world.server("b").open_ads == 1
    world.close()


@pytest.mark.spec("A47-10")
def test_last_name_of_an_authority_can_be_watched_again_on_a_shared_server() -> None:
    template = "xdstp://one/envoy.config.listener.v3.Listener/%s"
    bootstrap = Bootstrap(
        servers=(server_config("a"),), authorities={"one": Authority((), template)}
    )
    world = XdsClientWorld(bootstrap=bootstrap)
    server, other = world.server("a"), "xdstp://one/test.v3.RouteConfiguration/r"
    world.watch(world.routes, "plain")
    before, after = WatchRecorder(), WatchRecorder()
    cancel = world.client.watch(world.routes, other, before)
    world.settle()
    server.respond(world.routes, text("plain"), text(other))
    server.take_requests()
    cancel()
    world.settle()
    assert names_of(server.take_requests()) == [["plain"]]
    world.client.watch(world.routes, other, after)
    world.settle()
    assert names_of(server.take_requests()) == [["plain", other]]
    server.respond(world.routes, text(other), version="2")
    assert (before.take(), after.take()) == (["v1"], ["v1"])
    world.close()


def test_rejected_resource_has_no_effect_when_its_watch_is_cancelled() -> None:
    template = "xdstp://one/envoy.config.listener.v3.Listener/%s"
    bootstrap = Bootstrap(
        servers=(server_config("a"),), authorities={"one": Authority((), template)}
    )
    world = XdsClientWorld(bootstrap=bootstrap)
    server, other = world.server("a"), "xdstp://one/test.v3.Listener/l"
    plain = world.watch(world.listeners, "plain")
    cancel = world.client.watch(world.listeners, other, WatchRecorder())
    world.settle()
    server.respond(world.listeners, text("plain"), text(other, "bad"))
    cancel()
    world.settle()
    server.take_requests()
    server.respond(world.listeners, text("plain", "v2"), text(other, "bad"), version="2")
    assert plain.take() == ["v1", "v2"]
    (answer,) = server.take_requests()
    assert answer.version_info == "2"
    world.close()


@pytest.mark.spec("A71-05")
def test_outage_is_published_only_when_all_servers_are_unreachable() -> None:
    world = two_servers()
    a, b = world.server("a"), world.server("b")
    watcher = world.watch(world.listeners, "x")
    a.fail()
    world.settle()
    assert watcher.take() == []
    b.ads.end(GONE)
    world.settle()
    (status,) = watcher.take()
    assert status.code is StatusCode.UNAVAILABLE
    assert 'xds server "b"' in status.details
    world.close()


@pytest.mark.spec("A71-03")
def test_each_target_has_its_own_client_and_fallback() -> None:
    world = XdsClientWorld()
    clients = XdsClients(world.transports, world.tools)
    servers = (server_config("a"), server_config("b"))
    bootstrap = Bootstrap(servers=servers, node=Node("edge-7"))
    one, two = clients.acquire(bootstrap, "xds:///one"), clients.acquire(bootstrap, "xds:///two")
    assert one is not two
    assert clients.acquire(bootstrap, "xds:///one") is one
    x, y = WatchRecorder(), WatchRecorder()
    one.watch(world.listeners, "x", x)
    world.settle()
    world.server("a").respond(world.listeners, text("x"))
    two.watch(world.listeners, "y", y)
    world.settle()
    world.server("a").fail()
    world.settle()
    # Only the client with a missing resource has fallen back.
    assert names_of(world.server("b").take_requests()) == [["y"]]
    assert x.take_codes() == ["v1", (AMBIENT, "UNAVAILABLE")]
    clients.close()
    world.close()


@pytest.mark.spec("A47-02", "A47-07", "A47-09")
def test_one_server_in_two_authorities_has_one_stream_and_names_have_one_spelling() -> None:
    template = "xdstp://{}/envoy.config.listener.v3.Listener/%s"
    bootstrap = Bootstrap(
        servers=(server_config("a"),),
        authorities={
            "one": Authority((server_config("a"),), template.format("one")),
            "two": Authority((), template.format("two")),
        },
    )
    world = XdsClientWorld(bootstrap=bootstrap)
    first = world.watch(world.routes, "xdstp://one/test.v3.RouteConfiguration/r?b=2&a=1")
    same = world.watch(world.routes, "xdstp://one/test.v3.RouteConfiguration/r?a=1&b=2")
    world.watch(world.routes, "xdstp://two/test.v3.RouteConfiguration/r")
    world.watch(world.routes, "old")
    server = world.server("a")
    assert len(server.streams) == 1
    assert list(server.take_requests()[-1].resource_names) == [
        "xdstp://one/test.v3.RouteConfiguration/r?a=1&b=2",
        "xdstp://two/test.v3.RouteConfiguration/r",
        "old",
    ]
    server.respond(world.routes, text("xdstp://one/test.v3.RouteConfiguration/r?b=2&a=1"))
    assert (first.take(), same.take()) == (["v1"], ["v1"])
    unknown = world.watch(world.routes, "xdstp://three/test.v3.RouteConfiguration/r")
    (status,) = unknown.take()
    assert "authority 'three' is not in the bootstrap" in status.details
    world.close()


# ---------------------------------------------------------------------------------------------
# Data errors (A88)


@pytest.mark.spec("A88-01", "A88-05")
def test_late_watcher_is_notified_of_the_resource_and_then_of_the_ambient_error() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.server().fail()
    world.settle()
    late = world.watch(world.listeners, "x")
    assert late.take_codes() == ["v1", (AMBIENT, "UNAVAILABLE")]
    world.server().respond(world.listeners, text("x"))
    assert late.take() == [(AMBIENT, OK)]
    # A new resource ends the error.
    world.server().fail()
    world.settle()
    world.server().respond(world.listeners, text("x", "v2"), version="2")
    assert late.take_codes() == [(AMBIENT, "UNAVAILABLE"), (AMBIENT, "OK"), "v2"]
    world.close()


@pytest.mark.spec("A88-02", "A88-06")
@pytest.mark.parametrize("error", ["nack", "deletion"])
def test_data_error_drops_the_resource_only_with_fail_on_data_errors(error: str) -> None:
    results = {}
    for features in ((), (FAIL_ON_DATA_ERRORS,)):
        world = XdsClientWorld(server_config("a", *features), has_data_error_handling=True)
        watcher = world.watch(world.listeners, "x")
        world.server().respond(world.listeners, text("x"))
        resources = [text("x", "bad")] if error == "nack" else []
        world.server().respond(world.listeners, *resources, version="2")
        results[features] = (watcher.take_codes(), world.client.dump()[0].serialized)
        world.close()
    code = "INVALID_ARGUMENT" if error == "nack" else "NOT_FOUND"
    assert results[()] == (["v1", (AMBIENT, code)], text("x"))
    assert results[FAIL_ON_DATA_ERRORS,] == (["v1", code], b"")


@pytest.mark.spec("A88-02", "A88-06")
@pytest.mark.parametrize(
    ("code", "features", "expected"),
    [
        (StatusCode.NOT_FOUND, (), ["v1", (AMBIENT, "NOT_FOUND")]),
        (StatusCode.NOT_FOUND, (FAIL_ON_DATA_ERRORS,), ["v1", "NOT_FOUND"]),
        (StatusCode.PERMISSION_DENIED, (FAIL_ON_DATA_ERRORS,), ["v1", "PERMISSION_DENIED"]),
        (StatusCode.UNAVAILABLE, (FAIL_ON_DATA_ERRORS,), ["v1", (AMBIENT, "UNAVAILABLE")]),
    ],
)
def test_resource_error_of_the_server_is_ambient_or_drops_the_resource(
    code: StatusCode, features: tuple[str, ...], expected: list[object]
) -> None:
    world = XdsClientWorld(server_config("a", *features), has_data_error_handling=True)
    watcher = world.watch(world.routes, "r")
    world.server().respond(world.routes, text("r"))
    send_error(world, "r", code)
    assert watcher.take_codes() == expected
    world.close()


def send_error(world: XdsClientWorld, name: str, code: StatusCode) -> None:
    response = DiscoveryResponse(type_url=world.routes.type_url, nonce="e")
    error = response.resource_errors.add()
    error.resource_name.name = name
    error.error_detail.code = code
    error.error_detail.message = "the control plane's own words"
    world.server().ads.send_to_client(response.SerializeToString())
    world.settle()


@pytest.mark.spec("A88-03")
def test_resource_errors_are_published_only_with_data_error_handling() -> None:
    world = XdsClientWorld(has_data_error_handling=True)
    watcher = world.watch(world.routes, "r")
    send_error(world, "r", StatusCode.PERMISSION_DENIED)
    (status,) = watcher.take()
    assert status.code is StatusCode.PERMISSION_DENIED
    assert status.details == (
        'route configuration "r": xds server "a" sent an error: the control plane\'s own words'
        ' (node id "edge-7")'
    )
    assert world.client.dump()[0].status is ResourceStatus.RECEIVED_ERROR
    world.clock.advance(100)
    assert watcher.take() == []
    world.close()
    plain = XdsClientWorld()
    watcher = plain.watch(plain.routes, "r")
    send_error(plain, "r", StatusCode.PERMISSION_DENIED)
    assert watcher.take() == []
    plain.close()


@pytest.mark.spec("A88-07")
def test_resource_timer_is_30_s_and_transient_when_the_server_has_the_feature() -> None:
    server = server_config("a", RESOURCE_TIMER_IS_TRANSIENT_ERROR)
    world = XdsClientWorld(server, has_data_error_handling=True)
    watcher = world.watch(world.routes, "r")
    world.clock.advance(29.9)
    assert watcher.take() == []
    world.clock.advance(0.1)
    assert watcher.take_codes() == ["UNAVAILABLE"]
    assert world.client.dump()[0].status is ResourceStatus.TIMEOUT
    world.close()


# ---------------------------------------------------------------------------------------------
# Hostile control planes


def test_response_without_a_nonce_is_acked() -> None:
    world = XdsClientWorld()
    watcher = world.watch(world.listeners, "x")
    world.server().take_requests()
    world.server().respond(world.listeners, text("x"), nonce="", version="")
    assert watcher.take() == ["v1"]
    assert len(world.server().take_requests()) == 1
    world.close()


def test_first_resource_is_used_when_several_have_the_same_name() -> None:
    world = XdsClientWorld()
    watcher = world.watch(world.listeners, "x")
    world.server().take_requests()
    world.server().respond(world.listeners, text("x", "first"), text("x", "second"))
    (nack,) = world.server().take_requests()
    assert 'listener "x": comes more than once' in nack.error_detail.message
    assert watcher.take() == ["first"]
    # The same applies to bytes that were decoded before.
    world.server().respond(world.listeners, text("x", "first"), text("x", "first"))
    (nack,) = world.server().take_requests()
    assert 'listener "x": comes more than once' in nack.error_detail.message
    assert watcher.take() == []
    world.close()


def test_resource_is_kept_when_a_malformed_one_may_have_its_name() -> None:
    world = XdsClientWorld()
    watcher = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.server().respond(world.listeners, b"\x00garbage", version="2")
    assert watcher.take() == ["v1"]
    assert world.client.dump()[0].version == "1"
    world.close()


def test_a_resource_of_another_type_is_refused() -> None:
    world = XdsClientWorld()
    watcher = world.watch(world.listeners, "x")
    world.server().take_requests()
    response = DiscoveryResponse(type_url=world.listeners.type_url, nonce="n")
    response.resources.add(type_url="type.googleapis.com/else.Where", value=text("x"))
    wrapper_url = "type.googleapis.com/envoy.service.discovery.v3.Resource"
    response.resources.add(type_url=wrapper_url, value=b"\xff\xff")
    inner = message_class("envoy.service.discovery.v3.Resource")(name="x")
    inner.resource.type_url = wrapper_url
    response.resources.add(type_url=wrapper_url, value=inner.SerializeToString())
    world.server().ads.send_to_client(response.SerializeToString())
    world.settle()
    (nack,) = world.server().take_requests()
    assert nack.error_detail.message.count(', wanted "type.googleapis.com/test.v3.Listener"') == 3
    assert watcher.take() == []
    world.close()


def test_resource_is_refused_when_its_decoder_raises(caplog: pytest.LogCaptureFixture) -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.server().take_requests()
    world.server().respond(world.listeners, b'{"surprise": 1}')
    (nack,) = world.server().take_requests()
    assert "decoding raised KeyError" in nack.error_detail.message
    assert "decoding raised" in caplog.text
    world.close()


class Incomplete(TextType):
    """A type whose results lack the resource or the name."""

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[str]:
        return Decoded("x") if serialized == b"nothing" else Decoded("", "resource")


def test_a_resource_without_a_name_or_content_is_refused() -> None:
    world = XdsClientWorld()
    incomplete = Incomplete("Listener", is_full_state=True)
    watcher = world.watch(incomplete, "x")
    world.server().take_requests()
    world.server().respond(incomplete, b"nothing", b"nameless")
    (nack,) = world.server().take_requests()
    assert nack.error_detail.message == (
        'listener #0: cannot be decoded; listener #1: has no name (node id "edge-7")'
    )
    assert watcher.take_codes() == ["INVALID_ARGUMENT"]
    world.close()


def test_error_of_a_resource_that_cannot_be_decoded_has_the_name_of_its_wrapper() -> None:
    world = XdsClientWorld(server_config("a", DELTA))
    kind = EndpointType()
    watcher = world.watch(kind, "c")
    world.server().take_requests()
    world.server().respond_delta(kind, ("c", "1", b"\xff"))
    (nack,) = world.server().take_requests()
    assert nack.error_detail.message.startswith('endpoints "c": cannot be decoded as envoy.')
    assert watcher.take_codes() == ["INVALID_ARGUMENT"]
    world.close()


def test_invalid_names_are_refused_in_watches_and_ignored_in_responses() -> None:
    world = XdsClientWorld()
    watcher = world.watch(world.routes, "xdstp:no slashes")
    assert watcher.take_codes() == ["UNAVAILABLE"]
    cancel = world.client.watch(world.routes, "xdstp:no slashes", watcher)
    cancel()
    world.settle()
    assert watcher.take() == []
    assert "a" not in world.transports.servers
    good = world.watch(world.routes, "r")
    world.server().respond(world.routes, text("xdstp:no slashes"), text("r"))
    assert good.take() == ["v1"]
    world.close()


def test_name_of_the_inner_resource_is_used_when_the_wrapper_has_another() -> None:
    world = XdsClientWorld()
    watcher = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    response = DiscoveryResponse(type_url=world.listeners.type_url, version_info="2")
    inner = message_class("envoy.service.discovery.v3.Resource")(name="y")
    inner.resource.type_url = world.listeners.type_url
    inner.resource.value = text("x")
    wrapper_url = "type.googleapis.com/envoy.service.discovery.v3.Resource"
    response.resources.add(type_url=wrapper_url, value=inner.SerializeToString())
    world.server().ads.send_to_client(response.SerializeToString())
    world.settle()
    assert watcher.take() == ["v1"]
    assert world.client.dump()[0].version == "2"
    world.close()


def test_resource_is_used_when_the_server_also_sends_an_error_for_it() -> None:
    world = XdsClientWorld(has_data_error_handling=True)
    watcher = world.watch(world.routes, "r")
    serialized = world.server().response(world.routes, [text("r")])
    response = DiscoveryResponse.FromString(serialized)
    error = response.resource_errors.add()
    error.resource_name.name = "r"
    error.error_detail.code = StatusCode.NOT_FOUND
    world.server().ads.send_to_client(response.SerializeToString())
    world.settle()
    assert watcher.take() == ["v1"]
    world.close()


def test_text_of_a_nack_is_limited() -> None:
    world = XdsClientWorld()
    world.watch(world.listeners, "x")
    world.server().take_requests()
    bad = [text(f"{index}-{'n' * 300}", "bad") for index in range(10_000)]
    world.server().respond(world.listeners, *bad, text("\n".join("name"), "bad"))
    (nack,) = world.server().take_requests()
    assert len(nack.error_detail.message) < 17_000
    assert "more errors" in nack.error_detail.message
    assert nack.error_detail.message.endswith('(node id "edge-7")')
    assert "\n" not in nack.error_detail.message
    world.close()


def test_watches_are_refused_above_the_limit_of_resources_and_name_length() -> None:
    world = XdsClientWorld(resources_max=2)
    world.watch(world.listeners, "x")
    cancel = world.client.watch(world.listeners, "y", WatchRecorder())
    refused = world.watch(world.listeners, "z")
    assert refused.take_codes() == ["UNAVAILABLE"]
    too_long = world.watch(world.listeners, "z" * 5000)
    assert too_long.take_codes() == ["UNAVAILABLE"]
    no_text = world.watch(world.listeners, "z\ud800")
    (status,) = no_text.take()
    assert "wanted UTF-8" in status.details
    cancel()
    world.settle()
    assert world.watch(world.listeners, "z").take() == []
    assert names_of(world.server().take_requests())[-1] == ["x", "z"]
    world.close()


def test_server_with_an_unusable_configuration_is_unreachable() -> None:
    world = XdsClientWorld(server_config("unusable"))
    watcher = world.watch(world.listeners, "x")
    (status,) = watcher.take()
    assert status.details == (
        'xds server "unusable": does not answer: no such credentials (node id "edge-7")'
    )
    world.close()


def test_resource_of_another_authority_is_ignored() -> None:
    bootstrap = Bootstrap(
        servers=(server_config("a"),),
        authorities={"one": Authority((server_config("b"),), "xdstp://one/x/%s")},
    )
    world = XdsClientWorld(bootstrap=bootstrap)
    name = "xdstp://one/test.v3.RouteConfiguration/r"
    theirs = world.watch(world.routes, name)
    ours = world.watch(world.routes, "r")
    world.server("a").respond(world.routes, text(name, "from a"), text("r"))
    assert (theirs.take(), ours.take()) == ([], ["v1"])
    world.close()


# ---------------------------------------------------------------------------------------------
# Load reports


def request_load(world: XdsClientWorld, interval_s: float, *clusters: str) -> None:
    response = LoadStatsResponse(clusters=clusters, send_all_clusters=not clusters)
    response.load_reporting_interval.FromMilliseconds(int(interval_s * 1000))
    world.server().lrs.send_to_client(response.SerializeToString())
    world.settle()


@pytest.mark.spec("LRS-05", "LRS-06", "LRS-07")
def test_load_is_counted_by_locality_and_drop_category() -> None:
    world = XdsClientWorld()
    server = server_config()
    load = world.client.load_stats(server, "c", "e")
    assert world.client.load_stats(server, "c", "e") is load
    other = world.client.load_stats(server, "d", "")
    world.settle()
    assert len(world.server().streams) == 1
    assert (
        world.server().lrs.path
        == "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
    )
    (first,) = world.server().lrs.take_requests()
    assert first.node.id == "edge-7"
    assert "envoy.lrs.supports_send_all_clusters" in first.node.client_features
    request_load(world, 10)
    locality = load.locality(("r", "z", "s"))
    assert load.locality(("r", "z", "s")) is locality
    for _ in range(5):
        locality.on_start()
    locality.on_end(True)
    locality.on_end(True)
    locality.on_end(False)
    load.drop("lb")
    load.drop("lb")
    load.drop(None)
    other.locality(("r", "z", "")).on_start()
    world.clock.advance(10)
    (report,) = world.server().lrs.take_requests()
    assert not report.HasField("node")
    stats, other_stats = report.cluster_stats
    assert (stats.cluster_name, stats.cluster_service_name) == ("c", "e")
    assert stats.load_report_interval.seconds == 10
    (counts,) = stats.upstream_locality_stats
    assert (counts.locality.region, counts.locality.zone, counts.locality.sub_zone) == (
        "r",
        "z",
        "s",
    )
    assert counts.total_issued_requests == 5
    assert counts.total_successful_requests == 2
    assert counts.total_error_requests == 1
    assert counts.total_requests_in_progress == 2
    assert stats.total_dropped_requests == 3
    (dropped,) = stats.dropped_requests
    assert (dropped.category, dropped.dropped_count) == ("lb", 2)
    assert other_stats.cluster_name == "d"
    world.close()


@pytest.mark.spec("LRS-02", "LRS-08", "LRS-09")
def test_load_reports_have_the_interval_and_clusters_of_the_server_and_reset_counters() -> None:
    world = XdsClientWorld()
    c, d = (world.client.load_stats(server_config(), name, "") for name in "cd")
    world.settle()
    world.server().lrs.take_requests()
    c.drop(None)
    d.drop(None)
    # Reports start when the server has set an interval, and are at least 1 s apart.
    world.clock.advance(100)
    assert world.server().lrs.take_requests() == []
    request_load(world, 0.001, "c")
    world.clock.advance(0.9)
    assert world.server().lrs.take_requests() == []
    world.clock.advance(0.1)
    (report,) = world.server().lrs.take_requests()
    assert [(each.cluster_name, each.total_dropped_requests) for each in report.cluster_stats] == [
        ("c", 1)
    ]
    c.drop(None)
    world.clock.advance(1)
    (report,) = world.server().lrs.take_requests()
    assert report.cluster_stats[0].total_dropped_requests == 1
    # The load of other clusters has been counted, too.
    request_load(world, 5)
    world.clock.advance(5)
    (report,) = world.server().lrs.take_requests()
    assert [(each.cluster_name, each.total_dropped_requests) for each in report.cluster_stats] == [
        ("d", 1)
    ]
    world.close()


@pytest.mark.spec("LRS-10")
def test_error_of_load_reports_has_no_effect_on_ads() -> None:
    world = XdsClientWorld()
    watcher = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    load = world.client.load_stats(server_config(), "c", "")
    request_load(world, 1)
    world.server().lrs.send_to_client(b"\xff\xff")
    world.settle()
    load.drop(None)
    world.server().lrs.end(Status(StatusCode.UNIMPLEMENTED, "no load reports here"))
    world.clock.advance(100)
    assert watcher.take() == ["v1"]
    assert world.server().open_ads == 1
    # The stream is retried, and no counts are lost.
    request_load(world, 1)
    world.server().lrs.take_requests()
    world.clock.advance(1)
    (report,) = world.server().lrs.take_requests()
    assert report.cluster_stats[0].total_dropped_requests == 1
    world.close()


@pytest.mark.spec("LRS-04")
def test_load_stream_is_open_as_long_as_load_is_counted() -> None:
    world = XdsClientWorld()
    one = world.client.load_stats(server_config(), "c", "")
    two = world.client.load_stats(server_config(), "c", "")
    three = world.client.load_stats(server_config(), "d", "")
    world.settle()
    request_load(world, 1)
    world.server().lrs.take_requests()
    three.drop(None)
    three.release()
    one.release()
    # A released cluster is reported once more.
    world.clock.advance(1)
    (report,) = world.server().lrs.take_requests()
    assert [each.cluster_name for each in report.cluster_stats] == ["d"]
    assert world.server().lrs.is_open
    two.release()
    assert not world.server().lrs.is_open
    assert world.server().transports[0].is_closed
    with pytest.raises(ValueError, match="released more"):
        two.release()
    world.close()


# ---------------------------------------------------------------------------------------------
# Close, and shared clients


def test_closed_client_does_not_notify_and_refuses_watches() -> None:
    world = XdsClientWorld()
    watcher = world.watch(world.listeners, "x")
    world.server().ads.send_to_client(world.server().response(world.listeners, [text("x")]))
    world.client.close()
    world.client.close()
    world.settle()
    assert watcher.take() == []
    with pytest.raises(ValueError, match="closed"):
        world.client.watch(world.listeners, "x", watcher)
    with pytest.raises(ValueError, match="closed"):
        world.client.load_stats(server_config(), "c", "")
    world.close()


def test_watcher_may_close_the_client() -> None:
    world = XdsClientWorld()
    watcher = WatchRecorder(on_notification=world.client.close)
    world.client.watch(world.listeners, "x", watcher)
    other = world.watch(world.listeners, "y")
    world.server().respond(world.listeners, text("x"), text("y"))
    assert (watcher.take(), other.take()) == (["v1"], [])
    world.close()


def test_all_targets_share_a_client_when_the_server_is_an_istio_agent() -> None:
    world = XdsClientWorld()
    clients = XdsClients(FakeXdsTransports(world.clock), world.tools)
    agent = Bootstrap(servers=(server_config("unix:///etc/istio/proxy/XDS"),))
    remote = Bootstrap(servers=(server_config("istiod:15010"),))
    assert clients.acquire(agent, "one") is clients.acquire(agent, "two")
    assert clients.acquire(agent, "one", shared=False) is not clients.acquire(agent, "one")
    assert clients.acquire(remote, "one", shared=True) is clients.acquire(
        remote, "two", shared=True
    )
    clients.close()
    world.close()
