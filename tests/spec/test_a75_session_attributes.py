"""A75: attributes of subchannels that only sessions use."""

from __future__ import annotations

from typing import Final

import pytest

from proxyless.base import (
    HTTP_PROXY,
    Endpoint,
    HttpProxy,
    IpAddress,
    Locality,
    Status,
    StatusCode,
    parse_address,
)
from proxyless.lb import Complete
from proxyless.wire import StreamEnd
from proxyless.xds.config.attributes import HAS_HOST_SNI, HOSTNAME, LOCALITY, LOCALITY_WEIGHT
from proxyless.xds.resources import (
    EndpointInfo,
    EndpointResource,
    HealthStatus,
    LocalityEndpoints,
    OutlierDetection,
)
from tests.worlds.authority_meshes import AuthorityWorld, rewriting
from tests.worlds.load_reports import LoadReportWorld, localities_of
from tests.worlds.meshes import MeshWorld
from tests.worlds.override_hosts import (
    IDLE_TIMEOUT_S,
    OverrideWorld,
    backend,
)
from tests.worlds.policies import CONNECTING, FAILURE, IDLE, Name, ScriptedSubchannel
from tests.worlds.session_meshes import cookie, session_listener
from tests.worlds.xds_clients import server_config
from tests.worlds.xds_resources import cluster, locality, prioritized, route_config

A, B, C, D = (f"10.0.0.{number}:80" for number in range(1, 5))
BROKEN: Final = StreamEnd(Status(StatusCode.UNKNOWN, "broken"))

# ---------------------------------------------------------------------------------------------
# Effects on the policies above


def count_failures(limit_percent: int) -> OutlierDetection:
    return OutlierDetection(
        {
            "interval": "10s",
            "baseEjectionTime": "300s",
            "maxEjectionPercent": 50,
            "failurePercentageEjection": {
                "threshold": limit_percent,
                "enforcementPercentage": 100,
                "minimumHosts": 2,
                "requestVolume": 5,
            },
        }
    )


def fail_sessions_at_c(world: MeshWorld) -> None:
    """Make 20 RPCs of a session that fail at C, and as many others that succeed elsewhere."""
    for _ in range(20):
        _, observer = world.call(metadata=cookie(f"{C};a"))
        [stream] = world.streams(C)
        stream.end(BROKEN)
        world.settle()
        assert observer.status.code is StatusCode.UNKNOWN
        world.send_rpc()


@pytest.mark.spec("A75-66", "A75-05")
def test_session_host_is_ejected_when_outlier_detection_is_turned_on_later() -> None:
    world = MeshWorld()
    found = prioritized("a", [locality("x", A, B)], [locality("y", C, D)])
    world.start(session_listener(), route_config("a"), cluster("a"), found)
    assert world.send_rpc(metadata=cookie(f"{C};a")) == C
    world.publish(cluster("a", outlier_detection=count_failures(50)))
    fail_sessions_at_c(world)
    world.clock.advance(10.0)
    assert world.backend(C).accepts == 1
    for address in (A, B):
        world.backend(address).down()
    world.clock.advance(1.0)
    assert {world.send_rpc() for _ in range(4)} == {D}, "C is not ejected"


@pytest.mark.spec("A75-66")
def test_load_of_a_session_host_is_reported_for_its_new_locality_when_it_moves() -> None:
    world = LoadReportWorld()
    counted = cluster("a", lrs_server=server_config())
    found = prioritized("a", [locality("x", A)], [locality("y", C)])
    world.start(session_listener(), route_config("a"), counted, found)
    assert world.send_rpc(metadata=cookie(f"{C};a")) == C
    [stats] = world.take_report().values()
    assert localities_of(stats) == {"y": (1, 1, 0, 0)}
    world.publish(prioritized("a", [locality("x", A)], [locality("z", C)]))
    for _ in range(3):
        assert world.send_rpc(metadata=cookie(f"{C};a")) == C
    [stats] = world.take_report().values()
    assert localities_of(stats) == {"z": (3, 3, 0, 0)}
    assert world.backend(C).accepts == 1


def named(hostname: str) -> EndpointResource:
    """A in the first priority, and B with this hostname in the second."""
    first = LocalityEndpoints(Locality(zone="x"), 1, (EndpointInfo((parse_address(A),)),))
    info = EndpointInfo((parse_address(B),), hostname=hostname)
    return prioritized("a", [first], [LocalityEndpoints(Locality(zone="y"), 1, (info,))])


