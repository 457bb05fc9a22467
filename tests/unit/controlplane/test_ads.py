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
from tests.unit.controlplane.ads_world import Client, mesh, request


def proxy(snapshot: Snapshot, **options: object) -> Client:
    """A client that asks as Envoy does, and has accepted everything."""
    client = Client(**options)
    client.serve(snapshot)
    client.ask(CLUSTER)
    client.ask(ENDPOINTS, *snapshot.resources(ENDPOINTS))
    client.ask(LISTENER)
    client.ask(ROUTE_CONFIG, "routes")
    client.ack_all()
    return client


def grpc_client(snapshot: Snapshot, **options: object) -> Client:
    """A client that asks as gRPC does, by name, and has accepted everything."""
    client = Client(**options)
    client.serve(snapshot)
    client.ask(LISTENER, "api")
    client.ask(ROUTE_CONFIG, "routes")
    client.ask(CLUSTER, *snapshot.resources(CLUSTER))
    client.ask(ENDPOINTS, *snapshot.resources(ENDPOINTS))
    client.ack_all()
    return client


# Asking


def test_what_is_asked_for_is_answered() -> None:
    client = Client()
    client.serve(mesh("a", "b"))
    assert client.ask(CLUSTER) == ["CDS 1: a b"]
    assert client.ask(ENDPOINTS, "b") == ["EDS 1: b"]
    assert client.ask(LISTENER, "api") == ["LDS 1: api"]
    assert client.ask(ROUTE_CONFIG, "routes") == ["RDS 1: routes"]


def test_requests_before_the_first_snapshot_are_answered_by_it() -> None:
    client = Client()
    assert client.ask(LISTENER) == []
    assert client.ask(CLUSTER) == []
    assert client.serve(mesh("a")) == ["CDS 1: a", "LDS 1: api"]


def test_names_added_are_answered_and_others_not_sent_again() -> None:
    client = Client()
    client.serve(mesh("a", "b"))
    client.ask(ENDPOINTS, "a")
    client.ack()
    assert client.ask(ENDPOINTS, "a", "b") == ["EDS 1: b"]


def test_of_clusters_the_whole_state_is_sent_when_a_name_is_added() -> None:
    client = Client()
    client.serve(mesh("a", "b"))
    client.ask(CLUSTER, "a")
    client.ack()
    assert client.ask(CLUSTER, "a", "b") == ["CDS 1: a b"]


def test_a_cluster_that_does_not_exist_is_answered_by_its_absence() -> None:
    client = Client()
    client.serve(mesh("a"))
    assert client.ask(CLUSTER, "z") == ["CDS 1:"]


def test_endpoints_that_do_not_exist_are_answered_when_they_do() -> None:
    client = Client()
    client.serve(mesh("a"))
    assert client.ask(ENDPOINTS, "z") == []
    assert client.serve(mesh("a").with_(endpoints("z", []))) == ["EDS 2: z"]


def test_names_taken_back_are_not_answered_and_told_anew_when_asked_for_again() -> None:
    client = Client()
    client.serve(mesh("a", "b"))
    client.ask(ENDPOINTS, "a", "b")
    client.ack()
    assert client.ask(ENDPOINTS, "a") == []
    assert client.ask(ENDPOINTS, "a", "b") == ["EDS 1: b"]
    client.ack()
    assert client.ask(ENDPOINTS) == []
    assert client.ask(ENDPOINTS, "a") == ["EDS 1: a"]


def test_an_ack_brings_nothing_new() -> None:
    client = Client()
    client.serve(mesh("a"))
    client.ask(CLUSTER)
    assert client.ack() == []


# Nonces


def test_a_request_with_a_stale_nonce_is_ignored() -> None:
    client = proxy(mesh("a", "b"))
    stale = request(ENDPOINTS, ["a"], nonce="1")
    client.serve(mesh("a", "b", version="2", port=2))
    assert client.stream.on_request(stale) == []
    assert client.stream.subscriptions[ENDPOINTS].names == {"a", "b"}


