"""Explanation of an RPC from resources, without a control plane or a network.

Specs: A74 (what a target needs), A40 (what a process holds).

Resources go through the real parsers and the real dependency resolution. A missing resource does
not exist; each DNS name has an address. Resources that a process holds may also be missing because
the process rejected them or waits for them; then the reason is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from proxyless.base import OK, Status, StatusCode
from proxyless.base.explanation import Explanation
from proxyless.observe.explain import Rpc, explain
from proxyless.xds.view import (
    DEFAULT_TIMEOUT_S,
    ConfigError,
    XdsConfig,
    find_collection,
    resolve_offline,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.observe.csds import ResourceRow
    from proxyless.xds.view import ConfigTarget, DecodeContext, ResourceTypes

_NOT_THERE = Status(StatusCode.NOT_FOUND, "does not exist")
_NOT_HELD = Status(StatusCode.UNAVAILABLE, "is not held by the process")
# Texts for CSDS statuses without an error text.
_REASONS: Final = {
    "REQUESTED": "was requested and is not here yet",
    "DOES_NOT_EXIST": "does not exist",
    "NACKED": "was refused",
    "TIMEOUT": "was requested and did not come in time",
}


@dataclass(slots=True)
class OfflineMesh:
    """Resources by type and name, each decoded at its first use."""

    types: ResourceTypes
    context: DecodeContext
    _serialized: dict[tuple[str, str], bytes] = field(default_factory=dict)
    # Errors of a process by the same key, and the error of all other missing resources.
    _errors: dict[tuple[str, str], Status] = field(default_factory=dict)
    _absent: Status = _NOT_THERE

    def add(self, resources: Iterable[tuple[str, str, bytes]]) -> None:
        """Add resources: type URL, name and bytes."""
        self._serialized.update(((url, name), value) for url, name, value in resources)

    def add_held(self, rows: Iterable[ResourceRow]) -> None:
        """Add all resources that a process holds, from its CSDS."""
        self._absent = _NOT_HELD
        for row in rows:
            key = (row.type_url, row.name)
            if row.value:
                self._serialized[key] = row.value
            if row.error or not row.value:
                is_gone = row.status == "DOES_NOT_EXIST"
                code = StatusCode.NOT_FOUND if is_gone else StatusCode.UNAVAILABLE
                text = "its contents are left out" if row.is_left_out else f"is {row.status}"
                text = row.error or _REASONS.get(row.status, text)
                self._errors[key] = Status(code, text)

    def find(self, type_url: str, name: str) -> tuple[bytes | None, Status]:
        """The bytes of a resource, None if it is missing, and its error."""
        serialized = self._serialized.get((type_url, name))
        if type_url == self.types.collection.type_url:
            serialized = find_collection(type_url, name, self._serialized)
        no_error = OK if serialized is not None else self._absent
        return serialized, self._errors.get((type_url, name), no_error)


def explain_offline(
    target: ConfigTarget,
    mesh: OfflineMesh,
    rpc: Rpc,
    default_timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Explanation:
    outcome = resolve_offline(target, mesh.types, mesh.context, mesh.find).outcome
    if isinstance(outcome, XdsConfig):
        return explain(outcome, rpc, default_timeout_s)
    assert isinstance(outcome, ConfigError), "a plan without gaps has an outcome"
    problem = outcome.status.details
    facts = {"does_not_exist": outcome.does_not_exist}
    return Explanation("rpc", f"{rpc.path} fails: {problem}", facts, problem=problem)
