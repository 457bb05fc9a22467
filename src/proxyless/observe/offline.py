"""What would a client make of these resources, if a control plane served them and no others?

Specs: A74 (what a target needs), A40 (what a process holds). No network: resources go through the
real parsers and the real dependency resolution. What is asked for and not there does not exist, as
a control plane that is complete would say; names in DNS are taken to have some address. What a
running process holds is taken as it stands there: what it refused or waits for is not there, and
the reason is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import OK, Status, StatusCode
from proxyless.base.explanation import Explanation
from proxyless.observe.explain import Rpc, explain
from proxyless.xds import view
from proxyless.xds.view import Trouble, XdsConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.observe.csds import ResourceRow
    from proxyless.xds.view import DecodeContext, Plan, ResourceTypes, Wanted

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

    def find(self, type_url: str, name: str) -> tuple[bytes | None, Status]:
        """The bytes of a resource, None if it is not here, and its error."""
        serialized = self._serialized.get((type_url, name))
        no_error = OK if serialized is not None else self._absent
        return serialized, self._errors.get((type_url, name), no_error)


def resolve_offline(wanted: Wanted, mesh: OfflineMesh) -> Plan:
    """The plan for a target, its outcome a config or trouble: nothing stays missing."""
    return view.resolve_offline(wanted, mesh.types, mesh.context, mesh.find)


def explain_offline(wanted: Wanted, mesh: OfflineMesh, rpc: Rpc, **settings: Any) -> Explanation:  # noqa: ANN401 - those of `explain`
    """Why an RPC to this target would go where it goes, or what is in its way."""
    outcome = resolve_offline(wanted, mesh).outcome
    if isinstance(outcome, XdsConfig):
        return explain(outcome, rpc, **settings)
    assert isinstance(outcome, Trouble), "a plan without gaps has an outcome"
    problem = outcome.status.details
    facts = {"does_not_exist": outcome.does_not_exist}
    return Explanation("rpc", f"{rpc.path} fails: {problem}", facts, problem=problem)
