"""Interfaces of an HTTP filter (ClientFilter, RpcFilter), and FilterStack, the filters of one RPC.

Specs: A39 (chains), A33 (fault), A55 and A60 (session affinity).

The ConfigSelector calls each filter of a route's chain once per RPC, after it has chosen a cluster
and before it adds a reference to it. A filter may choose another cluster of the route, set
attributes for the pickers, delay or end the RPC, and change the response. Responses pass the
filters in the reverse order of the chain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from proxyless.base import Status, quote
from proxyless.base.frozen import frozen, mutable
from proxyless.xds.error_texts import name_listener, with_node

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from proxyless.base import Attributes, Metadata
    from proxyless.channel.config_selector import Mirror
    from proxyless.wire import StreamEnd


@mutable(eq=False)
class RoutedRpc:
    """One RPC in the chain. Filters may change `cluster` and `attributes`."""

    path: str
    metadata: Metadata
    # The clusters of the route; empty if a plugin chooses the cluster (A60-01).
    clusters: Collection[str]
    # The one chosen so far.
    cluster: str
    # For the pickers.
    attributes: Attributes


class RpcFilter:
    """Base of the state of a filter for one RPC. This one changes nothing."""

    __slots__ = ()

    @property
    def delay_s(self) -> float:
        """The delay before the pick."""
        return 0.0

    @property
    def abort(self) -> Status | None:
        """If not None, the RPC ends with this status after the delay."""
        return None

    def on_delay_start(self) -> None:
        """Called if any filter of the chain delays the RPC."""

    def on_delay_end(self) -> None:
        """The delay or the RPC has ended. Called once after `on_delay_start`."""

    def on_head(self, metadata: Metadata) -> Metadata:
        """The response metadata for the preceding filter or the application."""
        return metadata

    def on_end(self, end: StreamEnd, *, had_head: bool) -> StreamEnd:
        """The end for the preceding filter or the application. Called once for every RPC.

        Without a head (a trailers-only response), initial metadata goes into the trailers.
        """
        return end


class ClientFilter(Protocol):
    """A filter with the config of one route. Shared by the RPCs of that route."""

    def on_rpc(self, rpc: RoutedRpc) -> RpcFilter | None:
        """May change the RPC; returns its filter state, or None if nothing else is to be done."""
        ...


@frozen
class FilterOrigin:
    """The origin of a chain's filters, for error texts."""

    listener_name: str
    node_id: str
    # In order of the chain.
    filter_names: tuple[str, ...] = ()

    def add_to(self, abort: Status, index: int) -> Status:
        """The status of an RPC that this filter of the chain aborts."""
        if abort.is_ok:
            return abort
        origin = f"{name_listener(self.listener_name)}: filter {quote(self.filter_names[index])}"
        return Status(abort.code, with_node(f"{origin}: {abort.details}", self.node_id))


class FilterStack:
    """The filters of one RPC, as a `channel.Interception`."""

    __slots__ = ("_filters", "abort", "delay_s", "mirrors")

    def __init__(
        self,
        chain: Sequence[RpcFilter | None],
        origin: FilterOrigin,
        mirrors: Sequence[Mirror] = (),
    ) -> None:
        self.mirrors = mirrors
        self._filters = [each for each in chain if each is not None]
        self.delay_s = 0.0
        self.abort: Status | None = None
        # Filters after the first abort do not delay or abort the RPC.
        for each in self._filters:
            self.delay_s += each.delay_s
            abort = each.abort
            if abort is not None:
                self.abort = origin.add_to(abort, chain.index(each))
                break

    def on_delay_start(self) -> None:
        for each in self._filters:
            each.on_delay_start()

    def on_delay_end(self) -> None:
        for each in self._filters:
            each.on_delay_end()

    def on_head(self, metadata: Metadata) -> Metadata:
        for each in reversed(self._filters):
            metadata = each.on_head(metadata)
        return metadata

    def on_end(self, end: StreamEnd, *, had_head: bool) -> StreamEnd:
        for each in reversed(self._filters):
            end = each.on_end(end, had_head=had_head)
        return end
