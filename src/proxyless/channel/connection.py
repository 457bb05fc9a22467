"""Connection: one attempt to connect a subchannel, and the transport that comes of it.

Its task ends when the socket is closed, so when all tasks have ended no socket is left.
"""

from __future__ import annotations

import asyncio
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import NULL_TRACE, Status, StatusCode, Trace
from proxyless.base.frozen import frozen
from proxyless.channel.connect_queue import ConnectQueue
from proxyless.runtime import UNLIMITED_WORK
from proxyless.runtime.tasks import create_owned_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import Address
    from proxyless.channel.subchannel_options import SubchannelOptions
    from proxyless.runtime import Clock, Random
    from proxyless.transport import ClientTransport, KeepaliveConfig, TransportOptions

# Options whose keepalive time was raised. Past this the oldest entry is removed.
SLOWED_OPTIONS_MAX: Final = 256

_ABANDONED: Final = Status(StatusCode.UNAVAILABLE, "connection was abandoned by us")


class Connects(Protocol):
    """The method of `Connector` that is used here."""

    async def connect(
        self,
        address: Address,
        options: TransportOptions,
        *,
        server_name: str | None = None,
        on_unusable: Callable[[Status], None],
    ) -> ClientTransport | Status: ...


class KeepaliveTimes:
    """Keepalive times, raised after servers complained about too many pings.

    Servers are usually configured alike, so a complaint applies to all connections with the same
    options, and outlives the subchannel that received it.
    """

    def __init__(self) -> None:
        self._slowed: dict[SubchannelOptions, KeepaliveConfig] = {}

    def choose(self, options: SubchannelOptions) -> KeepaliveConfig:
        return self._slowed.get(options, options.transport.keepalive)

    def on_too_many_pings(self, options: SubchannelOptions, used: KeepaliveConfig) -> None:
        """A server complained about a connection that used this."""
        # Simultaneous complaints double the time only once.
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
    # Everything that has a task or a socket. Ordered, so that simulations are reproducible.
    connections: dict[Connection, None] = field(default_factory=dict)
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
    """One attempt to connect, and the transport if it succeeds. Owns the task and the socket."""

    def __init__(
        self, subchannel: ConnectionOwner, tools: SubchannelTools, timeout_s: float
    ) -> None:
        self._subchannel = subchannel
        self._tools = tools
        options = subchannel.options
        self.keepalive = tools.keepalives.choose(options)
        self._options = replace(
            options.transport, connect_timeout_s=timeout_s, keepalive=self.keepalive
        )
        self.transport: ClientTransport | None = None
        self.task = create_owned_task(tools.loop, self._run())
        tools.connections[self] = None
        self.task.add_done_callback(self._on_done)

    async def _run(self) -> None:
        result = await self._connect()
        if isinstance(result, Status):
            if not self._tools.loop.is_closed():
                self._subchannel.on_failed(result)
            return
        self.transport = result
        self._subchannel.on_connected(self, result)
        try:
            await result.wait_closed()
        except asyncio.CancelledError:  # The loop is about to close.
            result.abort(_ABANDONED)
            raise

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
            # A connector returns errors, so this is a bug, or a check of the peer that raised.
            # Without a status RPCs would wait for ever.
            text = f"{subchannel.address}: connecting raised {error!r}"
            # On a closed loop the error is that of cleaning up without one.
            if not self._tools.loop.is_closed():
                self._tools.loop.call_exception_handler({"message": text, "exception": error})
            return Status(StatusCode.UNAVAILABLE, text)

    def _on_done(self, _: asyncio.Task[None]) -> None:
        self._tools.connections.pop(self, None)

    @property
    def is_held(self) -> bool:
        return self._subchannel.holds(self)

    def stop(self) -> None:
        """Cancel the attempt; or take no new calls, and close when the last one has ended."""
        if self.transport is None:
            self.task.cancel()
        else:
            # Not inside this call: `drain` ends calls that wait for a stream.
            self._tools.loop.call_soon(self.transport.drain)

    def close(self) -> None:
        """End everything now, calls included."""
        if self.transport is None:
            self.task.cancel()
        else:
            self.transport.close()

    def abort(self) -> None:
        """Close the socket without flushing."""
        if self.transport is not None:
            self.transport.abort(_ABANDONED)
