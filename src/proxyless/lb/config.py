"""Parser of LoadBalancingConfig lists.

Specs: A24 (LoadBalancingConfig), A56.

The list names policies in order of preference, and the first registered one is used, so a config
may name a policy that older clients do not support. An entry that is not an object with one key is
an error even if it comes after the chosen one.
"""

from proxyless.base import ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import JsonObject, type_name
from proxyless.lb.api import PolicyFactory, PolicyRegistry


@frozen
class PolicyConfig:
    """Factory of a policy, and its parsed config."""

    factory: PolicyFactory
    config: object

    @property
    def name(self) -> str:
        return self.factory.name


def parse_policy_list(
    json: object, errors: ValidationErrors, registry: PolicyRegistry
) -> PolicyConfig | None:
    """Return the chosen policy; None after adding an error at the current path of `errors`.

    The result must be used only if nothing was added to `errors`.
    """
    if not isinstance(json, list):
        errors.add(f"is {type_name(json)}, wanted a list of policies")
        return None
    errors_before = errors.count
    chosen: PolicyConfig | None = None
    tried: list[str] = []
    for index, entry in enumerate(json):
        if not isinstance(entry, dict) or len(entry) != 1:
            _reject(entry, index, errors)
            continue
        [(name, config)] = entry.items()
        if not isinstance(config, dict):
            with errors.index(index), errors.field(name):
                errors.add(f"is {type_name(config)}, wanted an object")
            continue
        tried.append(name)
        factory = registry.find(name)
        if chosen is None and factory is not None:
            with errors.index(index), errors.field(name):
                chosen = PolicyConfig(factory, factory.parse_config(config, errors, registry))
    if chosen is None and errors.count == errors_before:
        errors.add(f"No known policies in list: {' '.join(tried)}".rstrip())
    return chosen


def parse_child_policy(
    fields: JsonObject, registry: PolicyRegistry, name: str = "childPolicy"
) -> PolicyConfig | None:
    """Parse a required field that holds a list of policies."""
    listed = fields.get(name)
    if listed is None:
        fields.add(name, "is missing, wanted a list of policies")
        return None
    with fields.errors.field(name):
        return parse_policy_list(listed, fields.errors, registry)


def _reject(entry: object, index: int, errors: ValidationErrors) -> None:
    with errors.index(index):
        if isinstance(entry, dict):
            errors.add(f"has {len(entry)} keys, wanted one: the name of a policy")
        else:
            errors.add(f"is {type_name(entry)}, wanted an object")
