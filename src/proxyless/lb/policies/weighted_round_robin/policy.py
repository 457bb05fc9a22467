"""The `weighted_round_robin` policy: sends RPCs in proportion to weights from load reports.

Specs: A58, A114 (which metrics count), A100 (slow start), over endpoints as in A61; requirements
WRR-01 to WRR-14.

Theory of operation
    Backends report their load (`orca`) at the end of each RPC or, if configured, out of band. A
    report only changes the weight of its endpoint. A timer passes the current weights to the
    scheduler (`stride`) of the picker. No new picker is reported, so that parents need not build
    new ones either.

    A weight is not used for a while after the first report (blackout), nor when the last report is
    too old (expiration). An endpoint without a usable weight gets the mean of the others. With slow
    start, the weight that an endpoint has by these rules grows during a window after it became
    READY.

No environment variable guards this policy, or the additions of A114 and A100.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import ClassVar, Final, TypeVar

from proxyless.base import Address, Attributes, Endpoint, State, Status, ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import BOOLEAN, DURATION, FieldKind, JsonObject, to_number
from proxyless.lb.api import (
    CallEnd,
    Cancel,
    Complete,
    Helper,
    Picker,
    PickInfo,
    PickResult,
    PolicyRegistry,
    Subchannel,
    Update,
)
from proxyless.lb.attributes import BACKEND_SERVICE, LOCALITY_LABEL
from proxyless.lb.forwarding import ForwardingSubchannel
from proxyless.lb.orca import LoadReport, find_load_report
from proxyless.lb.pickers import SubchannelPicker
from proxyless.lb.policies.per_endpoint import EndpointChild, EndpointList, PerEndpointPolicy
from proxyless.lb.policies.weighted_round_robin.slow_start import (
    SlowStartConfig,
    choose_scale,
    parse_slow_start,
    scale_weights,
)
from proxyless.lb.policies.weighted_round_robin.stride import StrideScheduler
from proxyless.metrics import Metrics
from proxyless.metrics.instruments import (
    WRR_FALLBACK,
    WRR_NOT_YET_USABLE,
    WRR_SLOW_START,
    WRR_STALE,
    WRR_WEIGHTS,
)
from proxyless.runtime import IDLE_TIMER

T = TypeVar("T")

# "Values less than 100ms are capped at 100ms" - A58
WEIGHT_UPDATE_PERIOD_MIN_S: Final = 0.1
# Larger numbers are infinite as a google.protobuf.FloatValue.
_FLOAT_LIMIT: Final = 2.0**128
# "If there are less than two subchannels with load info" all take equal turns - A58
SCHEDULED_MIN: Final = 2
# Size of the random start of a scheduler, which differs between clients.
_START_BITS: Final = 32


@frozen(kw_only=True)
class WeightedRoundRobinConfig:
    """Parsed config."""

    enable_oob_load_report: bool = False
    oob_reporting_period_s: float = 10.0
    blackout_period_s: float = 10.0
    weight_expiration_period_s: float = 180.0
    weight_update_period_s: float = 1.0
    error_utilization_penalty: float = 1.0
    # As configs name them (A114).
    metric_names_for_computing_utilization: tuple[str, ...] = ()
    # None: new endpoints have their whole weight at once.
    slow_start: SlowStartConfig | None = None

    @property
    def out_of_band_period_s(self) -> float | None:
        """Reporting period; None if reports come with RPCs."""
        return self.oob_reporting_period_s if self.enable_oob_load_report else None


def _to_penalty(value: object) -> float | None:
    number = to_number(value)
    return number if number is not None and 0 <= number < _FLOAT_LIMIT else None


def _to_names(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return None
    return tuple(value)


# "Configuration is rejected if this value is negative" - A58
_PENALTY: Final = FieldKind(_to_penalty, "a number of 0 or more")
_NAMES: Final = FieldKind(_to_names, "a list of strings")


def compute_weight(report: LoadReport, config: WeightedRoundRobinConfig) -> float:
    """Compute the weight from RPCs per second and utilization; 0 if one is missing.

    The numbers come from the backend, so they may be negative, infinite or NaN.
    """
    qps, utilization = report.qps, _choose_utilization(report, config)
    if not (qps > 0 and utilization > 0):
        return 0.0
    if report.eps > 0:
        utilization += report.eps / qps * config.error_utilization_penalty
    weight = qps / utilization
    return weight if 0 < weight < inf else 0.0


def _choose_utilization(report: LoadReport, config: WeightedRoundRobinConfig) -> float:
    named = [report.metric(name) for name in config.metric_names_for_computing_utilization]
    # Values that are not above 0, NaN included, are ignored (A114).
    if usable := [value for value in named if value > 0]:
        return max(usable)
    application = report.application_utilization
    return application if application > 0 else report.cpu_utilization


class EndpointWeight:
    """Weight of one endpoint, with the times that decide whether it is usable."""

    __slots__ = ("_last_updated_s", "_non_empty_since_s", "_ready_since_s", "_weight")

    def __init__(self) -> None:
        # "`ready_since` … when an endpoint transitioned to ready state" - A100
        self._ready_since_s = -inf
        # From the last report with a weight.
        self._weight = 0.0
        self._last_updated_s = -inf
        # The time of the first report since the last expiration or reconnect; infinity if none.
        self._non_empty_since_s = inf

    def on_report(self, weight: float, now_s: float) -> None:
        """Set the weight; 0 is ignored."""
        if not weight:
            return
        if self._non_empty_since_s == inf:
            self._non_empty_since_s = now_s
        self._last_updated_s = now_s
        self._weight = weight

    def on_ready(self, now_s: float) -> None:
        """Start blackout and slow start again, because there is a new connection."""
        self._non_empty_since_s = inf
        self._ready_since_s = now_s

    def find_scale(self, config: SlowStartConfig, now_s: float) -> float:
        """The part of the weight that slow start allows."""
        return choose_scale(config, now_s - self._ready_since_s)

    def describe(self, config: WeightedRoundRobinConfig, now_s: float) -> str:
        """Return the weight, or why it is not used. Unlike `find_usable` this changes nothing."""
        if self._last_updated_s == -inf:
            return "no weight reported"
        if now_s - self._last_updated_s >= config.weight_expiration_period_s:
            return f"weight {self._weight:.4g} is too old"
        remaining_s = config.blackout_period_s - (now_s - self._non_empty_since_s)
        if config.blackout_period_s > 0 and remaining_s > 0:
            return f"weight {self._weight:.4g} is too new"
        return f"weight {self._weight:.4g}"

    def is_stale(self, config: WeightedRoundRobinConfig, now_s: float) -> bool:
        """Whether the last report is too old. False if there was none."""
        age_s = now_s - self._last_updated_s
        return config.weight_expiration_period_s <= age_s < inf

    def find_usable(self, config: WeightedRoundRobinConfig, now_s: float) -> float:
        """Return the usable weight; 0 if there is none."""
        if now_s - self._last_updated_s >= config.weight_expiration_period_s:
            # "if we later start seeing fresh reports again, the blackout_period applies" - A58
            self._non_empty_since_s = inf
            return 0.0
        blackout_s = config.blackout_period_s
        if blackout_s > 0 and now_s - self._non_empty_since_s < blackout_s:
            return 0.0
        return self._weight


class WeightedRoundRobinPicker(Picker):
    """Picks the endpoint that the scheduler chooses. The policy updates the scheduler's weights."""

    __slots__ = ("_next_index", "_results")

    def __init__(self, results: Sequence[Complete], scheduler: StrideScheduler) -> None:
        self._results: Final = tuple(results)
        self._next_index: Final = scheduler.next_index

    def pick(self, info: PickInfo) -> PickResult:
        return self._results[self._next_index()]


