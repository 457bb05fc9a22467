"""Each RPC goes to any endpoint that is connected.

Specs: none; Envoy has this policy under the same name. Connections and reports are the business of
`petiole`. Many clients together, each with few RPCs, spread them more evenly than by turns.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from proxyless.base import ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.lb.api import Helper, Picker, PickInfo, PickResult, Policy, PolicyRegistry
from proxyless.lb.policies.per_endpoint import EndpointChild, EndpointList, PetiolePolicy


@frozen
class RandomConfig:
    """There is nothing to configure."""


class RandomPicker(Picker):
    """Asks any picker, all of them equally often in the long run."""

    __slots__ = ("_draw", "_pickers", "_size")

    def __init__(self, pickers: tuple[Picker, ...], draw: Callable[[int], int]) -> None:
        self._pickers: Final = pickers
        self._size: Final = len(pickers)
        self._draw: Final = draw

    def pick(self, info: PickInfo) -> PickResult:
        return self._pickers[self._draw(self._size)].pick(info)


class RandomPolicy(PetiolePolicy[EndpointChild]):
    """Lets chance choose among READY endpoints. Driven as every petiole policy is."""

    trace_name: ClassVar[str] = "random.state"

    __slots__ = ()

    def _make_list(self) -> EndpointList[EndpointChild]:
        return EndpointList(self._helper, EndpointChild, self._on_report)

    def _make_picker(self) -> Picker:
        pickers = tuple(self._endpoints.ready.values())
        return RandomPicker(pickers, self._helper.context.random.randrange)


class RandomFactory:
    """What the registry knows of random."""

    name: Final = "random"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> RandomConfig:
        return RandomConfig()

    def create(self, helper: Helper) -> Policy:
        return RandomPolicy(helper)
