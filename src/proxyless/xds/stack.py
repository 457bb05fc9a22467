"""Objects that the xDS channels of one loop share: pool of xDS clients, store of certificates.

Made when the first xDS channel of a loop resolves its target.
"""

from __future__ import annotations

import os
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from proxyless.metrics import NO_METRICS, Metrics
from proxyless.protos import message_class
from proxyless.xds.bootstrap.bootstrap import FILE_SCHEME
from proxyless.xds.client import Tools, XdsClientOptions, XdsClients
from proxyless.xds.client.codec import REQUEST_NAME
from proxyless.xds.grpc_transport import GrpcTransports
from proxyless.xds.parsing.cluster import CLUSTER
from proxyless.xds.resolver import XdsTools, resource_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxyless.channel import LoopStack
    from proxyless.lb import PolicyRegistry
    from proxyless.resolver import ResolverFactory, ResolverRegistry
    from proxyless.runtime import Clock
    from proxyless.xds.bootstrap import ServerConfig
    from proxyless.xds.client import Transport
    from proxyless.xds.client.transport import TransportFactory
    from proxyless.xds.filters import FilterRegistry
    from proxyless.xds.grpc_transport import ChildChannel
    from proxyless.xds.security.certificates import CertificateStore

# Policies of every XdsConfig, in the order of their imports.
POLICIES_OF_EVERY_CONFIG: Final = (
    "outlier_detection_experimental",
    "priority_experimental",
    "xds_cluster_impl_experimental",
    "xds_override_host_experimental",
    "cds_experimental",
    "xds_cluster_manager_experimental",
)
# Turns of the loop in which the connection to a control plane on this machine is made and the first
# request sent. Imports in these turns would delay that; a remote control plane takes far longer.
TURNS_BEFORE_IMPORTS: Final = 5


class SchemeTransports:
    """Factory of gRPC transports, and of those to files, which are made when one is used."""

    def __init__(
        self, transports: GrpcTransports, file_transports: Callable[[], TransportFactory] | None
    ) -> None:
        self._transports = transports
        self._file_transports = file_transports

    def for_child(self, child: ChildChannel) -> SchemeTransports:
        """The factory of transports with these options of channels to control planes."""
        return SchemeTransports(self._transports.for_child(child), self._file_transports)

    def create(self, server: ServerConfig) -> Transport:
        """Raise ValueError if the target or the credentials are not supported."""
        if server.uri.startswith(FILE_SCHEME) and self._file_transports is not None:
            return self._file_transports().create(server)
        return self._transports.create(server)


class XdsStack:
    """Pool of xDS clients and store of certificates of one loop."""

    def __init__(
        self,
        stack: LoopStack,
        *,
        policies: PolicyRegistry,
        resolvers: ResolverRegistry,
        file_transports: Callable[[], TransportFactory] | None = None,
    ) -> None:
        """The registries are those of the channels to control planes."""
        over_grpc = GrpcTransports(stack, policies=policies, resolvers=resolvers)
        transports = SchemeTransports(over_grpc, file_transports)
        tools = Tools(stack.clock, stack.random, stack.trace, work=stack.work)
        options = XdsClientOptions.from_environment(os.environ)
        self._transports = transports
        self.clients = XdsClients(transports, tools, options)
        self._clock = stack.clock
        # Done while the control plane is asked, so that its answer does not wait for them.
        actions: list[Callable[[], object]] = [
            partial(message_class, name) for name in (REQUEST_NAME, CLUSTER)
        ]
        actions += [partial(policies.find, name) for name in POLICIES_OF_EVERY_CONFIG]
        _run_in_turns(stack.clock, TURNS_BEFORE_IMPORTS, iter(actions))

    @cached_property
    def certificates(self) -> CertificateStore:
        from proxyless.xds.security.certificates import (  # noqa: PLC0415 - only with TLS
            CertificateStore,
        )

        return CertificateStore(self._clock)

    def tools(
        self,
        policies: PolicyRegistry,
        filters: FilterRegistry,
        dns: ResolverFactory,
        metrics: Metrics = NO_METRICS,
        child: ChildChannel | None = None,
        *,
        has_own_registries: bool = False,
    ) -> XdsTools:
        """Tools for resolvers of channels with these registries."""
        registries = (policies, filters) if has_own_registries else None
        transports = None if child is None else self._transports.for_child(child)
        acquire = partial(
            self.clients.acquire, registries=registries, metrics=metrics, transports=transports
        )
        types = resource_types(policies, filters)
        return XdsTools(acquire, self.clients.release, types, filters, dns, metrics)


def _run_in_turns(clock: Clock, turns: int, actions: Iterator[Callable[[], object]]) -> None:
    """Wait for this many turns of the loop, and run one action in each of the next."""
    if turns == 0:
        action = next(actions, None)
        if action is None:
            return
        action()
    clock.call_later(0, partial(_run_in_turns, clock, max(turns - 1, 0), actions))
