"""Requirements SUB-01 to SUB-09 of a subchannel, checked through its handles."""

import asyncio
import errno
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from proxyless.base import OK, Address, BackoffPolicy, IpAddress, State, Status, parse_address
from proxyless.channel.pool import SubchannelHandle, SubchannelPool
from proxyless.channel.subchannel_options import SubchannelOptions
from proxyless.runtime import AsyncioNetwork, VirtualClock, seeded_random
from proxyless.transport import ClientTransport, Connector
from tests.worlds.fake_sockets import FakeSocket, feed
from tests.worlds.subchannels import (
    ADDRESS,
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    SubchannelWorld,
    Watcher,
    lose,
    settle,
    start_call,
    subchannel_world,
)
from tests.worlds.wire import goaway, settings

P = TypeVar("P", bound=asyncio.BaseProtocol)

# Delays of the series, without jitter.
EXACT = SubchannelOptions(backoff=BackoffPolicy(jitter=0))
SERIES_S = [1, 1.6, 2.56, 4.096, 6.554, 10.486, 16.777, 26.844, 42.950, 68.719, 109.951, 120, 120]
# The series is written with three digits.
ROUNDING_S = 0.001
TEN = IpAddress("10.0.0.1", 80)


@pytest.fixture
async def world() -> AsyncIterator[SubchannelWorld]:
    async with subchannel_world() as world:
        yield world


async def wait_for_idle_s(world: SubchannelWorld, watcher: Watcher) -> float:
    """Time until the subchannel is IDLE by itself."""
    start_s = world.clock.now_s()
    watcher.take()
    while world.clock.advance_to_next():
        await world.settle()
        if watcher.states:
            assert watcher.take() == [IDLE]
            return world.clock.now_s() - start_s
    pytest.fail("nothing is going to happen any more")


# ---------------------------------------------------------------------------------------------
# SUB-01: states


@pytest.mark.spec("SUB-01")
async def test_subchannel_is_idle_until_a_connection_is_requested(world: SubchannelWorld) -> None:
    _, watcher = world.watched()
    await world.advance(10_000)
    assert watcher.states == [IDLE]
    assert world.attempts == []


@pytest.mark.spec("SUB-01")
async def test_request_leads_to_connecting_and_ready(world: SubchannelWorld) -> None:
    handle, watcher = world.watched()
    attempt = await world.request(handle)
    assert watcher.take() == [IDLE, CONNECTING]
    attempt.succeed()
    await world.settle()
    assert watcher.take() == [READY]


@pytest.mark.spec("SUB-01")
async def test_subchannel_is_idle_again_when_the_backoff_ends(
    world: SubchannelWorld,
) -> None:
    handle, watcher = world.watched(options=EXACT)
    await world.failed(handle)
    assert watcher.take() == [IDLE, CONNECTING, FAILURE]
    await world.advance(0.999)
    assert watcher.take() == []
    await world.advance(0.001)
    assert watcher.take() == [IDLE]
    await world.advance(10_000)
    assert watcher.take() == []
    assert len(world.attempts) == 1


@pytest.mark.spec("SUB-01")
async def test_request_has_no_effect_unless_idle(world: SubchannelWorld) -> None:
    handle, watcher = world.watched(options=EXACT)
    attempt = await world.request(handle)
    await expect_no_attempt(world, handle)
    attempt.fail()
    await world.settle()
    await expect_no_attempt(world, handle)
    # A request during backoff has no effect after it.
    await world.advance(1)
    assert watcher.take() == [IDLE, CONNECTING, FAILURE, IDLE]
    await world.connected(handle)
    await expect_no_attempt(world, handle)
    assert watcher.take() == [CONNECTING, READY]


async def expect_no_attempt(world: SubchannelWorld, handle: SubchannelHandle) -> None:
    count = len(world.attempts)
    handle.request_connection()
    await world.settle()
    assert len(world.attempts) == count


