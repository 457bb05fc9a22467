"""Unit tests of proxyless.sim.rehearsal.run."""

from __future__ import annotations

import gc
import signal
from typing import Any

import pytest

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    IpAddress,
    Status,
    StatusCode,
    ValidationErrors,
    parse_address,
)
from proxyless.base import Locality as BaseLocality
from proxyless.controlplane import (
    Locality,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    keep_sessions,
    listener,
    route,
    session_filter,
)
from proxyless.lb import Complete
from proxyless.lb.api import PickInfo
from proxyless.sim.backends import RPC_ID
from proxyless.sim.rehearsal import Mesh, Report, parse_script, rehearse
from proxyless.sim.rehearsal.run import (
    Rpc,
    _ClusterAddresses,
    _ConfigInForce,
    _PickRecorder,
)
from proxyless.xds.config.xds_config import ClusterConfig, ClusterError
from proxyless.xds.filters.attributes import CLUSTER
from proxyless.xds.resources import (
    Cluster,
    EdsCluster,
    EndpointInfo,
    EndpointResource,
    HealthStatus,
    LocalityEndpoints,
)
from tests.unit.sim.rehearsal.mesh import A1, A2, B1, mesh_of, run, two_zones


def counts(report: Report, phase: int = 0) -> dict[str, int]:
    return {each.endpoint: each.rpcs for each in report.phases[phase].shares}


def zones(report: Report) -> list[dict[str, int]]:
    """RPCs by zone, phase by phase."""
    found: list[dict[str, int]] = []
    for phase in report.phases:
        by_zone: dict[str, int] = {}
        for share in phase.shares:
            by_zone[share.zone] = by_zone.get(share.zone, 0) + share.rpcs
        found.append(by_zone)
    return found


def codes(report: Report, phase: int = 0) -> dict[str, int]:
    return {each.code: each.times for each in report.phases[phase].failures}


def test_rpcs_arrive_at_the_endpoints_of_the_files() -> None:
    report = run("{duration: 10s, rate: 10}")
    assert set(counts(report)) == {A1, A2}
    assert sum(counts(report).values()) == 100
    assert report.is_good


