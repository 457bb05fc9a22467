"""xDS credentials: TLS of connections to a cluster, and authorization of its servers.

Specs: A29 (server authorization), A74-66 to A74-68 (TLS per leaf cluster), A82 (system roots),
A87 (SPIFFE trust bundles), A101 (SNI).

A cluster with a TLS config gets TLS with certificates of the bootstrap's providers; a cluster
without one gets the channel's fallback credentials. "the fallback credentials is *not* used in case
of errors" - A29: an error fails the connection.

The hostname of the target is not checked. "This check is in lieu of the canonical hostname check" -
A29: a SAN matcher of the cluster must match a name in the server's certificate. Without matchers
every certificate that the roots signed is accepted.
"""

from __future__ import annotations

import logging
import os
from dataclasses import field, replace
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from proxyless.base import Status
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.transport import ClientTls, TrustBundles
from proxyless.transport.server_names import match_dns_name, server_name_of
from proxyless.xds.config.attributes import HAS_HOST_SNI, HOSTNAME
from proxyless.xds.error_texts import name_cluster
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

LOGGER: Final = logging.getLogger("proxyless.xds.certificates")
_ANY_SERVER: Final = (
    "system_root_certs without a check of names accepts every server with a certificate of a"
    " public authority"
)

# Limits for the names of a certificate in an error text.
SHOWN_NAMES_MAX: Final = 8
_SHOWN_LENGTH_MAX: Final = 256
_CACHED_MATCHERS_MAX: Final = 1024

# "to revert back to the old behavior of sending the xds channel authority" - A101
AUTHORITY_AS_SNI: Final = "GRPC_USE_CHANNEL_AUTHORITY_IF_NO_SNI_APPLICABLE"


@frozen
class SanCheck:
    """Check that one of the matchers, of which there is at least one, matches a name."""

    matchers: tuple[StringMatcher | SanMatcher, ...]

    def __call__(self, certificate: PeerCertificate) -> str | None:
        """The error text; None if the certificate is accepted."""
        names = tuple(_names(certificate))
        if any(_matches(each, kind, name) for each in self.matchers for kind, name in names):
            return None
        return _rejection(certificate, f"wanted {', '.join(map(_describe, self.matchers))}")


@frozen
class SniCheck:
    """Check that a certificate has the DNS name that was sent as SNI (A101)."""

    sni: str

    def __call__(self, certificate: PeerCertificate) -> str | None:
        """The error text; None if the certificate is accepted."""
        if any(match_dns_name(name, self.sni) for name in certificate.dns_names):
            return None
        return _rejection(certificate, f"wanted DNS {self.sni!r}")


def _describe(matcher: StringMatcher | SanMatcher) -> str:
    if isinstance(matcher, SanMatcher):
        return f"{matcher.san_type} {_describe(matcher.matcher)}"
    return f"{matcher.kind} {matcher.value!r}"


def _matches(matcher: StringMatcher | SanMatcher, kind: str, name: str) -> bool:
    if isinstance(matcher, SanMatcher):
        return matcher.san_type == kind and _matches(matcher.matcher, kind, name)
    # "exact match supports subdomain matching for wildcard DNS SAN entries" - A29
    if kind == "DNS" and matcher.kind == "exact":
        return match_dns_name(name, matcher.value)
    # "if a SAN entry is empty then the match fails for that entry" - A29
    return bool(name) and _compiled(matcher)(name)


def _names(certificate: PeerCertificate) -> Iterator[tuple[str, str]]:
    """The subject alternative names, each with its type."""
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


@lru_cache(maxsize=_CACHED_MATCHERS_MAX)
def _compiled(matcher: StringMatcher) -> TextTest:
    return compile_string(matcher)


def _rejection(certificate: PeerCertificate, wanted: str) -> str:
    names = [f"{kind} {name[:_SHOWN_LENGTH_MAX]!r}" for kind, name in _names(certificate)]
    more = len(names) - SHOWN_NAMES_MAX
    shown = ", ".join(names[:SHOWN_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
    # "the connection attempt fails with "certificate check failure"" - A29
    return f"certificate check failure: server is {shown or 'without a name'}, {wanted}"


def choose_sni(tls: UpstreamTls, hostname: str) -> str:
    """The SNI to send (A101); empty for none."""
    if tls.auto_host_sni and (name := _sendable(server_name_of(hostname))):
        return name
    return _sendable(tls.sni)


def _sendable(name: str) -> str:
    """The name "without a trailing dot"; empty for an IP address (RFC 6066, section 3)."""
    try:
        ip_address(name)
    except ValueError:
        return name.removesuffix(".")
    return ""


def choose_check(tls: UpstreamTls, sni: str) -> CheckPeer | None:
    """The check of the names in the server's certificate, if any."""
    if tls.auto_sni_san_validation and sni:
        return SniCheck(sni)
    return SanCheck(tls.san_matchers) if tls.san_matchers else None


def choose_tls(tls: UpstreamTls, certificates: Certificates, hostname: str) -> ClientTls | Status:
    """TLS with the current certificates, or the error of a certificate provider."""
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
    """The TLS of connections to one endpoint. Equal values can share a subchannel."""

    certificates: Certificates
    cluster: ClusterTls
    # The hostname of the endpoint when the subchannel was created.
    hostname: str = field(compare=False)
    # The hostname if it is sent as SNI, otherwise empty: then endpoints may differ in hostname.
    host_sni: str = ""
    # Whether the channel's authority is sent if there is no other SNI. It is not checked.
    sends_authority: bool = False

    def current(self) -> ClientTls | Status | None:
        """The TLS for a new connection; None if the fallback credentials are used (A74-67)."""
        tls = self.cluster.tls
        if tls is None:
            return None
        chosen = choose_tls(tls, self.certificates, self.hostname)
        if tls.ca is None and isinstance(chosen, ClientTls) and chosen.check_peer is None:
            self._warn_once(tls)
        if self.sends_authority and isinstance(chosen, ClientTls) and not chosen.server_name:
            return replace(chosen, server_name=None)
        return chosen

    def _warn_once(self, tls: UpstreamTls) -> None:
        if self.cluster.warned_of != tls:
            self.cluster.warned_of = tls
            LOGGER.warning("%s: %s", name_cluster(self.cluster.cluster), _ANY_SERVER)


class XdsSecurity:
    """The `SecuritySource` of a channel with xDS credentials."""

    def __init__(self, store_of_running_loop: Callable[[], CertificateStore]) -> None:
        # Fixed at construction.
        self._store_of_running_loop = store_of_running_loop
        self._sends_authority = read_flag(os.environ, AUTHORITY_AS_SNI, default=False)
        # Set while the channel has clusters.
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
            # The bootstrap changed: the resolver reads it again after the channel was idle.
            self.release()
        if self._held is None:
            store = self._store_of_running_loop()
            self._held = (store, store.acquire(cluster.providers))
        return self._held[1]
