"""Interface between a load balancing policy and its parent.

The parent of the top policy is the channel; a policy with children is their parent. A parent sends
updates; a policy reports a connectivity state and a picker. It acts through its helper.

Theory of operation
    All calls run on one event loop and do not re-enter:
    - A helper or subchannel does not call back into the policy before it returns, except that
      `watch` and `watch_health` call the listener with the current state. A parent that reacts to a
      report by calling the child does so after the report, with `runtime.Soon`.
    - A policy may report inside any call to it. A parent defers its own report while it calls its
      children, and reports once afterwards.

    A pick changes no policy and opens no connection. A picker that needs a connection schedules the
    request in the same way.

    Most pickers are immutable. These read state that their policy changes after the report:
    - round_robin: its list of endpoints grows as endpoints become READY;
    - cluster_manager and override_host: the children or hosts of their policy;
    - least_request, peak_ewma, weighted_round_robin and cluster_impl: RPC counters or weights.
    This is safe without locks: a pick runs on the policy's loop and does not await, so it sees a
    change either completely or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    EMPTY_METADATA,
    NULL_TRACE,
    OK,
    Address,
    Attributes,
    Endpoint,
    Metadata,
    State,
    Status,
    Trace,
    ValidationErrors,
)
from proxyless.base.frozen import frozen, mutable
from proxyless.metrics import NO_METRICS, Metrics
from proxyless.runtime import UNLIMITED_WORK

if TYPE_CHECKING:
    from proxyless.lb.orca import LoadReport
    from proxyless.runtime import Clock, Random, Work

# The status is the reason for TRANSIENT_FAILURE, and OK with every other state.
StateListener = Callable[[State, Status], None]
LoadListener = Callable[["LoadReport"], None]
Cancel = Callable[[], None]


def no_op() -> None:
    """`Cancel` that does nothing."""


# The resolver's endpoints, or its error.
Endpoints = tuple[Endpoint, ...] | Status


# Pickers


@mutable(eq=False)
class PickInfo:
    """The RPC to pick for. Must not be changed: RPCs may share one instance."""

    path: str
    metadata: Metadata = EMPTY_METADATA
    attributes: Attributes = EMPTY_ATTRIBUTES


class CallEnd(Protocol):
    """End of an attempt. The attempt itself may implement it, so values are computed on access."""

    @property
    def status(self) -> Status: ...

    @property
    def trailing_metadata(self) -> Metadata: ...


class CallTracker(Protocol):
    """Called for each attempt on a picked subchannel: one `on_end` for each `on_start`.

    Shared by all RPCs for which the same `Complete` is returned.
    """

    def on_start(self) -> None: ...

    def on_end(self, end: CallEnd) -> None: ...


class HeadTracker:
    """`CallTracker` that is also called with the first sign of a response.

    A base class rather than a protocol: attempts check for it with `isinstance`.
    """

    __slots__ = ()

    def on_start(self) -> None: ...

    def on_head(self) -> None:
        """Response headers have arrived. Not called if the response is trailers-only."""

    def on_end(self, end: CallEnd) -> None: ...


@frozen(eq=False)
class Complete:
    """The attempt uses this subchannel. Usually built once and returned for many RPCs.

    The subchannel must come from the policy's own helper. If it is not connected any more, the RPC
    is queued until the next picker.
    """

    subchannel: Subchannel
    tracker: CallTracker | None = None
    # `:authority` of the attempt; empty: the channel's (A81).
    authority: str = ""
    # Cache of the policy that has wrapped the subchannel, and of no other: its result for this one.
    parent_result: Complete | None = field(init=False, repr=False, default=None)


@frozen
class Queue:
    """The RPC waits for the next picker. Singleton: QUEUE."""


@frozen
class Fail:
    """The RPC fails with this status; a wait-for-ready RPC is queued instead."""

    status: Status


@frozen
class Drop:
    """The RPC fails with this status, even if it is wait-for-ready."""

    status: Status


PickResult = Complete | Queue | Fail | Drop

QUEUE: Final = Queue()


class Picker(Protocol):
    """Chooses the subchannel of an RPC. Pickers that derive from this class inherit the defaults.

    The module's "Theory of operation" lists the pickers that are not immutable.
    """

    __slots__ = ()

    def pick(self, info: PickInfo) -> PickResult: ...

    @property
    def status(self) -> Status:
        """Reason for TRANSIENT_FAILURE, if that is reported with this picker; otherwise OK."""
        return OK

    @property
    def is_reconnecting(self) -> bool:
        """Whether RPCs are queued in TRANSIENT_FAILURE while a child has new endpoints (WT-03)."""
        return False


# Subchannels and helpers


class Subchannel(Protocol):
    """Handle of a policy for one address and at most one connection to it.

    A parent may wrap the subchannels of its child: see `forwarding`.
    """

    @property
    def address(self) -> Address: ...

    def watch(self, listener: StateListener) -> Cancel:
        """Call the listener with the connectivity state: now, and after each change.

        Changes are not notified inside a call to the subchannel, nor after it was released or the
        returned callable was called.
        """

    def watch_health(self, listener: StateListener) -> Cancel:
        """Call the listener with the health of the connection, in the same way as `watch`.

        The health is meaningful only while there is a connection. READY: healthy, or not checked.
        CONNECTING: the backend has not answered yet. TRANSIENT_FAILURE, with the reason as status:
        the backend is not serving (A17), or was ejected (A50). The check runs only while there is a
        watch. Only for policies that can send RPCs to other endpoints; policies with pick_first
        children set the attribute HEALTH_WATCH instead.
        """

    def watch_load_reports(self, interval_s: float, listener: LoadListener) -> Cancel:
        """Request load reports of the backend (A51), and call the listener with each.

        Reports need a connection, and a backend that supports them. They may come more often than
        requested if another policy watches the same backend. The listener is not called inside a
        call to the subchannel, nor after it was released or the returned callable was called.
        """

    def request_connection(self) -> None:
        """Connect if the state is IDLE."""

    def reset_backoff(self) -> None:
        """End the current backoff now. The next failure starts with the initial delay."""

    def release(self) -> None:
        """Stop using the subchannel: no calls in either direction follow. RPCs on it continue."""


@frozen
class Context:
    """Clock, random source, policy registry, trace, metrics and work queue of one channel."""

    clock: Clock
    random: Random
    registry: PolicyRegistry
    trace: Trace = NULL_TRACE
    metrics: Metrics = NO_METRICS
    # Policies with many children create and update them in slices.
    work: Work = UNLIMITED_WORK


class Helper(Protocol):
    """Interface of the parent to a policy. The policy must not act before its first update."""

    @property
    def context(self) -> Context: ...

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        """Create a subchannel, which the policy must release.

        Its connection may be shared, so it may start in any state.
        """

    def update_state(self, state: State, picker: Picker) -> None:
        """Report. With TRANSIENT_FAILURE the picker's status is the reason."""

    def request_reresolution(self) -> None:
        """Request new endpoints from the resolver. An update may follow."""


