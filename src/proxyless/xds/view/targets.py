"""State of a running target, and resources of the xDS clients of a process.

Specs: A40 (CSDS), A74 (config of a target).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.xds.client import codec
from proxyless.xds.resolver import XdsResolver, XdsView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyless.protos import Proto
    from proxyless.xds.bootstrap import Node
    from proxyless.xds.client import ResourceDump, XdsClients


def view_target(resolver: object) -> XdsView | None:
    """State of the target of an xDS resolver; None for other resolvers."""
    return resolver.view() if isinstance(resolver, XdsResolver) else None


def dump_clients(clients: XdsClients) -> Iterator[tuple[str, Node, Sequence[ResourceDump]]]:
    """Scope (A71), node and resources of each client. Called on the clients' event loop."""
    for scope, group in clients.by_scope.items():
        for client in group:
            yield scope, client.bootstrap.node, client.dump()


def encode_node(node: Node) -> Proto:
    """The node as in ADS requests."""
    return codec.encode_node(node, codec.ADS_FEATURES)
