"""What does the client need from whatever carries its streams?

A control plane is reached through a transport: it opens streams of serialized messages and says
when the control plane cannot be reached. `xds.grpc_transport` is the real one; a test's is a list.

Rules for both sides: a listener is never called inside a call to the transport or the stream, and
never after `close`. Messages come one at a time, each asked for by `read_next`, which is what holds
back a control plane that is faster than we are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import Status
    from proxyless.xds.bootstrap import ServerConfig


class StreamListener(Protocol):
    """Who is told about a stream. No method may raise or block."""

    def on_ready(self) -> None:
        """The stream is on a connection: what was sent is on its way. At most once."""

    def on_message(self, message: bytes) -> None:
        """One message, which `read_next` asked for."""

    def on_end(self, status: Status) -> None:
        """The stream is over; nothing follows. Also a status of OK is an end."""


class Stream(Protocol):
    """One bidirectional stream."""

    def send(self, message: bytes) -> None:
        """Send, or keep until there is a connection. Void after the end."""

    @property
    def is_writable(self) -> bool:
        """Whether what was sent has left, so that the server takes what it is sent."""
        ...

    def read_next(self) -> None:
        """Ask for one message, and for the next one only when it came. Void after the end."""

    def close(self) -> None:
        """End it from this side; the listener hears nothing any more. Idempotent."""


class Transport(Protocol):
    """The way to one control plane."""

    def open(self, method_path: str, listener: StreamListener) -> Stream:
        """Start a stream, which waits for as long as there is no connection (wait-for-ready)."""
        ...

    def watch_connectivity(self, listener: Callable[[Status], None]) -> None:
        """Call back with the reason each time the control plane becomes unreachable.

        And soon, if it is so already. At most one listener, the last one. That it can be reached
        again is seen from a stream.
        """

    def close(self) -> None:
        """End every stream and let go of the connection. Idempotent."""


class TransportFactory(Protocol):
    """Makes the way to a control plane."""

    def create(self, server: ServerConfig) -> Transport:
        """May raise ValueError if the configuration cannot be used."""
        ...
