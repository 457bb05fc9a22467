"""What do a policy and its parent say to each other?

The parent of the top policy is the channel; a policy with children is the parent of those. Down
go updates, up go reports: a connectivity state and a picker. To act, a policy has its helper.

Theory of operation
    Everything happens on one loop, in callbacks that never re-enter. For that, each side keeps one
    rule.
    - What a policy calls (its helper, its subchannels) does not call back into that policy before
      it returns. What a parent wants to tell a child in answer to a report, it tells soon after:
      `context.clock.call_later(0, ...)`. The one exception is `watch`, which gives its listener the
      current state at once.
    - A policy may report inside any call to it, so a parent holds its own reaction while it is
      calling children, and reacts once when it is done.
    A pick changes no policy: a picker that wants a connection asks for it soon, in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
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
from proxyless.base.frozen import frozen
from proxyless.metrics import NO_METRICS, Metrics

if TYPE_CHECKING:
    from proxyless.lb.orca import LoadReport
    from proxyless.runtime import Clock, Random

# The status says why a state is TRANSIENT_FAILURE, and is OK with every other one.
StateListener = Callable[[State, Status], None]
# Hears of each load report of a backend.
LoadListener = Callable[["LoadReport"], None]
# Ends what was started.
Cancel = Callable[[], None]

# What a resolver found, or why it found nothing.
Endpoints = tuple[Endpoint, ...] | Status


# ---------------------------------------------------------------------------------------------
# The data plane: pickers


@dataclass(slots=True, eq=False)
class PickInfo:
    """What is known about an RPC when it is picked for. RPCs may share one: do not change it."""

    path: str
    metadata: Metadata = EMPTY_METADATA
    attributes: Attributes = EMPTY_ATTRIBUTES


class CallEnd(Protocol):
    """How an attempt ended. The attempt itself may stand in, so nothing is computed in vain."""

    @property
    def status(self) -> Status: ...

    @property
    def trailing_metadata(self) -> Metadata: ...


class CallTracker(Protocol):
    """Hears of each attempt that runs on a picked subchannel: `on_end` once for each `on_start`.

    Shared by all RPCs for which the same `Complete` is returned.
    """

    def on_start(self) -> None: ...

    def on_end(self, end: CallEnd) -> None: ...


@frozen(eq=False)
class Complete:
    """Use this subchannel. Built once and returned for many RPCs, so that a pick costs nothing.

    The subchannel is one that the policy got from its own helper. If it is not connected any more,
    the pick counts as queued: a newer picker is on its way.
    """

    subchannel: Subchannel
    tracker: CallTracker | None = None
    # What the attempt sends as `:authority` in place of the channel's; empty: nothing (A81).
    authority: str = ""


@frozen
class Queue:
    """Ask again with the next picker. There is one: QUEUE."""


@frozen
class Fail:
    """The RPC fails with this status, unless it is wait-for-ready: then it is queued."""

    status: Status


@frozen
class Drop:
    """The RPC fails with this status, wait-for-ready or not."""

    status: Status


# What a picker may answer.
PickResult = Complete | Queue | Fail | Drop

# Wait for the next picker.
QUEUE: Final = Queue()


class Picker(Protocol):
    """A snapshot that answers picks. Immutable, but for a cursor of its own."""

    __slots__ = ()

    def pick(self, info: PickInfo) -> PickResult: ...

    @property
    def status(self) -> Status:
        """Why the state reported with this picker is TRANSIENT_FAILURE; OK with any other state.

        A picker class that names this one as its base inherits the OK.
        """
        return OK

    @property
    def is_reconnecting(self) -> bool:
        """Whether RPCs wait though the state is TRANSIENT_FAILURE, because a child has new
        endpoints and connects to them (WT-03).
        """
        return False


# ---------------------------------------------------------------------------------------------
# What a policy acts through


class Subchannel(Protocol):
    """One address and at most one connection to it, as a policy sees it.

    A policy that stands between may wrap those it creates for its child: see `forwarding`.
    """

    @property
    def address(self) -> Address: ...

    def watch(self, listener: StateListener) -> Cancel:
        """Tell the connectivity state: the current one before this returns, then each change.

        A change is never told inside a call to the subchannel, and nothing is told after the
        returned callable was called or the subchannel was released.
        """
        ...

    def watch_health(self, listener: StateListener) -> Cancel:
        """Tell in the same way how fit for RPCs the connection is; READY with nothing to say.

        It counts while there is a connection. CONNECTING: the backend was asked and has not said
        yet. TRANSIENT_FAILURE: it says that it is not serving (A17), or it was ejected (A50); the
        status says which. The backend is asked only while somebody watches. Only for policies that
        can send RPCs elsewhere; those that leave connecting to pick_first children tell them so
        with the attribute HEALTH_WATCH.
        """
        ...

    def watch_load_reports(self, interval_s: float, listener: LoadListener) -> Cancel:
        """Ask the backend for reports of its load this often, and tell each one (A51).

        Only while there is a connection, and if the backend knows how to. If others watch the
        same backend, reports may come more often; those before the watch are not told. A report
        is never told inside a call to the subchannel, nor after the returned callable was called
        or the subchannel was released.
        """
        ...

    def request_connection(self) -> None:
        """Leave IDLE. Does nothing in any other state."""
        ...

    def reset_backoff(self) -> None:
        """End the wait after a failure now, and start the next series of delays from its start."""
        ...

    def release(self) -> None:
        """Give it back: no more calls in either direction. RPCs under way go on."""
        ...


@frozen
class Context:
    """What all policies of one channel share."""

    clock: Clock
    random: Random
    registry: PolicyRegistry
    trace: Trace = NULL_TRACE
    metrics: Metrics = NO_METRICS


class Helper(Protocol):
    """What a parent gives a policy to act through; to act, not before its first update."""

    @property
    def context(self) -> Context: ...

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        """A subchannel of the policy's own, to be released by it.

        The connection behind it may be shared, so the first state it tells may be any.
        """
        ...

    def update_state(self, state: State, picker: Picker) -> None:
        """Report. With TRANSIENT_FAILURE the picker's status says why."""
        ...

    def request_reresolution(self) -> None:
        """Ask for fresh endpoints; they come as an update, or not at all."""
        ...