def test_a_request_before_the_response_arrived_still_counts() -> None:
    stream = AdsStream()
    stream.on_snapshot(mesh("a", "b"))
    [first] = stream.on_request(request(ENDPOINTS, ["a"]))
    [second] = stream.on_request(request(ENDPOINTS, ["a", "b"]))
    assert first.nonce != second.nonce
    # The ACK of the first comes after the second was sent.
    assert stream.on_request(request(ENDPOINTS, ["a", "b"], nonce=first.nonce)) == []
    assert stream.verdict(ENDPOINTS) is Verdict.PENDING
    assert stream.on_request(request(ENDPOINTS, ["a", "b"], nonce=second.nonce)) == []
    assert stream.verdict(ENDPOINTS) is Verdict.ACKED


def test_nonces_are_never_used_twice() -> None:
    client = Client()
    client.serve(mesh("a"))
    for type_url in (CLUSTER, LISTENER):
        client.ask(type_url)
    client.serve(mesh("b", version="2"))
    nonces = [response.nonce for response in client.inbox]
    assert len(set(nonces)) == len(nonces)


# ACK and NACK


def test_an_ack_is_noted_with_its_version() -> None:
    client = Client()
    client.serve(mesh("a"))
    client.ask(CLUSTER)
    assert client.stream.verdict(CLUSTER) is Verdict.PENDING
    assert not client.stream.is_acked(CLUSTER, "1")
    client.ack()
    assert client.stream.is_acked(CLUSTER, "1")
    assert client.stream.acked_version(CLUSTER) == "1"


def test_a_nack_is_noted_with_its_text_and_nothing_is_sent_again() -> None:
    heard: list[Nack] = []
    client = Client()
    client.stream = AdsStream(on_nack=heard.append)
    client.serve(mesh("a"))
    client.ask(CLUSTER)
    assert client.nack("no such policy") == []
    nack = Nack("node-1", CLUSTER, "1", 3, "no such policy")
    assert heard == [nack]
    assert client.stream.nack(CLUSTER) == nack
    assert client.stream.acked_version(CLUSTER) == ""
    assert not client.stream.is_acked(CLUSTER, "1")
    assert client.serve(mesh("a")) == []


def test_after_a_nack_a_change_of_names_is_no_ack() -> None:
    client = Client()
    client.serve(mesh("a", "b"))
    client.ask(CLUSTER, "a", "b")
    client.nack("no")
    assert client.ask(CLUSTER, "a") == []
    assert client.stream.verdict(CLUSTER) is Verdict.NACKED


def test_after_a_nack_the_good_version_can_be_sent_again() -> None:
    good = mesh("a")
    client = proxy(good)
    bad = good.with_(eds_cluster("a", lb_policy="MAGLEV"))
    assert client.serve(bad) == ["CDS 2: a"]
    client.nack("no")
    assert client.serve(bad.with_(eds_cluster("a"))) == ["CDS 3: a"]
    client.ack()
    assert client.stream.nack(CLUSTER) is None


def test_a_nack_says_who_what_and_why() -> None:
    nack = Nack("edge-7", CLUSTER, "2", 3, "unsupported lb_policy")
    assert str(nack) == "xds node 'edge-7': cluster version '2' refused: unsupported lb_policy"


def test_a_change_that_nobody_asked_for_is_not_sent_and_counts_as_accepted() -> None:
    client = Client()
    client.serve(mesh("a", "b"))
    client.ask(ENDPOINTS, "a")
    client.ack()
    changed = mesh("a", "b").with_(endpoints("b", []))
    assert client.serve(changed) == []
    assert client.stream.is_acked(ENDPOINTS, "2")


# Make before break


def test_clusters_come_first_then_endpoints_then_listeners_then_routes() -> None:
    client = Client()
    for type_url, names in ((ROUTE_CONFIG, ["routes"]), (LISTENER, []), (ENDPOINTS, ["a"])):
        client.ask(type_url, *names)
    client.ask(CLUSTER)
    assert client.serve(mesh("a")) == ["CDS 1: a", "EDS 1: a", "LDS 1: api", "RDS 1: routes"]


def test_a_proxy_hears_of_new_routes_when_it_has_their_clusters() -> None:
    client = proxy(mesh("old"))
    after = mesh("old").replaced(mesh("new"))
    # The old cluster is still there.
    assert client.serve(after) == ["CDS 2: new old"]
    # It asks for the endpoints before it accepts the cluster.
    assert client.ask(ENDPOINTS, "new", "old") == ["EDS 2: new"]
    assert client.ack() == []
    assert client.ack() == ["RDS 2: routes"]
    assert not client.stream.is_acked(CLUSTER, "2")
    assert client.stream.has_removal_pending()
    # And now that it has the new routes the old cluster goes.
    assert client.ack() == ["CDS 2: new"]
    assert not client.stream.has_removal_pending()
    client.ack()
    assert client.stream.is_acked(CLUSTER, "2")


