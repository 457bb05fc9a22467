"""Endpoints whose RPCs fail more than they should are left alone for a while.

Specs: A50, in the form of A61: per endpoint, and by health. Requirements OD-01 to OD-12, A50-03.

Theory of operation
    An endpoint is its set of addresses; what is known about it lasts as long as it is listed,
    whichever policy below has a subchannel to it. The end of each attempt is counted. At the end
    of each interval `sweep` (in `outlier_algorithms`) decides who is ejected and who returns, and
    the subchannels (in `outlier_endpoints`) tell the child: an ejected one is unhealthy, which is
    for its policy to heed. Its connection stays.

    With neither algorithm configured nothing is wrapped or counted, and the child's pickers are
    passed on as they are. When that changes, the child has to ask for its subchannels once more,
    so its endpoints get an attribute that is new to it. Connections stay then, too.
"""

from collections.abc import Mapping
from typing import Final

from proxyless.base import Address, Attributes, Endpoint, Key, State, Status, ValidationErrors
from proxyless.lb.api import (
    Complete,
    Endpoints,
    Helper,
    Picker,
    PickInfo,
    PickResult,
    Policy,
    PolicyRegistry,
    Subchannel,
    Update,
)
from proxyless.lb.forwarding import ForwardingHelper
from proxyless.lb.graceful_switch import GracefulSwitch
from proxyless.lb.policies.outlier_detection import OutlierDetectionConfig
from proxyless.lb.policies.outlier_detection.algorithms import Kind, sweep
from proxyless.lb.policies.outlier_detection.config import PERCENT_MAX, parse_config
from proxyless.lb.policies.outlier_detection.endpoints import (
    CountedEndpoint,
    OutlierSubchannel,
    Roster,
)
from proxyless.lb.reentrancy import Hold
from proxyless.lb.view import LbNode, annotate, in_seconds, left_s, wrap
from proxyless.runtime import IDLE_TIMER

# An interval of 0 is valid, but a loop has other things to do as well.
INTERVAL_MIN_S: Final = 0.01


# ---------------------------------------------------------------------------------------------
# Picker


class CountingPicker(Picker):
    """Has the child pick, and the RPC counted if it goes to a subchannel that is."""

    __slots__ = ("_child",)

    def __init__(self, child: Picker) -> None:
        self._child: Final = child

    def pick(self, info: PickInfo) -> PickResult:
        result = self._child.pick(info)
        if type(result) is not Complete:
            return result
        subchannel = result.subchannel
        if type(subchannel) is not OutlierSubchannel:
            return result
        if subchannel.child_result is result and subchannel.passed_on is not None:
            return subchannel.passed_on
        return subchannel.pass_on(result)

    @property
    def status(self) -> Status:
        return self._child.status


# ---------------------------------------------------------------------------------------------
# Policy

# Of an endpoint. Whoever is told another one has to ask for its subchannels again.
_GENERATION: Final = Key[int]("outlier_detection_generation")


