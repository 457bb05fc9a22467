"""Unit tests of proxyless.channel.health_checker; see also spec/test_a17.py."""

import logging
from collections.abc import AsyncIterator

import pytest

from proxyless.base import EMPTY_METADATA, Metadata, Status, StatusCode, Trace, hits
from proxyless.channel.credentials import OnMetadata, Withdraw
from proxyless.lb.connection_limit import ConnectionLimit
from proxyless.wire import RequestEncoder
from proxyless.wire.frames import MAX_CONCURRENT_STREAMS
from tests.worlds.fake_sockets import feed
from tests.worlds.health_checks import (
    NOT_SERVING,
    SERVING,
    HealthWorld,
    channel_health,
    health_world,
)
from tests.worlds.subchannels import CONNECTING, FAILURE, IDLE, READY, lose
from tests.worlds.wire import CallRecorder, goaway, settings

WATCH = "/grpc.health.v1.Health/Watch"
UNIMPLEMENTED = Status(StatusCode.UNIMPLEMENTED, "no such\nmethod")


@pytest.fixture
async def world() -> AsyncIterator[HealthWorld]:
    async with health_world() as world:
        yield world


async def test_stream_has_the_request_headers_of_the_channel(world: HealthWorld) -> None:
    handle, _ = world.watched()
    await world.connect(handle)
    encoder = RequestEncoder(path=WATCH, authority="shop.test:80", user_agent="test/1")
    assert world.stream.block == encoder.block()
    assert world.stream.messages == [b"\x0a\x04shop"]


async def test_no_stream_is_opened_inside_a_call_of_a_policy(world: HealthWorld) -> None:
    handle = world.handle()
    await world.connect(handle)
    watcher: list[object] = []
    handle.watch_health(lambda state, _: watcher.append(state))
    assert (watcher, world.streams) == ([CONNECTING], [])
    world.clock.advance(0)
    assert len(world.streams) == 1


async def test_no_stream_is_opened_when_the_watch_is_cancelled_at_once(world: HealthWorld) -> None:
    handle = world.handle()
    await world.connect(handle)
    cancel = handle.watch_health(lambda *_: None)
    cancel()
    cancel()
    await world.settle()
    assert (world.streams, len(world.checkers), world.clock.timers_pending) == ([], 0, 0)


async def test_health_follows_the_responses(world: HealthWorld) -> None:
    handle, watcher = world.watched()
    await world.connect(handle)
    assert watcher.take() == [IDLE, CONNECTING]
    for answer, state in ((SERVING, READY), (NOT_SERVING, FAILURE), (SERVING, READY)):
        await world.respond(answer)
        assert watcher.take() == [state]
    await world.respond(SERVING)
    assert watcher.take() == [], "the same state was delivered again"


async def test_response_is_delivered_in_the_next_turn(world: HealthWorld) -> None:
    handle, watcher = world.watched()
    await world.connect(handle)
    watcher.take()
    world.stream.send_health(SERVING)
    assert watcher.take() == []
    await world.settle()
    assert watcher.take() == [READY]


async def test_only_the_newest_health_is_delivered_when_it_flaps(world: HealthWorld) -> None:
    """A backend that changes its health often must not block the loop."""
    handle, watcher = world.watched()
    await world.connect(handle)
    watcher.take()
    timers = world.clock.timers_pending
    for _ in range(1000):
        world.stream.send_health(SERVING)
        world.stream.send_health(NOT_SERVING)
    assert world.clock.timers_pending == timers + 1
    await world.settle()
    assert watcher.take() == [FAILURE]
    assert "is NOT_SERVING" in watcher.last.details
    world.stream.send_health(SERVING)
    world.stream.send_health(NOT_SERVING)
    await world.settle()
    assert watcher.take() == [], "it equals the last delivered state"


async def test_response_of_a_megabyte_is_rejected(world: HealthWorld) -> None:
    handle, watcher = world.watched()
    await world.connect(handle)
    stream = world.stream
    stream.listener.on_message(b"\x08\x01" * 500_000)
    assert stream.is_ended
    await world.settle()
    assert watcher.states[-1] is FAILURE


async def test_backend_that_responds_and_ends_at_once_is_retried_with_backoff(
    world: HealthWorld,
) -> None:
    handle, watcher = world.watched()
    await world.connect(handle)
    for _ in range(3):
        world.stream.send_health(SERVING)
        await world.finish()
    assert watcher.states[-1] is CONNECTING
    world.stream.send_health(SERVING)
    await world.finish()
    assert watcher.states[-1] is FAILURE
    assert len(world.streams) == 4
    await world.advance(1.2)
    assert len(world.streams) == 5


async def test_a_lost_connection_ends_the_stream_and_the_next_has_its_own(
    world: HealthWorld,
) -> None:
    handle, watcher = world.watched()
    transport = await world.connect(handle)
    await world.respond(SERVING)
    first = world.stream
    watcher.take()
    lose(transport)
    await world.settle()
    assert first.is_ended
    assert watcher.take() == [IDLE]
    first.send_health(NOT_SERVING)
    await world.connect(handle)
    await world.respond(SERVING)
    assert watcher.take() == [CONNECTING, READY]
    assert world.stream is not first