@pytest.mark.spec("A75-66")
def test_rpcs_of_a_session_have_the_new_authority_when_the_hostname_changes() -> None:
    world = AuthorityWorld()
    world.start(session_listener(), rewriting(), cluster("a"), named("old.test"))
    session = cookie(f"{B};a")
    assert world.send_authority(metadata=session) == "old.test"
    world.publish(named("new.test"))
    assert world.send_authority(metadata=session) == "new.test"
    assert world.backend(B).accepts == 1


# ---------------------------------------------------------------------------------------------
# Replacement of the subchannel

OLD_PROXY, NEW_PROXY = (HttpProxy(IpAddress(f"192.0.2.{number}", 3128)) for number in (1, 2))


def server(hostname: str) -> Endpoint:
    """ "c" with this hostname, which is its SNI."""
    attributes = backend("c").attributes.with_(HOSTNAME, hostname).with_(HAS_HOST_SNI, value=True)
    return Endpoint(backend("c").addresses, attributes)


def proxied(proxy: HttpProxy) -> Endpoint:
    return Endpoint(backend("c").addresses, backend("c").attributes.with_(HTTP_PROXY, proxy))


class RenewalWorld(OverrideWorld):
    """ "a" serves RPCs; "c" is in the second priority, and only a session uses it."""

    def begin(self, endpoint: Endpoint) -> ScriptedSubchannel:
        self.update_priorities(["a"], [endpoint])
        self.connect("a")
        self.own("c")
        self.take_requests()
        return self["c"]

    def publish(self, endpoint: Endpoint) -> None:
        self.update_priorities(["a"], [endpoint])

    def used(self) -> ScriptedSubchannel:
        """The subchannel that RPCs of the session use."""
        result = self.raw_session("c")
        assert isinstance(result, Complete)
        assert isinstance(result.subchannel, ScriptedSubchannel)
        return result.subchannel

    def at(self, name: Name) -> list[ScriptedSubchannel]:
        return [each for each in self.subchannels if self.name(each.address) == name]


@pytest.fixture
def world() -> RenewalWorld:
    return RenewalWorld()


def begin_renewal(world: RenewalWorld) -> tuple[ScriptedSubchannel, ScriptedSubchannel]:
    """The old subchannel, READY, and the new one, which has another connection."""
    old = world.begin(server("old"))
    world.share("c", IDLE)
    world.publish(server("new"))
    world.expect_requests("c")
    first, second = world.at("c")
    assert first is old
    assert second.attributes.get(HOSTNAME) == "new"
    return old, second


@pytest.mark.spec("A75-66")
def test_session_subchannel_is_replaced_at_once_when_the_new_one_shares_the_connection(
    world: RenewalWorld,
) -> None:
    old = world.begin(server("old"))
    world.publish(server("new"))
    assert old.is_released
    assert world["c"].attributes.get(HOSTNAME) == "new"
    assert world.used() is world["c"]
    world.expect_requests()


def test_session_subchannel_is_replaced_when_the_connection_of_the_new_one_is_ready(
    world: RenewalWorld,
) -> None:
    old, new = begin_renewal(world)
    assert world.used() is old
    new.connecting()
    assert world.used() is old
    world.settle()
    new.ready()
    assert world.used() is new
    assert old.is_released
    assert world.at("c") == [new]


def test_session_subchannel_stays_when_the_new_one_cannot_connect(world: RenewalWorld) -> None:
    old, new = begin_renewal(world)
    new.connecting()
    new.fail()
    assert world.used() is old
    world.expect_requests()
    new.idle()
    world.expect_requests("c")
    new.connecting()
    new.ready()
    assert world.used() is new


def test_new_session_subchannel_replaces_the_old_one_when_its_connection_is_lost(
    world: RenewalWorld,
) -> None:
    old, new = begin_renewal(world)
    new.connecting()
    old.idle()
    assert old.is_released
    assert world.session("c")[0] is None, "the RPC does not wait for the new one"
    new.ready()
    assert world.used() is new


def test_new_session_subchannel_is_released_when_the_old_attributes_return(
    world: RenewalWorld,
) -> None:
    old, new = begin_renewal(world)
    world.publish(server("old"))
    assert new.is_released
    assert world.at("c") == [old]
    assert world.used() is old


