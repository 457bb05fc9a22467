"""ADS responses of any size, and the same with one entry changed. Pure.

- `endpoints`: one EDS resource with endpoints in ten localities.
- `routes`: one RDS resource with routes; some have headers, weights or retries.
- `clusters`: CDS resources, each with a typed LB policy and outlier detection.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proxyless.assembly import default_policies
from proxyless.protos import Proto, message_class
from proxyless.xds.client import ResourceType
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.parsing.cluster import CLUSTER, ClusterType
from proxyless.xds.parsing.endpoint import CLUSTER_LOAD_ASSIGNMENT, EndpointType
from proxyless.xds.parsing.route import ROUTE_CONFIGURATION, RouteConfigurationType

LOCALITIES = 10
BACKENDS = 100

_RESPONSE = "envoy.service.discovery.v3.DiscoveryResponse"
_LB_POLICIES = "envoy.extensions.load_balancing_policies"


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of response."""

    name: str
    # The noun for the size, as in "5000 endpoints".
    entries: str
    # From small to large; targets are for the largest.
    sizes: tuple[int, ...]
    make_type: Callable[[], ResourceType[Any]]
    # The resources of a response of this size; the entry with this number, if any, differs.
    make_resources: Callable[[int, int | None], list[Proto]]

    def make_response(self, size: int, version: int, changed: int | None = None) -> bytes:
        """One whole DiscoveryResponse, serialized."""
        message = message_class(_RESPONSE)(version_info=str(version), nonce=str(version))
        message.type_url = self.make_type().type_url
        for resource in self.make_resources(size, changed):
            entry = message.resources.add(type_url=message.type_url)
            entry.value = resource.SerializeToString()
        return bytes(message.SerializeToString())

    def names(self, size: int) -> list[str]:
        """The names of all resources of a response."""
        return [_name_of(resource) for resource in self.make_resources(size, None)]


def _name_of(resource: Proto) -> str:
    name: str = getattr(resource, "cluster_name", "") or resource.name
    return name


# ---------------------------------------------------------------------------------------------
# Resources


def make_endpoints(size: int, changed: int | None) -> list[Proto]:
    message = message_class(CLUSTER_LOAD_ASSIGNMENT)(cluster_name="cluster")
    localities = [
        message.endpoints.add(
            locality={"region": "region", "zone": f"zone-{number}"},
            load_balancing_weight={"value": number + 1},
        )
        for number in range(LOCALITIES)
    ]
    for number in range(size):
        host = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        localities[number * LOCALITIES // size].lb_endpoints.add(
            endpoint={
                "address": {"socket_address": {"address": host, "port_value": 8080}},
                "hostname": f"host-{number}.example",
            },
            health_status="HEALTHY",
            load_balancing_weight={"value": 2 if number == changed else 1},
        )
    return [message]


def make_routes(size: int, changed: int | None) -> list[Proto]:
    message = message_class(ROUTE_CONFIGURATION)(name="routes")
    host = message.virtual_hosts.add(name="host", domains=["*"])
    for number in range(size):
        backend = (number + (number == changed)) % BACKENDS
        route = host.routes.add(match={"path": f"/package.Service{number}/Method"})
        _fill_action(route.route, number, f"cluster-{backend}")
        if number % 10 == 0:
            value = {"exact": f"tenant-{number % 7}"}
            route.match.headers.add(name="x-tenant", string_match=value)
    return [message]


def _fill_action(action: Proto, number: int, cluster: str) -> None:
    if number % 20:
        action.cluster = cluster
        return
    for weight in (90, 10):
        action.weighted_clusters.clusters.add(name=f"{cluster}-{weight}", weight={"value": weight})
    action.retry_policy.retry_on = "unavailable,cancelled"


def make_clusters(size: int, changed: int | None) -> list[Proto]:
    return [_make_cluster(number, 5 if number == changed else 100) for number in range(size)]


def _make_cluster(number: int, max_requests: int) -> Proto:
    message = message_class(CLUSTER)(
        name=f"cluster-{number}",
        type="EDS",
        eds_cluster_config={"eds_config": {"ads": {}}, "service_name": f"service-{number}"},
        circuit_breakers={"thresholds": [{"max_requests": {"value": max_requests}}]},
        outlier_detection={"interval": {"seconds": 5}, "max_ejection_percent": {"value": 50}},
    )
    round_robin = message_class(f"{_LB_POLICIES}.round_robin.v3.RoundRobin")()
    in_locality = message_class(f"{_LB_POLICIES}.wrr_locality.v3.WrrLocality")()
    _add_policy(in_locality.endpoint_picking_policy, round_robin)
    _add_policy(message.load_balancing_policy, in_locality)
    return message


def _add_policy(policies: Proto, config: Proto) -> None:
    extension = policies.policies.add().typed_extension_config
    extension.name = config.DESCRIPTOR.name
    extension.typed_config.Pack(config)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("endpoints", "endpoints", (1250, 2500, 5000), EndpointType, make_endpoints),
        Workload(
            "routes",
            "routes",
            (2500, 5000, 10000),
            lambda: RouteConfigurationType(FilterRegistry(FILTER_FACTORIES)),
            make_routes,
        ),
        Workload(
            "clusters",
            "clusters",
            (250, 500, 1000),
            lambda: ClusterType(default_policies()),
            make_clusters,
        ),
    )
}
