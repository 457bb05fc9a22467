"""Simulated network: `SimNetwork` is the `runtime.Network` of one host, `Fabric` connects hosts.

Transports connect, listen and look up names through the network of their host. The fabric holds
all listeners, the links between hosts, and DNS; faults change it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import Counter
from ipaddress import ip_address
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

from proxyless.base import IpAddress
from proxyless.sim.links import LATENCY_S, Link, Pipe, SimTransport
from proxyless.sim.loop import pause

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Iterator

    from proxyless.base import Address
    from proxyless.runtime import Random

P = TypeVar("P", bound=asyncio.BaseProtocol)

_FIRST_PORT: Final = 40_000
LOOKUP_S: Final = 0.001
_LABEL_CHARS_MAX: Final = 63


def _os_error(number: int, address: Address) -> OSError:
    return OSError(number, f"{os.strerror(number)}: {address}")


class Fabric:
    """All listeners, links and connections of a world."""

    def __init__(self, random: Random) -> None:
        self._random = random
        # By the host's IP address and the address: each host has its own Unix addresses.
        self._listeners: dict[tuple[str, Address], SimListener] = {}
        self._connections: dict[SimTransport, None] = {}
        self._ports = count(_FIRST_PORT)
        # Minimum latency and jitter of new links; changed before the start.
        self.latency_s = LATENCY_S
        self._links: dict[tuple[str, str], Link] = {}
        self._when_changed: list[asyncio.Future[None]] = []
        # Additional addresses of hosts, with the IP address of the host.
        self.places: dict[Address, str] = {}
        self.on_cut_short: Callable[[bytes, int], None] = lambda _sent, _arrived_bytes: None
        # DNS: duration of a look-up, whether it fails, and IP addresses by name.
        self.lookup_s = LOOKUP_S
        self.is_dns_down = False
        self.names: dict[str, list[str]] = {"localhost": ["127.0.0.1"]}
        self.accepts: Counter[Address] = Counter()

    def link(self, source: str, destination: str) -> Link:
        """Link between two hosts, by IP address. Call `on_links_changed` after changing it."""
        key = (source, destination)
        found = self._links.get(key)
        if found is None:
            found = self._links[key] = Link(self.latency_s, self.latency_s)
        return found

    def links_of(self, host: str, others: Iterable[str]) -> Iterator[Link]:
        """Links between a host and each of the others, in both directions."""
        for other in others:
            yield self.link(host, other)
            yield self.link(other, host)

    def on_links_changed(self) -> None:
        for transport in list(self._connections):
            transport.wake_pipes()
        waiting, self._when_changed = self._when_changed, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def heal_all(self) -> None:
        for link in self._links.values():
            link.cuts = link.stalls = 0
            link.bytes_per_s = None
        self.on_links_changed()

    def connections_of(self, host: str) -> list[SimTransport]:
        """The transports of a host, oldest first."""
        return [each for each in self._connections if self.host_of(each.local) == host]

    @property
    def connections(self) -> int:
        """Number of transports, two for each open connection."""
        return len(self._connections)

    def host_of(self, address: Address) -> str:
        """IP address of the host with this address; empty for a Unix address of any host."""
        own = address.host if isinstance(address, IpAddress) else ""
        return self.places.get(address) or own

    def next_port(self) -> int:
        return next(self._ports)

    def bind(self, host: str, listener: SimListener) -> None:
        key = (self.host_of(listener.address) or host, listener.address)
        if self._listeners.setdefault(key, listener) is not listener:
            raise _os_error(errno.EADDRINUSE, listener.address)

    def unbind(self, host: str, listener: SimListener) -> None:
        key = (self.host_of(listener.address) or host, listener.address)
        if self._listeners.get(key) is listener:
            del self._listeners[key]

    async def connect(
        self, source: str, address: Address, protocol_factory: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        """Connect after a round trip; over a cut link, wait until it is healed."""
        destination = self.host_of(address) or source
        there, back = self.link(source, destination), self.link(destination, source)
        await pause(there.random_latency_s(self._random) + back.random_latency_s(self._random))
        while there.cuts or back.cuts:
            changed = asyncio.get_running_loop().create_future()
            self._when_changed.append(changed)
            await changed
        listener = self._listeners.get((destination, address))
        if listener is None:
            raise _os_error(errno.ECONNREFUSED, address)
        self.accepts[address] += 1
        local = IpAddress(source, self.next_port())
        ours, theirs = self._make_pair(local, address, (there, back))
        theirs.start(listener.make_protocol())
        protocol = protocol_factory()
        ours.start(protocol)
        return ours, protocol

    def _make_pair(
        self, local: Address, remote: Address, links: tuple[Link, Link]
    ) -> tuple[SimTransport, SimTransport]:
        loop = asyncio.get_running_loop()
        there, back = (Pipe(loop, link, self._random) for link in links)
        there.on_cut_short = back.on_cut_short = self.on_cut_short
        ours = SimTransport(loop, (there, back), (local, remote), self._on_over)
        theirs = SimTransport(loop, (back, there), (remote, local), self._on_over)
        there.sender = back.receiver = ours
        back.sender = there.receiver = theirs
        self._connections[ours] = self._connections[theirs] = None
        return ours, theirs

    def _on_over(self, transport: SimTransport) -> None:
        self._connections.pop(transport, None)


class SimListener:
    """A bound address."""

    def __init__(
        self,
        network: SimNetwork,
        address: Address,
        make_protocol: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._network = network
        self.address: Final = address
        self.make_protocol: Final = make_protocol

    def close(self) -> None:
        self._network.unbind(self)

    async def wait_closed(self) -> None:
        await pause(0)


class SimNetwork:
    """`runtime.Network` of one host, without TLS: its handshakes would not be deterministic."""

    def __init__(self, fabric: Fabric, host: str) -> None:
        self._fabric = fabric
        self._host = host

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], P],
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        _refuse_tls(tls)
        return await self._fabric.connect(self._host, address, protocol_factory)

    def start_connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        on_failed: Callable[[OSError], None],
    ) -> None:
        return  # Links have latencies, so that `connect` has to wait.

    async def start_tls(
        self,
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
        *,
        tls: ssl.SSLContext,
        server_hostname: str,
    ) -> asyncio.Transport:
        transport.abort()
        _refuse_tls(tls)
        raise AssertionError("a context was given")

    async def listen(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> SimListener:
        _refuse_tls(tls)
        if isinstance(address, IpAddress) and address.port == 0:
            address = IpAddress(address.host, self._fabric.next_port())
        listener = SimListener(self, address, protocol_factory)
        self._fabric.bind(self._host, listener)
        return listener

    def unbind(self, listener: SimListener) -> None:
        self._fabric.unbind(self._host, listener)

    async def resolve(self, host: str, port: int) -> list[IpAddress]:
        await pause(self._fabric.lookup_s)
        if _is_literal(host):
            return [IpAddress(host, port)]
        if self._fabric.is_dns_down:
            raise socket.gaierror(socket.EAI_AGAIN, "no name server answers")
        found = self._fabric.names.get(host)
        if found is None or not _is_name(host):
            raise socket.gaierror(socket.EAI_NONAME, f"name {host!r} is not known")
        return [IpAddress(each, port) for each in found]


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_name(host: str) -> bool:
    return all(0 < len(label) <= _LABEL_CHARS_MAX for label in host.split("."))


def _refuse_tls(tls: ssl.SSLContext | None) -> None:
    if tls is not None:
        raise OSError(errno.EPROTONOSUPPORT, "the simulated network carries no TLS")
