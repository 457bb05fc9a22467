"""Unit tests of proxyless.channel.subchannel."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bench.transport_calls import UnaryCall
from proxyless.base import BackoffPolicy, IpAddress, State, Status, StatusCode, Trace, hits
from proxyless.channel.connection import SLOWED_OPTIONS_MAX, KeepaliveTimes
from proxyless.channel.subchannel_options import SubchannelOptions
from proxyless.transport import KeepaliveConfig, TransportOptions
from proxyless.wire import ErrorCode
from tests.worlds.fake_sockets import feed
from tests.worlds.subchannels import (
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    SHUTDOWN,
    SubchannelWorld,
    lose,
    start_call,
    subchannel_world,
)
from tests.worlds.wire import goaway

REFUSED = Status(StatusCode.UNAVAILABLE, "10.0.0.1:80: connection refused")
GONE = Status(StatusCode.UNAVAILABLE, "connection lost: closed by peer")
EXACT = SubchannelOptions(backoff=BackoffPolicy(jitter=0))


@pytest.fixture
async def world() -> AsyncIterator[SubchannelWorld]:
    async with subchannel_world() as world:
        yield world


# ---------------------------------------------------------------------------------------------
# Keepalive


def with_keepalive(time_s: float, server_name: str | None = None) -> SubchannelOptions:
    keepalive = KeepaliveConfig(time_s=time_s, permit_without_calls=True)
    return SubchannelOptions(
        transport=TransportOptions(keepalive=keepalive), server_name=server_name
    )


def test_each_complaint_about_the_current_time_doubles_it() -> None:
    options, times = with_keepalive(10), KeepaliveTimes()
    seen_s = []
    for _ in range(4):
        used = times.choose(options)
        seen_s.append(used.time_s)
        times.on_too_many_pings(options, used)
    assert seen_s == [10, 20, 40, 80]


def test_many_complaints_about_one_time_double_it_once() -> None:
    options, times = with_keepalive(10), KeepaliveTimes()
    used = times.choose(options)
    for _ in range(5):
        times.on_too_many_pings(options, used)
    assert times.choose(options) == used.doubled()


def test_a_late_complaint_does_not_make_keepalive_faster() -> None:
    options, times = with_keepalive(10), KeepaliveTimes()
    first = times.choose(options)
    times.on_too_many_pings(options, first)
    times.on_too_many_pings(options, times.choose(options))
    times.on_too_many_pings(options, first)
    assert times.choose(options).time_s == 40


def test_a_complaint_concerns_only_connections_with_the_same_options() -> None:
    options, others, times = with_keepalive(10), with_keepalive(10, "other.test"), KeepaliveTimes()
    times.on_too_many_pings(options, times.choose(options))
    assert times.choose(options).time_s == 20
    assert times.choose(others).time_s == 10


def test_number_of_stored_complaints_is_limited() -> None:
    times = KeepaliveTimes()
    every = [with_keepalive(10, f"{number}.test") for number in range(SLOWED_OPTIONS_MAX + 1)]
    for options in every:
        times.on_too_many_pings(options, times.choose(options))
    slowed = [options for options in every if times.choose(options).time_s == 20]
    assert slowed == every[1:]


async def test_next_connections_ping_half_as_often_after_too_many_pings(
    world: SubchannelWorld,
) -> None:
    options = with_keepalive(10)
    handle = world.acquire(options=options)
    transport = await world.connected(handle)
    feed(transport, goaway(0, ErrorCode.ENHANCE_YOUR_CALM, b"too_many_pings"))
    await world.settle()
    again = await world.request(handle)
    assert again.options.keepalive.time_s == 20
    # It applies to another address, even after the first subchannel is closed.
    handle.release()
    other = world.acquire("10.0.0.2:80", options)
    assert (await world.request(other)).options.keepalive.time_s == 20


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ErrorCode.NO_ERROR, "too_many_pings"),
        (ErrorCode.ENHANCE_YOUR_CALM, "too many resets"),
        (ErrorCode.NO_ERROR, "server is shutting down"),
    ],
)
async def test_another_goaway_does_not_slow_keepalive_down(
    world: SubchannelWorld, code: ErrorCode, text: str
) -> None:
    handle = world.acquire(options=with_keepalive(10))
    feed(await world.connected(handle), goaway(0, code, text.encode()))
    assert (await world.request(handle)).options.keepalive.time_s == 10


# ---------------------------------------------------------------------------------------------
# Connections


async def test_connector_gets_all_options(world: SubchannelWorld) -> None:
    transport = TransportOptions(keepalive=KeepaliveConfig(time_s=33), connect_timeout_s=5)
    options = SubchannelOptions(transport=transport, server_name="api.test")
    attempt = await world.request(world.acquire("[::1]:443", options))
    assert attempt.address == IpAddress("::1", 443)
    assert attempt.server_name == "api.test"
    assert attempt.options.keepalive == transport.keepalive
    # The timeout is that of the attempt, not that of the options.
    assert attempt.options.connect_timeout_s == 20


async def test_transport_is_present_exactly_while_the_state_is_ready(
    world: SubchannelWorld,
) -> None:
    handle, watcher = world.watched()
    seen = [handle.transport]
    attempt = await world.request(handle)
    seen.append(handle.transport)
    transport = attempt.succeed()
    await world.settle()
    seen.append(handle.transport)
    lose(transport)
    # At once, because an RPC may be picked for before the watchers are notified.
    seen.append(handle.transport)
    assert seen == [None, None, transport, None]
    await world.settle()
    assert watcher.states == [IDLE, CONNECTING, READY, IDLE]


async def test_every_transition_is_traced_with_its_reason() -> None:
    trace = Trace()
    with hits(trace, "subchannel.state") as events:
        async with subchannel_world(trace=trace) as world:
            handle = world.acquire(options=EXACT)
            await world.failed(handle)
            await world.advance(1)
            lose(await world.connected(handle))
            handle.release()
    assert [(event.fields["state"], event.fields["reason"]) for event in events] == [
        (CONNECTING, "connection requested"),
        (FAILURE, "10.0.0.1:80: connection refused"),
        (IDLE, "backoff over"),
        (CONNECTING, "connection requested"),
        (READY, "connected"),
        (IDLE, "connection lost: closed by peer"),
        (SHUTDOWN, "released"),
    ]
    assert {str(event.fields["address"]) for event in events} == {"10.0.0.1:80"}


async def test_connector_that_raises_is_reported_to_the_loop_and_counts_as_a_failure(
    world: SubchannelWorld,
) -> None:
    reported: list[dict[str, object]] = []
    world.loop.set_exception_handler(lambda _, context: reported.append(context))
    handle, watcher = world.watched(options=EXACT)
    bug = RuntimeError("no such thing")
    (await world.request(handle)).outcome.set_exception(bug)
    await world.settle()
    assert watcher.states[-1] is FAILURE
    text = "10.0.0.1:80: connecting raised RuntimeError('no such thing')"
    assert watcher.last == Status(StatusCode.UNAVAILABLE, text)
    assert reported == [{"message": text, "exception": bug}]
    # The next attempt works.
    await world.advance(1)
    await world.connected(handle)


async def test_a_connection_under_way_does_not_disturb_the_next_one(
    world: SubchannelWorld,
) -> None:
    handle, watcher = world.watched()
    old = await world.connected(handle)
    call = start_call(old)
    feed(old, goaway(1))
    new = await world.connected(handle)
    watcher.take()
    # The old connection ends later.
    lose(old, "reset by peer")
    await world.settle()
    assert (await call).status.details == "connection lost: reset by peer"
    assert handle.transport is new
    assert watcher.take() == []


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_lost_connection_leaves_no_keepalive_timer(
    world: SubchannelWorld, is_busy: bool
) -> None:
    handle = world.acquire(options=with_keepalive(10))
    transport = await world.connected(handle)
    assert world.clock.timers_pending == 1
    if is_busy:
        start_call(transport)
    lose(transport)
    assert world.clock.timers_pending == 0


# ---------------------------------------------------------------------------------------------
# Release


def is_over(call: UnaryCall) -> bool:
    return call.end is not None


async def test_a_released_connection_ends_with_its_last_call(world: SubchannelWorld) -> None:
    handle = world.acquire()
    transport = await world.connected(handle)
    first, second = start_call(transport), start_call(transport)
    handle.release()
    await world.settle()
    assert not transport.is_usable
    assert not is_over(first)
    assert len(world.pool.connections) == 1
    first.cancel()
    await world.settle()
    assert not is_over(second)
    assert len(world.pool.connections) == 1
    second.cancel()
    await world.settle()
    world.expect_nothing_left()


async def test_calls_that_wait_for_a_stream_end_after_the_release_has_returned(
    world: SubchannelWorld,
) -> None:
    handle = world.acquire()
    transport = await world.connected(handle)
    transport._wire.peer.concurrent_streams_max = 1
    running, waiting = start_call(transport), start_call(transport)
    handle.release()
    assert not is_over(waiting)
    await world.settle()
    assert waiting.end is not None
    assert waiting.end.is_unprocessed
    assert not is_over(running)
    running.cancel()


async def test_keepalive_continues_while_a_released_connection_has_calls(
    world: SubchannelWorld,
) -> None:
    handle = world.acquire(options=with_keepalive(10))
    call = start_call(await world.connected(handle))
    handle.release()
    # A PING after 10 s, 20 s for its answer.
    await world.advance(30)
    assert call.end is not None
    assert "keepalive" in call.end.status.details
    world.expect_nothing_left()


async def test_an_attempt_that_is_cancelled_too_late_leaves_no_connection(
    world: SubchannelWorld,
) -> None:
    handle, watcher = world.watched()
    attempt = await world.request(handle)
    attempt.is_stubborn = True
    handle.release()
    attempt.succeed()
    await world.settle()
    assert watcher.states == [IDLE, CONNECTING]
    world.expect_nothing_left()


async def test_an_attempt_that_fails_although_it_was_cancelled_starts_no_timer(
    world: SubchannelWorld,
) -> None:
    handle = world.acquire()
    attempt = await world.request(handle)
    attempt.is_stubborn = True
    handle.release()
    attempt.fail()
    await world.settle()
    world.expect_nothing_left()


async def test_no_socket_is_left_when_all_tasks_are_cancelled(world: SubchannelWorld) -> None:
    """As `asyncio.run` does at its end."""
    before = asyncio.all_tasks()
    handle, watcher = world.watched()
    call = start_call(await world.connected(handle))
    (guard,) = asyncio.all_tasks() - before
    guard.cancel()
    await world.settle()
    assert not world.pool.connections
    assert (await call).status.details == "connection was abandoned by us"
    assert watcher.states[-1] is IDLE


@pytest.mark.parametrize("state", [IDLE, CONNECTING, READY, FAILURE])
async def test_release_closes_everything_in_any_state(world: SubchannelWorld, state: State) -> None:
    handle, watcher = world.watched(options=with_keepalive(10))
    match state:
        case State.CONNECTING:
            await world.request(handle)
        case State.READY:
            await world.connected(handle)
        case State.TRANSIENT_FAILURE:
            await world.failed(handle)
        case _:
            pass
    assert watcher.states[-1] is state
    watcher.take()
    handle.release()
    await world.settle()
    world.expect_nothing_left()
    await world.advance(1000)
    assert watcher.take() == []
    assert len(world.cancelled) == (state is CONNECTING)


async def test_release_before_the_attempt_began_starts_none(world: SubchannelWorld) -> None:
    handle = world.acquire()
    handle.request_connection()
    handle.release()
    await world.settle()
    assert world.attempts == []
    world.expect_nothing_left()


async def test_release_at_the_moment_of_success_leaves_no_connection(
    world: SubchannelWorld,
) -> None:
    handle = world.acquire()
    attempt = await world.request(handle)
    transport = attempt.succeed()
    handle.release()
    await world.settle()
    assert not world.pool.connections
    assert handle.transport is None
    # Unlike a real connector, this one does not close a connection that it cannot return.
    assert attempt.is_cancelled
    transport.close()
    await world.settle()


async def test_tasks_have_ended_after_release() -> None:
    before = asyncio.all_tasks()
    async with subchannel_world() as world:
        handle = world.acquire()
        await world.request(handle)
        # The attempt, and the guard of all connections.
        assert len(asyncio.all_tasks() - before) == 2
        handle.release()
        await world.settle()
        assert asyncio.all_tasks() == before