def test_a_client_that_asks_by_name_loses_a_cluster_when_it_has_the_new_ones() -> None:
    client = grpc_client(mesh("old"))
    assert client.serve(mesh("old").replaced(mesh("new"))) == ["RDS 2: routes"]
    assert client.ack() == []
    assert client.ask(CLUSTER, "old", "new") == ["CDS 2: new old"]
    assert client.ack() == []
    assert client.ask(ENDPOINTS, "old", "new") == ["EDS 2: new"]
    assert client.ack() == ["CDS 2: new"]


def test_a_client_that_takes_a_name_back_need_not_be_told_that_it_is_gone() -> None:
    client = grpc_client(mesh("old"))
    client.serve(mesh("old").replaced(mesh("new")))
    client.ack()
    client.ask(CLUSTER, "old", "new")
    client.ack()
    assert client.ask(CLUSTER, "new") == []
    assert client.stream.is_acked(CLUSTER, "2")
    assert not client.stream.has_removal_pending()


def test_a_client_that_never_asks_for_the_new_cluster_is_told_in_the_end() -> None:
    client = grpc_client(mesh("old"))
    client.serve(mesh("old").replaced(mesh("new")))
    client.ack()
    assert client.stream.has_removal_pending()
    assert [response.type_url for response in client.stream.on_patience_over()] == [CLUSTER]
    assert not client.stream.has_removal_pending()


def test_clusters_that_are_gone_stay_for_the_grace_after_the_client_has_switched() -> None:
    client = proxy(mesh("old"), removal_grace_s=0.5)
    client.serve(mesh("old").replaced(mesh("new")))
    client.ask(ENDPOINTS, "new", "old")
    client.ack()
    assert client.ack() == ["RDS 2: routes"]
    assert not client.is_in_grace()
    assert client.ack() == []
    assert client.is_in_grace()
    assert client.stream.has_removal_pending()
    assert client.end_grace() == ["CDS 2: new"]
    assert not client.is_in_grace()
    assert not client.stream.has_removal_pending()


def test_the_next_removal_has_its_own_grace() -> None:
    client = proxy(mesh("a", "b", "c"), removal_grace_s=0.5)
    for version, left in ((2, ["a", "b"]), (3, ["a"])):
        client.serve(mesh(*left, version=str(version)))
        client.ack_all()
        assert client.is_in_grace()
        assert client.end_grace() == [f"CDS {version}: {' '.join(left)}"]
        client.ack_all()


def test_a_cluster_that_comes_back_within_the_grace_was_never_gone() -> None:
    client = proxy(mesh("a", "b"), removal_grace_s=0.5)
    client.serve(mesh("a", version="2"))
    client.ack_all()
    assert client.is_in_grace()
    client.serve(mesh("a", "b", version="3"))
    assert not client.is_in_grace()
    assert client.end_grace() == []


def test_endpoints_that_keep_changing_do_not_put_the_grace_off() -> None:
    client = proxy(mesh("a", "b"), removal_grace_s=0.5)
    after = mesh("a", version="2")
    client.serve(after)
    client.ack_all()
    assert client.is_in_grace()
    client.serve(after.with_(endpoints("a", ["10.0.0.2:1"]), version="3"))
    assert client.is_in_grace()
    client.ack_all()
    assert client.end_grace() == ["CDS 2: a"]


def test_a_grace_that_ends_while_an_answer_is_out_is_over_all_the_same() -> None:
    client = grpc_client(mesh("a", "b"), removal_grace_s=0.5)
    after = mesh("a", version="2")
    client.serve(after)
    client.ack_all()
    client.serve(after.with_(endpoints("a", ["10.0.0.2:1"]), version="3"))
    assert client.end_grace() == ["CDS 2: a"]


def test_new_routes_do_not_put_a_grace_off_and_what_they_leave_has_one_of_its_own() -> None:
    client = proxy(mesh("a", "b", "c"), removal_grace_s=0.5)
    client.serve(mesh("a", "b", version="2"))
    client.ack_all()
    client.serve(mesh("a", version="3"))
    assert client.end_grace() == ["CDS 3: a b"]
    client.ack_all()
    assert client.is_in_grace()
    assert client.end_grace() == ["CDS 3: a"]


