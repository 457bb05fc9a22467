"""Every endpoint that is connected takes its turn, more often if it says that it can do more.

Specs: A58, A114 (which metrics count), over endpoints as in A61; requirements WRR-01 to WRR-10.

Theory of operation
    Connections and reports are the business of `petiole`, turns that of `stride`. Here is what lies
    between: backends say how busy they are (`orca`), from which each endpoint has a weight. Reports
    come with the end of each RPC or, if the config says so, out of band. They change nothing but
    the endpoint's weight. A timer tells the picker of the weights of the moment: no new picker is
    reported for that, so that no parent has to build another one.

    A weight is not used for a while after the first report (blackout), nor when the last report is
    too old (expiration). An endpoint without a weight that can be used counts as the mean of the
    others.

No environment variable guards this policy, or what A114 added to it.
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
    Policy,
    PolicyRegistry,
    Subchannel,
    Update,
)
from proxyless.lb.attributes import BACKEND_SERVICE, LOCALITY_LABEL
from proxyless.lb.forwarding import ForwardingSubchannel
from proxyless.lb.orca import LoadReport, find_load_report
from proxyless.lb.pickers import SubchannelPicker
from proxyless.lb.policies.per_endpoint import EndpointChild, EndpointList, PetiolePolicy
from proxyless.lb.policies.weighted_round_robin.stride import StrideScheduler
from proxyless.metrics import Metrics
from proxyless.metrics.instruments import (
    WRR_FALLBACK,
    WRR_NOT_YET_USABLE,
    WRR_STALE,
    WRR_WEIGHTS,
)
from proxyless.runtime import IDLE_TIMER

T = TypeVar("T")

# "Values less than 100ms are capped at 100ms" - A58
WEIGHT_UPDATE_PERIOD_MIN_S: Final = 0.1
# What is infinity to a google.protobuf.FloatValue.
_FLOAT_LIMIT: Final = 2.0**128
# "If there are less than two subchannels with load info" all take equal turns - A58
SCHEDULED_MIN: Final = 2
# Where schedulers start, so that clients are out of step.
_START_BITS: Final = 32


# ---------------------------------------------------------------------------------------------
# Config


@frozen(kw_only=True)
class WeightedRoundRobinConfig:
    """Where reports come from, how long they count, and what is made of them."""

    enable_oob_load_report: bool = False
    oob_reporting_period_s: float = 10.0
    blackout_period_s: float = 10.0
    weight_expiration_period_s: float = 180.0
    weight_update_period_s: float = 1.0
    error_utilization_penalty: float = 1.0
    # As configs name them (A114).
    metric_names_for_computing_utilization: tuple[str, ...] = ()

    @property
    def out_of_band_period_s(self) -> float | None:
        """How often reports are asked for; None if they come with RPCs."""
        return self.oob_reporting_period_s if self.enable_oob_load_report else None


_DEFAULTS: Final = WeightedRoundRobinConfig()


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


def parse_config(json: Mapping[str, object], errors: ValidationErrors) -> WeightedRoundRobinConfig:
    fields, defaults = JsonObject(json, errors), _DEFAULTS
    update_period_s = fields.read_or(
        "weightUpdatePeriod", DURATION, defaults.weight_update_period_s
    )
    return WeightedRoundRobinConfig(
        enable_oob_load_report=fields.read_or("enableOobLoadReport", BOOLEAN, default=False),
        oob_reporting_period_s=fields.read_or(
            "oobReportingPeriod", DURATION, defaults.oob_reporting_period_s
        ),
        blackout_period_s=fields.read_or("blackoutPeriod", DURATION, defaults.blackout_period_s),
        weight_expiration_period_s=fields.read_or(
            "weightExpirationPeriod", DURATION, defaults.weight_expiration_period_s
        ),
        weight_update_period_s=max(update_period_s, WEIGHT_UPDATE_PERIOD_MIN_S),
        error_utilization_penalty=fields.read_or(
            "errorUtilizationPenalty", _PENALTY, defaults.error_utilization_penalty
        ),
        metric_names_for_computing_utilization=fields.read_or(
            "metricNamesForComputingUtilization", _NAMES, ()
        ),
    )


# ---------------------------------------------------------------------------------------------
# Decision: what is an endpoint's weight?


def compute_weight(report: LoadReport, config: WeightedRoundRobinConfig) -> float:
    """What a report makes of an endpoint: RPCs per second and utilization. 0 if it says too little.

    Numbers come from outside, so they may be negative, infinite, or no numbers at all.
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
    # What is not above 0, NaN included, counts as not said (A114).
    if said := [value for value in named if value > 0]:
        return max(said)
    application = report.application_utilization
    return application if application > 0 else report.cpu_utilization