# ---------------------------------------------------------------------------------------------
# SUB-02, SUB-03, SUB-04: delays and deadlines


@pytest.mark.spec("SUB-02")
async def test_delays_follow_the_series(world: SubchannelWorld) -> None:
    handle, watcher = world.watched(options=EXACT)
    waits_s = []
    for _ in SERIES_S:
        await world.failed(handle)
        waits_s.append(await wait_for_idle_s(world, watcher))
    assert waits_s == pytest.approx(SERIES_S, abs=ROUNDING_S)


@pytest.mark.spec("SUB-02")
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_each_delay_has_a_jitter_of_20_percent(seed: int) -> None:
    factors = []
    async with subchannel_world(random=seeded_random(seed)) as world:
        for number in range(12):
            handle, watcher = world.watched(f"10.0.0.{number}:80")
            for base_s in SERIES_S:
                await world.failed(handle)
                factors.append(await wait_for_idle_s(world, watcher) / base_s)
            handle.release()
    assert 0.799 < min(factors) < 0.82
    assert 1.18 < max(factors) < 1.201
    assert 0.97 < sum(factors) / len(factors) < 1.03


@pytest.mark.spec("SUB-02")
async def test_same_random_seed_gives_the_same_delays() -> None:
    async def waits_s(seed: int) -> list[float]:
        async with subchannel_world(random=seeded_random(seed)) as world:
            handle, watcher = world.watched()
            result = []
            for _ in range(5):
                await world.failed(handle)
                result.append(await wait_for_idle_s(world, watcher))
            return result

    assert await waits_s(7) == await waits_s(7) != await waits_s(8)


@pytest.mark.spec("SUB-03")
@pytest.mark.parametrize(("took_s", "left_s"), [(0.0, 1.0), (0.25, 0.75), (0.999, 0.001)])
async def test_delay_counts_from_the_start_of_the_attempt(
    world: SubchannelWorld, took_s: float, left_s: float
) -> None:
    handle, watcher = world.watched(options=EXACT)
    attempt = await world.request(handle)
    await world.advance(took_s)
    attempt.fail()
    await world.settle()
    assert watcher.states[-1] is FAILURE
    assert await wait_for_idle_s(world, watcher) == pytest.approx(left_s)


@pytest.mark.spec("SUB-03")
async def test_subchannel_is_idle_at_once_when_the_attempt_took_longer_than_the_delay(
    world: SubchannelWorld,
) -> None:
    handle, watcher = world.watched(options=EXACT)
    attempt = await world.request(handle)
    await world.advance(1.5)
    attempt.fail()
    await world.settle()
    # Both states are notified: policies count failures by TRANSIENT_FAILURE.
    assert watcher.take() == [IDLE, CONNECTING, FAILURE, IDLE]


@pytest.mark.spec("SUB-04")
async def test_a_hanging_attempt_fails_after_twenty_seconds(world: SubchannelWorld) -> None:
    handle, watcher = world.watched(options=EXACT)
    await world.request(handle)
    await world.advance(19.999)
    assert watcher.take() == [IDLE, CONNECTING]
    await world.advance(0.001)
    # Its delay of 1 s has passed.
    assert watcher.take() == [FAILURE, IDLE]


@pytest.mark.spec("SUB-04")
async def test_hanging_attempt_may_take_as_long_as_its_delay(world: SubchannelWorld) -> None:
    handle, watcher = world.watched(options=EXACT)
    took_s = []
    for _ in SERIES_S:
        await world.request(handle)
        start_s = world.clock.now_s()
        while FAILURE not in watcher.take():
            assert world.clock.advance_to_next()
            await world.settle()
        took_s.append(world.clock.now_s() - start_s)
    expected_s = [max(20.0, delay_s) for delay_s in SERIES_S]
    assert took_s == pytest.approx(expected_s, abs=ROUNDING_S)


# ---------------------------------------------------------------------------------------------
# SUB-05, SUB-06: reset of the delays


