"""Which roots does a file of SPIFFE trust bundles give to which trust domain?

Specs: A87 (spiffe_trust_bundle_map_file), SPIFFE_Trust_Domain_and_Bundle, X509-SVID 6.1.

The file is a JSON object `{"trust_domains": {name: bundle}}`, where a bundle is a set of keys in
JSON (RFC 7517) with one certificate each. "Instead of ignoring individual JWK entries in case of
issues, we ignore the whole trust bundle" - A87: a file is taken as a whole or not at all, so a
trust domain never loses a root unnoticed. Of a key only `kty`, `use` and `x5c` are looked at; no
value of another field is shown, for keys may be private.

Whom the roots vouch for is not decided here (`transport.spiffe`).
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

# Limits. The file itself is bounded by whoever reads it.
TRUST_DOMAINS_MAX: Final = 1000
KEYS_MAX: Final = 1000

_USE: Final = "x509-svid"
# Those of the keys that X.509 certificates have. A87 names none; C++ knows the first, Java both.
_KEY_TYPES: Final = ("RSA", "EC")
_SHOWN_LENGTH_MAX: Final = 64


def parse_trust_bundles(content: bytes, errors: ValidationErrors) -> TrustBundles:
    """The bundles in these bytes. Counts only if nothing was added to errors."""
    root = JsonObject(_parse_json(content, errors), errors)
    if errors.ok and not root.has("trust_domains"):
        root.add("trust_domains", "is missing, wanted an object with a bundle per trust domain")
    roots: dict[str, frozenset[bytes]] = {}
    for name, bundle in root.entries("trust_domains", TRUST_DOMAINS_MAX):
        refusal = refuse_trust_domain(name)
        if refusal is not None:
            errors.add(f"the name of the trust domain {refusal}")
        roots[name] = frozenset(_parse_keys(bundle))
    return TrustBundles.of(content, roots)


def _parse_json(content: bytes, errors: ValidationErrors) -> object:
    try:
        return json.loads(content)
    except RecursionError:
        errors.add("objects or lists are nested too deeply")
    except ValueError as error:  # Of the JSON, of its encoding, or of a number's length.
        errors.add(f"is not JSON: {error}")
    return {}


def _parse_keys(bundle: JsonObject) -> Iterator[bytes]:
    if not bundle.has("keys"):
        bundle.add("keys", "is missing, wanted a list")
    for key in bundle.objects("keys", KEYS_MAX):
        _check_word(key, "use", (_USE,))
        _check_word(key, "kty", _KEY_TYPES)
        root = _parse_certificate(key)
        if root is not None:
            yield root


def _check_word(key: JsonObject, field: str, known: tuple[str, ...]) -> None:
    word = key.text(field)
    if word not in known:
        wanted = " or ".join(map(repr, known))
        key.add(field, f"is {word[:_SHOWN_LENGTH_MAX]!r}, wanted {wanted}")


def _parse_certificate(key: JsonObject) -> bytes | None:
    """The certificate in DER, if it is one."""
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
    # OpenSSL ignores what follows. We would not find such a root in a chain: bytes are compared.
    if len(der) != _length_of(der):
        errors.add("is a certificate and something after it")
        return None
    return der


def _length_of(der: bytes) -> int:
    """How long the certificate at the start is, with its tag and length.

    The length is in its long form (X.690, 8.1.3.5): no certificate has less than 128 bytes.
    """
    octets = der[1] & 0x7F
    return 2 + octets + int.from_bytes(der[2 : 2 + octets])
