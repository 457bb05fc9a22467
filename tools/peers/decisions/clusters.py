"""Cases: clusters and endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.controlplane import (
    Locality,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    lb_endpoint,
    route,
)
from proxyless.controlplane.builders import pack
from proxyless.protos import message_class
from tools.peers.decisions.case import case

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxyless.protos import Proto
    from tools.peers.clients.stacks import Untyped
    from tools.peers.decisions.mesh import Mesh

    Where = Mapping[int | Locality, Sequence[str]]

# Of TCPMUX, where nothing listens.
_UNREACHABLE: Final = "127.0.0.1:1"


@case("route to a cluster that does not exist", "UNAVAILABLE", "D22")
async def no_cluster(mesh: Mesh) -> str:
    await mesh.serve(route(cluster="missing"))
    return await mesh.results()


@case("the same, a wait-for-ready RPC", "UNAVAILABLE", "D22")
async def no_cluster_wait(mesh: Mesh) -> str:
    await mesh.serve(route(cluster="missing"))
    return await mesh.results(wait_for_ready=True)


@case("cluster without endpoints", "UNAVAILABLE", "A27")
async def no_endpoints(mesh: Mesh) -> str:
    return await _of_endpoints(mesh, endpoints("one", []))


@case("no endpoint is reachable, a wait-for-ready RPC", "DEADLINE_EXCEEDED", "D22")
async def unreachable_wait(mesh: Mesh) -> str:
    await mesh.serve(
        route(cluster="one"), more=[eds_cluster("one"), endpoints("one", [_UNREACHABLE])]
    )
    return await mesh.results(wait_for_ready=True, timeout_s=4.0)


@case("priority 0 without endpoints", "b", "A56")
async def empty_priority(mesh: Mesh) -> str:
    where: Where = {0: [], 1: [mesh.addresses["b"]]}
    return await _of_endpoints(mesh, endpoints("one", where), count=5)


@case("priority 0 is unreachable", "b", "A56")
async def unreachable_priority(mesh: Mesh) -> str:
    where: Where = {0: [_UNREACHABLE], 1: [mesh.addresses["b"]]}
    return await _of_endpoints(mesh, endpoints("one", where), count=5, wait_for_ready=True)


@case("priorities 0 and 2, without 1", "NACK, UNAVAILABLE", "A27")
async def priority_gap(mesh: Mesh) -> str:
    where: Where = {0: [mesh.addresses["a"]], 2: [mesh.addresses["b"]]}
    return await _of_endpoints(mesh, endpoints("one", where))


@case("locality without a weight", "b", "A27: ignored")
async def locality_weight(mesh: Mesh) -> str:
    where: Where = {
        Locality("x", weight=1): [mesh.addresses["a"]],
        Locality("y", weight=1): [mesh.addresses["b"]],
    }
    made = endpoints("one", where)
    made.endpoints[0].ClearField("load_balancing_weight")
    return await _of_endpoints(mesh, made, count=20)


@case("the same locality twice in a priority", "NACK, UNAVAILABLE", "A27")
async def locality_twice(mesh: Mesh) -> str:
    made = endpoints(
        "one", {Locality("x"): [mesh.addresses["a"]], Locality("y"): [mesh.addresses["b"]]}
    )
    made.endpoints[1].locality.zone = "x"
    return await _of_endpoints(mesh, made)


@case("the same endpoint twice", "NACK, UNAVAILABLE", "A27")
async def endpoint_twice(mesh: Mesh) -> str:
    return await _of_endpoints(mesh, endpoints("one", [mesh.addresses["a"]] * 2))


@case("endpoint with the weight 0", "NACK, UNAVAILABLE", "A27")
async def endpoint_weight_zero(mesh: Mesh) -> str:
    found = [lb_endpoint(mesh.addresses["a"], weight=0), lb_endpoint(mesh.addresses["b"])]
    return await _of_endpoints(mesh, endpoints("one", found), count=20)


@case("endpoint that is UNHEALTHY", "b", "A27")
async def unhealthy(mesh: Mesh) -> str:
    found = [lb_endpoint(mesh.addresses["a"], health="UNHEALTHY"), mesh.addresses["b"]]
    return await _of_endpoints(mesh, endpoints("one", found), count=10)


@case("LOGICAL_DNS", "a", "A37")
async def logical_dns(mesh: Mesh) -> str:
    port = int(mesh.addresses["a"].rpartition(":")[2])
    return await _of_clusters(mesh, [dns_cluster("one", "127.0.0.1", port)])


@case("LOGICAL_DNS, a name that does not exist", "UNAVAILABLE", "A37")
async def logical_dns_missing(mesh: Mesh) -> str:
    return await _of_clusters(mesh, [dns_cluster("one", "missing.invalid", 80)])


@case("STRICT_DNS", "NACK, UNAVAILABLE", "A27")
async def strict_dns(mesh: Mesh) -> str:
    port = int(mesh.addresses["a"].rpartition(":")[2])
    made = dns_cluster("one", "127.0.0.1", port)
    made.type = made.STRICT_DNS
    return await _of_clusters(mesh, [made])


@case("aggregate: the first cluster has no endpoints", "b", "A37")
async def aggregate_empty(mesh: Mesh) -> str:
    clusters = [aggregate_cluster("one", ["empty", "b"]), eds_cluster("empty")]
    return await _of_clusters(mesh, [*clusters, endpoints("empty", [])], count=5)


@case("aggregate: the first cluster does not exist", "b", "D24")
async def aggregate_missing(mesh: Mesh) -> str:
    return await _of_clusters(mesh, [aggregate_cluster("one", ["missing", "b"])], count=5)


@case("aggregate, and another route to its first cluster", "a, a", "A75")
async def aggregate_and_leaf(mesh: Mesh) -> str:
    await mesh.serve(
        route("/peers.Echo/Slow", cluster="a"),
        route(cluster="one"),
        more=[aggregate_cluster("one", ["a", "b"])],
    )
    first = await mesh.results(timeout_s=8.0)
    second = await mesh.results("/peers.Echo/Slow", body="0", timeout_s=8.0)
    return f"{first}, {second}"


@case("aggregate: the same cluster twice", "a", "A37")
async def aggregate_twice(mesh: Mesh) -> str:
    return await _of_clusters(mesh, [aggregate_cluster("one", ["a", "a", "b"])], count=5)


@case("aggregate of itself", "UNAVAILABLE", "A37")
async def aggregate_loop(mesh: Mesh) -> str:
    return await _of_clusters(mesh, [aggregate_cluster("one", ["one"])])


@case("aggregate with the policy CLUSTER_PROVIDED", "a", "D27")
async def aggregate_policy(mesh: Mesh) -> str:
    made = aggregate_cluster("one", ["a"], lb_policy="CLUSTER_PROVIDED")
    return await _of_clusters(mesh, [made])


@case("policy LEAST_REQUEST of the enum", "a", "D33")
async def least_request_enum(mesh: Mesh) -> str:
    return await _of_policy(mesh, "LEAST_REQUEST")


@case("policy MAGLEV of the enum", "NACK, UNAVAILABLE", "A27")
async def maglev_enum(mesh: Mesh) -> str:
    return await _of_policy(mesh, "MAGLEV")


@case("`load_balancing_policy`: an unknown one, then round_robin", "a", "A52")
async def unknown_policy_first(mesh: Mesh) -> str:
    return await _of_clusters(mesh, _clusters_with_policies(mesh, ["unknown", "round_robin"]))


@case("`load_balancing_policy`: only an unknown one", "NACK, UNAVAILABLE", "A52")
async def unknown_policy_only(mesh: Mesh) -> str:
    return await _of_clusters(mesh, _clusters_with_policies(mesh, ["unknown"]))


@case("transport socket that is unknown", "NACK, UNAVAILABLE", "A29")
async def unknown_socket(mesh: Mesh) -> str:
    made = eds_cluster("one")
    made.transport_socket.name = "unknown"
    made.transport_socket.typed_config.type_url = "type.googleapis.com/example.Unknown"
    return await _of_clusters(mesh, [made, endpoints("one", [mesh.addresses["a"]])])


async def _of_endpoints(mesh: Mesh, assignment: Proto, **fields: Untyped) -> str:
    return await _of_clusters(mesh, [eds_cluster("one"), assignment], **fields)


async def _of_policy(mesh: Mesh, policy: str) -> str:
    cluster = eds_cluster("one", lb_policy=policy)
    return await _of_clusters(mesh, [cluster, endpoints("one", [mesh.addresses["a"]])])


async def _of_clusters(mesh: Mesh, resources: Sequence[Proto], **fields: Untyped) -> str:
    """RPCs of a route to the cluster `one`."""
    # Longer than the 15 s until a resource counts as missing.
    await mesh.serve(route(cluster="one", timeout_s=60.0), more=resources)
    return await mesh.verdict(**fields)


def _clusters_with_policies(mesh: Mesh, names: Sequence[str]) -> list[Proto]:
    made = eds_cluster("one")
    policies = "envoy.extensions.load_balancing_policies"
    for name in names:
        extension = made.load_balancing_policy.policies.add().typed_extension_config
        extension.name = name
        if name == "unknown":
            extension.typed_config.type_url = "type.googleapis.com/example.Unknown"
            continue
        wrapped = message_class(f"{policies}.wrr_locality.v3.WrrLocality")()
        inner = wrapped.endpoint_picking_policy.policies.add().typed_extension_config
        inner.name = name
        pack(message_class(f"{policies}.round_robin.v3.RoundRobin")(), inner.typed_config)
        pack(wrapped, extension.typed_config)
    return [made, endpoints("one", [mesh.addresses["a"]])]