def test_a_grace_that_begins_where_another_one_ends_is_another_one() -> None:
    client = proxy(mesh("a", "b", "c"), removal_grace_s=0.5)
    client.serve(mesh("a", "b", version="2"))
    client.ack_all()
    first = client.stream.grace
    # c is back when b goes: what runs for b must not be what was left for c.
    client.serve(mesh("a", "c", version="3"))
    client.ack_all()
    assert first is not None
    assert client.stream.grace not in (None, first)


def test_patience_that_is_over_stays_so_while_routes_and_clusters_are_the_same() -> None:
    client = grpc_client(mesh("old"), removal_grace_s=0.5)
    client.serve(mesh("new", version="2"))
    client.ack_all()
    client.stream.on_patience_over()
    assert client.is_in_grace()
    # As from an owner that makes each client's snapshot anew whenever it is asked.
    client.serve(mesh("new", version="2"))
    assert client.is_in_grace()
    assert client.end_grace() == ["CDS 2:"]


def test_a_cluster_that_goes_alone_goes_at_once() -> None:
    client = proxy(mesh("a"))
    assert client.serve(mesh("a").without(CLUSTER, "a", partial=True)) == ["CDS 2:"]


def test_a_refusal_does_not_stop_the_rest() -> None:
    client = proxy(mesh("old"))
    client.serve(mesh("old").replaced(mesh("new")))
    assert client.nack("no clusters today") == ["RDS 2: routes"]
    assert client.nack("nor routes") == ["CDS 2: new"]


def test_new_names_do_not_wait() -> None:
    client = proxy(mesh("a"))
    more = route_config("more", route(cluster="b"))
    after = mesh("a", "b").with_(more, version="2")
    assert client.serve(after)[0].startswith("CDS")
    assert client.ask(ROUTE_CONFIG, "routes", "more") == ["RDS 2: more routes"]


def test_unpaced_everything_is_told_at_once() -> None:
    client = proxy(mesh("old"), is_paced=False)
    client.ask(ENDPOINTS, "old", "new")
    after = mesh("old").replaced(mesh("new"))
    assert client.serve(after) == ["CDS 2: new", "EDS 2: new", "RDS 2: routes"]


def test_a_newer_snapshot_overtakes_one_that_is_not_told_yet() -> None:
    client = proxy(mesh("a"))
    second = mesh("a").replaced(mesh("b"))
    client.serve(second)
    client.serve(second.replaced(mesh("c")))
    shown = client.ack_all()
    assert "RDS 3: routes" in shown
    assert "RDS 2: routes" not in shown
    assert set(client.known[CLUSTER]) == {"c"}


# Withholding


def test_a_withheld_type_is_silent_until_it_is_released() -> None:
    client = proxy(mesh("a"))
    changed = mesh("a").with_(endpoints("a", ["10.0.0.9:1"]))
    client.stream.on_snapshot(changed, Withheld(types=frozenset({ENDPOINTS})))
    assert client.inbox == []
    assert client.ask(ENDPOINTS, "a", "z") == []
    assert client.serve(changed) == ["EDS 2: a"]


def test_a_withheld_type_does_not_keep_clusters_from_going() -> None:
    client = proxy(mesh("old"))
    after = mesh("old").replaced(mesh("new"))
    responses = client.stream.on_snapshot(after, Withheld(types=frozenset({ROUTE_CONFIG})))
    assert [response.type_url for response in responses] == [CLUSTER]
    assert len(responses[0].resources) == 1


def test_of_withheld_names_the_client_keeps_what_it_knows() -> None:
    client = proxy(mesh("a"))
    withheld = Withheld().plus(CLUSTER, ["a", "b"])
    after = mesh("a", "b").with_(eds_cluster("a", lb_policy="RANDOM"), version="2")
    client.inbox += client.stream.on_snapshot(after, withheld)
    client.ack_all()
    known = client.known[CLUSTER]
    assert known == {"a": Resource.of(eds_cluster("a")).value}
    client.serve(after)
    client.ack_all()
    assert set(client.known[CLUSTER]) == {"a", "b"}
    assert client.known[CLUSTER] != known


