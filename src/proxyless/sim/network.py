"""What does a host see of the simulated network?

Each host has an address and a `Network` of its own, through which its transports connect, listen and
look up names, exactly as they do over real sockets. The fabric knows who listens where, and the link
between any two hosts.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

from proxyless.base import IpAddress
from proxyless.sim.links import Link, Pipe, SimTransport

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from proxyless.base import Address
    from proxyless.runtime import Random

P = TypeVar("P", bound=asyncio.BaseProtocol)

_FIRST_PORT: Final = 40_000


def _refused(address: Address) -> ConnectionRefusedError:
    return ConnectionRefusedError(
        errno.ECONNREFUSED, f"{os.strerror(errno.ECONNREFUSED)}: {address}"
    )


class Fabric:
    """All hosts, links and connections of a world. Driven by the hosts and by faults."""

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random) -> None:
        self.loop: Final = loop
        self.random: Final = random
        self._listeners: dict[Address, SimListener] = {}
        self._links: dict[tuple[str, str], Link] = {}
        # Names that DNS knows.
        self.names: dict[str, list[str]] = {}
        self._connections: dict[SimTransport, None] = {}
        self._ports = count(_FIRST_PORT)
        # Connections that were accepted, by address, for checkers.
        self.accepts: dict[Address, int] = {}

    def link(self, source: str, destination: str) -> Link:
        """The way from one host's IP address to another's."""
        key = (source, destination)
        found = self._links.get(key)
        if found is None:
            found = self._links[key] = Link()
        return found

    def next_port(self) -> int:
        return next(self._ports)

    # Faults

    def cut(self, one: str, other: str) -> None:
        """Both ways: what is under way waits, what is new waits, too."""
        self.link(one, other).is_cut = self.link(other, one).is_cut = True

    def heal(self, one: str, other: str) -> None:
        self.link(one, other).is_cut = self.link(other, one).is_cut = False
        self._wake_all()

    def heal_all(self) -> None:
        for link in self._links.values():
            link.is_cut = False
            link.bytes_per_s = None
        self._wake_all()

    def _wake_all(self) -> None:
        for transport in list(self._connections):
            transport.wake_pipes()

    def connections_of(self, host: str) -> list[SimTransport]:
        """The ends that a host has."""
        return [
            each
            for each in self._connections
            if isinstance(each.local, IpAddress) and each.local.host == host
        ]

    # For networks

    def bind(self, listener: SimListener) -> None:
        if listener.address in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{listener.address} is in use")
        self._listeners[listener.address] = listener

    def unbind(self, listener: SimListener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    async def connect(
        self, source: str, address: Address, protocol_factory: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        """A handshake takes a round trip; over a cut link, until the caller gives up."""
        assert isinstance(address, IpAddress), "the simulated network has IP addresses only"
        there, back = self.link(source, address.host), self.link(address.host, source)
        await asyncio.sleep(there.draw_latency_s(self.random) + back.draw_latency_s(self.random))
        while there.is_cut or back.is_cut:
            await asyncio.sleep(1.0)
        listener = self._listeners.get(address)
        if listener is None:
            raise _refused(address)
        local = IpAddress(source, self.next_port())
        ours, theirs = self._make_pair(local, address)
        self.accepts[address] = self.accepts.get(address, 0) + 1
        theirs.start(listener.make_protocol())
        protocol = protocol_factory()
        ours.start(protocol)
        return ours, protocol

    def _make_pair(self, local: IpAddress, remote: IpAddress) -> tuple[SimTransport, SimTransport]:
        def way(source: str, destination: str) -> Pipe:
            return Pipe(self.loop, lambda: self.link(source, destination), self.random)

        there, back = way(local.host, remote.host), way(remote.host, local.host)
        ours = SimTransport(self.loop, there, back, (local, remote), self._on_over)
        theirs = SimTransport(self.loop, back, there, (remote, local), self._on_over)
        ours.peer, theirs.peer = theirs, ours
        there.sender = back.receiver = ours
        back.sender = there.receiver = theirs
        self._connections[ours] = self._connections[theirs] = None
        return ours, theirs

    def _on_over(self, transport: SimTransport) -> None:
        self._connections.pop(transport, None)


class SimListener:
    """A bound address. Driven by its owner."""

    def __init__(
        self,
        fabric: Fabric,
        address: Address,
        make_protocol: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._fabric = fabric
        self.address: Final = address
        self.make_protocol: Final = make_protocol

    def close(self) -> None:
        self._fabric.unbind(self)

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)


class SimNetwork:
    """One host's view: `runtime.Network`."""

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
        listener = SimListener(self._fabric, address, protocol_factory)
        self._fabric.bind(listener)
        return listener

    async def resolve(self, host: str, port: int) -> list[IpAddress]:
        await asyncio.sleep(0.001)
        found = self._fabric.names.get(host)
        if found is None:
            raise socket.gaierror(socket.EAI_NONAME, f"{host}: name is not known")
        return [IpAddress(each, port) for each in found]


def _refuse_tls(tls: ssl.SSLContext | None) -> None:
    if tls is not None:
        raise OSError(errno.EPROTONOSUPPORT, "the simulated network carries no TLS")
