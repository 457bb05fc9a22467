"""Contract of Resolver.

A world is a target, and the network and clock of its resolver. Names resolve at once. One world
uses the system's resolver and real time; it waits for milliseconds instead of minutes.
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
from tests.worlds.resolvers import MidpointRandom, NameServer, ResultRecorder, settle

REGISTRY = ResolverRegistry([DnsFactory(), *STATIC_FACTORIES])
# Requests within this time after a result have no effect: the default of grpcio, and ours.
MIN_INTERVAL_S = 30.0
# Only a hang takes longer.
TIMEOUT_S = 20.0


class ImmediateNameServer(NameServer):
    """Resolves every name at once."""

    async def resolve(self, host: str, port: int) -> list[IpAddress]:
        self.queries.append((host, port))
        return [IpAddress("10.0.0.2", port), IpAddress("10.0.0.1", port)]


@dataclass
class ResolverContractWorld:
    """A target, network and clock of its resolver, and a way to let time pass."""

    target: str
    network: Network
    clock: Clock
    listener: ResultRecorder = field(default_factory=ResultRecorder)

    def create(self) -> Resolver:
        factory, target = REGISTRY.match_target(self.target)
        context = ResolverContext(self.network, self.clock, MidpointRandom())
        return factory.create(target, self.listener, context)

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
            async with asyncio.timeout(TIMEOUT_S):
                await self.listener.has_result.wait()
        assert len(self.listener.results) == 1

    async def expect_nothing_left(self) -> None:
        """Check that no result follows, and that no timer or task is left."""
        count = len(self.listener.results)
        await self.let_pass(1000 * MIN_INTERVAL_S)
        assert len(self.listener.results) == count
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
async def world(request: pytest.FixtureRequest) -> ResolverContractWorld:
    if request.param == "dns of the system":
        return ResolverContractWorld(
            "localhost:80", AsyncioNetwork(), LoopClock(asyncio.get_running_loop())
        )
    return ResolverContractWorld(
        TARGETS[request.param], ImmediateNameServer(), VirtualClock(now_s=1000.0)
    )


async def test_no_result_before_start(world: ResolverContractWorld) -> None:
    resolver = world.create()
    await world.let_pass(1000)
    assert world.listener.results == []
    resolver.close()


async def test_first_result_is_delivered_after_start_and_not_inside_it(
    world: ResolverContractWorld,
) -> None:
    resolver = world.create()
    resolver.start()
    assert world.listener.results == []
    await world.expect_result()
    [result] = world.listener.results
    assert not isinstance(result.endpoints, Status)
    assert result.endpoints
    resolver.close()


async def test_resolvers_of_the_same_target_have_the_same_results(
    world: ResolverContractWorld,
) -> None:
    other = ResolverContractWorld(world.target, world.network, world.clock)
    for each in (world, other):
        resolver = each.create()
        resolver.start()
        await each.expect_result()
        resolver.close()
    assert world.listener.results == other.listener.results


@pytest.mark.parametrize("is_started", [False, True])
async def test_no_result_when_the_resolver_is_closed_before_the_first(
    world: ResolverContractWorld, is_started: bool
) -> None:
    resolver = world.create()
    if is_started:
        resolver.start()
    resolver.close()
    await world.expect_nothing_left()
    assert world.listener.results == []


async def test_close_during_a_lookup_leaves_no_timer_or_task(world: ResolverContractWorld) -> None:
    resolver = world.create()
    resolver.start()
    await settle()
    resolver.close()
    await settle()
    await world.expect_nothing_left()


async def test_second_close_has_no_effect(world: ResolverContractWorld) -> None:
    resolver = world.create()
    resolver.start()
    await world.expect_result()
    resolver.close()
    resolver.close()
    await world.expect_nothing_left()


CALLS: dict[str, Callable[[Resolver], None]] = {
    "request": lambda resolver: resolver.request_reresolution(),
    "reset": lambda resolver: resolver.reset_backoff(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_calls_after_close_have_no_effect(
    world: ResolverContractWorld, call: Callable[[Resolver], None]
) -> None:
    resolver = world.create()
    resolver.start()
    await world.expect_result()
    resolver.close()
    call(resolver)
    await world.expect_nothing_left()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_calls_deliver_no_result_inside(
    world: ResolverContractWorld, call: Callable[[Resolver], None]
) -> None:
    resolver = world.create()
    resolver.start()
    await world.expect_result()
    await world.let_pass(10 * MIN_INTERVAL_S)
    call(resolver)
    assert len(world.listener.results) == 1
    resolver.close()


async def test_requests_deliver_at_most_one_result_per_minimum_interval(
    world: ResolverContractWorld,
) -> None:
    resolver = world.create()
    resolver.start()
    await world.expect_result()
    for _ in range(20):
        resolver.request_reresolution()
        await world.let_pass(MIN_INTERVAL_S / 10)
    assert len(world.listener.results) <= 3
    resolver.close()


async def test_no_second_result_without_a_request(world: ResolverContractWorld) -> None:
    resolver = world.create()
    resolver.start()
    await world.expect_result()
    await world.let_pass(1000 * MIN_INTERVAL_S)
    resolver.reset_backoff()
    await world.let_pass(1000 * MIN_INTERVAL_S)
    assert len(world.listener.results) == 1
    resolver.close()


async def test_listener_may_call_the_resolver_while_it_gets_a_result(
    world: ResolverContractWorld,
) -> None:
    resolver = world.create()

    def react() -> None:
        resolver.request_reresolution()
        resolver.reset_backoff()
        resolver.close()

    world.listener.react = react
    resolver.start()
    await world.expect_result()
    await world.expect_nothing_left()