class EndpointWeight:
    """The weight of one endpoint, and since when. Driven by reports and by its connection."""

    __slots__ = ("_last_updated_s", "_non_empty_since_s", "_weight")

    def __init__(self) -> None:
        # From the last report that said enough.
        self._weight = 0.0
        self._last_updated_s = -inf
        # When the first of an unbroken series of such reports came; infinity before it.
        self._non_empty_since_s = inf

    def on_report(self, weight: float, now_s: float) -> None:
        """A report makes it this; 0 is a report that says too little, and is ignored."""
        if not weight:
            return
        if self._non_empty_since_s == inf:
            self._non_empty_since_s = now_s
        self._last_updated_s = now_s
        self._weight = weight

    def on_ready(self) -> None:
        """There is a new connection: what it reports has to prove itself."""
        self._non_empty_since_s = inf

    def describe(self, config: WeightedRoundRobinConfig, now_s: float) -> str:
        """The weight, or why it is not used. Unlike `find_usable` this changes nothing."""
        if self._last_updated_s == -inf:
            return "no weight reported"
        if now_s - self._last_updated_s >= config.weight_expiration_period_s:
            return f"weight {self._weight:.4g} is too old"
        left_s = config.blackout_period_s - (now_s - self._non_empty_since_s)
        if config.blackout_period_s > 0 and left_s > 0:
            return f"weight {self._weight:.4g} is too new"
        return f"weight {self._weight:.4g}"

    def is_stale(self, config: WeightedRoundRobinConfig, now_s: float) -> bool:
        """Whether there was a report, but too long ago."""
        age_s = now_s - self._last_updated_s
        return config.weight_expiration_period_s <= age_s < inf

    def find_usable(self, config: WeightedRoundRobinConfig, now_s: float) -> float:
        """The weight to use now; 0 if there is none."""
        if now_s - self._last_updated_s >= config.weight_expiration_period_s:
            # "if we later start seeing fresh reports again, the blackout_period applies" - A58
            self._non_empty_since_s = inf
            return 0.0
        blackout_s = config.blackout_period_s
        if blackout_s > 0 and now_s - self._non_empty_since_s < blackout_s:
            return 0.0
        return self._weight


# ---------------------------------------------------------------------------------------------
# Picker


class WeightedRoundRobinPicker(Picker):
    """Gives what the scheduler says. The owner of the picker tells it of new weights."""

    __slots__ = ("_next_index", "_results")

    def __init__(self, results: Sequence[Complete], scheduler: StrideScheduler) -> None:
        self._results: Final = tuple(results)
        self._next_index: Final = scheduler.next_index

    def pick(self, info: PickInfo) -> PickResult:
        return self._results[self._next_index()]


# ---------------------------------------------------------------------------------------------
# Endpoints


class WeightedChild(EndpointChild):
    """One endpoint and its weight. Driven by its policy, its list, and reports of its backend.

    As a tracker it hears of the end of every RPC it takes.
    """

    __slots__ = ("_subchannels", "weight")

    _list: "WeightedList"

    def __init__(self, endpoints: "WeightedList", endpoint: Endpoint) -> None:
        super().__init__(endpoints, endpoint)
        self.weight: Final = EndpointWeight()
        # Those that its policy has not released.
        self._subchannels: dict[ReportingSubchannel, None] = {}

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        subchannel = ReportingSubchannel(super().create_subchannel(address, attributes), self)
        self._subchannels[subchannel] = None
        subchannel.watch_load(self._list.config.out_of_band_period_s)
        return subchannel

    def on_release(self, subchannel: "ReportingSubchannel") -> None:
        del self._subchannels[subchannel]

    def watch_load(self, period_s: float | None) -> None:
        """Ask for reports this often from now on, or not at all."""
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
        """What a pick of this child gives."""
        picker = self.picker
        assert isinstance(picker, SubchannelPicker), "a pick_first that is READY has one subchannel"
        subchannel = picker.result.subchannel
        assert isinstance(subchannel, ReportingSubchannel), "which is one of those we made"
        return subchannel.pass_on(picker.result)


