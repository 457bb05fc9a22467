"""Samples of the live service of a process (`proxyless.admin`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.texts import count, one_line
from proxyless.cli.top.samples import (
    ChannelRow,
    ClusterRow,
    EndpointRow,
    EventRow,
    Sample,
    Traffic,
)
from proxyless.lb.description import LbNode

if TYPE_CHECKING:
    from proxyless.protos import Proto

SOURCE: Final = "live service"


def read_snapshot(snapshot: Proto) -> Sample:
    process = snapshot.process
    notes = []
    if snapshot.has_more_channels:
        notes.append(f"channels after the first {len(snapshot.channels)} are not shown")
    if snapshot.silent_loops:
        notes.append(f"{count(snapshot.silent_loops, 'event loop')} did not answer in time")
    return Sample(
        SOURCE,
        snapshot.time.ToNanoseconds() / 1e9,
        one_line(f"pid {process.pid}, proxyless {process.version}, Python {process.python}"),
        tuple(map(_read_channel, snapshot.channels)),
        tuple(_read_event(event) for event in snapshot.events if not _is_routine(event)),
        tuple(notes),
    )


def _read_channel(channel: Proto) -> ChannelRow:
    failure = channel.last_failure
    where = f" at {failure.address}" if failure.address else ""
    last = f"{failure.method}{where}: {failure.code}: {failure.details}" if failure.code else ""
    return ChannelRow(
        str(channel.id),
        one_line(channel.target),
        _name_state(channel),
        one_line(channel.problem),
        channel.config_generation,
        channel.waiting,
        {one_line(code): number for code, number in sorted(channel.failures_by_code.items())},
        one_line(last),
        tuple(map(_read_cluster, channel.clusters)),
        _read_node(channel.lb_tree) if channel.HasField("lb_tree") else None,
        _read_counts(channel.rpcs),
    )


def _read_cluster(cluster: Proto) -> ClusterRow:
    return ClusterRow(
        one_line(cluster.name),
        _name_state(cluster),
        one_line(cluster.problem),
        cluster.priorities,
        cluster.priority_in_use if cluster.priority_in_use >= 0 else None,
        cluster.endpoints_ready,
        cluster.endpoints_ejected,
        cluster.endpoints_total,
        tuple(map(_read_endpoint, cluster.endpoints)),
        _read_counts(cluster.rpcs),
    )


def _read_endpoint(endpoint: Proto) -> EndpointRow:
    # The row has the address already.
    note = endpoint.detail.removeprefix(f"{endpoint.address}: ")
    return EndpointRow(
        one_line(endpoint.address),
        _name_state(endpoint),
        endpoint.priority,
        one_line(endpoint.locality),
        endpoint.in_use,
        endpoint.is_ejected,
        one_line(note),
        _read_counts(endpoint.rpcs),
    )


def _is_routine(event: Proto) -> bool:
    """Whether the event is a sampled RPC that did not fail: they would hide all others."""
    return bool(event.name == "rpc" and event.fields.get("status") == "OK")


def _read_event(event: Proto) -> EventRow:
    fields = " ".join(f"{key}={value}" for key, value in sorted(event.fields.items()))
    return EventRow(event.time.ToNanoseconds() / 1e9, one_line(f"{event.name} {fields}".strip()))


def _read_node(node: Proto) -> LbNode:
    return LbNode(
        one_line(node.name),
        one_line(node.policy),
        _name_state(node),
        one_line(node.detail),
        tuple(map(_read_node, node.children)),
        one_line(node.problem),
        node.in_use,
        one_line(node.barrier),
    )


def _name_state(message: Proto) -> str:
    """Name of the field `state`; empty if it is unspecified or not known here."""
    values = message.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number
    found = values.get(message.state)
    return str(found.name) if found is not None and message.state else ""


def _read_counts(counts: Proto) -> Traffic:
    return Traffic(counts.started, counts.failed, counts.in_flight)
