"""HTTP proxies in the simulated mesh."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from proxyless.base import IpAddress
from proxyless.controlplane import simple_mesh
from proxyless.sim import UNARY, World

if TYPE_CHECKING:
    import pytest

    from proxyless.sim.network import SimNetwork

PORT = 3128


class Relay(asyncio.Protocol):
    """One end of a tunnel, which forwards its bytes to the other end."""

    def __init__(self, other: Relay | None = None) -> None:
        self.other = other
        self.socket: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.socket = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        assert self.other.socket is not None
        self.other.socket.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.socket is not None:
            self.other.socket.close()


class ProxyEnd(Relay):
    """The client's end, which expects CONNECT first."""

    def __init__(self, network: SimNetwork, targets: list[str], names: dict[str, str]) -> None:
        super().__init__()
        self._network = network
        self._targets = targets
        self._names = names
        self._task: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        if self._task is None:
            target = data.split(b" ")[1].decode()
            self._targets.append(target)
            self._task = asyncio.get_running_loop().create_task(self._open(target))
        else:
            super().data_received(data)

    async def _open(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        address = IpAddress(self._names[host], int(port))
        _, self.other = await self._network.connect(address, lambda: Relay(self))
        assert self.socket is not None
        self.socket.write(b"HTTP/1.1 200 OK\r\n\r\n")


async def serve_proxy(world: World, name: str, names: dict[str, str]) -> tuple[str, list[str]]:
    """The URI of a proxy, and the list of the targets of its CONNECT requests."""
    host, targets = world.host(name), list[str]()
    await host.network.listen(
        IpAddress(host.ip, PORT), lambda: ProxyEnd(host.network, targets, names)
    )
    return f"http://{name}:{PORT}", targets


def test_channel_reaches_a_name_that_only_the_proxy_resolves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://unused.proxy:1")
    world = World(seed=3)
    backend = world.backend("web")

    async def story() -> tuple[bytes, list[str]]:
        uri, targets = await serve_proxy(world, "proxy", {"hidden.example": backend.host.ip})
        options = [("grpc.enable_http_proxy", 1), ("grpc.http_proxy", uri)]
        channel = world.client("shop").channel("hidden.example:50051", options=options)
        return bytes(await channel.unary_unary(UNARY)(b"", timeout=5.0)), targets

    assert world.run(story()) == (b"web", ["hidden.example:50051"])
    assert world.left_behind == []


def test_proxy_variables_of_the_real_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://unused.proxy:1")
    world = World(seed=4)
    backend = world.backend("web")
    world.control_plane("control", simple_mesh("api", {"web": [f"{backend.host.ip}:50051"]}))

    async def story() -> list[bytes]:
        client = world.client("shop")
        channels = [client.channel(target) for target in ("xds:///api", "dns:///web:50051")]
        return [bytes(await each.unary_unary(UNARY)(b"", timeout=5.0)) for each in channels]

    assert world.run(story()) == [b"web", b"web"]
