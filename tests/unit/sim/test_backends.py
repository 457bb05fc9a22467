"""Unit tests of proxyless.sim.backends."""

from __future__ import annotations

import grpc
import pytest

from proxyless.base import IpAddress, Status, StatusCode, UnixAddress
from proxyless.sim import UNARY, World

NEAR, FAR, LOCAL = IpAddress("127.0.0.1", 81), IpAddress("2001:db8::1", 82), UnixAddress("/web")


async def ask(world: World, target: str, method: str = UNARY) -> str:
    channel = world.client().channel(target)
    return bytes(await channel.unary_unary(method)(b"", timeout=1.0)).decode()


def test_backend_serves_at_each_of_its_addresses() -> None:
    world = World()
    world.backend("web", addresses=(NEAR, FAR, LOCAL))

    async def story() -> list[str]:
        targets = (f"ipv4:{NEAR}", f"ipv6:{FAR}", str(LOCAL))
        return [await ask(world, target) for target in targets]

    assert world.run(story()) == ["web"] * 3
    assert not world.left_behind


def test_backends_with_one_ip_address_have_separate_faults() -> None:
    world = World()
    one = world.backend("one", addresses=(NEAR,))
    other = IpAddress(NEAR.host, 99)
    world.backend("other", addresses=(other,))

    async def story() -> str:
        assert await ask(world, f"ipv4:{NEAR}") == "one"
        await one.kill()
        with pytest.raises(grpc.aio.AioRpcError):
            await ask(world, f"ipv4:{NEAR}")
        return await ask(world, f"ipv4:{other}")

    assert world.run(story()) == "other"


def test_backend_serves_the_echo_and_additional_methods() -> None:
    world = World()
    world.backend("web", addresses=(NEAR,), methods=("/shop.Cart/Add",))

    async def story() -> str:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(world, f"ipv4:{NEAR}", "/shop.Cart/Drop")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        return await ask(world, f"ipv4:{NEAR}", "/shop.Cart/Add")

    assert world.run(story()) == "web"


def test_backend_fails_rpcs_with_its_status() -> None:
    world = World()
    backend = world.backend("web", addresses=(NEAR,))

    async def story() -> None:
        backend.status = Status(StatusCode.DATA_LOSS, "on purpose")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(world, f"ipv4:{NEAR}")
        assert caught.value.code() is grpc.StatusCode.DATA_LOSS
        assert caught.value.details() == "on purpose"

    world.run(story())
    assert backend.rpcs == 1


def test_hosts_use_the_subnet_of_the_world() -> None:
    world = World(subnet="198.18")
    assert world.host("a").ip == "198.18.0.1"
    world.loop.close()
