"""Unit tests of proxyless.controlplane.delta."""

import pytest

from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LB_ENDPOINT,
    LISTENER,
    ROUTE_CONFIG,
    Nack,
    RequestRefused,
    Resource,
    Snapshot,
    Verdict,
    lb_endpoint,
)
from proxyless.controlplane import ads as ads_module
from proxyless.controlplane.delta import DeltaAdsStream, version_of
from tests.worlds.ads_clients import DeltaClient, delta_request, mesh


def test_subscribed_resources_are_sent_with_versions() -> None:
    client = DeltaClient()
    snapshot = mesh("a", "b", version="7")
    client.publish(snapshot)
    assert client.subscribe(CLUSTER, "a") == ["CDS 7: a"]
    (packed,) = client.inbox[0].resources
    resource = snapshot.resources(CLUSTER)["a"]
    assert (packed.name, packed.version) == ("a", version_of(resource))
    assert (packed.resource.type_url, packed.resource.value) == (CLUSTER, resource.value)


def test_response_has_only_what_changed() -> None:
    client = DeltaClient()
    client.publish(mesh("a", "b"))
    client.subscribe(CLUSTER, "a", "b")
    client.subscribe(ENDPOINTS, "a", "b")
    client.ack_all()
    assert client.publish(mesh("a", "b", version="2", port=2)) == ["EDS 2: a b"]
    client.ack_all()
    assert client.publish(mesh("a", "b", version="3", port=2)) == []
    assert client.subscribe(CLUSTER, "c") == ["CDS 3: -c"]


def test_removed_resources_are_named() -> None:
    client = DeltaClient(is_paced=False)
    client.publish(mesh("a", "b"))
    client.subscribe(CLUSTER, "a", "b")
    client.ack_all()
    assert client.publish(mesh("a", version="2")) == ["CDS 2: -b"]
    client.ack_all()
    assert client.publish(mesh("a", "b", version="3")) == ["CDS 3: b"]


def test_unsubscribed_resources_are_not_sent() -> None:
    client = DeltaClient()
    client.publish(mesh("a", "b"))
    client.subscribe(ENDPOINTS, "a", "b")
    client.ack_all()
    assert client.unsubscribe(ENDPOINTS, "a") == []
    assert client.publish(mesh("a", "b", version="2", port=2)) == ["EDS 2: b"]


@pytest.mark.spec("DX-09")
def test_resource_is_sent_again_when_its_name_is_subscribed_again() -> None:
    client = DeltaClient()
    client.publish(mesh("a"))
    client.subscribe(CLUSTER, "a")
    client.ack_all()
    assert client.subscribe(CLUSTER, "a") == ["CDS 1: a"]


def test_client_with_current_versions_gets_an_empty_response() -> None:
    client = DeltaClient()
    snapshot = mesh("a", "b")
    client.publish(snapshot)
    versions = {name: version_of(found) for name, found in snapshot.resources(CLUSTER).items()}
    assert client.subscribe(CLUSTER, "a", "b", versions=versions) == ["CDS 1:"]
    client.ack_all()
    assert client.stream.is_acked(CLUSTER, "1")


def test_client_with_old_versions_gets_the_differences() -> None:
    client = DeltaClient()
    snapshot = mesh("a", "b")
    client.publish(snapshot)
    client.subscribe(LISTENER, "api")
    client.subscribe(ROUTE_CONFIG, "routes")
    versions = {"a": version_of(snapshot.resources(CLUSTER)["a"]), "b": "old", "gone": "1"}
    shown = client.subscribe(CLUSTER, "a", "b", "gone", versions=versions)
    assert shown == ["CDS 1: b -gone"]


def test_wildcard_has_all_listeners_and_clusters() -> None:
    client = DeltaClient(is_paced=False)
    client.publish(mesh("a", "b"))
    assert client.subscribe(CLUSTER) == ["CDS 1: a b"]
    assert client.subscribe(LISTENER, "*") == ["LDS 1: api"]
    assert client.subscribe(ROUTE_CONFIG) == []
    client.ack_all()
    assert client.publish(mesh("a", "c", version="2")) == ["CDS 2: c -b"]
    client.ack_all()
    assert client.unsubscribe(CLUSTER, "*") == []
    assert client.publish(mesh("a", "d", version="3")) == []


