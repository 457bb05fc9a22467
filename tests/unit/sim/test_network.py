"""Unit tests of proxyless.sim.network. The contract of every network is in tests/contracts."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from proxyless.base import IpAddress
from proxyless.runtime import seeded_random
from proxyless.sim.loop import SimLoop, pause
from proxyless.sim.network import Fabric, SimNetwork

PLACE = IpAddress("10.0.0.2", 80)


class Mesh:
    """Two hosts, one of them with a listener."""

    def __init__(self) -> None:
        self.fabric = Fabric(seeded_random(1))
        self.near = SimNetwork(self.fabric, "10.0.0.1")
        self.far = SimNetwork(self.fabric, "10.0.0.2")

    async def connect(self) -> asyncio.Transport:
        transport, _ = await self.near.connect(PLACE, asyncio.Protocol)
        return transport


def test_connect_over_a_cut_link_waits_until_it_is_healed() -> None:
    loop, mesh = SimLoop(), Mesh()

    async def story() -> None:
        await mesh.far.listen(PLACE, asyncio.Protocol)
        for link in mesh.fabric.links_of("10.0.0.1", ["10.0.0.2"]):
            link.cuts += 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(20.0):
                await mesh.connect()
        attempt = loop.create_task(mesh.connect())
        await pause(5.0)
        assert not attempt.done()
        mesh.fabric.heal_all()
        await attempt
        assert mesh.fabric.accepts[PLACE] == 1

    loop.run_until_complete(story())
    loop.close()


def test_stalled_host_accepts_and_sends_nothing() -> None:
    loop, mesh = SimLoop(), Mesh()
    received: list[bytes] = []

    class Listens(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            received.append(data)

    async def story() -> None:
        await mesh.far.listen(PLACE, Listens)
        for link in mesh.fabric.links_of("10.0.0.1", ["10.0.0.2"]):
            link.stalls += 1
        transport = await mesh.connect()
        transport.write(b"hello")
        await pause(60.0)
        assert not received
        mesh.fabric.heal_all()
        await pause(1.0)
        assert received == [b"hello"]

    loop.run_until_complete(story())
    loop.close()


def test_connections_are_counted_at_both_ends() -> None:
    loop, mesh = SimLoop(), Mesh()

    async def story() -> None:
        await mesh.far.listen(PLACE, asyncio.Protocol)
        transport = await mesh.connect()
        assert mesh.fabric.connections == 2
        assert len(mesh.fabric.connections_of("10.0.0.2")) == 1
        transport.close()
        await pause(1.0)
        assert mesh.fabric.connections == 0

    loop.run_until_complete(story())
    loop.close()


def test_additional_address_uses_the_links_of_its_host() -> None:
    loop, mesh = SimLoop(), Mesh()
    placed = IpAddress("192.0.2.1", 80)
    mesh.fabric.places[placed] = "10.0.0.2"

    async def story() -> None:
        await mesh.far.listen(placed, asyncio.Protocol)
        transport, _ = await mesh.near.connect(placed, asyncio.Protocol)
        assert len(mesh.fabric.connections_of("10.0.0.2")) == 1
        assert mesh.fabric.connections_of("192.0.2.1") == []
        transport.close()
        await pause(1.0)
        # The link of that host is used.
        for link in mesh.fabric.links_of("10.0.0.1", ["10.0.0.2"]):
            link.cuts += 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await mesh.near.connect(placed, asyncio.Protocol)

    loop.run_until_complete(story())
    loop.close()


def test_names_are_resolved_by_the_fabric() -> None:
    loop, mesh = SimLoop(), Mesh()
    mesh.fabric.names["web"] = ["10.0.0.2", "10.0.0.3"]

    async def story() -> None:
        found = await mesh.near.resolve("web", 80)
        assert found == [IpAddress("10.0.0.2", 80), IpAddress("10.0.0.3", 80)]
        with pytest.raises(OSError, match="not known"):
            await mesh.near.resolve("db", 80)

    loop.run_until_complete(story())
    loop.close()


def test_literal_addresses_are_resolved_while_dns_is_down() -> None:
    loop, mesh = SimLoop(), Mesh()
    mesh.fabric.names["web"] = ["10.0.0.2"]
    mesh.fabric.is_dns_down, mesh.fabric.lookup_s = True, 3.0

    async def story() -> None:
        started_s = loop.time()
        with pytest.raises(OSError, match="no name server answers"):
            await mesh.near.resolve("web", 80)
        assert loop.time() == started_s + 3.0
        assert await mesh.near.resolve("10.0.0.9", 80) == [IpAddress("10.0.0.9", 80)]

    loop.run_until_complete(story())
    loop.close()


def test_tls_is_rejected() -> None:
    loop, mesh = SimLoop(), Mesh()

    async def story() -> None:
        with pytest.raises(OSError, match="no TLS"):
            await mesh.near.connect(PLACE, asyncio.Protocol, tls=ssl.create_default_context())
        await mesh.far.listen(PLACE, asyncio.Protocol)
        transport, protocol = await mesh.near.connect(PLACE, asyncio.Protocol)
        with pytest.raises(OSError, match="no TLS"):
            await mesh.near.start_tls(
                transport, protocol, tls=ssl.create_default_context(), server_hostname="a"
            )
        assert transport.is_closing()

    loop.run_until_complete(story())
    loop.close()
