"""Meshes on a real loop, with real subchannels."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from proxyless.base import Address, Status, StatusCode
from proxyless.channel import Channel, ChannelOptions, LoopStack, SubchannelPool
from proxyless.resolver import ResolverRegistry
from proxyless.runtime import AsyncioNetwork, DeadlineQueue, LoopClock, WorkQueue, seeded_random
from proxyless.transport.attempt import TaskAttempt
from tests.worlds.channels import CallObserver
from tests.worlds.meshes import PATH, MeshResolverFactory, MeshWorld
from tests.worlds.xds_dependencies import set_resource

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.transport import Connector, TransportOptions
    from proxyless.transport.attempt import OnDone
    from proxyless.wire import StreamEnd


class RefusingConnector:
    """Connector whose attempts all fail, after two turns of the loop."""

    def __init__(self) -> None:
        self.attempts: list[Address] = []
        # The number of attempts that started, by turn.
        self.by_turn = [0]
        # Whether attempts neither fail nor succeed.
        self.is_stuck = False
        self._loop = asyncio.get_running_loop()
        self._is_requested = False

    def start(
        self,
        address: Address,
        options: TransportOptions,
        *,
        server_name: str | None = None,
        on_done: OnDone,
        on_unusable: Callable[[Status], None],
    ) -> TaskAttempt:
        return TaskAttempt(self._loop, address, partial(self._connect, address), on_done)

    async def _connect(self, address: Address) -> Status:
        self.attempts.append(address)
        self.by_turn[-1] += 1
        if not self._is_requested:
            self._is_requested = True
            self._loop.call_soon(self._next_turn)
        if self.is_stuck:
            await self._loop.create_future()
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
        return Status(StatusCode.UNAVAILABLE, f"{address}: connection refused")

    def _next_turn(self) -> None:
        self._is_requested = False
        self.by_turn.append(0)


class AwaitedObserver(CallObserver):
    """Observer with an event for the end of its call."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()

    def on_end(self, end: StreamEnd) -> None:
        super().on_end(end)
        self.ended.set()


class LoopMesh(MeshWorld):
    """A mesh on a real loop, with the real pool of subchannels.

    Without a connector, no backend accepts connections.
    """

    def __init__(self, connector: RefusingConnector | Connector | None = None) -> None:
        super().__init__()
        clock = LoopClock(asyncio.get_running_loop())
        self.watches._clock = clock  # type: ignore[assignment]  # noqa: SLF001
        self.connector = RefusingConnector()
        work, random = WorkQueue(clock), seeded_random(1)
        self.pool = SubchannelPool(
            connector or self.connector, clock=clock, random=random, work=work
        )
        stack = LoopStack(
            clock, random, AsyncioNetwork(), DeadlineQueue(clock), self.pool, work=work
        )
        self.channel = Channel(
            "xds:///orders",
            ChannelOptions(),
            stack,
            policies=self.registries.policies,
            resolvers=ResolverRegistry([MeshResolverFactory(self)], default_scheme="xds"),
        )

    async def fail_rpc(self, *resources: object, path: str = PATH) -> str:
        """The text of an RPC that fails in this mesh."""
        for resource in resources:
            set_resource(self.watches, resource)
        observer = AwaitedObserver()
        method = self.channel.method(path)
        make_call = self.channel.call_type
        call = make_call(self.channel, method, observer, (), None, wait_for_ready=False)
        call.start_unary(b"")
        await observer.ended.wait()
        return observer.status.details

    async def publish_for_some_turns(self, *resources: object) -> None:
        """Publish, and take as many turns as all steps of an update take, but not its attempts."""
        for resource in resources:
            set_resource(self.watches, resource)
        for _ in range(40):
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop

    async def aclose(self) -> None:
        self.channel.close()
        await self.pool.aclose()
