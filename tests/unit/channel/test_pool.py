"""Unit tests of proxyless.channel.pool."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from proxyless.base import OK, BackoffPolicy, State, Status, parse_address
from proxyless.channel.pool import RELEASED_PER_TURN
from proxyless.channel.subchannel_options import SubchannelOptions
from proxyless.transport import ClientTls, KeepaliveConfig, PeerCertificate, TransportOptions
from proxyless.wire import Limits
from tests.worlds.fake_sockets import FakeSocket, feed, turn
from tests.worlds.subchannels import (
    ADDRESS,
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    SubchannelWorld,
    Watcher,
    lose,
    start_call,
    subchannel_world,
)
from tests.worlds.wire import goaway

if TYPE_CHECKING:
    from proxyless.lb.api import Subchannel

EXACT = SubchannelOptions(backoff=BackoffPolicy(jitter=0))


@pytest.fixture
async def world() -> AsyncIterator[SubchannelWorld]:
    async with subchannel_world() as world:
        yield world


# ---------------------------------------------------------------------------------------------
# Keys


def accept_all(_: PeerCertificate) -> str | None:
    return None


def accept_all_too(_: PeerCertificate) -> str | None:
    return None


PLAIN = TransportOptions()
SECURE = TransportOptions(tls=ClientTls(root_certificates=b"roots", check_peer=accept_all))
DIFFERENT = [
    SubchannelOptions(),
    SubchannelOptions(server_name="api.test"),
    SubchannelOptions(min_connect_timeout_s=5),
    SubchannelOptions(backoff=BackoffPolicy(initial_s=2)),
    SubchannelOptions(transport=replace(PLAIN, limits=Limits(message_bytes_max=1))),
    SubchannelOptions(transport=replace(PLAIN, keepalive=KeepaliveConfig(time_s=10))),
    SubchannelOptions(transport=SECURE),
    SubchannelOptions(transport=replace(SECURE, tls=ClientTls(root_certificates=b"others"))),
    SubchannelOptions(
        transport=replace(
            SECURE, tls=ClientTls(root_certificates=b"roots", check_peer=accept_all_too)
        )
    ),
]


async def test_subchannel_is_not_shared_when_any_option_differs(world: SubchannelWorld) -> None:
    for options in DIFFERENT:
        world.acquire(ADDRESS, options)
        world.acquire("10.0.0.2:80", options)
    assert len(world.pool) == 2 * len(DIFFERENT)


async def test_subchannel_is_shared_when_all_options_are_equal(world: SubchannelWorld) -> None:
    for options in DIFFERENT:
        world.acquire(ADDRESS, options)
        world.acquire(ADDRESS, replace(options, transport=replace(options.transport)))
    assert len(world.pool) == len(DIFFERENT)


async def test_handle_implements_the_interface_of_policies(world: SubchannelWorld) -> None:
    subchannel: Subchannel = world.acquire()
    assert subchannel.address == parse_address(ADDRESS)


# ---------------------------------------------------------------------------------------------
# Sharing


async def test_one_connection_serves_all_handles(world: SubchannelWorld) -> None:
    (first, seen_first), (second, seen_second) = world.watched(), world.watched()
    transport = await world.connected(first)
    assert [first.transport, second.transport] == [transport, transport]
    assert len(world.attempts) == 1
    lose(transport)
    await world.settle()
    assert [first.transport, second.transport] == [None, None]
    assert seen_first.states == seen_second.states == [IDLE, CONNECTING, READY, IDLE]


async def test_later_handle_gets_the_existing_connection(world: SubchannelWorld) -> None:
    transport = await world.connected(world.acquire())
    handle, watcher = world.watched()
    assert handle.transport is transport
    assert watcher.states == [READY]


async def test_handles_share_the_backoff(world: SubchannelWorld) -> None:
    first = world.acquire(options=EXACT)
    await world.failed(first)
    second, watcher = world.watched(options=EXACT)
    first.release()
    assert watcher.take() == [FAILURE]
    assert watcher.last.details == "10.0.0.1:80: connection refused"
    second.request_connection()
    await world.advance(0.9)
    assert watcher.take() == []
    await world.advance(0.1)
    assert watcher.take() == [IDLE]
    await world.failed(second)
    await world.advance(1.5)
    assert watcher.take() == [CONNECTING, FAILURE]
    await world.advance(0.1)
    assert watcher.take() == [IDLE]


async def test_release_of_one_handle_does_not_disturb_the_others(world: SubchannelWorld) -> None:
    (first, seen_first), (second, seen_second) = world.watched(), world.watched()
    attempt = await world.request(first)
    first.release()
    await world.settle()
    assert not attempt.is_cancelled
    transport = attempt.succeed()
    await world.settle()
    assert seen_first.states == [IDLE, CONNECTING]
    assert seen_second.states == [IDLE, CONNECTING, READY]
    assert first.transport is None
    assert second.transport is transport
    third = world.acquire()
    second.release()
    await world.settle()
    assert third.transport is transport
    assert transport.is_usable


async def test_second_release_of_a_handle_does_not_release_others(
    world: SubchannelWorld,
) -> None:
    first, second = world.acquire(), world.acquire()
    transport = await world.connected(second)
    for _ in range(3):
        first.release()
    await world.settle()
    assert second.transport is transport
    assert len(world.pool) == 1


async def test_the_last_release_removes_the_subchannel(world: SubchannelWorld) -> None:
    first, second = world.acquire(), world.acquire()
    old = await world.connected(first)
    first.release()
    second.release()
    assert len(world.pool) == 0
    # A new handle is acquired before the old connection is closed.
    third, watcher = world.watched()
    assert watcher.states == [IDLE]
    assert await world.connected(third) is not old
    third.release()
    await world.settle()
    world.expect_nothing_left()


# ---------------------------------------------------------------------------------------------
# Watching


async def test_each_handle_and_each_watcher_is_notified(world: SubchannelWorld) -> None:
    handle, other = world.acquire(), world.acquire()
    watchers = [Watcher(), Watcher(), Watcher()]
    cancels = [handle.watch(watchers[0]), handle.watch(watchers[1]), other.watch(watchers[2])]
    attempt = await world.request(handle)
    cancels[0]()
    attempt.succeed()
    await world.settle()
    assert [watcher.states for watcher in watchers] == [
        [IDLE, CONNECTING],
        [IDLE, CONNECTING, READY],
        [IDLE, CONNECTING, READY],
    ]


async def test_one_listener_may_watch_twice_and_cancel_once(world: SubchannelWorld) -> None:
    handle, watcher = world.watched()
    cancel = handle.watch(watcher)
    assert watcher.take() == [IDLE, IDLE]
    cancel()
    cancel()
    await world.request(handle)
    assert watcher.take() == [CONNECTING]


async def test_changes_are_delivered_one_by_one_in_order(world: SubchannelWorld) -> None:
    handle, watcher = world.watched(options=EXACT)
    attempt = await world.request(handle)
    # The backoff is over when the attempt fails: two changes at the same time.
    world.clock.advance(5)
    attempt.fail()
    await world.settle()
    assert watcher.states == [IDLE, CONNECTING, FAILURE, IDLE]


async def test_changes_within_one_turn_are_delivered_in_order(world: SubchannelWorld) -> None:
    handle, watcher = world.watched(options=EXACT)
    await world.failed(handle)
    assert watcher.take() == [IDLE, CONNECTING, FAILURE]
    handle.reset_backoff()
    handle.request_connection()
    late = Watcher()
    handle.watch(late)
    assert watcher.take() == []
    await world.settle()
    assert watcher.take() == [IDLE, CONNECTING]
    assert late.take() == [CONNECTING]


async def test_listener_is_not_called_inside_a_call(world: SubchannelWorld) -> None:
    handle, watcher = world.watched(options=EXACT)
    watcher.take()
    handle.request_connection()
    assert watcher.take() == []
    await world.settle()
    world.attempts[0].fail()
    await world.settle()
    watcher.take()
    handle.reset_backoff()
    assert watcher.take() == []
    await world.settle()
    assert watcher.take() == [IDLE]


async def test_listener_may_request_a_connection_in_its_first_call(
    world: SubchannelWorld,
) -> None:
    handle, watcher = world.acquire(), Watcher()

    def listener(state: State, status: Status) -> None:
        watcher(state, status)
        if state is IDLE:
            handle.request_connection()

    handle.watch(listener)
    assert watcher.take() == [IDLE]
    await world.settle()
    assert watcher.take() == [CONNECTING]


async def test_failure_is_delivered_before_the_backoff_is_over(world: SubchannelWorld) -> None:
    handle, watcher = world.acquire(options=EXACT), Watcher()

    def listener(state: State, status: Status) -> None:
        watcher(state, status)
        if state is FAILURE:
            # It would connect if the subchannel were IDLE already.
            handle.request_connection()

    handle.watch(listener)
    attempt = await world.request(handle)
    world.clock.advance(5)
    attempt.fail()
    await world.settle()
    assert watcher.states == [IDLE, CONNECTING, FAILURE, IDLE]
    assert len(world.attempts) == 1


@pytest.mark.parametrize("moment", [IDLE, CONNECTING, READY])
async def test_listener_may_release_the_handle(world: SubchannelWorld, moment: State) -> None:
    handle, watcher = world.acquire(), Watcher()

    def listener(state: State, status: Status) -> None:
        watcher(state, status)
        if state is moment:
            handle.release()

    handle.watch(listener)
    handle.request_connection()
    await world.settle()
    if moment is READY:
        world.attempts[0].succeed()
        await world.settle()
    assert watcher.states[-1] is moment
    world.expect_nothing_left()


async def test_other_listeners_are_called_when_one_raises(
    world: SubchannelWorld,
) -> None:
    handle = world.acquire(options=EXACT)
    states: list[State] = []

    def listener(state: State, _: Status) -> None:
        states.append(state)
        if state is CONNECTING:
            raise RuntimeError("a policy's bug")

    handle.watch(listener)
    watcher = Watcher()
    handle.watch(watcher)
    handle.request_connection()
    handle.request_connection()
    with pytest.raises(RuntimeError, match="a policy's bug"):
        world.clock.advance(0)
    await world.settle()
    world.attempts[0].fail()
    await world.settle()
    assert states == watcher.states == [IDLE, CONNECTING, FAILURE]


async def test_later_changes_are_delivered_when_a_listener_raises(
    world: SubchannelWorld,
) -> None:
    handle = world.acquire(options=EXACT)
    await world.failed(handle)
    states: list[State] = []

    def listener(state: State, _: Status) -> None:
        states.append(state)
        if state is IDLE:
            raise RuntimeError("a policy's bug")

    handle.watch(listener)
    handle.reset_backoff()
    handle.request_connection()
    with pytest.raises(RuntimeError, match="a policy's bug"):
        world.clock.advance(0)
    await world.settle()
    assert states == [FAILURE, IDLE, CONNECTING]


async def test_a_watch_that_is_cancelled_before_its_delivery_is_not_called(
    world: SubchannelWorld,
) -> None:
    handle = world.acquire(options=EXACT)
    await world.failed(handle)
    watcher = Watcher()
    cancel = handle.watch(watcher)
    handle.reset_backoff()
    assert world.clock.timers_pending == 1
    cancel()
    await world.settle()
    assert watcher.states == [FAILURE]
    assert world.clock.timers_pending == 0


async def test_connection_is_healthy_without_health_checking(world: SubchannelWorld) -> None:
    handle = world.acquire()
    watcher = Watcher()
    cancel = handle.watch_health(watcher)
    lose(await world.connected(handle))
    await world.failed(handle)
    assert watcher.states == [READY]
    assert watcher.last == OK
    cancel()


async def test_a_released_handle_does_nothing_and_cannot_be_watched(
    world: SubchannelWorld,
) -> None:
    handle, other = world.acquire(options=EXACT), world.acquire(options=EXACT)
    handle.release()
    # A picker may request a connection after the release.
    handle.request_connection()
    await world.settle()
    assert world.attempts == []
    await world.failed(other)
    handle.reset_backoff()
    _, watcher = world.watched(options=EXACT)
    assert watcher.take() == [FAILURE]
    text = "subchannel 10.0.0.1:80 was released: it cannot be watched"
    with pytest.raises(ValueError, match=text):
        handle.watch(watcher)
    with pytest.raises(ValueError, match=text):
        handle.watch_health(watcher)
    with pytest.raises(ValueError, match=text):
        handle.watch_load_reports(10, lambda report: None)
    assert watcher.take() == []


# ---------------------------------------------------------------------------------------------
# Load


async def test_load_watches_share_one_stream_while_there_is_a_connection(
    world: SubchannelWorld,
) -> None:
    first, second = world.acquire(), world.acquire()
    cancel = first.watch_load_reports(10, lambda report: None)
    second.watch_load_reports(10, lambda report: None)
    transport = await world.connected(first)
    assert transport.calls == 1
    cancel()
    cancel()
    await world.settle()
    assert transport.calls == 1
    second.release()
    assert transport.calls == 0
    assert first.transport is transport


async def test_load_watch_does_not_keep_a_draining_connection_open(
    world: SubchannelWorld,
) -> None:
    handle = world.acquire()
    going, closing = await world.connected(handle), world.acquire("10.0.0.2:80")
    for each in (handle, closing):
        each.watch_load_reports(10, lambda report: None)
    await world.connected(closing)
    await world.settle()
    assert going.calls == 1
    feed(going, goaway())
    closing.release()
    await world.settle()
    assert not world.pool.connections
    # The next connection has a stream again.
    assert (await world.connected(handle)).calls == 1


# ---------------------------------------------------------------------------------------------
# Closing


async def test_closing_the_pool_ends_everything(world: SubchannelWorld) -> None:
    idle, _ = world.watched("10.0.0.1:80")
    connecting, seen = world.watched("10.0.0.2:80")
    ready = world.acquire("10.0.0.3:80")
    failing = world.acquire("10.0.0.4:80")
    going = world.acquire("10.0.0.5:80")
    released = world.acquire("10.0.0.6:80")
    await world.request(connecting)
    calls = [start_call(await world.connected(handle)) for handle in (ready, going, released)]
    await world.failed(failing)
    transport = going.transport
    assert transport is not None
    feed(transport, goaway(1))
    released.release()
    seen.take()
    await world.pool.aclose()
    world.expect_nothing_left()
    assert seen.take() == []
    assert [(await call).status.details for call in calls] == [
        "connection closed: closed by us"
    ] * 3
    for handle in (idle, connecting, ready, failing, going, released):
        assert handle.transport is None
        handle.release()


async def test_wait_gone_ignores_other_and_held_connections(world: SubchannelWorld) -> None:
    held, released = world.acquire("10.0.0.1:80"), world.acquire("10.0.0.2:80")
    transport = await world.connected(held)
    await world.connected(released)
    both = list(world.pool.connections)
    assert len(both) == 2
    released.release()
    await world.pool.wait_gone(both)
    await world.settle()
    assert [each.transport for each in world.pool.connections] == [transport]
    await world.pool.wait_gone(both)
    assert held.transport is transport


async def test_wait_gone_has_a_timeout(
    world: SubchannelWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxyless.channel.pool.CLOSE_TIMEOUT_S", 0.0)
    handle = world.acquire()
    call = start_call(await world.connected(handle))
    connections = list(world.pool.connections)
    handle.release()
    await world.pool.wait_gone(connections)
    assert call.end is None


async def test_closed_pool_raises_on_acquire(world: SubchannelWorld) -> None:
    await world.pool.aclose()
    await world.pool.aclose()
    text = "subchannel pool is closed: no connection to 10.0.0.1:80"
    with pytest.raises(ValueError, match=text):
        world.acquire()


async def test_pool_is_closed_at_the_end_of_its_block(world: SubchannelWorld) -> None:
    async with world.pool as pool:
        handle = world.acquire()
        await world.connected(handle)
    assert len(pool) == 0
    world.expect_nothing_left()


async def test_connection_is_aborted_when_the_peer_does_not_close_it(
    world: SubchannelWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxyless.channel.pool.CLOSE_TIMEOUT_S", 0.0)
    transport = await world.connected(world.acquire())
    socket = transport._socket
    assert isinstance(socket, FakeSocket)
    socket.is_stuck = True
    await world.pool.aclose()
    assert socket.is_closing()
    world.expect_nothing_left()


async def test_connections_of_a_channel_are_those_of_its_handles(world: SubchannelWorld) -> None:
    owner, other = object(), object()
    own = world.pool.acquire(parse_address("10.0.0.1:80"), EXACT, owner=owner)
    world.pool.acquire(parse_address("10.0.0.1:80"), EXACT, owner=other)
    world.pool.acquire(parse_address("10.0.0.2:80"), EXACT, owner=other)
    assert world.pool.connections_of(owner) == []
    transport = await world.connected(own)
    for each in (owner, other):
        assert [found.transport for found in world.pool.connections_of(each)] == [transport]


async def test_wait_released_returns_when_the_last_handle_of_the_channel_is_released(
    world: SubchannelWorld,
) -> None:
    owner = object()
    first = world.pool.acquire(parse_address("10.0.0.1:80"), EXACT, owner=owner)
    second = world.pool.acquire(parse_address("10.0.0.1:80"), EXACT, owner=owner)
    world.pool.acquire(parse_address("10.0.0.1:80"), EXACT, owner=object())
    waiter = asyncio.create_task(world.pool.wait_released(owner))
    await world.settle()
    first.release()
    await world.settle()
    assert not waiter.done()
    second.release()
    await waiter


async def test_many_handles_are_released_in_slices(world: SubchannelWorld) -> None:
    count = 2 * RELEASED_PER_TURN
    for number in range(count):
        world.acquire(f"10.0.{number >> 8}.{number & 255}:80")
    closing = asyncio.create_task(world.pool.aclose())
    await turn()
    assert len(world.pool) == RELEASED_PER_TURN
    await closing
    assert len(world.pool) == 0