class WeightedEndpointChild(EndpointChild):
    """One endpoint and its weight. Tracker of its RPCs, whose ends have load reports."""

    __slots__ = ("_subchannels", "weight")

    _list: "WeightedEndpointList"

    def __init__(self, endpoints: "WeightedEndpointList", endpoint: Endpoint) -> None:
        super().__init__(endpoints, endpoint)
        self.weight: Final = EndpointWeight()
        # Subchannels that are not released.
        self._subchannels: dict[LoadReportingSubchannel, None] = {}

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        subchannel = LoadReportingSubchannel(super().create_subchannel(address, attributes), self)
        self._subchannels[subchannel] = None
        subchannel.watch_load(self._list.config.out_of_band_period_s)
        return subchannel

    def on_release(self, subchannel: "LoadReportingSubchannel") -> None:
        del self._subchannels[subchannel]

    def watch_load(self, period_s: float | None) -> None:
        """Replace the watches of out-of-band reports; None ends them."""
        for subchannel in self._subchannels:
            subchannel.watch_load(period_s)

    def on_start(self) -> None:
        return

    def on_end(self, end: CallEnd) -> None:
        # "While `enable_oob_load_report` is set, per-call load reports are never parsed" - A58
        if not self._list.config.enable_oob_load_report:
            report = find_load_report(end.trailing_metadata)
            if report is not None:
                self.on_load_report(report)

    def on_load_report(self, report: LoadReport) -> None:
        now_s = self.context.clock.now_s()
        self.weight.on_report(compute_weight(report, self._list.config), now_s)

    def make_result(self) -> Complete:
        result = self.result
        subchannel = result.subchannel
        assert isinstance(subchannel, LoadReportingSubchannel), "`create_subchannel` made it"
        return subchannel.to_parent_result(result)


