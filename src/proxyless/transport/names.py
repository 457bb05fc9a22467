"""For which hosts does a certificate speak?

Specs: RFC 6125 and A29 (wildcards), A81 (the authority of an RPC). What OpenSSL compares during a
handshake it compares itself; here is what is compared by other rules, or later.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

    from proxyless.transport.tls import PeerCertificate


def server_name_of(authority: str) -> str:
    """The name that a certificate must show: the authority without its port."""
    host, colon, port = authority.rpartition(":")
    if colon and port.isdigit() and (host.endswith("]") or ":" not in host):
        return host.strip("[]")
    return authority.strip("[]")


def match_dns_name(name: str, wanted: str) -> bool:
    """Whether a certificate's DNS name is for this host, whatever the case.

    A whole first label of it may be a wildcard: `*.example` is for `a.example`, but neither for
    `example` nor for `b.a.example`.
    """
    name, wanted = (text.lower().removesuffix(".") for text in (name, wanted))
    if not name or not wanted or wanted.startswith("."):
        return False
    if "*" not in name:
        return name == wanted
    star, dot, domain = name.partition(".")
    label, _, rest = wanted.partition(".")
    is_wildcard = star == "*" and bool(dot) and bool(domain) and "*" not in domain
    return is_wildcard and bool(label) and rest == domain


def match_host(certificate: PeerCertificate, host: str) -> bool:
    """Whether one of a certificate's alternative names is for this host, a name or an address."""
    try:
        address = ip_address(host)
    except ValueError:
        return any(match_dns_name(name, host) for name in certificate.dns_names)
    return any(address == _parse_address(text) for text in certificate.ip_addresses)


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """None: what a certificate says is no address, so it is nobody's."""
    try:
        return ip_address(text.strip())
    except ValueError:
        return None