# ---------------------------------------------------------------------------------------------
# Policies


@frozen
class Update:
    """All that a policy is told at once, replacing what it was told before."""

    endpoints: Endpoints
    # What the policy's own factory parsed.
    config: object
    # About the channel or the update as a whole, not about one endpoint.
    attributes: Attributes = EMPTY_ATTRIBUTES
    # Where the endpoints came from, for error texts.
    resolution_note: str = ""

    # Every level of a tree does one of these, for each cluster: so they are not `replace`.

    def with_config(self, config: object, endpoints: Endpoints | None = None) -> Update:
        """The same for a child, or what it is told about these endpoints only."""
        whose = self.endpoints if endpoints is None else endpoints
        return Update(whose, config, self.attributes, self.resolution_note)

    def with_attributes(self, attributes: Attributes) -> Update:
        """The same, with these attributes."""
        return Update(self.endpoints, self.config, attributes, self.resolution_note)


class Policy(Protocol):
    """Turns updates and the states of subchannels into reports.

    Its first update makes it report. Driven by its parent, its subchannels and its timers.
    """

    def update(self, update: Update) -> Status:
        """Use this from now on. OK, or why it cannot be used: then a resolver may try again."""
        ...

    def exit_idle(self) -> None:
        """Connect if the state is IDLE."""
        ...

    def reset_backoff(self) -> None:
        """Let every subchannel try again now."""
        ...

    def close(self) -> None:
        """Release everything; report nothing from now on. Called once, and nothing after it."""
        ...


class PolicyFactory(Protocol):
    """One kind of policy, known by its name in configs."""

    @property
    def name(self) -> str: ...

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        """The config for updates. What it returns counts only if nothing was added to errors.

        The registry is for configs that name other policies.
        """
        ...

    def create(self, helper: Helper) -> Policy:
        """A policy that waits for its first update."""
        ...


@frozen
class DeferredFactory:
    """The place of a factory that is imported when a config first names its policy."""

    # Of the policy.
    name: str
    # Where the class is, which is called without arguments.
    module: str
    factory: str

    def load(self) -> PolicyFactory:
        factory: PolicyFactory = getattr(import_module(self.module), self.factory)()
        return factory


class PolicyRegistry:
    """The policies that a channel supports, by name (A24). Immutable; `extended` makes a new one.

    It is passed as an argument; nothing registers itself (ADR 0003).
    """

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
        """The factory of that exact name; None if there is none."""
        factory = self._factories.get(name)
        if isinstance(factory, DeferredFactory):
            factory = self._factories[name] = factory.load()
        return factory

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._factories)

    def extended(self, factories: Iterable[PolicyFactory]) -> PolicyRegistry:
        """A registry with these added."""
        return PolicyRegistry([*self._factories.values(), *factories])
