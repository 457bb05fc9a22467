"""Tests of an application against a simulated mesh, with the fixture `proxyless_mesh`.

    pip install 'proxyless[cli]' pytest
    pytest examples/pytest_mesh

The channels are real; backends, control plane, network and time are simulated. So a minute of
outage takes milliseconds, and a run with the same `--mesh-seed` is the same event by event.
"""

from proxyless.controlplane import Snapshot, eds_cluster, endpoints, listener, route, route_config
from proxyless.front import AioChannel
from proxyless.sim import UNARY, World, pause


async def place_order(channel: AioChannel) -> str:
    """The code under test: replace it with a function of your application."""
    response: bytes = await channel.unary_unary(UNARY)(b"", timeout=5.0)
    return response.decode()


def mesh_of(near: str, far: str) -> Snapshot:
    """Two priorities: `far` is used while `near` is down."""
    return Snapshot.of(
        [
            listener("orders", "routes"),
            route_config("routes", route(cluster="orders")),
            eds_cluster("orders"),
            endpoints("orders", {0: [near], 1: [far]}),
        ]
    )


def start(mesh: World) -> None:
    near, far = mesh.backend("near"), mesh.backend("far")
    mesh.control_plane("control", mesh_of(str(near.address), str(far.address)))


def test_orders_go_to_the_near_zone(proxyless_mesh: World) -> None:
    start(proxyless_mesh)

    async def story() -> str:
        return await place_order(proxyless_mesh.client("shop").channel("xds:///orders"))

    assert proxyless_mesh.run(story()) == "near"


def test_orders_go_to_the_far_zone_while_the_near_one_is_down(proxyless_mesh: World) -> None:
    start(proxyless_mesh)

    async def story() -> list[str]:
        channel = proxyless_mesh.client("shop").channel("xds:///orders")
        answers = [await place_order(channel)]
        await proxyless_mesh.backends["near"].stop()
        await pause(1.0)
        answers.append(await place_order(channel))
        await proxyless_mesh.backends["near"].start()
        await pause(60.0)
        answers.append(await place_order(channel))
        return answers

    assert proxyless_mesh.run(story()) == ["near", "far", "near"]


def test_orders_are_placed_while_the_control_plane_is_away(proxyless_mesh: World) -> None:
    start(proxyless_mesh)

    async def story() -> str:
        channel = proxyless_mesh.client("shop").channel("xds:///orders")
        await place_order(channel)
        await proxyless_mesh.control_planes["control"].stop()
        await pause(600.0)
        return await place_order(channel)

    assert proxyless_mesh.run(story()) == "near"
