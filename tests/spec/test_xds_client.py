"""The xDS client: ADS and LRS (A27, A30, A46, A47, A53, A57, A71, A88, LRS), by what servers see
and watchers hear."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from proxyless.base import OK, Locality, Status, StatusCode
from proxyless.protos import message_class
from proxyless.xds.bootstrap import (
    FAIL_ON_DATA_ERRORS,
    IGNORE_RESOURCE_DELETION,
    RESOURCE_TIMER_IS_TRANSIENT_ERROR,
    Authority,
    Bootstrap,
    Node,
    load_bootstrap,
)
from proxyless.xds.client import Cancel, DecodeContext, Decoded, ResourceStatus, XdsClients
from proxyless.xds.client.codec import ADS_PATH
from proxyless.xds.parsing import (
    ClusterType,
    EndpointType,
    ListenerType,
    RouteConfigurationType,
)
from tests.xds_client_world import (
    GONE,
    ClientWorld,
    DiscoveryResponse,
    FakeTransports,
    LoadStatsResponse,
    Recorder,
    Text,
    server_config,
    text,
)

AMBIENT = "ambient"


def names_of(requests: list[object]) -> list[list[str]]:
    return [list(request.resource_names) for request in requests]  # type: ignore[attr-defined]


# ---------------------------------------------------------------------------------------------
# Requests


@pytest.mark.spec("A30-01")
def test_only_v3_is_spoken_whatever_the_bootstrap_says_of_it() -> None:
    for features in ([], ["xds_v3"]):
        server = {
            "server_uri": "a",
            "channel_creds": [{"type": "insecure"}],
            "server_features": features,
        }
        bootstrap = load_bootstrap({"xds_servers": [server]}, {})
        assert isinstance(bootstrap, Bootstrap)
        world = ClientWorld(bootstrap=bootstrap)
        for kind in (ListenerType, RouteConfigurationType, ClusterType, EndpointType):
            named = Text()
            named.type_url = kind.type_url
            world.watch(named, "x")
        assert world.server().ads.path.startswith("/envoy.service.discovery.v3.")
        asked = [request.type_url for request in world.server().take_requests()]
        assert len(asked) == 4
        assert all(".v3." in type_url and "api.v2" not in type_url for type_url in asked)
        world.close()


@pytest.mark.spec("A27-05")
def test_node_is_sent_only_with_the_first_request_of_each_stream() -> None:
    node = Node("edge-7", "edge", Locality("r", "z", "s"), {"a": [1, {"b": None}], "c": True})
    world = ClientWorld(bootstrap=Bootstrap(servers=(server_config(),), node=node))
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


@pytest.mark.spec("A27-06")
def test_client_features_are_said_and_wrapped_resources_are_unwrapped() -> None:
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    (request,) = world.server().take_requests()
    assert set(request.node.client_features) == {
        "envoy.lb.does_not_support_overprovisioning",
        "xds.config.resource-in-sotw",
    }
    world.server().respond(world.listeners, text("x"), wrapped=True)
    assert heard.take() == ["v1"]
    assert not world.server().take_requests()[0].HasField("error_detail")
    world.close()


@pytest.mark.spec("A27-07")
def test_versions_survive_streams_and_nonces_do_not() -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    world.watch(world.listeners, "y")
    world.watch(world.routes, "r")
    server = world.server()
    server.take_requests()
    server.respond(world.listeners, text("x"), text("y"), version="7", nonce="abc")
    (ack,) = server.take_requests()
    assert (ack.version_info, ack.response_nonce) == ("7", "abc")
    assert list(ack.resource_names) == ["x", "y"]
    # The other type is a conversation of its own.
    server.respond(world.routes, text("r"), version="2", nonce="def")
    (ack,) = server.take_requests()
    assert (ack.version_info, ack.response_nonce) == ("2", "def")
    # A refused response: the version stays, the nonce is that of the refused one.
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


def test_changes_of_one_turn_are_one_request() -> None:
    world = ClientWorld()
    for index in range(100):
        world.client.watch(world.listeners, f"x{index}", Recorder())
    world.settle()
    assert [len(names) for names in names_of(world.server().take_requests())] == [100]
    world.close()


@pytest.mark.spec("A27-12")
def test_unsubscribing_sends_the_shortened_list_and_the_last_one_closes_the_stream() -> None:
    world = ClientWorld()
    cancel_x = world.client.watch(world.listeners, "x", Recorder())
    cancel_y = world.client.watch(world.listeners, "y", Recorder())
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
    # And it begins anew for who comes later.
    heard = world.watch(world.listeners, "y")
    assert heard.take() == []
    assert world.server().open_ads == 1
    world.close()


@pytest.mark.spec("A27-12")
def test_who_watches_again_after_the_unsubscribe_was_sent_starts_afresh() -> None:
    world = ClientWorld()
    world.watch(world.listeners, "y")
    world.client.watch(world.listeners, "x", Recorder())()
    cancel = world.client.watch(world.listeners, "x", Recorder())
    world.settle()
    world.server().respond(world.listeners, text("x"), text("y"))
    cancel()
    world.settle()
    heard = world.watch(world.listeners, "x")
    assert heard.take() == []
    world.server().respond(world.listeners, text("x"), text("y"), version="2")
    assert heard.take() == ["v1"]
    world.close()


@pytest.mark.spec("A27-12")
def test_who_watches_again_before_the_unsubscribe_is_sent_finds_the_cache() -> None:
    world = ClientWorld()
    cancel = world.client.watch(world.listeners, "x", Recorder())
    world.settle()
    world.server().respond(world.listeners, text("x"))
    world.server().take_requests()
    cancel()
    heard = Recorder()
    world.client.watch(world.listeners, "x", heard)
    world.settle()
    assert heard.take() == ["v1"]
    assert world.server().take_requests() == []
    assert world.server().open_ads == 1
    world.close()


def test_request_has_no_names_when_the_last_watch_of_its_type_is_cancelled() -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    cancel = world.client.watch(world.routes, "r", Recorder())
    world.settle()
    world.server().take_requests()
    cancel()
    world.settle()
    (request,) = world.server().take_requests()
    assert (request.type_url, list(request.resource_names)) == (world.routes.type_url, [])
    # On a new stream, no names at all would mean all there are.
    world.server().ads.end(GONE)
    world.clock.advance(5)
    assert names_of(world.server().take_requests()) == [["x"]]
    world.close()


# ---------------------------------------------------------------------------------------------
# Responses


@pytest.mark.spec("A27-08")
def test_watchers_share_a_subscription_and_late_ones_get_cached_data() -> None:
    world = ClientWorld()
    first = world.watch(world.listeners, "x")
    world.server().take_requests()
    world.server().respond(world.listeners, text("x"), text("never asked for"))
    assert first.take() == ["v1"]
    world.server().take_requests()
    late = Recorder()
    world.client.watch(world.listeners, "x", late)
    assert late.take() == [], "no watcher is called inside watch"
    world.settle()
    assert late.take() == ["v1"]
    assert world.server().take_requests() == []
    assert [each.name for each in world.client.dump()] == ["x"]
    world.close()


@pytest.mark.spec("A27-08")
def test_watcher_is_notified_when_a_resource_sent_before_its_watch_is_sent_again() -> None:
    world = ClientWorld()
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
    world = ClientWorld()
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    late = Recorder()
    cancel = world.client.watch(world.listeners, "x", late)
    cancel()
    cancel()
    world.settle()
    world.server().respond(world.listeners, text("x", "v2"))
    assert late.take() == []
    world.close()


def test_watcher_may_cancel_itself_and_others_while_it_is_notified() -> None:
    world = ClientWorld()
    cancels: list[Cancel] = []
    others = Recorder()
    first = Recorder(on_news=lambda: [cancel() for cancel in cancels])  # type: ignore[arg-type]
    cancels.append(world.client.watch(world.listeners, "x", first))
    cancels.append(world.client.watch(world.listeners, "x", others))
    world.settle()
    world.server().respond(world.listeners, text("x"))
    assert (first.take(), others.take()) == (["v1"], [])
    assert world.server().open_ads == 0
    world.close()


@pytest.mark.spec("A27-09")
def test_a_full_state_response_deletes_what_was_there_and_is_missing() -> None:
    world = ClientWorld()
    x, y = world.watch(world.listeners, "x"), world.watch(world.listeners, "y")
    world.server().respond(world.listeners, text("x"))
    assert (x.take(), y.take()) == (["v1"], [])
    world.server().respond(world.listeners, version="2")
    assert x.take_codes() == ["NOT_FOUND"]
    # It was never there, so it still has its time.
    assert y.take() == []
    world.clock.advance(15)
    assert y.take_codes() == ["NOT_FOUND"]
    # And it may come back, even unchanged.
    world.server().respond(world.listeners, text("x"), version="3")
    assert x.take() == ["v1"]
    world.close()


@pytest.mark.spec("A27-10")
def test_absence_from_a_response_of_another_type_deletes_nothing() -> None:
    world = ClientWorld()
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
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"), version="1")
    world.server().respond(world.listeners, text("x"), version="2")
    # Other bytes, but the same resource.
    world.server().respond(world.listeners, text("x") + b" ", version="3")
    assert heard.take() == ["v1"]
    assert world.listeners.decoded == 2
    assert world.client.dump()[0].version == "3"
    world.close()


@pytest.mark.spec("A27-13")
def test_the_next_message_is_read_when_the_watchers_know_the_last_one() -> None:
    world = ClientWorld()
    server = world.server()
    reads_seen = []
    heard = Recorder(on_news=lambda: reads_seen.append(server.ads.reads))
    for name in ("x", "y"):
        world.client.watch(world.listeners, name, heard)
    world.settle()
    server.ads.say(server.response(world.listeners, [text("x"), text("y")]))
    server.ads.say(server.response(world.listeners, [text("x", "v2"), text("y")], "2"))
    world.settle()
    assert heard.take() == ["v1", "v1", "v2"]
    assert reads_seen == [0, 0, 0]
    assert server.ads.reads == 1
    world.close()


@pytest.mark.spec("A27-13")
def test_watchers_that_watch_more_do_not_stop_the_stream() -> None:
    world = ClientWorld()
    more = Recorder()
    cancels = []

    def watch_more() -> None:
        cancels.append(world.client.watch(world.routes, "r", more))

    world.client.watch(world.listeners, "x", Recorder(on_news=watch_more))
    world.settle()
    server = world.server()
    server.respond(world.listeners, text("x"))
    assert names_of(server.take_requests()) == [["x"], ["x"], ["r"]]
    server.respond(world.routes, text("r"))
    assert more.take() == ["v1"]
    world.close()


def test_a_watcher_that_raises_does_not_stop_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    world = ClientWorld()

    def fail() -> None:
        raise RuntimeError("a bug")

    world.client.watch(world.listeners, "x", Recorder(on_news=fail))
    heard = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.server().respond(world.listeners, text("x", "v2"))
    assert heard.take() == ["v1", "v2"]
    assert "a bug" in caplog.text
    world.close()


@pytest.mark.spec("A27-14")
def test_what_cannot_be_understood_is_ignored() -> None:
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    server = world.server()
    server.take_requests()
    server.ads.say(b"\xff\xff\xff\xff")
    unknown = DiscoveryResponse(type_url="type.googleapis.com/no.such.Type", nonce="u")
    server.ads.say(unknown.SerializeToString())
    # Known to us, but never asked for on this stream.
    server.ads.say(server.response(world.routes, [text("r")]))
    server.ads.say(b"")
    world.settle()
    assert server.take_requests() == []
    server.respond(world.listeners, text("x"))
    assert heard.take() == ["v1"]
    assert server.open_ads == 1
    world.close()


@pytest.mark.spec("A27-14")
def test_a_type_that_was_not_asked_for_on_this_stream_is_ignored() -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    cancel = world.client.watch(world.routes, "r", Recorder())
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


@pytest.mark.spec("A46-01")
def test_one_bad_resource_among_a_thousand_spoils_only_itself() -> None:
    world = ClientWorld()
    watchers = [world.watch(world.listeners, f"x{index}") for index in range(1000)]
    world.server().take_requests()
    resources = [text(f"x{index}", "bad" if index == 500 else "v1") for index in range(1000)]
    world.server().respond(world.listeners, *resources, version="9")
    (nack,) = world.server().take_requests()
    assert nack.version_info == "9"
    assert nack.error_detail.code == StatusCode.INVALID_ARGUMENT
    assert nack.error_detail.message == 'listener "x500": value is bad (node id "edge-7")'
    told = [watcher.take_codes() for watcher in watchers]
    assert told.pop(500) == ["INVALID_ARGUMENT"]
    assert told == [["v1"]] * 999
    world.close()


@pytest.mark.spec("A46-01")
def test_a_nack_lists_all_errors_and_an_all_bad_response_keeps_the_version() -> None:
    world = ClientWorld()
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
def test_a_refused_update_keeps_what_is_in_use() -> None:
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.server().respond(world.listeners, text("x", "bad"), version="2")
    assert heard.take_codes() == ["v1", (AMBIENT, "INVALID_ARGUMENT")]
    (dump,) = world.client.dump()
    assert (dump.status, dump.version, dump.failed_version) == (ResourceStatus.NACKED, "1", "2")
    assert dump.serialized == text("x")
    assert dump.error.details == 'listener "x": value is bad (node id "edge-7")'
    late = world.watch(world.listeners, "x")
    assert late.take_codes() == ["v1", (AMBIENT, "INVALID_ARGUMENT")]
    world.close()


@pytest.mark.spec("A46-02")
def test_a_refused_first_version_is_an_error_and_not_a_missing_resource() -> None:
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    world.clock.advance(10)
    world.server().respond(world.listeners, text("x", "bad"))
    (status,) = heard.take()
    assert status == Status(
        StatusCode.INVALID_ARGUMENT, 'listener "x": value is bad (node id "edge-7")'
    )
    world.clock.advance(100)
    assert heard.take() == []
    world.server().respond(world.listeners, text("x"), version="2")
    assert heard.take() == ["v1"]
    world.close()


def test_rejected_resource_is_published_once_and_not_decoded_when_it_is_sent_again() -> None:
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.server().take_requests()
    for version in ("2", "3"):
        world.server().respond(world.listeners, text("x", "bad"), version=version)
        (nack,) = world.server().take_requests()
        assert nack.error_detail.message == 'listener "x": value is bad (node id "edge-7")'
    assert world.listeners.decoded == 2
    # And back to what was in use all the time.
    world.server().respond(world.listeners, text("x"), version="4")
    assert heard.take_codes() == ["v1", (AMBIENT, "INVALID_ARGUMENT"), (AMBIENT, "OK")]
    assert world.client.dump()[0].status is ResourceStatus.ACKED
    world.close()


@pytest.mark.spec("A53-01")
def test_deletions_are_ignored_where_the_server_says_so(caplog: pytest.LogCaptureFixture) -> None:
    world = ClientWorld(server_config("a", IGNORE_RESOURCE_DELETION))
    heard = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    heard.take()
    for version in ("2", "3", "4"):
        world.server().respond(world.listeners, version=version)
    assert heard.take_codes() == [(AMBIENT, "NOT_FOUND")]
    assert world.client.dump()[0].serialized == text("x")
    logged = [record for record in caplog.records if "deleted" in record.getMessage()]
    assert len(logged) == 1
    assert 'listener "x"' in logged[0].getMessage()
    world.server().respond(world.listeners, text("x"), version="5")
    assert heard.take() == [(AMBIENT, OK)]
    world.close()


# ---------------------------------------------------------------------------------------------
# Trouble with the server


@pytest.mark.spec("A57-01")
def test_a_stream_that_ends_before_any_response_is_an_outage_with_growing_backoff() -> None:
    world = ClientWorld()
    server = world.server()
    heard = world.watch(world.listeners, "x")
    started = []
    for _ in range(20):
        started.append(world.clock.now_s())
        server.ads.end(Status(StatusCode.UNAVAILABLE, "going down"))
        streams = len(server.streams)
        while len(server.streams) == streams:
            assert world.clock.advance_to_next()
    # Few words for a long time: each text is told to every watcher.
    silences = ["does not answer"]
    silences += [f"has not answered for over {each}" for each in ("1 min", "10 min")]
    reason = "stream ended before any response: UNAVAILABLE: going down"
    assert [(status.code, status.details) for status in heard.take()] == [
        (StatusCode.UNAVAILABLE, f'xds server "a": {silence}: {reason} (node id "edge-7")')
        for silence in silences
    ]
    base_s = 1.0
    for before, after in pairwise(started):
        assert 0.8 * base_s <= round(after - before, 6) <= 1.2 * base_s
        base_s = min(base_s * 1.6, 120.0)
    assert base_s == 120.0
    world.close()


@pytest.mark.spec("A57-01")
def test_a_stream_that_ends_after_a_response_is_no_error_and_resets_the_backoff() -> None:
    world = ClientWorld()
    server = world.server()
    heard = world.watch(world.listeners, "x")
    for _ in range(10):
        server.ads.end(GONE)
        while not server.open_ads:
            world.clock.advance_to_next()
    world.settle()
    heard.take()
    server.respond(world.listeners, text("x"))
    assert heard.take() == ["v1"]
    world.clock.advance(60)
    server.ads.end(GONE)
    assert heard.take() == []
    # It lasted, so its successor need not wait.
    world.settle()
    assert server.open_ads == 1
    server.ads.end(GONE)
    world.clock.advance(1.2)
    assert server.open_ads == 1
    assert heard.take_codes() == [(AMBIENT, "UNAVAILABLE")]
    world.close()


def test_a_server_that_hangs_up_at_every_answer_is_asked_once_per_second() -> None:
    world = ClientWorld()
    server = world.server()
    heard = world.watch(world.listeners, "x")
    started_s = world.clock.now_s()
    for _ in range(50):
        server.respond(world.listeners, text("x"))
        server.ads.end(GONE)
        while not server.open_ads:
            world.clock.advance_to_next()
        world.settle()
    # Fifty reconnects, and the watcher heard of the resource once.
    assert heard.take() == ["v1"]
    assert 0.8 * 50 <= world.clock.now_s() - started_s <= 1.2 * 50
    assert len(server.streams) == 51
    world.close()


@pytest.mark.spec("A57-02")
def test_watchers_are_notified_with_the_cause_when_the_server_is_unreachable() -> None:
    world = ClientWorld()
    server = world.server()
    server.is_up = False
    x = world.watch(world.listeners, "x")
    server.fail(Status(StatusCode.UNAVAILABLE, "10.0.0.1:443: connection refused"))
    world.settle()
    (status,) = x.take()
    assert status == Status(
        StatusCode.UNAVAILABLE,
        'xds server "a": does not answer: 10.0.0.1:443: connection refused (node id "edge-7")',
    )
    # The stream waits for ready, so there is no second one.
    assert len(server.streams) == 1
    # Who comes now hears the same at once.
    y = world.watch(world.listeners, "y")
    assert y.take() == [status]
    server.rise()
    world.settle()
    server.respond(world.listeners, text("x"), text("y"))
    assert (x.take(), y.take()) == (["v1"], ["v1"])
    server.fail()
    world.settle()
    assert x.take_codes() == [(AMBIENT, "UNAVAILABLE")]
    world.close()


@pytest.mark.spec("A57-03")
def test_the_time_for_a_resource_runs_only_on_a_connected_stream() -> None:
    world = ClientWorld()
    server = world.server()
    server.is_up = False
    heard = world.watch(world.listeners, "x")
    world.clock.advance(1000)
    assert heard.take() == []
    server.rise()
    world.clock.advance(14.9)
    assert heard.take() == []
    world.clock.advance(0.1)
    assert heard.take() == [
        Status(
            StatusCode.NOT_FOUND,
            'listener "x": does not exist (not sent by xds server "a" in 15 s) (node id "edge-7")',
        )
    ]
    world.close()


@pytest.mark.spec("A57-03")
def test_a_name_added_later_has_its_own_time_and_a_cached_one_none() -> None:
    world = ClientWorld()
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


@pytest.mark.spec("A57-03")
def test_a_new_stream_gives_new_time_to_what_is_still_missing() -> None:
    world = ClientWorld()
    server = world.server()
    x, y = world.watch(world.listeners, "x"), world.watch(world.listeners, "y")
    server.respond(world.listeners, text("x"))
    world.clock.advance(10)
    server.is_up = False
    server.ads.end()
    world.clock.advance(100)
    assert y.take() == []
    server.rise()
    world.clock.advance(14.9)
    assert y.take() == []
    world.clock.advance(0.1)
    assert (x.take(), y.take_codes()) == (["v1"], ["NOT_FOUND"])
    # Found missing once is enough: another stream does not tell it again.
    server.is_up = True
    server.ads.end()
    world.clock.advance(100)
    assert y.take() == []
    world.close()


@pytest.mark.spec("A57-04")
def test_cached_resources_stay_in_use_if_a_new_stream_never_sends_them() -> None:
    world = ClientWorld()
    server = world.server()
    heard = world.watch(world.listeners, "x")
    server.respond(world.listeners, text("x"))
    server.ads.end()
    world.clock.advance(10_000)
    assert heard.take() == ["v1"]
    assert world.client.dump()[0].status is ResourceStatus.ACKED
    late = world.watch(world.listeners, "x")
    assert late.take() == ["v1"]
    world.close()


def test_an_ambient_outage_is_over_when_the_server_answers_whatever_it_says() -> None:
    world = ClientWorld()
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


def two_servers() -> ClientWorld:
    return ClientWorld(server_config("a"), server_config("b"))


@pytest.mark.spec("A71-01")
def test_the_next_server_is_used_only_if_something_is_missing() -> None:
    world = two_servers()
    a, b = world.server("a"), world.server("b")
    x, gone = world.watch(world.listeners, "x"), world.watch(world.listeners, "gone")
    a.respond(world.listeners, text("x"))
    # What does not exist is known as well as what does.
    world.clock.advance(15)
    assert gone.take_codes() == ["NOT_FOUND"]
    a.fail()
    world.settle()
    assert b.streams == []
    assert x.take_codes() == ["v1", (AMBIENT, "UNAVAILABLE")]
    # Now something is.
    y = world.watch(world.routes, "y")
    assert names_of(b.take_requests()) == [["x", "gone"], ["y"]]
    assert y.take() == []
    world.close()


@pytest.mark.spec("A71-01")
def test_a_server_that_can_be_reached_is_not_left_because_of_a_missing_resource() -> None:
    world = two_servers()
    heard = world.watch(world.listeners, "x")
    world.clock.advance(100)
    assert heard.take_codes() == ["NOT_FOUND"]
    assert world.server("b").streams == []
    world.close()


@pytest.mark.spec("A71-02")
def test_fallback_asks_for_everything_and_an_answer_from_above_ends_it() -> None:
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
    # The higher one is still tried, and counts as soon as it answers.
    assert a.open_ads == 1
    a.rise()
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


def test_a_server_that_is_listed_twice_is_one_server() -> None:
    world = ClientWorld(server_config("a"), server_config("a"))
    a = world.server("a")
    a.is_up = False
    heard = world.watch(world.listeners, "x")
    a.fail()
    world.settle()
    heard.take()
    a.rise()
    world.settle()
    a.respond(world.listeners, text("x", "first"))
    assert heard.take() == ["first"]
    assert a.open_ads == 1
    world.close()


@pytest.mark.spec("A71-02")
def test_a_silent_server_above_does_not_take_away_what_came_from_below() -> None:
    world = two_servers()
    a, b = world.server("a"), world.server("b")
    a.is_up = False
    heard = world.watch(world.listeners, "x")
    a.fail()
    world.settle()
    # Both have time for it from now on; one uses it.
    a.rise()
    world.settle()
    b.respond(world.listeners, text("x", "from b"))
    world.clock.advance(100)
    assert heard.take() == ["from b"]
    assert b.open_ads == 1
    world.close()


@pytest.mark.spec("A47-02", "A71-02")
def test_a_server_that_others_use_stays_when_one_authority_needs_it_no_more() -> None:
    a, b = server_config("a"), server_config("b")
    template = "xdstp://one/envoy.config.listener.v3.Listener/%s"
    bootstrap = Bootstrap(servers=(a, b), authorities={"one": Authority((b,), template)})
    world = ClientWorld(bootstrap=bootstrap)
    world.server("a").is_up = False
    other = "xdstp://one/test.v3.RouteConfiguration/r"
    world.watch(world.routes, "r")
    world.watch(world.routes, other)
    world.server("a").fail()
    world.settle()
    assert names_of(world.server("b").take_requests())[-1] == [other, "r"]
    world.server("a").rise()
    world.settle()
    world.server("a").respond(world.routes, text("r"))
    assert names_of(world.server("b").take_requests())[-1] == [other]
    assert world.server("b").open_ads == 1
    world.close()


@pytest.mark.spec("A47-02")
def test_the_last_name_of_an_authority_is_given_up_and_found_again_on_a_shared_server() -> None:
    template = "xdstp://one/envoy.config.listener.v3.Listener/%s"
    bootstrap = Bootstrap(
        servers=(server_config("a"),), authorities={"one": Authority((), template)}
    )
    world = ClientWorld(bootstrap=bootstrap)
    server, other = world.server("a"), "xdstp://one/test.v3.RouteConfiguration/r"
    world.watch(world.routes, "plain")
    before, after = Recorder(), Recorder()
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


@pytest.mark.spec("A47-02")
def test_rejected_resource_has_no_effect_when_its_watch_is_cancelled() -> None:
    template = "xdstp://one/envoy.config.listener.v3.Listener/%s"
    bootstrap = Bootstrap(
        servers=(server_config("a"),), authorities={"one": Authority((), template)}
    )
    world = ClientWorld(bootstrap=bootstrap)
    server, other = world.server("a"), "xdstp://one/test.v3.Listener/l"
    plain = world.watch(world.listeners, "plain")
    cancel = world.client.watch(world.listeners, other, Recorder())
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


@pytest.mark.spec("A71-02")
def test_outage_is_published_only_when_all_servers_are_unreachable() -> None:
    world = two_servers()
    a, b = world.server("a"), world.server("b")
    heard = world.watch(world.listeners, "x")
    a.fail()
    world.settle()
    assert heard.take() == []
    b.ads.end(GONE)
    world.settle()
    (status,) = heard.take()
    assert status.code is StatusCode.UNAVAILABLE
    assert 'xds server "b"' in status.details
    world.close()


@pytest.mark.spec("A71-03")
def test_targets_have_clients_of_their_own_unless_an_agent_serves_one_stream_only() -> None:
    world = ClientWorld()
    clients = XdsClients(world.transports, world.tools)
    servers = (server_config("a"), server_config("b"))
    bootstrap = Bootstrap(servers=servers, node=Node("edge-7"))
    one, two = clients.acquire(bootstrap, "xds:///one"), clients.acquire(bootstrap, "xds:///two")
    assert one is not two
    assert clients.acquire(bootstrap, "xds:///one") is one
    x, y = Recorder(), Recorder()
    one.watch(world.listeners, "x", x)
    world.settle()
    world.server("a").respond(world.listeners, text("x"))
    two.watch(world.listeners, "y", y)
    world.settle()
    world.server("a").fail()
    world.settle()
    # Only the one that misses something has fallen back.
    assert names_of(world.server("b").take_requests()) == [["y"]]
    assert x.take_codes() == ["v1", (AMBIENT, "UNAVAILABLE")]
    clients.close()
    world.close()


@pytest.mark.spec("A47-02")
def test_one_server_in_two_authorities_has_one_stream_and_names_have_one_spelling() -> None:
    template = "xdstp://{}/envoy.config.listener.v3.Listener/%s"
    bootstrap = Bootstrap(
        servers=(server_config("a"),),
        authorities={
            "one": Authority((server_config("a"),), template.format("one")),
            "two": Authority((), template.format("two")),
        },
    )
    world = ClientWorld(bootstrap=bootstrap)
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


@pytest.mark.spec("A88-01")
def test_late_watcher_is_notified_of_the_resource_and_then_of_the_ambient_error() -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.server().fail()
    world.settle()
    late = world.watch(world.listeners, "x")
    assert late.take_codes() == ["v1", (AMBIENT, "UNAVAILABLE")]
    world.server().respond(world.listeners, text("x"))
    assert late.take() == [(AMBIENT, OK)]
    # A new resource ends the trouble by itself.
    world.server().fail()
    world.settle()
    world.server().respond(world.listeners, text("x", "v2"), version="2")
    assert late.take_codes() == [(AMBIENT, "UNAVAILABLE"), (AMBIENT, "OK"), "v2"]
    world.close()


@pytest.mark.spec("A88-02")
@pytest.mark.parametrize("trouble", ["nack", "deletion"])
def test_data_errors_drop_the_resource_only_where_the_server_says_so(trouble: str) -> None:
    told = {}
    for features in ((), (FAIL_ON_DATA_ERRORS,)):
        world = ClientWorld(server_config("a", *features), has_data_error_handling=True)
        heard = world.watch(world.listeners, "x")
        world.server().respond(world.listeners, text("x"))
        resources = [text("x", "bad")] if trouble == "nack" else []
        world.server().respond(world.listeners, *resources, version="2")
        told[features] = (heard.take_codes(), world.client.dump()[0].serialized)
        world.close()
    code = "INVALID_ARGUMENT" if trouble == "nack" else "NOT_FOUND"
    assert told[()] == (["v1", (AMBIENT, code)], text("x"))
    assert told[FAIL_ON_DATA_ERRORS,] == (["v1", code], b"")


@pytest.mark.spec("A88-02")
@pytest.mark.parametrize(
    ("code", "features", "expected"),
    [
        (StatusCode.NOT_FOUND, (), ["v1", (AMBIENT, "NOT_FOUND")]),
        (StatusCode.NOT_FOUND, (FAIL_ON_DATA_ERRORS,), ["v1", "NOT_FOUND"]),
        (StatusCode.PERMISSION_DENIED, (FAIL_ON_DATA_ERRORS,), ["v1", "PERMISSION_DENIED"]),
        (StatusCode.UNAVAILABLE, (FAIL_ON_DATA_ERRORS,), ["v1", (AMBIENT, "UNAVAILABLE")]),
    ],
)
def test_a_server_that_says_why_it_sends_nothing(
    code: StatusCode, features: tuple[str, ...], expected: list[object]
) -> None:
    world = ClientWorld(server_config("a", *features), has_data_error_handling=True)
    heard = world.watch(world.routes, "r")
    world.server().respond(world.routes, text("r"))
    say_error(world, "r", code)
    assert heard.take_codes() == expected
    world.close()


def say_error(world: ClientWorld, name: str, code: StatusCode) -> None:
    response = DiscoveryResponse(type_url=world.routes.type_url, nonce="e")
    error = response.resource_errors.add()
    error.resource_name.name = name
    error.error_detail.code = code
    error.error_detail.message = "the control plane's own words"
    world.server().ads.say(response.SerializeToString())
    world.settle()


@pytest.mark.spec("A88-03")
def test_errors_of_the_server_are_published_at_once_and_only_in_this_mode() -> None:
    world = ClientWorld(has_data_error_handling=True)
    heard = world.watch(world.routes, "r")
    say_error(world, "r", StatusCode.PERMISSION_DENIED)
    (status,) = heard.take()
    assert status.code is StatusCode.PERMISSION_DENIED
    assert status.details == (
        'route configuration "r": xds server "a" says: the control plane\'s own words'
        ' (node id "edge-7")'
    )
    assert world.client.dump()[0].status is ResourceStatus.RECEIVED_ERROR
    world.clock.advance(100)
    assert heard.take() == []
    world.close()
    plain = ClientWorld()
    heard = plain.watch(plain.routes, "r")
    say_error(plain, "r", StatusCode.PERMISSION_DENIED)
    assert heard.take() == []
    plain.close()


@pytest.mark.spec("A88-03")
def test_a_slow_server_that_would_say_what_is_missing_gets_30_s_and_is_unavailable() -> None:
    server = server_config("a", RESOURCE_TIMER_IS_TRANSIENT_ERROR)
    world = ClientWorld(server, has_data_error_handling=True)
    heard = world.watch(world.routes, "r")
    world.clock.advance(29.9)
    assert heard.take() == []
    world.clock.advance(0.1)
    assert heard.take_codes() == ["UNAVAILABLE"]
    assert world.client.dump()[0].status is ResourceStatus.TIMEOUT
    world.close()


# ---------------------------------------------------------------------------------------------
# Hostile control planes


def test_a_response_without_a_nonce_is_answered() -> None:
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    world.server().take_requests()
    world.server().respond(world.listeners, text("x"), nonce="", version="")
    assert heard.take() == ["v1"]
    assert len(world.server().take_requests()) == 1
    world.close()


def test_of_several_resources_with_one_name_the_first_counts() -> None:
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    world.server().take_requests()
    world.server().respond(world.listeners, text("x", "first"), text("x", "second"))
    (nack,) = world.server().take_requests()
    assert 'listener "x": comes more than once' in nack.error_detail.message
    assert heard.take() == ["first"]
    # Nor when its bytes are known already.
    world.server().respond(world.listeners, text("x", "first"), text("x", "first"))
    (nack,) = world.server().take_requests()
    assert 'listener "x": comes more than once' in nack.error_detail.message
    assert heard.take() == []
    world.close()


def test_garbage_that_hides_a_name_deletes_nothing() -> None:
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.server().respond(world.listeners, b"\x00garbage", version="2")
    assert heard.take() == ["v1"]
    assert world.client.dump()[0].version == "1"
    world.close()


def test_a_resource_of_another_type_is_refused() -> None:
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    world.server().take_requests()
    response = DiscoveryResponse(type_url=world.listeners.type_url, nonce="n")
    response.resources.add(type_url="type.googleapis.com/else.Where", value=text("x"))
    wrapper_url = "type.googleapis.com/envoy.service.discovery.v3.Resource"
    response.resources.add(type_url=wrapper_url, value=b"\xff\xff")
    inner = message_class("envoy.service.discovery.v3.Resource")(name="x")
    inner.resource.type_url = wrapper_url
    response.resources.add(type_url=wrapper_url, value=inner.SerializeToString())
    world.server().ads.say(response.SerializeToString())
    world.settle()
    (nack,) = world.server().take_requests()
    assert nack.error_detail.message.count(', wanted "type.googleapis.com/test.v3.Listener"') == 3
    assert heard.take() == []
    world.close()


def test_a_decoder_that_raises_refuses_the_resource(caplog: pytest.LogCaptureFixture) -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    world.server().take_requests()
    world.server().respond(world.listeners, b'{"surprise": 1}')
    (nack,) = world.server().take_requests()
    assert "decoding raised KeyError" in nack.error_detail.message
    assert "decoding raised" in caplog.text
    world.close()


class Careless(Text):
    """A type that leaves out what it should say."""

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[str]:
        return Decoded("x") if serialized == b"nothing" else Decoded("", "resource")


def test_a_resource_without_a_name_or_content_is_refused() -> None:
    world = ClientWorld()
    careless = Careless("Listener", is_full_state=True)
    heard = world.watch(careless, "x")
    world.server().take_requests()
    world.server().respond(careless, b"nothing", b"nameless")
    (nack,) = world.server().take_requests()
    assert nack.error_detail.message == (
        'listener #0: cannot be decoded; listener #1: has no name (node id "edge-7")'
    )
    assert heard.take_codes() == ["INVALID_ARGUMENT"]
    world.close()


def test_names_that_are_not_valid_are_refused_and_ignored() -> None:
    world = ClientWorld()
    heard = world.watch(world.routes, "xdstp:no slashes")
    assert heard.take_codes() == ["UNAVAILABLE"]
    cancel = world.client.watch(world.routes, "xdstp:no slashes", heard)
    cancel()
    world.settle()
    assert heard.take() == []
    assert "a" not in world.transports.servers
    good = world.watch(world.routes, "r")
    world.server().respond(world.routes, text("xdstp:no slashes"), text("r"))
    assert good.take() == ["v1"]
    world.close()


def test_a_wrapper_with_another_name_does_not_hide_what_is_in_it() -> None:
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    response = DiscoveryResponse(type_url=world.listeners.type_url, version_info="2")
    inner = message_class("envoy.service.discovery.v3.Resource")(name="y")
    inner.resource.type_url = world.listeners.type_url
    inner.resource.value = text("x")
    wrapper_url = "type.googleapis.com/envoy.service.discovery.v3.Resource"
    response.resources.add(type_url=wrapper_url, value=inner.SerializeToString())
    world.server().ads.say(response.SerializeToString())
    world.settle()
    assert heard.take() == ["v1"]
    assert world.client.dump()[0].version == "2"
    world.close()


def test_a_server_that_sends_a_resource_and_an_error_for_it_has_sent_it() -> None:
    world = ClientWorld(has_data_error_handling=True)
    heard = world.watch(world.routes, "r")
    serialized = world.server().response(world.routes, [text("r")])
    response = DiscoveryResponse.FromString(serialized)
    error = response.resource_errors.add()
    error.resource_name.name = "r"
    error.error_detail.code = StatusCode.NOT_FOUND
    world.server().ads.say(response.SerializeToString())
    world.settle()
    assert heard.take() == ["v1"]
    world.close()


def test_a_nack_has_a_limit_however_much_is_wrong() -> None:
    world = ClientWorld()
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


def test_there_is_a_limit_to_what_can_be_watched() -> None:
    world = ClientWorld(resources_max=2)
    world.watch(world.listeners, "x")
    cancel = world.client.watch(world.listeners, "y", Recorder())
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


def test_a_server_whose_configuration_is_unusable_is_out() -> None:
    world = ClientWorld(server_config("unusable"))
    heard = world.watch(world.listeners, "x")
    (status,) = heard.take()
    assert status.details == (
        'xds server "unusable": does not answer: no such credentials (node id "edge-7")'
    )
    world.close()


def test_a_server_may_not_speak_for_the_names_of_others() -> None:
    bootstrap = Bootstrap(
        servers=(server_config("a"),),
        authorities={"one": Authority((server_config("b"),), "xdstp://one/x/%s")},
    )
    world = ClientWorld(bootstrap=bootstrap)
    name = "xdstp://one/test.v3.RouteConfiguration/r"
    theirs = world.watch(world.routes, name)
    ours = world.watch(world.routes, "r")
    world.server("a").respond(world.routes, text(name, "a lie"), text("r"))
    assert (theirs.take(), ours.take()) == ([], ["v1"])
    world.close()


# ---------------------------------------------------------------------------------------------
# Load reports


def want_load(world: ClientWorld, interval_s: float, *clusters: str) -> None:
    response = LoadStatsResponse(clusters=clusters, send_all_clusters=not clusters)
    response.load_reporting_interval.FromMilliseconds(int(interval_s * 1000))
    world.server().lrs.say(response.SerializeToString())
    world.settle()


@pytest.mark.spec("LRS-01")
def test_load_is_counted_by_locality_and_drop_category() -> None:
    world = ClientWorld()
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
    want_load(world, 10)
    locality = load.locality(("r", "z", "s"))
    assert load.locality(("r", "z", "s")) is locality
    for _ in range(5):
        locality.on_start()
    locality.on_end(True)
    locality.on_end(True)
    locality.on_end(False)
    locality.add_metric("cpu", 0.5)
    locality.add_metric("cpu", 0.25)
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
    (metric,) = counts.load_metric_stats
    assert metric.metric_name == "cpu"
    assert (metric.num_requests_finished_with_metric, metric.total_metric_value) == (2, 0.75)
    assert stats.total_dropped_requests == 3
    (dropped,) = stats.dropped_requests
    assert (dropped.category, dropped.dropped_count) == ("lb", 2)
    assert other_stats.cluster_name == "d"
    world.close()


@pytest.mark.spec("LRS-02")
def test_reports_follow_the_server_and_counters_start_again() -> None:
    world = ClientWorld()
    c, d = (world.client.load_stats(server_config(), name, "") for name in "cd")
    world.settle()
    world.server().lrs.take_requests()
    c.drop(None)
    d.drop(None)
    # Nothing is reported until the server says how often, and never more than once per second.
    world.clock.advance(100)
    assert world.server().lrs.take_requests() == []
    want_load(world, 0.001, "c")
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
    # What was not wanted so far is still counted.
    want_load(world, 5)
    world.clock.advance(5)
    (report,) = world.server().lrs.take_requests()
    assert [(each.cluster_name, each.total_dropped_requests) for each in report.cluster_stats] == [
        ("d", 1)
    ]
    world.close()


@pytest.mark.spec("LRS-02")
def test_error_of_load_reports_has_no_effect_on_ads() -> None:
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    load = world.client.load_stats(server_config(), "c", "")
    want_load(world, 1)
    world.server().lrs.say(b"\xff\xff")
    world.settle()
    load.drop(None)
    world.server().lrs.end(Status(StatusCode.UNIMPLEMENTED, "no load reports here"))
    world.clock.advance(100)
    assert heard.take() == ["v1"]
    assert world.server().open_ads == 1
    # It is tried again, and nothing that was counted is lost.
    want_load(world, 1)
    world.server().lrs.take_requests()
    world.clock.advance(1)
    (report,) = world.server().lrs.take_requests()
    assert report.cluster_stats[0].total_dropped_requests == 1
    world.close()


@pytest.mark.spec("LRS-01")
def test_load_stream_is_open_as_long_as_load_is_counted() -> None:
    world = ClientWorld()
    one = world.client.load_stats(server_config(), "c", "")
    two = world.client.load_stats(server_config(), "c", "")
    three = world.client.load_stats(server_config(), "d", "")
    world.settle()
    want_load(world, 1)
    world.server().lrs.take_requests()
    three.drop(None)
    three.release()
    one.release()
    # What is gone is reported once more.
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
# The end


def test_a_closed_client_tells_nothing_and_takes_nothing() -> None:
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    world.server().ads.say(world.server().response(world.listeners, [text("x")]))
    world.client.close()
    world.client.close()
    world.settle()
    assert heard.take() == []
    with pytest.raises(ValueError, match="closed"):
        world.client.watch(world.listeners, "x", heard)
    with pytest.raises(ValueError, match="closed"):
        world.client.load_stats(server_config(), "c", "")
    world.close()


def test_a_client_may_be_closed_by_its_watcher() -> None:
    world = ClientWorld()
    heard = Recorder(on_news=world.client.close)
    world.client.watch(world.listeners, "x", heard)
    other = world.watch(world.listeners, "y")
    world.server().respond(world.listeners, text("x"), text("y"))
    assert (heard.take(), other.take()) == (["v1"], [])
    world.close()


def test_agents_get_one_client_for_all_targets() -> None:
    world = ClientWorld()
    clients = XdsClients(FakeTransports(world.clock), world.tools)
    agent = Bootstrap(servers=(server_config("unix:///etc/istio/proxy/XDS"),))
    remote = Bootstrap(servers=(server_config("istiod:15010"),))
    assert clients.acquire(agent, "one") is clients.acquire(agent, "two")
    assert clients.acquire(agent, "one", shared=False) is not clients.acquire(agent, "one")
    assert clients.acquire(remote, "one", shared=True) is clients.acquire(
        remote, "two", shared=True
    )
    clients.close()
    world.close()
