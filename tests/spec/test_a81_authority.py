"""A81: whose hostname do RPCs carry as their authority?

The channel, the selector and the policies are real; what the control plane says is given as parsed,
but for the first tests, which are about whether it counts. Certificates and sockets are in
tests/e2e/test_xds_authority.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from proxyless.base import OK, Locality, Status, StatusCode, parse_address
from proxyless.metrics.instruments import ATTEMPT_DURATION
from proxyless.protos import message_class
from proxyless.wire import StreamEnd
from proxyless.wire.headers import understand_request
from proxyless.wire.hpack import decode_fields
from proxyless.xds.bootstrap import TRUSTED_XDS_SERVER
from proxyless.xds.client.api import DecodeContext
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.parsing import RouteConfigurationType
from proxyless.xds.resources import (
    EndpointInfo,
    HashPolicy,
    LocalityEndpoints,
    OutlierDetection,
    RetryOnPolicy,
    RouteAction,
)
from tests.cluster_world import BOOTSTRAP, SERVER
from tests.metrics_world import RecordingPlugin
from tests.spec.mesh_world import MeshWorld
from tests.spec.test_a55_session_filter import cookie, session_listener
from tests.spec.xds_world import (
    SERVICE,
    aggregate,
    cluster,
    dns,
    host,
    hosts,
    prioritized,
    route,
)

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.xds.resources import EndpointResource, RouteConfiguration
    from tests.spec.channel_world import FakeStream

pytestmark = pytest.mark.spec("A78-01")

A, B = "10.0.0.1:80", "10.0.0.2:80"
GUARD = "GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE"
TRUSTED = replace(SERVER, features=frozenset({TRUSTED_XDS_SERVER}))
DOWN = StreamEnd(Status(StatusCode.UNAVAILABLE, "down"))
REFUSED = Status(StatusCode.UNAUTHENTICATED, "authority 'a.test': TLS: certificate has other names")
RETRY_ONCE = RetryOnPolicy(frozenset({StatusCode.UNAVAILABLE}), 1, 0.025, 0.25)
RING_HASH = [{"ring_hash_experimental": {"minRingSize": 8}}]

# ---------------------------------------------------------------------------------------------
# Whether it counts


def parsed_rewrite(server: object) -> bool:
    """What becomes of a route with auto_host_rewrite that this server sends."""
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


def test_the_field_counts_from_a_trusted_server_only() -> None:
    assert parsed_rewrite(TRUSTED)
    assert not parsed_rewrite(SERVER)


@pytest.mark.parametrize(("value", "counts"), [("false", False), ("true", True), ("", True)])
def test_the_environment_may_turn_it_off(
    value: str, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GUARD, value)
    assert parsed_rewrite(TRUSTED) is counts


# ---------------------------------------------------------------------------------------------
# What RPCs carry


class AuthorityWorld(MeshWorld):
    """A mesh whose control plane is trusted."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - those of a channel
        super().__init__(**options)
        self.bootstrap = replace(BOOTSTRAP, servers=(TRUSTED,))

    def carried(self, path: str = "/pkg.Service/Method", metadata: Metadata = ()) -> str:
        """The authority of one RPC, which has to succeed."""
        _, observer = self.call(path, metadata)
        [stream] = [each for address in (A, B) for each in self.streams(address)]
        stream.answer()
        self.settle()
        assert observer.status == OK
        return authority_of(stream)


def authority_of(stream: FakeStream) -> str:
    return understand_request(decode_fields(stream.block, 1 << 16)).authority


def rewriting(to: str = "a", **settings: Any) -> RouteConfiguration:  # noqa: ANN401
    return hosts(host(route(to, auto_host_rewrite=True, **settings)))


def named(cluster_name: str, **hostnames: str) -> EndpointResource:
    """Endpoints at A and B, as far as they are given a hostname."""
    found = {"a": A, "b": B}
    infos = tuple(
        EndpointInfo((parse_address(found[key]),), hostname=name) for key, name in hostnames.items()
    )
    return prioritized(cluster_name, [LocalityEndpoints(Locality(zone="z"), 1, infos)])


