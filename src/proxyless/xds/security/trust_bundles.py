"""Parser of a SPIFFE trust bundle map: the root certificates of each trust domain.

Specs: A87 (spiffe_trust_bundle_map_file), SPIFFE_Trust_Domain_and_Bundle, X509-SVID 6.1.

The file is a JSON object `{"trust_domains": {name: bundle}}`. A bundle is a JWK set (RFC 7517) with
one certificate per key. "Instead of ignoring individual JWK entries in case of issues, we ignore
the whole trust bundle" - A87: one invalid key rejects the file. Only `kty`, `use` and `x5c` of a
key are read and appear in errors, because other fields may hold a private key.
"""

from __future__ import annotations

import json
import ssl
from base64 import b64decode
from typing import TYPE_CHECKING, Final

from proxyless.base.json_fields import LIST, JsonObject, type_name
from proxyless.transport.spiffe import TrustBundles, refuse_trust_domain
from proxyless.transport.tls import check_roots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.base import ValidationErrors

TRUST_DOMAINS_MAX: Final = 1000
KEYS_MAX: Final = 1000

_USE: Final = "x509-svid"
# The key types of X.509 certificates. A87 lists none; C++ accepts the first, Java both.
_KEY_TYPES: Final = ("RSA", "EC")
_SHOWN_LENGTH_MAX: Final = 64


def parse_trust_bundles(content: bytes, errors: ValidationErrors) -> TrustBundles:
    """The bundles in a file. The result is valid only if no error was added."""
    root = JsonObject(_parse_json(content, errors), errors)
    if errors.ok and not root.has("trust_domains"):
        root.add("trust_domains", "is missing, wanted an object with a bundle per trust domain")
    roots: dict[str, frozenset[bytes]] = {}
    for name, bundle in root.entries("trust_domains", TRUST_DOMAINS_MAX):
        rejection = refuse_trust_domain(name)
        if rejection is not None:
            errors.add(f"the name of the trust domain {rejection}")
        roots[name] = frozenset(_parse_keys(bundle))
    return TrustBundles.of(content, roots)


def _parse_json(content: bytes, errors: ValidationErrors) -> object:
    try:
        return json.loads(content)
    except RecursionError:
        errors.add("objects or lists are nested too deeply")
    except ValueError as error:  # Also for an invalid encoding, or a number that is too long.
        errors.add(f"is not JSON: {error}")
    return {}


def _parse_keys(bundle: JsonObject) -> Iterator[bytes]:
    if not bundle.has("keys"):
        bundle.add("keys", "is missing, wanted a list")
    for key in bundle.objects("keys", KEYS_MAX):
        _check_one_of(key, "use", (_USE,))
        _check_one_of(key, "kty", _KEY_TYPES)
        root = _parse_certificate(key)
        if root is not None:
            yield root


def _check_one_of(key: JsonObject, field: str, allowed: tuple[str, ...]) -> None:
    text = key.text(field)
    if text not in allowed:
        wanted = " or ".join(map(repr, allowed))
        key.add(field, f"is {text[:_SHOWN_LENGTH_MAX]!r}, wanted {wanted}")


def _parse_certificate(key: JsonObject) -> bytes | None:
    """The certificate in DER. None adds an error."""
    texts = key.read_or("x5c", LIST, ())
    if len(texts) != 1:
        key.add("x5c", f"has {len(texts)} certificates, wanted exactly one")
        return None
    with key.errors.field("x5c"), key.errors.index(0):
        if not isinstance(texts[0], str):
            key.errors.add(f"is {type_name(texts[0])}, wanted a string")
            return None
        try:
            der = b64decode("".join(texts[0].split()), validate=True)
        except ValueError:
            key.errors.add("is not base64")
            return None
        return _check_certificate(der, key.errors)


def _check_certificate(der: bytes, errors: ValidationErrors) -> bytes | None:
    try:
        check_roots(ssl.DER_cert_to_PEM_cert(der).encode())
    except ValueError:
        errors.add("is no certificate")
        return None
    # OpenSSL ignores trailing bytes, but roots are compared with a chain's certificates by bytes.
    if len(der) != _length_of(der):
        errors.add("is a certificate and something after it")
        return None
    return der


def _length_of(der: bytes) -> int:
    """The length of the first certificate, with its tag and length octets.

    The length is in the long form (X.690, 8.1.3.5): a certificate has at least 128 bytes.
    """
    octets = der[1] & 0x7F
    return 2 + octets + int.from_bytes(der[2 : 2 + octets])
