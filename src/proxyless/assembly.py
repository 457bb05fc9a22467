"""Creation of channels: default registries, and the stacks that channels of a loop share.

Each event loop has a stack of its own (connector, pool, deadlines), created when the first channel
is used on it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from proxyless.base import StatusCode
from proxyless.base.frozen import frozen, replace
from proxyless.channel import (
    Channel,
    LoopStack,
    SubchannelPool,
    parse_default_config,
)
from proxyless.entry_points import InstalledFilters, InstalledPolicies, InstalledResolvers
from proxyless.front import (
    AioChannel,
    ChannelCredentials,
    insecure_channel_credentials,
    parse_options,
    to_encoding,
)
from proxyless.lb.api import DeferredFactory
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.metrics import choose_plugins
from proxyless.resolver import (
    STATIC_FACTORIES,
    DeferredResolverFactory,
    DnsFactory,
    ProxiedFactory,
)
from proxyless.runtime import (
    AsyncioNetwork,
    LogTrace,
    LoopClock,
    WorkQueue,
    apply_environment,
    system_random,
)
from proxyless.runtime.forks import empty_in_child
from proxyless.transport import Connector
from proxyless.wire import IDENTITY
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import grpc

    from proxyless.base import Metadata, Status
    from proxyless.base.explanation import Explanation
    from proxyless.channel import ChannelOptions, ChannelView
    from proxyless.front import SyncChannel
    from proxyless.lb import PolicyFactory, PolicyRegistry
    from proxyless.metrics import Metrics, StatsPlugin
    from proxyless.observe.flight import FlightRecorder
    from proxyless.resolver import ResolverFactory, ResolverRegistry
    from proxyless.runtime import Clock
    from proxyless.xds.bootstrap import Bootstrap
    from proxyless.xds.client import XdsClients
    from proxyless.xds.client.transport import TransportFactory
    from proxyless.xds.filters import FilterFactory
    from proxyless.xds.grpc_transport import ChildChannel
    from proxyless.xds.resolver import XdsTools
    from proxyless.xds.security.certificates import CertificateStore
    from proxyless.xds.security.cluster_security import XdsSecurity
    from proxyless.xds.stack import XdsStack

XDS_SCHEME: Final = "xds"

# Policies that are imported when a config first uses them: name, module, factory.
_DEFERRED: Final = (
    ("priority_experimental", "lb.policies.priority", "PriorityFactory"),
    ("weighted_target_experimental", "lb.policies.weighted_target", "WeightedTargetFactory"),
    ("outlier_detection_experimental", "lb.policies.outlier_detection", "OutlierDetectionFactory"),
    ("least_request_experimental", "lb.policies.least_request", "LeastRequestFactory"),
    ("proxyless.peak_ewma", "lb.policies.peak_ewma", "PeakEwmaFactory"),
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
    """The policies of a channel without registries of its own."""
    deferred = (
        DeferredFactory(name, f"proxyless.{module}", factory) for name, module, factory in _DEFERRED
    )
    return InstalledPolicies([PickFirstFactory(), RoundRobinFactory(), *deferred])


def default_resolvers(environ: Mapping[str, str] = os.environ) -> ResolverRegistry:
    """The resolvers of a channel without registries of its own.

    The environment names the HTTP proxies for targets that are reached over IP.
    """
    factories = (DnsFactory(), *STATIC_FACTORIES)
    return InstalledResolvers(
        each if each.scheme.startswith("unix") else ProxiedFactory(each, environ)
        for each in factories
    )


def default_filters() -> FilterRegistry:
    """The HTTP filters of a channel without registries of its own."""
    return InstalledFilters(FILTER_FACTORIES)


@frozen
class Registries:
    """Policies, resolvers, HTTP filters and stats plugins of a channel.

    proxyless.Registries().extended(policies=[MyPolicyFactory()], resolvers=[MyResolverFactory()])
    """

    policies: PolicyRegistry = field(default_factory=default_policies)
    resolvers: ResolverRegistry = field(default_factory=default_resolvers)
    filters: FilterRegistry = field(default_factory=default_filters)
    # Used in addition to the globally registered ones.
    metrics: tuple[StatsPlugin, ...] = ()
    # For the channel to the control plane (A110).
    child_metrics: tuple[StatsPlugin, ...] = ()
    child_interceptors: tuple[grpc.aio.ClientInterceptor, ...] = ()

    def extended(
        self,
        *,
        policies: Iterable[PolicyFactory] = (),
        resolvers: Iterable[ResolverFactory] = (),
        filters: Iterable[FilterFactory] = (),
        metrics: Iterable[StatsPlugin] = (),
        child_metrics: Iterable[StatsPlugin] = (),
        child_interceptors: Iterable[grpc.aio.ClientInterceptor] = (),
    ) -> Registries:
        """Registries with these added."""
        return Registries(
            self.policies.extended(policies),
            self.resolvers.extended(resolvers),
            self.filters.extended(filters),
            (*self.metrics, *metrics),
            (*self.child_metrics, *child_metrics),
            (*self.child_interceptors, *child_interceptors),
        )


T = TypeVar("T")
_stacks: dict[asyncio.AbstractEventLoop, LoopStack] = {}
_xds_stacks: dict[asyncio.AbstractEventLoop, XdsStack] = {}
empty_in_child(_stacks)
empty_in_child(_xds_stacks)


def stack_of_running_loop() -> LoopStack:
    """The stack that the channels of this loop share."""
    return _of_running_loop(_stacks, _make_observed_stack)


def xds_stack_of_running_loop() -> XdsStack:
    """The stack that the xDS channels of this loop share."""
    return _of_running_loop(_xds_stacks, _make_xds_stack)


def _of_running_loop(
    stacks: dict[asyncio.AbstractEventLoop, T], make: Callable[[asyncio.AbstractEventLoop], T]
) -> T:
    loop = asyncio.get_running_loop()
    stack = stacks.get(loop)
    if stack is None:
        # A stack refers to its loop, so stacks of closed loops are dropped here.
        for other in list(stacks):  # A copy: other threads may add to it.
            if other.is_closed():
                stacks.pop(other, None)
        stack = stacks[loop] = make(loop)
    return stack


def _make_observed_stack(loop: asyncio.AbstractEventLoop) -> LoopStack:
    stack = _make_stack(loop)
    if _observation.is_of_all:
        _observation.observe(loop, stack)
    return stack


def _make_stack(loop: asyncio.AbstractEventLoop) -> LoopStack:
    clock, random, network = LoopClock(loop), system_random(), AsyncioNetwork()
    connector = Connector(network=network, clock=clock)
    trace = LogTrace()
    work = WorkQueue(clock)
    pool = SubchannelPool(connector, clock=clock, random=random, trace=trace, work=work)
    return LoopStack(clock, random, network, connector.deadlines, pool, trace, work)


def _make_xds_stack(_loop: asyncio.AbstractEventLoop) -> XdsStack:
    from proxyless.xds.stack import XdsStack  # noqa: PLC0415 - only for `xds:` targets

    stack = stack_of_running_loop()
    return XdsStack(
        stack,
        policies=default_policies(),
        resolvers=default_resolvers(),
        file_transports=partial(make_file_transports, stack.clock),
    )


def make_file_transports(clock: Clock) -> TransportFactory:
    """Transports of xDS clients whose control plane is a directory of files."""
    # Imported where a bootstrap names files.
    from proxyless.controlplane.file_transport import FileTransports  # noqa: PLC0415
    from proxyless.runtime.offload import thread_offload  # noqa: PLC0415

    return FileTransports(clock, thread_offload("proxyless-files", "reading of xds files"))


def xds_clients_by_loop() -> dict[asyncio.AbstractEventLoop, XdsClients]:
    """The xDS clients of every loop in this process. Each may be used on its own loop only."""
    return {loop: stack.clients for loop, stack in dict(_xds_stacks).items()}


def stacks_by_loop() -> dict[asyncio.AbstractEventLoop, LoopStack]:
    """The stacks of every loop in this process. Each may be used on its own loop only."""
    return dict(_stacks)  # A copy: other threads may add to it.


class _Observation:
    """The flight recorder of the process, if it has one, and whether it is of all channels."""

    def __init__(self) -> None:
        self.recorder: FlightRecorder | None = None
        self.is_of_all = False

    def start(self) -> FlightRecorder:
        """The recorder. Created at the first time."""
        if self.recorder is None:
            from proxyless.observe.flight import FlightRecorder  # noqa: PLC0415 - seldom used

            self.recorder = FlightRecorder()
        return self.recorder

    def attach(self, loop: asyncio.AbstractEventLoop, stack: LoopStack) -> FlightRecorder:
        """Record a loop. Called on that loop."""
        recorder = self.start()

        def find_clients() -> XdsClients | None:
            xds = _xds_stacks.get(loop)
            return None if xds is None else xds.clients

        recorder.attach(stack, find_clients)
        return recorder

    def observe(self, loop: asyncio.AbstractEventLoop, stack: LoopStack) -> None:
        """Record a loop and all its channels. Called on that loop."""
        self.attach(loop, stack).observe_channels(stack)

    def observe_channel(self, channel: Channel, directory: str | None) -> None:
        """Record one channel, and its loop. Called on that loop."""
        recorder = self.attach(asyncio.get_running_loop(), channel.stack)
        recorder.observe_channel(channel, is_new=True)
        if directory is not None:
            from proxyless.observe.flight.files import write_on_storm  # noqa: PLC0415 - seldom

            write_on_storm(recorder, directory)


_observation: Final = _Observation()


def observe_all_channels() -> FlightRecorder:
    """Count and record the RPCs of all channels of this process, present and future."""
    recorder = _observation.start()
    _observation.is_of_all = True
    for loop, stack in stacks_by_loop().items():
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(_observation.observe, loop, stack)
    return recorder


def stop_observing() -> None:
    """Record nothing from now on. For tests, which share a process."""
    recorder, _observation.recorder = _observation.recorder, None
    _observation.is_of_all = False
    if recorder is not None:
        recorder.close()


def write_flight_recording(path: str) -> str:
    """Write the recording of this process to a file, or into a directory; returns its path."""
    recorder = _observation.recorder
    if recorder is None:
        raise RuntimeError(
            "this process has no flight recorder: create a channel with the option"
            " 'proxyless.flight_recorder', or add the admin services"
        )
    from proxyless.observe.flight import write_recording  # noqa: PLC0415 - seldom used

    return write_recording(recorder, path)


@frozen
class Stacks:
    """Functions that return the stacks of a channel; a simulated host has its own."""

    channel: Callable[[], LoopStack] = stack_of_running_loop
    xds: Callable[[], XdsStack] = xds_stack_of_running_loop


RUNNING_LOOP: Final = Stacks()


@frozen
class ChannelSettings:
    """An application's arguments for a channel, without target and credentials."""

    options: Iterable[tuple[str, Any]] | None = None
    compression: grpc.Compression | None = None
    interceptors: Sequence[grpc.aio.ClientInterceptor] | None = None
    registries: Registries | None = None
    # A document or a path; None: the one that the environment names.
    bootstrap: Mapping[str, object] | str | os.PathLike[str] | None = None
    stacks: Stacks = RUNNING_LOOP

    def __post_init__(self) -> None:
        source: object = self.bootstrap
        if not isinstance(source, Mapping | str | os.PathLike | None):
            kind = type(source).__name__
            raise TypeError(f"bootstrap is of type {kind}, wanted a mapping or the path of a file")
        given: object = self.registries
        if not isinstance(given, Registries | None):
            kind = type(given).__name__
            raise TypeError(f"registries is of type {kind}, wanted proxyless.Registries")


