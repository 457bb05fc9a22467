"""The `outlier_detection_experimental` policy: ejects endpoints whose RPCs fail.

Specs: A50, in the form of A61: per endpoint, and by health. Requirements OD-01 to OD-12.

Theory of operation
    An endpoint is its set of addresses; its counters and ejection state last as long as it is
    listed. The end of each attempt is counted. At the end of each interval `sweep` (`algorithms`)
    decides the ejections, and the subchannels (`endpoints`) publish them as health. An ejected
    endpoint keeps its connection.

    With neither algorithm configured, nothing is wrapped or counted, and the child's pickers are
    forwarded unchanged. When this changes, the child must create its subchannels again, so its
    endpoints get a new attribute value. Connections stay open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import Address, Attributes, Endpoint, Key, State, Status
from proxyless.lb.api import (
    Complete,
    Endpoints,
    Helper,
    Picker,
    PickInfo,
    PickResult,
    Subchannel,
    Update,
)
from proxyless.lb.attributes import BACKEND_SERVICE
from proxyless.lb.description import LbNode, annotate, format_seconds, format_time_left, wrap
from proxyless.lb.forwarding import ForwardingHelper
from proxyless.lb.graceful_switch import GracefulSwitchPolicy
from proxyless.lb.pickers import ForwardingPicker
from proxyless.lb.policies.outlier_detection import OutlierDetectionConfig
from proxyless.lb.policies.outlier_detection.config import PERCENT_MAX, parse_config
from proxyless.lb.policies.outlier_detection.endpoints import (
    CountedEndpoint,
    EndpointIndex,
    OutlierSubchannel,
)
from proxyless.lb.reentrancy import Hold
from proxyless.runtime import IDLE_TIMER

if TYPE_CHECKING:
    from proxyless.lb.policies.outlier_detection.algorithms import ChangeKind, Detection

# A configured interval of 0 is valid, but must not block the event loop.
INTERVAL_MIN_S: Final = 0.01


class OutlierDetectionPicker(ForwardingPicker):
    """Converts the child's results for `OutlierSubchannel` into results for the parent."""

    __slots__ = ()

    def pick(self, info: PickInfo) -> PickResult:
        result = self._child.pick(info)
        if type(result) is not Complete:
            return result
        subchannel = result.subchannel
        if type(subchannel) is not OutlierSubchannel:
            return result
        return result.parent_result or subchannel.to_parent_result(result)


# Endpoint attribute: a new value makes the child create its subchannels again.
_GENERATION: Final = Key[int]("outlier_detection_generation")


