"""Resource of a control plane: its serialized message, and its references to other resources.

Resources are not validated, because a control plane for tests must be able to send invalid ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.protos import DECODE_ERRORS, Proto, message_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PREFIX: Final = "type.googleapis.com/"

# The types of resources, as `withhold` and `wait_for_ack` take them.
LISTENER: Final = f"{_PREFIX}envoy.config.listener.v3.Listener"
ROUTE_CONFIG: Final = f"{_PREFIX}envoy.config.route.v3.RouteConfiguration"
CLUSTER: Final = f"{_PREFIX}envoy.config.cluster.v3.Cluster"
ENDPOINTS: Final = f"{_PREFIX}envoy.config.endpoint.v3.ClusterLoadAssignment"
LB_ENDPOINT: Final = f"{_PREFIX}envoy.config.endpoint.v3.LbEndpoint"

# For messages to users.
TYPE_NAMES: Final = {
    LISTENER: "listener",
    ROUTE_CONFIG: "route config",
    CLUSTER: "cluster",
    ENDPOINTS: "endpoints",
    LB_ENDPOINT: "endpoint",
}

_HCM: Final = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_WRAPPER: Final = "envoy.service.discovery.v3.Resource"
_AGGREGATE: Final = "envoy.extensions.clusters.aggregate.v3.ClusterConfig"


def type_name(type_url: str) -> str:
    """The name of a type for messages to users; the URL itself for other types."""
    return TYPE_NAMES.get(type_url, type_url)


@frozen
class Reference:
    """A reference to another resource, and the path of the field that has it."""

    path: str
    type_url: str
    name: str

    @property
    def missing_text(self) -> str:
        verb = "are" if self.type_url == ENDPOINTS else "is"
        return f"there {verb} no {type_name(self.type_url)} {self.name!r}"


@frozen
class Resource:
    """One named, serialized resource."""

    type_url: str
    name: str
    value: bytes
    references: tuple[Reference, ...] = ()

    @classmethod
    def of(cls, message: Proto, name: str = "") -> Resource:
        """A copy of a message of any resource type; ValueError if it has no name.

        Members of collections have no name inside: it is an argument, or that of the message
        `envoy.service.discovery.v3.Resource` around them.
        """
        if message.DESCRIPTOR.full_name == _WRAPPER:
            return cls._unwrapped(message)
        type_url = f"{_PREFIX}{message.DESCRIPTOR.full_name}"
        name = name or _name_of(message)
        if not name:
            raise ValueError(
                f"{type_name(type_url)} has no name, wanted one that clients subscribe to"
            )
        find_references = _REFERENCES.get(type_url)
        references = () if find_references is None else tuple(find_references(message))
        # Deterministic, because equal resources are not sent again.
        return cls(type_url, name, message.SerializeToString(deterministic=True), references)

    @classmethod
    def _unwrapped(cls, wrapper: Proto) -> Resource:
        full_name = wrapper.resource.type_url.rpartition("/")[2]
        try:
            message = message_class(full_name).FromString(wrapper.resource.value)
        except (*DECODE_ERRORS, KeyError):
            raise ValueError(f"resource {wrapper.name!r} has no message of a known type") from None
        return cls.of(message, wrapper.name)

    def message(self) -> Proto:
        """A copy of the message, which may be changed."""
        return message_class(self.type_url.removeprefix(_PREFIX)).FromString(self.value)

    def __str__(self) -> str:
        return f"{type_name(self.type_url)} {self.name!r}"


def _name_of(message: Proto) -> str:
    """The name, which is in the field `cluster_name` for endpoints, and otherwise in `name`."""
    field = "name" if "name" in message.DESCRIPTOR.fields_by_name else "cluster_name"
    return str(getattr(message, field, ""))


# References, by type


def _listener_references(listener: Proto) -> Iterator[Reference]:
    """The references of each HTTP connection manager."""
    if listener.HasField("api_listener"):
        yield from _hcm_references("api_listener.api_listener", listener.api_listener.api_listener)
    chains = [(f"filter_chains[{i}]", chain) for i, chain in enumerate(listener.filter_chains)]
    if listener.HasField("default_filter_chain"):
        chains.append(("default_filter_chain", listener.default_filter_chain))
    for path, chain in chains:
        for number, network_filter in enumerate(chain.filters):
            where = f"{path}.filters[{number}].typed_config"
            yield from _hcm_references(where, network_filter.typed_config)


def _hcm_references(path: str, packed: Proto) -> Iterator[Reference]:
    manager = _unpack(packed, _HCM)
    if manager is None:
        return
    if manager.HasField("rds") and _is_over_ads(manager.rds.config_source):
        name = manager.rds.route_config_name
        yield Reference(f"{path}.rds.route_config_name", ROUTE_CONFIG, name)
    if manager.HasField("route_config"):
        for reference in _route_config_references(manager.route_config):
            where = f"{path}.route_config.{reference.path}"
            yield Reference(where, reference.type_url, reference.name)


def _route_config_references(route_config: Proto) -> Iterator[Reference]:
    for i, virtual_host in enumerate(route_config.virtual_hosts):
        for j, route in enumerate(virtual_host.routes):
            if route.HasField("route"):
                path = f"virtual_hosts[{i}].routes[{j}].route"
                yield from _action_references(path, route.route)


def _action_references(path: str, action: Proto) -> Iterator[Reference]:
    if action.HasField("cluster"):
        yield Reference(f"{path}.cluster", CLUSTER, action.cluster)
    for i, cluster in enumerate(action.weighted_clusters.clusters):
        if cluster.name:  # Otherwise a header of the request names it.
            where = f"{path}.weighted_clusters.clusters[{i}].name"
            yield Reference(where, CLUSTER, cluster.name)
    for i, mirror in enumerate(action.request_mirror_policies):
        if mirror.cluster:
            where = f"{path}.request_mirror_policies[{i}].cluster"
            yield Reference(where, CLUSTER, mirror.cluster)


def _cluster_references(cluster: Proto) -> Iterator[Reference]:
    if cluster.HasField("cluster_type"):
        aggregate = _unpack(cluster.cluster_type.typed_config, _AGGREGATE)
        for i, name in enumerate(aggregate.clusters if aggregate is not None else ()):
            yield Reference(f"cluster_type.typed_config.clusters[{i}]", CLUSTER, name)
    elif cluster.type == cluster.EDS and _is_over_ads(cluster.eds_cluster_config.eds_config):
        name = cluster.eds_cluster_config.service_name or cluster.name
        yield Reference("eds_cluster_config.service_name", ENDPOINTS, name)


_REFERENCES: Final[dict[str, Callable[[Proto], Iterator[Reference]]]] = {
    LISTENER: _listener_references,
    ROUTE_CONFIG: _route_config_references,
    CLUSTER: _cluster_references,
}


def _is_over_ads(source: Proto) -> bool:
    """Whether this control plane is the source of the resource."""
    return bool(source.HasField("ads") or source.HasField("self"))


def _unpack(packed: Proto, full_name: str) -> Proto | None:
    if packed.type_url.rpartition("/")[2] != full_name:
        return None
    try:
        return message_class(full_name).FromString(packed.value)
    except DECODE_ERRORS:  # The client will reject it.
        return None