@pytest.mark.spec("DX-11")
def test_change_is_made_before_break() -> None:
    """Clusters come before the routes to them, and go after them."""
    client = DeltaClient()
    client.publish(mesh("a"))
    client.subscribe(LISTENER, "api")
    client.subscribe(ROUTE_CONFIG, "routes")
    client.subscribe(CLUSTER, "a")
    client.subscribe(ENDPOINTS, "a")
    client.ack_all()
    assert client.publish(mesh("b", version="2")) == ["RDS 2: routes"]
    client.ack_all()
    assert client.subscribe(CLUSTER, "b") == ["CDS 2: b"]
    client.ack_all()
    assert client.subscribe(ENDPOINTS, "b") == ["EDS 2: b"]
    assert client.ack_all() == ["CDS 2: -a"]


@pytest.mark.spec("DX-11")
def test_endpoints_that_a_client_has_are_not_removed() -> None:
    """They go with their cluster, which the client may still use."""
    client = DeltaClient()
    client.publish(mesh("a"))
    client.subscribe(ENDPOINTS, "a")
    client.ack_all()
    assert client.publish(mesh("b", version="2")) == []
    other = DeltaClient()
    other.publish(mesh("b", version="2"))
    assert other.subscribe(ENDPOINTS, "a", versions={"a": "1"}) == []
    assert other.subscribe(ENDPOINTS, "c") == ["EDS 2: -c"]


def test_endpoints_of_a_cluster_whose_change_is_not_sent_yet_are_not_reported_as_missing() -> None:
    """The client is in the middle of a change, and requests what the next one has removed."""
    client = DeltaClient()
    client.publish(mesh("a"))
    client.subscribe(LISTENER, "api")
    client.subscribe(ROUTE_CONFIG, "routes")
    client.subscribe(CLUSTER, "a")
    client.ack_all()
    client.publish(mesh("b", version="2"))
    assert client.subscribe(ENDPOINTS, "a") == []
    # Nothing that the client has refers to these.
    assert client.subscribe(ENDPOINTS, "z") == ["EDS 2: -z"]


def test_endpoints_that_a_client_has_from_another_server_are_removed() -> None:
    """The version of such a resource is empty."""
    client = DeltaClient()
    client.publish(mesh("b"))
    assert client.subscribe(ENDPOINTS, "a", versions={"a": ""}) == ["EDS 1: -a"]


def test_verdicts_are_recorded_by_nonce() -> None:
    nacks: list[Nack] = []
    client = DeltaClient(on_nack=nacks.append)
    client.publish(mesh("a"))
    client.subscribe(CLUSTER, "a")
    assert client.stream.verdict(CLUSTER) is Verdict.PENDING
    client.stream.on_request(delta_request(CLUSTER, nonce="other"))
    assert client.stream.verdict(CLUSTER) is Verdict.PENDING
    client.nack("bad")
    assert client.stream.verdict(CLUSTER) is Verdict.NACKED
    assert [nack.message for nack in nacks] == ["bad"]


def test_change_of_a_subscription_counts_when_its_nonce_is_old() -> None:
    """Unlike in state of the world, the next request does not repeat it."""
    client = DeltaClient()
    client.publish(mesh("a", "b"))
    client.subscribe(CLUSTER, "a")
    late = delta_request(CLUSTER, ["b"], nonce="0")
    assert client.receive(client.stream.on_request(late)) == ["CDS 1: b"]


def test_limits_are_those_of_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ads_module, "NAMES_MAX", 2)
    stream = DeltaAdsStream()
    stream.on_snapshot(Snapshot.of([]))
    stream.on_request(delta_request(CLUSTER, ["a", "b"]))
    with pytest.raises(RequestRefused, match="names 3 resources, wanted at most 2"):
        stream.on_request(delta_request(CLUSTER, ["c"]))


