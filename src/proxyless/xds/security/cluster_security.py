"""How is a connection to a cluster secured, and is its server one of the cluster's?

Specs: A29 (server authorization), A74-66 to A74-68 (each leaf its own TLS), A82 (system roots),
A87 (SPIFFE trust bundles), A101 (SNI).

Who brings xDS credentials lets the control plane decide: a cluster with TLS config gets TLS with
the certificates of the bootstrap's providers, one without gets the channel's fallback credentials.
"the fallback credentials is *not* used in case of errors" - A29: then there is no connection.

Names: the host of the target is never checked. "This check is in lieu of the canonical hostname
check" - A29: a server's certificate must show a name that a SAN matcher of the cluster accepts, and
without matchers whoever the roots vouch for is accepted.
"""

from __future__ import annotations

import os
from dataclasses import field, replace
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from proxyless.base import Status
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.transport import ClientTls, TrustBundles
from proxyless.transport.names import match_dns_name, server_name_of
from proxyless.xds.config.attributes import HAS_HOST_SNI, HOSTNAME
from proxyless.xds.resources import SanMatcher
from proxyless.xds.resources.matching import compile_string
from proxyless.xds.security.cluster_tls import UPSTREAM_TLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxyless.base import Attributes
    from proxyless.transport import CheckPeer, PeerCertificate
    from proxyless.xds.resources import StringMatcher, UpstreamTls
    from proxyless.xds.resources.matching import TextTest
    from proxyless.xds.security.certificates import Certificates, CertificateStore
    from proxyless.xds.security.cluster_tls import ClusterTls

# How many names of a certificate are shown to say why it is refused, and how long each may be.
SHOWN_NAMES_MAX: Final = 8
_SHOWN_LENGTH_MAX: Final = 256
_MATCHERS_KEPT: Final = 1024

# "to revert back to the old behavior of sending the xds channel authority" - A101
AUTHORITY_AS_SNI: Final = "GRPC_USE_CHANNEL_AUTHORITY_IF_NO_SNI_APPLICABLE"

# ---------------------------------------------------------------------------------------------
# Server authorization


@frozen
class SanCheck:
    """Whether a certificate shows a name that one of the matchers accepts."""

    # At least one.
    matchers: tuple[StringMatcher | SanMatcher, ...]

    def __call__(self, certificate: PeerCertificate) -> str | None:
        """Why the certificate is refused, or None."""
        names = tuple(_names(certificate))
        if any(_accepts(each, kind, name) for each in self.matchers for kind, name in names):
            return None
        return _refusal(certificate, f"wanted {', '.join(map(_describe, self.matchers))}")


@frozen
class SniCheck:
    """Whether a certificate has the DNS name that the server was asked by (A101)."""

    sni: str

    def __call__(self, certificate: PeerCertificate) -> str | None:
        """Why the certificate is refused, or None."""
        if any(match_dns_name(name, self.sni) for name in certificate.dns_names):
            return None
        return _refusal(certificate, f"wanted DNS {self.sni!r}")


def _describe(matcher: StringMatcher | SanMatcher) -> str:
    if isinstance(matcher, SanMatcher):
        return f"{matcher.san_type} {_describe(matcher.matcher)}"
    return f"{matcher.kind} {matcher.value!r}"


def _accepts(matcher: StringMatcher | SanMatcher, kind: str, name: str) -> bool:
    if isinstance(matcher, SanMatcher):
        return matcher.san_type == kind and _accepts(matcher.matcher, kind, name)
    # "exact match supports subdomain matching for wildcard DNS SAN entries" - A29
    if kind == "DNS" and matcher.kind == "exact":
        return match_dns_name(name, matcher.value)
    # "if a SAN entry is empty then the match fails for that entry" - A29
    return bool(name) and _compiled(matcher)(name)


def _names(certificate: PeerCertificate) -> Iterator[tuple[str, str]]:
    """Every name that counts, and of which kind it is."""
    yield from (("DNS", name) for name in certificate.dns_names)
    yield from (("URI", uri) for uri in certificate.uris)
    yield from (("email", email) for email in certificate.emails)
    yield from (("IP", _canonical(address)) for address in certificate.ip_addresses)


def _canonical(address: str) -> str:
    # "An IP address is converted to its canonical string representation" - A29
    try:
        return str(ip_address(address.strip()))
    except ValueError:
        return address


@lru_cache(maxsize=_MATCHERS_KEPT)
def _compiled(matcher: StringMatcher) -> TextTest:
    return compile_string(matcher)


