"""Interface of a connection's owner."""

from typing import Final, Protocol

from proxyless.wire.errors import RemoteProtocolError


class ConnectionListener(Protocol):
    """Callbacks of a connection, for its owner. No method may raise or block."""

    def on_output(self) -> None:
        """Output was added to an empty buffer."""

    def on_settings(self) -> None:
        """The peer's SETTINGS arrived."""

    def on_ping_ack(self, payload: bytes) -> None:
        """The peer acknowledged a `ping`."""

    def on_goaway(self, code: int, text: str) -> None:
        """The peer accepts no new streams."""

    def on_broken(self, error: RemoteProtocolError) -> None:
        """The peer broke the protocol. Called before its streams are ended."""

    def on_drained(self) -> None:
        """The last stream of a draining connection has ended."""


class NoOwner:
    """Listener of a connection whose owner is gone."""

    def on_output(self) -> None: ...

    def on_settings(self) -> None: ...

    def on_ping_ack(self, payload: bytes) -> None: ...

    def on_goaway(self, code: int, text: str) -> None: ...

    def on_broken(self, error: RemoteProtocolError) -> None: ...

    def on_drained(self) -> None: ...


NO_OWNER: Final[ConnectionListener] = NoOwner()
