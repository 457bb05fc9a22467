"""Every endpoint that is connected takes its turn.

Specs: A61 and the gRPC "Load Balancing" document; requirements RR-01 to RR-07.

Connections and reports are the business of `petiole`; here is the picker that goes around. While
endpoints become READY one after the other it grows: with a new one for each, thousands of endpoints
would cost the square of their number (ADR 0015).
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from proxyless.base import ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.lb.api import Helper, Picker, PickInfo, PickResult, Policy, PolicyRegistry
from proxyless.lb.policies.per_endpoint import EndpointChild, EndpointList, PetiolePolicy
from proxyless.runtime import Random


@frozen
class RoundRobinConfig:
    """There is nothing to configure."""


class RoundRobinPicker(Picker):
    """Asks one picker after the other."""

    __slots__ = ("_next", "_pickers", "_random", "_size")

    def __init__(self, pickers: Iterable[Picker], random: Random) -> None:
        self._random: Final = random
        # These two only grow.
        self._pickers: Final = list(pickers)
        self._size = len(self._pickers)
        # The cursor. Clients that see the same endpoints do not all begin with the same one.
        self._next = random.randrange(self._size)

    def add(self, picker: Picker) -> None:
        """From now on this one takes turns, too; which one begins is drawn anew."""
        self._pickers.append(picker)
        self._size += 1
        self._next = self._random.randrange(self._size)

    def pick(self, info: PickInfo) -> PickResult:
        index = self._next
        after = index + 1
        self._next = after if after < self._size else 0
        return self._pickers[index].pick(info)


class RoundRobinPolicy(PetiolePolicy[EndpointChild]):
    """Lets READY endpoints take turns. Driven as every petiole policy is."""

    trace_name: ClassVar[str] = "round_robin.state"

    __slots__ = ("_picker",)

    def _make_list(self) -> EndpointList[EndpointChild]:
        return EndpointList(self._helper, EndpointChild, self._on_report)

    def _make_picker(self) -> Picker:
        ready = self._endpoints.ready.values()
        self._picker = RoundRobinPicker(ready, self._helper.context.random)
        return self._picker

    def _extend_picker(self, child: EndpointChild) -> Picker:
        self._picker.add(child.picker)
        return self._picker


class RoundRobinFactory:
    """What the registry knows of round_robin."""

    name: Final = "round_robin"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> RoundRobinConfig:
        return RoundRobinConfig()

    def create(self, helper: Helper) -> Policy:
        return RoundRobinPolicy(helper)
