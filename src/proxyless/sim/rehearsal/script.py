"""What does a script say: who calls, what happens when, and what must hold?

    target: xds:///shop
    rate: 20
    duration: 2m
    events:
      - at: 30s
        kill: {zone: a}
        for: 30s
      - at: 01:30
        push: next
    expect:
      - failover_within: 10s

Values only: `parsing` makes them from a document, and whether the mesh has what a script names is
for `inventory` to say.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Final

from proxyless.base import StatusCode
from proxyless.base.frozen import frozen
from proxyless.controlplane.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG
from proxyless.sim.backends import UNARY
from proxyless.sim.links import LATENCY_S

if TYPE_CHECKING:
    from collections.abc import Mapping

# What a script calls the types of resources.
TYPES: Final = {
    "listeners": LISTENER,
    "routes": ROUTE_CONFIG,
    "clusters": CLUSTER,
    "endpoints": ENDPOINTS,
}


@frozen(kw_only=True)
class Flow:
    """RPCs of one kind: who sends them, where, how many."""

    name: str = "traffic"
    # Empty: every listener of the mesh.
    targets: tuple[str, ...] = ()
    clients: int = 1
    # RPCs per second, of all its clients together.
    rate: float = 10.0
    methods: tuple[str, ...] = (UNARY,)
    metadata: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 5.0
    wait_for_ready: bool = False
    # Whether each client keeps a session (A55).
    has_sessions: bool = False


@frozen
class Selector:
    """Which endpoints: those that fit every part that is given; without any, all."""

    endpoints: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = {
            "endpoint": self.endpoints,
            "zone": self.zones,
            "region": self.regions,
            "cluster": self.clusters,
        }
        said = [f"{name} {', '.join(found)}" for name, found in parts.items() if found]
        return " in ".join(said) or "all endpoints"


class Fault(Enum):
    """What may be done to endpoints."""

    KILL = "kill"
    STOP = "stop"
    LOSE_POWER = "lose_power"
    START = "start"
    HANG = "hang"
    CUT = "cut"
    THROTTLE = "throttle"
    SLOW = "slow"
    FAIL = "fail"
    HEAL = "heal"
    GOAWAY = "goaway"
    RESET = "reset"


class ControlFault(Enum):
    """What may be done to the control plane."""

    STOP = "stop"
    START = "start"
    BREAK_STREAMS = "break_streams"
    CUT = "cut"
    HANG = "hang"
    DELAY = "delay"
    WITHHOLD = "withhold"
    HEAL = "heal"


@frozen
class FaultAction:
    """A fault of endpoints, or the end of one."""

    fault: Fault
    where: Selector
    bytes_per_s: float = 0.0
    delay_s: float = 0.0
    code: StatusCode = StatusCode.OK
    # At the end of an event: the fault that ends. Without it, HEAL ends all faults.
    undoes: Fault | None = None

    def __str__(self) -> str:
        extra = {
            Fault.THROTTLE: f" to {self.bytes_per_s:g} bytes per second",
            Fault.SLOW: f" by {self.delay_s:g} s",
            Fault.FAIL: f" with {self.code.name}",
            Fault.HEAL: f" of {self.undoes.value}" if self.undoes is not None else "",
        }
        return f"{self.fault.value.replace('_', ' ')} {self.where}{extra.get(self.fault, '')}"


@frozen
class ControlFaultAction:
    """A fault of the control plane, or the end of one."""

    fault: ControlFault
    delay_s: float = 0.0
    # Of `withhold`: the type, and the names, or none for all of it.
    type_url: str = ""
    names: tuple[str, ...] = ()
    # As of `FaultAction`.
    undoes: ControlFault | None = None

    def __str__(self) -> str:
        said = f"control plane: {self.fault.value.replace('_', ' ')}"
        if self.fault is ControlFault.DELAY:
            return f"{said} of {self.delay_s:g} s"
        if self.fault is ControlFault.HEAL and self.undoes is not None:
            return f"{said} of {self.undoes.value}"
        if self.fault is ControlFault.WITHHOLD:
            kind = next(name for name, url in TYPES.items() if url == self.type_url)
            return f"{said} {' '.join((kind, ', '.join(self.names))).rstrip()}"
        return said


@frozen
class Push:
    """The control plane serves other files from now on."""

    paths: tuple[str, ...]

    def __str__(self) -> str:
        return f"push {', '.join(self.paths)}"


Action = FaultAction | ControlFaultAction | Push


@frozen
class Event:
    """An action and its time, in seconds from the start."""

    at_s: float
    action: Action
    # Where in the script it stands.
    path: str = ""
    # Whether it ends what began with the event of the same path, for those whom that befell.
    is_end: bool = False


class Condition(Enum):
    """What may be expected of the RPCs of a window."""

    FAILED = "failed"
    ERROR_RATE_BELOW = "error_rate_below"
    FAILOVER_WITHIN = "failover_within"
    SLOWEST_BELOW = "slowest_below"
    ONLY_ZONES = "only_zones"
    ONLY_CLUSTERS = "only_clusters"
    ONLY_ENDPOINTS = "only_endpoints"
    ONLY_CODES = "only_codes"
    REFUSED_CONFIGS = "refused_configs"


@frozen
class Expectation:
    """A condition for those that start in a window, of one flow or of all."""

    condition: Condition
    start_s: float
    end_s: float
    # Of conditions that have a number, and of those that have names.
    limit: float = 0.0
    names: tuple[str, ...] = ()
    flow: str = ""
    path: str = ""


@frozen(kw_only=True)
class Script:
    """All of it. Events are in the order of their times."""

    flows: tuple[Flow, ...] = (Flow(),)
    duration_s: float = 60.0
    seed: int = 0
    latency_s: float = LATENCY_S
    # Of every channel, as in `grpc.keepalive_time_ms`.
    options: tuple[tuple[str, object], ...] = ()
    # What DNS says: IP addresses by name; none for a name that is not known.
    dns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    expectations: tuple[Expectation, ...] = ()

    @property
    def pushes(self) -> tuple[Push, ...]:
        """In the order of their times."""
        actions = (event.action for event in self.events)
        return tuple(action for action in actions if isinstance(action, Push))

    @property
    def clients(self) -> int:
        return max(flow.clients for flow in self.flows)

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each for flow in self.flows for each in flow.methods))
