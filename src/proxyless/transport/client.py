"""A client's connection on a socket, with everything that needs a clock.

`ClientTransport` is what a subchannel holds and a call is opened on. It says once, through
`on_unusable`, that no new call can go here; calls under way end on their own.
"""

import asyncio
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from proxyless.base.frozen import frozen
from proxyless.base.http_proxy import HttpProxy
from proxyless.base.status import Status, StatusCode
from proxyless.runtime import IDLE_TIMER, Clock, Deadline, DeadlineQueue, Timer
from proxyless.transport.keepalive import (
    Activity,
    GiveUp,
    KeepaliveConfig,
    Look,
    Ping,
    choose_keepalive,
)
from proxyless.transport.names import server_name_of
from proxyless.transport.pump import Pump, ReadBuffer
from proxyless.transport.tls import refuse_name
from proxyless.wire import (
    ClientConnection,
    ErrorCode,
    Limits,
    RemoteProtocolError,
)
from proxyless.wire.errors import name_error_code

if TYPE_CHECKING:
    from proxyless.transport.tls import ClientTls, TlsSource

# How long a connection with a peer that refused a stream opens no more than it had then.
REFUSAL_REMEMBERED_S = 0.1
_KEEPALIVE_PING = b"keepaliv"
_LOOK_EVERY_S = 3600.0
# How a server complains about keepalive (A8): the code of its GOAWAY, and the debug data.
_TOO_MANY_PINGS = (ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")


@frozen(kw_only=True)
class TransportOptions:
    """What a connection is made with. Two equal ones may share a connection."""

    tls: "ClientTls | None" = None
    # Connect to this machine only: loopback addresses and unix sockets.
    is_local_only: bool = False
    # Asked for each connection; if it has an answer, that counts and not the two above.
    tls_source: "TlsSource | None" = None
    # Asked for the way to the peer. None: connections are direct.
    http_proxy: HttpProxy | None = None
    limits: Limits = field(default_factory=Limits)
    keepalive: KeepaliveConfig = field(default_factory=KeepaliveConfig)
    connect_timeout_s: float = 20.0

    @property
    def scheme(self) -> str:
        """Of requests. With a source, what it is there for, whatever a single connection has."""
        return "http" if self.tls is None and self.tls_source is None else "https"


@frozen
class LoopTools:
    """What all connections of one loop share."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    buffer: ReadBuffer
    deadlines: DeadlineQueue


class ClientTransport(Pump):
    """One connection to a server.

    Driven by its users (`open`, `close`), the socket, the peer, and the keepalive timer.
    """

    _wire: ClientConnection

    def __init__(
        self, tools: LoopTools, options: TransportOptions, on_unusable: Callable[[Status], None]
    ) -> None:
        keepalive = self._keepalive = _Keepalive(self, options.keepalive, tools.clock)
        on_heard = keepalive.on_heard if options.keepalive.is_enabled else None
        super().__init__(tools.loop, tools.buffer, on_heard)
        # For calls: they wait and expire on this connection's loop.
        self.new_future = tools.loop.create_future
        self._deadlines = tools.deadlines
        self.ready: asyncio.Future[Status] = tools.loop.create_future()
        self._clock = tools.clock
        self._on_unusable: Callable[[Status], None] | None = on_unusable
        self._wire = ClientConnection(self, options.limits, tools.clock.now_s)
        # How calls are started: the wire's own methods, one step less on the way of every RPC.
        self.open = self._wire.open
        self.open_unary = self._wire.open_unary
        # Pending while fewer calls are opened than the peer announced.
        self._refusal_timer: Timer = IDLE_TIMER
        self._wire.on_refused = self._on_refused
        # Set by the peer, before `on_unusable`: the next connection should ask less often.
        self.has_pinged_too_often = False
        # The authority that was asked about last, and what was said.
        self._last_authority: tuple[str, Status | None] = ("", None)

    # Calls

    @property
    def is_usable(self) -> bool:
        return self._wire.is_usable

    @property
    def calls(self) -> int:
        return self._wire.calls

    def expire_later(self, timeout_s: float, on_deadline: Callable[[], None]) -> Deadline:
        """Call back when a call's time is up."""
        return self._deadlines.add(self._clock.now_s() + timeout_s, on_deadline)

    def refuse_authority(self, authority: str) -> Status | None:
        """Why a call here cannot have an authority that is not the channel's, or None (A81)."""
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

    # What the wire says

    def on_settings(self) -> None:
        if not self.ready.done():
            self.ready.set_result(Status(StatusCode.OK))
            self._keepalive.start()

    def _on_refused(self) -> None:
        if not self._refusal_timer.pending:
            self._refusal_timer = self._clock.call_later(
                REFUSAL_REMEMBERED_S, self._forget_refusals
            )

    def _forget_refusals(self) -> None:
        self._wire.forget_refusals()
        self._flush()

    def on_ping_ack(self, payload: bytes) -> None:
        """Every byte heard counts as an answer, so there is nothing left to do."""

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
        """The peer can answer no call any more, even if it takes what is yet to be sent to it."""
        self.abort(Status(StatusCode.UNAVAILABLE, "connection lost: closed by peer"))

    def _on_lost(self, status: Status) -> None:
        self._become_unusable(status)
        super()._on_lost(status)
        self._keepalive.stop()
        self._refusal_timer.cancel()

    def drain(self) -> None:
        """Take no new calls; close when those under way are over. Idempotent."""
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
    """Enacts `choose_keepalive` for one connection. Driven by its timer and by what is heard."""

    def __init__(self, transport: ClientTransport, config: KeepaliveConfig, clock: Clock) -> None:
        self._transport = transport
        self._config = config
        self._clock = clock
        self._timer: Timer = IDLE_TIMER
        self._heard_s = self._pinged_s = clock.now_s()
        self._is_ping_unanswered = False
        self._pings_without_data = 0
        self._data_frames_seen = 0

    def start(self) -> None:
        if self._config.is_enabled:
            self.on_heard()
            self._look()

    def stop(self) -> None:
        self._timer.cancel()

    def on_heard(self) -> None:
        """There are bytes of the peer. Who needs no keepalive does not call this for them."""
        self._heard_s = self._clock.now_s()

    def _look(self) -> None:
        now_s = self._clock.now_s()
        match choose_keepalive(self._config, now_s, self._activity()):
            case Look(at_s):
                # A timer needs an end, and some of the times may be infinite.
                delay_s = min(at_s - now_s, _LOOK_EVERY_S)
                self._timer = self._clock.call_later(delay_s, self._look)
            case Ping(look_at_s):
                self._pinged_s = now_s
                self._is_ping_unanswered = True
                self._pings_without_data += 1
                self._timer = self._clock.call_later(look_at_s - now_s, self._look)
                self._transport.send_keepalive_ping()
            case GiveUp():
                text = f"keepalive: peer silent for {self._config.timeout_s:g} s after a PING"
                self._transport.abort(Status(StatusCode.UNAVAILABLE, text))

    def _activity(self) -> Activity:
        if self._transport.data_frames_sent != self._data_frames_seen:
            self._data_frames_seen = self._transport.data_frames_sent
            self._pings_without_data = 0
        return Activity(
            heard_s=self._heard_s,
            pinged_s=self._pinged_s,
            is_ping_unanswered=self._is_ping_unanswered,
            pings_without_data=self._pings_without_data,
            calls=self._transport.calls,
        )
