"""Addresses, endpoints and localities.

Specs: A61 (an endpoint has several addresses), A56 and RR-01 (endpoint identity).

An address is a literal, never a name that has to be resolved.
"""

import re
from typing import Literal

from proxyless.base.attributes import EMPTY, Attributes
from proxyless.base.frozen import frozen

Family = Literal["v4", "v6"]

PORT_MAX = 65535

_OCTETS = frozenset(map(str, range(256)))
# Name or number of an interface; Linux allows 15 characters.
_ZONE = re.compile(r"[!-~]{1,15}").fullmatch
_UNIX = "unix:"
_UNIX_ABSTRACT = "unix-abstract:"


@frozen
class IpAddress:
    """A literal IP address and a port. The host is in canonical form, so `==` compares hosts."""

    host: str
    port: int

    def __post_init__(self) -> None:
        host = self.host
        octets = host.split(".")
        # Few calls for what is canonical already: there may be thousands of endpoints.
        if len(octets) != 4 or not _OCTETS.issuperset(octets):  # noqa: PLR2004
            object.__setattr__(self, "host", _canonical_ip(host))
        if not 0 <= self.port <= PORT_MAX:
            raise ValueError(f"port {self.port!r} is not valid: wanted 0 to {PORT_MAX}")

    @property
    def family(self) -> Family:
        # An IPv4-mapped IPv6 address counts as IPv4 (HE-07).
        return "v4" if "." in self.host else "v6"

    def __lt__(self, other: "Address") -> bool:
        return _sort_key(self) < _sort_key(other)

    def __str__(self) -> str:
        return join_host_port(self.host, self.port)


@frozen
class UnixAddress:
    r"""A Unix domain socket; a path that starts with "\0" is a name in the abstract namespace."""

    path: str

    def __post_init__(self) -> None:
        name = self.path.removeprefix("\0")
        if not name or "\0" in name:
            raise ValueError(f"unix path {self.path!r} is not valid: wanted a name without NUL")

    @property
    def is_abstract(self) -> bool:
        return self.path.startswith("\0")

    def __lt__(self, other: "Address") -> bool:
        return _sort_key(self) < _sort_key(other)

    def __str__(self) -> str:
        return f"{_UNIX_ABSTRACT}{self.path[1:]}" if self.is_abstract else f"{_UNIX}{self.path}"


Address = IpAddress | UnixAddress


@frozen
class Endpoint:
    """One backend: at least one address, in order of preference, and attributes."""

    addresses: tuple[Address, ...]
    attributes: Attributes = EMPTY

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ValueError("endpoint has no address, wanted at least one")

    @property
    def key(self) -> frozenset[Address]:
        """Identity of the backend: its addresses in any order, without attributes."""
        return frozenset(self.addresses)

    def __str__(self) -> str:
        return ",".join(map(str, self.addresses))


def join_host_port(host: str, port: int) -> str:
    """`host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> Address:
    """Parse `1.2.3.4:80`, `[::1]:80`, `unix:/path` or `unix-abstract:name`."""
    if text.startswith(_UNIX_ABSTRACT):
        return UnixAddress("\0" + text.removeprefix(_UNIX_ABSTRACT))
    if text.startswith(_UNIX):
        path = text.removeprefix(_UNIX)
        if path.startswith("\0"):
            raise ValueError(f"address {text!r} is not valid: wanted {_UNIX_ABSTRACT}name")
        return UnixAddress(path)
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    # Without brackets "::1:80" would be ambiguous.
    if not colon or is_bracketed != (":" in host) or not (port.isascii() and port.isdigit()):
        raise ValueError(f"address {text!r} is not valid: wanted ip:port, [ipv6]:port or unix:path")
    return IpAddress(host[1:-1] if is_bracketed else host, int(port))


def _canonical_ip(host: str) -> str:
    """The canonical form of an IP address (RFC 5952), or ValueError."""
    from ipaddress import AddressValueError, IPv4Address, IPv6Address  # noqa: PLC0415 - seldom

    try:
        if ":" not in host:
            return str(IPv4Address(host))
        address = IPv6Address(host)
    except AddressValueError:
        raise ValueError(f"host {host!r} is not valid: wanted a literal IP address") from None
    # Python accepts any text there, and addresses are in logs and errors.
    if (zone := address.scope_id) and not _ZONE(zone):
        raise ValueError(f"host {host!r} is not valid: wanted the name of an interface after '%'")
    # Python before 3.13 formats a mapped address without dots.
    return f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped else str(address)


def _sort_key(address: Address) -> tuple[int, str, int]:
    """Any fixed order of IP and Unix addresses."""
    if isinstance(address, IpAddress):
        return (0, address.host, address.port)
    return (1, address.path, 0)


@frozen
class Locality:
    """Region, zone and sub-zone of an endpoint or of this client."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""

    def __lt__(self, other: "Locality") -> bool:
        own = (self.region, self.zone, self.sub_zone)
        return own < (other.region, other.zone, other.sub_zone)

    def __str__(self) -> str:
        return f"{{region={self.region}, zone={self.zone}, sub_zone={self.sub_zone}}}"

    @property
    def label(self) -> str:
        """The value of the label `grpc.lb.locality` (A78)."""
        return f'{{region="{self.region}", zone="{self.zone}", sub_zone="{self.sub_zone}"}}'
