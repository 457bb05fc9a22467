"""The `proxyless.peak_ewma` policy: of two random endpoints, picks the one with the lower cost.

Specs: none; requirements PE-01 to PE-09. Connectivity is managed as in A61.

The latency of an RPC is the time from its start to its response headers, so that the duration of a
stream does not count. Each RPC has a tracker of its own, which holds the time of its start.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from proxyless.base import Endpoint, Status, StatusCode, ValidationErrors
from proxyless.lb.api import (
    CallEnd,
    Complete,
    HeadTracker,
    Helper,
    Picker,
    PickInfo,
    PickResult,
    PolicyRegistry,
    Update,
)
from proxyless.lb.policies.peak_ewma.config import NAME, PeakEwmaConfig, parse_peak_ewma
from proxyless.lb.policies.peak_ewma.endpoint_load import EndpointLoad
from proxyless.lb.policies.per_endpoint import (
    EndpointChild,
    EndpointList,
    ExtendablePicker,
    PerEndpointPolicy,
)

# The client ended the RPC, so its time is not that of an answer, and its backend has not failed.
CLIENT_ENDS: Final = frozenset({StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED})
# Statuses of a backend that does not work, or has too much work. Others are answers.
FAILURES: Final = frozenset(
    {
        StatusCode.UNKNOWN,
        StatusCode.RESOURCE_EXHAUSTED,
        StatusCode.INTERNAL,
        StatusCode.UNAVAILABLE,
        StatusCode.DATA_LOSS,
    }
)

# Lower failure rates are not described: they are rounded to 0 %.
DESCRIBED_FAILURE_RATE_MIN: Final = 0.005


class MeasuredEndpointChild(EndpointChild):
    """Endpoint and its load, which is kept when the endpoint reconnects."""

    __slots__ = ("load",)

    def __init__(self, endpoints: EndpointList[Any], endpoint: Endpoint) -> None:
        super().__init__(endpoints, endpoint)
        self.load: Final = EndpointLoad()


class RpcTimer(HeadTracker):
    """Tracker of one RPC: adds its latency and its result to the load of its endpoint."""

    __slots__ = ("_config", "_has_answer", "_load", "_now_s", "_started_s")

    def __init__(
        self, load: EndpointLoad, config: PeakEwmaConfig, now_s: Callable[[], float]
    ) -> None:
        self._load: Final = load
        self._config: Final = config
        self._now_s: Final = now_s
        self._started_s = 0.0
        self._has_answer = False

    def on_start(self) -> None:
        self._started_s = self._now_s()
        self._load.on_start(self._started_s)

    def on_head(self) -> None:
        self._has_answer = True
        now_s = self._now_s()
        self._load.add_latency(now_s - self._started_s, now_s, self._config)

    def on_end(self, end: CallEnd) -> None:
        load, config, now_s, code = self._load, self._config, self._now_s(), end.status.code
        load.on_end()
        if code not in CLIENT_ENDS:
            if not self._has_answer:
                load.add_latency(now_s - self._started_s, now_s, config)
            load.add_result(now_s, config, is_failure=code in FAILURES)
        elif not self._has_answer:
            load.add_wait(now_s - self._started_s, now_s, config)


class PeakEwmaPicker(ExtendablePicker[MeasuredEndpointChild]):
    """Compares two different random endpoints; the first one is picked if their costs are equal."""

    __slots__ = ("_config", "_loads", "_now_s", "_random", "_results", "_size")

    def __init__(
        self,
        children: Sequence[MeasuredEndpointChild],
        config: PeakEwmaConfig,
        now_s: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        # The load of each child, and a result with its subchannel and authority.
        self._loads: Final = [child.load for child in children]
        self._results: Final = [child.result for child in children]
        self._size = len(self._loads)
        self._config: Final = config
        self._now_s: Final = now_s
        self._random: Final = random

    def add(self, child: MeasuredEndpointChild) -> None:
        self._loads.append(child.load)
        self._results.append(child.result)
        self._size += 1

    def pick(self, info: PickInfo) -> PickResult:
        random, loads, others = self._random, self._loads, self._size - 1
        config, now_s = self._config, self._now_s
        chosen = 0
        if others:
            chosen, second = int(random() * (others + 1)), int(random() * others)
            if second >= chosen:
                second += 1
            time_s = now_s()
            if loads[second].cost(time_s, config) < loads[chosen].cost(time_s, config):
                chosen = second
        result = self._results[chosen]
        timer = RpcTimer(loads[chosen], config, now_s)
        return Complete(result.subchannel, timer, result.authority)


class PeakEwmaPolicy(PerEndpointPolicy[MeasuredEndpointChild]):
    """Owns the measured children."""

    child_type = MeasuredEndpointChild
    trace_name: ClassVar[str] = "peak_ewma.state"

    __slots__ = ("_config",)

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        # From the last update.
        self._config = PeakEwmaConfig()

    def _apply(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, PeakEwmaConfig), "the factory parsed the config"
        if config != self._config:
            self._config = config
            self._invalidate_picker()
        return super()._apply(update)

    def _endpoint_note(self, child: MeasuredEndpointChild) -> str:
        load = child.load
        latency = f"latency {load.latency_s * 1e3:.3g} ms" if load.is_measured else "not measured"
        has_failures = load.failure_rate >= DESCRIBED_FAILURE_RATE_MIN
        failures = f", {load.failure_rate:.0%} failed" if has_failures else ""
        return f"{latency}{failures}, {load.rpcs} requests in flight"

    def _make_picker(self) -> Picker:
        context = self._helper.context
        children = tuple(self._endpoints.ready)
        now_s, random = context.clock.measured_s, context.random.random
        return PeakEwmaPicker(children, self._config, now_s, random)


class PeakEwmaFactory:
    """Factory of proxyless.peak_ewma."""

    name: Final = NAME
    create = PeakEwmaPolicy

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> PeakEwmaConfig:
        return parse_peak_ewma(json, errors)
