"""The one place that knows every room: default registries, and how a channel is put together.

Each event loop has a stack of its own (connector, pool, deadlines), made when the first channel
is used on it and gone with the loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proxyless.channel import Channel, LoopStack, SubchannelPool, parse_default_config
from proxyless.front import (
    AioChannel,
    ChannelCredentials,
    SyncChannel,
    make_channel_options,
    to_encoding,
)
from proxyless.installed import InstalledPolicies, InstalledResolvers
from proxyless.lb.policies.least_request import LeastRequestFactory
from proxyless.lb.policies.outlier_detection import OutlierDetectionFactory
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.priority import PriorityFactory
from proxyless.lb.policies.random import RandomFactory
from proxyless.lb.policies.random_subsetting import RandomSubsettingFactory
from proxyless.lb.policies.ring_hash import RingHashFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.lb.policies.weighted_round_robin import WeightedRoundRobinFactory
from proxyless.lb.policies.weighted_target import WeightedTargetFactory
from proxyless.resolver import STATIC_FACTORIES, DnsFactory
from proxyless.runtime import AsyncioNetwork, LoopClock, system_random
from proxyless.transport import Connector
from proxyless.wire import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import grpc

    from proxyless.lb import PolicyFactory, PolicyRegistry
    from proxyless.resolver import ResolverFactory, ResolverRegistry


def default_policies() -> PolicyRegistry:
    """The policies that a channel knows unless it is given others."""
    return InstalledPolicies(
        [
            PickFirstFactory(),
            RoundRobinFactory(),
            PriorityFactory(),
            WeightedTargetFactory(),
            OutlierDetectionFactory(),
            LeastRequestFactory(),
            WeightedRoundRobinFactory(),
            RingHashFactory(),
            RandomFactory(),
            RandomSubsettingFactory(),
        ]
    )


def default_resolvers() -> ResolverRegistry:
    """The kinds of target that a channel knows unless it is given others."""
    return InstalledResolvers([DnsFactory(), *STATIC_FACTORIES])


@dataclass(frozen=True, slots=True)
class Registries:
    """What a channel can be extended with.

    proxyless.Registries().extended(policies=[MyPolicyFactory()], resolvers=[MyResolverFactory()])
    """

    policies: PolicyRegistry = field(default_factory=default_policies)
    resolvers: ResolverRegistry = field(default_factory=default_resolvers)

    def extended(
        self,
        *,
        policies: Iterable[PolicyFactory] = (),
        resolvers: Iterable[ResolverFactory] = (),
    ) -> Registries:
        """Registries that know these, too."""
        return Registries(self.policies.extended(policies), self.resolvers.extended(resolvers))


# A stack refers to its loop, so those of closed loops are dropped when the next one is made.
_stacks: dict[asyncio.AbstractEventLoop, LoopStack] = {}


def stack_of_running_loop() -> LoopStack:
    """What the channels of this loop share."""
    loop = asyncio.get_running_loop()
    stack = _stacks.get(loop)
    if stack is None:
        for other in list(_stacks):  # Other threads may have loops, too.
            if other.is_closed():
                _stacks.pop(other, None)
        stack = _stacks[loop] = _make_stack(loop)
    return stack


def _make_stack(loop: asyncio.AbstractEventLoop) -> LoopStack:
    clock, random, network = LoopClock(loop), system_random(), AsyncioNetwork()
    connector = Connector(network=network, clock=clock)
    pool = SubchannelPool(connector, clock=clock, random=random)
    return LoopStack(clock, random, network, connector.deadlines, pool)


def make_aio_channel(
    target: str,
    credentials: ChannelCredentials,
    options: Iterable[tuple[str, Any]] | None,
    compression: grpc.Compression | None,
    interceptors: Sequence[grpc.aio.ClientInterceptor] | None,
    registries: Registries | None,
) -> AioChannel:
    """A channel for asyncio. Raises for wrong arguments here, not at the first RPC."""
    open_core = _core_opener(target, credentials, options, registries)
    return AioChannel(
        open_core, encoding=to_encoding(compression, IDENTITY), interceptors=interceptors
    )


def make_sync_channel(
    target: str,
    credentials: ChannelCredentials,
    options: Iterable[tuple[str, Any]] | None,
    compression: grpc.Compression | None,
    registries: Registries | None,
) -> SyncChannel:
    """A blocking channel. Raises for wrong arguments here, not at the first RPC."""
    open_core = _core_opener(target, credentials, options, registries)
    return SyncChannel(open_core, encoding=to_encoding(compression, IDENTITY))


def _core_opener(
    target: str,
    credentials: ChannelCredentials,
    options: Iterable[tuple[str, Any]] | None,
    registries: Registries | None,
) -> Callable[[], Channel]:
    """Makes the channel proper, on the loop that runs then."""
    channel_options = make_channel_options(options, credentials)
    known = registries or Registries()
    # What is wrong is said now, not when the first RPC wants to be sent.
    parse_default_config(channel_options, known.policies)
    if not isinstance(target, str):
        raise TypeError(f"target is {target!r}, wanted a string")
    factory, parsed = known.resolvers.match_target(target)
    factory.default_authority(parsed)

    def open_core() -> Channel:
        return Channel(
            target,
            channel_options,
            stack_of_running_loop(),
            policies=known.policies,
            resolvers=known.resolvers,
        )

    return open_core
