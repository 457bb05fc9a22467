"""Script of a run: its traffic, its events and its expectations (docs/howto/simulate.md).

`parsing` makes a script from a document; `inventory` checks its names against the mesh.
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

# Names of resource types in scripts.
TYPES: Final = {
    "listeners": LISTENER,
    "routes": ROUTE_CONFIG,
    "clusters": CLUSTER,
    "endpoints": ENDPOINTS,
}


@frozen(kw_only=True)
class Flow:
    """RPCs of one kind."""

    name: str = "traffic"
    # Empty: every listener of the mesh.
    targets: tuple[str, ...] = ()
    clients: int = 1
    # RPCs per second of all its clients together.
    rate: float = 10.0
    methods: tuple[str, ...] = (UNARY,)
    metadata: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 5.0
    wait_for_ready: bool = False
    # Whether each client keeps a session (A55).
    has_sessions: bool = False


@frozen
class Selector:
    """Endpoints that match every part that is not empty."""

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
        shown = [f"{name} {', '.join(found)}" for name, found in parts.items() if found]
        return " in ".join(shown) or "all endpoints"


class Fault(Enum):
    """Fault of endpoints; START and HEAL end faults."""

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
    """Fault of the control plane; START and HEAL end faults."""

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
    # For the end of an event: the fault that ends. Without it, HEAL ends all faults.
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
    # For `withhold`: the type, and names of resources, or none for all.
    type_url: str = ""
    names: tuple[str, ...] = ()
    undoes: ControlFault | None = None

    def __str__(self) -> str:
        text = f"control plane: {self.fault.value.replace('_', ' ')}"
        if self.fault is ControlFault.DELAY:
            return f"{text} of {self.delay_s:g} s"
        if self.fault is ControlFault.HEAL and self.undoes is not None:
            return f"{text} of {self.undoes.value}"
        if self.fault is ControlFault.WITHHOLD:
            kind = next(name for name, url in TYPES.items() if url == self.type_url)
            return f"{text} {' '.join((kind, ', '.join(self.names))).rstrip()}"
        return text


@frozen
class Push:
    """Replacement of the files that the control plane serves."""

    paths: tuple[str, ...]

    def __str__(self) -> str:
        return f"push {', '.join(self.paths)}"


Action = FaultAction | ControlFaultAction | Push


@frozen
class Event:
    """An action and its time, in seconds from the start."""

    at_s: float
    action: Action
    path: str = ""
    # Whether it ends the event of the same path, for the endpoints that this one affected.
    is_end: bool = False


class Condition(Enum):
    """Condition on the RPCs of a window."""

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
    """A condition on the RPCs that start in a window, of one flow or of all."""

    condition: Condition
    start_s: float
    end_s: float
    # A condition has either a limit or names.
    limit: float = 0.0
    names: tuple[str, ...] = ()
    flow: str = ""
    path: str = ""


@frozen(kw_only=True)
class Script:
    """A whole script, with events in the order of their times."""

    flows: tuple[Flow, ...] = (Flow(),)
    duration_s: float = 60.0
    seed: int = 0
    latency_s: float = LATENCY_S
    # Channel options, such as `grpc.keepalive_time_ms`.
    options: tuple[tuple[str, object], ...] = ()
    # IP addresses by DNS name; none for a name that does not exist.
    dns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    expectations: tuple[Expectation, ...] = ()

    @property
    def pushes(self) -> tuple[Push, ...]:
        actions = (event.action for event in self.events)
        return tuple(action for action in actions if isinstance(action, Push))

    @property
    def clients(self) -> int:
        return max(flow.clients for flow in self.flows)

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each for flow in self.flows for each in flow.methods))
