"""How does one address become a connection, again and again?

Specs: gRPC "Connection Backoff Protocol" and "Connectivity Semantics and API"; SUB-01 to SUB-09.

Theory of operation. `Connectivity` decides: an event goes in, the state changes, and what is to be
done comes out as effects. It knows no loop, so every state can meet every event in a test.
`Subchannel` enacts: it owns the backoff timer and the current `Connection`, and tells its
observers. A `Connection` is one attempt and what comes of it; its task ends when the socket is
gone, so whoever waits for the tasks knows that nothing is left.

    IDLE → (requested) CONNECTING → (connected) READY → (lost) IDLE
                       CONNECTING → (failed) TRANSIENT_FAILURE → (backoff over) IDLE

A subchannel is shared by those who want the same connection: `pool` counts them, and gives each a
handle with watchers of its own. Which RPC goes where is not decided here.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import (
    NULL_TRACE,
    OK,
    Address,
    Backoff,
    BackoffPolicy,
    State,
    Status,
    StatusCode,
    Trace,
)
from proxyless.base.frozen import frozen
from proxyless.channel.load_reports import LoadReports
from proxyless.runtime import IDLE_TIMER, Clock, Random, Timer
from proxyless.transport import ClientTransport, KeepaliveConfig, TransportOptions

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from proxyless.lb.api import Cancel, LoadListener

# "MIN_CONNECT_TIMEOUT" - gRPC Connection Backoff Protocol
MIN_CONNECT_TIMEOUT_S: Final = 20.0
# Options whose connections had to slow down. Past this the oldest is forgotten, and learned anew.
SLOWED_OPTIONS_MAX: Final = 256

_ABANDONED: Final = Status(StatusCode.UNAVAILABLE, "connection was abandoned by us")


# ---------------------------------------------------------------------------------------------
# Options


@frozen(kw_only=True)
class SubchannelOptions:
    """How to connect. Subchannels to one address with equal options are one and the same."""

    # Its connect_timeout_s is not used: how long an attempt may take depends on the backoff.
    transport: TransportOptions = field(default_factory=TransportOptions)
    # The host of the target, which TLS checks unless the transport's options override it.
    server_name: str | None = None
    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)
    min_connect_timeout_s: float = MIN_CONNECT_TIMEOUT_S

    def __post_init__(self) -> None:
        if not 0 < self.min_connect_timeout_s < inf:
            raise ValueError(
                f"min connect timeout {self.min_connect_timeout_s} s is not valid: "
                "wanted a finite time above 0 s"
            )


# ---------------------------------------------------------------------------------------------
# The decision


@frozen
class Requested:
    """Somebody wants a connection."""

    now_s: float


@frozen
class Connected:
    """The attempt succeeded: the peer's SETTINGS are here."""


@frozen
class Failed:
    """The attempt failed, or its time was up."""

    status: Status
    now_s: float


@frozen
class Lost:
    """The connection takes no more calls: closed, broken, or the peer is going away."""

    status: Status


@frozen
class BackoffOver:
    """The time to wait after a failure has passed."""


@frozen
class BackoffReset:
    """Somebody knows that waiting makes no sense any more."""


@frozen
class Released:
    """Nobody wants this subchannel any more."""


Event = Requested | Connected | Failed | Lost | BackoffOver | BackoffReset | Released


@frozen
class Connect:
    """Start an attempt, and give up after this time."""

    timeout_s: float


@frozen
class StopConnection:
    """Cancel the attempt, or let the connection end with its last call."""


@frozen
class StartBackoff:
    """Say after this time that the backoff is over."""

    delay_s: float


@frozen
class CancelBackoff:
    """Do not say it."""


Effect = Connect | StopConnection | StartBackoff | CancelBackoff


