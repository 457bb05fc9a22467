"""Unit tests of proxyless.transport.tls_sessions: handshakes in memory."""

import ssl
from contextlib import suppress
from typing import Any

import pytest

from proxyless.transport import ClientTls, TlsSessions, client_context
from proxyless.transport.tls_sessions import SESSIONS_MAX
from tests.certificates import CertificateAuthority, server_context, shake_hands

NAME = "api.test"
AUTHORITY = CertificateAuthority()
CERTIFICATE = AUTHORITY.issue([NAME, "*.many.test"])
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def tls(sessions: TlsSessions | None, authority: CertificateAuthority = AUTHORITY) -> ClientTls:
    return ClientTls(root_certificates=authority.certificate_pem, sessions=sessions)


@pytest.fixture
def sessions() -> TlsSessions:
    return TlsSessions()


@pytest.fixture
def server() -> ssl.SSLContext:
    return server_context(*CERTIFICATE)


def connect(
    client: ssl.SSLContext, server: ssl.SSLContext, name: str | None = NAME
) -> ssl.SSLObject:
    """The client's end of a connection that has read the server's tickets."""
    connection, _ = shake_hands(client, server, name)
    with suppress(ssl.SSLWantReadError):
        connection.read()
    return connection


@pytest.mark.parametrize("version", VERSIONS)
def test_session_is_resumed_repeatedly(
    sessions: TlsSessions, server: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    server.maximum_version = version
    client = client_context(tls(sessions))
    for is_resumed in (False, True, True, True):
        connection = connect(client, server)
        assert connection.session_reused is is_resumed
        sessions.keep(connection)
        assert (connection.getpeercert() or {}).get("subjectAltName"), "for the checks after it"
        assert connection.selected_alpn_protocol() == "h2"
    assert len(sessions) == 1


def test_session_of_a_resumed_handshake_is_not_kept(
    sessions: TlsSessions, server: ssl.SSLContext
) -> None:
    client = client_context(tls(sessions))
    sessions.keep(connect(client, server))
    verified = sessions.find(shake_hands(client, server, NAME)[0])
    resumed = connect(client, server)
    sessions.keep(resumed)
    assert resumed.session != verified, "the server has sent another"
    assert sessions.find(resumed) is verified


def test_session_that_the_server_rejects_is_replaced(sessions: TlsSessions) -> None:
    client = client_context(tls(sessions))
    for is_resumed in (False, False):
        server = server_context(*CERTIFICATE)  # With other keys for its tickets.
        connection = connect(client, server)
        assert connection.session_reused is is_resumed
        sessions.keep(connection)
    assert connect(client, server).session_reused
    assert len(sessions) == 1


def test_one_of_many_connections_that_are_made_at_once_has_its_session_kept(
    sessions: TlsSessions, server: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copying a session takes as long as a handshake."""
    client = client_context(tls(sessions))
    copied: list[ssl.SSLObject] = []

    original: Any = ssl.SSLObject.session

    def copy(connection: ssl.SSLObject) -> Any:  # noqa: ANN401 - what the property returns
        copied.append(connection)
        return original.fget(connection)

    made = [connect(client, server) for _ in range(3)]
    monkeypatch.setattr(ssl.SSLObject, "session", property(copy, original.fset))
    for connection in made:
        sessions.keep(connection)
    assert copied == made[:1]
    resumed = connect(client, server)
    assert resumed.session_reused
    sessions.keep(resumed)
    assert copied == made[:1]


def test_session_without_a_ticket_is_not_kept_in_tls_1_3(
    sessions: TlsSessions, server: ssl.SSLContext
) -> None:
    server.num_tickets = 0
    sessions.keep(connect(client_context(tls(sessions)), server))
    assert len(sessions) == 0


def test_session_is_resumed_with_the_same_name_only(
    sessions: TlsSessions, server: ssl.SSLContext
) -> None:
    client = client_context(tls(sessions))
    sessions.keep(connect(client, server, "a.many.test"))
    assert not connect(client, server, "b.many.test").session_reused
    assert connect(client, server, "a.many.test").session_reused
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(client, server, "other.test")


def test_session_is_resumed_with_the_same_context_only(
    sessions: TlsSessions, server: ssl.SSLContext
) -> None:
    """Even with the same cache: other roots have not verified the peer."""
    sessions.keep(connect(client_context(tls(sessions)), server))
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(client_context(tls(sessions, CertificateAuthority("stranger"))), server)
    other = client_context(tls(TlsSessions()))
    assert not connect(other, server).session_reused


def test_session_of_a_peer_without_a_name_is_not_kept(
    sessions: TlsSessions, server: ssl.SSLContext
) -> None:
    client = client_context(tls(sessions))
    client.check_hostname = False
    sessions.keep(connect(client, server, None))
    assert len(sessions) == 0


def test_cache_drops_the_least_recently_used_session(
    sessions: TlsSessions, server: ssl.SSLContext
) -> None:
    client = client_context(tls(sessions))
    sessions.keep(connect(client, server, "old.many.test"))
    sessions.keep(connect(client, server, "used.many.test"))
    for number in range(SESSIONS_MAX - 1):
        assert connect(client, server, "used.many.test").session_reused
        sessions.keep(connect(client, server, f"{number}.many.test"))
    assert len(sessions) == SESSIONS_MAX
    assert connect(client, server, "used.many.test").session_reused
    assert not connect(client, server, "old.many.test").session_reused


def test_configuration_without_a_cache_resumes_nothing(server: ssl.SSLContext) -> None:
    client = client_context(tls(None))
    assert type(client) is ssl.SSLContext
    assert not any(connect(client, server).session_reused for _ in range(2))


def test_sessions_are_not_in_the_repr(sessions: TlsSessions) -> None:
    assert repr(tls(sessions)) == "ClientTls(server_name=None, has_key=False)"
    assert "Session " not in repr(sessions)