@pytest.mark.spec("SUB-05")
async def test_delays_start_again_after_a_success(world: SubchannelWorld) -> None:
    handle, watcher = world.watched(options=EXACT)
    for _ in range(5):
        await world.failed(handle)
        await wait_for_idle_s(world, watcher)
    lose(await world.connected(handle))
    await world.failed(handle)
    assert await wait_for_idle_s(world, watcher) == pytest.approx(1)


def close(transport: ClientTransport) -> None:
    lose(transport)


def reset(transport: ClientTransport) -> None:
    lose(transport, "connection reset by peer")


def go_away(transport: ClientTransport) -> None:
    feed(transport, goaway(1, debug=b"server is shutting down"))


@pytest.mark.spec("SUB-05")
@pytest.mark.parametrize("loss", [close, reset, go_away])
@pytest.mark.parametrize("is_busy", [False, True])
async def test_subchannel_is_idle_without_delay_when_its_connection_is_lost(
    world: SubchannelWorld, loss: Callable[[ClientTransport], None], is_busy: bool
) -> None:
    handle, watcher = world.watched(options=EXACT)
    transport = await world.connected(handle)
    if is_busy:
        start_call(transport)
    watcher.take()
    loss(transport)
    await world.settle()
    assert watcher.take() == [IDLE]
    assert watcher.last == OK
    await world.connected(handle)
    assert watcher.take() == [CONNECTING, READY]


@pytest.mark.spec("SUB-05")
async def test_calls_continue_after_goaway(world: SubchannelWorld) -> None:
    handle = world.acquire()
    transport = await world.connected(handle)
    call = start_call(transport)
    feed(transport, goaway(1))
    await world.settle()
    assert handle.transport is None
    assert call.end is None


@pytest.mark.spec("SUB-05")
async def test_subchannel_is_ready_only_when_settings_are_received() -> None:
    network = SilentNetwork()
    async with connecting(network) as (handle, watcher, clock):
        transport = network.protocol
        assert watcher.states == [IDLE, CONNECTING]
        assert isinstance(transport, ClientTransport)
        feed(transport, settings()[:5])
        await settle(clock)
        assert watcher.states == [IDLE, CONNECTING]
        assert handle.transport is None
        feed(transport, settings()[5:])
        await settle(clock)
        assert watcher.states == [IDLE, CONNECTING, READY]


@pytest.mark.spec("SUB-06")
async def test_reset_backoff_during_backoff_leads_to_idle_at_once(world: SubchannelWorld) -> None:
    handle, watcher = world.watched(options=EXACT)
    for _ in range(4):
        await world.failed(handle)
        await wait_for_idle_s(world, watcher)
    await world.failed(handle)
    watcher.take()
    handle.reset_backoff()
    await world.settle()
    assert watcher.take() == [IDLE]
    # The next delay is the first of the series.
    await world.failed(handle)
    assert await wait_for_idle_s(world, watcher) == pytest.approx(1)


@pytest.mark.spec("SUB-06")
async def test_reset_backoff_during_an_attempt_removes_the_delay_after_it(
    world: SubchannelWorld,
) -> None:
    handle, watcher = world.watched(options=EXACT)
    for _ in range(4):
        await world.failed(handle)
        await wait_for_idle_s(world, watcher)
    attempt = await world.request(handle)
    watcher.take()
    handle.reset_backoff()
    await world.settle()
    assert watcher.take() == []
    assert not attempt.is_cancelled
    attempt.fail()
    await world.settle()
    assert watcher.take() == [FAILURE, IDLE]
    await world.failed(handle)
    assert await wait_for_idle_s(world, watcher) == pytest.approx(1)


@pytest.mark.spec("SUB-06")
@pytest.mark.parametrize("state", [IDLE, READY])
async def test_reset_backoff_changes_no_state_when_there_is_no_backoff(
    world: SubchannelWorld, state: State
) -> None:
    handle, watcher = world.watched(options=EXACT)
    await world.failed(handle)
    await wait_for_idle_s(world, watcher)
    transport = await world.connected(handle) if state is READY else None
    watcher.take()
    handle.reset_backoff()
    await world.settle()
    assert watcher.take() == []
    assert handle.transport is transport
    if transport is not None:
        lose(transport)
    await world.failed(handle)
    assert await wait_for_idle_s(world, watcher) == pytest.approx(1)


