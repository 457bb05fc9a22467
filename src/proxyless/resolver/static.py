"""StaticResolver: resolver of targets that are lists of addresses. It has one result.

Specs: gRPC Name Resolution (`ipv4`, `ipv6`, `unix`, `unix-abstract`).
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Final

from proxyless.base import Address, Endpoint, IpAddress, Status, parse_address
from proxyless.base.frozen import frozen
from proxyless.resolver.api import ResolverContext, ResolverListener, ResolverResult
from proxyless.resolver.target import Target, encode_host_port, naming_target, parse_host_port
from proxyless.runtime import Clock, Soon

# Unlike grpcio, which sends the path percent-encoded: servers that check the authority refuse that
# (grpc/grpc#38142), and TLS cannot use it.
UNIX_AUTHORITY: Final = "localhost"

# Limit of Linux, as in grpcio.
PATH_BYTES_MAX: Final = 107


class StaticResolver:
    """Reports one result, in the next turn of the loop after `start`."""

    __slots__ = ("_listener", "_report_soon", "_result")

    def __init__(
        self, endpoints: tuple[Endpoint, ...] | Status, listener: ResolverListener, clock: Clock
    ) -> None:
        self._result = ResolverResult(endpoints)
        self._listener = listener
        self._report_soon = Soon(clock, self._report)

    def start(self) -> None:
        self._report_soon.request()

    def _report(self) -> None:
        # The status is ignored: another attempt would have the same result.
        self._listener.on_result(self._result)

    def request_reresolution(self) -> None:
        """No-op: the result cannot change."""

    def reset_backoff(self) -> None:
        """No-op: there is no backoff."""

    def close(self) -> None:
        self._report_soon.cancel()


@frozen
class StaticFactory:
    """Creates resolvers for comma-separated lists of one kind of address."""

    scheme: str
    parse_one: Callable[[str], Address]
    # The `:authority` of calls, by the first address of the list.
    authority_of: Callable[[str], str]

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> StaticResolver:
        with naming_target(target):
            endpoints = tuple(Endpoint((self.parse_one(text),)) for text in _split(target))
        return StaticResolver(endpoints, listener, context.clock)

    def default_authority(self, target: Target) -> str:
        # Unlike grpcio, which sends the whole list: that is not an authority (RFC 3986), and TLS
        # would check the peer's certificate against it.
        with naming_target(target):
            texts = _split(target)
            for text in texts:
                self.parse_one(text)
            return self.authority_of(texts[0])


def _split(target: Target) -> list[str]:
    if target.authority:
        raise ValueError(
            f"authority {target.authority!r} is not valid: "
            f"wanted none, as in {target.scheme}:address"
        )
    # The leading slash is part of the path of a socket.
    names = target.path if target.scheme.startswith("unix") else target.name
    texts = [text for text in names.split(",") if text]
    if not texts:
        raise ValueError(f"list has no address: wanted {target.scheme}:address")
    return texts


def _parse_ipv4(text: str) -> IpAddress:
    address = IpAddress(*parse_host_port(text))
    if ":" in address.host:
        raise ValueError(f"address {text!r} is not valid: wanted an IPv4 address")
    return address


def _parse_ipv6(text: str) -> IpAddress:
    address = IpAddress(*parse_host_port(text))
    if ":" not in address.host:
        raise ValueError(f"address {text!r} is not valid: wanted [ipv6]:port")
    return address


def _parse_unix(scheme: str, text: str) -> Address:
    length = len(os.fsencode(text))
    if length > PATH_BYTES_MAX:
        raise ValueError(f"path has {length} bytes: wanted at most {PATH_BYTES_MAX}")
    return parse_address(f"{scheme}:{text}")


def _unix_authority(_: str) -> str:
    return UNIX_AUTHORITY


STATIC_FACTORIES: Final = (
    StaticFactory("ipv4", _parse_ipv4, encode_host_port),
    StaticFactory("ipv6", _parse_ipv6, encode_host_port),
    StaticFactory("unix", partial(_parse_unix, "unix"), _unix_authority),
    StaticFactory("unix-abstract", partial(_parse_unix, "unix-abstract"), _unix_authority),
)