def test_a_withheld_name_is_not_told_to_be_gone() -> None:
    client = proxy(mesh("a"))
    gone = mesh("a").without(CLUSTER, "a", partial=True)
    assert client.stream.on_snapshot(gone, Withheld().plus(CLUSTER, ["a"])) == []
    assert client.serve(gone) == ["CDS 2:"]


def test_withholding_is_undone_by_type() -> None:
    withheld = Withheld().plus(CLUSTER).plus(CLUSTER, ["a"]).plus(ENDPOINTS, ["b"])
    assert withheld.minus(CLUSTER) == Withheld(names=frozenset({(ENDPOINTS, "b")}))


# The node, and wrapping


def test_the_node_of_the_first_request_is_remembered() -> None:
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
def test_resources_are_wrapped_for_clients_that_know_it(
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


def ask_for_many_types(stream: AdsStream) -> None:
    for number in range(ads_module.TYPES_MAX + 1):
        stream.on_request(request(f"type.googleapis.com/test.Type{number}"))


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda stream: stream.on_request(request("")), StatusCode.INVALID_ARGUMENT),
        (ask_for_many_types, StatusCode.RESOURCE_EXHAUSTED),
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
def test_a_request_beyond_a_limit_ends_the_stream(
    ask: Callable[[AdsStream], None], code: StatusCode
) -> None:
    with pytest.raises(RequestRefused) as caught:
        ask(AdsStream())
    assert caught.value.status.code is code


def test_what_happens_is_traced() -> None:
    trace = Trace()
    stream = AdsStream(trace=trace)
    with hits(trace, "controlplane.response") as responses:
        stream.on_request(request(CLUSTER))
        [response] = stream.on_snapshot(mesh("a"))
    assert responses[0].fields["names"] == ("a",)
    with hits(trace, "controlplane.ack"):
        stream.on_request(request(CLUSTER, nonce=response.nonce))


# In any order


CLUSTERS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)
# What is done, to which clusters, and with which port.
STEPS = st.tuples(st.sampled_from(["serve", "ask", "ack", "nack"]), CLUSTERS, st.integers(1, 3))


class Story:
    """A proxy and a control plane that go through steps in any order."""

    def __init__(self) -> None:
        self.snapshot = mesh("a")
        self.client = proxy(self.snapshot)
        self.has_refused = False

    def take_step(self, what: str, clusters: list[str], port: int) -> None:
        match what:
            case "serve":
                self.snapshot = self.snapshot.replaced(mesh(*clusters, port=port))
                self.client.serve(self.snapshot)
            case "ask":
                self.client.ask(ENDPOINTS, *clusters)
            case "ack" if self.client.inbox:
                self.client.ack()
            case "nack" if self.client.inbox:
                self.has_refused = True
                self.client.nack("no")
            case _:
                pass

    def expect_clusters_of_routes(self) -> None:
        known = self.client.known[ROUTE_CONFIG]["routes"]
        routes = message_class("envoy.config.route.v3.RouteConfiguration").FromString(known)
        needed = {each.route.cluster for each in routes.virtual_hosts[0].routes}
        assert needed <= set(self.client.known[CLUSTER])

    def expect_all_known(self) -> None:
        for type_url in (CLUSTER, LISTENER, ROUTE_CONFIG):
            there = self.snapshot.resources(type_url)
            known = self.client.known[type_url]
            assert known == {name: each.value for name, each in there.items()}
            assert self.client.stream.is_acked(type_url, self.snapshot.version_of(type_url))
        for name in self.client.stream.subscriptions[ENDPOINTS].names:
            if (resource := self.snapshot.get(ENDPOINTS, name)) is not None:
                assert self.client.known[ENDPOINTS][name] == resource.value


@given(st.lists(STEPS, max_size=25))
def test_in_any_order_no_route_lacks_its_cluster_and_in_the_end_all_is_known(
    steps: list[tuple[str, list[str], int]],
) -> None:
    story = Story()
    for step in steps:
        story.take_step(*step)
        if not story.has_refused:
            story.expect_clusters_of_routes()
    story.client.ack_all()
    if not story.has_refused:
        story.expect_all_known()
    # And it is told once.
    assert not story.client.stream.has_removal_pending()
    assert story.client.serve(story.snapshot) == []