# ---------------------------------------------------------------------------------------------
# SUB-07: the error


@pytest.mark.spec("SUB-07")
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "connection refused"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "no route to host"),
        (ValueError("check_hostname requires server_hostname"), "check_hostname requires"),
    ],
)
@pytest.mark.parametrize("address", ["10.0.0.1:80", "[2001:db8::7]:443", "unix:/run/api.sock"])
async def test_status_of_a_failure_has_the_address_and_the_error(
    address: str, error: Exception, text: str
) -> None:
    async with connecting(SilentNetwork(error), parse_address(address)) as (_, watcher, _):
        assert watcher.states == [IDLE, CONNECTING, FAILURE]
        assert watcher.last.details.startswith(f"{address}: ")
        assert text in watcher.last.details


@pytest.mark.spec("SUB-07")
async def test_status_has_the_goaway_text_when_the_peer_sends_goaway_at_once() -> None:
    network = SilentNetwork()
    async with connecting(network) as (_, watcher, clock):
        assert isinstance(network.protocol, ClientTransport)
        feed(network.protocol, settings() + goaway(debug=b"full"))
        await settle(clock)
        assert watcher.states == [IDLE, CONNECTING, FAILURE]
        text = f"{ADDRESS}: peer is going away: NO_ERROR: full"
        assert watcher.last.details == text


# ---------------------------------------------------------------------------------------------
# SUB-08: watchers


@pytest.mark.spec("SUB-08")
@pytest.mark.parametrize("state", [IDLE, CONNECTING, READY, FAILURE])
async def test_new_watcher_is_notified_of_the_current_state_once_and_then_of_changes(
    world: SubchannelWorld, state: State
) -> None:
    handle, first = world.watched(options=EXACT)
    await bring_to(world, handle, state)
    watcher = Watcher()
    handle.watch(watcher)
    # The watcher was called before `watch` returned.
    assert watcher.take() == [state]
    assert watcher.last.is_ok == (state is not FAILURE)
    await world.settle()
    assert watcher.take() == []
    first.take()
    await change_state(world, handle, state)
    assert watcher.take() == first.take() != []


@pytest.mark.spec("SUB-08")
async def test_new_watcher_is_notified_of_a_pending_change_only_once(
    world: SubchannelWorld,
) -> None:
    handle = world.acquire()
    handle.request_connection()
    # The change has happened, but its notification is pending.
    watcher = Watcher()
    handle.watch(watcher)
    await world.settle()
    assert watcher.states == [CONNECTING]


@pytest.mark.spec("SUB-08")
@pytest.mark.parametrize("state", [IDLE, CONNECTING, READY, FAILURE])
async def test_cancelled_watcher_is_not_notified(world: SubchannelWorld, state: State) -> None:
    handle, other = world.watched(options=EXACT)
    await bring_to(world, handle, state)
    watcher = Watcher()
    cancel = handle.watch(watcher)
    watcher.take()
    cancel()
    other.take()
    await change_state(world, handle, state)
    assert watcher.take() == []
    assert other.take() != []


@pytest.mark.spec("SUB-08")
@pytest.mark.parametrize("ending", ["cancel", "release"])
async def test_queued_notification_is_not_delivered_after_cancel_or_release(
    world: SubchannelWorld, ending: str
) -> None:
    keeper, other = world.watched(options=EXACT)
    handle, watcher = world.acquire(options=EXACT), Watcher()
    cancel = handle.watch(watcher)
    handle.request_connection()
    # A notification is now queued for both watchers.
    if ending == "cancel":
        cancel()
    else:
        handle.release()
    await world.settle()
    assert watcher.states == [IDLE]
    assert other.states == [IDLE, CONNECTING]
    keeper.release()


