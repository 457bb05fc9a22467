"""Connection: one attempt to connect a subchannel, and the resulting transport.

All attempts that are under way, and all that have a socket, are in `Connections`: when it is empty,
no socket is left.
"""

from __future__ import annotations

import asyncio
from dataclasses import field, replace
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import NULL_TRACE, Status, StatusCode, Trace
from proxyless.base.frozen import frozen
from proxyless.channel.connect_queue import ConnectQueue
from proxyless.runtime import UNLIMITED_WORK
from proxyless.runtime.tasks import create_owned_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxyless.base import Address
    from proxyless.channel.subchannel_options import SubchannelOptions
    from proxyless.runtime import Clock, Random
    from proxyless.transport import ClientTransport, KeepaliveConfig, TransportOptions
    from proxyless.transport.attempt import Attempt, OnDone

# Options whose keepalive time was raised. Past this the oldest entry is removed.
SLOWED_OPTIONS_MAX: Final = 256

# "Each entity has an unique ID within the process" (channelz): channels, subchannels, connections.
next_id: Final = count(1).__next__

_ABANDONED: Final = Status(StatusCode.UNAVAILABLE, "connection was abandoned by us")


class Connects(Protocol):
    """The method of `Connector` that is used here."""

    def start(
        self,
        address: Address,
        options: TransportOptions,
        *,
        server_name: str | None = None,
        on_done: OnDone,
        on_unusable: Callable[[Status], None],
    ) -> Attempt: ...


class KeepaliveTimes:
    """Keepalive times, raised after servers complained about too many pings.

    Servers are usually configured alike, so a complaint applies to all connections with the same
    options, and outlives the subchannel that received it.
    """

    def __init__(self) -> None:
        self._slowed: dict[SubchannelOptions, KeepaliveConfig] = {}

    def choose(self, options: SubchannelOptions) -> KeepaliveConfig:
        keepalive = options.transport.keepalive
        # Hashing options is slow, and servers seldom complain.
        return self._slowed.get(options, keepalive) if self._slowed else keepalive

    def on_too_many_pings(self, options: SubchannelOptions, used: KeepaliveConfig) -> None:
        """A server complained about a connection that used this config."""
        # Simultaneous complaints double the time only once.
        if used.time_s < self.choose(options).time_s:
            return
        self._slowed[options] = used.doubled()
        if len(self._slowed) > SLOWED_OPTIONS_MAX:
            del self._slowed[next(iter(self._slowed))]


