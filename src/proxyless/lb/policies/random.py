"""The `random` policy: sends each RPC to a random READY endpoint.

Specs: none; it is Envoy's policy of the same name. The load of many clients with few RPCs each is
spread more evenly than by round_robin.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final

from proxyless.base import ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.lb.api import Complete, Picker, PickInfo, PickResult, PolicyRegistry
from proxyless.lb.policies.per_endpoint import (
    EndpointChild,
    ExtendablePicker,
    PerEndpointPolicy,
)


@frozen
class RandomConfig:
    """Config without fields."""


class RandomPicker(ExtendablePicker[EndpointChild]):
    """Picks a random endpoint."""

    __slots__ = ("_randrange", "_results", "_size")

    def __init__(self, results: Iterable[Complete], randrange: Callable[[int], int]) -> None:
        # One for each endpoint.
        self._results: Final = list(results)
        self._size = len(self._results)
        self._randrange: Final = randrange

    def add(self, child: EndpointChild) -> None:
        self._results.append(child.result)
        self._size += 1

    def pick(self, info: PickInfo) -> PickResult:
        return self._results[self._randrange(self._size)]


class RandomPolicy(PerEndpointPolicy[EndpointChild]):
    """Distributes RPCs over the READY endpoints."""

    trace_name: ClassVar[str] = "random.state"

    __slots__ = ()

    def _make_picker(self) -> Picker:
        ready = self._endpoints.ready.values()
        return RandomPicker(ready, self._helper.context.random.randrange)


class RandomFactory:
    """Factory of random."""

    name: Final = "random"
    create = RandomPolicy

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> RandomConfig:
        return RandomConfig()