def make_aio_channel(
    target: str, credentials: ChannelCredentials, settings: ChannelSettings
) -> AioChannel:
    """Create a channel for asyncio. Raises for invalid arguments, as `insecure_channel` does."""
    channel = AioChannel(
        _core_opener(target, credentials, settings),
        encoding=to_encoding(settings.compression, IDENTITY),
        interceptors=settings.interceptors,
        explain=explain_view,
    )
    channel.recording_writer = write_flight_recording
    return channel


def make_sync_channel(
    target: str, credentials: ChannelCredentials, settings: ChannelSettings
) -> SyncChannel:
    """Create a blocking channel. Raises for invalid arguments, as `insecure_channel` does."""
    from proxyless.front import SyncChannel  # noqa: PLC0415 - not used by asyncio applications

    open_core = _core_opener(target, credentials, settings)
    encoding = to_encoding(settings.compression, IDENTITY)
    channel = SyncChannel(open_core, encoding=encoding, explain=explain_view)
    channel.recording_writer = write_flight_recording
    return channel


def explain_view(view: ChannelView, path: str, metadata: Metadata) -> Explanation:
    """Explain what a channel does with an RPC."""
    from proxyless.observe.explain_running import explain_channel  # noqa: PLC0415

    return explain_channel(view, path, metadata)


