"""Pool of subchannels, shared by all channels of one event loop.

Policies that use the same address and `SubchannelOptions` (credentials, limits, keepalive, backoff)
get handles of one subchannel; releasing the last handle closes it.

A shared subchannel has one backoff, so a new handle may start in any connectivity state. A handle
has a holder: a channel, or a child of a policy that may be retained (A56). A new holder starts the
backoff again: alone it would connect at once (D47). A handle of a holder that has one already does
not, so a policy that makes its handles anew waits as long as before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

from proxyless.base import NULL_TRACE, OK, Address, State, Status, Trace
from proxyless.channel.connect_queue import ConnectQueue
from proxyless.channel.connection import Connection, Connects, SubchannelTools
from proxyless.channel.health_registry import HealthCheckers
from proxyless.channel.state_watch import StateWatch
from proxyless.channel.subchannel import Subchannel
from proxyless.runtime import UNLIMITED_WORK

if TYPE_CHECKING:
    from collections.abc import Collection

    from proxyless.channel.health_watch import ChannelHealth
    from proxyless.channel.subchannel_options import SubchannelOptions
    from proxyless.lb.api import Cancel, LoadListener, StateListener
    from proxyless.runtime import Clock, Random, Work
    from proxyless.transport import ClientTransport

# How long peers may take to close their connections when everything is closed.
CLOSE_TIMEOUT_S: Final = 1.0


class SubchannelPool:
    """The subchannels of one loop, their handles and health checkers."""

    def __init__(
        self,
        connector: Connects,
        *,
        clock: Clock,
        random: Random,
        trace: Trace = NULL_TRACE,
        work: Work = UNLIMITED_WORK,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._tools = SubchannelTools(
            loop, connector, clock, random, trace, connects=ConnectQueue(work)
        )
        self.clock: Final = clock
        self._subchannels: dict[tuple[Address, SubchannelOptions], Subchannel] = {}
        self._handles: dict[SubchannelHandle, None] = {}
        self.health_checkers: Final = HealthCheckers(self._tools)
        self._is_closed = False

    def __len__(self) -> int:
        """Number of subchannels."""
        return len(self._subchannels)

    @property
    def connections(self) -> Collection[Connection]:
        """Attempts and connections, including those that drain."""
        return self._tools.connections

    def acquire(
        self,
        address: Address,
        options: SubchannelOptions,
        health: ChannelHealth | None = None,
        holder: object = None,
    ) -> SubchannelHandle:
        """A new handle, which the caller releases. Without `health`, it counts as healthy."""
        if self._is_closed:
            raise ValueError(f"subchannel pool is closed: no connection to {address}")
        key = (address, options)
        subchannel = self._subchannels.get(key)
        if subchannel is None:
            subchannel = self._subchannels[key] = Subchannel(address, options, self._tools)
        elif subchannel.transport is None:
            subchannel.on_holder(holder)
        handle = SubchannelHandle(self, subchannel, health, holder)
        self._handles[handle] = None
        return handle

    def on_release(self, handle: SubchannelHandle, subchannel: Subchannel) -> None:
        """Called by a handle."""
        del self._handles[handle]
        if not subchannel.is_observed:
            del self._subchannels[subchannel.address, subchannel.options]
            subchannel.close()

    async def aclose(self) -> None:
        """Release every handle, end every call, and return when no socket is left. Idempotent."""
        self._is_closed = True
        for handle in tuple(self._handles):
            handle.release()
        for connection in tuple(self.connections):
            connection.close()
        await self.wait_gone(self.connections)
        for connection in tuple(self.connections):
            connection.abort()
        await self.wait_gone(self.connections, None)

    def held_connections(self) -> list[Connection]:
        """Attempts and connections that a subchannel holds."""
        return [each for each in self.connections if each.is_held]

    async def wait_gone(
        self, connections: Collection[Connection], timeout_s: float | None = CLOSE_TIMEOUT_S
    ) -> None:
        """Return when these are closed or after the timeout. Those that are held do not count."""
        if tasks := [each.task for each in connections if not each.is_held]:
            await asyncio.wait(tasks, timeout=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class SubchannelHandle:
    """One policy's handle of a shared subchannel. Implements `lb.api.Subchannel`."""

    __slots__ = (
        "_cancels",
        "_health",
        "_is_released",
        "_pool",
        "_subchannel",
        "_watches",
        "holder",
        "transport",
    )

    def __init__(
        self,
        pool: SubchannelPool,
        subchannel: Subchannel,
        health: ChannelHealth | None,
        holder: object,
    ) -> None:
        # Fixed at construction.
        self._pool = pool
        self._subchannel = subchannel
        self._health = health
        self.holder = holder
        # Changed by the policy.
        self._watches: dict[StateWatch, None] = {}
        # Cancel watches of health and load.
        self._cancels: tuple[Cancel, ...] = ()
        self._is_released = False
        # Present if the state is READY. An attribute, because each RPC reads it.
        self.transport: ClientTransport | None = subchannel.transport
        subchannel.add_observer(self)

    @property
    def address(self) -> Address:
        return self._subchannel.address

    def watch(self, listener: StateListener) -> Cancel:
        self._check_held()
        watch = StateWatch(listener, self._pool.clock)

        def cancel() -> None:
            watch.cancel()
            self._watches.pop(watch, None)

        # First, because the listener may request a connection.
        self._watches[watch] = None
        listener(self._subchannel.state, self._subchannel.status)
        return cancel

    def watch_health(self, listener: StateListener) -> Cancel:
        self._check_held()
        if self._health is None:
            listener(State.READY, OK)
            return _do_nothing
        watch = self._health.watch(
            self._subchannel, self._pool.health_checkers, listener, self._pool.clock
        )
        cancel = self._cancel_on_release(watch.cancel)
        # Changes are delivered in the next turn, so this call is the first.
        listener(*watch.latest)
        return cancel

    def watch_load_reports(self, interval_s: float, listener: LoadListener) -> Cancel:
        self._check_held()
        cancel = self._subchannel.subscribe_load_reports(interval_s, listener)
        return self._cancel_on_release(cancel)

    def _cancel_on_release(self, cancel_watch: Cancel) -> Cancel:
        def cancel() -> None:
            cancel_watch()
            self._cancels = tuple(each for each in self._cancels if each is not cancel)

        self._cancels += (cancel,)
        return cancel

    def request_connection(self) -> None:
        if not self._is_released:
            self._subchannel.request_connection()

    def reset_backoff(self) -> None:
        if not self._is_released:
            self._subchannel.reset_backoff()

    def release(self) -> None:
        """Idempotent."""
        if self._is_released:
            return
        self._is_released = True
        self.transport = None
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()
        for cancel in self._cancels:
            cancel()
        self._subchannel.remove_observer(self)
        self._pool.on_release(self, self._subchannel)

    def _check_held(self) -> None:
        if self._is_released:
            raise ValueError(f"subchannel {self.address} was released: it cannot be watched")

    # Called by the subchannel

    def on_change(self, state: State, status: Status, transport: ClientTransport | None) -> None:
        self.transport = transport
        for watch in self._watches:
            watch.notify(state, status)


def _do_nothing() -> None:
    return
