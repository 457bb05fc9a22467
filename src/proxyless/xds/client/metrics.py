"""Instruments of an xDS client.

Specs: A78 ("XdsClient"), A88 (more cache states).

Counters are incremented on the client's loop. Gauges are read in the thread of the collector, so
the tables that they read are copied in one step (`XdsClient`).
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol
from weakref import ref

from proxyless.metrics.instruments import (
    XDS_CONNECTED,
    XDS_RESOURCES,
    XDS_SAVED_RESOURCES,
    XDS_SERVER_FAILURE,
    XDS_UPDATES_INVALID,
    XDS_UPDATES_VALID,
)
from proxyless.xds.client.api import ResourceStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.metrics import Cancel, Metrics, Report
    from proxyless.xds.client.cache import Entry

# "The value will be "#old" for old-style non-xdstp resource names" - A78
OLD_STYLE: Final = "#old"

_GAUGES: Final = (XDS_CONNECTED, XDS_RESOURCES, XDS_SAVED_RESOURCES)

# States in which an earlier resource may be in use.
_MAY_BE_CACHED: Final = frozenset(
    {ResourceStatus.DOES_NOT_EXIST, ResourceStatus.NACKED, ResourceStatus.RECEIVED_ERROR}
)


class Observed(Protocol):
    """Part of a client that the gauges read, in any thread."""

    def reachable_servers(self) -> Iterable[tuple[str, bool]]:
        """URI of each server in use, and whether it is reachable."""

    def all_entries(self) -> Iterable[Entry]: ...


def name_cache_state(status: ResourceStatus, *, has_resource: bool) -> str:
    """Cache state of a resource, as in the label of A78 and A88."""
    suffix = "_but_cached" if has_resource and status in _MAY_BE_CACHED else ""
    return status.name.lower() + suffix


def name_resource_type(type_url: str) -> str:
    return type_url.rpartition("/")[2]


class ClientMetrics:
    """Counters and gauges of one client."""

    def __init__(self, metrics: Metrics, client: Observed) -> None:
        self._metrics: Final = metrics
        # A weak reference, because gauges must not keep a client alive whose loop was closed.
        observed, process_id = ref(client), os.getpid()

        def observe(report: Report) -> None:
            client = observed()
            # After a fork, the child has the parent's client, but not its loop.
            if client is not None and os.getpid() == process_id:
                report_gauges(metrics.target, client, report)

        self.close: Final[Cancel] = metrics.watch(_GAUGES, observe)

    def on_server_failure(self, server: str) -> None:
        self._metrics.count(XDS_SERVER_FAILURE, (self._metrics.target, server))

    def on_response(self, server: str, type_url: str, valid: int, invalid: int) -> None:
        labels = (self._metrics.target, server, name_resource_type(type_url))
        if valid:
            self._metrics.count(XDS_UPDATES_VALID, labels, value=valid)
        if invalid:
            self._metrics.count(XDS_UPDATES_INVALID, labels, value=invalid)


def report_gauges(target: str, client: Observed, report: Report) -> None:
    for server, is_reachable in client.reachable_servers():
        report(XDS_CONNECTED, int(is_reachable), (target, server))
    entries = list(client.all_entries())
    saved = sum(entry.saved_s is not None for entry in entries)
    resources = Counter(
        (
            OLD_STYLE if entry.authority is None else entry.authority,
            name_cache_state(entry.status, has_resource=entry.has_resource),
            name_resource_type(entry.type.type_url),
        )
        for entry in entries
    )
    for labels, number in resources.items():
        report(XDS_RESOURCES, number, (target, *labels))
    report(XDS_SAVED_RESOURCES, saved, (target,))