class Connectivity:
    """In which state is a subchannel, and what is to be done? Driven by events.

    An event that does not fit the state changes nothing.
    """

    def __init__(self, options: SubchannelOptions, random: Random) -> None:
        # Fixed at construction.
        self._min_connect_timeout_s = options.min_connect_timeout_s
        self._random = random
        # What an observer sees. The status is OK unless the state is TRANSIENT_FAILURE.
        self.state = State.IDLE
        self.status = OK
        self.reason = "new"
        # The next delay, and when the one of the last attempt is over.
        self._backoff = Backoff(options.backoff)
        self._backoff_over_s = -inf

    def step(self, event: Event) -> tuple[Effect, ...]:
        """Take the event; say what is to be done, in this order."""
        effects: tuple[Effect, ...] = ()
        match self.state, event:
            case State.IDLE, Requested(now_s):
                effects = (self._start_attempt(now_s),)
            case State.CONNECTING, Connected():
                self._backoff.reset()
                self._enter(State.READY, "connected")
            case State.CONNECTING, Failed(status, now_s):
                self._enter(State.TRANSIENT_FAILURE, status.details, status)
                effects = (StartBackoff(max(self._backoff_over_s - now_s, 0.0)),)
            case State.READY, Lost(status):
                # Not a failure to connect, so there is no delay: SUB-05.
                self._enter(State.IDLE, status.details)
            case State.TRANSIENT_FAILURE, BackoffOver():
                # Connecting again is for those to decide who want the connection: SUB-01.
                self._enter(State.IDLE, "backoff over")
            case state, BackoffReset():
                effects = self._reset_backoff(state)
            case state, Released():
                self._enter(State.SHUTDOWN, "released")
                effects = _WHEN_RELEASED[state]
            case _:
                pass
        return effects

    def _start_attempt(self, now_s: float) -> Connect:
        delay_s = self._backoff.next_delay_s(self._random)
        # The delay counts from the start of the attempt, so part of it may pass meanwhile: SUB-03.
        self._backoff_over_s = now_s + delay_s
        self._enter(State.CONNECTING, "connection requested")
        return Connect(max(self._min_connect_timeout_s, delay_s))

    def _reset_backoff(self, state: State) -> tuple[Effect, ...]:
        self._backoff.reset()
        # An attempt under way will not be followed by a wait: SUB-06.
        self._backoff_over_s = -inf
        if state is not State.TRANSIENT_FAILURE:
            return ()
        self._enter(State.IDLE, "backoff reset")
        return (CancelBackoff(),)

    def _enter(self, state: State, reason: str, status: Status = OK) -> None:
        self.state, self.reason, self.status = state, reason, status


_WHEN_RELEASED: Final[dict[State, tuple[Effect, ...]]] = {
    State.IDLE: (),
    State.CONNECTING: (StopConnection(),),
    State.READY: (StopConnection(),),
    State.TRANSIENT_FAILURE: (CancelBackoff(),),
    State.SHUTDOWN: (),
}


# ---------------------------------------------------------------------------------------------
# The shell


class Connects(Protocol):
    """What makes connections: the part of `Connector` that is used here."""

    async def connect(
        self,
        address: Address,
        options: TransportOptions,
        *,
        server_name: str | None = None,
        on_unusable: Callable[[Status], None],
    ) -> ClientTransport | Status: ...


class Observer(Protocol):
    """Who is told of changes while they happen: it must remember, and act later."""

    # The channel, or the child of a policy, that uses the subchannel through it; None: none.
    holder: object

    def on_change(self, state: State, status: Status, transport: ClientTransport | None) -> None:
        """The transport is there if, and only if, the state is READY."""
        ...


class KeepaliveTimes:
    """How often may connections ask whether their peers are there, after what servers said?

    Servers are configured alike more often than not, so what one says counts for all connections
    with the same options, and it outlives the subchannel that was told.
    """

    def __init__(self) -> None:
        self._slowed: dict[SubchannelOptions, KeepaliveConfig] = {}

    def choose(self, options: SubchannelOptions) -> KeepaliveConfig:
        return self._slowed.get(options, options.transport.keepalive)

    def on_too_many_pings(self, options: SubchannelOptions, used: KeepaliveConfig) -> None:
        """A server complained about a connection that used this."""
        # Many connections may be told at once; together they double the time once.
        if used.time_s < self.choose(options).time_s:
            return
        self._slowed[options] = used.doubled()
        if len(self._slowed) > SLOWED_OPTIONS_MAX:
            del self._slowed[next(iter(self._slowed))]


@frozen
class SubchannelTools:
    """What all subchannels of one loop share."""

    loop: asyncio.AbstractEventLoop
    connector: Connects
    clock: Clock
    random: Random
    trace: Trace = NULL_TRACE
    keepalives: KeepaliveTimes = field(default_factory=KeepaliveTimes)
    # Everything that has a task or a socket. In order, so that a simulated world repeats itself.
    connections: dict[Connection, None] = field(default_factory=dict)


