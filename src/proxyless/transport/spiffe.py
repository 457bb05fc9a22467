"""SPIFFE verification: a peer's chain has to lead to a root of the peer's own trust domain.

Specs: A87 (SPIFFE verification), SPIFFE-ID (format of an ID).

Theory of operation. The roots depend on the peer's certificate, and Python's ssl module has no
callback for it. So OpenSSL accepts roots of all trust domains; then, before the next flight of the
handshake is sent, the verified chain is checked against the roots of the peer's own domain. Until
then nothing was sent that identifies the client. Reasons and costs: ADR 0014.

The file format of trust bundles is in `xds.security.trust_bundles`.
"""

from __future__ import annotations

import ssl
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEME: Final = "spiffe://"
ID_LENGTH_MAX: Final = 2048
TRUST_DOMAIN_LENGTH_MAX: Final = 255

_DOMAIN_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-_")
_PATH_CHARACTERS: Final = _DOMAIN_CHARACTERS | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
# Limits of error texts.
_SHOWN_LENGTH_MAX: Final = 256
_SHOWN_DOMAINS_MAX: Final = 8
# `_ssl.ENCODING_DER`.
_DER: Final = 2
# In place of names that cannot be decoded. It is no SPIFFE ID.
_NO_TEXT: Final = "<not UTF-8>"


def refuse_trust_domain(name: str) -> str | None:
    """The reason why this is not a valid trust domain, or None."""
    if not name:
        return "is empty, wanted a trust domain"
    if len(name) > TRUST_DOMAIN_LENGTH_MAX:
        return f"has {len(name)} characters, wanted at most {TRUST_DOMAIN_LENGTH_MAX}"
    if not _DOMAIN_CHARACTERS.issuperset(name):
        return f"is {name!r}, wanted lower case letters, digits, dots, dashes and underscores"
    return None


def refuse_spiffe_id(uri: str) -> str | None:
    """The reason why this is not a valid SPIFFE ID, or None."""
    if len(uri) > ID_LENGTH_MAX:
        return f"has {len(uri)} characters, wanted at most {ID_LENGTH_MAX}"
    if not uri.lower().startswith(SCHEME):
        return f"does not begin with {SCHEME!r}"
    domain, slash, path = uri[len(SCHEME) :].partition("/")
    refusal = refuse_trust_domain(domain)
    if refusal is not None:
        return f"has a bad trust domain: it {refusal}"
    return _refuse_path(path) if slash else None


def _refuse_path(path: str) -> str | None:
    for segment in path.split("/"):
        if segment in {"", ".", ".."}:
            return f"has {segment!r} as a segment of its path"
        if not _PATH_CHARACTERS.issuperset(segment):
            return "has a character in its path that is no letter, digit, dot, dash or underscore"
    return None


def trust_domain_of(spiffe_id: str) -> str:
    """The trust domain of a valid SPIFFE ID."""
    return spiffe_id[len(SCHEME) :].partition("/")[0]


@frozen
class TrustBundles:
    """The roots of each trust domain, compared by the file they were read from."""

    source: bytes = field(repr=False)
    # DER certificates by trust domain. A domain without roots accepts no peer.
    roots: Mapping[str, frozenset[bytes]] = field(compare=False, repr=False)

    @classmethod
    def of(cls, source: bytes, roots: Mapping[str, frozenset[bytes]]) -> TrustBundles:
        """Copies the roots."""
        return cls(source, MappingProxyType(dict(roots)))

    def pem(self) -> bytes:
        """All roots of all trust domains, each once."""
        every = frozenset[bytes]().union(*self.roots.values())
        return "".join(ssl.DER_cert_to_PEM_cert(root) for root in sorted(every)).encode()


def find_roots(bundles: TrustBundles, uris: Sequence[str]) -> frozenset[bytes] | str:
    """The roots for a peer whose certificate has these URIs, or an error text."""
    # "it must have a single URI SAN containing a well-formed SPIFFE ID" - A87
    if len(uris) != 1:
        return f"certificate has {len(uris)} URIs, wanted exactly one, a SPIFFE ID"
    refusal = refuse_spiffe_id(uris[0])
    if refusal is not None:
        return f"URI {_shorten(uris[0])!r} of the certificate is no SPIFFE ID: it {refusal}"
    domain = trust_domain_of(uris[0])
    roots = bundles.roots.get(domain)
    # "If the trust domain is not contained in the configured trust map, reject" - A87
    if roots is None:
        known = sorted(bundles.roots)
        more = len(known) - _SHOWN_DOMAINS_MAX
        shown = ", ".join(map(repr, known[:_SHOWN_DOMAINS_MAX])) or "no trust domain"
        also = f" and {more} more" if more > 0 else ""
        return f"trust domain {domain!r} is not in the trust bundle map, which has {shown}{also}"
    return roots


