"""How do streams reach a control plane over gRPC?

Specs: A27 (keepalive, credentials), A57 (wait-for-ready, connectivity), A65 (tls files),
A97 (jwt_token_file).

Each control plane gets a channel of our own kind, which resolves, connects and backs off as any
other; a stream is a call on it that waits for ready. What the wire says comes in the middle of our
own calls at times, so it is passed on in the next turn of the loop, messages one by one as they are
asked for. Nothing here knows what the messages mean.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxyless.base import State, Status, StatusCode
from proxyless.channel import Call, Channel, ChannelOptions, SubchannelOptions
from proxyless.channel.credentials import CombinedCredentials, RefusedCredentials
from proxyless.runtime import IDLE_TIMER, Timer
from proxyless.transport import ClientTls, KeepaliveConfig, TransportOptions
from proxyless.wire import Limits
from proxyless.xds.bootstrap import INSECURE
from proxyless.xds.security.server_credentials import GoogleTokens, TokenFile, read_tls

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import Metadata
    from proxyless.channel import CallCredentials, LoopStack
    from proxyless.lb.api import PolicyRegistry
    from proxyless.resolver.registry import ResolverRegistry
    from proxyless.wire import StreamEnd
    from proxyless.xds.bootstrap import ServerConfig
    from proxyless.xds.client import StreamListener

# What gRPC's other xDS clients use: often enough for a dead peer, rare enough for any server.
KEEPALIVE_TIME_S: Final = 300.0
# How often files are looked at while there is no connection, unless they are refreshed faster.
LOOK_INTERVAL_S: Final = 10.0
# A response holds every resource of a type. 100,000 endpoints are about 10 MB, so this is far more
# than a working control plane sends, and still less than what would hurt a client.
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024

_CLOSED: Final = Status(StatusCode.CANCELLED, "xds transport was closed")
_RENEWED: Final = Status(StatusCode.UNAVAILABLE, "certificates have changed")


class GrpcTransports:
    """Makes transports over gRPC. Driven by the clients of one loop."""

    def __init__(
        self, stack: LoopStack, *, policies: PolicyRegistry, resolvers: ResolverRegistry
    ) -> None:
        self._stack = stack
        self._policies = policies
        self._resolvers = resolvers

    def create(self, server: ServerConfig) -> GrpcTransport:
        """Raises ValueError if there is no such kind of target or credentials."""
        self._resolvers.match_target(server.uri)
        return GrpcTransport(self, server, make_options(server))

    def open_channel(self, server: ServerConfig, options: ChannelOptions) -> Channel:
        return Channel(
            server.uri, options, self._stack, policies=self._policies, resolvers=self._resolvers
        )

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return self._stack.clock.call_later(delay_s, callback)


def make_options(server: ServerConfig) -> ChannelOptions:
    """How the channel to a server behaves, but for its certificates."""
    transport = TransportOptions(
        limits=Limits(message_bytes_max=MESSAGE_BYTES_MAX),
        keepalive=KeepaliveConfig(time_s=KEEPALIVE_TIME_S),
    )
    is_private = server.channel_creds.type != INSECURE
    return ChannelOptions(
        subchannel=SubchannelOptions(transport=transport),
        # A control plane is configured by the bootstrap, not by what DNS says.
        is_resolver_config_used=False,
        # The client starts ended streams again, and knows when.
        is_retry_enabled=False,
        call_credentials=_call_credentials(server, is_private=is_private),
        is_private=is_private,
    )


def _call_credentials(server: ServerConfig, *, is_private: bool) -> CallCredentials | None:
    parts: list[CallCredentials] = [TokenFile(each.jwt_token_file) for each in server.call_creds]
    if server.channel_creds.type == "google_default":
        parts.append(GoogleTokens())
    if not parts:
        return None
    return CombinedCredentials(tuple(parts)) if is_private else RefusedCredentials()


class GrpcTransport:
    """The way to one control plane. Driven by the client and by the channel's state."""

    def __init__(
        self, factory: GrpcTransports, server: ServerConfig, options: ChannelOptions
    ) -> None:
        # Fixed at construction.
        self._factory = factory
        self._server = server
        self._options = options
        # Made at the first stream, and again when the certificates have changed.
        self._tls: ClientTls | None = None
        self._channel: Channel | None = None
        self._on_failure: Callable[[Status], None] | None = None
        self._timer: Timer = IDLE_TIMER
        self._look_timer: Timer = IDLE_TIMER
        self._streams: dict[GrpcStream, None] = {}
        self._is_closed = False

    def open(self, method_path: str, listener: StreamListener) -> GrpcStream:
        stream = GrpcStream(self, listener)
        self._streams[stream] = None
        status = self._renew()
        if self._channel is None:
            stream.fail(status)
        else:
            stream.start(self._channel, method_path)
        return stream

    def watch_connectivity(self, listener: Callable[[Status], None]) -> None:
        self._on_failure = listener
        if self._channel is not None:
            # Load reports may have kept it, and it may be failing all the while.
            self._on_state(self._channel.state)

    def close(self) -> None:
        self._is_closed = True
        self._timer.cancel()
        self._look_timer.cancel()
        for stream in list(self._streams):
            stream.close()
        if self._channel is not None:
            self._channel.close(_CLOSED)

    # For the streams

    def call_soon(self, callback: Callable[[], None]) -> Timer:
        return self._factory.call_later(0, callback)

    def on_stream_over(self, stream: GrpcStream) -> None:
        self._streams.pop(stream, None)

    # The channel

    def _renew(self) -> Status:
        """Have a channel with the certificates as they are now; or, without any, say why."""
        found = read_tls(self._server.channel_creds)
        if isinstance(found, Status):
            # Those that were read before may still do.
            return found
        if self._channel is None or found != self._tls:
            previous, self._tls = self._channel, found
            subchannel = self._options.subchannel
            transport = replace(subchannel.transport, tls=found)
            options = replace(self._options, subchannel=replace(subchannel, transport=transport))
            self._channel = self._factory.open_channel(self._server, options)
            self._channel.watch_state(self._on_state)
            if previous is not None:
                previous.close(_RENEWED)
        return Status(StatusCode.OK)

    def _on_state(self, state: State) -> None:
        if state is State.TRANSIENT_FAILURE and not self._timer.pending and not self._is_closed:
            self._timer = self._factory.call_later(0, self._tell_failure)

    def _tell_failure(self) -> None:
        channel = self._channel
        if channel is None or channel.state is not State.TRANSIENT_FAILURE:
            return
        # First: with new files there is a new channel, and the old one says only that it is closed.
        status = _status_of(channel)
        self._look_for_files()
        if self._on_failure is not None:
            self._on_failure(status)

    def _look_for_files(self) -> None:
        """Look for new certificates while there is no connection: it may be because of the old."""
        self._look_timer.cancel()
        config = self._server.channel_creds.config
        if config is None or self._is_closed:
            return
        self._renew()
        assert self._channel is not None, "only a channel can fail"
        if self._channel.state is State.TRANSIENT_FAILURE:
            interval_s = min(config.refresh_interval_s, LOOK_INTERVAL_S)
            self._look_timer = self._factory.call_later(interval_s, self._look_for_files)


