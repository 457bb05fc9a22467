"""Interface of a transport to a control plane, and the transports of one client.

A transport opens streams of serialized messages and reports when the control plane is unreachable;
`xds.grpc_transport` implements it. The ADS and the LRS stream to one server share a transport.

A listener is never called inside a call to the transport or the stream, and never after `close`.
Each message is requested by `read_next`, which holds back a control plane that is too fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from proxyless.base import Status, StatusCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.xds.bootstrap import ServerConfig
    from proxyless.xds.client.notifications import NotificationQueue


class StreamListener(Protocol):
    """Callbacks of a stream. No method may raise or block."""

    def on_ready(self) -> None:
        """The stream has a connection. Called at most once; requests are sent after it."""

    def on_writable(self) -> None:
        """All sent messages have left, after some had to wait."""

    def on_message(self, message: bytes) -> None:
        """One message, requested by `read_next`."""

    def on_end(self, status: Status) -> None:
        """The stream has ended; no other call follows."""


class Stream(Protocol):
    """One bidirectional stream."""

    def send(self, message: bytes) -> None:
        """Send the message when there is a connection. No-op after the end."""

    @property
    def is_writable(self) -> bool:
        """Whether all sent messages have left, so that the server reads."""

    def read_next(self) -> None:
        """Request one message, after the last one has come. No-op after the end."""

    def probe(self, on_answer: Callable[[], None]) -> None:
        """Call back if the server's host is alive; otherwise the stream may end some time later."""

    @property
    def is_receiving(self) -> bool:
        """Whether a message has come only in part, or has not been delivered."""

    def close(self) -> None:
        """End the stream; the listener is not called any more. Idempotent."""


class Transport(Protocol):
    """Connection to one control plane."""

    def open(self, method_path: str, listener: StreamListener) -> Stream:
        """Start a stream, which waits for a connection (wait-for-ready)."""

    def watch_connectivity(self, listener: Callable[[Status], None]) -> None:
        """Call back with the reason each time the control plane becomes unreachable.

        Calls back in the next turn if it is unreachable now. Replaces the previous listener.
        """

    def retry_in_s(self) -> float | None:
        """Time until the next attempt to connect, 0 while there is one; None if it is unknown."""

    def last_failure(self) -> Status:
        """Newest reason for which the control plane is unreachable; OK if it is reachable."""

    def close(self) -> None:
        """End every stream and close the connection. Idempotent."""


class TransportFactory(Protocol):
    """Creates transports."""

    def create(self, server: ServerConfig) -> Transport:
        """Raise ValueError if the configuration cannot be used."""


class Transports:
    """Transports of one client, by server."""

    def __init__(self, factory: TransportFactory, queue: NotificationQueue) -> None:
        self._factory = factory
        self._queue = queue
        self._transports: dict[ServerConfig, Transport] = {}
        self._users: dict[ServerConfig, int] = {}

    def acquire(self, server: ServerConfig) -> Transport:
        """Transport to this server, to be released; the last release closes it."""
        if server not in self._transports:
            try:
                transport = self._factory.create(server)
            except ValueError as error:
                status = Status(StatusCode.UNAVAILABLE, str(error))
                transport = UnusableTransport(status, self._queue)
            self._transports[server] = transport
        self._users[server] = self._users.get(server, 0) + 1
        return self._transports[server]

    def release(self, server: ServerConfig) -> None:
        self._users[server] -= 1
        if not self._users[server]:
            del self._users[server]
            self._transports.pop(server).close()


class UnusableTransport:
    """Transport to a server whose configuration cannot be used: always unreachable."""

    def __init__(self, status: Status, queue: NotificationQueue) -> None:
        self._status = status
        self._queue = queue
        self._is_closed = False

    def open(self, method_path: str, listener: StreamListener) -> Stream:
        return _SilentStream()

    def watch_connectivity(self, listener: Callable[[Status], None]) -> None:
        def report() -> None:
            if not self._is_closed:
                listener(self._status)

        self._queue.call(report)

    def retry_in_s(self) -> None:
        return None

    def last_failure(self) -> Status:
        return self._status

    def close(self) -> None:
        self._is_closed = True


class _SilentStream:
    """Stream that never gets a connection."""

    is_writable = False
    is_receiving = False

    def send(self, message: bytes) -> None:
        return

    def read_next(self) -> None:
        return

    def probe(self, on_answer: Callable[[], None]) -> None:
        return

    def close(self) -> None:
        return
