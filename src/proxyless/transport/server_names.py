"""Matching of server names against a certificate, beside what OpenSSL does in a handshake.

Specs: RFC 6125 and A29 (wildcards), A81 (the authority of an RPC).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

    from proxyless.transport.tls import PeerCertificate


def server_name_of(authority: str) -> str:
    """The name that the certificate must have: the authority without its port."""
    host, colon, port = authority.rpartition(":")
    if colon and port.isdigit() and (host.endswith("]") or ":" not in host):
        return host.strip("[]")
    return authority.strip("[]")


def match_dns_name(name: str, host: str) -> bool:
    """Whether a certificate's DNS name matches this host, ignoring case.

    The first label may be a wildcard: `*.example` matches `a.example`, but neither `example` nor
    `b.a.example`.
    """
    name, host = (text.lower().removesuffix(".") for text in (name, host))
    if not name or not host or host.startswith("."):
        return False
    if "*" not in name:
        return name == host
    star, dot, domain = name.partition(".")
    label, _, rest = host.partition(".")
    is_wildcard = star == "*" and bool(dot) and bool(domain) and "*" not in domain
    return is_wildcard and bool(label) and rest == domain


def match_host(certificate: PeerCertificate, host: str) -> bool:
    """Whether an alternative name of the certificate matches this host name or IP address."""
    from ipaddress import ip_address  # noqa: PLC0415 - only with TLS

    try:
        address = ip_address(host)
    except ValueError:
        return any(match_dns_name(name, host) for name in certificate.dns_names)
    return any(address == _parse_address(text) for text in certificate.ip_addresses)


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    from ipaddress import ip_address  # noqa: PLC0415 - only with TLS

    try:
        return ip_address(text.strip())
    except ValueError:
        return None
