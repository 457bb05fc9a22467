"""Of a few endpoints drawn at random, the one with the fewest RPCs under way takes the next.

Specs: A48 (least_request_experimental), over endpoints as in A61; requirements LR-01 to LR-04.

Connections and reports are the business of `petiole`. Here RPCs are counted, endpoint by endpoint,
and compared. Weights of endpoints are not considered: "gRPC will only support the "all weights
equal" least request algorithm" - A48.
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
    Policy,
    PolicyRegistry,
    Update,
)
from proxyless.lb.pickers import SubchannelPicker
from proxyless.lb.policies.per_endpoint import EndpointChild, EndpointList, PetiolePolicy

CHOICE_COUNT_MIN: Final = 2
CHOICE_COUNT_MAX: Final = 10

_CHOICE_COUNT: Final = integer(CHOICE_COUNT_MIN, UINT32_MAX)


# ---------------------------------------------------------------------------------------------
# Config


@frozen
class LeastRequestConfig:
    """How many endpoints are compared for each RPC."""

    choice_count: int = CHOICE_COUNT_MIN


def parse_config(json: Mapping[str, object], errors: ValidationErrors) -> LeastRequestConfig:
    count = JsonObject(json, errors).read_or("choiceCount", _CHOICE_COUNT, CHOICE_COUNT_MIN)
    # A48: more than the maximum is no error, and counts as the maximum.
    return LeastRequestConfig(min(count, CHOICE_COUNT_MAX))


# ---------------------------------------------------------------------------------------------
# Decision


class CountedChild(EndpointChild):
    """One endpoint, and how many RPCs it has to do: the tracker of all of them.

    The count is the endpoint's, not the connection's: RPCs that finish on a connection that takes
    no new ones are work for the same backend.
    """

    __slots__ = ("active_requests",)

    def __init__(self, endpoints: EndpointList[Any], endpoint: Endpoint) -> None:
        super().__init__(endpoints, endpoint)
        self.active_requests = 0

    def on_start(self) -> None:
        self.active_requests += 1

    def on_end(self, end: CallEnd) -> None:
        self.active_requests -= 1


class LeastRequestPicker(Picker):
    """Compares what it draws. Draws with replacement, so the same endpoint may come twice."""

    __slots__ = ("_children", "_draw", "_further_draws", "_results", "_size")

    def __init__(
        self, children: Sequence[CountedChild], choice_count: int, draw: Callable[[], float]
    ) -> None:
        self._children: Final = tuple(children)
        self._results: Final = tuple(map(_track, children))
        self._size: Final = len(self._children)
        self._further_draws: Final = range(choice_count - 1)
        self._draw: Final = draw

    def pick(self, info: PickInfo) -> PickResult:
        draw, children, size = self._draw, self._children, self._size
        chosen = int(draw() * size)
        fewest = children[chosen].active_requests
        for _ in self._further_draws:
            sampled = int(draw() * size)
            active_requests = children[sampled].active_requests
            if active_requests < fewest:
                chosen, fewest = sampled, active_requests
        return self._results[chosen]


def _track(child: CountedChild) -> Complete:
    """What a pick of this child gives."""
    picker = child.picker
    assert isinstance(picker, SubchannelPicker), "a pick_first that is READY has one subchannel"
    return Complete(picker.result.subchannel, child, picker.result.authority)


# ---------------------------------------------------------------------------------------------
# Policy


class LeastRequestPolicy(PetiolePolicy[CountedChild]):
    """Spreads RPCs by how many there are already. Driven as every petiole policy is."""

    trace_name: ClassVar[str] = "least_request.state"

    __slots__ = ("_config",)

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        # From the last update.
        self._config = LeastRequestConfig()

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, LeastRequestConfig), "the config is one of ours"
        if config != self._config:
            self._config = config
            self._renew_picker()
        return super().update(update)

    def _note_of(self, child: CountedChild) -> str:
        return f"{child.active_requests} requests in flight"

    def _make_list(self) -> EndpointList[CountedChild]:
        return EndpointList(self._helper, CountedChild, self._on_report)

    def _make_picker(self) -> Picker:
        children = tuple(self._endpoints.ready)
        random = self._helper.context.random
        return LeastRequestPicker(children, self._config.choice_count, random.random)


class LeastRequestFactory:
    """What the registry knows of least_request_experimental."""

    name: Final = "least_request_experimental"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> LeastRequestConfig:
        return parse_config(json, errors)

    def create(self, helper: Helper) -> Policy:
        return LeastRequestPolicy(helper)
