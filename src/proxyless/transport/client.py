"""ClientTransport: a client's connection to a server, on a socket.

A subchannel holds it, and calls are opened on it. It calls `on_unusable` once, when it takes no
more calls; calls under way continue.
"""

import asyncio
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from proxyless.base.frozen import frozen
from proxyless.base.http_proxy import HttpProxy
from proxyless.base.status import Status, StatusCode
from proxyless.runtime import IDLE_TIMER, Clock, DeadlineQueue, Timer
from proxyless.transport.keepalive import (
    Activity,
    CheckAt,
    GiveUp,
    KeepaliveConfig,
    Ping,
    choose_keepalive,
)
from proxyless.transport.pump import Pump, ReadBuffer
from proxyless.transport.server_names import server_name_of
from proxyless.transport.tls import refuse_name
from proxyless.wire import (
    ClientConnection,
    ErrorCode,
    Limits,
    RemoteProtocolError,
)
from proxyless.wire.errors import name_error_code
from proxyless.wire.turns import Turns

if TYPE_CHECKING:
    from proxyless.transport.tls import ClientTls, TlsSource

# How long the stream limit stays lowered after the peer refused a stream.
REFUSAL_BACKOFF_S = 0.1
_KEEPALIVE_PING = b"keepaliv"
_CHECK_INTERVAL_MAX_S = 3600.0
# Code and debug data of the GOAWAY of a server that gets too many keepalive PINGs (A8).
_TOO_MANY_PINGS = (ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")


@frozen(kw_only=True)
class TransportOptions:
    """Options of a connection. Subchannels with equal ones may share it."""

    tls: "ClientTls | None" = None
    # Connect to this machine only: loopback addresses and unix sockets.
    is_local_only: bool = False
    # Read for each connection; overrides the two above unless it returns None.
    tls_source: "TlsSource | None" = None
    # None: connections are direct.
    http_proxy: HttpProxy | None = None
    limits: Limits = field(default_factory=Limits)
    keepalive: KeepaliveConfig = field(default_factory=KeepaliveConfig)
    connect_timeout_s: float = 20.0

    @property
    def scheme(self) -> str:
        """The scheme of requests."""
        return "http" if self.tls is None and self.tls_source is None else "https"


@frozen
class LoopTools:
    """Resources that all connections of one loop share."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    buffer: ReadBuffer
    deadlines: DeadlineQueue
    turns: Turns


class ClientTransport(Pump):
    """One connection to a server. Owns the wire connection and the keepalive timer."""

    _wire: ClientConnection

    def __init__(
        self, tools: LoopTools, options: TransportOptions, on_unusable: Callable[[Status], None]
    ) -> None:
        keepalive = self._keepalive = _Keepalive(self, options.keepalive, tools.clock)
        on_received = keepalive.on_received if options.keepalive.is_enabled else None
        super().__init__(tools.loop, tools.buffer, tools.turns, on_received)
        self.ready: asyncio.Future[Status] = tools.loop.create_future()
        self.clock = tools.clock
        self.deadlines = tools.deadlines
        self._on_unusable: Callable[[Status], None] | None = on_unusable
        self._wire = ClientConnection(self, options.limits, tools.clock.now_s, tools.turns)
        # The wire's own methods, which saves a call for every RPC.
        self.open = self._wire.open
        self.open_unary = self._wire.open_unary
        # Pending while the stream limit is below the one that the peer announced.
        self._refusal_timer: Timer = IDLE_TIMER
        self._wire.on_refused = self._on_refused
        # Set before `on_unusable`: the next connection should send fewer keepalive PINGs.
        self.has_pinged_too_often = False
        # Cache of `refuse_authority`, for the last authority.
        self._last_authority: tuple[str, Status | None] = ("", None)

    # Calls

    @property
    def is_usable(self) -> bool:
        return self._wire.is_usable

    @property
    def calls(self) -> int:
        return self._wire.calls

    def refuse_authority(self, authority: str) -> Status | None:
        """The status of a call whose authority the peer's certificate does not match (A81)."""
        last, refusal = self._last_authority
        if authority != last:
            refusal = self._compare_authority(authority)
            self._last_authority = (authority, refusal)
        return refusal

    def _compare_authority(self, authority: str) -> Status | None:
        # "still be subject to any configured secure naming check" - A81
        socket = self._socket
        peer = None if socket is None else socket.get_extra_info("ssl_object")
        refusal = None if peer is None else refuse_name(peer, server_name_of(authority))
        if refusal is None:
            return None
        # The code is grpcio's.
        text = f"authority {authority!r}: TLS: {refusal}"
        return Status(StatusCode.UNAUTHENTICATED, text)

    # Called by the wire

    def on_settings(self) -> None:
        if not self.ready.done():
            self.ready.set_result(Status(StatusCode.OK))
            self._keepalive.start()

    def _on_refused(self) -> None:
        if not self._refusal_timer.pending:
            self._refusal_timer = self.clock.call_later(
                REFUSAL_BACKOFF_S, self._restore_stream_limit
            )

    def _restore_stream_limit(self) -> None:
        self._wire.restore_stream_limit()
        self._flush()

    def on_ping_ack(self, payload: bytes) -> None:
        """No-op: every received byte counts as an answer."""

    def on_goaway(self, code: int, text: str) -> None:
        self.has_pinged_too_often |= (code, text) == _TOO_MANY_PINGS
        reason = f"{name_error_code(code)}: {text}" if text else name_error_code(code)
        self._become_unusable(Status(StatusCode.UNAVAILABLE, f"peer is going away: {reason}"))

    def on_drained(self) -> None:
        self._loop.call_soon(self.close)

    # Keepalive

    def send_keepalive_ping(self) -> None:
        self._wire.ping(_KEEPALIVE_PING)
        self._flush()

    @property
    def data_frames_sent(self) -> int:
        return self._wire.outbound.data_frames

    # Ends

    def on_broken(self, error: RemoteProtocolError) -> None:
        self._become_unusable(Status(StatusCode.UNAVAILABLE, f"peer broke HTTP/2: {error}"))

    def eof_received(self) -> None:
        """End all calls: the peer cannot answer them any more."""
        self.abort(Status(StatusCode.UNAVAILABLE, "connection lost: closed by peer"))

    def _on_lost(self, status: Status) -> None:
        self._become_unusable(status)
        super()._on_lost(status)
        self._keepalive.stop()
        self._refusal_timer.cancel()

    def drain(self) -> None:
        """Take no new calls; close after the last one. Idempotent."""
        self._become_unusable(Status(StatusCode.UNAVAILABLE, "connection drained by us"))
        self._wire.drain()

    def close(self) -> None:
        self._become_unusable(Status(StatusCode.UNAVAILABLE, "connection closed by us"))
        super().close()

    def abort(self, status: Status) -> None:
        self._become_unusable(status)
        super().abort(status)

    def _become_unusable(self, status: Status) -> None:
        if not self._wire.streams:
            self._keepalive.stop()
        if not self.ready.done():
            self.ready.set_result(status)
        on_unusable, self._on_unusable = self._on_unusable, None
        if on_unusable is not None:
            on_unusable(status)


class _Keepalive:
    """Keepalive of one connection: enacts `choose_keepalive`."""

    def __init__(self, transport: ClientTransport, config: KeepaliveConfig, clock: Clock) -> None:
        self._transport = transport
        self._config = config
        self._clock = clock
        self._timer: Timer = IDLE_TIMER
        self._received_s = self._pinged_s = clock.now_s()
        self._is_ping_unanswered = False
        self._pings_without_data = 0
        self._data_frames_counted = 0

    def start(self) -> None:
        if self._config.is_enabled:
            self.on_received()
            self._check()

    def stop(self) -> None:
        self._timer.cancel()

    def on_received(self) -> None:
        """Bytes were received. Not called if keepalive is disabled."""
        self._received_s = self._clock.now_s()

    def _check(self) -> None:
        now_s = self._clock.now_s()
        match choose_keepalive(self._config, now_s, self._activity()):
            case CheckAt(at_s):
                # A timer needs a finite delay, and the time may be infinite.
                delay_s = min(at_s - now_s, _CHECK_INTERVAL_MAX_S)
                self._timer = self._clock.call_later(delay_s, self._check)
            case Ping(check_at_s):
                self._pinged_s = now_s
                self._is_ping_unanswered = True
                self._pings_without_data += 1
                self._timer = self._clock.call_later(check_at_s - now_s, self._check)
                self._transport.send_keepalive_ping()
            case GiveUp():
                text = f"keepalive: peer silent for {self._config.timeout_s:g} s after a PING"
                self._transport.abort(Status(StatusCode.UNAVAILABLE, text))

    def _activity(self) -> Activity:
        if self._transport.data_frames_sent != self._data_frames_counted:
            self._data_frames_counted = self._transport.data_frames_sent
            self._pings_without_data = 0
        return Activity(
            received_s=self._received_s,
            pinged_s=self._pinged_s,
            is_ping_unanswered=self._is_ping_unanswered,
            pings_without_data=self._pings_without_data,
            calls=self._transport.calls,
        )
