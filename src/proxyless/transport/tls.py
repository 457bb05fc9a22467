"""TLS of clients: contexts, and checks of the peer's certificate after the handshake.

Certificates are verified unless the configuration says otherwise, HTTP/2 must be negotiated by
ALPN, and `check_peer` may refuse a certificate after the handshake (the SAN matchers of A29).
"""

import os
import ssl
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from ipaddress import ip_address
from threading import Lock
from typing import Final, Protocol, cast

from proxyless.base import Status
from proxyless.base.frozen import frozen
from proxyless.transport.server_names import match_host
from proxyless.transport.spiffe import SpiffeContext, TrustBundles
from proxyless.transport.tls_sessions import ResumingContext, TlsSessions

ALPN: Final = "h2"
_ROOTS_VARIABLE: Final = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
CONTEXTS_MAX: Final = 64
# Contexts hold private keys, so few of them are kept.
CONTEXTS_WITH_KEY_MAX: Final = 16


@frozen
class PeerCertificate:
    """Alternative names of a verified peer's certificate."""

    dns_names: tuple[str, ...]
    uris: tuple[str, ...]
    ip_addresses: tuple[str, ...]
    emails: tuple[str, ...]
    der: bytes


# Returns the reason to refuse the peer, or None.
CheckPeer = Callable[[PeerCertificate], str | None]


@frozen(kw_only=True)
class ClientTls:
    """How a client authenticates the server, and itself. All certificates and keys are PEM."""

    # None: the file of GRPC_DEFAULT_SSL_ROOTS_FILE_PATH, or the system's roots.
    root_certificates: bytes | None = None
    # In place of the above: each server is checked with the roots of its own trust domain (A87).
    trust_bundles: TrustBundles | None = None
    certificate_chain: bytes | None = None
    private_key: bytes | None = None
    # Replaces the host of the target, for SNI and for the check of the certificate. Empty: no name
    # is sent or checked.
    server_name: str | None = None
    # False: only `check_peer` checks names.
    is_name_checked: bool = True
    check_peer: CheckPeer | None = None
    # Cache for session resumption. Not used with trust bundles.
    sessions: TlsSessions | None = None

    def __repr__(self) -> str:
        """Without the key: this may end up in a log."""
        return (
            f"ClientTls(server_name={self.server_name!r}, has_key={self.private_key is not None})"
        )


class TlsSource(Protocol):
    """TLS configuration that may change between connections.

    Hashable: subchannels with equal sources may be shared.
    """

    def current(self) -> ClientTls | Status | None:
        """TLS for the next connection, or an error; None: the other options apply."""


def client_context(tls: ClientTls) -> ssl.SSLContext:
    """The context for a configuration. Raises ValueError if the certificates are not usable."""
    return _contexts.find_or_make(tls, _find_roots_file(tls))


def identity_digest(certificate_chain: bytes, private_key: bytes) -> bytes:
    """Digest of a client's identity, which may be kept when the identity must not be."""
    return sha256(certificate_chain + b"\0" + private_key).digest()


def drop_identity(digest: bytes) -> None:
    """Drop the contexts with this identity, after its rotation. Open connections keep theirs."""
    _contexts.drop(digest)


_RootsFile = tuple[str, int] | None
# The settings without names, certificate and key; the file of the default roots; digest of the
# identity.
_ContextKey = tuple[ClientTls, _RootsFile, bytes]


