"""The `random` policy: sends each RPC to a random READY endpoint.

Specs: none; it is Envoy's policy of the same name. The load of many clients with few RPCs each is
spread more evenly than by round_robin.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final

from proxyless.base import ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.lb.api import Picker, PickInfo, PickResult, PolicyRegistry
from proxyless.lb.policies.per_endpoint import (
    EndpointChild,
    ExtendablePicker,
    PerEndpointPolicy,
)


@frozen
class RandomConfig:
    """Config without fields."""


class RandomPicker(ExtendablePicker[EndpointChild]):
    """Picks with a random child picker."""

    __slots__ = ("_pickers", "_randrange", "_size")

    def __init__(self, pickers: Iterable[Picker], randrange: Callable[[int], int]) -> None:
        self._pickers: Final = list(pickers)
        self._size = len(self._pickers)
        self._randrange: Final = randrange

    def add(self, child: EndpointChild) -> None:
        self._pickers.append(child.picker)
        self._size += 1

    def pick(self, info: PickInfo) -> PickResult:
        return self._pickers[self._randrange(self._size)].pick(info)


class RandomPolicy(PerEndpointPolicy[EndpointChild]):
    """Distributes RPCs over the READY endpoints."""

    trace_name: ClassVar[str] = "random.state"

    __slots__ = ()

    def _make_picker(self) -> Picker:
        pickers = self._endpoints.ready.values()
        return RandomPicker(pickers, self._helper.context.random.randrange)


class RandomFactory:
    """Factory of random."""

    name: Final = "random"
    create = RandomPolicy

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> RandomConfig:
        return RandomConfig()