def _refusal(certificate: PeerCertificate, wanted: str) -> str:
    names = [f"{kind} {name[:_SHOWN_LENGTH_MAX]!r}" for kind, name in _names(certificate)]
    more = len(names) - SHOWN_NAMES_MAX
    shown = ", ".join(names[:SHOWN_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
    # "the connection attempt fails with "certificate check failure"" - A29
    return f"certificate check failure: server is {shown or 'nobody by name'}, {wanted}"


# ---------------------------------------------------------------------------------------------
# What a connection is made with


def choose_sni(tls: UpstreamTls, hostname: str) -> str:
    """The name that the server is asked by; empty: none (A101)."""
    if tls.auto_host_sni and (name := _sendable(server_name_of(hostname))):
        return name
    return _sendable(tls.sni)


def _sendable(name: str) -> str:
    """The name as TLS asks for it, "without a trailing dot"; an address is none (RFC 6066, 3)."""
    try:
        ip_address(name)
    except ValueError:
        return name.removesuffix(".")
    return ""


def choose_check(tls: UpstreamTls, sni: str) -> CheckPeer | None:
    """Who looks at the server's names; nobody if there is nothing to compare them with."""
    if tls.auto_sni_san_validation and sni:
        return SniCheck(sni)
    return SanCheck(tls.san_matchers) if tls.san_matchers else None


def choose_tls(tls: UpstreamTls, certificates: Certificates, hostname: str) -> ClientTls | Status:
    """TLS with the certificates as they are now, or which of them cannot be had."""
    roots = None if tls.ca is None else certificates.roots(tls.ca)
    if isinstance(roots, Status):
        return roots
    identity = None if tls.identity is None else certificates.identity(tls.identity)
    if isinstance(identity, Status):
        return identity
    sni = choose_sni(tls, hostname)
    return ClientTls(
        root_certificates=None if isinstance(roots, TrustBundles) else roots,
        trust_bundles=roots if isinstance(roots, TrustBundles) else None,
        certificate_chain=None if identity is None else identity.certificate_chain,
        private_key=None if identity is None else identity.private_key,
        server_name=sni,
        is_name_checked=False,
        check_peer=choose_check(tls, sni),
    )


@frozen
class ClusterSecurity:
    """The TLS of a cluster, for one endpoint: as config and files are when a connection is made."""

    certificates: Certificates
    cluster: ClusterTls
    # That of the endpoint as it was when the subchannel was made.
    hostname: str = field(compare=False)
    # The same where connections are made by it, otherwise empty: they are the same by any hostname.
    host_sni: str = ""
    # Where no name is to be sent, that of the channel's authority is. Nobody compares it.
    sends_authority: bool = False

    def current(self) -> ClientTls | Status | None:
        """None: the cluster has no TLS config, so the fallback credentials count (A74-67)."""
        tls = self.cluster.tls
        if tls is None:
            return None
        chosen = choose_tls(tls, self.certificates, self.hostname)
        if self.sends_authority and isinstance(chosen, ClientTls) and not chosen.server_name:
            return replace(chosen, server_name=None)
        return chosen


class XdsSecurity:
    """What xDS credentials do for one channel: its `SecuritySource`. Driven by the channel."""

    def __init__(self, store_of_running_loop: Callable[[], CertificateStore]) -> None:
        # Fixed at construction.
        self._store_of_running_loop = store_of_running_loop
        self._sends_authority = read_flag(os.environ, AUTHORITY_AS_SNI, default=False)
        # Present while the channel has clusters.
        self._held: tuple[CertificateStore, Certificates] | None = None

    def choose(self, attributes: Attributes) -> ClusterSecurity | None:
        cluster = attributes.get(UPSTREAM_TLS)
        if cluster is None:
            return None
        hostname = attributes.get(HOSTNAME) or ""
        host_sni = hostname if attributes.get(HAS_HOST_SNI) else ""
        certificates = self._certificates(cluster)
        return ClusterSecurity(certificates, cluster, hostname, host_sni, self._sends_authority)

    def release(self) -> None:
        if self._held is not None:
            store, certificates = self._held
            self._held = None
            store.release(certificates)

    def _certificates(self, cluster: ClusterTls) -> Certificates:
        if self._held is not None and self._held[1].configs != cluster.providers:
            # Another bootstrap: the channel was idle, and its resolver has read it anew.
            self.release()
        if self._held is None:
            store = self._store_of_running_loop()
            self._held = (store, store.acquire(cluster.providers))
        return self._held[1]
