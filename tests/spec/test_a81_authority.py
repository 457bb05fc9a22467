"""A81: authority rewriting with the hostname of an endpoint.

Channel, config selector and policies are real. Resources are given in parsed form, except in the
first tests, which parse the route. tests/e2e/test_xds_authority.py covers certificates and sockets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from proxyless.base import OK, Status, StatusCode
from proxyless.metrics.instruments import ATTEMPT_DURATION
from proxyless.protos import message_class
from proxyless.wire import StreamEnd
from proxyless.xds.client.api import DecodeContext
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.parsing import RouteConfigurationType
from proxyless.xds.resources import HashPolicy, OutlierDetection, RetryOnPolicy, RouteAction
from tests.worlds.authority_meshes import TRUSTED, AuthorityWorld, authority_of, named, rewriting
from tests.worlds.session_meshes import cookie, session_listener
from tests.worlds.stats_plugins import RecordingPlugin
from tests.worlds.xds_messages import BOOTSTRAP, SERVER
from tests.worlds.xds_resources import SERVICE, aggregate, cluster, dns, host, hosts, route

if TYPE_CHECKING:
    from tests.worlds.meshes import MeshWorld

A, B = "10.0.0.1:80", "10.0.0.2:80"
GUARD = "GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE"
DOWN = StreamEnd(Status(StatusCode.UNAVAILABLE, "down"))
REFUSED = Status(StatusCode.UNAUTHENTICATED, "authority 'a.test': TLS: certificate has other names")
RETRY_ONCE = RetryOnPolicy(frozenset({StatusCode.UNAVAILABLE}), 1, 0.025, 0.25)
RING_HASH = [{"ring_hash_experimental": {"minRingSize": 8}}]

# ---------------------------------------------------------------------------------------------
# The field of the route


def parsed_rewrite(server: object) -> bool:
    """Parsed value of auto_host_rewrite in a route that this server sends."""
    message = message_class("envoy.config.route.v3.RouteConfiguration")(
        name="routes",
        virtual_hosts=[
            {
                "domains": ["*"],
                "routes": [
                    {
                        "match": {"prefix": ""},
                        "route": {"cluster": "a", "auto_host_rewrite": {"value": True}},
                    }
                ],
            }
        ],
    )
    context = DecodeContext(server, BOOTSTRAP)  # type: ignore[arg-type]
    decoded = RouteConfigurationType(FilterRegistry(FILTER_FACTORIES)).decode(
        message.SerializeToString(), context
    )
    assert decoded.resource is not None
    action = decoded.resource.virtual_hosts[0].routes[0].action
    assert isinstance(action, RouteAction)
    return action.auto_host_rewrite


@pytest.mark.spec("A81-01")
def test_auto_host_rewrite_is_used_only_from_a_trusted_server() -> None:
    assert parsed_rewrite(TRUSTED)
    assert not parsed_rewrite(SERVER)


@pytest.mark.spec("A81-02")
@pytest.mark.parametrize(("value", "expected"), [("false", False), ("true", True), ("", True)])
def test_environment_variable_disables_authority_rewriting(
    value: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GUARD, value)
    assert parsed_rewrite(TRUSTED) is expected


# ---------------------------------------------------------------------------------------------
# Authority of RPCs


@pytest.mark.spec("A81-03")
def test_authority_is_the_hostname_of_the_endpoint() -> None:
    world = AuthorityWorld()
    world.start(rewriting(), cluster("a"), named("a", a="a.test", b="b.test:8080"))
    assert sorted(world.send_authority() for _ in range(4)) == [
        "a.test",
        "a.test",
        *["b.test:8080"] * 2,
    ]


@pytest.mark.spec("A81-04")
def test_authority_is_that_of_the_channel_when_the_endpoint_has_no_hostname() -> None:
    world = AuthorityWorld()
    world.start(rewriting(), cluster("a"), named("a", a="", b="b.test"))
    assert {world.send_authority() for _ in range(4)} == {SERVICE, "b.test"}


@pytest.mark.spec("A81-06")
def test_authority_is_not_rewritten_on_another_route_of_the_same_cluster() -> None:
    world = AuthorityWorld()
    rewritten = route("a", "/rewritten/", auto_host_rewrite=True)
    world.start(hosts(host(rewritten, route("a"))), cluster("a"), named("a", a="a.test"))
    for _ in range(2):
        assert world.send_authority("/rewritten/M") == "a.test"
        assert world.send_authority("/plain/M") == SERVICE
    assert world.send_authority("/rewritten/M", metadata=(("k", "v"),)) == "a.test"


@pytest.mark.spec("A81-07")
def test_hostname_takes_precedence_over_the_authority_option_of_the_channel() -> None:
    # "set from the resolver factory, a channel option [...] the xDS authority rewriting will take
    # precedence over any of those settings" - A81
    world = AuthorityWorld(authority="option.test")
    world.start(rewriting(), cluster("a"), named("a", a="a.test", b=""))
    assert {world.send_authority() for _ in range(4)} == {"a.test", "option.test"}


@pytest.mark.spec("A81-05")
def test_authority_is_the_resolved_name_when_the_cluster_is_logical_dns() -> None:
    world = AuthorityWorld()
    world.start(rewriting(), dns("a", "db.test", 80))
    world.dns.respond("db.test:80", A)
    world.settle()
    assert world.send_authority() == "db.test:80"


@pytest.mark.spec("A81-11")
def test_authority_is_that_of_the_leaf_when_the_cluster_is_an_aggregate() -> None:
    world = AuthorityWorld()
    world.backend(A).is_up = False
    world.start(
        rewriting(),
        aggregate("a", "first", "second"),
        cluster("first"),
        named("first", a="a.test"),
        dns("second", "b.test", 443),
    )
    world.dns.respond("b.test:443", B)
    world.settle()
    assert world.send_authority() == "b.test:443"
    world.backend(A).up()
    world.settle()
    assert world.send_authority() == "a.test"


@pytest.mark.spec("A81-03")
def test_authority_is_rewritten_on_routes_with_hashes_and_weighted_clusters() -> None:
    world = AuthorityWorld()
    by_header = HashPolicy("header", header="user")
    chosen = route({"a": 1, "b": 1}, auto_host_rewrite=True, hash_policies=(by_header,))
    world.start(
        hosts(host(chosen)),
        cluster("a", lb_config=RING_HASH),
        cluster("b"),
        named("a", a="a.test"),
        named("b", b="b.test"),
    )
    seen = {world.send_authority(metadata=(("user", str(each)),)) for each in range(20)}
    assert seen == {"a.test", "b.test"}


@pytest.mark.spec("A81-16")
def test_policies_above_and_below_cluster_impl_keep_the_authority() -> None:
    # Outlier detection is above xds_cluster_impl, sessions are below; both wrap subchannels.
    world = AuthorityWorld()
    routes = (route("a", "/rewritten/", auto_host_rewrite=True), route("a"))
    detection = OutlierDetection({"failurePercentageEjection": {}})
    world.publish(
        session_listener(),
        hosts(host(*routes)),
        cluster("a", outlier_detection=detection),
        named("a", a="a.test", b="b.test"),
    )
    world.channel.request_connection()
    world.settle()
    for _ in range(2):
        for address, hostname in ((A, "a.test"), (B, "b.test")):
            there = cookie(f"{address};a")
            assert world.send_authority("/rewritten/M", there) == hostname
            assert world.send_authority("/plain/M", there) == SERVICE
        assert {world.send_authority("/rewritten/M") for _ in range(2)} == {"a.test", "b.test"}


@pytest.mark.spec("A81-08")
def test_each_attempt_has_the_authority_of_its_own_endpoint() -> None:
    world = AuthorityWorld()
    world.start(rewriting(retry=RETRY_ONCE), cluster("a"), named("a", a="a.test", b="b.test"))
    _, observer = world.call()
    [first] = world.streams(A) + world.streams(B)
    first.end(DOWN)
    world.clock.advance(1)
    [second] = world.streams(A) + world.streams(B)
    second.respond()
    assert observer.status == OK
    assert {authority_of(first), authority_of(second)} == {"a.test", "b.test"}


@pytest.mark.spec("A81-12")
def test_changed_hostname_is_used_at_once_on_the_same_connection() -> None:
    world = AuthorityWorld()
    world.start(rewriting(), cluster("a"), named("a", a="a.test"))
    assert world.send_authority() == "a.test"
    world.publish(named("a", a="new.test"))
    assert world.send_authority() == "new.test"
    world.publish(named("a", a=""))
    assert world.send_authority() == SERVICE
    world.publish(named("a", a="again.test"))
    assert world.send_authority() == "again.test"
    assert world.backend(A).accepts == 1


@pytest.mark.spec("A81-14")
def test_rpc_keeps_the_rewriting_of_the_route_it_was_selected_with() -> None:
    world = AuthorityWorld()
    world.backend(A).is_up = False
    world.start(rewriting(), cluster("a"), named("a", a="a.test"))
    _, before = world.call(wait_for_ready=True)
    world.publish(hosts(host(route("a"))))
    _, after = world.call(wait_for_ready=True)
    world.backend(A).up()
    world.clock.advance(10)
    assert [authority_of(each) for each in world.streams(A)] == ["a.test", SERVICE]
    world.respond_to_all()
    assert (before.status, after.status) == (OK, OK)


@pytest.mark.spec("A81-16")
def test_authority_is_rewritten_when_the_circuit_breaker_limit_changes() -> None:
    world = AuthorityWorld()
    world.start(rewriting(), cluster("a"), named("a", a="a.test"))
    _, waiting = world.call()
    [stream] = world.streams(A)
    # The limit changes, and the RPC under way still counts.
    world.publish(cluster("a", max_concurrent_requests=1))
    _, refused = world.call()
    assert refused.status.code is StatusCode.UNAVAILABLE
    stream.respond()
    assert waiting.status == OK
    assert world.send_authority() == "a.test"


@pytest.mark.spec("A81-13")
def test_hostname_is_percent_encoded_when_it_is_not_a_valid_header_value() -> None:
    world = AuthorityWorld()
    world.start(rewriting(), cluster("a"), named("a", a="bücher test\r\nx: y"))
    assert world.send_authority() == "b%C3%BCcher%20test%0D%0Ax:%20y"


# ---------------------------------------------------------------------------------------------
# Certificates


def refuse(world: MeshWorld, address: str, authority: str) -> None:
    transport = world.backend(address).transport
    assert transport is not None
    transport.refusals[authority] = REFUSED


@pytest.mark.spec("A81-09")
@pytest.mark.parametrize("wait_for_ready", [False, True])
def test_rpc_fails_when_the_certificate_does_not_match_the_authority(wait_for_ready: bool) -> None:
    # "still be subject to any configured secure naming check" - A81
    world = AuthorityWorld()
    world.start(
        rewriting(), cluster("a", max_concurrent_requests=1), named("a", a="a.test", b="b.test")
    )
    refuse(world, A, "a.test")
    ends = []
    for _ in range(4):
        _, observer = world.call(wait_for_ready=wait_for_ready)
        assert world.streams(A) == []
        world.respond_to_all()
        ends.append(observer.status)
    # A refused RPC does not count as under way: with a limit of one, the other endpoint serves.
    assert (ends.count(OK), ends.count(REFUSED)) == (2, 2)


def test_attempt_is_retried_when_its_authority_is_refused() -> None:
    world = AuthorityWorld()
    retry = replace(RETRY_ONCE, codes=frozenset({REFUSED.code}))
    world.start(rewriting(retry=retry), cluster("a"), named("a", a="a.test", b="b.test"))
    refuse(world, A, "a.test")
    for _ in range(4):
        _, observer = world.call()
        world.clock.advance(1)
        [stream] = world.streams(B)
        assert authority_of(stream) == "b.test"
        stream.respond()
        assert observer.status == OK


@pytest.mark.spec("A81-16")
def test_authority_is_rewritten_and_refused_when_rpcs_are_measured() -> None:
    plugin = RecordingPlugin()
    world = AuthorityWorld(metrics=plugin.metrics)
    world.start(rewriting(), cluster("a"), named("a", a="a.test"))
    assert world.send_authority() == "a.test"
    refuse(world, A, "a.test")
    _, observer = world.call()
    assert observer.status == REFUSED
    statuses = [labels[2] for labels, _ in plugin.values(ATTEMPT_DURATION)]
    assert statuses == ["OK", "UNAUTHENTICATED"]
