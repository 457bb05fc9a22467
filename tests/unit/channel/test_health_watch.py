"""Unit tests of proxyless.channel.health_watch; see also spec/test_a17.py."""

from collections.abc import AsyncIterator

import pytest

from tests.worlds.health_checks import (
    NOT_SERVING,
    SERVING,
    HealthWorld,
    channel_health,
    health_world,
)
from tests.worlds.subchannels import CONNECTING, FAILURE, IDLE, READY


@pytest.fixture
async def world() -> AsyncIterator[HealthWorld]:
    async with health_world() as world:
        yield world


async def test_without_a_name_every_connection_is_healthy(world: HealthWorld) -> None:
    handle, watcher = world.watched(channel_health(None))
    assert watcher.take() == [READY]
    await world.connect(handle)
    assert (watcher.take(), world.streams, len(world.checkers)) == ([], [], 0)


async def test_watches_with_equal_requests_share_a_stream(world: HealthWorld) -> None:
    first, seen_first = world.watched()
    _, seen_second = world.watched(channel_health())
    await world.connect(first)
    await world.respond(SERVING)
    assert seen_first.states == seen_second.states == [IDLE, CONNECTING, READY]
    assert (len(world.streams), len(world.checkers)) == (1, 1)


async def test_later_watch_gets_the_current_health_at_once(world: HealthWorld) -> None:
    first, _ = world.watched()
    await world.connect(first)
    await world.respond(NOT_SERVING)
    _, watcher = world.watched()
    assert watcher.take() == [FAILURE]
    assert watcher.last.details == "10.0.0.1:80: health check: service 'shop' is NOT_SERVING"
    assert len(world.streams) == 1


async def test_different_requests_have_separate_streams(world: HealthWorld) -> None:
    shop, seen_shop = world.watched()
    _, seen_other = world.watched(channel_health("other"))
    await world.connect(shop)
    streams = {stream.messages[0]: stream for stream in world.streams}
    assert sorted(streams) == [b"\x0a\x04shop", b"\x0a\x05other"]
    streams[b"\x0a\x04shop"].send_health(SERVING)
    streams[b"\x0a\x05other"].send_health(NOT_SERVING)
    await world.settle()
    assert (seen_shop.states[-1], seen_other.states[-1]) == (READY, FAILURE)


async def test_stream_ends_with_the_last_watch(world: HealthWorld) -> None:
    (first, _), (second, watcher) = world.watched(), world.watched()
    await world.connect(first)
    await world.respond(SERVING)
    first.release()
    assert world.stream is world.streams[0]
    assert watcher.states[-1] is READY
    second.release()
    assert world.streams[0].is_ended
    assert len(world.checkers) == 0


async def test_cancelled_watch_is_not_notified_and_the_connection_stays(
    world: HealthWorld,
) -> None:
    handle = world.handle()
    transport = await world.connect(handle)
    watcher: list[object] = []
    cancel = handle.watch_health(lambda state, _: watcher.append(state))
    await world.settle()
    world.stream.send_health(SERVING)
    cancel()
    await world.settle()
    assert watcher == [CONNECTING]
    assert world.streams[0].is_ended
    assert handle.transport is transport
    # A new watch works like the first.
    handle.watch_health(lambda state, _: watcher.append(state))
    await world.settle()
    await world.respond(NOT_SERVING)
    assert watcher == [CONNECTING, CONNECTING, FAILURE]


async def test_new_service_name_applies_at_once(world: HealthWorld) -> None:
    health = channel_health("one")
    handle, watcher = world.watched(health)
    await world.connect(handle)
    await world.respond(SERVING)
    watcher.take()
    first = world.stream
    health.check("two")
    assert first.is_ended
    await world.settle()
    assert watcher.take() == [CONNECTING]
    await world.respond(NOT_SERVING)
    assert watcher.take() == [FAILURE]
    assert "service 'two'" in watcher.last.details
    health.check("two")
    assert not world.stream.is_ended
    health.check(None)
    await world.settle()
    assert watcher.take() == [READY]
    assert (len(world.checkers), len(world.streams)) == (0, 2)
    health.check("one")
    await world.settle()
    assert watcher.take() == [CONNECTING]


async def test_new_service_name_with_a_shared_checker_has_its_health_at_once(
    world: HealthWorld,
) -> None:
    other, _ = world.watched(channel_health("two"))
    health = channel_health("one")
    _, watcher = world.watched(health)
    await world.connect(other)
    for stream in tuple(world.streams):
        stream.send_health(SERVING)
    await world.settle()
    watcher.take()
    health.check("two")
    await world.settle()
    assert watcher.take() == [], "nothing has changed"
    assert len(world.streams) == 2


async def test_cancelled_watch_ignores_new_service_names(world: HealthWorld) -> None:
    health = channel_health(None)
    handle, watcher = world.watched(health)
    handle.release()
    health.check("shop")
    await world.settle()
    assert watcher.take() == [READY]
    assert len(world.checkers) == 0
