"""Unit tests of proxyless.controlplane.ads."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import StatusCode, Trace, hits
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTE_CONFIG,
    AdsStream,
    Nack,
    RequestRefused,
    Resource,
    Snapshot,
    Verdict,
    Withheld,
    eds_cluster,
    endpoints,
    route,
    route_config,
)
from proxyless.controlplane import ads as ads_module
from proxyless.protos import message_class
from tests.worlds.ads_clients import AdsClient, mesh, request, show


def proxy(snapshot: Snapshot, **options: object) -> AdsClient:
    """A client that subscribes like Envoy, and has accepted everything."""
    client = AdsClient(**options)
    client.publish(snapshot)
    client.subscribe(CLUSTER)
    client.subscribe(ENDPOINTS, *snapshot.resources(ENDPOINTS))
    client.subscribe(LISTENER)
    client.subscribe(ROUTE_CONFIG, "routes")
    client.ack_all()
    return client


def grpc_client(snapshot: Snapshot, **options: object) -> AdsClient:
    """A client that subscribes like gRPC, by name, and has accepted everything."""
    client = AdsClient(**options)
    client.publish(snapshot)
    client.subscribe(LISTENER, "api")
    client.subscribe(ROUTE_CONFIG, "routes")
    client.subscribe(CLUSTER, *snapshot.resources(CLUSTER))
    client.subscribe(ENDPOINTS, *snapshot.resources(ENDPOINTS))
    client.ack_all()
    return client


# Subscriptions


def test_subscribed_resources_are_sent() -> None:
    client = AdsClient()
    client.publish(mesh("a", "b"))
    assert client.subscribe(CLUSTER) == ["CDS 1: a b"]
    assert client.subscribe(ENDPOINTS, "b") == ["EDS 1: b"]
    assert client.subscribe(LISTENER, "api") == ["LDS 1: api"]
    assert client.subscribe(ROUTE_CONFIG, "routes") == ["RDS 1: routes"]


def test_first_snapshot_answers_earlier_requests() -> None:
    client = AdsClient()
    assert client.subscribe(LISTENER) == []
    assert client.subscribe(CLUSTER) == []
    assert client.publish(mesh("a")) == ["CDS 1: a", "LDS 1: api"]


def test_only_added_names_are_sent() -> None:
    client = AdsClient()
    client.publish(mesh("a", "b"))
    client.subscribe(ENDPOINTS, "a")
    client.ack()
    assert client.subscribe(ENDPOINTS, "a", "b") == ["EDS 1: b"]


def test_all_clusters_are_sent_when_a_name_is_added() -> None:
    client = AdsClient()
    client.publish(mesh("a", "b"))
    client.subscribe(CLUSTER, "a")
    client.ack()
    assert client.subscribe(CLUSTER, "a", "b") == ["CDS 1: a b"]


def test_missing_cluster_is_answered_by_a_response_without_it() -> None:
    client = AdsClient()
    client.publish(mesh("a"))
    client.subscribe(LISTENER, "api")
    client.subscribe(ROUTE_CONFIG, "routes")
    assert client.subscribe(CLUSTER, "z") == ["CDS 1:"]


def test_missing_endpoints_are_sent_when_they_are_added() -> None:
    client = AdsClient()
    client.publish(mesh("a"))
    assert client.subscribe(ENDPOINTS, "z") == []
    assert client.publish(mesh("a").with_(endpoints("z", []))) == ["EDS 2: z"]


def test_removed_name_is_sent_again_when_it_is_added_again() -> None:
    client = AdsClient()
    client.publish(mesh("a", "b"))
    client.subscribe(ENDPOINTS, "a", "b")
    client.ack()
    assert client.subscribe(ENDPOINTS, "a") == []
    assert client.subscribe(ENDPOINTS, "a", "b") == ["EDS 1: b"]
    client.ack()
    assert client.subscribe(ENDPOINTS) == []
    assert client.subscribe(ENDPOINTS, "a") == ["EDS 1: a"]


def test_ack_gets_no_response() -> None:
    client = AdsClient()
    client.publish(mesh("a"))
    client.subscribe(CLUSTER)
    assert client.ack() == []


# Nonces


def test_request_with_a_stale_nonce_is_ignored() -> None:
    client = proxy(mesh("a", "b"))
    stale = request(ENDPOINTS, ["a"], nonce="1")
    client.publish(mesh("a", "b", version="2", port=2))
    assert client.stream.on_request(stale) == []
    assert client.stream.subscriptions[ENDPOINTS].names == {"a", "b"}


def test_request_before_the_response_arrived_changes_the_subscription() -> None:
    stream = AdsStream()
    stream.on_snapshot(mesh("a", "b"))
    [first] = stream.on_request(request(ENDPOINTS, ["a"]))
    [second] = stream.on_request(request(ENDPOINTS, ["a", "b"]))
    assert first.nonce != second.nonce
    # The ACK of the first response arrives after the second was sent.
    assert stream.on_request(request(ENDPOINTS, ["a", "b"], nonce=first.nonce)) == []
    assert stream.verdict(ENDPOINTS) is Verdict.PENDING
    assert stream.on_request(request(ENDPOINTS, ["a", "b"], nonce=second.nonce)) == []
    assert stream.verdict(ENDPOINTS) is Verdict.ACKED


def test_nonces_are_unique() -> None:
    client = AdsClient()
    client.publish(mesh("a"))
    for type_url in (CLUSTER, LISTENER):
        client.subscribe(type_url)
    client.publish(mesh("b", version="2"))
    nonces = [response.nonce for response in client.inbox]
    assert len(set(nonces)) == len(nonces)


# ACK and NACK


def test_ack_is_recorded_with_its_version() -> None:
    client = AdsClient()
    client.publish(mesh("a"))
    client.subscribe(CLUSTER)
    assert client.stream.verdict(CLUSTER) is Verdict.PENDING
    assert not client.stream.is_acked(CLUSTER, "1")
    client.ack()
    assert client.stream.is_acked(CLUSTER, "1")
    assert client.stream.acked_version(CLUSTER) == "1"


def test_nack_is_recorded_and_nothing_is_sent_again() -> None:
    nacks: list[Nack] = []
    client = AdsClient()
    client.stream = AdsStream(on_nack=nacks.append)
    client.publish(mesh("a"))
    client.subscribe(CLUSTER)
    assert client.nack("no such policy") == []
    nack = Nack("node-1", CLUSTER, "1", 3, "no such policy")
    assert nacks == [nack]
    assert client.stream.nack(CLUSTER) == nack
    assert client.stream.acked_version(CLUSTER) == ""
    assert not client.stream.is_acked(CLUSTER, "1")
    assert client.publish(mesh("a")) == []


def test_change_of_names_after_a_nack_is_no_ack() -> None:
    client = AdsClient()
    client.publish(mesh("a", "b"))
    client.subscribe(CLUSTER, "a", "b")
    client.nack("no")
    assert client.subscribe(CLUSTER, "a") == []
    assert client.stream.verdict(CLUSTER) is Verdict.NACKED


def test_valid_version_is_sent_again_after_a_nack() -> None:
    good = mesh("a")
    client = proxy(good)
    bad = good.with_(eds_cluster("a", lb_policy="MAGLEV"))
    assert client.publish(bad) == ["CDS 2: a"]
    client.nack("no")
    assert client.publish(bad.with_(eds_cluster("a"))) == ["CDS 3: a"]
    client.ack()
    assert client.stream.nack(CLUSTER) is None


def test_nack_text_has_node_resource_type_and_error() -> None:
    nack = Nack("edge-7", CLUSTER, "2", 3, "unsupported lb_policy")
    assert str(nack) == "xds node 'edge-7': cluster version '2' refused: unsupported lb_policy"


def test_change_of_unsubscribed_resources_is_acked_without_a_response() -> None:
    client = AdsClient()
    client.publish(mesh("a", "b"))
    client.subscribe(ENDPOINTS, "a")
    client.ack()
    changed = mesh("a", "b").with_(endpoints("b", []))
    assert client.publish(changed) == []
    assert client.stream.is_acked(ENDPOINTS, "2")


# Make before break


def test_responses_are_in_the_order_cds_eds_lds_rds() -> None:
    client = AdsClient()
    for type_url, names in ((ROUTE_CONFIG, ["routes"]), (LISTENER, []), (ENDPOINTS, ["a"])):
        client.subscribe(type_url, *names)
    client.subscribe(CLUSTER)
    assert client.publish(mesh("a")) == ["CDS 1: a", "EDS 1: a", "LDS 1: api", "RDS 1: routes"]


def test_new_routes_are_sent_when_their_clusters_are_acked() -> None:
    client = proxy(mesh("old"))
    after = mesh("old").replaced(mesh("new"))
    # The old cluster is kept.
    assert client.publish(after) == ["CDS 2: new old"]
    # Envoy subscribes to the endpoints before it accepts the cluster.
    assert client.subscribe(ENDPOINTS, "new", "old") == ["EDS 2: new"]
    assert client.ack() == []
    assert client.ack() == ["RDS 2: routes"]
    assert not client.stream.is_acked(CLUSTER, "2")
    assert client.stream.has_removal_pending()
    # The old cluster is removed when the new routes are accepted.
    assert client.ack() == ["CDS 2: new"]
    assert not client.stream.has_removal_pending()
    client.ack()
    assert client.stream.is_acked(CLUSTER, "2")


@pytest.mark.parametrize(
    ("agent", "responses"), [("envoy", ["CDS 2: a b", "EDS 1: a"]), ("gRPC", ["CDS 2: a b"])]
)
def test_endpoints_of_a_changed_cluster_are_sent_again_to_envoy(
    agent: str, responses: list[str]
) -> None:
    before = mesh("a", "b")
    client = proxy(before)
    client.stream.node.user_agent_name = agent
    assert client.publish(before.with_(eds_cluster("a", lb_policy="RING_HASH"))) == responses
    client.ack_all()
    assert client.stream.is_acked(CLUSTER, "2")
    assert client.publish(before.with_(endpoints("a", ["10.0.0.2:1"]), version="3")) != []


def test_old_cluster_is_removed_when_a_client_has_all_new_ones() -> None:
    client = grpc_client(mesh("old"))
    assert client.publish(mesh("old").replaced(mesh("new"))) == ["RDS 2: routes"]
    assert client.ack() == []
    assert client.subscribe(CLUSTER, "old", "new") == ["CDS 2: new old"]
    assert client.ack() == []
    assert client.subscribe(ENDPOINTS, "old", "new") == ["EDS 2: new"]
    assert client.ack() == ["CDS 2: new"]


def test_cluster_of_an_earlier_stream_is_removed_after_new_routes() -> None:
    client = AdsClient()
    client.subscribe(LISTENER, "api")
    client.subscribe(ROUTE_CONFIG, "routes")
    client.subscribe(CLUSTER, "old")
    assert client.publish(mesh("new")) == ["LDS 1: api", "RDS 1: routes", "CDS 1:"]


def test_cluster_of_an_earlier_stream_is_removed_after_routes_that_wait_for_endpoints() -> None:
    client = grpc_client(mesh("new"))
    changed = mesh("new", port=2, version="2").with_(route_config("routes", route(cluster="new")))
    assert client.publish(changed) == ["EDS 2: new"]
    assert client.subscribe(CLUSTER, "old", "new") == []
    assert client.ack() == ["RDS 3: routes", "CDS 2: new"]


@pytest.mark.parametrize("earlier", [(), (LISTENER,), (ROUTE_CONFIG,)])
def test_cluster_of_an_earlier_stream_is_removed_after_routes_that_are_requested_later(
    earlier: tuple[str, ...],
) -> None:
    """As grpcio does, whose order of types is that of their addresses in memory."""
    client = AdsClient()
    client.publish(mesh("new"))
    names = {LISTENER: "api", ROUTE_CONFIG: "routes"}
    for type_url in earlier:
        client.subscribe(type_url, names.pop(type_url))
    assert client.subscribe(CLUSTER, "old") == []
    assert client.stream.has_removal_pending()
    shown = [text for type_url in names for text in client.subscribe(type_url, names[type_url])]
    assert shown[-1] == "CDS 1:"
    assert not client.stream.has_removal_pending()


def test_cluster_of_an_earlier_stream_is_removed_after_a_time_if_no_routes_are_requested() -> None:
    client = AdsClient()
    client.publish(mesh("new"))
    assert client.subscribe(CLUSTER, "old", "new") == []
    assert show(client.stream.on_removal_timeout()) == ["CDS 1: new"]


def test_cluster_of_an_earlier_stream_is_removed_while_routes_are_withheld() -> None:
    client = AdsClient()
    client.subscribe(LISTENER, "api")
    client.subscribe(CLUSTER, "old")
    client.stream.on_snapshot(mesh("new"), Withheld(types=frozenset({LISTENER})))
    assert client.stream.verdict(CLUSTER) is Verdict.PENDING


def test_removal_is_not_sent_when_the_client_unsubscribes() -> None:
    client = grpc_client(mesh("old"))
    client.publish(mesh("old").replaced(mesh("new")))
    client.ack()
    client.subscribe(CLUSTER, "old", "new")
    client.ack()
    assert client.subscribe(CLUSTER, "new") == []
    assert client.stream.is_acked(CLUSTER, "2")
    assert not client.stream.has_removal_pending()


def test_old_cluster_is_removed_after_the_timeout() -> None:
    client = grpc_client(mesh("old"))
    client.publish(mesh("old").replaced(mesh("new")))
    client.ack()
    assert client.stream.has_removal_pending()
    assert [response.type_url for response in client.stream.on_removal_timeout()] == [CLUSTER]
    assert not client.stream.has_removal_pending()


def test_old_clusters_are_kept_for_the_grace_after_new_routes_are_acked() -> None:
    client = proxy(mesh("old"), removal_grace_s=0.5)
    client.publish(mesh("old").replaced(mesh("new")))
    client.subscribe(ENDPOINTS, "new", "old")
    client.ack()
    assert client.ack() == ["RDS 2: routes"]
    assert not client.is_in_grace()
    assert client.ack() == []
    assert client.is_in_grace()
    assert client.stream.has_removal_pending()
    assert client.end_grace() == ["CDS 2: new"]
    assert not client.is_in_grace()
    assert not client.stream.has_removal_pending()


def test_next_removal_has_its_own_grace() -> None:
    client = proxy(mesh("a", "b", "c"), removal_grace_s=0.5)
    for version, left in ((2, ["a", "b"]), (3, ["a"])):
        client.publish(mesh(*left, version=str(version)))
        client.ack_all()
        assert client.is_in_grace()
        assert client.end_grace() == [f"CDS {version}: {' '.join(left)}"]
        client.ack_all()


def test_grace_ends_without_removal_when_the_cluster_is_added_again() -> None:
    client = proxy(mesh("a", "b"), removal_grace_s=0.5)
    client.publish(mesh("a", version="2"))
    client.ack_all()
    assert client.is_in_grace()
    client.publish(mesh("a", "b", version="3"))
    assert not client.is_in_grace()
    assert client.end_grace() == []


def test_changes_of_endpoints_do_not_extend_the_grace() -> None:
    client = proxy(mesh("a", "b"), removal_grace_s=0.5)
    after = mesh("a", version="2")
    client.publish(after)
    client.ack_all()
    assert client.is_in_grace()
    client.publish(after.with_(endpoints("a", ["10.0.0.2:1"]), version="3"))
    assert client.is_in_grace()
    client.ack_all()
    assert client.end_grace() == ["CDS 2: a"]


def test_grace_ends_while_a_response_is_not_answered() -> None:
    client = grpc_client(mesh("a", "b"), removal_grace_s=0.5)
    after = mesh("a", version="2")
    client.publish(after)
    client.ack_all()
    client.publish(after.with_(endpoints("a", ["10.0.0.2:1"]), version="3"))
    assert client.end_grace() == ["CDS 2: a"]


def test_new_routes_do_not_extend_the_grace_of_earlier_removals() -> None:
    client = proxy(mesh("a", "b", "c"), removal_grace_s=0.5)
    client.publish(mesh("a", "b", version="2"))
    client.ack_all()
    client.publish(mesh("a", version="3"))
    assert client.end_grace() == ["CDS 3: a b"]
    client.ack_all()
    assert client.is_in_grace()
    assert client.end_grace() == ["CDS 3: a"]


def test_new_grace_has_another_number() -> None:
    client = proxy(mesh("a", "b", "c"), removal_grace_s=0.5)
    client.publish(mesh("a", "b", version="2"))
    client.ack_all()
    first = client.stream.grace
    # c is added again when b is removed: the grace of b must not be the rest of c's.
    client.publish(mesh("a", "c", version="3"))
    client.ack_all()
    assert first is not None
    assert client.stream.grace not in (None, first)


def test_removal_timeout_stays_over_while_routes_and_clusters_are_equal() -> None:
    client = grpc_client(mesh("old"), removal_grace_s=0.5)
    client.publish(mesh("new", version="2"))
    client.ack_all()
    client.stream.on_removal_timeout()
    assert client.is_in_grace()
    # An owner with a snapshot per node may create an equal one for each call.
    client.publish(mesh("new", version="2"))
    assert client.is_in_grace()
    assert client.end_grace() == ["CDS 2:"]


def test_cluster_is_removed_at_once_when_routes_do_not_change() -> None:
    client = proxy(mesh("a"))
    assert client.publish(mesh("a").without(CLUSTER, "a", partial=True)) == ["CDS 2:"]


def test_nack_does_not_stop_later_responses() -> None:
    client = proxy(mesh("old"))
    client.publish(mesh("old").replaced(mesh("new")))
    assert client.nack("no clusters today") == ["RDS 2: routes"]
    assert client.nack("nor routes") == ["CDS 2: new"]


def test_new_names_are_answered_at_once() -> None:
    client = proxy(mesh("a"))
    more = route_config("more", route(cluster="b"))
    after = mesh("a", "b").with_(more, version="2")
    assert client.publish(after)[0].startswith("CDS")
    assert client.subscribe(ROUTE_CONFIG, "routes", "more") == ["RDS 2: more routes"]


def test_unpaced_stream_sends_all_at_once() -> None:
    client = proxy(mesh("old"), is_paced=False)
    client.subscribe(ENDPOINTS, "old", "new")
    after = mesh("old").replaced(mesh("new"))
    assert client.publish(after) == ["CDS 2: new", "EDS 2: new", "RDS 2: routes"]


def test_newer_snapshot_replaces_one_that_is_not_sent_yet() -> None:
    client = proxy(mesh("a"))
    second = mesh("a").replaced(mesh("b"))
    client.publish(second)
    client.publish(second.replaced(mesh("c")))
    shown = client.ack_all()
    assert "RDS 3: routes" in shown
    assert "RDS 2: routes" not in shown
    assert set(client.accepted[CLUSTER]) == {"c"}


# Withholding


def test_withheld_type_is_not_sent_until_it_is_released() -> None:
    client = proxy(mesh("a"))
    changed = mesh("a").with_(endpoints("a", ["10.0.0.9:1"]))
    client.stream.on_snapshot(changed, Withheld(types=frozenset({ENDPOINTS})))
    assert client.inbox == []
    assert client.subscribe(ENDPOINTS, "a", "z") == []
    assert client.publish(changed) == ["EDS 2: a"]


def test_clusters_are_removed_while_routes_are_withheld() -> None:
    client = proxy(mesh("old"))
    after = mesh("old").replaced(mesh("new"))
    responses = client.stream.on_snapshot(after, Withheld(types=frozenset({ROUTE_CONFIG})))
    assert [response.type_url for response in responses] == [CLUSTER]
    assert len(responses[0].resources) == 1


def test_withheld_names_keep_their_last_version() -> None:
    client = proxy(mesh("a"))
    withheld = Withheld().plus(CLUSTER, ["a", "b"])
    after = mesh("a", "b").with_(eds_cluster("a", lb_policy="RANDOM"), version="2")
    client.inbox += client.stream.on_snapshot(after, withheld)
    client.ack_all()
    accepted = client.accepted[CLUSTER]
    assert accepted == {"a": Resource.of(eds_cluster("a")).value}
    client.publish(after)
    client.ack_all()
    assert set(client.accepted[CLUSTER]) == {"a", "b"}
    assert client.accepted[CLUSTER] != accepted


def test_removal_of_a_withheld_name_is_not_sent() -> None:
    client = proxy(mesh("a"))
    gone = mesh("a").without(CLUSTER, "a", partial=True)
    assert client.stream.on_snapshot(gone, Withheld().plus(CLUSTER, ["a"])) == []
    assert client.publish(gone) == ["CDS 2:"]


def test_minus_releases_one_type() -> None:
    withheld = Withheld().plus(CLUSTER).plus(CLUSTER, ["a"]).plus(ENDPOINTS, ["b"])
    assert withheld.minus(CLUSTER) == Withheld(names=frozenset({(ENDPOINTS, "b")}))


# The node, and wrapping


def test_node_is_that_of_the_first_request() -> None:
    stream = AdsStream()
    first = request(CLUSTER)
    first.node.cluster = "shop"
    stream.on_request(first)
    later = request(LISTENER)
    later.ClearField("node")
    stream.on_request(later)
    assert (stream.node_id, stream.node.cluster) == ("node-1", "shop")


@pytest.mark.parametrize(
    ("can_wrap", "features", "is_wrapped"),
    [
        (True, ["xds.config.resource-in-sotw"], True),
        (True, [], False),
        (False, ["xds.config.resource-in-sotw"], False),
    ],
)
def test_resources_are_wrapped_when_the_client_supports_it(
    can_wrap: bool, features: list[str], is_wrapped: bool
) -> None:
    stream = AdsStream(can_wrap=can_wrap)
    stream.on_snapshot(mesh("a"))
    asking = request(CLUSTER)
    asking.node.client_features.extend(features)
    [response] = stream.on_request(asking)
    [packed] = response.resources
    if not is_wrapped:
        assert packed.type_url == CLUSTER
        return
    envelope = message_class("envoy.service.discovery.v3.Resource").FromString(packed.value)
    assert packed.type_url.endswith("/envoy.service.discovery.v3.Resource")
    assert (envelope.name, envelope.version) == ("a", "1")
    assert envelope.resource.type_url == CLUSTER
    assert envelope.resource.value == Resource.of(eds_cluster("a")).value


# Limits


def subscribe_to_many_types(stream: AdsStream) -> None:
    for number in range(ads_module.TYPES_MAX + 1):
        stream.on_request(request(f"type.googleapis.com/test.Type{number}"))


@pytest.mark.parametrize(
    ("subscribe", "code"),
    [
        (lambda stream: stream.on_request(request("")), StatusCode.INVALID_ARGUMENT),
        (subscribe_to_many_types, StatusCode.RESOURCE_EXHAUSTED),
        (
            lambda stream: stream.on_request(request(CLUSTER, ["n"] * (ads_module.NAMES_MAX + 1))),
            StatusCode.RESOURCE_EXHAUSTED,
        ),
        (
            lambda stream: stream.on_request(
                request(CLUSTER, ["n" * ads_module.REQUEST_BYTES_MAX])
            ),
            StatusCode.RESOURCE_EXHAUSTED,
        ),
    ],
    ids=["no type", "types", "names", "bytes"],
)
def test_request_above_a_limit_ends_the_stream(
    subscribe: Callable[[AdsStream], None], code: StatusCode
) -> None:
    with pytest.raises(RequestRefused) as caught:
        subscribe(AdsStream())
    assert caught.value.status.code is code


def test_responses_and_acks_are_traced() -> None:
    trace = Trace()
    stream = AdsStream(trace=trace)
    with hits(trace, "controlplane.response") as responses:
        stream.on_request(request(CLUSTER))
        [response] = stream.on_snapshot(mesh("a"))
    assert responses[0].fields["names"] == ("a",)
    with hits(trace, "controlplane.ack"):
        stream.on_request(request(CLUSTER, nonce=response.nonce))


# Random orders of events


CLUSTERS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)
# Event, clusters and port.
STEPS = st.tuples(
    st.sampled_from(["serve", "subscribe", "ack", "nack"]), CLUSTERS, st.integers(1, 3)
)


class Session:
    """A proxy and a control plane with events in any order."""

    def __init__(self) -> None:
        self.snapshot = mesh("a")
        self.client = proxy(self.snapshot)
        self.has_refused = False

    def take_step(self, what: str, clusters: list[str], port: int) -> None:
        match what:
            case "serve":
                self.snapshot = self.snapshot.replaced(mesh(*clusters, port=port))
                self.client.publish(self.snapshot)
            case "subscribe":
                self.client.subscribe(ENDPOINTS, *clusters)
            case "ack" if self.client.inbox:
                self.client.ack()
            case "nack" if self.client.inbox:
                self.has_refused = True
                self.client.nack("no")
            case _:
                pass

    def expect_clusters_of_routes(self) -> None:
        accepted = self.client.accepted[ROUTE_CONFIG]["routes"]
        routes = message_class("envoy.config.route.v3.RouteConfiguration").FromString(accepted)
        needed = {each.route.cluster for each in routes.virtual_hosts[0].routes}
        assert needed <= set(self.client.accepted[CLUSTER])

    def expect_all_accepted(self) -> None:
        for type_url in (CLUSTER, LISTENER, ROUTE_CONFIG):
            there = self.snapshot.resources(type_url)
            accepted = self.client.accepted[type_url]
            assert accepted == {name: each.value for name, each in there.items()}
            assert self.client.stream.is_acked(type_url, self.snapshot.version_of(type_url))
        for name in self.client.stream.subscriptions[ENDPOINTS].names:
            if (resource := self.snapshot.get(ENDPOINTS, name)) is not None:
                assert self.client.accepted[ENDPOINTS][name] == resource.value


@given(st.lists(STEPS, max_size=25))
def test_no_route_lacks_its_cluster_in_any_order_of_events(
    steps: list[tuple[str, list[str], int]],
) -> None:
    session = Session()
    for step in steps:
        session.take_step(*step)
        if not session.has_refused:
            session.expect_clusters_of_routes()
    session.client.ack_all()
    if not session.has_refused:
        session.expect_all_accepted()
    # Nothing is sent twice.
    assert not session.client.stream.has_removal_pending()
    assert session.client.publish(session.snapshot) == []
