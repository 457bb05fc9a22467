"""How is the config of a policy with one child read?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.lb.config import PolicyConfig, parse_policy_list, type_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import ValidationErrors
    from proxyless.lb import PolicyRegistry


def parse_child_policy(
    json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
) -> PolicyConfig | None:
    """The field `childPolicy`, which must be there."""
    with errors.field("childPolicy"):
        if "childPolicy" not in json:
            errors.add("is missing, wanted a list of policies")
            return None
        return parse_policy_list(json["childPolicy"], errors, registry)


def parse_cluster_name(
    json: Mapping[str, object], errors: ValidationErrors, field: str = "cluster"
) -> str:
    """The field with the name of a cluster, which must not be empty."""
    name = json.get(field, "")
    with errors.field(field):
        if not isinstance(name, str):
            errors.add(f"is {type_name(name)}, wanted a string")
            return ""
        if not name:
            errors.add("is empty, wanted the name of a cluster")
    return name