class LoadReportingSubchannel(ForwardingSubchannel):
    """Subchannel of an endpoint, with the watch of its out-of-band reports."""

    __slots__ = ("_child", "_stop_watch")

    def __init__(self, inner: Subchannel, child: WeightedEndpointChild) -> None:
        super().__init__(inner, child)
        self._child = child
        self._stop_watch: Cancel | None = None

    def watch_load(self, period_s: float | None) -> None:
        """Replace the watch of out-of-band reports; None ends it."""
        if self._stop_watch is not None:
            self._stop_watch()
            self._stop_watch = None
        if period_s is not None:
            self._stop_watch = self.inner.watch_load_reports(period_s, self._child.on_load_report)

    def release(self) -> None:
        self._child.on_release(self)
        super().release()


class WeightedEndpointList(EndpointList[WeightedEndpointChild]):
    """Endpoints and config of one policy."""

    def __init__(
        self, helper: Helper, on_report: Callable[[WeightedEndpointChild, State], None]
    ) -> None:
        super().__init__(helper, WeightedEndpointChild, on_report)
        # From the last update.
        self.config = WeightedRoundRobinConfig()

    def set_config(self, config: WeightedRoundRobinConfig) -> None:
        before, self.config = self.config, config
        period_s = config.out_of_band_period_s
        if period_s != before.out_of_band_period_s:
            for child in (*self.children, *self.retained):
                child.watch_load(period_s)