class ReportingSubchannel(ForwardingSubchannel):
    """A subchannel of an endpoint, and the watch of its load. Driven by the endpoint's child."""

    __slots__ = ("_child", "_stop_watch")

    def __init__(self, inner: Subchannel, child: WeightedChild) -> None:
        super().__init__(inner, child)
        self._child = child
        self._stop_watch: Cancel | None = None

    def watch_load(self, period_s: float | None) -> None:
        """Ask for reports this often from now on, or not at all."""
        if self._stop_watch is not None:
            self._stop_watch()
            self._stop_watch = None
        if period_s is not None:
            self._stop_watch = self.inner.watch_load_reports(period_s, self._child.on_load_report)

    def release(self) -> None:
        self._child.on_release(self)
        super().release()


class WeightedList(EndpointList[WeightedChild]):
    """The endpoints of one policy, and what the policy is configured with."""

    def __init__(self, helper: Helper, on_report: Callable[[WeightedChild, State], None]) -> None:
        super().__init__(helper, WeightedChild, on_report)
        # From the last update.
        self.config = WeightedRoundRobinConfig()

    def set_config(self, config: WeightedRoundRobinConfig) -> None:
        before, self.config = self.config, config
        period_s = config.out_of_band_period_s
        if period_s != before.out_of_band_period_s:
            for child in (*self.children, *self.retained):
                child.watch_load(period_s)


# ---------------------------------------------------------------------------------------------
# Policy


class WeightedRoundRobinPolicy(PetiolePolicy[WeightedChild]):
    """Owns the weights' timer. Driven as every petiole policy is, and by that timer."""

    trace_name: ClassVar[str] = "weighted_round_robin.state"

    __slots__ = ("_labels", "_weight_timer")

    _endpoints: WeightedList

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        # From the last update: where the endpoints are, and whose, as metrics call it.
        self._labels = ("", "")
        # Pending while a picker with several endpoints is the last one reported.
        self._weight_timer = IDLE_TIMER

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, WeightedRoundRobinConfig), "the config is one of ours"
        if config != self._endpoints.config:
            self._endpoints.set_config(config)
            # "Changes to the rest of parameters take effective with a new picker" - A58
            self._renew_picker()
        attributes = update.attributes
        self._labels = (
            attributes.get(LOCALITY_LABEL) or "",
            attributes.get(BACKEND_SERVICE) or "",
        )
        return super().update(update)

    def close(self) -> None:
        self._weight_timer.cancel()
        super().close()

    def _note_of(self, child: WeightedChild) -> str:
        return child.weight.describe(self._endpoints.config, self._helper.context.clock.now_s())

    def _make_list(self) -> WeightedList:
        return WeightedList(self._helper, self._on_report)

    def _on_report(self, child: WeightedChild, before: State) -> None:
        # Only a change: READY told once more is the same connection, and its reports go on.
        if child.state is State.READY and before is not State.READY:
            child.weight.on_ready()
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

    def _find_weights(self, children: Sequence[WeightedChild]) -> list[float]:
        config, now_s = self._endpoints.config, self._helper.context.clock.now_s()
        weights = [child.weight.find_usable(config, now_s) for child in children]
        metrics = self._helper.context.metrics
        if metrics.active:
            unusable = [c for c, weight in zip(children, weights, strict=True) if not weight]
            stale = sum(child.weight.is_stale(config, now_s) for child in unusable)
            measure_weights(metrics, self._labels, weights, stale)
        return weights

    def _start_weight_timer(
        self, children: Sequence[WeightedChild], scheduler: StrideScheduler
    ) -> None:
        """Tell the scheduler of new weights, again and again, until the timer is cancelled."""
        clock, period_s = self._helper.context.clock, self._endpoints.config.weight_update_period_s

        def weigh() -> None:
            scheduler.weigh(self._find_weights(children))
            self._weight_timer = clock.call_later(period_s, weigh)

        self._weight_timer = clock.call_later(period_s, weigh)


def measure_weights(
    metrics: Metrics, optional_labels: tuple[str, str], weights: Sequence[float], stale: int
) -> None:
    """Tell what the weights of one update came to (A78). Those that are 0 cannot be used."""
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
    """What the registry knows of weighted_round_robin."""

    name: Final = "weighted_round_robin"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> WeightedRoundRobinConfig:
        return parse_config(json, errors)

    def create(self, helper: Helper) -> Policy:
        return WeightedRoundRobinPolicy(helper)