class OutlierDetectionPolicy:
    """Owns the child and the interval timer; `sweep` decides."""

    __slots__ = (
        "_child",
        "_config",
        "_counted",
        "_generation",
        "_helper",
        "_hold",
        "_index",
        "_interval_timer",
        "_is_counting",
        "_listed",
        "_report",
        "_service",
        "_started_at_s",
    )

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        self._child = GracefulSwitchPolicy(OutlierDetectionHelper(helper, self))
        # From the last update, or from the last one that had endpoints.
        self._config: OutlierDetectionConfig | None = None
        self._is_counting = False
        self._listed: tuple[Endpoint, ...] = ()
        # Metric label (A89).
        self._service = ""
        # How often counting was turned on or off after the first update.
        self._generation = 0
        # The endpoints in the index: all listed ones, or none if nothing is counted.
        self._counted: tuple[Endpoint, ...] = ()
        self._index = EndpointIndex()
        # The start of the interval; None while nothing is counted.
        self._started_at_s: float | None = None
        self._interval_timer = IDLE_TIMER
        # Active during calls to the child; the report is the child's last one.
        self._hold: Final = Hold(self._publish)
        self._report: tuple[State, Picker] | None = None

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, OutlierDetectionConfig), "the factory parsed the config"
        is_counting = config.rules.is_counting
        if self._config is not None and is_counting is not self._is_counting:
            self._generation += 1
        self._config, self._is_counting = config, is_counting
        self._service = update.attributes.get(BACKEND_SERVICE) or ""
        if not isinstance(update.endpoints, Status):
            self._listed = update.endpoints
        is_index_new = self._update_index()
        self._restart_timer(config.interval_s)
        with self._hold:
            endpoints = self._with_generation(update.endpoints)
            status = self._child.update_child(update, config.child, endpoints)
            # After the update: the child has released most of the unlisted subchannels.
            for subchannel in self._index.subchannels if is_index_new else ():
                subchannel.update_health()
        return status

    def exit_idle(self) -> None:
        self._child.exit_idle()

    def reset_backoff(self) -> None:
        self._child.reset_backoff()

    def close(self) -> None:
        self._interval_timer.cancel()
        self._child.close()

    def describe(self) -> LbNode:
        now_s = self._helper.context.clock.now_s()
        notes = {
            str(address): f"ejected {format_seconds(now_s - since_s)}"
            for endpoint in self._index.endpoints
            if (since_s := endpoint.ejection.ejected_at_s) is not None
            for address in endpoint.addresses
        }
        child = annotate(self._child.describe(), notes)
        detail = "off"
        if self._is_counting:
            ejected = sum(each.ejection.is_ejected for each in self._index.endpoints)
            sweep_in = format_time_left(self._interval_timer, now_s)
            detail = f"{ejected} of {len(self._counted)} endpoints ejected; sweep in {sweep_in}"
        return wrap(child, detail)

    def _update_index(self) -> bool:
        """Update the endpoints to count. Returns whether they changed."""
        counted = self._listed if self._is_counting else ()
        if counted == self._counted:
            return False
        self._counted = counted
        reason = "is not listed" if self._is_counting else "outlier detection is off"
        for endpoint in self._index.replace_endpoints(counted):
            if endpoint.ejection.is_ejected:
                from proxyless.lb.policies.outlier_detection.algorithms import (  # noqa: PLC0415
                    ChangeKind,
                )

                self._trace(ChangeKind.UNEJECTED, endpoint, reason)
        return True

    def _with_generation(self, endpoints: Endpoints) -> Endpoints:
        if isinstance(endpoints, Status) or not self._generation:
            return endpoints
        return tuple(
            Endpoint(each.addresses, each.attributes.with_(_GENERATION, self._generation))
            for each in endpoints
        )

    def _restart_timer(self, interval_s: float) -> None:
        """Apply a new length to the current interval, keeping its start."""
        self._interval_timer.cancel()
        if not self._is_counting:
            self._started_at_s = None
            return
        now_s = self._helper.context.clock.now_s()
        if self._started_at_s is None:
            self._started_at_s = now_s
        self._start_timer(max(interval_s - (now_s - self._started_at_s), 0))

    def _start_timer(self, delay_s: float) -> None:
        clock = self._helper.context.clock
        self._interval_timer = clock.call_later(delay_s, self._on_interval_over)

    def _on_interval_over(self) -> None:
        from proxyless.lb.policies.outlier_detection.algorithms import (  # noqa: PLC0415
            detect,
            sweep,
        )

        config, context = self._config, self._helper.context
        assert config is not None, "the timer starts with a config"
        now_s = self._started_at_s = context.clock.now_s()
        self._start_timer(max(config.interval_s, INTERVAL_MIN_S))
        endpoints = list(self._index.endpoints)
        views = [endpoint.take_counts() for endpoint in endpoints]
        detections = detect(config.rules, views, lambda: context.random.randrange(PERCENT_MAX))
        changes = sweep(config.rules, views, now_s, detections)
        if context.metrics.active:
            self._record(detections)
        with self._hold:
            for change in changes:
                endpoint = endpoints[change.index]
                endpoint.ejection, endpoint.reason = change.ejection, change.reason
                self._trace(change.kind, endpoint, change.reason)
                for subchannel in self._index.subchannels_of(endpoint):
                    subchannel.update_health()

    def _record(self, detections: list[Detection]) -> None:
        """Count the outliers of one sweep (A91)."""
        from proxyless.metrics.instruments import (  # noqa: PLC0415 - few channels
            EJECTIONS_ENFORCED,
            EJECTIONS_UNENFORCED,
        )

        metrics = self._helper.context.metrics
        for each in detections:
            labels = (metrics.target, each.outlier.method.value)
            if each.unenforced is None:
                metrics.count(EJECTIONS_ENFORCED, labels, (self._service,))
            else:
                reason = each.unenforced.value
                metrics.count(EJECTIONS_UNENFORCED, (*labels, reason), (self._service,))

    # Called by the child.

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        inner = self._helper.create_subchannel(address, attributes.without(_GENERATION))
        return self._index.add_subchannel(inner, address) if self._is_counting else inner

    def on_report(self, state: State, picker: Picker) -> None:
        # Wrapped subchannels may remain after counting was turned off.
        if self._is_counting or not self._index.is_empty:
            picker = OutlierDetectionPicker(picker)
        self._report = (state, picker)
        if not self._hold.active:
            self._publish()

    def _publish(self) -> None:
        """Forward the child's last report, if it was not forwarded yet."""
        report, self._report = self._report, None
        if report is not None:
            self._helper.update_state(*report)

    def _trace(self, kind: ChangeKind, endpoint: CountedEndpoint, reason: str) -> None:
        trace = self._helper.context.trace
        if trace.active:
            name = f"outlier_detection.{kind.value}"
            multiplier = endpoint.ejection.multiplier
            trace.emit(name, endpoint=str(endpoint), reason=reason, multiplier=multiplier)


class OutlierDetectionHelper(ForwardingHelper):
    """Helper of the child."""

    __slots__ = ("_owner",)

    def __init__(self, parent: Helper, owner: OutlierDetectionPolicy) -> None:
        super().__init__(parent)
        self._owner: Final = owner

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        return self._owner.create_subchannel(address, attributes)

    def update_state(self, state: State, picker: Picker) -> None:
        self._owner.on_report(state, picker)


class OutlierDetectionFactory:
    """Factory of outlier_detection_experimental."""

    name: Final = "outlier_detection_experimental"
    create = OutlierDetectionPolicy
    parse_config = staticmethod(parse_config)
