"""HealthChecker: the health check stream of one service at one backend.

Specs: A17. `health` decides; `health_watch` has the watches. Imported when it is first used: most
channels check no health.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import OK, State, Status, StatusCode, one_line
from proxyless.channel.health import (
    Disconnected,
    Ended,
    Health,
    HealthBackoffOver,
    HealthConnected,
    OpenStream,
    Phase,
    Responded,
    Stop,
    Wait,
    decode_response,
    encode_request,
)
from proxyless.channel.health_watch import WATCH_PATH
from proxyless.channel.statuses import LOGGER
from proxyless.runtime import IDLE_TIMER, Soon
from proxyless.wire import RequestEncoder

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.channel.connection import SubchannelTools
    from proxyless.channel.credentials import Withdraw
    from proxyless.channel.health import Effect, Event
    from proxyless.channel.health_watch import HealthRequest, HealthWatch
    from proxyless.channel.subchannel import Subchannel
    from proxyless.lb.connection_limit import ConnectionLimit
    from proxyless.transport import ClientTransport
    from proxyless.wire import ClientStream, ResponseBlock, StreamEnd

_CANCELLED: Final = Status(StatusCode.CANCELLED, "health check was cancelled")


class HealthChecker:
    """Observes a subchannel, owns its health check stream, and notifies the watches."""

    # As an observer of the subchannel it has no holder, and allows no further connection.
    holder: object = None
    connection_limit: ConnectionLimit | None = None
    connections_max = 1

    def __init__(
        self, subchannel: Subchannel, request: HealthRequest, tools: SubchannelTools
    ) -> None:
        # Fixed at construction.
        self.subchannel: Final = subchannel
        self.request: Final = request
        self._tools = tools
        self._encoder = RequestEncoder(
            path=WATCH_PATH,
            authority=request.authority,
            scheme=request.scheme,
            user_agent=request.user_agent,
        )
        # Changed by the methods below only.
        self._health = Health(subchannel.address, request.service, tools.random)
        self._watches: dict[HealthWatch, None] = {}
        self._transport: ClientTransport | None = None
        self._stream: _WatchStream | None = None
        self._open_soon = Soon(tools.clock, self._open_stream)
        self._backoff_timer = IDLE_TIMER

    @property
    def latest(self) -> tuple[State, Status]:
        return self._health.state, self._health.status

    @property
    def is_watched(self) -> bool:
        return bool(self._watches)

    def add(self, watch: HealthWatch) -> None:
        self._watches[watch] = None

    def remove(self, watch: HealthWatch) -> None:
        del self._watches[watch]

    def start(self) -> None:
        subchannel = self.subchannel
        subchannel.add_observer(self)
        self.on_change(subchannel.state, subchannel.status, subchannel.transport)

    def close(self) -> None:
        self.subchannel.remove_observer(self)
        self._stop()

    # Called by the subchannel

    def on_change(self, state: State, status: Status, transport: ClientTransport | None) -> None:
        if None not in (self._transport, transport):
            # Another connection of the same subchannel (A105).
            self._step(Disconnected(State.CONNECTING, OK))
        self._transport = transport
        self._step(Disconnected(state, status) if transport is None else HealthConnected())

    # Called by the stream

    def on_response(self, stream: _WatchStream, message: bytes) -> None:
        if stream is self._stream:
            self._step(Responded(decode_response(message)))

    def on_end(self, stream: _WatchStream, status: Status) -> None:
        if stream is self._stream:
            self._stream = None
            self._step(Ended(status, self._tools.clock.now_s()))
            if self._health.phase is Phase.UNCHECKED:
                # "It will also log a message at priority ERROR" - A17
                text = "%s does not implement health checking, so it counts as healthy: %s"
                LOGGER.error(text, self.subchannel.address, one_line(status.details))

    # Enacting

    def _step(self, event: Event) -> None:
        before = self.latest
        effect = self._health.step(event)
        # First, so that watches get this state before the effect changes it.
        if self.latest != before:
            self._publish()
        if effect is not None:
            self._enact(effect)

    def _enact(self, effect: Effect) -> None:
        match effect:
            case OpenStream():
                # In the next turn: a policy or the last stream may be the caller.
                self._open_soon.request()
            case Wait(delay_s):
                self._stop()
                self._backoff_timer = self._tools.clock.call_later(delay_s, self._on_backoff_over)
            case Stop():
                self._stop()

    def _publish(self) -> None:
        state, status = self.latest
        trace = self._tools.trace
        if trace.active:
            where, service = self.subchannel.address, self.request.service
            trace.emit("health.state", address=where, service=service, state=state, status=status)
        for watch in self._watches:
            watch.on_change()

    def _open_stream(self) -> None:
        assert self._transport is not None, "it is cancelled with the connection"
        self._stream = _WatchStream(self)
        self._stream.open(self._transport, self._encoder)

    def _stop(self) -> None:
        self._open_soon.cancel()
        self._backoff_timer.cancel()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    def _on_backoff_over(self) -> None:
        self._step(HealthBackoffOver())


class _WatchStream:
    """One call of `Watch`. Its methods `on_*` are called by the wire."""

    __slots__ = ("_is_cancelled", "_owner", "_stream", "_withdraw")

    def __init__(self, owner: HealthChecker) -> None:
        self._owner: Final = owner
        self._is_cancelled = False
        self._stream: ClientStream | None = None
        # Cancels the request to call credentials.
        self._withdraw: Withdraw | None = None

    def open(self, transport: ClientTransport, encoder: RequestEncoder) -> None:
        request = self._owner.request
        credentials = request.credentials

        def on_metadata(found: Metadata | Status) -> None:
            if self._is_cancelled:
                return
            if isinstance(found, Status):
                self._owner.on_end(self, found)
                return
            message = encode_request(request.service)
            self._stream = transport.open_unary(encoder.block(metadata=found), self, message)

        if credentials is None:
            on_metadata(())
        else:
            self._withdraw = credentials.request(request.service_url, WATCH_PATH, on_metadata)

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._stream is not None:
            self._stream.cancel(_CANCELLED)
        elif self._withdraw is not None:
            self._withdraw()

    def on_head(self, head: ResponseBlock) -> None: ...
    def on_writable(self) -> None: ...

    def on_message(self, message: bytes) -> None:
        self._owner.on_response(self, message)

    def on_end(self, end: StreamEnd) -> None:
        self._owner.on_end(self, end.status)
