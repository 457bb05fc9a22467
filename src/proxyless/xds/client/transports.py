"""Who shares the way to a server?

ADS and LRS to one server go over one transport, which is closed when neither needs it any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.base import Status, StatusCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.runtime import Clock
    from proxyless.xds.bootstrap import ServerConfig
    from proxyless.xds.client.transport import Stream, StreamListener, Transport, TransportFactory


class Transports:
    """The transports of one client, by server. Driven by those who acquire and release."""

    def __init__(self, factory: TransportFactory, clock: Clock) -> None:
        self._factory = factory
        self._clock = clock
        self._transports: dict[ServerConfig, Transport] = {}
        self._users: dict[ServerConfig, int] = {}

    def acquire(self, server: ServerConfig) -> Transport:
        """The way to this server; to be released as often as it was acquired."""
        if server not in self._transports:
            self._transports[server] = self._create(server)
        self._users[server] = self._users.get(server, 0) + 1
        return self._transports[server]

    def _create(self, server: ServerConfig) -> Transport:
        try:
            return self._factory.create(server)
        except ValueError as error:
            return UnusableTransport(Status(StatusCode.UNAVAILABLE, str(error)), self._clock)

    def release(self, server: ServerConfig) -> None:
        self._users[server] -= 1
        if not self._users[server]:
            del self._users[server]
            self._transports.pop(server).close()


class UnusableTransport:
    """The way to a server whose configuration cannot be used: none, and it says why."""

    def __init__(self, status: Status, clock: Clock) -> None:
        self._status = status
        self._clock = clock
        self._is_closed = False

    def open(self, method_path: str, listener: StreamListener) -> Stream:
        return _SilentStream()

    def watch_connectivity(self, listener: Callable[[Status], None]) -> None:
        def tell() -> None:
            if not self._is_closed:
                listener(self._status)

        self._clock.call_later(0, tell)

    def close(self) -> None:
        self._is_closed = True


class _SilentStream:
    """A stream that never leaves."""

    is_writable = False

    def send(self, message: bytes) -> None:
        return

    def read_next(self) -> None:
        return

    def close(self) -> None:
        return