def refuse_chain(bundles: TrustBundles, uris: Sequence[str], chain: Sequence[bytes]) -> str | None:
    """The reason to refuse a peer, or None. OpenSSL has verified the chain."""
    roots = find_roots(bundles, uris)
    if isinstance(roots, str):
        return roots
    # Each certificate signed the one before it, so one that the peer's domain trusts is enough. The
    # first one is the peer's own.
    if roots.isdisjoint(chain[1:]):
        domain = trust_domain_of(uris[0])
        return f"no root of trust domain {domain!r} vouches for {_shorten(uris[0])!r}"
    return None


def explain_refusal(bundles: TrustBundles, uris: Sequence[str], refusal: str) -> str:
    """OpenSSL's error text with the peer's ID, or with an error of the ID."""
    roots = find_roots(bundles, uris)
    if isinstance(roots, str):
        return f"{refusal}; {roots}"
    domain = trust_domain_of(uris[0])
    return f"{refusal} ({_shorten(uris[0])!r}; trust domain {domain!r} has {len(roots)} roots)"


def _shorten(text: str) -> str:
    return text[:_SHOWN_LENGTH_MAX]


class SpiffeHandshake(ssl.SSLObject):
    """A handshake that checks the chain against the peer's own trust domain.

    The loop calls `do_handshake` until it neither raises nor needs more data.
    """

    def do_handshake(self) -> None:
        context = self.context
        assert isinstance(context, SpiffeContext)
        try:
            super().do_handshake()
        except ssl.SSLCertVerificationError as error:
            # Older versions of OpenSSL do not keep the refused chain.
            if shown := _inner(self).get_unverified_chain():
                text = explain_refusal(context.bundles, _uris_of(shown), error.verify_message)
                error.verify_message = text
            raise
        except ssl.SSLWantReadError:
            # With TLS 1.2 our certificate may be in the output now. The loop sends it after
            # SSLWantReadError, and drops it after any other error.
            if chain := _inner(self).get_verified_chain():
                _check_chain(context.bundles, chain)
            raise
        _check_chain(context.bundles, _inner(self).get_verified_chain() or ())


class SpiffeContext(ssl.SSLContext):
    """TLS context of clients with these bundles. The caller loads the roots."""

    sslobject_class = SpiffeHandshake
    bundles: TrustBundles

    @classmethod
    def of(cls, bundles: TrustBundles) -> SpiffeContext:
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context.bundles = bundles
        # As in C++ and Go, a root of a bundle need not be self-signed.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    def wrap_socket(self, *_: object, **__: object) -> NoReturn:
        """Not supported: it would not check trust domains."""
        raise TypeError("SPIFFE is verified with wrap_bio only")


def _check_chain(bundles: TrustBundles, chain: Sequence[Any]) -> None:
    ders = [certificate.public_bytes(_DER) for certificate in chain]
    refusal = refuse_chain(bundles, _uris_of(chain), ders)
    if refusal is not None:
        error = ssl.SSLCertVerificationError(ssl.SSL_ERROR_SSL, refusal)
        error.verify_message = refusal
        raise error


# Python 3.13 has public methods for chains, but without decoded names.


def _inner(transport_ssl: ssl.SSLObject) -> Any:  # noqa: ANN401 - it has no type
    return cast("Any", transport_ssl)._sslobj  # noqa: SLF001


def _uris_of(chain: Sequence[Any]) -> tuple[str, ...]:
    """The URIs of the peer's certificate, which is the first one."""
    if not chain:
        return ()
    try:
        alternatives = chain[0].get_info().get("subjectAltName", ())
    except ValueError:  # Python decodes all names or none.
        return (_NO_TEXT,)
    return tuple(name for kind, name in alternatives if kind == "URI")