class Connection:
    """One attempt to connect, and what comes of it: owns the task, and through it the socket.

    Driven by its subchannel (`stop`), by the owner of all connections (`close`) and the connector.
    """

    def __init__(self, subchannel: Subchannel, tools: SubchannelTools, timeout_s: float) -> None:
        self._subchannel = subchannel
        self._tools = tools
        options = subchannel.options
        self.keepalive = tools.keepalives.choose(options)
        self._options = replace(
            options.transport, connect_timeout_s=timeout_s, keepalive=self.keepalive
        )
        self.transport: ClientTransport | None = None
        self.task = tools.loop.create_task(self._run())
        tools.connections[self] = None
        self.task.add_done_callback(self._on_done)

    async def _run(self) -> None:
        result = await self._connect()
        if isinstance(result, Status):
            self._subchannel.on_failed(result)
            return
        self.transport = result
        self._subchannel.on_connected(self, result)
        try:
            await result.wait_closed()
        finally:
            # Void, unless the task was cancelled because the loop is about to close.
            result.abort(_ABANDONED)

    async def _connect(self) -> ClientTransport | Status:
        subchannel = self._subchannel
        try:
            return await self._tools.connector.connect(
                subchannel.address,
                self._options,
                server_name=subchannel.options.server_name,
                on_unusable=partial(subchannel.on_unusable, self),
            )
        except Exception as error:
            # A connector returns trouble, so this is a bug, or a check of the peer that raised.
            # RPCs must not wait for ever because of it.
            text = f"{subchannel.address}: connecting raised {error!r}"
            self._tools.loop.call_exception_handler({"message": text, "exception": error})
            return Status(StatusCode.UNAVAILABLE, text)

    def _on_done(self, _: asyncio.Task[None]) -> None:
        self._tools.connections.pop(self, None)

    @property
    def is_held(self) -> bool:
        """Its subchannel still wants it."""
        return self._subchannel.holds(self)

    def stop(self) -> None:
        """Cancel the attempt; or take no new calls, and close when the last one has ended."""
        if self.transport is None:
            self.task.cancel()
        else:
            # Soon: calls that wait for a stream end inside, and whoever released does not expect
            # that before the release has returned.
            self._tools.loop.call_soon(self.transport.drain)

    def close(self) -> None:
        """End everything now, calls included."""
        if self.transport is None:
            self.task.cancel()
        else:
            self.transport.close()

    def abort(self) -> None:
        """End it even if the peer does not take what we have to say."""
        if self.transport is not None:
            self.transport.abort(_ABANDONED)


class Subchannel:
    """One address, and at most one connection that takes calls.

    Driven by those who want the connection, by the connection itself and by the backoff timer.
    Observers hear of every change, but for the last: a closed subchannel has none.
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
        self._observers: dict[Observer, None] = {}
        # When it was created, or a new holder last reset the backoff.
        self._renewed_s = tools.clock.now_s()
        # Where calls are opened; there if, and only if, the state is READY.
        self.transport: ClientTransport | None = None
        # There once somebody wanted them.
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
        """Tell the listener of the backend's load until the returned callable is called."""
        if self._load_reports is None:
            self._load_reports = LoadReports(self.address, self.options, self._tools)
            self._load_reports.on_connection(self.transport)
        return self._load_reports.subscribe(interval_s, listener)

    def close(self) -> None:
        """Cancel the attempt, let the connection drain. Idempotent."""
        self._observers.clear()
        self._step(Released())

    # What its connection says. There is a next one only after it failed or was lost.

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
            # First, so that this change is told before a timer without delay makes the next.
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
                self._connection = Connection(self, self._tools, timeout_s)
            case StopConnection():
                connection, self._connection, self.transport = self._connection, None, None
                assert connection is not None, "CONNECTING and READY have a connection"
                connection.stop()
            case StartBackoff(delay_s):
                self._backoff_timer = self._tools.clock.call_later(delay_s, self._on_backoff_over)
            case CancelBackoff():
                self._backoff_timer.cancel()

    def _on_backoff_over(self) -> None:
        self._step(BackoffOver())
