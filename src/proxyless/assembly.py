"""The one place that knows every room: default registries, and how a channel is put together.

Each event loop has a stack of its own (connector, pool, deadlines), made when the first channel
is used on it and gone with the loop.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

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
from proxyless.runtime import (
    AsyncioNetwork,
    LogTrace,
    LoopClock,
    apply_environment,
    system_random,
)
from proxyless.transport import Connector
from proxyless.wire import IDENTITY
from proxyless.xds.bootstrap import load_bootstrap
from proxyless.xds.filters import FilterRegistry, default_filter_registry
from proxyless.xds.lb import (
    CdsFactory,
    ClusterImplFactory,
    ClusterManagerFactory,
    OverrideHostFactory,
    WrrLocalityFactory,
)
from proxyless.xds.lb.cluster_manager import SEED_NAME
from proxyless.xds.resolver import XdsResolverFactory, XdsTools
from proxyless.xds.security import XdsSecurity
from proxyless.xds.stack import XdsStack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import grpc

    from proxyless.base import Metadata, Status
    from proxyless.base.explanation import Explanation
    from proxyless.channel import ChannelView
    from proxyless.lb import PolicyFactory, PolicyRegistry
    from proxyless.resolver import ResolverFactory, ResolverRegistry
    from proxyless.xds.bootstrap import Bootstrap
    from proxyless.xds.certificates import CertificateStore
    from proxyless.xds.client import XdsClients
    from proxyless.xds.filters import FilterFactory


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
            ClusterManagerFactory(),
            ClusterManagerFactory(SEED_NAME),
            CdsFactory(),
            ClusterImplFactory(),
            OverrideHostFactory(),
            WrrLocalityFactory(),
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
    filters: FilterRegistry = field(default_factory=default_filter_registry)

    def extended(
        self,
        *,
        policies: Iterable[PolicyFactory] = (),
        resolvers: Iterable[ResolverFactory] = (),
        filters: Iterable[FilterFactory] = (),
    ) -> Registries:
        """Registries that know these, too."""
        return Registries(
            self.policies.extended(policies),
            self.resolvers.extended(resolvers),
            self.filters.extended(filters),
        )


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
    trace = LogTrace()
    pool = SubchannelPool(connector, clock=clock, random=random, trace=trace)
    return LoopStack(clock, random, network, connector.deadlines, pool, trace)


# The control planes of a loop. As with stacks, those of closed loops are dropped.
_xds_stacks: dict[asyncio.AbstractEventLoop, XdsStack] = {}


def xds_stack_of_running_loop() -> XdsStack:
    """What the xDS channels of this loop share."""
    loop = asyncio.get_running_loop()
    xds_stack = _xds_stacks.get(loop)
    if xds_stack is None:
        for other in list(_xds_stacks):
            if other.is_closed():
                _xds_stacks.pop(other, None)
        stack = stack_of_running_loop()
        xds_stack = _xds_stacks[loop] = XdsStack(
            stack, policies=default_policies(), resolvers=default_resolvers()
        )
    return xds_stack


def xds_clients_by_loop() -> dict[asyncio.AbstractEventLoop, XdsClients]:
    """The clients of control planes of every loop in this process; ask them on their own loop."""
    mine = os.getpid()
    stacks = list(_xds_stacks.items())  # Other threads may add to it.
    return {loop: stack.clients for loop, stack in stacks if stack.process_id == mine}


@dataclass(frozen=True, slots=True)
class Stacks:
    """Where a channel finds what it shares with others; a simulated host has its own."""

    channel: Callable[[], LoopStack] = stack_of_running_loop
    xds: Callable[[], XdsStack] = xds_stack_of_running_loop


RUNNING_LOOP: Final = Stacks()


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """What an application says about a channel, beside its target and credentials."""

    options: Iterable[tuple[str, Any]] | None = None
    compression: grpc.Compression | None = None
    interceptors: Sequence[grpc.aio.ClientInterceptor] | None = None
    registries: Registries | None = None
    # Of the control plane: a document or a path; None is what the environment says.
    bootstrap: Mapping[str, object] | str | None = None
    stacks: Stacks = RUNNING_LOOP


def make_aio_channel(
    target: str, credentials: ChannelCredentials, settings: ChannelSettings
) -> AioChannel:
    """A channel for asyncio. Raises for wrong arguments here, not at the first RPC."""
    return AioChannel(
        _core_opener(target, credentials, settings),
        encoding=to_encoding(settings.compression, IDENTITY),
        interceptors=settings.interceptors,
        explain=explain_view,
    )


def make_sync_channel(
    target: str, credentials: ChannelCredentials, settings: ChannelSettings
) -> SyncChannel:
    """A blocking channel. Raises for wrong arguments here, not at the first RPC."""
    open_core = _core_opener(target, credentials, settings)
    encoding = to_encoding(settings.compression, IDENTITY)
    return SyncChannel(open_core, encoding=encoding, explain=explain_view)


def explain_view(view: ChannelView, path: str, metadata: Metadata) -> Explanation:
    """What becomes of an RPC on a channel. Most processes never ask, so it is imported then."""
    from proxyless.observe.live import explain_channel  # noqa: PLC0415

    return explain_channel(view, path, metadata)


def _core_opener(
    target: str, credentials: ChannelCredentials, settings: ChannelSettings
) -> Callable[[], Channel]:
    """Makes the channel proper, on the loop that runs then."""
    _apply_environment_once()
    channel_options = make_channel_options(settings.options, credentials)
    known = settings.registries or Registries()
    resolvers = _with_xds(known, settings)
    # What is wrong is said now, not when the first RPC wants to be sent.
    parse_default_config(channel_options, known.policies)
    if not isinstance(target, str):
        raise TypeError(f"target is {target!r}, wanted a string")
    factory, parsed = resolvers.match_target(target)
    factory.default_authority(parsed)

    # "when xDS is not in use (such as when the `xds:` scheme is not used" the fallback is - A29
    is_secured_by_xds = credentials.is_xds and parsed.scheme == XdsResolverFactory.scheme

    def open_core() -> Channel:
        security = XdsSecurity(certificates) if is_secured_by_xds else None
        return Channel(
            target,
            replace(channel_options, security=security),
            settings.stacks.channel(),
            policies=known.policies,
            resolvers=resolvers,
        )

    def certificates() -> CertificateStore:
        return settings.stacks.xds().certificates

    return open_core


@cache
def _apply_environment_once() -> None:
    """What GRPC_VERBOSITY and GRPC_TRACE ask for, when the process makes its first channel."""
    apply_environment(os.environ)


def _with_xds(known: Registries, settings: ChannelSettings) -> ResolverRegistry:
    """The resolvers, with ours for `xds:` unless the application has one of its own."""
    if known.resolvers.find(XdsResolverFactory.scheme) is not None:
        return known.resolvers

    def load() -> Bootstrap | Status:
        return load_bootstrap(settings.bootstrap, os.environ)

    def tools() -> XdsTools:
        return settings.stacks.xds().tools(known.policies, known.filters, DnsFactory())

    return known.resolvers.extended([XdsResolverFactory(load, tools)])
