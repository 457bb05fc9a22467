"""What may a filter do with an RPC?

Specs: A39 (chains), A33 (fault), A55 and A60 (session affinity).

A filter that stands in a route's chain is asked once per RPC, after the route and a cluster were
chosen and before the cluster is marked as in use. It may choose another cluster of the route, tell
the pickers something, delay or end the RPC, and look at the response. Filters are asked in the
order of the chain; responses pass them in the reverse order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from proxyless.base import Status, quote
from proxyless.base.frozen import frozen
from proxyless.xds.error_texts import name_listener, with_node

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from proxyless.base import Attributes, Metadata
    from proxyless.wire import StreamEnd


@dataclass(slots=True, eq=False)
class RoutedRpc:
    """One RPC on its way through the chain. Filters change the last two."""

    path: str
    metadata: Metadata
    # The clusters that the route can go to; none if a plugin decides (A60-01).
    clusters: Collection[str]
    # The one chosen so far.
    cluster: str
    # For the pickers.
    attributes: Attributes


class RpcFilter:
    """What a filter has to do with one RPC. A base for filters: by itself it does nothing."""

    __slots__ = ()

    @property
    def delay_s(self) -> float:
        """How long the RPC waits before it is picked for."""
        return 0.0

    @property
    def abort(self) -> Status | None:
        """With what the RPC ends after the delay."""
        return None

    def on_delay_start(self) -> None:
        """The RPC waits from now on. Not called if there is no delay."""
        return

    def on_delay_end(self) -> None:
        """It waits no longer: the delay is over, or the RPC. Called once after `on_delay_start`."""
        return

    def on_head(self, metadata: Metadata) -> Metadata:
        """The response metadata for whoever comes before."""
        return metadata

    def on_end(self, end: StreamEnd, *, had_head: bool) -> StreamEnd:
        """The end for whoever comes before. Called once, however the RPC ends.

        A response without messages has no head: what belongs there goes into the trailers.
        """
        return end


class ClientFilter(Protocol):
    """A filter with its config, as one route has it. Shared by the RPCs of that route."""

    def on_rpc(self, rpc: RoutedRpc) -> RpcFilter | None:
        """Do what is to be done now; what is to be done later, the returned object does."""
        ...


@frozen
class FilterOrigin:
    """Whose filters they are, for error texts."""

    listener_name: str
    node_id: str
    # Of the filters of a chain, in order, as the listener calls them.
    filter_names: tuple[str, ...] = ()

    def name(self, abort: Status, position: int) -> Status:
        """What an RPC ends with that this filter of the chain ends."""
        if abort.is_ok:
            return abort
        who = f"{name_listener(self.listener_name)}: filter {quote(self.filter_names[position])}"
        return Status(abort.code, with_node(f"{who}: {abort.details}", self.node_id))


class FilterStack:
    """All that the filters of a chain have to do with one RPC: `channel.Interception`."""

    __slots__ = ("_filters", "abort", "delay_s")

    def __init__(self, answers: Sequence[RpcFilter | None], origin: FilterOrigin) -> None:
        """What each filter of the chain has answered, in order."""
        self._filters = [each for each in answers if each is not None]
        self.delay_s = 0.0
        self.abort: Status | None = None
        # An RPC that a filter ends does not come to those after it.
        for each in self._filters:
            self.delay_s += each.delay_s
            abort = each.abort
            if abort is not None:
                self.abort = origin.name(abort, answers.index(each))
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
