"""The whole stack in situations that are hard to create with real sockets."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from proxyless.controlplane import (
    CLUSTER,
    LISTENER,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    simple_mesh,
)
from proxyless.sim import STREAM, UNARY, World, pause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.front import AioChannel
    from proxyless.sim import Backend

TARGET = "xds:///api"


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1)
    yield world
    assert not world.exceptions
    assert not world.left_behind


def by_priority(*groups: list[Backend]) -> Snapshot:
    """A service with one cluster, and these backends in its priorities."""
    where: dict[Any, list[str]] = {
        number: [str(each.address) for each in group] for number, group in enumerate(groups)
    }
    return Snapshot.of(
        [listener("api", [route(cluster="web")]), eds_cluster("web"), endpoints("web", where)]
    )


async def call_once(channel: AioChannel, **settings: Any) -> str:  # noqa: ANN401
    reply = await channel.unary_unary(UNARY)(b"", **{"timeout": 10.0, **settings})
    return bytes(reply).decode()


async def fail_once(channel: AioChannel, **settings: Any) -> grpc.aio.AioRpcError:  # noqa: ANN401
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call_once(channel, **settings)
    return caught.value


def test_rpcs_are_spread_over_backends(world: World) -> None:
    backends = [world.backend(f"web-{n}") for n in range(3)]
    world.control_plane("control", by_priority(backends))

    async def story() -> Counter[str]:
        channel = world.client().channel(TARGET)
        await call_once(channel)
        await pause(1.0)
        return Counter([await call_once(channel) for _ in range(9)])

    assert world.run(story()) == {"web-0": 3, "web-1": 3, "web-2": 3}
    assert [backend.accepted for backend in backends] == [1, 1, 1]


def test_lower_priority_serves_ten_seconds_after_the_higher_one_is_cut(
    world: World,
) -> None:
    near, far = world.backend("near"), world.backend("far")
    world.control_plane("control", by_priority([near], [far]))

    async def story() -> None:
        channel = world.client().channel(TARGET)
        near.host.cut(*world.others(near.host))
        started_s = world.now_s()
        assert await call_once(channel, timeout=14.0) == "far"
        # The connection attempt would take 20 s, the failover timer takes 10 s.
        assert 10.0 < world.now_s() - started_s < 10.1
        near.host.heal(*world.others(near.host))
        await pause(1.0)
        assert await call_once(channel) == "near"

    world.run(story())


def test_killed_backend_gets_no_rpcs_until_it_is_started_again(world: World) -> None:
    first, second = world.backend("first"), world.backend("second")
    world.control_plane("control", by_priority([first, second]))

    async def story() -> None:
        channel = world.client().channel(TARGET)
        await call_once(channel)
        await first.kill()
        await pause(1.0)
        assert {await call_once(channel) for _ in range(10)} == {"second"}
        await first.start()
        await pause(170.0)
        assert {await call_once(channel) for _ in range(10)} == {"first", "second"}

    world.run(story())


def test_goaway_loses_no_rpc(world: World) -> None:
    backend = world.backend("web")
    world.control_plane("control", by_priority([backend]))

    async def story() -> None:
        channel = world.client().channel(TARGET)
        await call_once(channel)
        stream = channel.stream_stream(STREAM)(timeout=60.0)
        await stream.write(b"")
        assert await stream.read() == b"web"
        calls = [channel.unary_unary(UNARY)(b"", timeout=10.0) for _ in range(20)]
        await pause(0.0003)  # Some have arrived, some are under way.
        backend.say_goaway()
        assert [bytes(await call) for call in calls] == [b"web"] * 20
        await stream.write(b"")
        assert await stream.read() == b"web", "an RPC under way continues"
        await stream.done_writing()
        assert await stream.code() is grpc.StatusCode.OK
        assert backend.accepted == 2

    world.run(story())


def test_reset_in_the_middle_of_a_message_fails_only_its_rpc(world: World) -> None:
    backend = world.backend("web")
    world.control_plane("control", by_priority([backend]))

    async def story() -> None:
        client = world.client()
        channel = client.channel(TARGET)
        await call_once(channel)
        [connection] = [
            each
            for each in world.fabric.connections_of(client.host.ip)
            if each.remote == backend.address
        ]
        connection.truncate(20)
        error = await fail_once(channel)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert "reset" in str(error.details())
        await pause(1.0)
        assert await call_once(channel) == "web"

    world.run(story())


def test_rpc_to_a_hung_backend_ends_at_its_deadline(world: World) -> None:
    backend = world.backend("web")
    world.control_plane("control", by_priority([backend]))

    async def story() -> None:
        channel = world.client().channel(TARGET)
        await call_once(channel)
        backend.host.hang(*world.others(backend.host))
        started_s = world.now_s()
        error = await fail_once(channel, timeout=5.0)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert world.now_s() - started_s == pytest.approx(5.0)
        backend.host.wake(*world.others(backend.host))
        assert await call_once(channel) == "web"

    world.run(story())


def test_client_keeps_its_config_while_the_control_plane_is_stopped(world: World) -> None:
    backend = world.backend("web")
    control = world.control_plane("control", by_priority([backend]))

    async def story() -> None:
        channel = world.client().channel(TARGET)
        await call_once(channel)
        await control.stop()
        for _ in range(6):
            await pause(600.0)
            assert await call_once(channel) == "web"
        await control.start()
        other = world.backend("other")
        await other.start()
        control.set_snapshot(by_priority([other]))
        await pause(170.0)
        assert await call_once(channel) == "other"

    world.run(story())


def test_second_control_plane_is_used_until_the_first_is_reachable(world: World) -> None:
    old, new = world.backend("old"), world.backend("new")
    first = world.control_plane("first", by_priority([new]))
    world.control_plane("second", by_priority([old]))

    async def story() -> None:
        await first.stop()
        channel = world.client().channel(TARGET)
        assert await call_once(channel, wait_for_ready=True) == "old"
        await first.start()
        await pause(170.0)
        assert await call_once(channel) == "new"
        assert not world.control_planes["second"].streams, "its streams are closed"

    world.run(story())


def test_invalid_cluster_is_nacked_and_the_last_valid_one_is_used(world: World) -> None:
    backend = world.backend("web")
    control = world.control_plane("control", by_priority([backend]))

    async def story() -> None:
        channel = world.client().channel(TARGET)
        await call_once(channel)
        invalid = eds_cluster("web")
        invalid.eds_cluster_config.eds_config.path = "/etc/passwd"
        control.set_snapshot(control.snapshot.with_(invalid))
        await pause(1.0)
        assert [nack.type_url for nack in control.nacks] == [CLUSTER]
        assert await call_once(channel) == "web"

    world.run(story())


def test_rpc_fails_after_fifteen_seconds_when_a_resource_never_arrives(world: World) -> None:
    control = world.control_plane("control", simple_mesh("api", {"web": ["10.9.9.9:80"]}))

    async def story() -> None:
        control.withhold(LISTENER)
        channel = world.client().channel(TARGET)
        started_s = world.now_s()
        error = await fail_once(channel, timeout=60.0)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert world.now_s() - started_s == pytest.approx(15.0, abs=0.1)

    world.run(story())


def test_power_loss_is_noticed_by_the_next_rpc(world: World) -> None:
    backend = world.backend("web")
    world.control_plane("control", by_priority([backend]))

    async def story() -> None:
        channel = world.client().channel(TARGET)
        await call_once(channel)
        await backend.lose_power()
        await backend.start()
        await pause(60.0)
        error = await fail_once(channel)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        await pause(1.0)
        assert await call_once(channel) == "web"

    world.run(story())