# Policies


@frozen
class Update:
    """Endpoints and config of a policy. Replaces the previous update."""

    endpoints: Endpoints
    # The result of the factory's `parse_config`.
    config: object
    # Attributes of the channel or of the whole update, not of one endpoint.
    attributes: Attributes = EMPTY_ATTRIBUTES
    # The source of the endpoints, for error texts.
    resolution_note: str = ""

    # These do not use `replace`, which is slow: each level of a tree calls one per cluster.

    def with_config(self, config: object) -> Update:
        return Update(self.endpoints, config, self.attributes, self.resolution_note)

    def with_attributes(self, attributes: Attributes) -> Update:
        return Update(self.endpoints, self.config, attributes, self.resolution_note)


class Policy(Protocol):
    """Load balancing policy: reports a state and a picker, first after its first update."""

    def update(self, update: Update) -> Status:
        """Use this update from now on. Not OK: it was rejected, and the resolver may retry."""

    def exit_idle(self) -> None:
        """Connect if the state is IDLE."""

    def reset_backoff(self) -> None:
        """Reset the backoff of every subchannel."""

    def close(self) -> None:
        """Release everything and stop reporting. Called once, as the last call."""


class PolicyFactory(Protocol):
    """Parses the configs of one kind of policy, and creates its policies."""

    @property
    def name(self) -> str: ...

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        """Return the config for updates. It is used only if nothing was added to `errors`.

        The registry is for configs that name other policies.
        """

    def create(self, helper: Helper) -> Policy: ...


@frozen
class DeferredFactory:
    """Factory that is imported when a config first names its policy."""

    # The name of the policy.
    name: str
    # The module and name of the class, which is called without arguments.
    module: str
    factory: str

    def load(self) -> PolicyFactory:
        factory: PolicyFactory = getattr(import_module(self.module), self.factory)()
        return factory


class PolicyRegistry:
    """Immutable map of names to the policies that a channel supports (A24, ADR 0003)."""

    __slots__ = ("_factories",)

    def __init__(self, factories: Iterable[PolicyFactory | DeferredFactory] = ()) -> None:
        self._factories: dict[str, PolicyFactory | DeferredFactory] = {}
        for factory in factories:
            if (other := self._factories.get(factory.name)) is not None:
                raise ValueError(
                    f"policy {factory.name!r} is registered twice: by {other!r} and by {factory!r}"
                )
            self._factories[factory.name] = factory

    def find(self, name: str) -> PolicyFactory | None:
        factory = self._factories.get(name)
        if isinstance(factory, DeferredFactory):
            factory = self._factories[name] = factory.load()
        return factory

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._factories)

    def extended(self, factories: Iterable[PolicyFactory]) -> PolicyRegistry:
        """Return a new registry that also contains these factories."""
        return PolicyRegistry([*self._factories.values(), *factories])
