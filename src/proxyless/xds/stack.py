"""Objects that the xDS channels of one loop share: pool of xDS clients, store of certificates.

Made when the first xDS channel of a loop resolves its target.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from proxyless.metrics import NO_METRICS, Metrics
from proxyless.xds.client import Tools, XdsClientOptions, XdsClients
from proxyless.xds.grpc_transport import GrpcTransports
from proxyless.xds.resolver import XdsTools, resource_types
from proxyless.xds.security.certificates import CertificateStore

if TYPE_CHECKING:
    from proxyless.channel import LoopStack
    from proxyless.lb import PolicyRegistry
    from proxyless.resolver import ResolverFactory, ResolverRegistry
    from proxyless.xds.filters import FilterRegistry


class XdsStack:
    """Pool of xDS clients and store of certificates of one loop."""

    def __init__(
        self, stack: LoopStack, *, policies: PolicyRegistry, resolvers: ResolverRegistry
    ) -> None:
        """The registries are those of the channels to control planes."""
        transports = GrpcTransports(stack, policies=policies, resolvers=resolvers)
        tools = Tools(stack.clock, stack.random, stack.trace)
        options = XdsClientOptions.from_environment(os.environ)
        self.clients = XdsClients(transports, tools, options)
        # Owner of the stack: the copy in the child of a fork must not be used.
        self.process_id = os.getpid()
        self.certificates = CertificateStore(stack.clock)

    def tools(
        self,
        policies: PolicyRegistry,
        filters: FilterRegistry,
        dns: ResolverFactory,
        metrics: Metrics = NO_METRICS,
        *,
        has_own_registries: bool = False,
    ) -> XdsTools:
        """Tools for resolvers of channels with these registries."""
        registries = (policies, filters) if has_own_registries else None
        acquire = partial(self.clients.acquire, registries=registries, metrics=metrics)
        types = resource_types(policies, filters)
        return XdsTools(acquire, self.clients.release, types, filters, dns)