def test_each_endpoints_hostname_is_the_authority_of_what_goes_there() -> None:
    world = AuthorityWorld()
    world.start(rewriting(), cluster("a"), named("a", a="a.test", b="b.test:8080"))
    assert sorted(world.carried() for _ in range(4)) == ["a.test", "a.test", *["b.test:8080"] * 2]


def test_without_a_hostname_it_is_the_channels() -> None:
    world = AuthorityWorld()
    world.start(rewriting(), cluster("a"), named("a", a="", b="b.test"))
    assert {world.carried() for _ in range(4)} == {SERVICE, "b.test"}


def test_another_route_of_the_same_cluster_is_left_alone() -> None:
    world = AuthorityWorld()
    rewritten = route("a", "/rewritten/", auto_host_rewrite=True)
    world.start(hosts(host(rewritten, route("a"))), cluster("a"), named("a", a="a.test"))
    for _ in range(2):
        assert world.carried("/rewritten/M") == "a.test"
        assert world.carried("/plain/M") == SERVICE
    assert world.carried("/rewritten/M", metadata=(("k", "v"),)) == "a.test"


def test_a_server_that_nobody_trusts_changes_nothing() -> None:
    world = AuthorityWorld()
    world.bootstrap = BOOTSTRAP
    world.start(hosts(host(route("a"))), cluster("a"), named("a", a="a.test"))
    assert world.carried() == SERVICE


def test_it_takes_precedence_over_the_channels_option() -> None:
    # "set from the resolver factory, a channel option [...] the xDS authority rewriting will take
    # precedence over any of those settings" - A81
    world = AuthorityWorld(authority="option.test")
    world.start(rewriting(), cluster("a"), named("a", a="a.test", b=""))
    assert {world.carried() for _ in range(4)} == {"a.test", "option.test"}


def test_a_logical_dns_cluster_gives_the_name_that_is_resolved() -> None:
    world = AuthorityWorld()
    world.start(rewriting(), dns("a", "db.test", 80))
    world.dns.answer("db.test:80", A)
    world.settle()
    assert world.carried() == "db.test:80"


def test_of_an_aggregate_the_leaf_counts() -> None:
    world = AuthorityWorld()
    world.backend(A).is_up = False
    world.start(
        rewriting(),
        aggregate("a", "first", "second"),
        cluster("first"),
        named("first", a="a.test"),
        dns("second", "b.test", 443),
    )
    world.dns.answer("b.test:443", B)
    world.settle()
    assert world.carried() == "b.test:443"
    world.backend(A).up()
    world.settle()
    assert world.carried() == "a.test"


def test_routes_with_hashes_and_several_clusters_rewrite_as_well() -> None:
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
    seen = {world.carried(metadata=(("user", str(each)),)) for each in range(20)}
    assert seen == {"a.test", "b.test"}


