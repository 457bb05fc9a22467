"""gRPC transport of the xDS client: a channel per control plane, a call per stream.

Specs: A27 (keepalive, credentials), A57 (wait-for-ready, connectivity), A65 (tls files),
A97 (jwt_token_file), A110 (child channel options).

Events of a call may come inside a call to the stream, so they are delivered in the next turn of the
loop, messages one by one as they are requested.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Final, Protocol, cast

from proxyless.base import EMPTY_METADATA, OK, BackoffPolicy, Metadata, State, Status, StatusCode
from proxyless.base.frozen import frozen, replace
from proxyless.channel import Call, Channel, ChannelOptions
from proxyless.channel.call import has_undelivered, probe_peer
from proxyless.channel.credentials import CombinedCredentials, RefusedCredentials
from proxyless.metrics import choose_own_plugins
from proxyless.resolver.dns import DnsResolver
from proxyless.runtime import IDLE_TIMER, Soon
from proxyless.wire import Limits
from proxyless.wire.messages import Unpacking
from proxyless.xds.bootstrap import INSECURE
from proxyless.xds.client.retried_stream import CONTROL_PLANE_BACKOFF

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.channel import CallCredentials, LoopStack
    from proxyless.lb.api import PolicyRegistry
    from proxyless.metrics import StatsPlugin
    from proxyless.resolver.registry import ResolverRegistry
    from proxyless.transport import ClientTls
    from proxyless.wire import StreamEnd
    from proxyless.xds.bootstrap import ServerConfig
    from proxyless.xds.client import StreamListener

# As in gRPC's other xDS clients.
KEEPALIVE_TIME_S: Final = 300.0
# Longest interval between checks of the TLS files while there is no connection.
FILE_CHECK_INTERVAL_S: Final = 10.0
# A response may hold every resource of a type; 100,000 endpoints are about 10 MB. grpcio's limit is
# 4 MB. A larger one costs memory: protobuf may take 50 times the size.
MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024

_CLOSED: Final = Status(StatusCode.CANCELLED, "xds transport was closed")
_RENEWED: Final = Status(StatusCode.UNAVAILABLE, "certificates have changed")


class StreamCall(Protocol):
    """The methods of a call that a stream uses."""

    @property
    def is_writable(self) -> bool: ...
    def start(self) -> None: ...
    def send_message(self, message: bytes, /) -> None: ...
    def hold(self) -> None: ...
    def release(self) -> None: ...
    def cancel(self) -> None: ...


class ProbedCall(StreamCall, Protocol):
    """A call that is not a `Call`."""

    def probe(self, on_answer: Callable[[], None]) -> None: ...
    @property
    def has_undelivered(self) -> bool: ...


@frozen
class ChildChannel:
    """Options that an application passes to channels to control planes (A110)."""

    options: ChannelOptions = field(default_factory=ChannelOptions)
    plugins: tuple[StatsPlugin, ...] = ()
    # Creates the calls of streams, by channel, method and observer; None: as channels do.
    make_call: Callable[[Channel, str, GrpcStream], ProbedCall] | None = None


NO_CHILD_OPTIONS: Final = ChildChannel()


class GrpcTransports:
    """Factory of gRPC transports for the clients of one loop."""

    def __init__(
        self,
        stack: LoopStack,
        *,
        policies: PolicyRegistry,
        resolvers: ResolverRegistry,
        child: ChildChannel = NO_CHILD_OPTIONS,
    ) -> None:
        self.clock = stack.clock
        self._stack = stack
        self._policies = policies
        self._resolvers = resolvers
        self.child = child

    def for_child(self, child: ChildChannel) -> GrpcTransports:
        """The factory of transports with these options."""
        return GrpcTransports(
            self._stack, policies=self._policies, resolvers=self._resolvers, child=child
        )

    def create(self, server: ServerConfig) -> GrpcTransport:
        """Raise ValueError if the target or the credentials are not supported."""
        _, target = self._resolvers.match_target(server.uri)
        options = make_options(server, self.child.options)
        if self.child.plugins:
            metrics = choose_own_plugins(str(target), self.child.plugins)
            options = replace(options, metrics=metrics)
        return GrpcTransport(self, server, options)

    def open_channel(self, server: ServerConfig, options: ChannelOptions) -> Channel:
        return Channel(
            server.uri, options, self._stack, policies=self._policies, resolvers=self._resolvers
        )


def make_options(
    server: ServerConfig, child: ChannelOptions = NO_CHILD_OPTIONS.options
) -> ChannelOptions:
    """Options of the channel to a server, without its certificates.

    "Mandatory internal settings … take precedence over user-provided child options" - A110. Limits,
    keepalive and backoff of the application replace our own, which are defaults.
    """
    transport = child.subchannel.transport
    if transport.limits.message_bytes_max == Limits().message_bytes_max:
        limits = replace(transport.limits, message_bytes_max=MESSAGE_BYTES_MAX)
        transport = replace(transport, limits=limits)
    if not transport.keepalive.is_enabled:
        keepalive = replace(transport.keepalive, time_s=KEEPALIVE_TIME_S)
        transport = replace(transport, keepalive=keepalive)
    backoff = child.subchannel.backoff
    if backoff == BackoffPolicy():
        backoff = CONTROL_PLANE_BACKOFF
    is_private = server.channel_creds.type != INSECURE
    return replace(
        child,
        subchannel=replace(child.subchannel, transport=transport, backoff=backoff),
        resolver=replace(child.resolver, dns=replace(child.resolver.dns, backoff=backoff)),
        # The bootstrap configures the channel; service configs from DNS are ignored.
        is_resolver_config_used=False,
        # The client itself restarts ended streams.
        is_retry_enabled=False,
        call_credentials=_call_credentials(server, is_private=is_private),
        is_private=is_private,
    )


def _call_credentials(server: ServerConfig, *, is_private: bool) -> CallCredentials | None:
    has_google_tokens = server.channel_creds.type == "google_default"
    if not server.call_creds and not has_google_tokens:
        return None
    from proxyless.xds.security.server_credentials import (  # noqa: PLC0415 - seldom used
        GoogleTokens,
        TokenFile,
    )

    parts: list[CallCredentials] = [TokenFile(each.jwt_token_file) for each in server.call_creds]
    if has_google_tokens:
        parts.append(GoogleTokens())
    return CombinedCredentials(tuple(parts)) if is_private else RefusedCredentials()


class GrpcTransport:
    """Transport to one control plane. Owns its channel and streams."""

    def __init__(
        self, factory: GrpcTransports, server: ServerConfig, options: ChannelOptions
    ) -> None:
        # Fixed at construction.
        self.clock = factory.clock
        self.make_call = factory.child.make_call
        self._factory = factory
        self._server = server
        self.options = options
        # Made for the first stream, and again when the certificates have changed.
        self._tls: ClientTls | None = None
        self._channel: Channel | None = None
        self._on_failure: Callable[[Status], None] | None = None
        self._failure_soon = Soon(self.clock, self._report_failure)
        self._file_check_timer = IDLE_TIMER
        self._streams: dict[GrpcStream, None] = {}
        self._is_closed = False

    def open(self, method_path: str, listener: StreamListener) -> GrpcStream:
        stream = GrpcStream(self, listener)
        self._streams[stream] = None
        status = self._refresh_channel()
        if self._channel is None:
            stream.fail(status)
        else:
            stream.start(self._channel, method_path)
        return stream

    def watch_connectivity(self, listener: Callable[[Status], None]) -> None:
        self._on_failure = listener
        if self._channel is not None:
            # Load reports may have kept a channel that is failing now.
            self._on_state(self._channel.state)

    def close(self) -> None:
        self._is_closed = True
        self._failure_soon.cancel()
        self._file_check_timer.cancel()
        for stream in list(self._streams):
            stream.close()
        if self._channel is not None:
            self._channel.close(_CLOSED)

    def retry_in_s(self) -> float | None:
        channel = self._channel
        if channel is None or channel.state is not State.TRANSIENT_FAILURE:
            return None
        found = [each.backoff_left_s for each in channel.stack.pool.subchannels_of(channel)]
        if not found:
            resolver = channel.view().resolver
            return resolver.retry_in_s() if isinstance(resolver, DnsResolver) else None
        # A subchannel without a backoff is connecting.
        return min(left_s or 0.0 for left_s in found)

    def last_failure(self) -> Status:
        channel = self._channel
        is_failing = channel is not None and channel.state is State.TRANSIENT_FAILURE
        return _status_of(channel) if channel is not None and is_failing else OK

    def on_stream_ended(self, stream: GrpcStream) -> None:
        """Called by the stream."""
        self._streams.pop(stream, None)

    # Channel

    def _refresh_channel(self) -> Status:
        """Make a channel if there is none, or if the certificates have changed."""
        found = self._read_tls()
        if isinstance(found, Status):
            # A channel with the certificates read before is kept.
            return found
        if self._channel is None or found != self._tls:
            previous, self._tls = self._channel, found
            subchannel = self.options.subchannel
            transport = replace(subchannel.transport, tls=found)
            options = replace(self.options, subchannel=replace(subchannel, transport=transport))
            self._channel = self._factory.open_channel(self._server, options)
            self._channel.watch_state(self._on_state)
            if previous is not None:
                previous.close(_RENEWED)
        return OK

    def _read_tls(self) -> ClientTls | Status | None:
        if self._server.channel_creds.type == INSECURE:
            return None
        from proxyless.xds.security.server_credentials import read_tls  # noqa: PLC0415 - only TLS

        return read_tls(self._server.channel_creds)

    def _on_state(self, state: State) -> None:
        if state is State.TRANSIENT_FAILURE and not self._is_closed:
            self._failure_soon.request()

    def _report_failure(self) -> None:
        channel = self._channel
        if channel is None or channel.state is not State.TRANSIENT_FAILURE:
            return
        # Read first: with new files the channel is replaced and closed.
        status = _status_of(channel)
        self._check_files()
        if self._on_failure is not None:
            self._on_failure(status)

    def _check_files(self) -> None:
        """Read the certificates while there is no connection: old ones may be the reason."""
        self._file_check_timer.cancel()
        config = self._server.channel_creds.config
        if config is None or self._is_closed:
            return
        self._refresh_channel()
        assert self._channel is not None, "only a channel can fail"
        if self._channel.state is State.TRANSIENT_FAILURE:
            interval_s = min(config.refresh_interval_s, FILE_CHECK_INTERVAL_S)
            self._file_check_timer = self.clock.call_later(interval_s, self._check_files)


def _status_of(channel: Channel) -> Status:
    """Reason of a channel's TRANSIENT_FAILURE."""
    status = getattr(channel.picker, "status", None)
    if isinstance(status, Status):
        return status
    return Status(StatusCode.UNAVAILABLE, "channel is in TRANSIENT_FAILURE")


