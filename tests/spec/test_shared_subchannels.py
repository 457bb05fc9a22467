"""Shared subchannels: each policy behaves as if it had its own (decision D47).

The tests run the whole stack in a simulation: channels, control plane, backends and network.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import grpc
import pytest

from proxyless.base import IpAddress
from proxyless.controlplane import Locality, Snapshot, eds_cluster, endpoints, listener, route
from proxyless.sim import UNARY, World, pause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proxyless.front import AioChannel
    from proxyless.protos import Proto
    from proxyless.sim import Backend

TARGET = "xds:///api"
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


async def serve(channel: AioChannel, path: str = UNARY) -> str:
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
        spread = asyncio.gather(*(serve(channel, SPREAD) for channel in channels))
        first = [await serve(channel) for channel in channels]
        return Counter(await spread), Counter(first)

    spread, first = world.run(story())
    assert len(spread) > 1, "no connections to other addresses"
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
        return [await serve(channel) for channel in channels]

    assert world.run(story()) == [names[number % ENDPOINTS] for number in range(CHANNELS)]


# ---------------------------------------------------------------------------------------------
# The backoff

# After this time attempts are at least 20 s apart.
LONG_S = 80.0
# Longer than an update and a connection take.
SOON_S = 0.5


def mesh_of(localities: Mapping[Locality, list[Backend]], cluster: str = "web") -> Snapshot:
    """A service with one cluster: backends by locality."""
    where: dict[int | Locality, list[str]] = {
        place: [str(backend.address) for backend in backends]
        for place, backends in localities.items()
    }
    return Snapshot.of(
        [
            listener("api", [route(cluster=cluster)]),
            eds_cluster(cluster),
            endpoints(cluster, where),
        ]
    )


async def served_after_update(channel: AioChannel) -> set[str]:
    """Backends that serve RPCs after an update has arrived."""
    await pause(SOON_S)
    return {await serve(channel) for _ in range(10)}


@pytest.mark.parametrize(("zone", "is_removed_first"), [("c", False), ("c", True), ("a", True)])
def test_address_is_connected_at_once_when_it_is_listed_again(
    world: World, zone: str, is_removed_first: bool
) -> None:
    """The backend of the zone was down, so its deactivated child has a long backoff."""
    near, far = world.backend("near"), world.backend("far")
    both = mesh_of({Locality(zone="a"): [near], Locality(zone="b", priority=1): [far]})
    control = world.control_plane("control", both)

    async def story() -> None:
        channel = world.client().channel(TARGET)
        assert await serve(channel) == "near"
        await near.kill()
        await pause(LONG_S)
        assert await serve(channel) == "far"
        if is_removed_first:
            control.set_snapshot(mesh_of({Locality(zone="b"): [far]}))
            await pause(SOON_S)
        await near.start()
        control.set_snapshot(mesh_of({Locality(zone=zone): [near]}))
        assert await served_after_update(channel) == {"near"}

    world.run(story())


def test_address_is_connected_at_once_when_it_moves_to_another_zone_of_its_priority(
    world: World,
) -> None:
    moved, other = world.backend("moved"), world.backend("other")
    before = mesh_of({Locality(zone="a"): [moved], Locality(zone="b"): [other]})
    control = world.control_plane("control", before)

    async def story() -> None:
        channel = world.client().channel(TARGET)
        await serve(channel)
        await moved.kill()
        await pause(LONG_S)
        assert await serve(channel) == "other"
        await moved.start()
        control.set_snapshot(mesh_of({Locality(zone="c"): [moved]}))
        assert await served_after_update(channel) == {"moved"}

    world.run(story())


def test_address_is_connected_at_once_when_it_is_listed_in_another_cluster(world: World) -> None:
    backend = world.backend("web")
    localities = {Locality(zone="a"): [backend]}
    control = world.control_plane("control", mesh_of(localities))

    async def story() -> None:
        channel = world.client().channel(TARGET)
        await serve(channel)
        await backend.kill()
        with pytest.raises(grpc.aio.AioRpcError):
            await serve(channel)
        await pause(LONG_S)
        await backend.start()
        control.set_snapshot(mesh_of(localities, "other"))
        assert await served_after_update(channel) == {"web"}

    world.run(story())


def test_address_is_connected_at_once_when_another_channel_has_a_backoff(world: World) -> None:
    backend = world.backend("web")
    world.control_plane("control", mesh_of({Locality(zone="a"): [backend]}))

    async def story() -> None:
        client = world.client()
        first, second = client.channel(TARGET), client.channel(TARGET)
        await serve(first)
        await backend.kill()
        with pytest.raises(grpc.aio.AioRpcError):
            await serve(first)
        await pause(LONG_S)
        await backend.start()
        assert await serve(second) == "web"
        assert await serve(first) == "web", "the connection is not shared"

    world.run(story())
