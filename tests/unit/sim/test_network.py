"""What does the simulated network add to what every network promises?

The promises themselves are in tests/contracts/test_network.py.
"""

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
    """Two hosts, one of which listens."""

    def __init__(self) -> None:
        self.fabric = Fabric(seeded_random(1))
        self.near = SimNetwork(self.fabric, "10.0.0.1")
        self.far = SimNetwork(self.fabric, "10.0.0.2")

    async def connect(self) -> asyncio.Transport:
        transport, _ = await self.near.connect(PLACE, asyncio.Protocol)
        return transport


def test_an_attempt_over_a_cut_link_waits_until_it_is_healed() -> None:
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


def test_a_stalled_host_accepts_and_says_nothing() -> None:
    loop, mesh = SimLoop(), Mesh()
    heard: list[bytes] = []

    class Listens(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            heard.append(data)

    async def story() -> None:
        await mesh.far.listen(PLACE, Listens)
        for link in mesh.fabric.links_of("10.0.0.1", ["10.0.0.2"]):
            link.stalls += 1
        transport = await mesh.connect()
        transport.write(b"hello")
        await pause(60.0)
        assert not heard
        mesh.fabric.heal_all()
        await pause(1.0)
        assert heard == [b"hello"]

    loop.run_until_complete(story())
    loop.close()


def test_connections_are_counted_at_both_ends_until_they_are_over() -> None:
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


def test_an_address_may_be_at_a_host_that_has_another() -> None:
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
        # It is that host's link that counts.
        for link in mesh.fabric.links_of("10.0.0.1", ["10.0.0.2"]):
            link.cuts += 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await mesh.near.connect(placed, asyncio.Protocol)

    loop.run_until_complete(story())
    loop.close()


def test_names_are_those_that_the_fabric_knows() -> None:
    loop, mesh = SimLoop(), Mesh()
    mesh.fabric.names["web"] = ["10.0.0.2", "10.0.0.3"]

    async def story() -> None:
        found = await mesh.near.resolve("web", 80)
        assert found == [IpAddress("10.0.0.2", 80), IpAddress("10.0.0.3", 80)]
        with pytest.raises(OSError, match="not known"):
            await mesh.near.resolve("db", 80)

    loop.run_until_complete(story())
    loop.close()


def test_a_name_service_that_is_down_knows_addresses_only() -> None:
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


def test_tls_is_refused() -> None:
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
