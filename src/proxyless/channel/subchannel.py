"""Subchannel: one address, and its connections.

There is one connection, unless a service config or a cluster allows more (A105): then another one
is opened when calls wait because all have reached the peer's limit of streams.

`connectivity` decides on each event; a subchannel enacts: it owns the backoff timer and each
`Connection`, and notifies its observers. `pool` gives each policy a handle of a shared subchannel,
with its own watchers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import Address, State, Status
from proxyless.channel.connection import Connection, next_id
from proxyless.channel.connectivity import (
    BackoffOver,
    BackoffReset,
    CancelBackoff,
    Connect,
    Connected,
    Connectivity,
    Effect,
    Event,
    Failed,
    Lost,
    Needed,
    Released,
    Requested,
    StartBackoff,
    StopConnection,
)
from proxyless.runtime import IDLE_TIMER, Timer

if TYPE_CHECKING:
    from proxyless.channel.connection import SubchannelTools
    from proxyless.channel.load_reports import LoadReports
    from proxyless.channel.subchannel_metrics import SubchannelMeter
    from proxyless.channel.subchannel_options import SubchannelOptions
    from proxyless.lb.api import Cancel, LoadListener
    from proxyless.lb.connection_limit import ConnectionLimit
    from proxyless.transport import ClientTransport


class Observer(Protocol):
    """Called on each change, inside the call that causes it, so it must act later."""

    # The channel or child policy that the observer belongs to, if any.
    holder: object
    # The source of `connections_max`; None: it allows one connection (A105).
    connection_limit: ConnectionLimit | None

    @property
    def connections_max(self) -> int: ...

    def on_change(self, state: State, status: Status, transport: ClientTransport | None) -> None:
        """The transport is there if, and only if, the state is READY.

        If the oldest of several connections is lost, the state stays READY, with the next one.
        """


class Subchannel:
    """One address, and its connections. Observers set how many of these there may be.

    Observers are notified of each change except SHUTDOWN: a closed subchannel has none.
    """

    def __init__(
        self, address: Address, options: SubchannelOptions, tools: SubchannelTools
    ) -> None:
        # Fixed at construction.
        self.id: Final = next_id()
        self.address: Final = address
        self.options: Final = options
        self._tools = tools
        # Changed by the methods below only.
        self._connectivity = Connectivity(options, tools.random)
        # Connections that take calls, oldest first; and the attempt to make another one.
        self._connections: tuple[Connection, ...] = ()
        self._attempt: Connection | None = None
        # Whether `_scale` is a listener of the observers' limits.
        self._awaits_limit = False
        self._backoff_timer: Timer = IDLE_TIMER
        # While a step waits in the connect queue: the timeout of an attempt that has not started;
        # and whether the backoff timer has fired.
        self._attempt_timeout_s: float | None = None
        self._is_backoff_over = False
        self._observers: dict[Observer, None] = {}
        # When it was created, or a new holder last reset the backoff.
        self._renewed_s = tools.clock.now_s()
        # Transport of the oldest connection, on which calls are opened; None unless the state is
        # READY.
        self.transport: ClientTransport | None = None
        # Present if a channel with stats plugins uses it (A94).
        self.meter: SubchannelMeter | None = None
        # Created for the first subscription.
        self._load_reports: LoadReports | None = None

    @property
    def state(self) -> State:
        return self._connectivity.state

    @property
    def status(self) -> Status:
        return self._connectivity.status

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections that take calls, oldest first, and the attempt to connect."""
        attempt = () if self._attempt is None else (self._attempt,)
        return (*self._connections, *attempt)

    @property
    def open_connections(self) -> int:
        """Number of connections that take calls."""
        return len(self._connections)

    @property
    def connections_max(self) -> int:
        """The largest maximum of the observers: subchannels are shared by channels (A105)."""
        return max((each.connections_max for each in self._observers), default=1)

    @property
    def backoff_left_s(self) -> float | None:
        """Time until the next attempt to connect; None if there is no backoff."""
        timer = self._backoff_timer
        return max(timer.due_s - self._tools.clock.now_s(), 0.0) if timer.pending else None

    @property
    def is_observed(self) -> bool:
        return bool(self._observers)

    def holds(self, connection: Connection) -> bool:
        return connection is self._attempt or connection in self._connections

    def add_observer(self, observer: Observer) -> None:
        self._observers[observer] = None
        if self.transport is not None and self.transport.lacks_streams:
            # Later: the limit of a new handle is set after this call.
            self._tools.loop.call_soon(self._scale)

    def remove_observer(self, observer: Observer) -> None:
        self._observers.pop(observer, None)
        if self._awaits_limit and observer.connection_limit is not None:
            observer.connection_limit.remove_listener(self._scale)

    def request_connection(self) -> None:
        self._step(Requested(self._tools.clock.now_s()))

    def reset_backoff(self) -> None:
        self._step(BackoffReset())
        self._scale()

    def on_holder(self, holder: object) -> None:
        """Reset the backoff if the holder is new; at most once per initial delay."""
        now_s = self._tools.clock.now_s()
        is_due = now_s - self._renewed_s >= self.options.backoff.initial_s
        if is_due and all(observer.holder is not holder for observer in self._observers):
            self._renewed_s = now_s
            self.reset_backoff()

    def subscribe_load_reports(self, interval_s: float, listener: LoadListener) -> Cancel:
        """Call the listener with load reports until the returned callable is called."""
        if self._load_reports is None:
            from proxyless.channel.load_reports import LoadReports  # noqa: PLC0415 - few use it

            self._load_reports = LoadReports(self.address, self.options, self._tools)
            self._load_reports.on_connection(self.transport)
        return self._load_reports.subscribe(interval_s, listener)

    def close(self) -> None:
        """Cancel the attempt, let the connection drain. Idempotent."""
        self._observers.clear()
        self._step(Released())

    # Called by its connection

    def on_connected(self, connection: Connection, transport: ClientTransport) -> None:
        if self.state is State.SHUTDOWN:
            # The attempt was cancelled too late.
            connection.stop()
            return
        self._attempt = None
        self._connections += (connection,)
        transport.watch_waiting(self._scale)
        if self.transport is None:
            self.transport = transport
        else:
            self._group_transports(self.transport)
        self._step(Connected())
        self._scale()

    def on_failed(self, status: Status) -> None:
        self._attempt = None
        self._step(Failed(status, self._tools.clock.now_s()))

    def on_unusable(self, connection: Connection, status: Status) -> None:
        transport = connection.transport
        if transport is not None and transport.has_pinged_too_often:
            self._tools.keepalives.on_too_many_pings(self.options, connection.keepalive)
        lost = Lost(status, None if transport is None else transport.unusable_cause)
        was_open = connection in self._connections
        self._connections = tuple(each for each in self._connections if each is not connection)
        if not self._connections:
            self.transport = None
            self._step(lost)
        elif was_open and transport is not None:
            transport.leave_siblings()
            self._on_one_lost(lost)

    # Several connections (A105)

    def _scale(self) -> None:
        """Open another connection if calls wait, no connection has a free stream, and it may."""
        if self.transport is None or not self.transport.lacks_streams:
            return
        if len(self._connections) < self.connections_max:
            self._step(Needed(self._tools.clock.now_s()))
            return
        self._awaits_limit = True
        for observer in self._observers:
            if observer.connection_limit is not None:
                observer.connection_limit.add_listener(self._scale)

    def _on_one_lost(self, lost: Lost) -> None:
        """A connection is lost, and others are left: the state stays READY."""
        if self.meter is not None:
            self.meter.on_further_connection(lost)
        oldest = self._connections[0].transport
        assert oldest is not None, "a connection that takes calls has a transport"
        if oldest is not self.transport:
            self.transport = oldest
            self._notify()
        self._group_transports(oldest)
        self._scale()

    def _group_transports(self, oldest: ClientTransport) -> None:
        others = (each.transport for each in self._connections[1:])
        oldest.set_siblings(tuple(each for each in others if each is not None))

    # Enacting

    def _step(self, event: Event) -> None:
        connectivity = self._connectivity
        before = connectivity.state
        effects = connectivity.step(event)
        if connectivity.state is not before:
            if self.meter is not None:
                self.meter.on_change(before, event)
            # First, so that observers get this change before a timer without delay makes the next.
            self._publish()
        elif self.meter is not None and before is State.READY:
            self.meter.on_further_connection(event)
        for effect in effects:
            self._enact(effect)

    def _publish(self) -> None:
        trace = self._tools.trace
        if trace.active:
            state, reason = self.state, self._connectivity.reason
            trace.emit("subchannel.state", address=self.address, state=state, reason=reason)
        self._notify()

    def _notify(self) -> None:
        state, status = self._connectivity.state, self._connectivity.status
        for observer in self._observers:
            observer.on_change(state, status, self.transport)
        if self._load_reports is not None:
            self._load_reports.on_connection(self.transport)

    def _enact(self, effect: Effect) -> None:
        match effect:
            case Connect(timeout_s):
                self._attempt_timeout_s = timeout_s
                self._tools.connects.add(self._holder, self._start_attempt)
            case StopConnection():
                stopped, self.transport = self.connections, None
                self._connections, self._attempt, self._attempt_timeout_s = (), None, None
                for connection in stopped:
                    connection.stop()
            case StartBackoff(delay_s):
                self._is_backoff_over = False
                self._backoff_timer = self._tools.clock.call_later(delay_s, self._on_backoff_timer)
            case CancelBackoff():
                self._is_backoff_over = False
                self._backoff_timer.cancel()

    @property
    def _holder(self) -> object:
        for observer in self._observers:
            return observer.holder
        return None

    def _start_attempt(self) -> None:
        timeout_s, self._attempt_timeout_s = self._attempt_timeout_s, None
        if timeout_s is not None:
            self._attempt = Connection(self, self._tools, timeout_s)

    def _on_backoff_timer(self) -> None:
        self._is_backoff_over = True
        self._tools.connects.add_backoff_end(self._end_backoff)

    def _end_backoff(self) -> None:
        if self._is_backoff_over:
            self._is_backoff_over = False
            self._step(BackoffOver())
            self._scale()
