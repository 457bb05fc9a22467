"""Certificate authority for tests that use TLS, with P-256 keys, which are fast to generate."""

from __future__ import annotations

import json
import ssl
import tempfile
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Before and after now: the clocks of containers and hosts may differ.
VALIDITY = timedelta(hours=1)


class CertificateAuthority:
    """Issuer of certificates for servers and clients; with a parent, an intermediate authority.

    Without key ids, certificates identify their issuer by name only.
    """

    def __init__(
        self,
        name: str = "proxyless test authority",
        *,
        parent: CertificateAuthority | None = None,
        has_key_ids: bool = True,
    ) -> None:
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._has_key_ids = has_key_ids
        signer = parent or self
        constraints = x509.BasicConstraints(ca=True, path_length=0 if parent else 1)
        unsigned = _unsigned(subject=self.name, issuer=signer.name, key=self._key).add_extension(
            constraints, critical=True
        )
        certificate = signer.sign(unsigned, self._key)
        self.certificate_pem = certificate.public_bytes(serialization.Encoding.PEM)
        self.certificate_der = certificate.public_bytes(serialization.Encoding.DER)
        # The intermediate certificates, which follow an issued certificate in its chain.
        self.chain_pem: bytes = b"" if parent is None else self.certificate_pem + parent.chain_pem

    def issue(
        self,
        names: Iterable[str],
        *,
        client: bool = False,
        ends_in: timedelta = VALIDITY,
        common_name: str | None = None,
        names_der: bytes | None = None,
    ) -> tuple[bytes, bytes]:
        """Certificate chain and private key, in PEM, for DNS names, IP addresses and URIs (SPIFFE).

        `names_der` replaces the value of the extension with all names.
        """
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        alternatives: x509.ExtensionType = x509.SubjectAlternativeName(map(_general_name, names))
        if names_der is not None:
            alternatives = x509.UnrecognizedExtension(alternatives.oid, names_der)
        unsigned = (
            _unsigned(subject=x509.Name(attributes), issuer=self.name, key=key, ends_in=ends_in)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            # Critical because the subject is empty by default: RFC 5280, 4.2.1.6.
            .add_extension(alternatives, critical=True)
        )
        certificate = self.sign(unsigned, key)
        chain = certificate.public_bytes(serialization.Encoding.PEM) + self.chain_pem
        return chain, _key_pem(key)

    def sign(
        self, unsigned: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey
    ) -> x509.Certificate:
        if self._has_key_ids:
            own, signer = key.public_key(), self._key.public_key()
            unsigned = unsigned.add_extension(
                x509.SubjectKeyIdentifier.from_public_key(own), critical=False
            ).add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False
            )
        return unsigned.sign(self._key, hashes.SHA256())

    def server_context(self, names: Iterable[str], *, alpn: Iterable[str] = ()) -> ssl.SSLContext:
        """Context of a server with a certificate for these names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_identity(context, *self.issue(names))
        return _with_alpn(context, alpn)

    def client_context(self, *, alpn: Iterable[str] = ()) -> ssl.SSLContext:
        """Context of a client that trusts only this authority and checks names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self.certificate_pem.decode())
        return _with_alpn(context, alpn)


def trust_bundle_map(bundles: Mapping[str, Iterable[CertificateAuthority]]) -> bytes:
    """The content of a trust bundle map file."""
    domains = {
        name: {"spiffe_sequence": 1, "keys": [spiffe_key(each) for each in authorities]}
        for name, authorities in bundles.items()
    }
    return json.dumps({"trust_domains": domains}).encode()


def spiffe_key(authority: CertificateAuthority) -> dict[str, object]:
    """The key of a trust bundle with the certificate of this authority."""
    text = b64encode(authority.certificate_der).decode()
    return {"kty": "EC", "use": "x509-svid", "crv": "P-256", "x5c": [text]}


def shake_hands(
    client: ssl.SSLContext, server: ssl.SSLContext, name: str | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """The client and the server after a handshake in memory; raises SSLError if it fails."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    open_ends = list(ends)
    for _ in range(10):
        for end in list(open_ends):
            try:
                end.do_handshake()
                open_ends.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not open_ends
    return ends


def server_context(
    certificate_pem: bytes, key_pem: bytes, client_roots: bytes | None = None
) -> ssl.SSLContext:
    """Context of an HTTP/2 server; with `client_roots`, clients must have a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_identity(context, certificate_pem, key_pem)
    if client_roots is not None:
        context.load_verify_locations(cadata=client_roots.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return _with_alpn(context, ["h2"])


def load_identity(context: ssl.SSLContext, certificate_pem: bytes, key_pem: bytes) -> None:
    """Load a certificate into a context; `ssl` can load it only from a file."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate_pem + key_pem)
        file.flush()
        context.load_cert_chain(file.name)


def _unsigned(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    ends_in: timedelta = VALIDITY,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=issuer,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - VALIDITY,
        not_valid_after=now + ends_in,
    )


def _general_name(name: str) -> x509.GeneralName:
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _with_alpn(context: ssl.SSLContext, alpn: Iterable[str]) -> ssl.SSLContext:
    if protocols := list(alpn):
        context.set_alpn_protocols(protocols)
    return context
