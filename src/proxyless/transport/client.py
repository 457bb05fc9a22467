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
from proxyless.base.status import OK, Status, StatusCode
from proxyless.runtime import IDLE_TIMER, Clock, DeadlineQueue, Timer
from proxyless.transport.keepalive import (
    Activity,
    CheckAt,
    GiveUp,
    KeepaliveConfig,
    Ping,
    choose_keepalive,
)
from proxyless.transport.pump import Pump, lost_by
from proxyless.transport.server_names import server_name_of
from proxyless.wire import (
    ClientConnection,
    ErrorCode,
    Limits,
    RemoteProtocolError,
)
from proxyless.wire.errors import name_error_code
from proxyless.wire.turns import Turns

if TYPE_CHECKING:
    from proxyless.base.endpoint import Address
    from proxyless.transport.tls import ClientTls, TlsSource

# How long the stream limit stays lowered after the peer refused a stream.
REFUSAL_BACKOFF_S = 0.1
_NO_AUTHORITY = ("", None)
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
    buffer: memoryview
    deadlines: DeadlineQueue
    turns: Turns


class ClientTransport(Pump):
    """One connection to a server. Owns the wire connection and the keepalive timer."""

    __slots__ = (
        "__weakref__",
        "_keepalive",
        "_last_authority",
        "_probes",
        "_refusal_timer",
        "_siblings",
        "address",
        "clock",
        "deadlines",
        "has_pinged_too_often",
        "on_settled",
        "on_unusable",
        "open",
        "open_unary",
        "settled",
        "unusable_cause",
    )

    _wire: ClientConnection
    # A turn with so many calls takes long, and what is sent to a closed peer is lost.
    _checked_pieces_min = 8

    def __init__(
        self, tools: LoopTools, options: TransportOptions, on_unusable: Callable[[Status], None]
    ) -> None:
        # None if it is disabled, and after the connection is lost.
        self._keepalive: _Keepalive | None = None
        if options.keepalive.is_enabled:
            self._keepalive = _Keepalive(self, options.keepalive, tools.clock)
        on_received = None if self._keepalive is None else self._keepalive.on_received
        super().__init__(tools.loop, tools.buffer, tools.turns, on_received)
        # OK since SETTINGS have arrived, or the reason if the connection was lost before that; None
        # until then. `on_settled` is called with it once.
        self.settled: Status | None = None
        self.on_settled: Callable[[Status], None] | None = None
        self.clock = tools.clock
        self.deadlines = tools.deadlines
        # None after the call.
        self.on_unusable: Callable[[Status], None] | None = on_unusable
        self._wire = ClientConnection(self, options.limits, tools.clock.now_s, tools.turns)
        # The other connections of the subchannel; on its oldest one only (A105).
        self._siblings: tuple[ClientTransport, ...] = ()
        # The wire's own methods, which saves a call for every RPC.
        self.open = self._wire.open
        self.open_unary = self._wire.open_unary
        # Pending while the stream limit is below the one that the peer announced.
        self._refusal_timer: Timer = IDLE_TIMER
        self._wire.on_refused = self._on_refused
        # Why it takes no more calls: the code of the peer's GOAWAY, or the error of the socket.
        self.unusable_cause: int | Exception | None = None
        # Set before `on_unusable`: the next connection should send fewer keepalive PINGs.
        self.has_pinged_too_often = False
        # The address that it was connected to; set by the connector.
        self.address: Address | None = None
        # Called when a PING is answered.
        self._probes: tuple[Callable[[], None], ...] = ()
        # Cache of `refuse_authority`, for the last authority.
        self._last_authority: tuple[str, Status | None] = _NO_AUTHORITY

    # Calls

    @property
    def wire(self) -> ClientConnection:
        return self._wire

    @property
    def is_usable(self) -> bool:
        return self._wire.is_usable

    @property
    def calls(self) -> int:
        return self._wire.calls

    @property
    def streams_started(self) -> int:
        return self._wire.streams_started

    @property
    def socket_names(self) -> tuple[object, object]:
        """Local and remote name of the socket, as the operating system has them, or None."""
        socket = self._socket
        if socket is None:
            return None, None
        return socket.get_extra_info("sockname"), socket.get_extra_info("peername")

    @property
    def is_encrypted(self) -> bool:
        return self._socket is not None and self._socket.get_extra_info("ssl_object") is not None

    @property
    def tls_cipher(self) -> str:
        """Name of the cipher suite; empty without TLS."""
        socket = self._socket
        cipher = None if socket is None else socket.get_extra_info("cipher")
        return cipher[0] if cipher else ""

    def watch_waiting(self, on_waiting: Callable[[], None]) -> None:
        """Call back when calls begin to wait because of the peer's MAX_CONCURRENT_STREAMS."""
        self._wire.on_waiting = on_waiting

    @property
    def lacks_streams(self) -> bool:
        """Whether calls wait, and neither this connection nor a sibling has a free stream."""
        return self._wire.lacks_streams

    def leave_siblings(self) -> None:
        """Leave the waiting calls to the siblings: it takes no more calls."""
        self._siblings = ()
        self._wire.leave_group()

    def set_siblings(self, siblings: "tuple[ClientTransport, ...]") -> None:
        """Open calls on these too, if this one has no free stream (A105). The last may be new."""
        for sibling in siblings:
            if not sibling.wire.group:
                self._wire.add_to_group(sibling.wire)
        self._siblings = siblings
        self._last_authority = _NO_AUTHORITY

    def refuse_authority(self, authority: str) -> Status | None:
        """The status of a call whose authority the peer's certificate does not match (A81)."""
        last, refusal = self._last_authority
        if authority != last:
            refusal = self.compare_authority(authority)
            for sibling in self._siblings:
                refusal = refusal or sibling.compare_authority(authority)
            self._last_authority = (authority, refusal)
        return refusal

    def compare_authority(self, authority: str) -> Status | None:
        """Like `refuse_authority`, for this connection only, without the cache."""
        # "still be subject to any configured secure naming check" - A81
        socket = self._socket
        peer = None if socket is None else socket.get_extra_info("ssl_object")
        if peer is None:
            return None
        from proxyless.transport.tls import refuse_name  # noqa: PLC0415 - only with TLS

        refusal = refuse_name(peer, server_name_of(authority))
        if refusal is None:
            return None
        # The code is grpcio's.
        text = f"authority {authority!r}: TLS: {refusal}"
        return Status(StatusCode.UNAUTHENTICATED, text)

    # Called by the wire

    def on_settings(self) -> None:
        if self.settled is None:
            self._settle(OK)
            if self._keepalive is not None:
                self._keepalive.start()

    def _settle(self, status: Status) -> None:
        self.settled = status
        on_settled, self.on_settled = self.on_settled, None
        if on_settled is not None:
            on_settled(status)

    async def wait_settled(self) -> Status:
        """Return OK after SETTINGS, or the reason if the connection is lost before."""
        if self.settled is not None:
            return self.settled
        settled: asyncio.Future[Status] = self._loop.create_future()

        def on_settled(status: Status) -> None:
            if not settled.done():
                settled.set_result(status)

        self.on_settled = on_settled
        return await settled

    def _on_refused(self) -> None:
        if not self._refusal_timer.pending:
            self._refusal_timer = self.clock.call_later(
                REFUSAL_BACKOFF_S, self._restore_stream_limit
            )

    def _restore_stream_limit(self) -> None:
        self._wire.restore_stream_limit()
        self._flush()

    def on_ping_ack(self, payload: bytes) -> None:
        """Keepalive does not need it: every received byte counts as an answer."""
        probes, self._probes = self._probes, ()
        for on_answer in probes:
            on_answer()

    def on_goaway(self, code: int, text: str) -> None:
        self._note_cause(code)
        self.has_pinged_too_often |= (code, text) == _TOO_MANY_PINGS
        reason = f"{name_error_code(code)}: {text}" if text else name_error_code(code)
        self._become_unusable(Status(StatusCode.UNAVAILABLE, f"peer is going away: {reason}"))

    def on_drained(self) -> None:
        self._loop.call_soon(self.close)

    # Keepalive

    def probe(self, on_answer: Callable[[], None]) -> None:
        """Send a PING now, and call back when it is answered.

        With keepalive, a peer that does not answer in its timeout ends the connection.
        """
        is_first = not self._probes
        self._probes += (on_answer,)
        if is_first:
            # One PING for all: servers count those that come too often.
            if self._keepalive is not None:
                self._keepalive.await_answer()
            self.send_keepalive_ping()

    def send_keepalive_ping(self) -> None:
        self._wire.ping(_KEEPALIVE_PING)
        self._flush()

    def on_silence(self, text: str) -> None:
        """The peer does not answer."""
        self._note_cause(TimeoutError(text))
        self.abort(Status(StatusCode.UNAVAILABLE, text))

    @property
    def data_frames_sent(self) -> int:
        return self._wire.outbound.data_frames

    # Ends

    def _note_cause(self, cause: int | Exception) -> None:
        """Note why no more calls are taken. "the first seen reason should be chosen" - A94"""
        if self.unusable_cause is None:
            self.unusable_cause = cause
            if isinstance(cause, OSError):
                # The traceback refers to the connection: a reference cycle.
                cause.with_traceback(None)

    def _on_write_error(self, error: OSError | None) -> None:
        """End the calls that were not sent. Others may have been answered: read until the end."""
        if self._socket is not None:
            if error is not None:
                self._note_cause(error)
            status = lost_by(error)
            self._become_unusable(status)
            self._wire.lose_unsent(status)
            self._abort_later(self._socket)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._note_cause(exc)
        super().connection_lost(exc)
        self._detach()

    def on_broken(self, error: RemoteProtocolError) -> None:
        self._become_unusable(Status(StatusCode.UNAVAILABLE, f"peer broke HTTP/2: {error}"))

    def eof_received(self) -> None:
        """End all calls: the peer cannot answer them any more."""
        self.abort(Status(StatusCode.UNAVAILABLE, "connection lost: closed by peer"))

    def _on_lost(self, status: Status) -> None:
        self._become_unusable(status)
        super()._on_lost(status)
        self._stop_keepalive()
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
        will_be_lost = self._socket is not None
        super().abort(status)
        if not will_be_lost:
            # It was never connected, so `connection_lost` does not do it.
            self._detach()

    def _become_unusable(self, status: Status) -> None:
        if not self._wire.streams:
            self._stop_keepalive()
        if self.settled is None:
            self._settle(status)
        on_unusable, self.on_unusable = self.on_unusable, None
        if on_unusable is not None:
            on_unusable(status)

    def _detach(self) -> None:
        """Drop what refers to this object, so that it is freed without garbage collection."""
        self._wire.detach()
        self._stop_keepalive()
        self._keepalive = self._on_received = None

    def _stop_keepalive(self) -> None:
        if self._keepalive is not None:
            self._keepalive.stop()