def test_runs_are_equal_only_for_equal_seeds() -> None:
    text = "{{duration: 5s, clients: 3, seed: {}, events: [{{at: 2s, kill: {{zone: a}}}}]}}"
    first, again, other = (run(text.format(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first.digest != other.digest


def test_killed_zone_gets_no_rpcs_until_it_is_started() -> None:
    report = run(
        """
        {duration: 60s, rate: 5, events: [{at: 10s, kill: {zone: a}, for: 20s}],
         expect: [{failover_within: 1s}, {only_zones: b, from: 11s, to: 30s}]}
        """
    )
    before, during, after = zones(report)
    assert set(before) == {"a"}
    assert set(during) == {"b"}
    assert after["a"] > 100
    assert report.is_good, report.verdicts


def test_endpoints_with_one_ip_address_are_separate_machines() -> None:
    near, far = "127.0.0.1:81", "127.0.0.1:82"
    report = run(
        f'{{duration: 20s, events: [{{at: 10s, kill: {{endpoint: "{near}"}}}}]}}',
        two_zones(a=[near, far]),
    )
    assert set(counts(report, 0)) == {near, far}
    assert set(counts(report, 1)) == {far}
    assert report.phases[1].failed == 0


def test_client_and_control_plane_have_no_address_of_the_mesh() -> None:
    taken = [f"10.0.0.{n}:18000" for n in range(1, 6)]
    assert counts(run("{duration: 5s}", two_zones(a=taken))).keys() == set(taken)


def test_pushed_mesh_is_served() -> None:
    report = run(
        "{duration: 20s, events: [{at: 10s, push: x}], expect: {failed: 0}}",
        two_zones(),
        two_zones(c=[B1]),
    )
    assert [set(each) for each in zones(report)] == [{"a"}, {"c"}]
    assert report.is_good


def test_fault_affects_the_endpoints_of_its_time() -> None:
    meshes = (two_zones(a=[A1], b=[A2]), two_zones(a=[A2], b=[B1]))
    report = run(
        "{duration: 20s, events: [{at: 5s, push: x}, {at: 10s, kill: {zone: a}}]}", *meshes
    )
    # A1 has left the mesh, and keeps its last zone.
    assert [each.what for each in report.timeline if "kill" in each.what] == [
        "kill zone a (2 of 3 endpoints)"
    ]
    assert [set(counts(report, n)) for n in range(3)] == [{A1}, {A2}, {B1}]


def test_fault_ends_for_the_endpoints_of_its_start() -> None:
    meshes = (two_zones(a=[A1, A2]), two_zones(b=[A1, A2]))
    report = run(
        "{duration: 60s, events: [{at: 5s, kill: {zone: a}, for: 10s}, {at: 10s, push: x}]}",
        *meshes,
    )
    assert set(counts(report, 3)) == {A1, A2}


def test_clients_keep_their_config_while_the_control_plane_is_stopped() -> None:
    report = run(
        """
        {duration: 60s, events: [{at: 10s, control_plane: stop, for: 20s}, {at: 20s, push: x}],
         expect: {failed: 0}}
        """,
        two_zones(),
        two_zones(c=[B1]),
    )
    assert report.is_good
    before, stopped, pushed, started = zones(report)
    assert [set(before), set(stopped), set(pushed)] == [{"a"}] * 3
    assert started["c"] > 100


def test_nack_is_in_the_timeline_and_the_old_config_stays() -> None:
    cluster = eds_cluster("cart")
    cluster.lb_policy = cluster.MAGLEV
    bad = mesh_of(listener("shop", [route(cluster="cart")]), cluster, endpoints("cart", [B1]))
    text = "{duration: 20s, events: [{at: 10s, push: x}], expect: {refused_configs: 0}}"
    report = run(text, two_zones(), bad)
    assert report.phases[1].failed == 0
    assert not report.verdicts[0].is_held
    (nack,) = [each for each in report.timeline if "refused" in each.what]
    assert nack.at_s == pytest.approx(10.0, abs=0.1)
    assert "lb_policy" in nack.what
    assert any("clients will refuse" in note for note in report.notes)


def test_metadata_methods_and_targets_decide_the_route() -> None:
    routes = [
        route(headers={"ring": "beta"}, cluster="beta"),
        route("/shop.Cart/", cluster="cart"),
    ]
    mesh = mesh_of(
        listener("shop", routes),
        listener("other", [route(cluster="beta")]),
        eds_cluster("cart"),
        eds_cluster("beta"),
        endpoints("cart", [A1]),
        endpoints("beta", [B1]),
    )
    report = run(
        """
        duration: 10s
        target: xds:///shop
        method: /shop.Cart/Add
        traffic:
          - {name: plain}
          - {name: beta, metadata: {ring: beta}}
          - {name: lost, method: /shop.Lost/Get}
          - {name: other, target: xds:///other}
        expect:
          - {traffic: plain, only_clusters: cart, failed: 0}
          - {traffic: beta, only_clusters: beta, failed: 0}
          - {traffic: lost, only_codes: UNAVAILABLE}
          - {traffic: lost, failed: 100}
          - {traffic: other, only_clusters: beta, failed: 0}
        """,
        mesh,
    )
    assert report.is_good, report.verdicts
    assert report.phases[0].failed == 100


def test_session_stays_on_its_endpoint() -> None:
    mesh = mesh_of(
        listener("shop", [route(cluster="cart")], filters=[session_filter("s")]),
        keep_sessions(eds_cluster("cart")),
        endpoints("cart", [A1, A2, B1]),
    )
    report = run("{duration: 10s, session: true}", mesh)
    assert list(counts(report).values()) == [100]
    assert len(counts(run("{duration: 10s}", mesh))) == 3


def test_names_are_looked_up_in_the_dns_of_the_script() -> None:
    mesh = mesh_of(listener("shop", [route(cluster="db")]), dns_cluster("db", "db.example", 80))
    assert run("{duration: 5s}", mesh).is_good
    report = run("{duration: 5s, dns: {db.example: 10.7.0.1}}", mesh)
    assert set(counts(report)) == {"10.7.0.1:80"}
    lost = run("{duration: 5s, dns: {db.example: []}}", mesh)
    assert lost.phases[0].failed == 50
    assert "db.example" in lost.phases[0].failures[0].details


def test_share_of_an_aggregate_names_the_leaf() -> None:
    mesh = mesh_of(
        listener("shop", [route(cluster="top")]),
        aggregate_cluster("top", ["x", "y"]),
        eds_cluster("x"),
        eds_cluster("y"),
        endpoints("x", {Locality("a"): [A1]}),
        endpoints("y", {Locality("b"): [B1]}),
    )
    report = run("{duration: 20s, events: [{at: 10s, kill: {cluster: x}}]}", mesh)
    assert [[share.cluster for share in phase.shares] for phase in report.phases] == [
        ["top/x"],
        ["top/y"],
    ]


def test_channel_options_are_those_of_the_script() -> None:
    text = """
    duration: 60s
    timeout: 1s
    options: {}
    events: [{at: 10s, cut: {zone: a}}]
    """
    keepalive = "{grpc.keepalive_time_ms: 1000, grpc.keepalive_timeout_ms: 1000}"
    # A client notices a cut only by keepalive.
    assert zones(run(text))[1] == {}
    assert zones(run(text.replace("{}", keepalive)))[1]["b"] > 300


def test_wait_for_ready_and_timeout_are_those_of_the_script() -> None:
    text = (
        "{duration: 20s, timeout: 9s, wait_for_ready: %s, events: [{at: 5s, kill: all, for: 4s}]}"
    )
    assert codes(run(text % "false"), 1) == {"UNAVAILABLE": 40}
    assert codes(run(text % "true"), 1) == {}


def test_latency_is_that_of_the_script() -> None:
    slow, fast = run("{duration: 5s, latency: 100ms}"), run("{duration: 5s}")
    assert slow.phases[0].median_s is not None
    assert 0.2 <= slow.phases[0].median_s <= 0.4
    assert fast.phases[0].median_s is not None
    assert fast.phases[0].median_s < 0.01


def test_progress_is_reported_to_the_end() -> None:
    errors = ValidationErrors()
    shares: list[float] = []
    script = parse_script({"duration": 2}, errors)
    rehearse(script, [two_zones()], errors, shares.append)
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def _cluster(*found: EndpointInfo) -> ClusterConfig:
    locality = LocalityEndpoints(BaseLocality("", "a", ""), 1, found)
    resource = EndpointResource(name="cart", priorities=((locality,),))
    return ClusterConfig("cart", Cluster(name="cart", discovery=EdsCluster()), resource)


def test_cluster_addresses_are_live_or_draining() -> None:
    live, draining, backup = (parse_address(each) for each in (A1, A2, B1))
    leaves = (
        _cluster(EndpointInfo((live,)), EndpointInfo((draining,), health=HealthStatus.DRAINING)),
        _cluster(EndpointInfo((backup,))),
    )
    found = _ClusterAddresses.of(leaves)
    assert found == _ClusterAddresses(frozenset({A1, B1}), frozenset({A2}))
    error = ClusterError(Status(StatusCode.UNAVAILABLE, "no cluster"))
    assert _ClusterAddresses.of(error) == _ClusterAddresses()


def test_pick_outside_the_config_is_recorded() -> None:
    recorder = _PickRecorder(lambda: 5.0)
    cart = _ClusterAddresses(frozenset({A1}), frozenset({A2}))
    recorder._configs["client-1"] = [_ConfigInForce(0.0, {"cart": cart})]
    attributes = EMPTY_ATTRIBUTES.with_(CLUSTER, "cluster:cart")

    def pick(address: str, *, has_session: bool = False) -> list[str]:
        recorder.stray_picks.clear()
        recorder.sent["1"] = Rpc(0.0, "traffic", has_session)
        ip, _, port = address.rpartition(":")
        subchannel: Any = _Subchannel(IpAddress(ip, int(port)))
        info = PickInfo("/s/m", ((RPC_ID, "1"),), attributes)
        recorder._on_pick("client-1", info, Complete(subchannel))
        return list(recorder.stray_picks)

    assert pick(A1) == []
    assert pick(A2, has_session=True) == []
    what = f"at 5.000 s client-1 picked {A2}, which is not in cluster 'cart'"
    assert pick(A2) == [what]
    assert pick(B1, has_session=True) == [what.replace(A2, B1)]


@pytest.mark.parametrize(("now_s", "is_stray"), [(39.0, False), (41.0, True)])
def test_pick_of_an_endpoint_is_recorded_when_it_was_removed_long_ago(
    now_s: float, *, is_stray: bool
) -> None:
    recorder = _PickRecorder(lambda: now_s)
    before, after = (_ClusterAddresses(frozenset({each})) for each in (A1, A2))
    recorder._configs["client-1"] = [
        _ConfigInForce(0.0, {"cart": before}),
        _ConfigInForce(10.0, {"cart": after}),
    ]
    recorder.sent["1"] = Rpc(0.0, "traffic", has_session=False)
    ip, _, port = A1.rpartition(":")
    subchannel: Any = _Subchannel(IpAddress(ip, int(port)))
    info = PickInfo("/s/m", ((RPC_ID, "1"),), EMPTY_ATTRIBUTES.with_(CLUSTER, "cluster:cart"))
    recorder._on_pick("client-1", info, Complete(subchannel))
    assert bool(recorder.stray_picks) is is_stray


class _Subchannel:
    """Subchannel of a pick."""

    def __init__(self, address: IpAddress) -> None:
        self.address = address


def test_missing_mesh_of_a_push_is_an_error() -> None:
    meshes: list[Mesh] = [two_zones()]
    script = parse_script({"events": [{"at": 1, "push": "x"}]}, ValidationErrors())
    with pytest.raises(AssertionError, match="there are 1 meshes, wanted 2"):
        rehearse(script, meshes, ValidationErrors())


def test_interrupt_closes_everything() -> None:
    """The handler of SIGINT is restored afterwards."""

    def interrupt(_share: float) -> None:
        signal.raise_signal(signal.SIGINT)

    script = parse_script({"rate": 100}, ValidationErrors())
    with pytest.raises(KeyboardInterrupt):
        rehearse(script, [two_zones()], ValidationErrors(), interrupt)
    # Anything left would cause a warning, which is an error in tests.
    gc.collect()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
