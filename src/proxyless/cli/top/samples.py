"""Sample: the channels of a process at one moment, and the rates between two of them.

`live_samples` and `csds_samples` make samples. All texts in one are escaped.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from proxyless.lb.description import LbNode

EVENTS_MAX: Final = 100


@frozen
class Traffic:
    """Counts of RPCs, and rates since the previous sample; None if they are unknown."""

    started: int | None = None
    failed: int | None = None
    in_flight: int | None = None
    # Per second.
    rate: float | None = None
    failure_rate: float | None = None


@frozen
class EndpointRow:
    """One endpoint of a cluster."""

    address: str
    state: str
    priority: int
    locality: str = ""
    is_in_use: bool = True
    is_ejected: bool = False
    note: str = ""
    traffic: Traffic = Traffic()


@frozen
class ClusterRow:
    """One cluster of a channel."""

    name: str
    state: str
    problem: str = ""
    priorities: int = 0
    # None if RPCs are sent to no priority, or if that is unknown.
    priority_in_use: int | None = None
    ready: int | None = None
    ejected: int | None = None
    total: int = 0
    endpoints: tuple[EndpointRow, ...] = ()
    traffic: Traffic = Traffic()


@frozen
class ChannelRow:
    """One channel, or one xDS client of CSDS."""

    key: str
    target: str
    state: str
    problem: str = ""
    # The number of configs that were applied; None if unknown.
    generation: int | None = None
    waiting: int | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    last_failure: str = ""
    clusters: tuple[ClusterRow, ...] = ()
    lb_tree: LbNode | None = None
    traffic: Traffic = Traffic()

    @property
    def shown_problem(self) -> str:
        """The present problem, or else the last failure."""
        last = f"last failure: {self.last_failure}" if self.last_failure else ""
        return self.problem or last


@frozen
class EventRow:
    """One event of the process."""

    time_s: float
    text: str


@frozen
class Sample:
    """A process at one moment."""

    source: str
    # By the clock of the process, in seconds since 1970; of this one for CSDS.
    time_s: float
    process: str
    channels: tuple[ChannelRow, ...]
    # The newest ones, the last of them last.
    events: tuple[EventRow, ...] = ()
    # What is not in the sample, and why.
    notes: tuple[str, ...] = ()

    @property
    def traffic(self) -> Traffic:
        """Sums of all channels."""
        return _sum(channel.traffic for channel in self.channels)


# Rates


def with_rates(before: Sample | None, now: Sample) -> Sample:
    """The sample with the rates since another one of the same process, and events of both."""
    if before is None or before.process != now.process or now.time_s <= before.time_s:
        return now
    events = (*before.events, *now.events)[-EVENTS_MAX:]
    elapsed_s = now.time_s - before.time_s
    known = {channel.key: channel for channel in before.channels}
    channels = tuple(
        _rate_channel(known.get(channel.key), channel, elapsed_s) for channel in now.channels
    )
    return replace(now, channels=channels, events=events)


def _rate_channel(before: ChannelRow | None, now: ChannelRow, elapsed_s: float) -> ChannelRow:
    if before is None:
        return now
    known = {cluster.name: cluster for cluster in before.clusters}
    clusters = tuple(
        _rate_cluster(known.get(cluster.name), cluster, elapsed_s) for cluster in now.clusters
    )
    traffic = _rate(before.traffic, now.traffic, elapsed_s)
    return replace(now, clusters=clusters, traffic=traffic)


def _rate_cluster(before: ClusterRow | None, now: ClusterRow, elapsed_s: float) -> ClusterRow:
    if before is None:
        return now
    known = {endpoint.address: endpoint.traffic for endpoint in before.endpoints}
    endpoints = tuple(
        replace(
            endpoint,
            traffic=_rate(known.get(endpoint.address, Traffic()), endpoint.traffic, elapsed_s),
        )
        for endpoint in now.endpoints
    )
    traffic = _rate(before.traffic, now.traffic, elapsed_s)
    return replace(now, endpoints=endpoints, traffic=traffic)


def _rate(before: Traffic, now: Traffic, elapsed_s: float) -> Traffic:
    rate = _difference(before.started, now.started, elapsed_s)
    failure_rate = _difference(before.failed, now.failed, elapsed_s)
    return replace(now, rate=rate, failure_rate=failure_rate)


def _difference(before: int | None, now: int | None, elapsed_s: float) -> float | None:
    if before is None or now is None or now < before:
        return None
    return (now - before) / elapsed_s


def _sum(parts: Iterable[Traffic]) -> Traffic:
    found = list(parts)

    def add(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    def add_whole(values: Sequence[int | None]) -> int | None:
        total = add(values)
        return None if total is None else int(total)

    return Traffic(
        add_whole([each.started for each in found]),
        add_whole([each.failed for each in found]),
        add_whole([each.in_flight for each in found]),
        add([each.rate for each in found]),
        add([each.failure_rate for each in found]),
    )


def to_json(sample: Sample) -> dict[str, object]:
    """The sample as a JSON document, for scripts. Unknown values are null."""
    return {
        "source": sample.source,
        "time": sample.time_s,
        "process": sample.process,
        "notes": list(sample.notes),
        "channels": [_channel_to_json(channel) for channel in sample.channels],
    }


def _channel_to_json(channel: ChannelRow) -> dict[str, object]:
    return {
        "id": channel.key,
        "target": channel.target,
        "state": channel.state,
        "problem": channel.problem,
        "config_generation": channel.generation,
        "waiting": channel.waiting,
        "failures": dict(channel.failures),
        "last_failure": channel.last_failure,
        **_traffic_to_json(channel.traffic),
        "clusters": [
            {
                "name": cluster.name,
                "state": cluster.state,
                "problem": cluster.problem,
                "priorities": cluster.priorities,
                "priority_in_use": cluster.priority_in_use,
                "endpoints_ready": cluster.ready,
                "endpoints_ejected": cluster.ejected,
                "endpoints_total": cluster.total,
                **_traffic_to_json(cluster.traffic),
                "endpoints": [_endpoint_to_json(each) for each in cluster.endpoints],
            }
            for cluster in channel.clusters
        ],
    }


def _endpoint_to_json(endpoint: EndpointRow) -> dict[str, object]:
    return {
        "address": endpoint.address,
        "state": endpoint.state,
        "priority": endpoint.priority,
        "locality": endpoint.locality,
        "is_in_use": endpoint.is_in_use,
        "is_ejected": endpoint.is_ejected,
        "note": endpoint.note,
        **_traffic_to_json(endpoint.traffic),
    }


def _traffic_to_json(traffic: Traffic) -> dict[str, object]:
    return {
        "started": traffic.started,
        "failed": traffic.failed,
        "in_flight": traffic.in_flight,
        "rate": traffic.rate,
        "failure_rate": traffic.failure_rate,
    }
