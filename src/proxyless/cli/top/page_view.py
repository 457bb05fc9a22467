"""View of a process for the page of the demo (`demo/page.html`).

The page shows the view as it does that of the demo; a view with a title has channels instead of a
story.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from proxyless.base.frozen import frozen
from proxyless.base.texts import count
from proxyless.cli.top.tables import show_rate
from proxyless.demo.view import COLUMNS, view_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from proxyless.cli.top.samples import ChannelRow, ClusterRow, EndpointRow, Sample

# Endpoints on the page; a page with more is not readable.
ENDPOINTS_MAX: Final = 200

_RUNNING: Final = frozenset({"READY", "HEALTHY"})
_NO_HISTORY: Final = (0.0,) * COLUMNS


@frozen
class ProcessOnPage:
    """One event for the page."""

    document: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return dict(self.document)


class PageHistory:
    """Rates of the endpoints in the last samples, and the views that have them."""

    def __init__(self, address: str) -> None:
        self._address: Final = address
        self._first_s: float | None = None
        self._rates: dict[str, deque[float]] = {}

    def view(self, sample: Sample, problem: str = "") -> ProcessOnPage:
        """The view of a sample; `problem` is the reason why there is no newer one."""
        if self._first_s is None:
            self._first_s = sample.time_s
        places = list(_all_endpoints(sample))
        shown = places[:ENDPOINTS_MAX]
        if not problem:
            self._record(shown)
        notes = list(sample.notes)
        if len(places) > len(shown):
            notes.append(count(len(places) - len(shown), "more endpoint"))
        traffic = sample.traffic
        return ProcessOnPage(
            {
                "title": "proxyless top",
                "subtitle": f"{self._address}, {sample.process}".rstrip(", "),
                "status": problem or sample.source,
                "status_kind": "bad" if problem else "",
                "elapsed_s": sample.time_s - self._first_s,
                "rate": show_rate(traffic.rate).text,
                "sent": _number(traffic.started),
                "failed": _number(traffic.failed),
                "channels": [_channel(channel) for channel in sample.channels],
                "backends": [self._backend(*place) for place in shown],
                "tree": [row for channel in sample.channels for row in _tree(channel)],
                "notes": notes,
            }
        )

    def _record(self, places: Sequence[tuple[ChannelRow, ClusterRow, EndpointRow]]) -> None:
        """Add one column; endpoints that are gone lose their history."""
        before, self._rates = self._rates, {}
        for channel, cluster, endpoint in places:
            key = _key(channel, cluster, endpoint)
            rates = before.get(key) or deque(_NO_HISTORY, COLUMNS)
            rates.append(endpoint.traffic.rate or 0.0)
            self._rates[key] = rates

    def _backend(
        self, channel: ChannelRow, cluster: ClusterRow, endpoint: EndpointRow
    ) -> dict[str, Any]:
        key = _key(channel, cluster, endpoint)
        where = cluster.name or channel.target
        stopped = "ejected" if endpoint.is_ejected else endpoint.state.replace("TRANSIENT_", "")
        is_running = endpoint.state in _RUNNING and not endpoint.is_ejected
        return {
            "key": key,
            "name": endpoint.address,
            "zone": f"{where} {endpoint.locality}".strip(),
            "cluster": where,
            "address": endpoint.note or endpoint.address,
            "is_running": is_running,
            "stopped": stopped or "unknown",
            "priority": endpoint.priority,
            "rate": endpoint.traffic.rate or 0.0,
            "history": list(self._rates.get(key, _NO_HISTORY)),
        }


def _all_endpoints(sample: Sample) -> Iterator[tuple[ChannelRow, ClusterRow, EndpointRow]]:
    for channel in sample.channels:
        for cluster in channel.clusters:
            for endpoint in cluster.endpoints:
                yield channel, cluster, endpoint


def _key(channel: ChannelRow, cluster: ClusterRow, endpoint: EndpointRow) -> str:
    return f"{channel.key}/{cluster.name}/{endpoint.address}"


def _channel(channel: ChannelRow) -> dict[str, str]:
    traffic = channel.traffic
    return {
        "target": channel.target,
        "state": channel.state,
        "rate": show_rate(traffic.rate).text,
        "failure_rate": show_rate(traffic.failure_rate).text,
        "in_flight": _number(traffic.in_flight),
        "configs": _number(channel.generation),
        "problem": channel.shown_problem,
    }


def _tree(channel: ChannelRow) -> Iterator[dict[str, Any]]:
    for row in view_tree(channel.lb_tree, {}):
        yield {
            "depth": row.depth,
            "label": row.label,
            "policies": row.policies,
            "state": row.state,
            "note": row.note,
            "is_active": row.is_active,
        }


def _number(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"
