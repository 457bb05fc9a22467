"""Which policy does a LoadBalancingConfig list ask for?

Specs: A24 (LoadBalancingConfig), A56.

The list names policies in order of preference; the first one that is registered wins. So a config
may name a policy that only newer clients know. What does not even look like an entry is an error,
wherever it stands.
"""

from collections.abc import Iterator, Mapping

from proxyless.base import ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.lb.api import PolicyFactory
from proxyless.lb.registry import PolicyRegistry


@frozen
class PolicyConfig:
    """A kind of policy and what it was configured with."""

    factory: PolicyFactory
    config: object

    @property
    def name(self) -> str:
        return self.factory.name


def parse_policy_list(
    json: object, errors: ValidationErrors, registry: PolicyRegistry
) -> PolicyConfig | None:
    """The chosen policy and its config, at the current path of errors. None adds an error.

    What it returns counts only if nothing was added to errors.
    """
    if not isinstance(json, list):
        errors.add(f"is {type_name(json)}, wanted a list of policies")
        return None
    errors_before = errors.count
    chosen: PolicyConfig | None = None
    tried: list[str] = []
    for index, name, config in _entries(json, errors):
        tried.append(name)
        factory = registry.find(name)
        if chosen is None and factory is not None:
            with errors.index(index), errors.field(name):
                chosen = PolicyConfig(factory, factory.parse_config(config, errors, registry))
    if chosen is None and errors.count == errors_before:
        errors.add(f"No known policies in list: {' '.join(tried)}".rstrip())
    return chosen


def parse_flag(json: Mapping[str, object], errors: ValidationErrors, *spellings: str) -> bool:
    """A boolean field, false if it is missing; either spelling is JSON of the same proto field."""
    result = False
    for spelling in spellings:
        flag = json.get(spelling, False)
        with errors.field(spelling):
            if not isinstance(flag, bool):
                errors.add(f"is {type_name(flag)}, wanted a boolean")
        result |= flag is True
    return result


def type_name(json: object) -> str:
    """What JSON calls the type of this value, for error texts."""
    match json:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"


def _entries(
    json: list[object], errors: ValidationErrors
) -> Iterator[tuple[int, str, Mapping[str, object]]]:
    """Index, name and config of each entry that has the right shape."""
    for index, entry in enumerate(json):
        with errors.index(index):
            if not isinstance(entry, dict):
                errors.add(f"is {type_name(entry)}, wanted an object")
                continue
            if len(entry) != 1:
                errors.add(f"has {len(entry)} keys, wanted one: the name of a policy")
                continue
            [(name, config)] = entry.items()
            if not isinstance(config, dict):
                with errors.field(name):
                    errors.add(f"is {type_name(config)}, wanted an object")
                continue
        yield index, name, config
