"""What would a client make of these resources, if a control plane served them and no others?

Specs: A74 (what a target needs). No network: resources go through the real parsers and the real
dependency resolution. What is asked for and not there does not exist, as a control plane that is
complete would say; names in DNS are taken to have some address.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from proxyless.base import Status, StatusCode
from proxyless.observe.explain import Rpc, explain
from proxyless.observe.explanation import Explanation
from proxyless.xds.config import XdsConfig
from proxyless.xds.config.dependencies import Answer, Known, Plan, Trouble, resolve
from proxyless.xds.resources import EndpointResource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.xds.client.api import DecodeContext, ResourceType
    from proxyless.xds.config.dependencies import Wanted
    from proxyless.xds.config.manager import ResourceTypes

T = TypeVar("T")

_NOT_THERE = Status(StatusCode.NOT_FOUND, "resource does not exist")


@dataclass(slots=True)
class OfflineMesh:
    """Resources by type and name, each decoded when it is asked for."""

    types: ResourceTypes
    context: DecodeContext
    _serialized: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def add(self, resources: Iterable[tuple[str, str, bytes]]) -> None:
        """Type URL, name and bytes of each."""
        self._serialized.update(((url, name), value) for url, name, value in resources)

    def find(self, resource_type: ResourceType[T], name: str) -> Answer[T]:
        """What a client of a control plane with this mesh would be told."""
        serialized = self._serialized.get((resource_type.type_url, name))
        if serialized is None:
            return Answer(error=_NOT_THERE)
        decoded = resource_type.decode(serialized, self.context)
        if decoded.error:
            return Answer(error=Status(StatusCode.UNAVAILABLE, f"refused: {decoded.error}"))
        return Answer(decoded.resource)


def resolve_offline(wanted: Wanted, mesh: OfflineMesh) -> Plan:
    """The plan for a target, its outcome a config or trouble: nothing stays missing."""
    known = Known(listener=mesh.find(mesh.types.listener, wanted.listener_name))
    while (plan := resolve(wanted, known)).outcome is None:
        # Each turn asks for what the last one found: the graph is finite, and so are the turns.
        _learn(plan.route_configs, known.route_configs, mesh.types.route_config, mesh)
        _learn(plan.clusters, known.clusters, mesh.types.cluster, mesh)
        _learn(plan.endpoints, known.endpoints, mesh.types.endpoint, mesh)
        for host, port in plan.dns:
            known.dns[host, port] = Answer(EndpointResource(name=f"{host}:{port}"))
    return plan


def _learn(
    names: Iterable[str],
    answers: dict[str, Answer[T]],
    resource_type: ResourceType[T],
    mesh: OfflineMesh,
) -> None:
    for name in names:
        if name not in answers:
            answers[name] = mesh.find(resource_type, name)


def explain_offline(wanted: Wanted, mesh: OfflineMesh, rpc: Rpc, **settings: Any) -> Explanation:  # noqa: ANN401 - those of `explain`
    """Why an RPC to this target would go where it goes, or what is in its way."""
    outcome = resolve_offline(wanted, mesh).outcome
    if isinstance(outcome, XdsConfig):
        return explain(outcome, rpc, **settings)
    assert isinstance(outcome, Trouble), "a plan without gaps has an outcome"
    problem = f"{outcome.context}: {outcome.status.details}"
    facts = {"does_not_exist": outcome.does_not_exist}
    return Explanation("rpc", f"{rpc.path} fails: {problem}", facts, problem=problem)
