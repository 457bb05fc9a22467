"""Config of the `priority_experimental` policy.

Specs: A56, A75-08 (priorities inside a child).
"""

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Final

from proxyless.base import ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import BOOLEAN, TEXT, UINT32_MAX, JsonObject, integer
from proxyless.lb.api import PolicyRegistry
from proxyless.lb.config import PolicyConfig, parse_child_policy

_INNER_PRIORITIES: Final = integer(1, UINT32_MAX)


@frozen
class PriorityChildConfig:
    """Parsed config of one child."""

    policy: PolicyConfig
    ignore_reresolution_requests: bool = False
    # The number of priorities inside the child, each with a failover timeout (A75-08).
    inner_priorities: int = 1


@frozen
class PriorityConfig:
    """Parsed config."""

    children: Mapping[str, PriorityChildConfig] = field(default_factory=dict)
    # Names of children, the highest priority first.
    priorities: tuple[str, ...] = ()


def parse_config(
    json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
) -> PriorityConfig:
    fields = JsonObject(json, errors)
    children: dict[str, PriorityChildConfig] = {}
    for name, child_fields in fields.entries("children"):
        child = _parse_child(child_fields, registry)
        if child is not None:
            children[name] = child
    named = fields.get("children")
    priorities = _parse_priorities(fields, named if isinstance(named, Mapping) else ())
    return PriorityConfig(children, priorities)


def _parse_child(fields: JsonObject, registry: PolicyRegistry) -> PriorityChildConfig | None:
    ignores_requests = fields.read_or("ignoreReresolutionRequests", BOOLEAN, default=False)
    inner_priorities = fields.read_or("innerPriorities", _INNER_PRIORITIES, 1)
    policy = parse_child_policy(fields, registry, "config")
    if policy is None:
        return None
    return PriorityChildConfig(policy, ignores_requests, inner_priorities)


def _parse_priorities(fields: JsonObject, children: Collection[str]) -> tuple[str, ...]:
    """Parse the list of names, which must be those of children (A56)."""
    names: list[str] = []
    for name in fields.elements("priorities", TEXT):
        if name not in children:
            fields.errors.add(f"is {name!r}, wanted the name of one of the children")
        names.append(name)
    return tuple(names)