def _core_opener(
    target: str, credentials: ChannelCredentials, settings: ChannelSettings
) -> Callable[[], Channel]:
    """Check the arguments; return a function that creates the core on the running loop."""
    _apply_environment_once()
    parsed_options = parse_options(settings.options, credentials)
    channel_options = parsed_options.channel
    registries = settings.registries or Registries()
    child = _child_channel(parsed_options.child, registries)
    resolvers = _with_xds(registries, settings, lambda: metrics, child)
    # Raises for an invalid service config.
    parse_default_config(channel_options, registries.policies)
    target = _target_text(target)
    # As in grpcio, an invalid target fails its RPCs, not the creation of the channel.
    reason = resolvers.refuse_target(target)
    if reason is not None:
        from proxyless.resolver.unresolvable import UnresolvableTargets  # noqa: PLC0415 - rare

        resolvers = UnresolvableTargets(reason)
    _, parsed = resolvers.match_target(target)
    metrics = choose_plugins(str(parsed), registries.metrics)

    # The fallback is for "when xDS is not in use (such as when the `xds:` scheme is not used" - A29
    is_secured_by_xds = credentials.is_xds and parsed.scheme == XDS_SCHEME

    def open_core() -> Channel:
        security = make_security() if is_secured_by_xds else None
        options = replace(channel_options, security=security, metrics=metrics)
        stack, policies = settings.stacks.channel(), registries.policies
        if reason is not None and reason.code is StatusCode.UNKNOWN:
            from proxyless.channel.lame_channel import LameChannel  # noqa: PLC0415 - rare

            return LameChannel(target, options, stack, policies=policies, reason=reason)
        channel = Channel(target, options, stack, policies=policies, resolvers=resolvers)
        if parsed_options.is_recorded:
            _observation.observe_channel(channel, parsed_options.recording_directory)
        return channel

    def make_security() -> XdsSecurity:
        from proxyless.xds.security.cluster_security import XdsSecurity  # noqa: PLC0415 - rare

        return XdsSecurity(certificates)

    def certificates() -> CertificateStore:
        return settings.stacks.xds().certificates

    return open_core


