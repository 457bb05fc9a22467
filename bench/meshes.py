"""Resources of the control plane, for each benchmark.

A mesh is a function from plain values to resources; all have the listener `SERVICE`. Many endpoints
on one machine are many addresses of the loopback network, 127.0.0.0/8, on the backend's ports.
"""

from collections.abc import Callable, Sequence

from bench.clients import METHOD, SERVICE
from proxyless.controlplane import (
    Resource,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    route,
    route_config,
)
from proxyless.protos import Proto

ROUTES = "bench-routes"
# The header that the last route of a mesh with header routes matches.
HEADER = "bench-route"
# The path of the members of a collection.
COLLECTION = "xdstp://bench/envoy.config.endpoint.v3.LbEndpoint/c"


def loopback_address(number: int, ports: Sequence[int]) -> str:
    """The address of one of many endpoints, distributed over the ports."""
    host = f"127.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
    return f"{host}:{ports[number % len(ports)]}"


def spread(addresses: Sequence[str]) -> list[Proto]:
    """One cluster with round_robin."""
    return [*_routed(route(cluster="c")), eds_cluster("c"), endpoints("c", addresses)]


def many_endpoints(count: int, ports: Sequence[int], added: Sequence[int] = ()) -> list[Proto]:
    """One cluster with `count` endpoints, and the endpoints with the numbers `added`."""
    return spread([loopback_address(number, ports) for number in (*range(count), *added)])


def many_clusters(count: int, ports: Sequence[int]) -> list[Proto]:
    """`count` methods with one cluster of one endpoint each; RPCs call the last method."""
    methods = [*(f"/bench.Other/Method{number}" for number in range(count - 1)), METHOD]
    names = [f"c{number}" for number in range(count)]
    return [
        *_routed(*map(_route_by_path, methods, names)),
        *map(eds_cluster, names),
        *(endpoints(name, [loopback_address(n, ports)]) for n, name in enumerate(names)),
    ]


def collected(count: int, ports: Sequence[int]) -> list[Proto | Resource]:
    """One cluster whose endpoints are the members of a collection (LEDS)."""
    return [
        *_routed(route(cluster="c")),
        eds_cluster("c"),
        endpoints("c", {0: f"{COLLECTION}/*"}),
        *(
            Resource.of(lb_endpoint(loopback_address(n, ports)), f"{COLLECTION}/{n}")
            for n in range(count)
        ),
    ]


def path_routes(count: int, addresses: Sequence[str]) -> list[Proto]:
    """`count` routes by path to one cluster; only the last one matches."""
    others = (_route_by_path(f"/bench.Other/Method{n}", "c") for n in range(count - 1))
    return _with_routes([*others, _route_by_path(METHOD, "c")], addresses)


def header_routes(count: int, addresses: Sequence[str]) -> list[Proto]:
    """`count` routes by header to one cluster; header value `count - 1` matches only the last."""
    routes = [route(headers={HEADER: f"v{n}"}, cluster="c") for n in range(count)]
    return _with_routes(routes, addresses)


def two_priorities(high: Sequence[str], low: Sequence[str]) -> list[Proto]:
    """One cluster with two priorities."""
    return [*_routed(route(cluster="c")), eds_cluster("c"), endpoints("c", {0: high, 1: low})]


def moving(old: Sequence[str], new: Sequence[str] | None = None) -> list[Proto]:
    """All RPCs go to the cluster `old`, or to the cluster `new` if it is given."""
    parts = [eds_cluster("old"), endpoints("old", old)]
    if new is None:
        return [*_routed(route(cluster="old")), *parts]
    return [*_routed(route(cluster="new")), *parts, eds_cluster("new"), endpoints("new", new)]


def _route_by_path(path: str, cluster: str) -> Proto:
    return route(path=path, cluster=cluster)


def _with_routes(routes: Sequence[Proto], addresses: Sequence[str]) -> list[Proto]:
    return [*_routed(*routes), eds_cluster("c"), endpoints("c", addresses)]


def _routed(*routes: Proto) -> list[Proto]:
    return [listener(SERVICE, ROUTES), route_config(ROUTES, *routes)]


MESHES: dict[str, Callable[..., list[Proto]]] = {
    mesh.__name__: mesh
    for mesh in (
        spread,
        many_endpoints,
        many_clusters,
        path_routes,
        header_routes,
        two_priorities,
        moving,
    )
}