def test_new_session_subchannel_is_replaced_when_the_attributes_change_again(
    world: RenewalWorld,
) -> None:
    old, new = begin_renewal(world)
    world.publish(server("newest"))
    assert new.is_released
    world.expect_requests("c")
    _, newest = world.at("c")
    newest.connecting()
    newest.ready()
    assert world.used() is newest
    assert newest.attributes.get(HOSTNAME) == "newest"
    assert old.is_released


def test_new_session_subchannel_stays_when_an_update_repeats_its_attributes(
    world: RenewalWorld,
) -> None:
    _, new = begin_renewal(world)
    new.connecting()
    created = world.helper.created
    world.publish(server("new"))
    assert world.helper.created == created
    assert not new.is_released
    world.expect_requests()


@pytest.mark.parametrize("state", [IDLE, CONNECTING, FAILURE])
def test_session_subchannel_without_connection_is_replaced_at_once(
    world: RenewalWorld, state: object
) -> None:
    old = world.begin(server("old"))
    old.idle()
    if state is not IDLE:
        old.connecting()
    if state is FAILURE:
        old.fail()
    world.publish(server("new"))
    assert old.is_released
    assert world["c"].attributes.get(HOSTNAME) == "new"
    assert world.session("c")[0] is None
    world.settle()
    world.expect_requests("c")
    world.connect("c")
    world.expect_session_at("c")


def test_waiting_rpc_is_picked_again_when_its_connecting_session_subchannel_is_replaced(
    world: RenewalWorld,
) -> None:
    old = world.begin(server("old"))
    old.idle()
    assert world.session("c")[0] is None
    world.settle()
    old.connecting()
    world.take_requests()
    world.expect_never()
    world.publish(server("new"))
    world.settle()
    world.expect_reports(world.state)
    assert world.session("c")[0] is None
    world.settle()
    world.expect_requests("c")


@pytest.mark.spec("A86-15")
def test_session_subchannel_stays_when_only_the_proxy_changes_until_its_connection_is_lost(
    world: RenewalWorld,
) -> None:
    old = world.begin(proxied(OLD_PROXY))
    world.share("c", IDLE)
    world.publish(proxied(NEW_PROXY))
    assert world.at("c") == [old]
    assert world.used() is old
    world.expect_requests()
    old.idle()
    assert old.is_released
    assert world["c"].attributes.get(HTTP_PROXY) == NEW_PROXY
    assert world.session("c")[0] is None
    world.settle()
    world.connect("c")
    assert world.used().attributes.get(HTTP_PROXY) == NEW_PROXY


@pytest.mark.spec("A75-30")
def test_session_subchannel_stays_when_only_weight_and_health_change(world: RenewalWorld) -> None:
    old = world.begin(backend("c"))
    healthy = backend("c", health=HealthStatus.HEALTHY)
    world.publish(Endpoint(healthy.addresses, healthy.attributes.with_(LOCALITY_WEIGHT, 7)))
    assert world.at("c") == [old]
    assert world.used() is old


@pytest.mark.spec("A75-66", "A75-47")
def test_subchannel_kept_for_a_session_has_the_attributes_of_the_same_update(
    world: RenewalWorld,
) -> None:
    world.update_priorities(["a", "b"])
    world.connect("a", "b")
    world.expect_session_at("b")
    moved = backend("b").attributes.with_(LOCALITY, Locality(zone="elsewhere"))
    world.update_priorities(["a"], [Endpoint(backend("b").addresses, moved)])
    assert world["b"].attributes.get(LOCALITY) == Locality(zone="elsewhere")
    world.expect_session_at("b")
    world.expect_requests("a", "b")


@pytest.mark.parametrize("how", ["close", "unlist", "sweep", "child"])
def test_both_session_subchannels_are_released_when_the_host_is_not_needed(
    world: RenewalWorld, how: str
) -> None:
    old, new = begin_renewal(world)
    match how:
        case "close":
            world.policy.close()
        case "unlist":
            world.update_priorities(["a"])
        case "sweep":
            world.advance(IDLE_TIMEOUT_S)
        case _:
            world.update_priorities(["a", server("new")])
    assert old.is_released
    assert new.is_released
    world.clock.advance(0)


def test_backoff_of_both_session_subchannels_is_reset(world: RenewalWorld) -> None:
    old, new = begin_renewal(world)
    world.policy.reset_backoff()
    assert (old.backoff_resets, new.backoff_resets) == (1, 1)
