"""Unit tests of proxyless.channel.health_checker; see also spec/test_a17.py."""

import logging
from collections.abc import AsyncIterator

import pytest

from proxyless.base import EMPTY_METADATA, Metadata, Status, StatusCode, Trace, hits
from proxyless.channel.credentials import OnMetadata, Withdraw
from proxyless.wire import RequestEncoder
from tests.subchannel_world import CONNECTING, FAILURE, IDLE, READY, feed, goaway, lose
from tests.unit.channel.health_world import (
    NOT_SERVING,
    SERVING,
    HealthWorld,
    channel_health,
    health_world,
)

WATCH = "/grpc.health.v1.Health/Watch"
UNIMPLEMENTED = Status(StatusCode.UNIMPLEMENTED, "no such\nmethod")


@pytest.fixture
async def world() -> AsyncIterator[HealthWorld]:
    async with health_world() as world:
        yield world


async def test_the_stream_asks_as_the_channel_would(world: HealthWorld) -> None:
    handle, _ = world.watched()
    await world.connect(handle)
    encoder = RequestEncoder(path=WATCH, authority="shop.test:80", user_agent="test/1")
    assert world.stream.block == encoder.block()
    assert world.stream.messages == [b"\x0a\x04shop"]


async def test_nobody_is_asked_inside_a_call_of_a_policy(world: HealthWorld) -> None:
    handle = world.handle()
    await world.connect(handle)
    seen: list[object] = []
    handle.watch_health(lambda state, _: seen.append(state))
    assert (seen, world.streams) == ([CONNECTING], [])
    world.clock.advance(0)
    assert len(world.streams) == 1


async def test_a_watch_that_is_cancelled_at_once_asks_nobody(world: HealthWorld) -> None:
    handle = world.handle()
    await world.connect(handle)
    cancel = handle.watch_health(lambda *_: None)
    cancel()
    cancel()
    await world.settle()
    assert (world.streams, len(world.checkers), world.clock.timers_pending) == ([], 0, 0)


async def test_health_follows_the_answers(world: HealthWorld) -> None:
    handle, seen = world.watched()
    await world.connect(handle)
    assert seen.take() == [IDLE, CONNECTING]
    for answer, state in ((SERVING, READY), (NOT_SERVING, FAILURE), (SERVING, READY)):
        await world.say(answer)
        assert seen.take() == [state]
    await world.say(SERVING)
    assert seen.take() == [], "the same is told again"


async def test_an_answer_is_told_soon_and_not_inside(world: HealthWorld) -> None:
    handle, seen = world.watched()
    await world.connect(handle)
    seen.take()
    world.stream.say(SERVING)
    assert seen.take() == []
    await world.settle()
    assert seen.take() == [READY]


async def test_a_health_that_flaps_is_told_once_as_it_is_by_then(world: HealthWorld) -> None:
    """A backend says it as often as it likes, and must not keep the loop busy with telling."""
    handle, seen = world.watched()
    await world.connect(handle)
    seen.take()
    timers = world.clock.timers_pending
    for _ in range(1000):
        world.stream.say(SERVING)
        world.stream.say(NOT_SERVING)
    assert world.clock.timers_pending == timers + 1
    await world.settle()
    assert seen.take() == [FAILURE]
    assert "is NOT_SERVING" in seen.last.details
    world.stream.say(SERVING)
    world.stream.say(NOT_SERVING)
    await world.settle()
    assert seen.take() == [], "it is what was told before"


async def test_an_answer_of_a_megabyte_is_not_read(world: HealthWorld) -> None:
    handle, seen = world.watched()
    await world.connect(handle)
    stream = world.stream
    stream.listener.on_message(b"\x08\x01" * 500_000)
    assert stream.is_ended
    await world.settle()
    assert seen.states[-1] is FAILURE


async def test_who_answers_and_ends_at_once_is_not_asked_without_pause(world: HealthWorld) -> None:
    handle, seen = world.watched()
    await world.connect(handle)
    for _ in range(3):
        world.stream.say(SERVING)
        await world.finish()
    assert seen.states[-1] is CONNECTING
    world.stream.say(SERVING)
    await world.finish()
    assert seen.states[-1] is FAILURE
    assert len(world.streams) == 4
    await world.advance(1.2)
    assert len(world.streams) == 5


async def test_a_lost_connection_ends_the_stream_and_the_next_has_its_own(
    world: HealthWorld,
) -> None:
    handle, seen = world.watched()
    transport = await world.connect(handle)
    await world.say(SERVING)
    first = world.stream
    seen.take()
    lose(transport)
    await world.settle()
    assert first.is_ended
    assert seen.take() == [IDLE]
    first.say(NOT_SERVING)
    await world.connect(handle)
    await world.say(SERVING)
    assert seen.take() == [CONNECTING, READY]
    assert world.stream is not first