class OutlierDetectionPolicy:
    """Owns the child and the interval timer; `sweep` decides. Driven by parent, child and timer."""

    __slots__ = (
        "_child",
        "_config",
        "_counted",
        "_generation",
        "_helper",
        "_hold",
        "_interval_timer",
        "_is_counting",
        "_listed",
        "_report",
        "_roster",
        "_started_at_s",
    )

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        self._child = GracefulSwitch(OutlierDetectionChild(helper, self))
        # From the last update, or from the last one that had endpoints.
        self._config: OutlierDetectionConfig | None = None
        self._is_counting = False
        self._listed: tuple[Endpoint, ...] = ()
        # How often counting was turned on or off, after it was known for the first time.
        self._generation = 0
        # Those of the endpoints that are counted, and what is known about them: none or all.
        self._counted: tuple[Endpoint, ...] = ()
        self._roster = Roster()
        # When the interval began; None while there is none.
        self._started_at_s: float | None = None
        self._interval_timer = IDLE_TIMER
        # Around calls to the child, and its last report inside.
        self._hold: Final = Hold(self._publish)
        self._report: tuple[State, Picker] | None = None

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, OutlierDetectionConfig), "the config is one of ours"
        is_counting = config.rules.is_counting
        if self._config is not None and is_counting is not self._is_counting:
            self._generation += 1
        self._config, self._is_counting = config, is_counting
        if not isinstance(update.endpoints, Status):
            self._listed = update.endpoints
        is_roster_new = self._update_roster()
        self._restart_timer(config.interval_s)
        with self._hold:
            endpoints = self._mark(update.endpoints)
            status = self._child.update_child(update, config.child, endpoints)
            # Not earlier: most of those that are not listed any more are gone by now.
            for subchannel in self._roster.subchannels if is_roster_new else ():
                subchannel.follow()
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
            str(address): f"ejected {in_seconds(now_s - since_s)}"
            for endpoint in self._roster.endpoints
            if (since_s := endpoint.standing.ejected_at_s) is not None
            for address in endpoint.addresses
        }
        child = annotate(self._child.describe(), notes)
        detail = "off"
        if self._is_counting:
            ejected = sum(each.standing.is_ejected for each in self._roster.endpoints)
            sweep_in = in_seconds(left_s(self._interval_timer, now_s))
            detail = f"{ejected} of {len(self._counted)} endpoints ejected; sweep in {sweep_in}"
        return wrap(child, detail)

    # Updates.

    def _update_roster(self) -> bool:
        """Have those endpoints counted that are to be; whether they are others than before."""
        counted = self._listed if self._is_counting else ()
        if counted == self._counted:
            return False
        self._counted = counted
        because = "is not listed" if self._is_counting else "outlier detection is off"
        for endpoint in self._roster.replace_endpoints(counted):
            if endpoint.standing.is_ejected:
                self._trace(Kind.UNEJECTED, endpoint, because)
        return True

    def _mark(self, endpoints: Endpoints) -> Endpoints:
        if isinstance(endpoints, Status) or not self._generation:
            return endpoints
        return tuple(
            Endpoint(each.addresses, each.attributes.with_(_GENERATION, self._generation))
            for each in endpoints
        )

    # The interval.

    def _restart_timer(self, interval_s: float) -> None:
        """Let the interval that began some time ago be as long as it is to be now."""
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
        config, context = self._config, self._helper.context
        assert config is not None, "the timer starts with a config"
        now_s = self._started_at_s = context.clock.now_s()
        self._start_timer(max(config.interval_s, INTERVAL_MIN_S))
        endpoints = list(self._roster.endpoints)
        views = [endpoint.take_view() for endpoint in endpoints]
        changes = sweep(config.rules, views, now_s, lambda: context.random.randrange(PERCENT_MAX))
        with self._hold:
            for change in changes:
                endpoint = endpoints[change.index]
                endpoint.standing, endpoint.reason = change.standing, change.reason
                self._trace(change.kind, endpoint, change.reason)
                for subchannel in self._roster.subchannels_of(endpoint):
                    subchannel.follow()

    # Called by the child.

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        inner = self._helper.create_subchannel(address, attributes.without(_GENERATION))
        return self._roster.add_subchannel(inner, address) if self._is_counting else inner

    def on_report(self, state: State, picker: Picker) -> None:
        # Subchannels from before counting was turned off are still to be unwrapped.
        if self._is_counting or not self._roster.is_empty:
            picker = CountingPicker(picker)
        self._report = (state, picker)
        if not self._hold.active:
            self._publish()

    def _publish(self) -> None:
        """Report what the child reported last, if that is new."""
        report, self._report = self._report, None
        if report is not None:
            self._helper.update_state(*report)

    def _trace(self, kind: Kind, endpoint: CountedEndpoint, reason: str) -> None:
        trace = self._helper.context.trace
        if trace.active:
            name = f"outlier_detection.{kind.value}"
            multiplier = endpoint.standing.multiplier
            trace.emit(name, endpoint=str(endpoint), reason=reason, multiplier=multiplier)


class OutlierDetectionChild(ForwardingHelper):
    """What the child acts through."""

    __slots__ = ("_owner",)

    def __init__(self, parent: Helper, owner: OutlierDetectionPolicy) -> None:
        super().__init__(parent)
        self._owner: Final = owner

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        return self._owner.create_subchannel(address, attributes)

    def update_state(self, state: State, picker: Picker) -> None:
        self._owner.on_report(state, picker)


class OutlierDetectionFactory:
    """What the registry knows of outlier_detection_experimental."""

    name: Final = "outlier_detection_experimental"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> OutlierDetectionConfig | None:
        return parse_config(json, errors, registry)

    def create(self, helper: Helper) -> Policy:
        return OutlierDetectionPolicy(helper)