# ---------------------------------------------------------------------------------------------
# Collections of endpoints, by LEDS

GLOB = "xdstp://mesh/envoy.config.endpoint.v3.LbEndpoint/a/*"
OTHER = "xdstp://mesh/envoy.config.endpoint.v3.LbEndpoint/b/*"


def members(*names: str, port: int = 80, version: str = "1", glob: str = GLOB) -> Snapshot:
    """Members of a collection. A name has the collection in front, and a letter of its own."""
    return Snapshot.of(
        [
            Resource.of(lb_endpoint(f"10.0.0.{ord(each)}:{port}"), glob[:-1] + each)
            for each in names
        ],
        version=version,
    )


def short(texts: list[str]) -> list[str]:
    return [each.replace(GLOB[:-1], "").replace(OTHER[:-1], "b/") for each in texts]


@pytest.mark.spec("LE-14")
def test_collection_is_sent_whole_and_then_by_changed_members() -> None:
    client = DeltaClient()
    client.publish(members("x", "y", "z"))
    assert short(client.subscribe(LB_ENDPOINT, GLOB)) == ["LEDS 1: x y z"]
    client.ack_all()
    changed = members("x", "y", "z").with_(*members("y", port=81), *members("w"), version="2")
    assert short(client.publish(changed)) == ["LEDS 2: w y"]
    client.ack_all()
    assert short(client.publish(members("y", port=81, version="3"))) == ["LEDS 3: -w -x -z"]
    client.ack_all()
    assert short(client.publish(members(version="4"))) == ["LEDS 0: -y"]


@pytest.mark.spec("LE-14")
def test_collection_without_members_does_not_exist() -> None:
    client = DeltaClient()
    client.publish(members("x", glob=OTHER))
    assert short(client.subscribe(LB_ENDPOINT, GLOB)) == ["LEDS 1: -*"]
    client.ack_all()
    assert short(client.subscribe(LB_ENDPOINT, OTHER)) == ["LEDS 1: b/x"]
    client.ack_all()
    both = members("x", glob=OTHER).with_(*members("y"), version="2")
    assert short(client.publish(both)) == ["LEDS 2: y"]


@pytest.mark.spec("LE-14", "LE-08")
def test_client_that_reconnects_gets_the_members_that_differ() -> None:
    client = DeltaClient()
    snapshot = members("x", "y", "z")
    client.publish(snapshot)
    versions = {each.name: version_of(each) for each in snapshot}
    versions[f"{GLOB[:-1]}y"] = "other"
    versions[f"{GLOB[:-1]}gone"] = "1"
    versions["xdstp://mesh/envoy.config.endpoint.v3.LbEndpoint/not/subscribed"] = "1"
    shown = client.subscribe(LB_ENDPOINT, GLOB, versions=versions)
    assert short(shown) == ["LEDS 1: y -gone"]


@pytest.mark.spec("LE-14", "DX-09")
def test_collection_is_sent_again_when_it_is_subscribed_to_again() -> None:
    client = DeltaClient()
    client.publish(members("x", "y"))
    client.subscribe(LB_ENDPOINT, GLOB)
    client.ack_all()
    assert short(client.subscribe(LB_ENDPOINT, GLOB)) == ["LEDS 1: x y"]
    client.ack_all()
    client.unsubscribe(LB_ENDPOINT, GLOB)
    assert client.publish(members("x", "y", port=81, version="2")) == []
    assert short(client.subscribe(LB_ENDPOINT, GLOB)) == ["LEDS 2: x y"]


def test_members_and_single_resources_are_subscribed_together() -> None:
    client = DeltaClient()
    client.publish(members("x").with_(*members("y", "z", glob=OTHER)))
    assert short(client.subscribe(LB_ENDPOINT, GLOB, f"{OTHER[:-1]}z", "none")) == [
        "LEDS 2: x b/z -none"
    ]