def test_policies_above_and_below_pass_the_authority_on() -> None:
    # Outlier detection stands above xds_cluster_impl, sessions below it; both wrap subchannels.
    world = AuthorityWorld()
    routes = (route("a", "/rewritten/", auto_host_rewrite=True), route("a"))
    detection = OutlierDetection({"failurePercentageEjection": {}})
    world.say(
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
            assert world.carried("/rewritten/M", there) == hostname
            assert world.carried("/plain/M", there) == SERVICE
        assert {world.carried("/rewritten/M") for _ in range(2)} == {"a.test", "b.test"}


def test_each_attempt_has_the_authority_of_its_own_endpoint() -> None:
    world = AuthorityWorld()
    world.start(rewriting(retry=RETRY_ONCE), cluster("a"), named("a", a="a.test", b="b.test"))
    _, observer = world.call()
    [first] = world.streams(A) + world.streams(B)
    first.end(DOWN)
    world.clock.advance(1)
    [second] = world.streams(A) + world.streams(B)
    second.answer()
    assert observer.status == OK
    assert {authority_of(first), authority_of(second)} == {"a.test", "b.test"}


def test_a_hostname_that_changes_counts_at_once_and_costs_no_connection() -> None:
    world = AuthorityWorld()
    world.start(rewriting(), cluster("a"), named("a", a="a.test"))
    assert world.carried() == "a.test"
    world.say(named("a", a="new.test"))
    assert world.carried() == "new.test"
    world.say(named("a", a=""))
    assert world.carried() == SERVICE
    world.say(named("a", a="again.test"))
    assert world.carried() == "again.test"
    assert world.backend(A).accepts == 1


def test_an_rpc_keeps_what_its_route_said_when_it_was_selected() -> None:
    world = AuthorityWorld()
    world.backend(A).is_up = False
    world.start(rewriting(), cluster("a"), named("a", a="a.test"))
    _, before = world.call(wait_for_ready=True)
    world.say(hosts(host(route("a"))))
    _, after = world.call(wait_for_ready=True)
    world.backend(A).up()
    world.clock.advance(10)
    assert [authority_of(each) for each in world.streams(A)] == ["a.test", SERVICE]
    world.answer_all()
    assert (before.status, after.status) == (OK, OK)


def test_counting_anew_does_not_lose_the_authority() -> None:
    world = AuthorityWorld()
    world.start(rewriting(), cluster("a"), named("a", a="a.test"))
    _, waiting = world.call()
    [stream] = world.streams(A)
    # The limit is another one, and what was under way still counts.
    world.say(cluster("a", max_concurrent_requests=1))
    _, refused = world.call()
    assert refused.status.code is StatusCode.UNAVAILABLE
    stream.answer()
    assert waiting.status == OK
    assert world.carried() == "a.test"


def test_what_no_header_can_carry_is_encoded() -> None:
    world = AuthorityWorld()
    world.start(rewriting(), cluster("a"), named("a", a="bücher test\r\nx: y"))
    assert world.carried() == "b%C3%BCcher%20test%0D%0Ax:%20y"


# ---------------------------------------------------------------------------------------------
# Certificates


def refuse(world: MeshWorld, address: str, authority: str) -> None:
    transport = world.backend(address).transport
    assert transport is not None
    transport.refusals[authority] = REFUSED


@pytest.mark.parametrize("wait_for_ready", [False, True])
def test_an_authority_that_the_certificate_is_not_for_fails_the_rpc(wait_for_ready: bool) -> None:
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
        world.answer_all()
        ends.append(observer.status)
    # Nothing is counted as under way: the other endpoint serves with a limit of one.
    assert (ends.count(OK), ends.count(REFUSED)) == (2, 2)


def test_a_refused_authority_ends_an_attempt_as_any_failure_does() -> None:
    world = AuthorityWorld()
    retry = replace(RETRY_ONCE, codes=frozenset({REFUSED.code}))
    world.start(rewriting(retry=retry), cluster("a"), named("a", a="a.test", b="b.test"))
    refuse(world, A, "a.test")
    for _ in range(4):
        _, observer = world.call()
        world.clock.advance(1)
        [stream] = world.streams(B)
        assert authority_of(stream) == "b.test"
        stream.answer()
        assert observer.status == OK


def test_measured_rpcs_are_rewritten_and_refused_the_same() -> None:
    plugin = RecordingPlugin()
    world = AuthorityWorld(metrics=plugin.metrics)
    world.start(rewriting(), cluster("a"), named("a", a="a.test"))
    assert world.carried() == "a.test"
    refuse(world, A, "a.test")
    _, observer = world.call()
    assert observer.status == REFUSED
    statuses = [labels[2] for labels, _ in plugin.values(ATTEMPT_DURATION)]
    assert statuses == ["OK", "UNAUTHENTICATED"]
