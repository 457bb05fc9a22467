"""The `round_robin` policy: sends RPCs to the READY endpoints in turn.

Specs: A61 and the gRPC "Load Balancing" document; requirements RR-01 to RR-07.

An endpoint that becomes READY is added to the existing picker. A new picker for each of them would
make the total cost quadratic in the number of endpoints (ADR 0015).
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from proxyless.base import ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.lb.api import Complete, Picker, PickInfo, PickResult, PolicyRegistry
from proxyless.lb.policies.per_endpoint import (
    EndpointChild,
    ExtendablePicker,
    PerEndpointPolicy,
)
from proxyless.runtime import Random


@frozen
class RoundRobinConfig:
    """Config without fields."""


class RoundRobinPicker(ExtendablePicker[EndpointChild]):
    """Picks the endpoints in turn."""

    __slots__ = ("_next", "_random", "_results", "_size")

    def __init__(self, results: Iterable[Complete], random: Random) -> None:
        self._random: Final = random
        # One for each endpoint.
        self._results: Final = list(results)
        self._size = len(self._results)
        # Random, so that clients with the same endpoints do not all start with the same one.
        self._next = random.randrange(self._size)

    def add(self, child: EndpointChild) -> None:
        """Add a READY endpoint, and choose a new random start."""
        self._results.append(child.result)
        self._size += 1
        self._next = self._random.randrange(self._size)

    def pick(self, info: PickInfo) -> PickResult:
        index = self._next
        after = index + 1
        self._next = after if after < self._size else 0
        return self._results[index]


class RoundRobinPolicy(PerEndpointPolicy[EndpointChild]):
    """Distributes RPCs over the READY endpoints."""

    trace_name: ClassVar[str] = "round_robin.state"

    __slots__ = ()

    def _make_picker(self) -> Picker:
        ready = self._endpoints.ready.values()
        return RoundRobinPicker(ready, self._helper.context.random)


class RoundRobinFactory:
    """Factory of round_robin."""

    name: Final = "round_robin"
    create = RoundRobinPolicy

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> RoundRobinConfig:
        return RoundRobinConfig()
