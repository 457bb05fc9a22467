"""Several connections of one subchannel, because of the peer's MAX_CONCURRENT_STREAMS.

Specs: A105. The world controls the clock and every connection attempt; the connections are real.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bench.transport_calls import UnaryCall
from proxyless.assembly import default_policies
from proxyless.base import BackoffPolicy, StatusCode, ValidationErrors
from proxyless.channel.pool import SubchannelHandle
from proxyless.channel.service_config import parse_service_config
from proxyless.channel.subchannel_options import SubchannelOptions
from proxyless.lb.connection_limit import (
    CONNECTION_LIMIT,
    SERVICE_CONFIG_GUARD,
    XDS_GUARD,
    ConnectionLimit,
)
from proxyless.transport import ClientTransport
from proxyless.wire import ErrorCode
from proxyless.wire import frames as kinds
from tests.worlds.fake_sockets import feed
from tests.worlds.meshes import MeshWorld
from tests.worlds.subchannels import (
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
from tests.worlds.wire import answer, goaway, settings
from tests.worlds.xds_messages import cluster as cluster_message
from tests.worlds.xds_messages import parsed_cluster, refused_cluster
from tests.worlds.xds_resources import endpoints, route_config

EXACT = SubchannelOptions(backoff=BackoffPolicy(jitter=0))
A = "10.0.0.1:80"
# The stream id of the first call on a connection; each further one has the next odd number.
FIRST, SECOND = 1, 3


@pytest.fixture
async def world() -> AsyncIterator[SubchannelWorld]:
    async with subchannel_world() as world:
        yield world


def scaled(
    world: SubchannelWorld, maximum: int, cap: int = 10
) -> tuple[SubchannelHandle, Watcher, ConnectionLimit]:
    """A handle of a channel that allows this many connections."""
    handle, watcher = world.watched(options=EXACT)
    handle.connection_limit = ConnectionLimit(maximum)
    handle.connections_cap = cap
    return handle, watcher, handle.connection_limit


def limit_streams(transport: ClientTransport, streams: int = 1) -> ClientTransport:
    feed(transport, settings((kinds.MAX_CONCURRENT_STREAMS, streams)))
    return transport


async def connected(
    world: SubchannelWorld, handle: SubchannelHandle, streams: int = 1
) -> ClientTransport:
    """The first connection, to a peer with this limit."""
    return limit_streams(await world.connected(handle), streams)


async def connected_again(world: SubchannelWorld, streams: int = 1) -> ClientTransport:
    """Let the last attempt succeed, with a peer that has this limit from the start."""
    # As a peer does, the limit comes in the first SETTINGS.
    await world.settle()
    attempt = world.attempts[-1]
    transport = attempt.succeed(settings((kinds.MAX_CONCURRENT_STREAMS, streams)))
    await world.settle()
    return transport


def call(handle: SubchannelHandle) -> UnaryCall:
    """Start a call in the way of an RPC: on the transport of the picked subchannel."""
    assert handle.transport is not None
    return start_call(handle.transport)


def streams_of(*transports: ClientTransport) -> list[int]:
    """The number of calls that each connection has opened."""
    return [each.streams_started for each in transports]


# Configuration


def parse_maximum(config: object) -> int:
    errors = ValidationErrors()
    parsed = parse_service_config(config, errors, default_policies())
    errors.raise_if_any("service config")
    return parsed.connections_max


@pytest.mark.spec("A105-02")
@pytest.mark.parametrize(
    ("scaling", "maximum"),
    [
        ({}, 1),
        ({"maxConnectionsPerSubchannel": 0}, 1),
        ({"maxConnectionsPerSubchannel": 5}, 5),
        ({"maxConnectionsPerSubchannel": "5"}, 5),
        ({"maxConnectionsPerSubchannel": 4_000_000_000}, 4_000_000_000),
    ],
)
def test_service_config_sets_the_maximum(
    scaling: object, maximum: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"connectionScaling": scaling}
    assert parse_maximum(config) == 1
    monkeypatch.setenv(SERVICE_CONFIG_GUARD, "true")
    assert parse_maximum(config) == maximum
    assert parse_maximum({}) == 1


@pytest.mark.spec("A105-02")
@pytest.mark.parametrize("maximum", [-1, 1.5, "many", 2**32])
def test_service_config_with_an_invalid_maximum_is_rejected(
    maximum: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVICE_CONFIG_GUARD, "true")
    with pytest.raises(ValueError, match=r"connectionScaling\.maxConnectionsPerSubchannel"):
        parse_maximum({"connectionScaling": {"maxConnectionsPerSubchannel": maximum}})


def cluster_with(*thresholds: dict[str, Any]) -> Any:  # noqa: ANN401
    return cluster_message(name="a", circuit_breakers={"per_host_thresholds": list(thresholds)})


ENABLED = {XDS_GUARD: "true"}
FIVE, SIX = {"max_connections": {"value": 5}}, {"max_connections": {"value": 6}}


@pytest.mark.spec("A105-03")
@pytest.mark.parametrize(
    ("thresholds", "maximum"),
    [
        ([], 1),
        ([{}], 1),
        ([FIVE, SIX], 5),
        ([{"priority": "HIGH", **FIVE}, SIX], 6),
        ([{}, SIX], 1),
    ],
)
def test_cluster_sets_the_maximum_for_its_endpoints(
    thresholds: list[dict[str, Any]], maximum: int
) -> None:
    message = cluster_with(*thresholds)
    assert parsed_cluster(message).max_connections_per_subchannel == 1
    assert parsed_cluster(message, ENABLED).max_connections_per_subchannel == maximum


@pytest.mark.spec("A105-03")
def test_cluster_with_a_maximum_of_0_is_rejected() -> None:
    message = cluster_with({"priority": "HIGH"}, {"max_connections": {"value": 0}})
    path = "circuit_breakers.per_host_thresholds[1].max_connections"
    assert f"{path} error:is 0, wanted 1 or more" in refused_cluster(message, ENABLED)


@pytest.mark.spec("A105-03", "A105-04")
def test_subchannels_of_a_cluster_follow_its_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(XDS_GUARD, "true")
    world = MeshWorld()
    cluster = parsed_cluster(cluster_with(FIVE), ENABLED)
    world.start(route_config("a"), cluster, endpoints("a", A))
    world.call()
    [handle] = world.backend(A).handles
    limit = handle.attributes.get(CONNECTION_LIMIT)
    assert limit is not None
    assert handle.connection_limit is limit
    assert limit.value == 5
    world.publish(parsed_cluster(cluster_with(SIX), ENABLED))
    assert limit.value == 6
    world.publish(parsed_cluster(cluster_with(), ENABLED))
    assert limit.value == 1
    assert list(world.backend(A).handles) == [handle]


# The maximum


@pytest.mark.spec("A105-01")
async def test_calls_wait_on_one_connection_by_default(world: SubchannelWorld) -> None:
    handle, _ = world.watched()
    first = await connected(world, handle)
    calls = [call(handle) for _ in range(3)]
    await world.settle()
    assert len(world.attempts) == 1
    feed(first, answer(FIRST, b"a"))
    assert calls[0].message == b"a"
    assert streams_of(first) == [2]


@pytest.mark.spec("A105-02")
@pytest.mark.parametrize(("maximum", "cap", "connections"), [(3, 10, 3), (3, 2, 2), (99, 10, 10)])
async def test_maximum_is_bounded_by_that_of_the_channel(
    world: SubchannelWorld, maximum: int, cap: int, connections: int
) -> None:
    handle, _, _ = scaled(world, maximum, cap)
    transports = [await connected(world, handle)]
    calls = [call(handle) for _ in range(20)]
    while len(transports) < len(world.attempts) + 1 and len(transports) < connections:
        transports.append(await connected_again(world))
    assert len(world.attempts) == connections
    assert streams_of(*transports) == [1] * connections
    assert [each.end for each in calls] == [None] * 20


@pytest.mark.spec("A105-04")
async def test_raised_maximum_connects_at_once_if_calls_wait(world: SubchannelWorld) -> None:
    handle, _, limit = scaled(world, 1)
    first = await connected(world, handle)
    calls = [call(handle) for _ in range(2)]
    await world.settle()
    assert len(world.attempts) == 1
    limit.set(2)
    second = await connected_again(world)
    assert len(world.attempts) == 2
    assert streams_of(first, second) == [1, 1]
    assert all(each.end is None for each in calls)


@pytest.mark.spec("A105-04")
async def test_lowered_maximum_closes_no_connection(world: SubchannelWorld) -> None:
    handle, _, limit = scaled(world, 2)
    first = await connected(world, handle)
    calls = [call(handle) for _ in range(2)]
    second = await connected_again(world)
    limit.set(1)
    calls.append(call(handle))
    await world.settle()
    assert first.is_usable
    assert second.is_usable
    assert len(world.attempts) == 2
    feed(second, answer(FIRST, b"a"))
    assert streams_of(first, second) == [1, 2]


@pytest.mark.spec("A105-04")
async def test_channel_with_a_larger_maximum_connects_at_once_if_calls_of_another_wait(
    world: SubchannelWorld,
) -> None:
    handle, _, _ = scaled(world, 1)
    first = await connected(world, handle)
    calls = [call(handle), call(handle)]
    await world.settle()
    assert len(world.attempts) == 1
    scaled(world, 2)
    second = await connected_again(world)
    assert streams_of(first, second) == [1, 1]
    assert all(each.end is None for each in calls)


@pytest.mark.spec("A105-04")
async def test_shared_subchannel_has_the_largest_maximum_of_its_channels(
    world: SubchannelWorld,
) -> None:
    handle, _, _ = scaled(world, 1)
    other, _, _ = scaled(world, 2)
    await connected(world, handle)
    calls = [call(handle) for _ in range(3)]
    second = await connected_again(world)
    assert handle.subchannel is other.subchannel
    assert streams_of(second) == [1]
    other.release()
    lose(second)
    await world.settle()
    assert len(world.attempts) == 2
    assert calls[2].end is None


# Connections


@pytest.mark.spec("A105-05", "A105-08")
async def test_another_connection_is_opened_only_when_calls_wait(world: SubchannelWorld) -> None:
    handle, watcher, _ = scaled(world, 3)
    first = await connected(world, handle, streams=2)
    calls = [call(handle), call(handle)]
    await world.settle()
    assert len(world.attempts) == 1
    calls += [call(handle) for _ in range(3)]
    await world.settle()
    # One attempt at a time, however many calls wait.
    assert len(world.attempts) == 2
    second = await connected_again(world)
    assert len(world.attempts) == 3
    third = await connected_again(world, streams=100)
    assert streams_of(first, second, third) == [2, 1, 2]
    assert watcher.take() == [IDLE, CONNECTING, READY]


@pytest.mark.spec("A105-05")
async def test_many_waiting_calls_are_distributed_over_all_connections(
    world: SubchannelWorld,
) -> None:
    """More calls than one turn of the loop opens."""
    handle, _, _ = scaled(world, 3)
    transports = [await connected(world, handle, streams=10)]
    calls = [call(handle) for _ in range(20_000)]
    transports += [await connected_again(world, streams=8_000) for _ in range(2)]
    assert streams_of(*transports) == [10, 8_000, 8_000]
    assert len(world.attempts) == 3
    for each in calls:
        each.cancel()
    await world.settle()


@pytest.mark.spec("A105-06")
async def test_call_uses_the_oldest_connection_that_has_a_free_stream(
    world: SubchannelWorld,
) -> None:
    handle, _, _ = scaled(world, 2)
    first = await connected(world, handle)
    calls = [call(handle), call(handle)]
    second = await connected_again(world, streams=3)
    assert streams_of(first, second) == [1, 1]
    calls.append(call(handle))
    assert streams_of(first, second) == [1, 2]
    feed(first, answer(FIRST, b"a"))
    calls.append(call(handle))
    assert streams_of(first, second) == [2, 2]
    assert [each.message for each in calls] == [b"a", None, None, None]


@pytest.mark.spec("A105-07")
async def test_waiting_calls_are_opened_in_order_on_any_connection(world: SubchannelWorld) -> None:
    handle, _, _ = scaled(world, 2)
    first = await connected(world, handle)
    calls = [call(handle), call(handle)]
    second = await connected_again(world)
    calls += [call(handle) for _ in range(3)]
    feed(second, answer(FIRST, b"1"))
    feed(second, answer(SECOND, b"2"))
    feed(first, answer(FIRST, b"0"))
    feed(first, answer(SECOND, b"4"))
    feed(second, answer(SECOND + 2, b"3"))
    assert [each.message for each in calls] == [b"0", b"1", b"2", b"3", b"4"]
    # All have ended, so the next one is opened at once.
    call(handle)
    assert streams_of(first, second) == [3, 3]


@pytest.mark.spec("A105-07")
async def test_waiting_calls_are_opened_when_a_peer_raises_its_limit(
    world: SubchannelWorld,
) -> None:
    handle, _, _ = scaled(world, 2)
    first = await connected(world, handle)
    calls = [call(handle), call(handle)]
    second = await connected_again(world)
    calls += [call(handle) for _ in range(4)]
    limit_streams(second, 3)
    assert streams_of(first, second) == [1, 3]
    limit_streams(first, 2)
    assert streams_of(first, second) == [2, 3]
    assert all(each.end is None for each in calls)


@pytest.mark.spec("A105-07")
async def test_cancelled_call_that_waits_is_never_opened(world: SubchannelWorld) -> None:
    handle, _, _ = scaled(world, 2)
    first = await connected(world, handle)
    calls = [call(handle) for _ in range(4)]
    second = await connected_again(world)
    calls[2].cancel()
    # The connection that the calls waited on first is lost.
    lose(first)
    calls[3].cancel()
    feed(second, answer(FIRST, b"1"))
    assert [each.message for each in calls] == [None, b"1", None, None]
    assert streams_of(second) == [1]


# Failures


@pytest.mark.spec("A105-08", "A105-09")
async def test_failed_attempt_is_followed_by_backoff_while_ready(world: SubchannelWorld) -> None:
    handle, watcher, _ = scaled(world, 2)
    first = await connected(world, handle)
    calls = [call(handle), call(handle)]
    for delay_s in (1.0, 1.6):
        await world.settle()
        world.attempts[-1].fail()
        count = len(world.attempts)
        await world.advance(delay_s - 0.01)
        calls.append(call(handle))
        assert len(world.attempts) == count
        await world.advance(0.01)
        assert len(world.attempts) == count + 1
    # Success resets the backoff.
    second = await connected_again(world)
    lose(second)
    await world.settle()
    count = len(world.attempts)
    world.attempts[-1].fail()
    await world.advance(1.0)
    assert len(world.attempts) == count + 1
    assert watcher.take() == [IDLE, CONNECTING, READY]
    assert streams_of(first) == [1]


@pytest.mark.spec("A105-08")
async def test_attempt_does_not_follow_a_backoff_if_no_call_waits(world: SubchannelWorld) -> None:
    handle, _, _ = scaled(world, 2)
    await connected(world, handle)
    calls = [call(handle), call(handle)]
    await world.settle()
    world.attempts[-1].fail()
    await world.settle()
    calls[1].cancel()
    await world.advance(100.0)
    assert len(world.attempts) == 2


@pytest.mark.spec("A105-08")
async def test_reset_of_the_backoff_connects_at_once(world: SubchannelWorld) -> None:
    handle, _, _ = scaled(world, 2)
    await connected(world, handle)
    calls = [call(handle), call(handle)]
    await world.settle()
    world.attempts[-1].fail()
    await world.settle()
    handle.reset_backoff()
    await world.settle()
    assert len(world.attempts) == 3
    assert calls[1].end is None


@pytest.mark.spec("A105-09")
async def test_subchannel_stays_ready_while_a_connection_is_left(world: SubchannelWorld) -> None:
    handle, watcher, _ = scaled(world, 2)
    first = await connected(world, handle)
    calls = [call(handle), call(handle), call(handle)]
    second = await connected_again(world)
    feed(first, goaway(FIRST, ErrorCode.NO_ERROR))
    await world.settle()
    assert handle.transport is second
    assert watcher.take() == [IDLE, CONNECTING, READY]
    # The call that waited replaces the lost connection.
    third = await connected_again(world)
    assert streams_of(second, third) == [1, 1]
    # The calls of the first connection continue.
    feed(first, answer(FIRST, b"0"))
    assert [each.message for each in calls] == [b"0", None, None]


@pytest.mark.spec("A105-09")
async def test_subchannel_is_connecting_if_the_last_connection_is_lost_during_an_attempt(
    world: SubchannelWorld,
) -> None:
    handle, watcher, _ = scaled(world, 2)
    first = await connected(world, handle)
    calls = [call(handle), call(handle)]
    await world.settle()
    lose(first)
    await world.settle()
    assert watcher.take() == [IDLE, CONNECTING, READY, CONNECTING]
    assert len(world.attempts) == 2
    second = await connected_again(world)
    assert handle.transport is second
    assert watcher.take() == [READY]
    assert all(each.end is not None for each in calls)


@pytest.mark.spec("A105-09")
async def test_subchannel_fails_if_the_last_connection_is_lost_during_a_backoff(
    world: SubchannelWorld,
) -> None:
    handle, watcher, _ = scaled(world, 2)
    first = await connected(world, handle)
    call(handle)
    call(handle)
    await world.settle()
    world.attempts[-1].fail("no more ports")
    await world.settle()
    lose(first)
    await world.settle()
    assert watcher.take() == [IDLE, CONNECTING, READY, FAILURE]
    assert "no more ports" in watcher.last.details
    await world.advance(1.0)
    assert watcher.take() == [IDLE]


@pytest.mark.spec("A105-10")
async def test_waiting_calls_fail_unprocessed_when_the_last_connection_is_lost(
    world: SubchannelWorld,
) -> None:
    handle, _, _ = scaled(world, 2)
    first = await connected(world, handle)
    calls = [call(handle), call(handle), call(handle)]
    second = await connected_again(world)
    lose(first)
    assert calls[2]._stream.connection is second.wire  # noqa: SLF001 - still waits
    lose(second)
    end = calls[2].end
    assert end is not None
    assert end.status.code is StatusCode.UNAVAILABLE
    assert end.is_unprocessed
    await world.settle()


@pytest.mark.spec("A105-05")
async def test_release_ends_all_connections_and_the_attempt(world: SubchannelWorld) -> None:
    handle, _, _ = scaled(world, 3)
    first = await connected(world, handle)
    calls = [call(handle), call(handle), call(handle)]
    second = await connected_again(world)
    handle.release()
    await world.settle()
    assert world.cancelled == [world.attempts[2]]
    assert calls[2].end is not None
    assert not first.is_usable
    assert not second.is_usable
    for each in calls[:2]:
        each.cancel()
    await world.settle()
    world.expect_nothing_left()