async def test_goaway_ends_the_stream(world: HealthWorld) -> None:
    handle, seen = world.watched()
    transport = await world.connect(handle)
    await world.say(SERVING)
    feed(transport, goaway())
    assert world.streams[0].is_ended
    await world.settle()
    assert seen.states[-1] is IDLE


async def test_a_connection_lost_during_the_backoff_ends_it(world: HealthWorld) -> None:
    handle, _ = world.watched()
    transport = await world.connect(handle)
    await world.finish()
    lose(transport)
    await world.advance(600)
    assert len(world.streams) == 1


async def test_a_connection_that_takes_no_stream_is_tried_again(world: HealthWorld) -> None:
    world.is_usable = False
    handle, seen = world.watched()
    await world.connect(handle)
    assert seen.take() == [IDLE, CONNECTING, FAILURE]
    assert seen.last.details == (
        "10.0.0.1:80: health check: watch of service 'shop' ended with INTERNAL: broken"
    )
    world.is_usable = True
    await world.advance(1.2)
    await world.say(SERVING)
    assert seen.take() == [CONNECTING, READY]


async def test_an_answer_that_cannot_be_read_ends_the_stream(world: HealthWorld) -> None:
    handle, seen = world.watched()
    await world.connect(handle)
    stream = world.stream
    stream.listener.on_message(b"\x08")
    assert stream.is_ended
    await world.settle()
    assert seen.states[-1] is FAILURE


async def test_a_backend_that_does_not_know_the_method_is_named_once(
    world: HealthWorld, caplog: pytest.LogCaptureFixture
) -> None:
    handle, seen = world.watched()
    await world.connect(handle)
    await world.finish(UNIMPLEMENTED)
    await world.advance(600)
    assert seen.states[-1] is READY
    assert len(world.streams) == 1
    [record] = [each for each in caplog.records if each.name == "proxyless.channel"]
    assert (record.levelno, record.getMessage()) == (
        logging.ERROR,
        "10.0.0.1:80 does not know health checking, so it counts as healthy: no such method",
    )


async def test_changes_are_traced() -> None:
    trace = Trace()
    async with health_world(trace) as world:
        handle, _ = world.watched()
        await world.connect(handle)
        with hits(trace, "health.state"):
            await world.say(SERVING)


# ---------------------------------------------------------------------------------------------
# Call credentials


class Credentials:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.withdrawn = 0
        self._on_metadata: list[OnMetadata] = []

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> Withdraw:
        self.asked.append((service_url, path))
        self._on_metadata.append(on_metadata)
        return self._withdraw

    def _withdraw(self) -> None:
        self.withdrawn += 1

    def answer(self, found: Metadata | Status) -> None:
        self._on_metadata.pop(0)(found)


@pytest.mark.spec("HC-12")
async def test_call_credentials_go_with_the_stream(world: HealthWorld) -> None:
    credentials = Credentials()
    handle, _ = world.watched(channel_health(credentials=credentials))
    await world.connect(handle)
    assert credentials.asked == [("https://shop.test:80/grpc.health.v1.Health", WATCH)]
    assert world.streams == []
    token = (("authorization", "Bearer x"),)
    credentials.answer(token)
    encoder = RequestEncoder(path=WATCH, authority="shop.test:80", user_agent="test/1")
    assert world.stream.block == encoder.block(metadata=token)


@pytest.mark.spec("HC-12")
async def test_call_credentials_that_fail_are_a_stream_that_ended(world: HealthWorld) -> None:
    credentials = Credentials()
    handle, seen = world.watched(channel_health(credentials=credentials))
    await world.connect(handle)
    credentials.answer(Status(StatusCode.UNAUTHENTICATED, "who are you?"))
    await world.settle()
    assert seen.states[-1] is FAILURE
    assert "ended with UNAUTHENTICATED: who are you?" in seen.last.details
    await world.advance(1.2)
    assert len(credentials.asked) == 2
    credentials.answer(EMPTY_METADATA)
    assert not world.stream.is_ended


async def test_call_credentials_that_answer_too_late_open_nothing(world: HealthWorld) -> None:
    credentials = Credentials()
    handle, _ = world.watched(channel_health(credentials=credentials))
    await world.connect(handle)
    handle.release()
    assert credentials.withdrawn == 1
    credentials.answer(EMPTY_METADATA)
    assert world.streams == []


async def test_call_credentials_that_have_answered_are_not_withdrawn(world: HealthWorld) -> None:
    credentials = Credentials()
    handle, _ = world.watched(channel_health(credentials=credentials))
    await world.connect(handle)
    credentials.answer(EMPTY_METADATA)
    handle.release()
    assert world.streams[0].is_ended
    assert credentials.withdrawn == 0