class _Keepalive:
    """Keepalive of one connection: enacts `choose_keepalive`. Exists only if it is enabled."""

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
        self.on_received()
        self._check()

    def stop(self) -> None:
        self._timer.cancel()

    def on_received(self) -> None:
        """Bytes were received."""
        self._received_s = self._clock.now_s()

    def _check(self) -> None:
        now_s = self._clock.now_s()
        match choose_keepalive(self._config, now_s, self._activity()):
            case CheckAt(at_s):
                # A timer needs a finite delay, and the time may be infinite.
                delay_s = min(at_s - now_s, _CHECK_INTERVAL_MAX_S)
                self._timer = self._clock.call_later(delay_s, self._check)
            case Ping(check_at_s):
                self._note_ping(check_at_s - now_s)
                self._transport.send_keepalive_ping()
            case GiveUp():
                text = f"keepalive: peer silent for {self._config.timeout_s:g} s after a PING"
                self._transport.on_silence(text)

    def await_answer(self) -> None:
        """A PING is being sent: the peer has to answer it in time."""
        self._timer.cancel()
        self._note_ping(self._config.timeout_s)

    def _note_ping(self, check_in_s: float) -> None:
        self._pinged_s = self._clock.now_s()
        self._is_ping_unanswered = True
        self._pings_without_data += 1
        self._timer = self._clock.call_later(check_in_s, self._check)

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
