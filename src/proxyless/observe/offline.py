"""What would a client make of these resources, if a control plane served them and no others?

Specs: A74 (what a target needs), A40 (what a process holds). No network: resources go through the
real parsers and the real dependency resolution. What is asked for and not there does not exist, as
a control plane that is complete would say; names in DNS are taken to have some address. What a
running process holds is taken as it stands there: what it refused or waits for is not there, and
the reason is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from proxyless.base import OK, Status, StatusCode
from proxyless.base.explanation import Explanation
from proxyless.observe.explain import Rpc, explain
from proxyless.xds.config import XdsConfig
from proxyless.xds.config.dependencies import Answer, Known, Plan, Trouble, resolve
from proxyless.xds.resources import EndpointResource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.observe.csds import ResourceRow
    from proxyless.xds.client.api import DecodeContext, ResourceType
    from proxyless.xds.config.dependencies import Wanted
    from proxyless.xds.config.manager import ResourceTypes

T = TypeVar("T")

_NOT_THERE = Status(StatusCode.NOT_FOUND, "does not exist")
_NOT_HELD = Status(StatusCode.UNAVAILABLE, "is not held by the process")
# What CSDS says of a resource without an error text.
_REASONS: Final = {
    "REQUESTED": "was requested and is not here yet",
    "DOES_NOT_EXIST": "does not exist",
    "NACKED": "was refused",
    "TIMEOUT": "was requested and did not come in time",
}


@dataclass(slots=True)
class OfflineMesh:
    """Resources by type and name, each decoded when it is asked for."""

    types: ResourceTypes
    context: DecodeContext
    _serialized: dict[tuple[str, str], bytes] = field(default_factory=dict)
    # What a process says is wrong, by the same key; and what holds for what it does not mention.
    _errors: dict[tuple[str, str], Status] = field(default_factory=dict)
    _absent: Status = _NOT_THERE

    def add(self, resources: Iterable[tuple[str, str, bytes]]) -> None:
        """Type URL, name and bytes of each."""
        self._serialized.update(((url, name), value) for url, name, value in resources)

    def add_held(self, rows: Iterable[ResourceRow]) -> None:
        """What a process holds, by its CSDS: these and no others."""
        self._absent = _NOT_HELD
        for row in rows:
            key = (row.type_url, row.name)
            if row.value:
                self._serialized[key] = row.value
            if row.error or not row.value:
                is_gone = row.status == "DOES_NOT_EXIST"
                code = StatusCode.NOT_FOUND if is_gone else StatusCode.UNAVAILABLE
                text = row.error or _REASONS.get(row.status, f"is {row.status}")
                self._errors[key] = Status(code, text)

    def find(self, resource_type: ResourceType[T], name: str) -> Answer[T]:
        """What a client of a control plane with this mesh would be told."""
        key = (resource_type.type_url, name)
        serialized, error = self._serialized.get(key), self._errors.get(key)
        if serialized is None:
            return Answer(error=error or self._absent)
        decoded = resource_type.decode(serialized, self.context)
        if decoded.error:
            return Answer(error=Status(StatusCode.UNAVAILABLE, decoded.error))
        return Answer(decoded.resource, ambient_error=error or OK)


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
    problem = outcome.status.details
    facts = {"does_not_exist": outcome.does_not_exist}
    return Explanation("rpc", f"{rpc.path} fails: {problem}", facts, problem=problem)
