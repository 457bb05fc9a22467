"""Policies that share subchannels: each does what it would do alone.

The whole stack in a simulated world: channels, control plane, backends and network. Decision D47.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from proxyless.base import IpAddress
from proxyless.controlplane import Snapshot, eds_cluster, endpoints, listener, route
from proxyless.sim import UNARY, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.front import AioChannel
    from proxyless.protos import Proto

CHANNELS = 20
ENDPOINTS = 4
SPREAD = "/test.Spread/Unary"
PICK_FIRST_TYPE = (
    "type.googleapis.com/envoy.extensions.load_balancing_policies.pick_first.v3.PickFirst"
)


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1)
    yield world
    assert not world.exceptions
    assert not world.left_behind


async def ask(channel: AioChannel, path: str = UNARY) -> str:
    """The name of the backend that served an RPC."""
    return bytes(await channel.unary_unary(path)(b"", timeout=10.0)).decode()


# ---------------------------------------------------------------------------------------------
# The order of addresses


def pick_first_cluster(name: str) -> Proto:
    cluster = eds_cluster(name)
    extension = cluster.load_balancing_policy.policies.add().typed_extension_config
    extension.typed_config.type_url = PICK_FIRST_TYPE
    return cluster


@pytest.mark.spec("A62-20")
def test_pick_first_uses_the_first_address_when_other_channels_are_connected_to_all(
    world: World,
) -> None:
    """Twenty targets, each with a round_robin and a pick_first cluster of the same endpoints."""
    backends = [
        world.backend(f"web-{number}", methods=[UNARY, SPREAD]) for number in range(ENDPOINTS)
    ]
    addresses = [str(backend.address) for backend in backends]
    routes = [route(path=SPREAD, cluster="spread"), route(cluster="first")]
    world.control_plane(
        "control",
        Snapshot.of(
            [
                *(listener(f"target-{number}", routes) for number in range(CHANNELS)),
                eds_cluster("spread"),
                endpoints("spread", addresses),
                pick_first_cluster("first"),
                endpoints("first", addresses),
            ]
        ),
    )

    async def story() -> tuple[Counter[str], Counter[str]]:
        client = world.client()
        channels = [client.channel(f"xds:///target-{number}") for number in range(CHANNELS)]
        spread = asyncio.gather(*(ask(channel, SPREAD) for channel in channels))
        first = [await ask(channel) for channel in channels]
        return Counter(await spread), Counter(first)

    spread, first = world.run(story())
    assert len(spread) > 1, "connections to other addresses were READY, too"
    assert first == {"web-0": CHANNELS}


@pytest.mark.spec("A62-20")
def test_each_channel_uses_the_first_address_of_its_own_list(world: World) -> None:
    """Twenty channels with the same four addresses, in four orders."""
    names = [f"web-{number}" for number in range(ENDPOINTS)]
    # One IP address: connections with another server name would not be shared.
    ports = [IpAddress("10.9.0.1", 8000 + number) for number in range(ENDPOINTS)]
    for name, port in zip(names, ports, strict=True):
        world.backend(name, addresses=[port])
    addresses = [str(port) for port in ports]

    async def story() -> list[str]:
        client = world.client()
        channels = [
            client.channel("ipv4:" + ",".join(addresses[start:] + addresses[:start]))
            for start in (number % ENDPOINTS for number in range(CHANNELS))
        ]
        return [await ask(channel) for channel in channels]

    assert world.run(story()) == [names[number % ENDPOINTS] for number in range(CHANNELS)]