async def test_goaway_ends_the_stream(world: HealthWorld) -> None:
    handle, watcher = world.watched()
    transport = await world.connect(handle)
    await world.respond(SERVING)
    feed(transport, goaway())
    assert world.streams[0].is_ended
    await world.settle()
    assert watcher.states[-1] is IDLE


async def test_a_connection_lost_during_the_backoff_ends_it(world: HealthWorld) -> None:
    handle, _ = world.watched()
    transport = await world.connect(handle)
    await world.finish()
    lose(transport)
    await world.advance(600)
    assert len(world.streams) == 1


async def test_stream_is_retried_when_it_cannot_be_opened(world: HealthWorld) -> None:
    world.is_usable = False
    handle, watcher = world.watched()
    await world.connect(handle)
    assert watcher.take() == [IDLE, CONNECTING, FAILURE]
    assert watcher.last.details == (
        "10.0.0.1:80: health check: watch of service 'shop' ended with INTERNAL: broken"
    )
    world.is_usable = True
    await world.advance(1.2)
    await world.respond(SERVING)
    assert watcher.take() == [CONNECTING, READY]


async def test_response_that_cannot_be_parsed_ends_the_stream(world: HealthWorld) -> None:
    handle, watcher = world.watched()
    await world.connect(handle)
    stream = world.stream
    stream.listener.on_message(b"\x08")
    assert stream.is_ended
    await world.settle()
    assert watcher.states[-1] is FAILURE


async def test_backend_without_the_method_is_logged_once(
    world: HealthWorld, caplog: pytest.LogCaptureFixture
) -> None:
    handle, watcher = world.watched()
    await world.connect(handle)
    await world.finish(UNIMPLEMENTED)
    await world.advance(600)
    assert watcher.states[-1] is READY
    assert len(world.streams) == 1
    [record] = [each for each in caplog.records if each.name == "proxyless.channel"]
    assert (record.levelno, record.getMessage()) == (
        logging.ERROR,
        "10.0.0.1:80 does not implement health checking, so it counts as healthy: no such method",
    )


async def test_changes_are_traced() -> None:
    trace = Trace()
    async with health_world(trace) as world:
        handle, _ = world.watched()
        await world.connect(handle)
        with hits(trace, "health.state"):
            await world.respond(SERVING)


# ---------------------------------------------------------------------------------------------
# Call credentials


class Credentials:
    """Call credentials that the test answers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.withdrawn = 0
        self._on_metadata: list[OnMetadata] = []

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> Withdraw:
        self.requests.append((service_url, path))
        self._on_metadata.append(on_metadata)
        return self._withdraw

    def _withdraw(self) -> None:
        self.withdrawn += 1

    def answer(self, found: Metadata | Status) -> None:
        self._on_metadata.pop(0)(found)


@pytest.mark.spec("HC-12")
async def test_call_credentials_are_sent_with_the_stream(world: HealthWorld) -> None:
    credentials = Credentials()
    handle, _ = world.watched(channel_health(credentials=credentials))
    await world.connect(handle)
    assert credentials.requests == [("https://shop.test:80/grpc.health.v1.Health", WATCH)]
    assert world.streams == []
    token = (("authorization", "Bearer x"),)
    credentials.answer(token)
    encoder = RequestEncoder(path=WATCH, authority="shop.test:80", user_agent="test/1")
    assert world.stream.block == encoder.block(metadata=token)


@pytest.mark.spec("HC-12")
async def test_failed_call_credentials_count_as_an_ended_stream(world: HealthWorld) -> None:
    credentials = Credentials()
    handle, watcher = world.watched(channel_health(credentials=credentials))
    await world.connect(handle)
    credentials.answer(Status(StatusCode.UNAUTHENTICATED, "who are you?"))
    await world.settle()
    assert watcher.states[-1] is FAILURE
    assert "ended with UNAUTHENTICATED: who are you?" in watcher.last.details
    await world.advance(1.2)
    assert len(credentials.requests) == 2
    credentials.answer(EMPTY_METADATA)
    assert not world.stream.is_ended


async def test_call_credentials_that_answer_after_the_cancel_open_no_stream(
    world: HealthWorld,
) -> None:
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


async def test_stream_is_opened_again_on_the_next_connection_when_the_oldest_is_lost(
    world: HealthWorld,
) -> None:
    """A subchannel with several connections stays READY (A105)."""
    handle, watcher = world.watched()
    handle.connection_limit, handle.connections_cap = ConnectionLimit(2), 2
    transport = await world.connect(handle)
    await world.respond(SERVING)
    assert watcher.take() == [IDLE, CONNECTING, READY]
    feed(transport, settings((MAX_CONCURRENT_STREAMS, 1)))
    calls = [transport.open(world.stream.block, CallRecorder()) for _ in range(2)]
    await world.settle()
    second = world.accept()
    await world.settle()
    first_stream = world.stream
    feed(transport, goaway(1))
    await world.settle()
    assert handle.transport is second
    assert first_stream.is_ended
    assert world.stream is not first_stream
    assert watcher.take() == [CONNECTING]
    await world.respond(SERVING)
    assert watcher.take() == [READY]
    for call in calls:
        call.cancel()