def _target_text(target: str | bytes) -> str:
    """The target of a channel as text. grpcio accepts bytes too."""
    if isinstance(target, bytes):
        return target.decode("utf-8", "replace")
    if not isinstance(target, str):
        raise TypeError(f"target is {target!r}, wanted a string")
    return target


@cache
def _apply_environment_once() -> None:
    """Apply GRPC_VERBOSITY and GRPC_TRACE when the process creates its first channel."""
    apply_environment(os.environ)


def _child_channel(child: ChannelOptions | None, registries: Registries) -> ChildChannel | None:
    """The application's settings for the channel to the control plane; None: there are none."""
    interceptors = registries.child_interceptors
    if child is None and not registries.child_metrics and not interceptors:
        return None
    child = child or parse_options((), insecure_channel_credentials()).channel
    # Raises for an invalid service config.
    parse_default_config(child, default_policies())
    make_call = None
    if interceptors:
        from proxyless.front.aio.child_streams import InterceptedStreams  # noqa: PLC0415 - rare

        make_call = InterceptedStreams(interceptors)
    from proxyless.xds.grpc_transport import ChildChannel  # noqa: PLC0415 - rare

    return ChildChannel(child, registries.child_metrics, make_call)


def _with_xds(
    registries: Registries,
    settings: ChannelSettings,
    metrics: Callable[[], Metrics],
    child: ChildChannel | None,
) -> ResolverRegistry:
    """The resolvers, with ours for `xds:` unless the application has registered its own."""
    if registries.resolvers.was_given(XDS_SCHEME):
        return registries.resolvers

    def make_factory() -> ResolverFactory:
        # Half of this package's modules, which only `xds:` targets need.
        from proxyless.xds.resolver import XdsResolverFactory  # noqa: PLC0415

        source = settings.bootstrap
        file = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
        return XdsResolverFactory(load, tools, file)

    def load() -> Bootstrap | Status:
        from proxyless.xds.bootstrap import load_bootstrap  # noqa: PLC0415 - as the resolver

        return load_bootstrap(settings.bootstrap, os.environ)

    def tools() -> XdsTools:
        stack = settings.stacks.xds()
        return stack.tools(
            registries.policies,
            registries.filters,
            DnsFactory(),
            metrics(),
            child,
            has_own_registries=settings.registries is not None,
        )

    return registries.resolvers.extended([DeferredResolverFactory(XDS_SCHEME, make_factory)])
