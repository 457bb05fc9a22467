"""Cache of TLS sessions of earlier connections, which later ones resume.

Specs: RFC 8446, 2.2. Used if a channel has the option `grpc.ssl_session_cache`.

A resumed handshake does not verify the server's certificate again. So a session is resumed only
with the context (roots and identity of the client) and the server name that it was verified with;
and only sessions of full handshakes are kept, not those that a resumed one hands on: however often
a session is resumed, the certificate was verified within the lifetime that the server gave it.

Sessions are secrets: they appear in no log, and in no representation of what holds them.
"""

from __future__ import annotations

import ssl
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from typing import Self

# How many sessions a cache keeps, each with the server's certificates: a few kilobytes.
SESSIONS_MAX: Final = 128

_Key = tuple[ssl.SSLContext, str]


class TlsSessions:
    """LRU cache, with one session for each context and server name.

    Channels of any thread may share one, hence the lock.
    """

    __slots__ = ("__weakref__", "_lock", "_sessions")

    def __init__(self) -> None:
        self._lock = Lock()
        # Ordered by last use.
        self._sessions: dict[_Key, ssl.SSLSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, connection: ssl.SSLObject) -> ssl.SSLSession | None:
        """The session that this connection, whose handshake has not begun, may resume."""
        key = _find_key(connection)
        with self._lock:
            session = None if key is None else self._sessions.pop(key, None)
            if key is not None and session is not None:
                self._sessions[key] = session
        return session

    def keep(self, connection: ssl.SSLObject) -> None:
        """Let others resume the session of this connection, whose peer is verified.

        In TLS 1.3 the server sends what is needed after the handshake: call this when there is
        application data. Does nothing if the server has sent nothing, or if another connection has
        replaced the session that this one offered: of many that connect at once, one is enough.
        """
        key = _find_key(connection)
        if key is None or connection.session_reused:
            return
        offered = connection.offered if isinstance(connection, ResumingConnection) else None
        if self._sessions.get(key) is not offered:
            return
        # Last, because it is slow: Python copies the session with all certificates.
        session = connection.session
        if session is None or (connection.version() == "TLSv1.3" and not session.has_ticket):
            return
        with self._lock:
            self._sessions.pop(key, None)
            self._sessions[key] = session
            if len(self._sessions) > SESSIONS_MAX:
                del self._sessions[next(iter(self._sessions))]

    def drop(self, context: ssl.SSLContext) -> None:
        """Drop the sessions of a context, which they would keep with its private key."""
        with self._lock:
            for key in [each for each in self._sessions if each[0] is context]:
                del self._sessions[key]


def _find_key(connection: ssl.SSLObject) -> _Key | None:
    """None if no name is verified: one peer's session would then be offered to any other."""
    name = connection.server_hostname
    return (connection.context, name) if name else None


class ResumingConnection(ssl.SSLObject):
    """TLS connection of a `ResumingContext`."""

    # The session that it may resume.
    offered: ssl.SSLSession | None = None


class ResumingContext(ssl.SSLContext):
    """Context of clients whose connections resume sessions of a cache.

    Neither asyncio nor uvloop takes a session when connecting. Both call `wrap_bio` of the context.
    """

    sessions: TlsSessions

    @classmethod
    def of(cls, sessions: TlsSessions) -> Self:
        made = cls(ssl.PROTOCOL_TLS_CLIENT)
        made.sslobject_class = ResumingConnection
        made.sessions = sessions
        return made

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:  # noqa: ANN401 - as in ssl
        connection = super().wrap_bio(*args, **kwargs)
        session = self.sessions.find(connection)
        if session is not None:
            connection.session = session
            assert isinstance(connection, ResumingConnection), "the context makes no others"
            connection.offered = session
        return connection
