"""Who vouches for whom, in tests that use TLS?

A certificate authority that lives as long as the test. Keys are on P-256, which is quick to make.
"""

import ssl
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# An hour each way: clocks of containers and hosts may disagree.
VALIDITY = timedelta(hours=1)


class CertificateAuthority:
    """Signs certificates for servers and clients, and makes contexts that trust it."""

    def __init__(self, name: str = "proxyless test authority") -> None:
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _unsigned(subject=self._name, issuer=self._name, key=self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate_pem = certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        names: Iterable[str],
        *,
        client: bool = False,
        ends_in: timedelta = VALIDITY,
        common_name: str | None = None,
    ) -> tuple[bytes, bytes]:
        """Certificate and private key, in PEM, for DNS names, IP addresses and URIs (SPIFFE)."""
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        alternatives = x509.SubjectAlternativeName(map(_general_name, names))
        certificate = (
            _unsigned(subject=x509.Name(attributes), issuer=self._name, key=key, ends_in=ends_in)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            # Critical because the subject is empty, as a rule: RFC 5280, 4.2.1.6.
            .add_extension(alternatives, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)

    def server_context(self, names: Iterable[str], *, alpn: Iterable[str] = ()) -> ssl.SSLContext:
        """Context of a server with a certificate for these names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_identity(context, *self.issue(names))
        return _with_alpn(context, alpn)

    def client_context(self, *, alpn: Iterable[str] = ()) -> ssl.SSLContext:
        """Context of a client that trusts this authority alone and checks names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self.certificate_pem.decode())
        return _with_alpn(context, alpn)


def load_identity(context: ssl.SSLContext, certificate_pem: bytes, key_pem: bytes) -> None:
    """Give a context a certificate, which the standard library takes only from a file."""
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
