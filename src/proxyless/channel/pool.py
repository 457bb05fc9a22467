"""Pool of subchannels, shared by all channels of one event loop.

Policies that use the same address and `SubchannelOptions` (credentials, limits, keepalive, backoff)
get handles of one subchannel; releasing the last handle closes it.

A shared subchannel has one backoff, so a new handle may start in any connectivity state. A handle
has a holder: a channel, or a child of a policy that may be retained (A56). A new holder resets
the backoff: alone it would connect at once (D47). A further handle of the same holder does not, so
a policy that recreates its handles waits as long as before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final, Self

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    NULL_TRACE,
    OK,
    Address,
    Attributes,
    State,
    Status,
    Trace,
)
from proxyless.channel.connect_queue import ConnectQueue
from proxyless.channel.connection import Connection, Connects, SubchannelTools
from proxyless.channel.health_registry import HealthCheckers
from proxyless.channel.state_watch import StateNotifications, StateWatch
from proxyless.channel.subchannel import Subchannel
from proxyless.lb.api import no_op
from proxyless.runtime import UNLIMITED_WORK

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from proxyless.channel.health_watch import ChannelHealth, HealthWatch
    from proxyless.channel.subchannel_options import SubchannelOptions
    from proxyless.lb.api import Cancel, LoadListener, StateListener
    from proxyless.lb.connection_limit import ConnectionLimit
    from proxyless.metrics import Metrics
    from proxyless.runtime import Clock, Random, Work
    from proxyless.transport import ClientTransport

# Handles that are released, and connections that are closed, in one turn of the loop: about 10 ms.
RELEASED_PER_TURN: Final = 500
CLOSED_PER_TURN: Final = 200
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
        self.notifications: Final = StateNotifications(clock, work)
        # By options and address; no inner dict is empty.
        self._subchannels: dict[SubchannelOptions, dict[Address, Subchannel]] = {}
        # The last options and their subchannels: hashing options takes longer than the rest of
        # `acquire`, and thousands of endpoints share them.
        self._last: tuple[SubchannelOptions | None, dict[Address, Subchannel]] = (None, {})
        self._handles: dict[SubchannelHandle, None] = {}
        # The number of handles of each channel.
        self._handles_of: Counter[object] = Counter()
        self.health_checkers: Final = HealthCheckers(self._tools)
        self._is_closed = False

    def __len__(self) -> int:
        """Number of subchannels."""
        return sum(map(len, self._subchannels.values()))

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
        owner: object = None,
    ) -> SubchannelHandle:
        """A new handle, which the caller releases. Without `health`, it counts as healthy.

        `owner` is the channel that `subchannels_of` finds it by.
        """
        if self._is_closed:
            raise ValueError(f"subchannel pool is closed: no connection to {address}")
        by_address = self._find(options)
        subchannel = by_address.get(address)
        if subchannel is None:
            subchannel = by_address[address] = Subchannel(address, options, self._tools)
        elif subchannel.transport is None:
            subchannel.on_holder(holder)
        handle = SubchannelHandle(self, subchannel, health, holder)
        handle.owner = owner
        self._handles[handle] = None
        self._handles_of[owner] += 1
        return handle

    def on_release(self, handle: SubchannelHandle, subchannel: Subchannel) -> None:
        """Called by a handle."""
        del self._handles[handle]
        self._handles_of[handle.owner] -= 1
        if not self._handles_of[handle.owner]:
            del self._handles_of[handle.owner]
        if not subchannel.is_observed:
            by_address = self._find(subchannel.options)
            del by_address[subchannel.address]
            if not by_address:
                del self._subchannels[subchannel.options]
                self._last = (None, {})
            subchannel.close()

    def _find(self, options: SubchannelOptions) -> dict[Address, Subchannel]:
        """The subchannels with these options, by address; the caller adds one, or removes one."""
        last, by_address = self._last
        if last is not options:
            by_address = self._subchannels.setdefault(options, {})
            self._last = (options, by_address)
        return by_address

    def subchannels_of(self, owner: object) -> list[Subchannel]:
        """The subchannels of a channel, each once."""
        found = (each.subchannel for each in self._handles if each.owner is owner)
        return list(dict.fromkeys(found))

    def subchannels_at(self, address: Address) -> list[Subchannel]:
        """The subchannels of an address; more than one if their options differ."""
        by_address = self._subchannels.values()
        return [found for each in by_address if (found := each.get(address)) is not None]

    async def aclose(self) -> None:
        """Release every handle, end every call, and return when no socket is left. Idempotent."""
        self._is_closed = True
        while self._handles:
            for handle in tuple(islice(self._handles, RELEASED_PER_TURN)):
                handle.release()
            if self._handles:
                await self._next_turn()
        await self._close_connections(Connection.close)
        await self.wait_gone(self.connections)
        await self._close_connections(Connection.abort)
        await self.wait_gone(self.connections, None)

    async def _close_connections(self, close: Callable[[Connection], None]) -> None:
        for number, connection in enumerate(tuple(self.connections), 1):
            close(connection)
            if not number % CLOSED_PER_TURN:
                await self._next_turn()

    async def _next_turn(self) -> None:
        turn = self._tools.loop.create_future()
        self._tools.loop.call_soon(turn.set_result, None)
        await turn

    def connections_of(self, owner: object) -> list[Connection]:
        """Attempts and connections of the subchannels of a channel."""
        return [each for found in self.subchannels_of(owner) for each in found.connections]

    async def wait_released(self, owner: object) -> None:
        """Return when the channel has no handle, after its policy was closed."""
        while owner in self._handles_of:
            await self._next_turn()

    async def wait_gone(
        self, connections: Collection[Connection], timeout_s: float | None = CLOSE_TIMEOUT_S
    ) -> None:
        """Return when these are closed or after the timeout. Those that are held do not count."""
        if gone := [each.when_gone() for each in connections if not each.is_held]:
            await asyncio.wait(gone, timeout=timeout_s)
        await self._tools.connections.wait_guard()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class SubchannelHandle:
    """One policy's handle of a shared subchannel. Implements `lb.api.Subchannel`."""

    __slots__ = (
        "_cancels",
        "_health",
        "_health_watches",
        "_is_released",
        "_pool",
        "_subchannel",
        "_watches",
        "attributes",
        "connection_limit",
        "connections_cap",
        "holder",
        "owner",
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
        self.owner: object = None
        self.attributes: Attributes = EMPTY_ATTRIBUTES
        # Set by the channel: the limit of the channel or the cluster, and the channel's own (A105).
        self.connection_limit: ConnectionLimit | None = None
        self.connections_cap = 1
        # Changed by the policy.
        self._watches: dict[StateWatch, None] = {}
        self._health_watches: dict[HealthWatch, None] = {}
        # Cancel watches of load.
        self._cancels: tuple[Cancel, ...] = ()
        self._is_released = False
        # Present if the state is READY. An attribute, because each RPC reads it.
        self.transport: ClientTransport | None = subchannel.transport
        subchannel.add_observer(self)

    @property
    def address(self) -> Address:
        return self._subchannel.address

    @property
    def subchannel(self) -> Subchannel:
        return self._subchannel

    @property
    def connections_max(self) -> int:
        limit = self.connection_limit
        return 1 if limit is None else min(limit.value, self.connections_cap)

    def watch(self, listener: StateListener) -> Cancel:
        self._check_held()
        watch = StateWatch(listener, self._pool.notifications, self._watches)
        # First, because the listener may request a connection.
        self._watches[watch] = None
        listener(self._subchannel.state, self._subchannel.status)
        return watch.cancel

    def watch_health(self, listener: StateListener) -> Cancel:
        self._check_held()
        if self._health is None:
            listener(State.READY, OK)
            return no_op
        watch = self._health.watch(
            self._subchannel, self._pool.health_checkers, listener, self._pool.clock
        )
        self._health_watches[watch] = None
        watch.handle_watches = self._health_watches
        # Changes are delivered in the next turn, so this call is the first.
        listener(*watch.latest)
        return watch.cancel

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

    def measure(self, metrics: Metrics, attributes: Attributes) -> None:
        """Count connections and attempts from now on (A94), unless they are counted already."""
        from proxyless.channel.subchannel_metrics import SubchannelMeter  # noqa: PLC0415 - few use it

        if self._subchannel.meter is None:
            self._subchannel.meter = SubchannelMeter(self._subchannel, metrics, attributes)

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
        for watch in tuple(self._watches):
            watch.cancel()
        for health_watch in tuple(self._health_watches):
            health_watch.cancel()
        for cancel in self._cancels:
            cancel()
        self._subchannel.remove_observer(self)
        self._pool.on_release(self, self._subchannel)

    def _check_held(self) -> None:
        if self._is_released:
            raise ValueError(f"subchannel {self.address} was released: it cannot be watched")

    # Called by the subchannel

    def on_change(self, state: State, status: Status, transport: ClientTransport | None) -> None:
        was_ready, self.transport = self.transport is not None, transport
        if was_ready and transport is not None:
            # Another connection of the same subchannel; the state has not changed.
            return
        for watch in self._watches:
            watch.notify(state, status)
