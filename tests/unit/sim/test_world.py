"""Unit tests of proxyless.sim.world."""

from __future__ import annotations

import asyncio

import pytest

from proxyless.sim import World, pause
from proxyless.sim.world import name_cut_frame
from proxyless.wire import frames


def test_same_name_is_the_same_host() -> None:
    world = World()
    assert world.host("a") is world.host("a")
    assert world.host("a").ip != world.host("b").ip
    assert [each.name for each in world.others(world.host("a"))] == ["b"]
    world.loop.close()


@pytest.mark.parametrize(
    ("arrived_bytes", "inside"),
    [(0, "nothing"), (3, "another frame"), (17, "nothing"), (18, "DATA"), (29, "DATA")],
)
def test_cut_frame_is_named(arrived_bytes: int, inside: str) -> None:
    sent = frames.encode_ping(b"12345678") + frames.encode_frame(frames.DATA, 0, 1, b"abcd")
    assert name_cut_frame(sent, arrived_bytes) == inside


def test_run_raises_timeout_error_after_its_virtual_seconds() -> None:
    world = World()
    with pytest.raises(TimeoutError):
        world.run(pause(20.0), virtual_seconds=10.0)
    assert world.loop.is_closed()
    assert world.left_behind == []


def test_task_and_timer_are_left_behind() -> None:
    world = World()

    async def sleep_long() -> None:
        await pause(10_000.0)

    async def story() -> None:
        world.loop.create_task(sleep_long()).set_name("sleeper")

    world.run(story())
    assert any("sleep_long" in each for each in world.left_behind)
    assert any("a timer" in each for each in world.left_behind)


def test_uncaught_exceptions_are_recorded() -> None:
    world = World()

    async def story() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await pause(1.0)

    world.run(story())
    assert "ZeroDivisionError" in world.exceptions[0]


def test_bootstrap_has_the_control_planes_in_order() -> None:
    world = World()
    for name in ("first", "second"):
        world.control_plane(name)
    bootstrap = world.bootstrap("client")
    assert bootstrap["node"] == {"id": "client"}
    servers = bootstrap["xds_servers"]
    assert isinstance(servers, list)
    assert [server["server_uri"] for server in servers] == [
        f"ipv4:{world.hosts[name].ip}:18000" for name in ("first", "second")
    ]
    world.loop.close()