async def bring_to(world: SubchannelWorld, handle: SubchannelHandle, state: State) -> None:
    if state is CONNECTING:
        await world.request(handle)
    elif state is READY:
        await world.connected(handle)
    elif state is FAILURE:
        await world.failed(handle)


async def change_state(world: SubchannelWorld, handle: SubchannelHandle, state: State) -> None:
    """Cause the next change of state."""
    if state is IDLE:
        await world.request(handle)
    elif state is CONNECTING:
        world.attempts[-1].succeed()
        await world.settle()
    elif state is READY:
        assert handle.transport is not None
        lose(handle.transport)
        await world.settle()
    else:
        await world.advance(1)


# ---------------------------------------------------------------------------------------------
# D47: the backoff of a shared subchannel


def keep_connecting(handle: SubchannelHandle) -> None:
    """Request a connection whenever there is none, as pick_first does after a failure."""

    def on_state(state: State, _: Status) -> None:
        if state is IDLE:
            handle.request_connection()

    handle.watch(on_state)


async def fail_often(world: SubchannelWorld, handle: SubchannelHandle) -> None:
    """Fail until the delay is 10.486 s, of which 10 s are left."""
    for _ in range(5):
        await world.failed(handle)
        await world.advance(7)
    await world.failed(handle)
    await world.advance(0.486)


async def test_backoff_is_reset_for_a_new_holder(world: SubchannelWorld) -> None:
    old, old_watcher = world.watched(options=EXACT)
    await fail_often(world, old)
    assert old_watcher.states[-1] is FAILURE
    new, watcher = world.acquire(options=EXACT, holder="new"), Watcher()
    new.watch(watcher)
    assert watcher.states == [IDLE]
    await world.settle()
    assert old_watcher.states[-1] is IDLE
    await world.failed(new)
    await world.advance(1)
    assert watcher.states[-2:] == [FAILURE, IDLE], "not the initial delay"


async def test_backoff_is_not_reset_for_a_holder_that_already_has_a_handle(
    world: SubchannelWorld,
) -> None:
    old = world.acquire(options=EXACT, holder="old")
    await fail_often(world, old)
    again, watcher = world.acquire(options=EXACT, holder="old"), Watcher()
    again.watch(watcher)
    assert watcher.states == [FAILURE]
    old.release()
    world.acquire(options=EXACT, holder="old").release()
    await world.advance(9.9)
    assert watcher.states == [FAILURE]
    await world.advance(0.2)
    assert watcher.states == [FAILURE, IDLE]


async def test_attempt_under_way_has_no_delay_after_it_when_a_holder_is_added(
    world: SubchannelWorld,
) -> None:
    old = world.acquire(options=EXACT, holder="old")
    await fail_often(world, old)
    await world.advance(10)
    attempt = await world.request(old)
    new, watcher = world.acquire(options=EXACT, holder="new"), Watcher()
    new.watch(watcher)
    attempt.fail()
    await world.settle()
    assert watcher.states == [CONNECTING, FAILURE, IDLE]


async def test_connection_is_kept_when_a_holder_is_added(world: SubchannelWorld) -> None:
    transport = await world.connected(world.acquire(options=EXACT, holder="old"))
    await world.advance(10)
    new, watcher = world.acquire(options=EXACT, holder="new"), Watcher()
    new.watch(watcher)
    assert watcher.states == [READY]
    assert new.transport is transport


async def test_new_holders_reset_the_backoff_once_per_initial_delay(
    world: SubchannelWorld,
) -> None:
    """A control plane moves a dead address a hundred times in 10 s."""
    first = world.acquire(options=EXACT, holder="first")
    await fail_often(world, first)
    keep_connecting(first)
    before = len(world.attempts)
    for number in range(100):
        handle = world.acquire(options=EXACT, holder=number)
        keep_connecting(handle)
        await world.settle()
        while not world.attempts[-1].outcome.done():
            world.attempts[-1].fail()
            await world.settle()
        await world.advance(0.1)
    # Per second: one attempt after a reset, and one after its delay of 1 s.
    assert 10 <= len(world.attempts) - before <= 20


