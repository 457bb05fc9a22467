"""Out-of-band load reports of one backend.

Specs: A51, "Out of Band Metrics Reporting".

Theory of operation. A subchannel has one `LoadReports`, created for the first subscription. While
there are subscriptions and a connection, there is one stream: one request, then a report per
interval. It requests the shortest interval of all subscriptions, and is restarted when that
changes. A stream that ends is reopened, after a backoff if it had no report; with UNIMPLEMENTED,
not before there is a new connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import Backoff, Status, StatusCode, one_line
from proxyless.channel.statuses import LOGGER
from proxyless.lb.orca import OUT_OF_BAND_PATH, encode_report_request, parse_load_report
from proxyless.runtime import IDLE_TIMER, Soon
from proxyless.wire import RequestEncoder

if TYPE_CHECKING:
    from proxyless.base import Address
    from proxyless.channel.connection import SubchannelTools
    from proxyless.channel.subchannel_options import SubchannelOptions
    from proxyless.lb.api import Cancel, LoadListener
    from proxyless.lb.orca import LoadReport
    from proxyless.transport import ClientTransport
    from proxyless.wire import ClientStream, ResponseBlock, StreamEnd

# As much as the trailers of an RPC may have; a report of 4 MB takes 0.2 s to parse.
REPORT_BYTES_MAX: Final = 16 * 1024

_CANCELLED: Final = Status(StatusCode.CANCELLED, "load reports were cancelled")


class LoadReports:
    """The subscriptions to one backend, and their stream."""

    def __init__(
        self, address: Address, options: SubchannelOptions, tools: SubchannelTools
    ) -> None:
        # Fixed at construction.
        self._address = address
        self._tools = tools
        self._head = RequestEncoder(
            path=OUT_OF_BAND_PATH,
            authority=options.server_name or str(address),
            scheme=options.transport.scheme,
        ).block()
        # Changed by the policies.
        self._subscriptions: dict[_Subscription, None] = {}
        # Changed by the subchannel.
        self._transport: ClientTransport | None = None
        # Reset with each connection.
        self._stream: _ReportStream | None = None
        self._start_soon = Soon(tools.clock, self._start)
        self._backoff_timer = IDLE_TIMER
        self._backoff = Backoff()
        self._is_unimplemented = False
        # Pending if a report was delivered in this turn; and the last one that was received since.
        self._next_soon = Soon(tools.clock, self._deliver_last)
        self._last_data: bytes | None = None

    def subscribe(self, interval_s: float, listener: LoadListener) -> Cancel:
        """Call the listener with each report until the returned callable is called."""
        subscription = _Subscription(interval_s, listener)
        self._subscriptions[subscription] = None
        self._update_stream()

        def cancel() -> None:
            if subscription in self._subscriptions:
                del self._subscriptions[subscription]
                self._update_stream()

        return cancel

    def on_connection(self, transport: ClientTransport | None) -> None:
        """The subchannel has this connection now, or none."""
        if transport is self._transport:
            return
        self._stop()
        self._transport = transport
        self._backoff.reset()
        self._is_unimplemented = False
        self._update_stream()

    def _update_stream(self) -> None:
        """Start, stop or restart the stream, as subscriptions and connection require."""
        if not self._subscriptions:
            self._stop()
        elif self._stream is None:
            is_waiting = self._backoff_timer.pending or self._is_unimplemented
            if self._transport is not None and not is_waiting:
                # In the next turn: another policy may subscribe with a shorter interval.
                self._start_soon.request()
        elif self._stream.interval_s != self._interval_s:
            self._stop()
            self._start_soon.request()

    @property
    def _interval_s(self) -> float:
        # "we will use the minimum of those intervals" - A51
        return min(subscription.interval_s for subscription in self._subscriptions)

    def _start(self) -> None:
        assert self._transport is not None, "timers end with the connection"
        self._stream = _ReportStream(self, self._interval_s)
        self._stream.open(self._transport, self._head)

    def _stop(self) -> None:
        self._start_soon.cancel()
        self._backoff_timer.cancel()
        self._next_soon.cancel()
        self._last_data = None
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    # Called by the stream

    def on_data(self, stream: _ReportStream, data: bytes) -> None:
        if stream is not self._stream:
            return
        # One report in a turn: a backend may send thousands. The last one counts.
        if self._next_soon.pending:
            self._last_data = data
        else:
            self._next_soon.request()
            self._deliver(data)

    def _deliver_last(self) -> None:
        data, self._last_data = self._last_data, None
        if data is not None:
            self._next_soon.request()
            self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        report = parse_load_report(data) if len(data) <= REPORT_BYTES_MAX else None
        if report is None:
            if self._stream is not None and not self._stream.is_unreadable:
                self._stream.is_unreadable = True
                LOGGER.warning("load report of %s cannot be read", self._address)
            return
        # "When the client receives a message … the backoff state is reset" - A51
        self._backoff.reset()
        for subscription in tuple(self._subscriptions):
            if subscription in self._subscriptions:
                subscription.deliver(report)

    def on_end(self, stream: _ReportStream, status: Status) -> None:
        if stream is not self._stream:
            return
        self._stream = None
        # "the client must not retry the call on the same connection" - A51
        self._is_unimplemented = status.code is StatusCode.UNIMPLEMENTED
        self._log_end(status)
        if stream.has_reported and not self._is_unimplemented:
            # "so the next attempt will occur immediately" - A51
            self._start_soon.request()
        elif not self._is_unimplemented:
            delay_s = self._backoff.next_delay_s(self._tools.random)
            self._backoff_timer = self._tools.clock.call_later(delay_s, self._start)

    def _log_end(self, status: Status) -> None:
        trace = self._tools.trace
        if trace.active:
            trace.emit("load_reports.end", address=self._address, status=status)
        if self._is_unimplemented:
            LOGGER.error("%s does not report its load: %s", self._address, one_line(status.details))


class _Subscription:
    """One policy's listener and interval."""

    __slots__ = ("_listener", "interval_s")

    def __init__(self, interval_s: float, listener: LoadListener) -> None:
        self.interval_s: Final = interval_s
        self._listener: Final = listener

    def deliver(self, report: LoadReport) -> None:
        try:
            self._listener(report)
        except Exception:
            # An exception in a policy's listener must not break the connection.
            LOGGER.exception("load listener %r raised", self._listener)


class _ReportStream:
    """One call of `StreamCoreMetrics`. Its methods `on_*` are called by the wire."""

    __slots__ = ("_owner", "_stream", "has_reported", "interval_s", "is_unreadable")

    def __init__(self, owner: LoadReports, interval_s: float) -> None:
        self._owner: Final = owner
        self.interval_s: Final = interval_s
        self.has_reported = False
        # A report could not be read; this is logged once.
        self.is_unreadable = False
        self._stream: ClientStream | None = None

    def open(self, transport: ClientTransport, head: bytes) -> None:
        self._stream = transport.open_unary(head, self, encode_report_request(self.interval_s))

    def cancel(self) -> None:
        if self._stream is not None:
            self._stream.cancel(_CANCELLED)

    def on_head(self, head: ResponseBlock) -> None: ...
    def on_writable(self) -> None: ...

    def on_message(self, message: bytes) -> None:
        self.has_reported = True
        self._owner.on_data(self, message)

    def on_end(self, end: StreamEnd) -> None:
        self._owner.on_end(self, end.status)
