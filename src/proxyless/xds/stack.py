"""What do the xDS channels of one loop share?

The clients of control planes, one per data-plane target or one per server (see `client.pool`), the
channels on which those speak, and the certificates for connections to clusters. Made when the first
xDS channel of a loop resolves its target.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from proxyless.metrics import NO_METRICS, Metrics
from proxyless.xds.client import Tools, XdsClientOptions, XdsClients
from proxyless.xds.config.manager import ResourceTypes
from proxyless.xds.grpc_transport import GrpcTransports
from proxyless.xds.parsing import (
    ClusterType,
    EndpointType,
    ListenerType,
    RouteConfigurationType,
)
from proxyless.xds.resolver import XdsTools
from proxyless.xds.security.certificates import CertificateStore

if TYPE_CHECKING:
    from collections.abc import Hashable

    from proxyless.channel import LoopStack
    from proxyless.lb import PolicyRegistry
    from proxyless.resolver import ResolverFactory, ResolverRegistry
    from proxyless.xds.bootstrap import Bootstrap
    from proxyless.xds.client import XdsClient
    from proxyless.xds.filters import FilterRegistry


class XdsStack:
    """The control planes of one loop. Driven by the resolvers of its channels."""

    def __init__(
        self, stack: LoopStack, *, policies: PolicyRegistry, resolvers: ResolverRegistry
    ) -> None:
        """The registries are for the channels to control planes, not for applications."""
        transports = GrpcTransports(stack, policies=policies, resolvers=resolvers)
        tools = Tools(stack.clock, stack.random, stack.trace)
        options = XdsClientOptions.from_environment(os.environ)
        self.clients = XdsClients(transports, tools, options)
        # Whose it is: the child of a fork has a copy that nobody may touch.
        self.process_id = os.getpid()
        self.certificates = CertificateStore(stack.clock)

    def tools(
        self,
        policies: PolicyRegistry,
        filters: FilterRegistry,
        dns: ResolverFactory,
        metrics: Metrics = NO_METRICS,
        *,
        is_own_vocabulary: bool = False,
    ) -> XdsTools:
        """For resolvers of channels that know these, and that may know others than most do."""
        types = ResourceTypes(
            ListenerType(filters),
            RouteConfigurationType(filters),
            ClusterType(policies),
            EndpointType(),
        )
        vocabulary = (policies, filters) if is_own_vocabulary else None
        acquire = partial(self._acquire, vocabulary, metrics)
        return XdsTools(acquire, self.clients.release, types, filters, dns)

    def _acquire(
        self,
        vocabulary: Hashable,
        metrics: Metrics,
        bootstrap: Bootstrap,
        target: str,
        shared: bool | None,
    ) -> XdsClient:
        return self.clients.acquire(
            bootstrap, target, shared=shared, vocabulary=vocabulary, metrics=metrics
        )
