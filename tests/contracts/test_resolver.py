"""What every Resolver promises to whoever owns it.

A world is a target and the things its resolver acts through. Names are answered at once; the real
one asks the system for the addresses of this machine, and waits for milliseconds where the others
let minutes pass.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from proxyless.base import IpAddress, Status
from proxyless.resolver import (
    STATIC_FACTORIES,
    DnsFactory,
    Resolver,
    ResolverContext,
    ResolverRegistry,
)
from proxyless.runtime import AsyncioNetwork, Clock, LoopClock, Network, VirtualClock
from tests.resolver_world import Middle, NameServer, Recorder, settle

REGISTRY = ResolverRegistry([DnsFactory(), *STATIC_FACTORIES])
# What policies may ask for in vain: grpcio's default, and ours.
FLOOR_S = 30.0
# Generous: only a hang takes longer.
PATIENCE_S = 20.0


class Oracle(NameServer):
    """Has an answer for every name, at once."""

    async def resolve(self, host: str, port: int) -> list[IpAddress]:
        self.asked.append((host, port))
        return [IpAddress("10.0.0.2", port), IpAddress("10.0.0.1", port)]


@dataclass
class World:
    """A target, its resolver's surroundings, and the way to let their time pass."""

    target: str
    network: Network
    clock: Clock
    heard: Recorder = field(default_factory=Recorder)

    def create(self) -> Resolver:
        factory, target = REGISTRY.match_target(self.target)
        context = ResolverContext(self.network, self.clock, Middle())
        return factory.create(target, self.heard, context)

    async def let_pass(self, seconds: float) -> None:
        await settle()
        if isinstance(self.clock, VirtualClock):
            self.clock.advance(seconds)
        else:
            await asyncio.sleep(min(seconds, 0.01))
        await settle()

    async def expect_result(self) -> None:
        """Wait for the first result."""
        if isinstance(self.clock, VirtualClock):
            await self.let_pass(0)
        else:
            async with asyncio.timeout(PATIENCE_S):
                await self.heard.has_heard.wait()
        assert len(self.heard.results) == 1

    async def expect_nothing_left(self) -> None:
        """No result is still to come, and nothing waits to bring one."""
        heard = len(self.heard.results)
        await self.let_pass(1000 * FLOOR_S)
        assert len(self.heard.results) == heard
        if isinstance(self.clock, VirtualClock):
            assert self.clock.timers_pending == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}


TARGETS = {
    "dns": "dns:///backend:80",
    "dns of a literal": "dns:///10.0.0.1:80",
    "ipv4": "ipv4:10.0.0.2:80,10.0.0.1:80",
    "ipv6": "ipv6:[::1]:80",
    "unix": "unix:/run/backend",
    "unix-abstract": "unix-abstract:backend",
}


@pytest.fixture(params=[*TARGETS, "dns of the system"])
async def world(request: pytest.FixtureRequest) -> World:
    if request.param == "dns of the system":
        return World("localhost:80", AsyncioNetwork(), LoopClock(asyncio.get_running_loop()))
    return World(TARGETS[request.param], Oracle(), VirtualClock(now_s=1000.0))


async def test_nothing_is_told_before_the_start(world: World) -> None:
    resolver = world.create()
    await world.let_pass(1000)
    assert world.heard.results == []
    resolver.close()


async def test_the_first_result_comes_after_the_start_but_not_inside(world: World) -> None:
    resolver = world.create()
    resolver.start()
    assert world.heard.results == []
    await world.expect_result()
    [result] = world.heard.results
    assert not isinstance(result.endpoints, Status)
    assert result.endpoints
    resolver.close()


async def test_the_same_target_has_the_same_endpoints_for_everybody(world: World) -> None:
    other = World(world.target, world.network, world.clock)
    for each in (world, other):
        resolver = each.create()
        resolver.start()
        await each.expect_result()
        resolver.close()
    assert world.heard.results == other.heard.results


@pytest.mark.parametrize("is_started", [False, True])
async def test_nothing_is_told_after_a_close_that_comes_first(
    world: World, is_started: bool
) -> None:
    resolver = world.create()
    if is_started:
        resolver.start()
    resolver.close()
    await world.expect_nothing_left()
    assert world.heard.results == []


async def test_nothing_is_left_after_a_close_in_the_middle(world: World) -> None:
    resolver = world.create()
    resolver.start()
    await settle()
    resolver.close()
    await settle()
    await world.expect_nothing_left()


async def test_closing_twice_is_closing_once(world: World) -> None:
    resolver = world.create()
    resolver.start()
    await world.expect_result()
    resolver.close()
    resolver.close()
    await world.expect_nothing_left()


ASKED: dict[str, Callable[[Resolver], None]] = {
    "request": lambda resolver: resolver.request_reresolution(),
    "reset": lambda resolver: resolver.reset_backoff(),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
async def test_what_is_asked_after_the_close_is_void(
    world: World, ask: Callable[[Resolver], None]
) -> None:
    resolver = world.create()
    resolver.start()
    await world.expect_result()
    resolver.close()
    ask(resolver)
    await world.expect_nothing_left()


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
async def test_what_is_asked_is_not_answered_inside(
    world: World, ask: Callable[[Resolver], None]
) -> None:
    resolver = world.create()
    resolver.start()
    await world.expect_result()
    await world.let_pass(10 * FLOOR_S)
    ask(resolver)
    assert len(world.heard.results) == 1
    resolver.close()


async def test_requests_bring_at_most_one_result_per_floor(world: World) -> None:
    resolver = world.create()
    resolver.start()
    await world.expect_result()
    for _ in range(20):
        resolver.request_reresolution()
        await world.let_pass(FLOOR_S / 10)
    assert len(world.heard.results) <= 3
    resolver.close()


async def test_no_request_brings_no_second_result(world: World) -> None:
    resolver = world.create()
    resolver.start()
    await world.expect_result()
    await world.let_pass(1000 * FLOOR_S)
    resolver.reset_backoff()
    await world.let_pass(1000 * FLOOR_S)
    assert len(world.heard.results) == 1
    resolver.close()


async def test_a_listener_may_call_everything_while_it_hears_a_result(world: World) -> None:
    resolver = world.create()

    def react() -> None:
        resolver.request_reresolution()
        resolver.reset_backoff()
        resolver.close()

    world.heard.react = react
    resolver.start()
    await world.expect_result()
    await world.expect_nothing_left()