def _status_of(channel: Channel) -> Status:
    """Why a channel is in TRANSIENT_FAILURE."""
    status = getattr(channel.picker, "status", None)
    if isinstance(status, Status):
        return status
    return Status(StatusCode.UNAVAILABLE, "channel is in TRANSIENT_FAILURE")


class GrpcStream:
    """One stream. Driven by the client (send, read_next, close) and its call.

    What the call says waits here: in order, messages until they are asked for.
    """

    def __init__(self, transport: GrpcTransport, listener: StreamListener) -> None:
        # Fixed at construction.
        self._transport = transport
        self._listener: StreamListener | None = listener
        # None until it was started, or if it cannot be.
        self._call: Call | None = None
        # What the call said and the listener was not told.
        self._is_ready_untold = False
        self._messages: deque[bytes] = deque()
        self._end: Status | None = None
        # What was told and asked for.
        self._is_ready = False
        self._reads = 0
        self._timer: Timer = IDLE_TIMER

    def start(self, channel: Channel, method_path: str) -> None:
        self._call = Call(channel, channel.method(method_path), self, wait_for_ready=True)
        self._call.start()

    def fail(self, status: Status) -> None:
        """End it before it began."""
        self._end = status
        self._wake()

    # The client's side

    def send(self, message: bytes) -> None:
        if self._call is not None and self._listener is not None:
            self._call.send_message(message)

    @property
    def is_writable(self) -> bool:
        return self._call is not None and self._call.is_writable

    def read_next(self) -> None:
        if self._listener is not None:
            self._reads += 1
            if self._call is not None and not self._messages:
                self._call.release()
            self._wake()

    def close(self) -> None:
        if self._listener is not None:
            self._let_go()
            if self._call is not None:
                self._call.cancel()

    def _let_go(self) -> None:
        self._listener = None
        self._messages.clear()
        self._timer.cancel()
        self._transport.on_stream_over(self)

    # What the call says

    def on_head(self, metadata: Metadata) -> None:
        return

    def on_writable(self) -> None:
        if not self._is_ready:
            self._is_ready = self._is_ready_untold = True
            self._wake()

    def on_message(self, message: bytes) -> None:
        if self._listener is None:
            return
        self._messages.append(message)
        if self._call is not None and len(self._messages) >= self._reads:
            # Nothing is read until it is asked for: that is what holds a control plane back.
            self._call.hold()
        self._wake()

    def on_end(self, end: StreamEnd) -> None:
        self._end = end.status
        self._wake()

    # In a turn of its own

    def _wake(self) -> None:
        if self._listener is not None and not self._timer.pending:
            self._timer = self._transport.call_soon(self._tell)

    def _tell(self) -> None:
        """Tell the listener one thing, if there is one it may hear now."""
        listener = self._listener
        assert listener is not None, "a stream that was let go has no timer"
        if self._is_ready_untold:
            self._is_ready_untold = False
            self._wake()
            listener.on_ready()
        elif self._messages and self._reads:
            self._reads -= 1
            message = self._messages.popleft()
            self._wake()
            listener.on_message(message)
        elif not self._messages and self._end is not None:
            self._let_go()
            listener.on_end(self._end)
