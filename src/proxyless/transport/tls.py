"""How does a connection prove who the peer is?

Certificates are verified unless the configuration says otherwise, HTTP/2 must be negotiated by
ALPN, and `check_peer` may refuse a certificate after the handshake (the SAN matchers of A29).
"""

import os
import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Protocol, cast

from proxyless.base import Status
from proxyless.base.frozen import frozen
from proxyless.transport.names import match_host
from proxyless.transport.spiffe import SpiffeContext, TrustBundles
from proxyless.transport.tls_sessions import ResumingContext, TlsSessions

ALPN: Final = "h2"
_ROOTS_VARIABLE: Final = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
_CONTEXTS_MAX: Final = 64


@frozen
class PeerCertificate:
    """What a verified peer's certificate says about its names."""

    dns_names: tuple[str, ...]
    uris: tuple[str, ...]
    ip_addresses: tuple[str, ...]
    emails: tuple[str, ...]
    der: bytes


# Returns why the peer is refused, or None.
CheckPeer = Callable[[PeerCertificate], str | None]


@frozen(kw_only=True)
class ClientTls:
    """How a client authenticates the server, and itself. All certificates and keys are PEM."""

    # None: the file named by GRPC_DEFAULT_SSL_ROOTS_FILE_PATH, else the system's roots.
    root_certificates: bytes | None = None
    # In place of the above: each server is checked with the roots of its own trust domain (A87).
    trust_bundles: TrustBundles | None = None
    certificate_chain: bytes | None = None
    private_key: bytes | None = None
    # Replaces the host of the target, for SNI and for the check of the certificate's name. Empty
    # where no name is sent or checked.
    server_name: str | None = None
    # False where only `check_peer` decides about names.
    is_name_checked: bool = True
    check_peer: CheckPeer | None = None
    # Where connections find sessions to resume, and leave theirs; not with trust bundles.
    sessions: TlsSessions | None = None

    def __repr__(self) -> str:
        """Without the key: this may end up in a log."""
        return (
            f"ClientTls(server_name={self.server_name!r}, has_key={self.private_key is not None})"
        )


class TlsSource(Protocol):
    """Says how a connection is secured, each time one is made: certificates change.

    Hashable: what is made with equal sources is the same, so it may be shared.
    """

    def current(self) -> ClientTls | Status | None:
        """For a connection that is made now: TLS, why there cannot be one, or None.

        None is no answer: the connection is secured as it would be without this source.
        """
        ...


def client_context(tls: ClientTls) -> ssl.SSLContext:
    """The context for a configuration. Raises ValueError if the certificates are not usable."""
    # Names are asked for and checked outside of it, so many servers may have one.
    nameless = replace(tls, server_name=None, check_peer=None)
    return _client_context(nameless, _RootsFile.find(tls))


@frozen
class _RootsFile:
    """The file of trusted roots as it is now: a context made from an older one is not reused."""

    path: str
    changed_ns: int

    @classmethod
    def find(cls, tls: ClientTls) -> "_RootsFile | None":
        path = os.environ.get(_ROOTS_VARIABLE)
        has_roots = tls.root_certificates is not None or tls.trust_bundles is not None
        if has_roots or not path:
            return None
        try:
            return cls(path, os.stat(path).st_mtime_ns)
        except OSError as error:
            raise ValueError(f"root certificates are not usable: {error}") from error


@lru_cache(maxsize=_CONTEXTS_MAX)
def _client_context(tls: ClientTls, roots_file: _RootsFile | None) -> ssl.SSLContext:
    context = _trusting(tls, roots_file)
    # RFC 9113, 9.2.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # "MUST disable renegotiation" - RFC 9113, 9.2.1. Who the peer is was asked once.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols([ALPN])
    context.check_hostname = tls.is_name_checked
    if (tls.certificate_chain is None) != (tls.private_key is None):
        raise ValueError("certificate chain and private key go together: one of them is missing")
    if tls.certificate_chain is not None and tls.private_key is not None:
        _load_identity(context, tls.certificate_chain, tls.private_key)
    return context


def _trusting(tls: ClientTls, roots_file: _RootsFile | None) -> ssl.SSLContext:
    """A context with the roots alone."""
    if tls.trust_bundles is None:
        if tls.sessions is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        else:
            context = ResumingContext.of(tls.sessions)
        _load_roots(context, tls.root_certificates, roots_file)
        return context
    trusting = SpiffeContext.of(tls.trust_bundles)
    # A map may be empty, and still counts: "a valid (but empty) trust bundle map" - A87.
    if roots := tls.trust_bundles.pem():
        _load_roots(trusting, roots)
    return trusting


def check_roots(root_certificates: bytes) -> None:
    """Raises ValueError if these are no certificates that a peer's can be checked with."""
    _load_roots(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), root_certificates)


def check_identity(certificate_chain: bytes, private_key: bytes) -> None:
    """Raises ValueError if these are not a certificate and its key."""
    _load_identity(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate_chain, private_key)


def refuse_peer(transport_ssl: ssl.SSLObject, check_peer: CheckPeer | None) -> str | None:
    """Why the peer of a finished handshake is refused, or None."""
    selected = transport_ssl.selected_alpn_protocol()
    if selected != ALPN:
        return f"peer negotiated {selected!r} by ALPN, wanted {ALPN!r}"
    certificate = _read_certificate(transport_ssl)
    if transport_ssl.context.check_hostname and not _has_name(transport_ssl, certificate):
        return f"certificate has other names than {transport_ssl.server_hostname!r}"
    return None if check_peer is None else check_peer(certificate)


def refuse_name(transport_ssl: ssl.SSLObject, host: str) -> str | None:
    """Why the peer of a connection cannot be called this, or None; also if nobody compares names.

    It was connected to under another name, which is not asked about here.
    """
    if not transport_ssl.context.check_hostname:
        return None
    certificate = _read_certificate(transport_ssl)
    return None if match_host(certificate, host) else f"certificate has other names than {host!r}"


def _has_name(transport_ssl: ssl.SSLObject, certificate: PeerCertificate) -> bool:
    """Whether what OpenSSL accepted is a name by the rules of RFC 6125, 6.4.4, too.

    It takes the subject's common name if no alternative is a DNS name. That is for certificates
    without any alternatives only: others say by them who they are, such as a SPIFFE URI.
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
    context: ssl.SSLContext, root_certificates: bytes | None, roots_file: _RootsFile | None = None
) -> None:
    try:
        if root_certificates is not None:
            # What bundles say between certificates may be in any language; inside one, this is no
            # base64 and is refused.
            text = root_certificates.decode("ascii", "backslashreplace")
            context.load_verify_locations(cadata=text)
        elif roots_file is not None:
            context.load_verify_locations(cafile=roots_file.path)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    except (OSError, ValueError) as error:  # Also SSLError.
        raise ValueError(f"root certificates are not usable: {error}") from error


def _load_identity(context: ssl.SSLContext, certificate_chain: bytes, private_key: bytes) -> None:
    """The ssl module reads keys from files only, so the key is on disk for a moment, private."""
    # Takes longer to import than this module, and most keys are in files already.
    import tempfile  # noqa: PLC0415

    try:
        with tempfile.TemporaryDirectory() as directory:  # Created with mode 0700.
            path = os.path.join(directory, "identity.pem")
            with open(path, "wb") as file:
                file.write(private_key + b"\n" + certificate_chain)
            # A password, so that nobody is asked for one at the terminal; a plain key needs none.
            context.load_cert_chain(path, password="")
    except OSError as error:  # Also SSLError; and where nothing can be written.
        raise ValueError(f"certificate chain and key are not usable: {error}") from error
