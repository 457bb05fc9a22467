"""State of a running target, and the resources that the xDS clients of a process hold.

Specs: A40 (CSDS), A74 (the config of a target).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.xds.client import codec
from proxyless.xds.resolver import XdsResolver

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyless.protos import Proto
    from proxyless.xds.bootstrap import Node
    from proxyless.xds.client import ResourceDump, XdsClients
    from proxyless.xds.resolver import XdsView


def view_target(resolver: object) -> XdsView | None:
    """The target of an xDS resolver; None for resolvers of other kinds."""
    return resolver.view() if isinstance(resolver, XdsResolver) else None


def dump_clients(clients: XdsClients) -> Iterator[tuple[str, Node, Sequence[ResourceDump]]]:
    """Scope (A71), node and resources of each client. Called on the clients' event loop."""
    for scope, group in clients.by_scope.items():
        for client in group:
            yield scope, client.bootstrap.node, client.dump()


def encode_node(node: Node) -> Proto:
    """The node as ADS requests have it."""
    return codec.encode_node(node, codec.ADS_FEATURES)