class Connections:
    """All attempts and all sockets. Ordered, so that simulations are reproducible."""

    __slots__ = ("_all", "_emptied", "_guard")

    def __init__(self) -> None:
        self._all: dict[Connection, None] = {}
        # While there are connections: a task that aborts them when the loop is about to close, and
        # the future that ends it.
        self._guard: asyncio.Task[None] | None = None
        self._emptied: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._all)

    def __contains__(self, connection: object) -> bool:
        return connection in self._all

    def add(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._all[connection] = None
        if self._emptied is None:
            self._emptied = loop.create_future()
            self._guard = create_owned_task(loop, self._abort_at_loop_end(self._emptied))

    def remove(self, connection: Connection) -> None:
        """Idempotent."""
        self._all.pop(connection, None)
        if not self._all and self._emptied is not None:
            if not self._emptied.done():
                self._emptied.set_result(None)
            self._emptied = None

    async def wait_guard(self) -> None:
        """Return when the guard has ended, if there are no connections."""
        guard = self._guard
        if guard is not None and not self._all:
            await asyncio.wait([guard])

    async def _abort_at_loop_end(self, emptied: asyncio.Future[None]) -> None:
        """Abort all connections when this task is cancelled, as `asyncio.run` does at its end."""
        try:
            await emptied
        except asyncio.CancelledError:
            for connection in tuple(self._all):
                connection.abort()
            raise


@frozen
class SubchannelTools:
    """Dependencies that all subchannels of one loop share."""

    loop: asyncio.AbstractEventLoop
    connector: Connects
    clock: Clock
    random: Random
    trace: Trace = NULL_TRACE
    keepalives: KeepaliveTimes = field(default_factory=KeepaliveTimes)
    connections: Connections = field(default_factory=Connections)
    connects: ConnectQueue = field(default_factory=lambda: ConnectQueue(UNLIMITED_WORK))


class ConnectionOwner(Protocol):
    """The methods of a subchannel that its connections use."""

    @property
    def address(self) -> Address: ...
    @property
    def options(self) -> SubchannelOptions: ...

    def holds(self, connection: Connection) -> bool: ...
    def on_connected(self, connection: Connection, transport: ClientTransport) -> None: ...
    def on_failed(self, status: Status) -> None: ...
    def on_unusable(self, connection: Connection, status: Status) -> None: ...


class Connection:
    """One attempt to connect, and the transport if it succeeds. Owns both."""

    __slots__ = (
        "_attempt",
        "_gone",
        "_options",
        "_subchannel",
        "_tools",
        "id",
        "keepalive",
        "transport",
    )

    def __init__(
        self, subchannel: ConnectionOwner, tools: SubchannelTools, timeout_s: float
    ) -> None:
        self.id: Final = next_id()
        self._subchannel = subchannel
        self._tools = tools
        options = subchannel.options
        self.keepalive = tools.keepalives.choose(options)
        self._options = _attempt_options(options.transport, timeout_s, self.keepalive)
        self.transport: ClientTransport | None = None
        # Created by the first `wait_gone`.
        self._gone: asyncio.Future[None] | None = None
        tools.connections.add(self, tools.loop)
        # None after the attempt.
        self._attempt: Attempt | None = tools.connector.start(
            subchannel.address,
            self._options,
            server_name=options.server_name,
            on_done=self._on_done,
            on_unusable=self._on_unusable,
        )

    def _on_done(self, result: ClientTransport | Status | None) -> None:
        """The attempt is over; None if it was cancelled."""
        self._attempt = None
        if result is None:
            self._on_gone()
        elif isinstance(result, Status):
            self._subchannel.on_failed(result)
            self._on_gone()
        else:
            self.transport = result
            result.on_closed = self._on_gone
            self._subchannel.on_connected(self, result)

    def _on_unusable(self, status: Status) -> None:
        self._subchannel.on_unusable(self, status)

    def _on_gone(self) -> None:
        """The attempt has ended without a connection, or the socket is closed."""
        self._tools.connections.remove(self)
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def when_gone(self) -> asyncio.Future[None]:
        """A future that is done when the attempt is over and no socket is left."""
        if self._gone is None:
            self._gone = self._tools.loop.create_future()
            if self not in self._tools.connections:
                self._gone.set_result(None)
        return self._gone

    @property
    def is_held(self) -> bool:
        return self._subchannel.holds(self)

    def stop(self) -> None:
        """Cancel the attempt; or take no new calls, and close when the last one has ended."""
        if self.transport is None:
            self._cancel()
        else:
            # Not inside this call: `drain` ends calls that wait for a stream.
            self._tools.loop.call_soon(self.transport.drain)

    def close(self) -> None:
        """End everything now, calls included."""
        if self.transport is None:
            self._cancel()
        else:
            self.transport.close()

    def _cancel(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()

    def abort(self) -> None:
        """Close the socket without flushing."""
        if self.transport is None:
            self._cancel()
        else:
            self.transport.abort(_ABANDONED)


def _attempt_options(
    options: TransportOptions, timeout_s: float, keepalive: KeepaliveConfig
) -> TransportOptions:
    # Most attempts share the options, which saves an object for each endpoint.
    if timeout_s == options.connect_timeout_s and keepalive is options.keepalive:
        return options
    return replace(options, connect_timeout_s=timeout_s, keepalive=keepalive)
