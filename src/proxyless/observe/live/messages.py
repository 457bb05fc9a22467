"""Encoding of views as messages of the live service (`proxyless.live.v1`).

Texts are escaped and bounded here, and every list has a limit. The limits of endpoints and of
nodes hold for one message, so that it stays below the 4 MiB that a client accepts by default.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from proxyless.observe.live.clusters import find_clusters
from proxyless.observe.live.views import NAME_MAX, NO_COUNTS, CountsView, short
from proxyless.protos import Proto, message_class

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.lb import LbNode
    from proxyless.observe.live.clusters import ClusterRow, EndpointRow
    from proxyless.observe.live.views import LiveChannel

PACKAGE: Final = "proxyless.live.v1"

# Limits of one message.
CLUSTERS_MAX: Final = 1_000
ENDPOINTS_MAX: Final = 4_000
NODES_MAX: Final = 4_000
# Limit of one channel.
CODES_MAX: Final = 17
# Limit of an event.
FIELDS_MAX: Final = 16
# Limit of an LB tree.
DEPTH_MAX: Final = 50


def live_class(name: str) -> type[Proto]:
    """The class of a message of the live service."""
    return message_class(f"{PACKAGE}.{name}")


@cache
def _state_numbers() -> Mapping[str, int]:
    return dict(live_class("Channel").DESCRIPTOR.fields_by_name["state"].enum_type.values_by_name)


def state_number(name: str) -> int:
    """Number of a state; 0 for none."""
    found: Any = _state_numbers().get(name)
    return 0 if found is None else found.number


def set_time(into: Proto, epoch_s: float | None) -> None:
    """Set a Timestamp, unless there is no time."""
    if epoch_s is not None:
        into.FromNanoseconds(round(epoch_s * 1e9))


class SnapshotEncoder:
    """Encodes the channels of one message. Owns what is left of its limits."""

    def __init__(self, *, has_trees: bool) -> None:
        self._has_trees = has_trees
        self._clusters = CLUSTERS_MAX
        self._endpoints = ENDPOINTS_MAX
        self._nodes = NODES_MAX

    def add_channel(self, channel: LiveChannel, into: Proto) -> None:
        into.id = channel.id
        into.target = short(channel.target, NAME_MAX)
        into.state = state_number(channel.state.name)
        into.problem = short(channel.problem)
        into.config_generation = channel.generation
        into.waiting = channel.waiting
        encode_counts(channel.rpcs, into.rpcs)
        for code, number in list(channel.failures.items())[:CODES_MAX]:
            into.failures_by_code[code] = number
        if channel.last_failure is not None:
            failure = channel.last_failure
            set_time(into.last_failure.time, failure.time)
            into.last_failure.method = short(failure.method, NAME_MAX)
            into.last_failure.code = failure.code
            into.last_failure.details = short(failure.details)
            into.last_failure.address = short(failure.address, NAME_MAX)
        for row in find_clusters(channel.tree):
            if not self._clusters:
                into.clusters_truncated = True
                break
            self._clusters -= 1
            self._add_cluster(row, channel.by_address, into.clusters.add())
        if channel.tree is not None and self._has_trees:
            into.lb_tree_truncated = not self._add_node(channel.tree, into.lb_tree)

    def _add_cluster(
        self, row: ClusterRow, by_address: Mapping[str, CountsView], into: Proto
    ) -> None:
        into.name = short(row.name, NAME_MAX)
        into.state = state_number(row.state)
        into.problem = short(row.problem)
        into.priorities = row.priorities
        into.priority_in_use = -1 if row.priority_in_use is None else row.priority_in_use
        into.endpoints_ready = row.ready
        into.endpoints_ejected = row.ejected
        into.endpoints_total = len(row.endpoints)
        addresses = dict.fromkeys(each.address for each in row.endpoints)
        rpcs = sum((by_address.get(each, NO_COUNTS) for each in addresses), NO_COUNTS)
        encode_counts(rpcs, into.rpcs)
        shown = row.endpoints[: self._endpoints]
        self._endpoints -= len(shown)
        into.endpoints_truncated = len(shown) < len(row.endpoints)
        for endpoint in shown:
            self._add_endpoint(endpoint, by_address, into.endpoints.add())

    def _add_endpoint(
        self, row: EndpointRow, by_address: Mapping[str, CountsView], into: Proto
    ) -> None:
        into.address = short(row.address, NAME_MAX)
        into.state = state_number(row.state)
        into.priority = row.priority
        into.locality = short(row.locality, NAME_MAX)
        into.in_use = row.in_use
        into.is_ejected = row.is_ejected
        into.detail = short(row.detail)
        if (counts := by_address.get(row.address)) is not None:
            encode_counts(counts, into.rpcs)

    def _add_node(self, node: LbNode, into: Proto, depth: int = 0) -> bool:
        """False if a node was left out."""
        self._nodes -= 1
        into.name = short(node.name, NAME_MAX)
        into.policy = short(node.policy, NAME_MAX)
        into.state = state_number(node.state)
        into.detail = short(node.detail)
        into.problem = short(node.problem)
        into.barrier = short(node.barrier)
        into.in_use = node.in_use
        if depth >= DEPTH_MAX:
            return not node.children
        for child in node.children:
            if self._nodes <= 0 or not self._add_node(child, into.children.add(), depth + 1):
                return False
        return True


def encode_counts(counts: CountsView, into: Proto) -> None:
    into.started = counts.started
    into.succeeded = counts.succeeded
    into.failed = counts.failed
    into.in_flight = counts.in_flight
    set_time(into.last_started, counts.last_started)


def encode_event(entry: Mapping[str, Any], into: Proto) -> None:
    """Encode an entry of a flight recording (`observe.flight.recording`)."""
    into.number = entry["number"]
    set_time(into.time, entry["time"])
    into.name = short(entry["event"], NAME_MAX)
    for key, value in list(entry.get("fields", {}).items())[:FIELDS_MAX]:
        into.fields[short(key, NAME_MAX)] = short(_field_text(value))


def _field_text(value: object) -> str:
    match value:
        case None:
            return ""
        case {"code": code, "details": details}:
            return f"{code}: {details}" if details else str(code)
        case [*items]:
            return ", ".join(map(_field_text, items))
        case _:
            return str(value)
