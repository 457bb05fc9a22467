"""Config of a target for a fixed set of resources, without a control plane.

Specs: A74. DNS names count as resolved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from proxyless.base import Status, StatusCode
from proxyless.xds.bootstrap.resource_names import collection_of
from proxyless.xds.client.codec import encode_members
from proxyless.xds.config.dependencies import resolve
from proxyless.xds.resources import EndpointResource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from proxyless.xds.client.api import DecodeContext, ResourceType
    from proxyless.xds.config.dependency_manager import ResourceTypes
from proxyless.xds.config.plan import ConfigTarget, Plan, ResourceState, ResourceStates

T = TypeVar("T")

# Finds a resource by type URL and name: its bytes, and its error, which is not OK without bytes.
FindSerialized: TypeAlias = Callable[[str, str], tuple[bytes | None, Status]]


def find_collection(
    type_url: str, name: str, resources: Mapping[tuple[str, str], bytes]
) -> bytes | None:
    """Members of a collection in one message; None if there are none."""
    members = [
        (member, "", value)
        for (its_type, member), value in resources.items()
        if its_type == type_url and collection_of(member) == name
    ]
    return encode_members(members) if members else None


def resolve_offline(
    target: ConfigTarget, types: ResourceTypes, context: DecodeContext, find: FindSerialized
) -> Plan:
    """Plan for a target. Its outcome is a config or an error: no resource stays missing."""

    def load(resource_type: ResourceType[T], name: str) -> ResourceState[T]:
        serialized, error = find(resource_type.type_url, name)
        if serialized is None:
            return ResourceState(error=error)
        decoded = resource_type.decode(serialized, context)
        if decoded.error:
            return ResourceState(error=Status(StatusCode.UNAVAILABLE, decoded.error))
        return ResourceState(decoded.resource, ambient_error=error)

    def load_all(
        names: Iterable[str], states: dict[str, ResourceState[T]], resource_type: ResourceType[T]
    ) -> None:
        for name in names:
            if name not in states:
                states[name] = load(resource_type, name)

    listener_name = target.listener_name
    states = ResourceStates(listeners={listener_name: load(types.listener, listener_name)})
    while (plan := resolve(target, states)).outcome is None:
        # Each turn loads the resources that the last plan needs; their graph is finite.
        load_all(plan.route_configs, states.route_configs, types.route_config)
        load_all(plan.clusters, states.clusters, types.cluster)
        load_all(plan.endpoints, states.endpoints, types.endpoint)
        load_all(plan.collections, states.collections, types.collection)
        for host, port in plan.dns:
            states.dns[host, port] = ResourceState(EndpointResource(name=f"{host}:{port}"))
    return plan
