"""The `least_request_experimental` policy: of a few random endpoints, picks the least loaded one.

Specs: A48, over endpoints as in A61; requirements LR-01 to LR-04.

The load of an endpoint is its number of RPCs in progress. Endpoint weights are ignored: "gRPC will
only support the "all weights equal" least request algorithm" - A48.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from proxyless.base import Endpoint, Status, ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import UINT32_MAX, JsonObject, integer
from proxyless.lb.api import (
    CallEnd,
    Complete,
    Helper,
    Picker,
    PickInfo,
    PickResult,
    PolicyRegistry,
    Update,
)
from proxyless.lb.policies.per_endpoint import (
    EndpointChild,
    EndpointList,
    ExtendablePicker,
    PerEndpointPolicy,
)

CHOICE_COUNT_MIN: Final = 2
CHOICE_COUNT_MAX: Final = 10

_CHOICE_COUNT: Final = integer(CHOICE_COUNT_MIN, UINT32_MAX)


@frozen
class LeastRequestConfig:
    """Parsed config."""

    # The number of endpoints that are compared for each RPC.
    choice_count: int = CHOICE_COUNT_MIN


class CountingEndpointChild(EndpointChild):
    """Endpoint that counts its RPCs in progress, as their tracker.

    RPCs on a draining connection count too: they are load on the same backend.
    """

    __slots__ = ("active_requests",)

    def __init__(self, endpoints: EndpointList[Any], endpoint: Endpoint) -> None:
        super().__init__(endpoints, endpoint)
        self.active_requests = 0

    def on_start(self) -> None:
        self.active_requests += 1

    def on_end(self, end: CallEnd) -> None:
        self.active_requests -= 1


class LeastRequestPicker(ExtendablePicker[CountingEndpointChild]):
    """Compares random endpoints. The choice is with replacement: one may be chosen twice."""

    __slots__ = ("_children", "_more_choices", "_random", "_results", "_size")

    def __init__(
        self,
        children: Sequence[CountingEndpointChild],
        choice_count: int,
        random: Callable[[], float],
    ) -> None:
        self._children: Final = list(children)
        self._results: Final = list(map(_make_result, children))
        self._size = len(self._children)
        self._more_choices: Final = range(choice_count - 1)
        self._random: Final = random

    def add(self, child: CountingEndpointChild) -> None:
        self._children.append(child)
        self._results.append(_make_result(child))
        self._size += 1

    def pick(self, info: PickInfo) -> PickResult:
        random, children, size = self._random, self._children, self._size
        chosen = int(random() * size)
        fewest = children[chosen].active_requests
        for _ in self._more_choices:
            sampled = int(random() * size)
            active_requests = children[sampled].active_requests
            if active_requests < fewest:
                chosen, fewest = sampled, active_requests
        return self._results[chosen]


def _make_result(child: CountingEndpointChild) -> Complete:
    result = child.result
    return Complete(result.subchannel, child, result.authority)


class LeastRequestPolicy(PerEndpointPolicy[CountingEndpointChild]):
    """Owns the counting children."""

    child_type = CountingEndpointChild
    trace_name: ClassVar[str] = "least_request.state"

    __slots__ = ("_config",)

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        # From the last update.
        self._config = LeastRequestConfig()

    def _apply(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, LeastRequestConfig), "the factory parsed the config"
        if config != self._config:
            self._config = config
            self._invalidate_picker()
        return super()._apply(update)

    def _endpoint_note(self, child: CountingEndpointChild) -> str:
        return f"{child.active_requests} requests in flight"

    def _make_picker(self) -> Picker:
        children = tuple(self._endpoints.ready)
        random = self._helper.context.random
        return LeastRequestPicker(children, self._config.choice_count, random.random)


class LeastRequestFactory:
    """Factory of least_request_experimental."""

    name: Final = "least_request_experimental"
    create = LeastRequestPolicy

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> LeastRequestConfig:
        count = JsonObject(json, errors).read_or("choiceCount", _CHOICE_COUNT, CHOICE_COUNT_MIN)
        # A48: a larger value is valid, and means the maximum.
        return LeastRequestConfig(min(count, CHOICE_COUNT_MAX))
