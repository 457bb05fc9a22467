"""State of a running target, and resources of the xDS clients of a process.

Specs: A40 (CSDS), A74 (config of a target).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.xds.client import codec
from proxyless.xds.resolver import XdsResolver, XdsView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.protos import Proto
    from proxyless.xds.bootstrap import Node
    from proxyless.xds.client import ResourceDump, XdsClients
    from proxyless.xds.client.cache import Entry


def view_target(resolver: object) -> XdsView | None:
    """State of the target of an xDS resolver; None for other resolvers."""
    return resolver.view() if isinstance(resolver, XdsResolver) else None


def dump_clients(clients: XdsClients) -> list[tuple[str, Node, Iterator[ResourceDump]]]:
    """Scope (A71), node and resources of each client. Called on the clients' event loop.

    A resource is dumped when the iterator reaches it, on the same loop, in this or a later turn.
    """
    return [
        (scope, client.bootstrap.node, _dump(list(client.all_entries())))
        for scope, group in clients.by_scope.items()
        for client in group
    ]


def _dump(entries: list[Entry]) -> Iterator[ResourceDump]:
    return (dump for entry in entries for dump in entry.dumps())


def encode_node(node: Node) -> Proto:
    """The node as in ADS requests."""
    return codec.encode_node(node, codec.ADS_FEATURES)