class WeightedRoundRobinPolicy(PerEndpointPolicy[WeightedEndpointChild]):
    """Owns the timer that updates the weights."""

    trace_name: ClassVar[str] = "weighted_round_robin.state"
    delay_per_endpoint_s: ClassVar[float] = 20e-6

    __slots__ = ("_labels", "_weight_timer")

    _endpoints: WeightedEndpointList

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        # From the last update: metric labels of locality and backend service.
        self._labels = ("", "")
        # Pending while the last reported picker has several endpoints.
        self._weight_timer = IDLE_TIMER

    def _apply(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, WeightedRoundRobinConfig), "the factory parsed the config"
        if config != self._endpoints.config:
            self._endpoints.set_config(config)
            # "Changes to the rest of parameters take effective with a new picker" - A58
            self._invalidate_picker()
        attributes = update.attributes
        self._labels = (
            attributes.get(LOCALITY_LABEL) or "",
            attributes.get(BACKEND_SERVICE) or "",
        )
        return super()._apply(update)

    def close(self) -> None:
        self._weight_timer.cancel()
        super().close()

    def _endpoint_note(self, child: WeightedEndpointChild) -> str:
        return child.weight.describe(self._endpoints.config, self._helper.context.clock.now_s())

    def _make_list(self) -> WeightedEndpointList:
        return WeightedEndpointList(self._helper, self._on_report)

    def _on_report(self, child: WeightedEndpointChild, before: State) -> None:
        # A repeated report of READY is about the same connection.
        if child.state is State.READY and before is not State.READY:
            child.weight.on_ready(self._helper.context.clock.now_s())
        super()._on_report(child, before)

    def _report(self, state: State, picker: Picker) -> None:
        if state is not State.READY:
            self._weight_timer.cancel()
        super()._report(state, picker)

    def _make_picker(self) -> Picker:
        self._weight_timer.cancel()
        children = tuple(self._endpoints.ready)
        results = tuple(child.make_result() for child in children)
        weights = self._find_weights(children)
        if len(results) == 1:
            return SubchannelPicker(results[0])
        start = self._helper.context.random.getrandbits(_START_BITS)
        scheduler = StrideScheduler(weights, start)
        self._start_weight_timer(children, scheduler)
        return WeightedRoundRobinPicker(results, scheduler)

    def _find_weights(self, children: Sequence[WeightedEndpointChild]) -> list[float]:
        config, now_s = self._endpoints.config, self._helper.context.clock.now_s()
        weights = [child.weight.find_usable(config, now_s) for child in children]
        metrics = self._helper.context.metrics
        if metrics.active:
            unusable = [
                child for child, weight in zip(children, weights, strict=True) if not weight
            ]
            stale = sum(child.weight.is_stale(config, now_s) for child in unusable)
            record_weights(metrics, self._labels, weights, stale)
        if config.slow_start is None:
            return weights
        return self._start_slowly(config.slow_start, children, weights)

    def _start_slowly(
        self,
        config: SlowStartConfig,
        children: Sequence[WeightedEndpointChild],
        weights: list[float],
    ) -> list[float]:
        """Scale the weights of endpoints in the slow start window (A100)."""
        context = self._helper.context
        now_s, metrics = context.clock.now_s(), context.metrics
        scales = [child.weight.find_scale(config, now_s) for child in children]
        starting = sum(scale < 1 for scale in scales)
        if not starting:
            return weights
        if metrics.active:
            metrics.count(WRR_SLOW_START, (metrics.target,), self._labels, value=starting)
        return scale_weights(weights, scales)

    def _start_weight_timer(
        self, children: Sequence[WeightedEndpointChild], scheduler: StrideScheduler
    ) -> None:
        """Update the scheduler's weights periodically, until the timer is cancelled."""
        clock, period_s = self._helper.context.clock, self._endpoints.config.weight_update_period_s

        def on_timer() -> None:
            scheduler.set_weights(self._find_weights(children))
            self._weight_timer = clock.call_later(period_s, on_timer)

        self._weight_timer = clock.call_later(period_s, on_timer)


def record_weights(
    metrics: Metrics, optional_labels: tuple[str, str], weights: Sequence[float], stale: int
) -> None:
    """Record the metrics of one update of the weights (A78). A weight of 0 is unusable."""
    labels = (metrics.target,)
    for weight in weights:
        metrics.record(WRR_WEIGHTS, weight, labels, optional_labels)
    unusable = sum(not weight for weight in weights)
    if unusable > stale:
        metrics.count(WRR_NOT_YET_USABLE, labels, optional_labels, value=unusable - stale)
    if stale:
        metrics.count(WRR_STALE, labels, optional_labels, value=stale)
    if len(weights) - unusable < SCHEDULED_MIN:
        metrics.count(WRR_FALLBACK, labels, optional_labels)


class WeightedRoundRobinFactory:
    """Factory of weighted_round_robin."""

    name: Final = "weighted_round_robin"
    create = WeightedRoundRobinPolicy

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> WeightedRoundRobinConfig:
        fields, default = JsonObject(json, errors), WeightedRoundRobinConfig()
        read = fields.read_or
        update_period_s = read("weightUpdatePeriod", DURATION, default.weight_update_period_s)
        return WeightedRoundRobinConfig(
            enable_oob_load_report=read("enableOobLoadReport", BOOLEAN, default=False),
            oob_reporting_period_s=read(
                "oobReportingPeriod", DURATION, default.oob_reporting_period_s
            ),
            blackout_period_s=read("blackoutPeriod", DURATION, default.blackout_period_s),
            weight_expiration_period_s=read(
                "weightExpirationPeriod", DURATION, default.weight_expiration_period_s
            ),
            weight_update_period_s=max(update_period_s, WEIGHT_UPDATE_PERIOD_MIN_S),
            error_utilization_penalty=read(
                "errorUtilizationPenalty", _PENALTY, default.error_utilization_penalty
            ),
            metric_names_for_computing_utilization=read(
                "metricNamesForComputingUtilization", _NAMES, ()
            ),
            slow_start=fields.nested("slowStartConfig", parse_slow_start),
        )
