"""The one place that knows every room: default registries, and how a channel is put together.

Each event loop has a stack of its own (connector, pool, deadlines), made when the first channel
is used on it and gone with the loop.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import StatusCode
from proxyless.base.frozen import frozen
from proxyless.channel import (
    Channel,
    LameChannel,
    LoopStack,
    SubchannelPool,
    parse_default_config,
)
from proxyless.front import (
    AioChannel,
    ChannelCredentials,
    make_channel_options,
    to_encoding,
)
from proxyless.installed import InstalledFilters, InstalledPolicies, InstalledResolvers
from proxyless.lb.api import DeferredFactory
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.metrics import choose_plugins
from proxyless.resolver import STATIC_FACTORIES, DnsFactory, ProxiedFactory
from proxyless.resolver.unresolvable import UnresolvableTargets
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
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.resolver import XdsResolverFactory, XdsTools
from proxyless.xds.stack import XdsStack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import grpc

    from proxyless.base import Metadata, Status
    from proxyless.base.explanation import Explanation
    from proxyless.channel import ChannelView
    from proxyless.front import SyncChannel
    from proxyless.lb import PolicyFactory, PolicyRegistry
    from proxyless.metrics import Metrics, StatsPlugin
    from proxyless.resolver import ResolverFactory, ResolverRegistry
    from proxyless.xds.bootstrap import Bootstrap
    from proxyless.xds.client import XdsClients
    from proxyless.xds.filters import FilterFactory
    from proxyless.xds.security.certificates import CertificateStore
    from proxyless.xds.security.cluster_security import XdsSecurity


# Policies that are imported when a config first names them: name, module, factory.
_DEFERRED: Final = (
    ("priority_experimental", "lb.policies.priority", "PriorityFactory"),
    ("weighted_target_experimental", "lb.policies.weighted_target", "WeightedTargetFactory"),
    ("outlier_detection_experimental", "lb.policies.outlier_detection", "OutlierDetectionFactory"),
    ("least_request_experimental", "lb.policies.least_request", "LeastRequestFactory"),
    ("weighted_round_robin", "lb.policies.weighted_round_robin", "WeightedRoundRobinFactory"),
    ("ring_hash_experimental", "lb.policies.ring_hash", "RingHashFactory"),
    ("random", "lb.policies.random", "RandomFactory"),
    ("random_subsetting_experimental", "lb.policies.random_subsetting", "RandomSubsettingFactory"),
    ("xds_cluster_manager_experimental", "xds.lb.cluster_manager", "ClusterManagerFactory"),
    ("xds_cluster_manager", "xds.lb.cluster_manager", "A31ClusterManagerFactory"),
    ("cds_experimental", "xds.lb.cds", "CdsFactory"),
    ("xds_cluster_impl_experimental", "xds.lb.cluster_impl", "ClusterImplFactory"),
    ("xds_override_host_experimental", "xds.lb.override_host", "OverrideHostFactory"),
    ("xds_wrr_locality_experimental", "xds.lb.wrr_locality", "WrrLocalityFactory"),
)


def default_policies() -> PolicyRegistry:
    """The policies that a channel knows unless it is given others."""
    deferred = (
        DeferredFactory(name, f"proxyless.{module}", factory) for name, module, factory in _DEFERRED
    )
    return InstalledPolicies([PickFirstFactory(), RoundRobinFactory(), *deferred])


def default_resolvers(environ: Mapping[str, str] = os.environ) -> ResolverRegistry:
    """The kinds of target that a channel knows unless it is given others.

    The environment names the HTTP proxies of those that are reached over IP.
    """
    factories = (DnsFactory(), *STATIC_FACTORIES)
    return InstalledResolvers(
        each if each.scheme.startswith("unix") else ProxiedFactory(each, environ)
        for each in factories
    )


def default_filters() -> FilterRegistry:
    """The HTTP filters that a channel knows unless it is given others."""
    return InstalledFilters(FILTER_FACTORIES)


@frozen
class Registries:
    """What a channel can be extended with.

    proxyless.Registries().extended(policies=[MyPolicyFactory()], resolvers=[MyResolverFactory()])
    """

    policies: PolicyRegistry = field(default_factory=default_policies)
    resolvers: ResolverRegistry = field(default_factory=default_resolvers)
    filters: FilterRegistry = field(default_factory=default_filters)
    # What collects the channel's metrics, beside those that are registered for every channel.
    metrics: tuple[StatsPlugin, ...] = ()

    def extended(
        self,
        *,
        policies: Iterable[PolicyFactory] = (),
        resolvers: Iterable[ResolverFactory] = (),
        filters: Iterable[FilterFactory] = (),
        metrics: Iterable[StatsPlugin] = (),
    ) -> Registries:
        """Registries that know these, too."""
        return Registries(
            self.policies.extended(policies),
            self.resolvers.extended(resolvers),
            self.filters.extended(filters),
            (*self.metrics, *metrics),
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


@frozen
class Stacks:
    """Where a channel finds what it shares with others; a simulated host has its own."""

    channel: Callable[[], LoopStack] = stack_of_running_loop
    xds: Callable[[], XdsStack] = xds_stack_of_running_loop


RUNNING_LOOP: Final = Stacks()


@frozen
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
    # Most processes have either this kind of channel or the other.
    from proxyless.front import SyncChannel  # noqa: PLC0415

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
    resolvers = _with_xds(known, settings, lambda: metrics)
    # What is wrong is said now, not when the first RPC wants to be sent.
    parse_default_config(channel_options, known.policies)
    target = _target_text(target)
    # As in grpcio, what is wrong with a target is said by its RPCs.
    reason = resolvers.refuse_target(target)
    if reason is not None:
        resolvers = UnresolvableTargets(reason)
    _, parsed = resolvers.match_target(target)
    metrics = choose_plugins(str(parsed), known.metrics)

    # "when xDS is not in use (such as when the `xds:` scheme is not used" the fallback is - A29
    is_secured_by_xds = credentials.is_xds and parsed.scheme == XdsResolverFactory.scheme

    def open_core() -> Channel:
        security = make_security() if is_secured_by_xds else None
        options = replace(channel_options, security=security, metrics=metrics)
        stack, policies = settings.stacks.channel(), known.policies
        if reason is not None and reason.code is StatusCode.UNKNOWN:
            return LameChannel(target, options, stack, policies=policies, reason=reason)
        return Channel(target, options, stack, policies=policies, resolvers=resolvers)

    def make_security() -> XdsSecurity:
        from proxyless.xds.security.cluster_security import XdsSecurity  # noqa: PLC0415 - rare

        return XdsSecurity(certificates)

    def certificates() -> CertificateStore:
        return settings.stacks.xds().certificates

    return open_core


def _target_text(target: str | bytes) -> str:
    """The target of a channel. grpcio takes bytes, too."""
    if isinstance(target, bytes):
        return target.decode("utf-8", "replace")
    if not isinstance(target, str):
        raise TypeError(f"target is {target!r}, wanted a string")
    return target


@cache
def _apply_environment_once() -> None:
    """What GRPC_VERBOSITY and GRPC_TRACE ask for, when the process makes its first channel."""
    apply_environment(os.environ)


def _with_xds(
    known: Registries, settings: ChannelSettings, metrics: Callable[[], Metrics]
) -> ResolverRegistry:
    """The resolvers, with ours for `xds:` unless the application has one of its own."""
    if known.resolvers.was_given(XdsResolverFactory.scheme):
        return known.resolvers

    def load() -> Bootstrap | Status:
        return load_bootstrap(settings.bootstrap, os.environ)

    def tools() -> XdsTools:
        stack = settings.stacks.xds()
        return stack.tools(
            known.policies,
            known.filters,
            DnsFactory(),
            metrics(),
            is_own_vocabulary=settings.registries is not None,
        )

    return known.resolvers.extended([XdsResolverFactory(load, tools)])
