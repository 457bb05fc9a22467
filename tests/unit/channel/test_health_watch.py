"""Unit tests of proxyless.channel.health_watch; see also spec/test_a17.py."""

from collections.abc import AsyncIterator

import pytest

from tests.subchannel_world import CONNECTING, FAILURE, IDLE, READY
from tests.unit.channel.health_world import (
    NOT_SERVING,
    SERVING,
    HealthWorld,
    channel_health,
    health_world,
)


@pytest.fixture
async def world() -> AsyncIterator[HealthWorld]:
    async with health_world() as world:
        yield world


async def test_without_a_name_every_connection_is_healthy(world: HealthWorld) -> None:
    handle, seen = world.watched(channel_health(None))
    assert seen.take() == [READY]
    await world.connect(handle)
    assert (seen.take(), world.streams, len(world.checkers)) == ([], [], 0)


async def test_watches_that_ask_the_same_share_a_stream(world: HealthWorld) -> None:
    first, seen_first = world.watched()
    _, seen_second = world.watched(channel_health())
    await world.connect(first)
    await world.say(SERVING)
    assert seen_first.states == seen_second.states == [IDLE, CONNECTING, READY]
    assert (len(world.streams), len(world.checkers)) == (1, 1)


async def test_a_late_watch_is_told_at_once_what_is_known(world: HealthWorld) -> None:
    first, _ = world.watched()
    await world.connect(first)
    await world.say(NOT_SERVING)
    _, seen = world.watched()
    assert seen.take() == [FAILURE]
    assert seen.last.details == "10.0.0.1:80: health check: service 'shop' is NOT_SERVING"
    assert len(world.streams) == 1


async def test_other_questions_have_streams_of_their_own(world: HealthWorld) -> None:
    shop, seen_shop = world.watched()
    _, seen_other = world.watched(channel_health("other"))
    await world.connect(shop)
    asked = {stream.messages[0]: stream for stream in world.streams}
    assert sorted(asked) == [b"\x0a\x04shop", b"\x0a\x05other"]
    asked[b"\x0a\x04shop"].say(SERVING)
    asked[b"\x0a\x05other"].say(NOT_SERVING)
    await world.settle()
    assert (seen_shop.states[-1], seen_other.states[-1]) == (READY, FAILURE)


async def test_the_last_watch_takes_the_stream_with_it(world: HealthWorld) -> None:
    (first, _), (second, seen) = world.watched(), world.watched()
    await world.connect(first)
    await world.say(SERVING)
    first.release()
    assert world.stream is world.streams[0]
    assert seen.states[-1] is READY
    second.release()
    assert world.streams[0].is_ended
    assert len(world.checkers) == 0


async def test_a_cancelled_watch_is_told_nothing_and_the_connection_stays(
    world: HealthWorld,
) -> None:
    handle = world.handle()
    transport = await world.connect(handle)
    seen: list[object] = []
    cancel = handle.watch_health(lambda state, _: seen.append(state))
    await world.settle()
    world.stream.say(SERVING)
    cancel()
    await world.settle()
    assert seen == [CONNECTING]
    assert world.streams[0].is_ended
    assert handle.transport is transport
    # One more works as the first.
    handle.watch_health(lambda state, _: seen.append(state))
    await world.settle()
    await world.say(NOT_SERVING)
    assert seen == [CONNECTING, CONNECTING, FAILURE]


async def test_another_name_counts_at_once(world: HealthWorld) -> None:
    health = channel_health("one")
    handle, seen = world.watched(health)
    await world.connect(handle)
    await world.say(SERVING)
    seen.take()
    first = world.stream
    health.check("two")
    assert first.is_ended
    await world.settle()
    assert seen.take() == [CONNECTING]
    await world.say(NOT_SERVING)
    assert seen.take() == [FAILURE]
    assert "service 'two'" in seen.last.details
    health.check("two")
    assert not world.stream.is_ended
    health.check(None)
    await world.settle()
    assert seen.take() == [READY]
    assert (len(world.checkers), len(world.streams)) == (0, 2)
    health.check("one")
    await world.settle()
    assert seen.take() == [CONNECTING]


async def test_a_name_that_others_ask_for_is_known_at_once(world: HealthWorld) -> None:
    other, _ = world.watched(channel_health("two"))
    health = channel_health("one")
    _, seen = world.watched(health)
    await world.connect(other)
    for stream in tuple(world.streams):
        stream.say(SERVING)
    await world.settle()
    seen.take()
    health.check("two")
    await world.settle()
    assert seen.take() == [], "nothing has changed"
    assert len(world.streams) == 2


async def test_a_watch_that_is_gone_does_not_hear_of_names(world: HealthWorld) -> None:
    health = channel_health(None)
    handle, seen = world.watched(health)
    handle.release()
    health.check("shop")
    await world.settle()
    assert seen.take() == [READY]
    assert len(world.checkers) == 0
