"""Subchannel: one address, and at most one connection that takes calls.

`connectivity` decides on each event; a subchannel enacts: it owns the backoff timer and the current
`Connection`, and notifies its observers. `pool` gives each policy a handle of a shared subchannel,
with its own watchers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import Address, State, Status
from proxyless.channel.connection import Connection
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
    Released,
    Requested,
    StartBackoff,
    StopConnection,
)
from proxyless.runtime import IDLE_TIMER, Timer

if TYPE_CHECKING:
    from proxyless.channel.connection import SubchannelTools
    from proxyless.channel.load_reports import LoadReports
    from proxyless.channel.subchannel_options import SubchannelOptions
    from proxyless.lb.api import Cancel, LoadListener
    from proxyless.transport import ClientTransport


class Observer(Protocol):
    """Called on each change, inside the call that causes it, so it must act later."""

    # The channel or child policy that the observer belongs to, if any.
    holder: object

    def on_change(self, state: State, status: Status, transport: ClientTransport | None) -> None:
        """The transport is there if, and only if, the state is READY."""


class Subchannel:
    """One address, and at most one connection that takes calls.

    Observers are notified of each change except SHUTDOWN: a closed subchannel has none.
    """

    def __init__(
        self, address: Address, options: SubchannelOptions, tools: SubchannelTools
    ) -> None:
        # Fixed at construction.
        self.address: Final = address
        self.options: Final = options
        self._tools = tools
        # Changed by the methods below only.
        self._connectivity = Connectivity(options, tools.random)
        self._connection: Connection | None = None
        self._backoff_timer: Timer = IDLE_TIMER
        # While a step waits in the connect queue: the timeout of an attempt that has not started;
        # and whether the backoff timer has fired.
        self._attempt_timeout_s: float | None = None
        self._is_backoff_over = False
        self._observers: dict[Observer, None] = {}
        # When it was created, or a new holder last reset the backoff.
        self._renewed_s = tools.clock.now_s()
        # Where calls are opened; there if, and only if, the state is READY.
        self.transport: ClientTransport | None = None
        # Created for the first subscription.
        self._load_reports: LoadReports | None = None

    @property
    def state(self) -> State:
        return self._connectivity.state

    @property
    def status(self) -> Status:
        return self._connectivity.status

    @property
    def is_observed(self) -> bool:
        return bool(self._observers)

    def holds(self, connection: Connection) -> bool:
        return connection is self._connection

    def add_observer(self, observer: Observer) -> None:
        self._observers[observer] = None

    def remove_observer(self, observer: Observer) -> None:
        self._observers.pop(observer, None)

    def request_connection(self) -> None:
        self._step(Requested(self._tools.clock.now_s()))

    def reset_backoff(self) -> None:
        self._step(BackoffReset())

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
        self.transport = transport
        self._step(Connected())

    def on_failed(self, status: Status) -> None:
        self._connection = None
        self._step(Failed(status, self._tools.clock.now_s()))

    def on_unusable(self, connection: Connection, status: Status) -> None:
        transport = connection.transport
        if transport is not None and transport.has_pinged_too_often:
            self._tools.keepalives.on_too_many_pings(self.options, connection.keepalive)
        self._connection = self.transport = None
        self._step(Lost(status))

    # Enacting

    def _step(self, event: Event) -> None:
        before = self.state
        effects = self._connectivity.step(event)
        if self.state is not before:
            # First, so that observers get this change before a timer without delay makes the next.
            self._publish()
        for effect in effects:
            self._enact(effect)

    def _publish(self) -> None:
        state, status, trace = self.state, self.status, self._tools.trace
        if trace.active:
            reason = self._connectivity.reason
            trace.emit("subchannel.state", address=self.address, state=state, reason=reason)
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
                connection, self._connection, self.transport = self._connection, None, None
                if connection is None:
                    self._attempt_timeout_s = None
                else:
                    connection.stop()
            case StartBackoff(delay_s):
                self._is_backoff_over = False
                self._backoff_timer = self._tools.clock.call_later(delay_s, self._on_backoff_timer)
            case CancelBackoff():
                self._is_backoff_over = False
                self._backoff_timer.cancel()

    @property
    def _holder(self) -> object:
        return next((observer.holder for observer in self._observers), None)

    def _start_attempt(self) -> None:
        timeout_s, self._attempt_timeout_s = self._attempt_timeout_s, None
        if timeout_s is not None:
            self._connection = Connection(self, self._tools, timeout_s)

    def _on_backoff_timer(self) -> None:
        self._is_backoff_over = True
        self._tools.connects.add_backoff_end(self._end_backoff)

    def _end_backoff(self) -> None:
        if self._is_backoff_over:
            self._is_backoff_over = False
            self._step(BackoffOver())