class GrpcStream:
    """One stream. Owns its call, and the events of it that are not delivered yet."""

    def __init__(self, transport: GrpcTransport, listener: StreamListener) -> None:
        # Fixed at construction.
        self._transport = transport
        self._listener: StreamListener | None = listener
        # None if the stream cannot be started.
        self._call: StreamCall | None = None
        # Undelivered events.
        self._is_ready_pending = False
        self._is_writable_pending = False
        self._messages: deque[bytes] = deque()
        self._end: Status | None = None
        self._is_ready = False
        # Whether a sent message waits for the server to read.
        self._is_blocked = False
        # Requested messages.
        self._reads = 0
        self._deliver_soon = Soon(transport.clock, self._deliver)

    def start(self, channel: Channel, method_path: str) -> None:
        if self._transport.make_call is not None:
            self._call = self._transport.make_call(channel, method_path, self)
        else:
            method = channel.method(method_path, is_registered=True)
            # No timeout; wait-for-ready.
            self._call = channel.call_type(channel, method, self, EMPTY_METADATA, None, True)
        self._call.start()

    def fail(self, status: Status) -> None:
        """End a stream that cannot be started."""
        self._end = status
        self._schedule_delivery()

    # Called by the client

    def send(self, message: bytes) -> None:
        if self._call is not None and self._listener is not None:
            self._call.send_message(message)
            self._is_blocked = self._is_ready and not self._call.is_writable

    @property
    def is_writable(self) -> bool:
        return self._call is not None and self._call.is_writable

    def read_next(self) -> None:
        if self._listener is not None:
            self._reads += 1
            if self._call is not None and not self._messages:
                self._call.release()
            self._schedule_delivery()

    def probe(self, on_answer: Callable[[], None]) -> None:
        if self._call is None or self._listener is None:
            return
        if isinstance(self._call, Call):
            probe_peer(self._call, on_answer)
        else:
            cast("ProbedCall", self._call).probe(on_answer)

    @property
    def is_receiving(self) -> bool:
        if self._messages or self._call is None:
            return bool(self._messages)
        if isinstance(self._call, Call):
            return has_undelivered(self._call)
        return cast("ProbedCall", self._call).has_undelivered

    def close(self) -> None:
        if self._listener is not None:
            self._detach()
            if self._call is not None:
                self._call.cancel()

    def _detach(self) -> None:
        self._listener = None
        self._messages.clear()
        self._deliver_soon.cancel()
        self._transport.on_stream_ended(self)

    # Called by the call

    def on_head(self, metadata: Metadata) -> None:
        return

    def on_writable(self) -> None:
        if not self._is_ready:
            self._is_ready = self._is_ready_pending = True
            self._schedule_delivery()
        elif self._is_blocked:
            self._is_blocked = False
            self._is_writable_pending = True
            self._schedule_delivery()

    def choose_unpacking(self) -> Unpacking:
        return Unpacking.AT_ONCE

    def on_message(self, message: bytes) -> None:
        if self._listener is None:
            return
        self._messages.append(message)
        if self._call is not None and len(self._messages) >= self._reads:
            # Without a request no message is read, which holds back the control plane.
            self._call.hold()
        self._schedule_delivery()

    def on_end(self, end: StreamEnd) -> None:
        self._end = end.status
        self._schedule_delivery()

    # In a turn of its own

    def _schedule_delivery(self) -> None:
        if self._listener is not None:
            self._deliver_soon.request()

    def _deliver(self) -> None:
        """Deliver one event."""
        listener = self._listener
        assert listener is not None, "a detached stream delivers nothing"
        if self._is_ready_pending:
            self._is_ready_pending = False
            self._schedule_delivery()
            listener.on_ready()
        elif self._is_writable_pending:
            self._is_writable_pending = False
            self._schedule_delivery()
            listener.on_writable()
        elif self._messages and self._reads:
            self._reads -= 1
            message = self._messages.popleft()
            self._schedule_delivery()
            listener.on_message(message)
        elif not self._messages and self._end is not None:
            self._detach()
            listener.on_end(self._end)
