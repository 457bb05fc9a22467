"""Cases: resources that change, disappear, or are invalid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.controlplane import (
    CLUSTER,
    LISTENER,
    ROUTE_CONFIG,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    http_connection_manager,
    listener,
    route,
    route_config,
)
from proxyless.protos import message_class
from tools.peers.decisions.case import case
from tools.peers.decisions.mesh import SERVICE

if TYPE_CHECKING:
    from proxyless.protos import Proto
    from tools.peers.decisions.mesh import Mesh


@case("target without a listener", "UNAVAILABLE", "A27")
async def no_listener(mesh: Mesh) -> str:
    await mesh.serve(route(cluster="a"))
    return await mesh.results(service="missing.example")


@case("listener without `api_listener`", "NACK, UNAVAILABLE", "A27")
async def no_api_listener(mesh: Mesh) -> str:
    empty = message_class("envoy.config.listener.v3.Listener")(name=SERVICE)
    await mesh.serve(route(cluster="a"), more=[empty])
    return await mesh.verdict()


@case("required filter of an unknown type", "NACK, UNAVAILABLE", "A39")
async def required_filter(mesh: Mesh) -> str:
    await mesh.serve(route(cluster="a"), filters=[_unknown_filter(is_optional=False)])
    return await mesh.verdict()


@case("optional filter of an unknown type", "a", "A39")
async def optional_filter(mesh: Mesh) -> str:
    await mesh.serve(route(cluster="a"), filters=[_unknown_filter(is_optional=True)])
    return await mesh.verdict()


@case("no router filter", "NACK, UNAVAILABLE", "A39")
async def no_router(mesh: Mesh) -> str:
    manager = http_connection_manager(SERVICE)
    del manager.http_filters[:]
    await mesh.serve(route(cluster="a"), more=[listener(SERVICE, manager)])
    return await mesh.verdict()


@case("`xff_num_trusted_hops` of 1", "NACK, UNAVAILABLE", "A29")
async def trusted_hops(mesh: Mesh) -> str:
    manager = http_connection_manager(SERVICE)
    manager.xff_num_trusted_hops = 1
    await mesh.serve(route(cluster="a"), more=[listener(SERVICE, manager)])
    return await mesh.verdict()


@case("routes change", "ACK, b", "A27")
async def change_routes(mesh: Mesh) -> str:
    await _start(mesh)
    return f"{await mesh.put(route_config(SERVICE, route(cluster='b')))}, {await mesh.results()}"


@case("routes become invalid: the old ones stay", "NACK, a", "D26")
async def invalid_routes(mesh: Mesh) -> str:
    await _start(mesh)
    invalid = route_config(SERVICE, route(weighted={"a": 0, "b": 0}))
    return f"{await mesh.put(invalid)}, {await mesh.results()}"


@case("cluster becomes invalid: the old one stays", "NACK, a", "D26")
async def invalid_cluster(mesh: Mesh) -> str:
    await _start(mesh)
    return f"{await mesh.put(eds_cluster('a', lb_policy='MAGLEV'))}, {await mesh.results()}"


@case("listener becomes invalid: the old one stays", "NACK, a", "D26")
async def invalid_listener(mesh: Mesh) -> str:
    await _start(mesh)
    invalid = listener(SERVICE, SERVICE, filters=[_unknown_filter(is_optional=False)])
    return f"{await mesh.put(invalid)}, {await mesh.results()}"


@case("listener is deleted", "UNAVAILABLE", "D26")
async def delete_listener(mesh: Mesh) -> str:
    await _start(mesh)
    await mesh.remove(LISTENER, SERVICE)
    return await mesh.results()


@case("routes are deleted: the old ones stay", "a", "A27")
async def delete_routes(mesh: Mesh) -> str:
    await _start(mesh)
    await mesh.remove(ROUTE_CONFIG, SERVICE)
    return await mesh.results()


@case("cluster is deleted", "UNAVAILABLE", "D22, D26")
async def delete_cluster(mesh: Mesh) -> str:
    await _start(mesh)
    await mesh.remove(CLUSTER, "a")
    return await mesh.results()


@case("the same, a wait-for-ready RPC", "UNAVAILABLE", "D22")
async def delete_cluster_wait(mesh: Mesh) -> str:
    await _start(mesh)
    await mesh.remove(CLUSTER, "a")
    return await mesh.results(wait_for_ready=True, timeout_s=4.0)


@case("all endpoints are removed", "UNAVAILABLE", "A27")
async def remove_endpoints(mesh: Mesh) -> str:
    await _start(mesh)
    await mesh.put(endpoints("a", []))
    return await mesh.results()


@case("all endpoints of priority 0 are removed", "b", "A56")
async def remove_priority(mesh: Mesh) -> str:
    await mesh.serve(
        route(cluster="one"), more=[eds_cluster("one"), _two_priorities(mesh, has_first=True)]
    )
    await mesh.settle()
    await mesh.put(_two_priorities(mesh, has_first=False))
    return await mesh.results(count=5)


@case("cluster changes from EDS to LOGICAL_DNS", "a", "A75")
async def change_cluster_type(mesh: Mesh) -> str:
    await _start(mesh)
    port = int(mesh.addresses["a"].rpartition(":")[2])
    await mesh.put(dns_cluster("a", "127.0.0.1", port))
    return await mesh.results(count=5)


@case("cluster changes from EDS to aggregate", "b", "A75")
async def change_to_aggregate(mesh: Mesh) -> str:
    await _start(mesh)
    await mesh.put(aggregate_cluster("a", ["b"]))
    return await mesh.results(count=5)


async def _start(mesh: Mesh) -> None:
    await mesh.serve(route(cluster="a"))
    await mesh.settle()


def _two_priorities(mesh: Mesh, *, has_first: bool) -> Proto:
    first = [mesh.addresses["a"]] if has_first else []
    return endpoints("one", {0: first, 1: [mesh.addresses["b"]]})


def _unknown_filter(*, is_optional: bool) -> Proto:
    name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter"
    made = message_class(name)(name="unknown", is_optional=is_optional)
    made.typed_config.type_url = "type.googleapis.com/example.Unknown"
    return made
