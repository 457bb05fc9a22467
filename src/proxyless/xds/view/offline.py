"""Config that a target would have with a fixed set of resources, without a control plane.

Specs: A74 (the resources that a target needs). Resources go through the parsers and the dependency
resolution of a client. Names in DNS count as resolved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from proxyless.base import Status, StatusCode
from proxyless.xds.config.dependencies import Answer, Known, resolve
from proxyless.xds.resources import EndpointResource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.xds.client.api import DecodeContext, ResourceType
    from proxyless.xds.config.dependencies import Plan, Wanted
    from proxyless.xds.config.manager import ResourceTypes

T = TypeVar("T")

# The bytes of a resource by type URL and name, None if there are none; and its error. Without
# bytes the error is not OK.
FindSerialized: TypeAlias = Callable[[str, str], tuple[bytes | None, Status]]


def resolve_offline(
    wanted: Wanted, types: ResourceTypes, context: DecodeContext, find: FindSerialized
) -> Plan:
    """The plan for a target. Its outcome is a config or an error: no resource stays missing."""

    def answer(resource_type: ResourceType[T], name: str) -> Answer[T]:
        serialized, error = find(resource_type.type_url, name)
        if serialized is None:
            return Answer(error=error)
        decoded = resource_type.decode(serialized, context)
        if decoded.error:
            return Answer(error=Status(StatusCode.UNAVAILABLE, decoded.error))
        return Answer(decoded.resource, ambient_error=error)

    def learn(
        names: Iterable[str], answers: dict[str, Answer[T]], resource_type: ResourceType[T]
    ) -> None:
        for name in names:
            if name not in answers:
                answers[name] = answer(resource_type, name)

    known = Known(listener=answer(types.listener, wanted.listener_name))
    while (plan := resolve(wanted, known)).outcome is None:
        # Each turn answers what the last one asked for. The graph is finite, so the loop ends.
        learn(plan.route_configs, known.route_configs, types.route_config)
        learn(plan.clusters, known.clusters, types.cluster)
        learn(plan.endpoints, known.endpoints, types.endpoint)
        for host, port in plan.dns:
            known.dns[host, port] = Answer(EndpointResource(name=f"{host}:{port}"))
    return plan
