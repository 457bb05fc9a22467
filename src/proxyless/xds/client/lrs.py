"""Load reports to servers.

Specs: LRS v3, A27, A64, A85, LRS-01, LRS-02.

There is one stream per server, open while load is counted for it. The server sets the interval and
the clusters of the reports. An error is logged and retried, and has no other effect.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from proxyless.base import Status, one_line
from proxyless.runtime import IDLE_TIMER, Timer
from proxyless.xds.client import lrs_codec
from proxyless.xds.client.load_counters import ClusterLoad
from proxyless.xds.client.retried_stream import RetriedStream, Tools
from proxyless.xds.error_texts import name_server, with_node

if TYPE_CHECKING:
    from proxyless.xds.bootstrap import Node, ServerConfig
    from proxyless.xds.client.transport import Transport, Transports

LOGGER: Final = logging.getLogger("proxyless.xds.client.lrs")

# Bounds of the interval. A shorter one is a mistake: each report costs the server time, too.
INTERVAL_MIN_S: Final = 1.0
INTERVAL_MAX_S: Final = 24 * 3600.0
# Unused counters that are kept: clusters may come and go while no report can be sent.
UNUSED_MAX: Final = 1_000
# Reported in one turn of the loop, in about 10 ms. One cluster may have more.
CLUSTERS_AND_LOCALITIES_PER_TURN: Final = 500


class LoadReporting:
    """Load reporters of one client, by server."""

    def __init__(self, node: Node, transports: Transports, tools: Tools) -> None:
        self._node = node
        self._transports = transports
        self._tools = tools
        self._reporters: dict[ServerConfig, LoadReporter] = {}

    def acquire(self, server: ServerConfig, cluster: str, eds_service: str) -> ClusterLoad:
        reporter = self._reporters.get(server)
        if reporter is None:
            transport = self._transports.acquire(server)
            on_unused = partial(self._stop, server)
            reporter = LoadReporter(server, transport, self._node, self._tools, on_unused)
            self._reporters[server] = reporter
            reporter.stream.start()
        return reporter.acquire(cluster, eds_service)

    def _stop(self, server: ServerConfig) -> None:
        reporter = self._reporters.pop(server, None)
        if reporter is not None:
            reporter.close()
            self._transports.release(server)

    def close(self) -> None:
        """Stop all reports. Idempotent."""
        for server in list(self._reporters):
            self._stop(server)


class LoadReporter:
    """Reports to one server. Owns the LRS stream and the load counters."""

    def __init__(
        self,
        server: ServerConfig,
        transport: Transport,
        node: Node,
        tools: Tools,
        on_unused: partial[None],
    ) -> None:
        # Fixed at construction.
        self._server = server
        self._node = node
        self._tools = tools
        self._on_unused = on_unused
        self.stream = RetriedStream(lrs_codec.LRS_PATH, transport, tools, self)
        # By cluster and EDS service. Unused counters are kept until they are reported.
        self._loads: dict[tuple[str, str], ClusterLoad] = {}
        self._used = 0
        # The server's last response on this stream.
        self._requested: lrs_codec.LoadStatsResponse | None = None
        self._timer: Timer = IDLE_TIMER
        # Keys of the loads that the report under way has not taken, in reverse order.
        self._unreported: list[tuple[str, str]] = []
        # Last logged error; empty after a response.
        self._error = ""

    def acquire(self, cluster: str, eds_service: str) -> ClusterLoad:
        key = (cluster, eds_service)
        load = self._loads.get(key)
        if load is None:
            if len(self._loads) - self._used >= UNUSED_MAX:
                self._loads = {key: load for key, load in self._loads.items() if load.users}
            now_s = self._tools.clock.now_s()
            load = self._loads[key] = ClusterLoad(cluster, eds_service, now_s, self._on_load_unused)
        if not load.users:
            self._used += 1
        load.users += 1
        return load

    def _on_load_unused(self) -> None:
        self._used -= 1
        if not self._used:
            self._on_unused()

    def close(self) -> None:
        self._timer.cancel()
        self.stream.close()

    # Called by the stream

    def on_stream_opened(self) -> None:
        self.stream.send(lrs_codec.encode_load_report((), self._node))
        self.stream.read_next()

    def on_stream_ready(self) -> None:
        return

    def on_stream_writable(self) -> None:
        return

    def on_stream_message(self, message: bytes) -> None:
        requested = lrs_codec.decode_load_response(message)
        if requested is None:
            self._log("response cannot be decoded")
        else:
            self._error = ""
            self.stream.note_answer()
            if requested != self._requested:
                self._requested = requested
                self._timer.cancel()
                self._start_timer(requested)
        self.stream.read_next()

    def on_stream_ended(self, status: Status, *, has_answered: bool) -> None:
        self._timer.cancel()
        self._requested = None
        if not has_answered:
            self._log(f"stream ended before any response: {status}")

    def _log(self, what: str) -> None:
        """Log an error, unless it was the last one."""
        text = f"{name_server(self._server.uri)}: load reports: {one_line(what)}"
        if text != self._error:
            self._error = text
            LOGGER.info("%s", with_node(text, self._node.id))

    # Reports

    def _start_timer(self, requested: lrs_codec.LoadStatsResponse) -> None:
        interval_s = min(max(requested.interval_s, INTERVAL_MIN_S), INTERVAL_MAX_S)
        self._timer = self._tools.clock.call_later(interval_s, self._report)

    def _report(self) -> None:
        # To a server that does not read, one report is sent later instead of many now.
        if self.stream.is_writable:
            self._unreported = list(reversed(self._loads))
        self._report_some()

    def _report_some(self) -> None:
        """Report some clusters; the others in the next turns, each with a message of its own."""
        assert self._requested is not None, "reports start with the first response"
        if self.stream.is_writable:
            self.stream.send(lrs_codec.encode_load_report(self._take(self._requested)))
        if self._unreported and self.stream.is_writable:
            self._timer = self._tools.clock.call_later(0, self._report_some)
        else:
            self._start_timer(self._requested)

    def _take(self, requested: lrs_codec.LoadStatsResponse) -> list[lrs_codec.ClusterStats]:
        now_s = self._tools.clock.now_s()
        taken: list[lrs_codec.ClusterStats] = []
        left = CLUSTERS_AND_LOCALITIES_PER_TURN
        while self._unreported and left > 0:
            key = self._unreported.pop()
            load = self._loads.get(key)
            if load is None:
                continue
            left -= 1
            if not load.users:
                del self._loads[key]
            is_requested = requested.clusters is None or load.cluster in requested.clusters
            if is_requested and (stats := load.take(now_s)) is not None:
                taken.append(stats)
                left -= len(stats.localities)
        return taken