async def test_new_holder_does_not_reset_the_backoff_of_a_new_subchannel(
    world: SubchannelWorld,
) -> None:
    """Channels that start together share the first attempts."""
    await world.failed(world.acquire(options=EXACT, holder="one"))
    other, watcher = world.acquire(options=EXACT, holder="other"), Watcher()
    other.watch(watcher)
    await world.advance(0.9)
    assert watcher.states == [FAILURE]
    await world.advance(0.1)
    assert watcher.states == [FAILURE, IDLE]


# ---------------------------------------------------------------------------------------------
# SUB-09: the last reference


@pytest.mark.spec("SUB-09")
async def test_only_the_last_release_cancels_the_attempt(world: SubchannelWorld) -> None:
    first, second = world.acquire(), world.acquire()
    attempt = await world.request(first)
    first.release()
    await world.settle()
    assert world.cancelled == []
    second.release()
    await world.settle()
    assert world.cancelled == [attempt]
    world.expect_nothing_left()


@pytest.mark.spec("SUB-09")
async def test_only_the_last_release_closes_the_connection(world: SubchannelWorld) -> None:
    first, second = world.acquire(), world.acquire()
    transport = await world.connected(first)
    first.release()
    await world.settle()
    assert second.transport is transport
    second.release()
    await world.settle()
    await asyncio.wait_for(transport.wait_closed(), 1)
    assert not transport.is_usable
    world.expect_nothing_left()


@pytest.mark.spec("SUB-09")
async def test_calls_under_way_finish_before_the_connection_is_closed(
    world: SubchannelWorld,
) -> None:
    handle = world.acquire()
    transport = await world.connected(handle)
    call = start_call(transport)
    handle.release()
    await world.settle()
    assert handle.transport is None
    # A stream that is started now ends as unprocessed.
    late = start_call(transport)
    assert (await late).is_unprocessed
    # Stream 1 is answered: a head with ":status 200", trailers with "grpc-status 2".
    head = b"\x88" + b"\x5f\x10application/grpc"
    trailers = b"\x00\x0bgrpc-status\x012"
    feed(transport, headers(head, 0x04) + headers(trailers, 0x05))
    assert (await call).status.code.name == "UNKNOWN"
    await world.settle()
    world.expect_nothing_left()


def headers(block: bytes, flags: int) -> bytes:
    return len(block).to_bytes(3, "big") + bytes([0x01, flags]) + b"\0\0\0\x01" + block


# ---------------------------------------------------------------------------------------------
# Fakes for tests with the real connector


class SilentNetwork(AsyncioNetwork):
    """Network that connects at once and sends nothing, or raises."""

    __slots__ = ("error", "protocol")

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.protocol: asyncio.BaseProtocol | None = None

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], P],
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        if self.error is not None:
            raise self.error
        self.protocol = protocol = protocol_factory()
        socket = FakeSocket(protocol)
        protocol.connection_made(socket)
        return socket, protocol

    def start_connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        on_failed: Callable[[OSError], None],
    ) -> None:
        return


@asynccontextmanager
async def connecting(
    network: SilentNetwork, address: Address = TEN
) -> AsyncIterator[tuple[SubchannelHandle, Watcher, VirtualClock]]:
    """A subchannel with a requested connection, and its watcher."""
    clock = VirtualClock()
    connector = Connector(network=network, clock=clock)
    async with SubchannelPool(connector, clock=clock, random=seeded_random(1)) as pool:
        handle, watcher = pool.acquire(address, EXACT), Watcher()
        handle.watch(watcher)
        handle.request_connection()
        await settle(clock)
        yield handle, watcher, clock
    await settle(clock)
    assert clock.timers_pending == 0
