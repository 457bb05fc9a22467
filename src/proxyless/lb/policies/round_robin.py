"""Every endpoint that is connected takes its turn.

Specs: A61 and the gRPC "Load Balancing" document; requirements RR-01 to RR-07.

Connections and reports are the business of `petiole`; here is the picker that goes around.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from proxyless.base import ValidationErrors
from proxyless.lb.api import Helper, Picker, PickInfo, PickResult, Policy
from proxyless.lb.endpoint_list import EndpointChild, EndpointList
from proxyless.lb.petiole import PetiolePolicy
from proxyless.lb.registry import PolicyRegistry


@dataclass(frozen=True, slots=True)
class RoundRobinConfig:
    """There is nothing to configure."""


class RoundRobinPicker(Picker):
    """Asks one picker after the other."""

    __slots__ = ("_next", "_pickers", "_size")

    def __init__(self, pickers: tuple[Picker, ...], start: int) -> None:
        self._pickers: Final = pickers
        self._size: Final = len(pickers)
        # The cursor; the only thing that changes.
        self._next = start

    def pick(self, info: PickInfo) -> PickResult:
        index = self._next
        after = index + 1
        self._next = after if after < self._size else 0
        return self._pickers[index].pick(info)


class RoundRobin(PetiolePolicy[EndpointChild]):
    """Lets READY endpoints take turns. Driven as every petiole policy is."""

    trace_name: ClassVar[str] = "round_robin.state"

    __slots__ = ()

    def _make_list(self) -> EndpointList[EndpointChild]:
        return EndpointList(self._helper, EndpointChild, self._on_report)

    def _make_picker(self) -> Picker:
        pickers = tuple(self._endpoints.ready.values())
        return RoundRobinPicker(pickers, self._helper.context.random.randrange(len(pickers)))


class RoundRobinFactory:
    """What the registry knows of round_robin."""

    name: Final = "round_robin"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> RoundRobinConfig:
        return RoundRobinConfig()

    def create(self, helper: Helper) -> Policy:
        return RoundRobin(helper)
