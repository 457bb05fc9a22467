"""Pool of subchannels, shared by all channels of one event loop.

Two policies that ask for the same address with the same `SubchannelOptions` (credentials, limits,
keepalive, backoff) get handles of one subchannel; releasing the last handle closes it.

A shared subchannel has one backoff, so a new handle may start in any connectivity state. A handle
has a holder: a channel, or a child of a policy that may be retained (A56). A new holder starts the
backoff again: alone it would connect at once (D47). A handle of a holder that has one already does
not, so a policy that makes its handles anew waits as long as before.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from proxyless.base import NULL_TRACE, OK, Address, State, Status, Trace
from proxyless.channel.connection import Connection, Connects, SubchannelTools
from proxyless.channel.health_registry import HealthCheckers
from proxyless.channel.subchannel import Subchannel
from proxyless.channel.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Collection

    from proxyless.channel.health_watch import ChannelHealth, HealthWatch
    from proxyless.channel.subchannel_options import SubchannelOptions
    from proxyless.lb.api import Cancel, LoadListener, StateListener
    from proxyless.runtime import Clock, Random
    from proxyless.transport import ClientTransport

# How long peers may take to let go of their connections when everything is closed.
CLOSE_TIMEOUT_S: Final = 1.0


class SubchannelPool:
    """The subchannels of one loop. Driven by the policies, through `acquire` and their handles."""

    def __init__(
        self, connector: Connects, *, clock: Clock, random: Random, trace: Trace = NULL_TRACE
    ) -> None:
        loop = asyncio.get_running_loop()
        self._tools = SubchannelTools(loop, connector, clock, random, trace)
        self.clock: Final = clock
        self._subchannels: dict[tuple[Address, SubchannelOptions], Subchannel] = {}
        self._handles: dict[SubchannelHandle, None] = {}
        # Those who ask the backends how they are, for handles.
        self.health_checkers: Final = HealthCheckers(self._tools)
        self._is_closed = False

    def __len__(self) -> int:
        """How many subchannels there are, however many handles they have."""
        return len(self._subchannels)

    @property
    def connections(self) -> Collection[Connection]:
        """Attempts, connections, and those that end with their last call."""
        return self._tools.connections

    def acquire(
        self,
        address: Address,
        options: SubchannelOptions,
        health: ChannelHealth | None = None,
        holder: object = None,
    ) -> SubchannelHandle:
        """A handle of the caller's own, to be released by it. Without health, all is well."""
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
        """For handles: this one is not used any more."""
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
        await self._wait(CLOSE_TIMEOUT_S)
        for connection in tuple(self.connections):
            connection.abort()
        await self._wait(None)

    def held_connections(self) -> list[Connection]:
        """Attempts and connections that somebody wants."""
        return [each for each in self.connections if each.is_held]

    async def wait_gone(self, connections: Collection[Connection]) -> None:
        """Return when these are gone, or soon after; those that somebody wants do not count."""
        tasks = [each.task for each in connections if not each.is_held]
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S)

    async def _wait(self, timeout_s: float | None) -> None:
        """Return when every connection is gone, or the time is up."""
        if tasks := [connection.task for connection in self.connections]:
            await asyncio.wait(tasks, timeout=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class SubchannelHandle:
    """One policy's end of a subchannel: what `lb.api.Subchannel` promises.

    Driven by its policy and by the subchannel, which others may use as well.
    """

    __slots__ = (
        "_health",
        "_health_watches",
        "_is_released",
        "_load_watches",
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
        self._watches: dict[Watch, None] = {}
        self._health_watches: tuple[HealthWatch, ...] = ()
        # What ends them; few, and none but for policies that care for load.
        self._load_watches: tuple[Cancel, ...] = ()
        self._is_released = False
        # Where calls are opened, if the state is READY. An attribute because each RPC asks for it.
        self.transport: ClientTransport | None = subchannel.transport
        subchannel.add_observer(self)

    @property
    def address(self) -> Address:
        return self._subchannel.address

    def watch(self, listener: StateListener) -> Cancel:
        self._check_held()
        watch = Watch(listener, self._pool.clock)

        def cancel() -> None:
            watch.cancel()
            self._watches.pop(watch, None)

        # Before the listener is told, because it may ask for a connection at once.
        self._watches[watch] = None
        listener(self._subchannel.state, self._subchannel.status)
        return cancel

    def watch_health(self, listener: StateListener) -> Cancel:
        self._check_held()
        if self._health is None:
            # Nobody checks it, so it is good, once and for all.
            listener(State.READY, OK)
            return _do_nothing
        watch = self._health.watch(
            self._subchannel, self._pool.health_checkers, listener, self._pool.clock
        )
        self._health_watches += (watch,)
        # A change is told soon, so nothing was told before this.
        listener(*watch.latest)
        return partial(self._end_health_watch, watch)

    def _end_health_watch(self, watch: HealthWatch) -> None:
        watch.cancel()
        self._health_watches = tuple(each for each in self._health_watches if each is not watch)

    def watch_load_reports(self, interval_s: float, listener: LoadListener) -> Cancel:
        self._check_held()
        unsubscribe = self._subchannel.subscribe_load_reports(interval_s, listener)

        def cancel() -> None:
            unsubscribe()
            self._load_watches = tuple(each for each in self._load_watches if each is not cancel)

        self._load_watches += (cancel,)
        return cancel

    def request_connection(self) -> None:
        if not self._is_released:
            self._subchannel.request_connection()

    def reset_backoff(self) -> None:
        if not self._is_released:
            self._subchannel.reset_backoff()

    def release(self) -> None:
        """Give it back. Idempotent."""
        if self._is_released:
            return
        self._is_released = True
        self.transport = None
        for watch in self._watches:
            watch.cancel()
        for health_watch in self._health_watches:
            health_watch.cancel()
        self._watches.clear()
        self._health_watches = ()
        for stop in self._load_watches:
            stop()
        self._subchannel.remove_observer(self)
        self._pool.on_release(self, self._subchannel)

    def _check_held(self) -> None:
        if self._is_released:
            raise ValueError(f"subchannel {self.address} was released: nobody can watch it")

    # What the subchannel says

    def on_change(self, state: State, status: Status, transport: ClientTransport | None) -> None:
        self.transport = transport
        for watch in self._watches:
            watch.post(state, status)


def _do_nothing() -> None:
    return