class _ContextCache:
    """LRU cache of contexts. Its keys have no private keys. Used by the loops of all threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        # Ordered by last use.
        self._contexts: dict[_ContextKey, ssl.SSLContext] = {}

    def __len__(self) -> int:
        return len(self._contexts)

    def find_or_make(self, tls: ClientTls, roots_file: _RootsFile) -> ssl.SSLContext:
        chain, private_key = tls.certificate_chain or b"", tls.private_key or b""
        digest = identity_digest(chain, private_key) if chain or private_key else b""
        # Names are sent and checked per connection, so servers share a context.
        settings = replace(
            tls, server_name=None, check_peer=None, certificate_chain=None, private_key=None
        )
        key = (settings, roots_file, digest)
        with self._lock:
            context = self._contexts.pop(key, None)
            if context is not None:
                self._contexts[key] = context
                return context
        # Made without the lock: it may take long.
        context = _client_context(tls, roots_file)
        with self._lock:
            context = self._contexts.setdefault(key, context)
            self._drop_oldest(lambda each: bool(each[2]), CONTEXTS_WITH_KEY_MAX)
            self._drop_oldest(lambda _: True, CONTEXTS_MAX)
        return context

    def drop(self, digest: bytes) -> None:
        with self._lock:
            for key in [each for each in self._contexts if each[2] == digest]:
                self._remove(key)

    def _drop_oldest(self, matches: Callable[[_ContextKey], bool], count_max: int) -> None:
        found = [each for each in self._contexts if matches(each)]
        for key in found[: max(0, len(found) - count_max)]:
            self._remove(key)

    def _remove(self, key: _ContextKey) -> None:
        context = self._contexts.pop(key)
        if isinstance(context, ResumingContext):
            context.sessions.drop(context)


_contexts: Final = _ContextCache()


def _find_roots_file(tls: ClientTls) -> _RootsFile:
    """Path and modification time of the default roots: a context of an older file is not reused."""
    path = os.environ.get(_ROOTS_VARIABLE)
    has_roots = tls.root_certificates is not None or tls.trust_bundles is not None
    if has_roots or not path:
        return None
    try:
        return path, os.stat(path).st_mtime_ns
    except OSError as error:
        raise ValueError(f"root certificates are not usable: {error}") from error


def _client_context(tls: ClientTls, roots_file: _RootsFile) -> ssl.SSLContext:
    context = _trusting(tls, roots_file)
    # RFC 9113, 9.2.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # "MUST disable renegotiation" - RFC 9113, 9.2.1. The peer is checked only once.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols([ALPN])
    context.check_hostname = tls.is_name_checked
    if (tls.certificate_chain is None) != (tls.private_key is None):
        raise ValueError("certificate chain and private key go together: one of them is missing")
    if tls.certificate_chain is not None and tls.private_key is not None:
        _load_identity(context, tls.certificate_chain, tls.private_key)
    return context


def _trusting(tls: ClientTls, roots_file: _RootsFile) -> ssl.SSLContext:
    if tls.trust_bundles is None:
        if tls.sessions is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        else:
            context = ResumingContext.of(tls.sessions)
        _load_roots(context, tls.root_certificates, roots_file)
        return context
    trusting = SpiffeContext.of(tls.trust_bundles)
    # The map may be empty: "a valid (but empty) trust bundle map" - A87.
    if roots := tls.trust_bundles.pem():
        _load_roots(trusting, roots)
    return trusting


def check_roots(root_certificates: bytes) -> None:
    """Raises ValueError if these are not usable root certificates."""
    _load_roots(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), root_certificates)


def check_identity(certificate_chain: bytes, private_key: bytes) -> None:
    """Raises ValueError if these are not a certificate and its key."""
    _load_identity(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate_chain, private_key)


def refuse_peer(transport_ssl: ssl.SSLObject, check_peer: CheckPeer | None) -> str | None:
    """The reason to refuse the peer of a finished handshake, or None."""
    selected = transport_ssl.selected_alpn_protocol()
    if selected != ALPN:
        return f"peer negotiated {selected!r} by ALPN, wanted {ALPN!r}"
    certificate = _read_certificate(transport_ssl)
    if transport_ssl.context.check_hostname and not _has_name(transport_ssl, certificate):
        return f"certificate has other names than {transport_ssl.server_hostname!r}"
    return None if check_peer is None else check_peer(certificate)


def refuse_name(transport_ssl: ssl.SSLObject, host: str) -> str | None:
    """The reason why the certificate is not valid for this host; None if it is, or unchecked."""
    if not transport_ssl.context.check_hostname:
        return None
    certificate = _read_certificate(transport_ssl)
    return None if match_host(certificate, host) else f"certificate has other names than {host!r}"


def _has_name(transport_ssl: ssl.SSLObject, certificate: PeerCertificate) -> bool:
    """Whether the name that OpenSSL accepted is valid by RFC 6125, 6.4.4.

    OpenSSL accepts the common name if no alternative name is a DNS name. RFC 6125 allows it only
    for certificates without alternative names, such as a SPIFFE URI.
    """
    if certificate.dns_names or not (transport_ssl.getpeercert() or {}).get("subjectAltName"):
        return True
    try:
        ip_address(transport_ssl.server_hostname or "")
    except ValueError:
        return False
    return True


def _read_certificate(transport_ssl: ssl.SSLObject) -> PeerCertificate:
    certificate = transport_ssl.getpeercert() or {}
    alternatives = cast("tuple[tuple[str, str], ...]", certificate.get("subjectAltName", ()))
    names: dict[str, list[str]] = {}
    for kind, name in alternatives:
        names.setdefault(kind, []).append(name)
    return PeerCertificate(
        dns_names=tuple(names.get("DNS", ())),
        uris=tuple(names.get("URI", ())),
        ip_addresses=tuple(names.get("IP Address", ())),
        emails=tuple(names.get("email", ())),
        der=transport_ssl.getpeercert(binary_form=True) or b"",
    )


def _load_roots(
    context: ssl.SSLContext,
    root_certificates: bytes | None,
    roots_file: _RootsFile = None,
) -> None:
    try:
        if root_certificates is not None:
            # Comments between certificates may have any encoding. Inside a certificate, an escape
            # is not base64, so it is refused.
            text = root_certificates.decode("ascii", "backslashreplace")
            context.load_verify_locations(cadata=text)
        elif roots_file is not None:
            context.load_verify_locations(cafile=roots_file[0])
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    except (OSError, ValueError) as error:  # Also SSLError.
        raise ValueError(f"root certificates are not usable: {error}") from error


def _load_identity(context: ssl.SSLContext, certificate_chain: bytes, private_key: bytes) -> None:
    from proxyless.transport.key_files import path_with  # noqa: PLC0415 - few clients have a key

    try:
        with path_with(private_key + b"\n" + certificate_chain) as path:
            # The password prevents a prompt for an encrypted key.
            context.load_cert_chain(path, password="")
    except OSError as error:  # Also SSLError.
        raise ValueError(f"certificate chain and key are not usable: {error}") from error
