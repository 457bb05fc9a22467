"""Unit tests of proxyless.channel.subchannel_metrics, with the transports of subchannels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyless.base import EMPTY_ATTRIBUTES
from proxyless.channel.subchannel_metrics import name_disconnect
from proxyless.channel.subchannel_options import SubchannelOptions
from proxyless.lb.attributes import BACKEND_SERVICE, LOCALITY_LABEL
from proxyless.lb.connection_limit import ConnectionLimit
from proxyless.metrics import Metrics
from proxyless.metrics.instruments import (
    SUBCHANNEL_ATTEMPTS_FAILED,
    SUBCHANNEL_ATTEMPTS_SUCCEEDED,
    SUBCHANNEL_DISCONNECTIONS,
    SUBCHANNEL_OPEN_CONNECTIONS,
)
from proxyless.transport import TransportOptions
from proxyless.wire.frames import MAX_CONCURRENT_STREAMS, encode_goaway
from tests.worlds.fake_sockets import feed
from tests.worlds.stats_plugins import TARGET, RecordingPlugin
from tests.worlds.subchannels import SubchannelWorld, start_call, subchannel_world
from tests.worlds.wire import settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from proxyless.channel.pool import SubchannelHandle
    from proxyless.transport import ClientTransport

LABELS = EMPTY_ATTRIBUTES.with_(BACKEND_SERVICE, "orders").with_(LOCALITY_LABEL, "here")
ENDPOINT = ("orders", "here")
ENHANCE_YOUR_CALM = 0xB
NOT_DEFINED = 0xFFFF


class SubchannelMeasurements:
    """A measured subchannel, and its measurements."""

    def __init__(self, world: SubchannelWorld) -> None:
        self.world = world
        self.plugin = RecordingPlugin()
        self.handle: SubchannelHandle = world.acquire()
        self.handle.measure(self.plugin.metrics, LABELS)

    async def connect(self) -> ClientTransport:
        return await self.world.connected(self.handle)

    @property
    def attempts(self) -> tuple[int, int]:
        """Attempts that succeeded and that failed."""
        succeeded = self.plugin.counts(SUBCHANNEL_ATTEMPTS_SUCCEEDED)
        failed = self.plugin.counts(SUBCHANNEL_ATTEMPTS_FAILED)
        assert set(succeeded) | set(failed) <= {(TARGET, *ENDPOINT)}
        return sum(succeeded.values()), sum(failed.values())

    @property
    def open(self) -> int:
        return self.plugin.count_of(SUBCHANNEL_OPEN_CONNECTIONS)

    @property
    def disconnections(self) -> dict[str, int]:
        """Disconnections by error."""
        counts = self.plugin.counts(SUBCHANNEL_DISCONNECTIONS)
        assert {labels[:-1] for labels in counts} <= {(TARGET, *ENDPOINT)}
        return {labels[-1]: count for labels, count in counts.items()}


@pytest.fixture
async def measured() -> AsyncIterator[SubchannelMeasurements]:
    async with subchannel_world() as world:
        yield SubchannelMeasurements(world)


@pytest.mark.spec("A94-01", "A94-04", "A94-05")
async def test_a_connection_is_an_attempt_that_succeeded_and_is_open(
    measured: SubchannelMeasurements,
) -> None:
    await measured.connect()
    assert measured.attempts == (1, 0)
    opened = measured.plugin.counts(SUBCHANNEL_OPEN_CONNECTIONS)
    assert opened == {(TARGET, "none", *ENDPOINT): 1}
    assert measured.disconnections == {}


@pytest.mark.spec("A94-01")
async def test_a_failed_attempt_is_counted_as_failed(measured: SubchannelMeasurements) -> None:
    await measured.world.failed(measured.handle)
    assert (measured.attempts, measured.open, measured.disconnections) == ((0, 1), 0, {})


@pytest.mark.spec("A94-02")
async def test_an_attempt_is_not_counted_when_its_subchannel_is_shut_down(
    measured: SubchannelMeasurements,
) -> None:
    attempt = await measured.world.request(measured.handle)
    attempt.is_stubborn = True
    attempt.succeed()
    measured.handle.release()
    await measured.world.settle()
    assert (measured.attempts, measured.open, measured.disconnections) == ((0, 0), 0, {})


@pytest.mark.spec("A94-03")
async def test_a_released_connection_is_a_shutdown(measured: SubchannelMeasurements) -> None:
    await measured.connect()
    measured.handle.release()
    await measured.world.settle()
    assert (measured.open, measured.disconnections) == (0, {"subchannel shutdown": 1})


@pytest.mark.spec("A94-03")
@pytest.mark.parametrize(
    ("code", "error"), [(0, "GOAWAY NO_ERROR"), (ENHANCE_YOUR_CALM, "GOAWAY ENHANCE_YOUR_CALM")]
)
async def test_the_error_is_the_first_one_when_goaway_is_followed_by_a_reset(
    measured: SubchannelMeasurements, code: int, error: str
) -> None:
    transport = await measured.connect()
    feed(transport, encode_goaway(0, code, b""))
    transport.connection_lost(ConnectionResetError("reset"))
    await measured.world.settle()
    assert (measured.open, measured.disconnections) == (0, {error: 1})


@pytest.mark.spec("A94-03")
@pytest.mark.parametrize(
    ("exc", "error"),
    [
        (ConnectionResetError("reset"), "connection reset"),
        (TimeoutError("timed out"), "connection timed out"),
        (ConnectionAbortedError("aborted"), "connection aborted"),
        (BrokenPipeError("broken pipe"), "socket error"),
        (None, "unknown"),
    ],
)
async def test_the_error_of_a_lost_connection_is_that_of_its_socket(
    measured: SubchannelMeasurements, exc: Exception | None, error: str
) -> None:
    transport = await measured.connect()
    transport.connection_lost(exc)
    await measured.world.settle()
    assert (measured.open, measured.disconnections) == (0, {error: 1})
    await measured.connect()
    assert (measured.open, measured.attempts) == (1, (2, 0))


@pytest.mark.spec("A94-04")
@pytest.mark.parametrize(
    ("address", "is_local_only", "level"),
    [
        ("unix:/run/orders", True, "privacy_and_integrity"),
        ("unix:/run/orders", False, "none"),
        ("127.0.0.1:80", True, "none"),
    ],
)
async def test_a_unix_socket_is_private_with_local_credentials(
    address: str, is_local_only: bool, level: str
) -> None:
    plugin = RecordingPlugin()
    options = SubchannelOptions(transport=TransportOptions(is_local_only=is_local_only))
    async with subchannel_world() as world:
        handle = world.acquire(address, options)
        handle.measure(plugin.metrics, LABELS)
        await world.connected(handle)
        opened = plugin.counts(SUBCHANNEL_OPEN_CONNECTIONS)
        assert opened == {(TARGET, level, *ENDPOINT): 1}
    assert plugin.count_of(SUBCHANNEL_OPEN_CONNECTIONS) == 0


def test_a_goaway_code_that_is_not_defined_is_unknown() -> None:
    assert name_disconnect(NOT_DEFINED) == "unknown"


@pytest.mark.spec("A94-06")
async def test_a_shared_subchannel_is_counted_once_with_the_labels_of_the_first(
    measured: SubchannelMeasurements,
) -> None:
    other = RecordingPlugin()
    second = measured.world.acquire()
    second.measure(Metrics("dns:///other", [other]), EMPTY_ATTRIBUTES)
    assert second.subchannel is measured.handle.subchannel
    await measured.connect()
    measured.handle.release()
    assert (measured.open, measured.disconnections, other.order) == (1, {}, [])
    second.release()
    assert (measured.open, other.order) == (0, [])


async def test_an_open_connection_is_counted_when_a_measured_channel_begins_to_use_it() -> None:
    async with subchannel_world() as world:
        handle = world.acquire()
        await world.connected(handle)
        plugin = RecordingPlugin()
        handle.measure(plugin.metrics, LABELS)
        assert plugin.count_of(SUBCHANNEL_OPEN_CONNECTIONS) == 1
        assert plugin.count_of(SUBCHANNEL_ATTEMPTS_SUCCEEDED) == 0


# Several connections


@pytest.mark.spec("A105-11")
async def test_all_connections_of_a_subchannel_are_counted(
    measured: SubchannelMeasurements,
) -> None:
    world, handle = measured.world, measured.handle
    handle.connection_limit, handle.connections_cap = ConnectionLimit(3), 3
    first = await measured.connect()
    feed(first, settings((MAX_CONCURRENT_STREAMS, 1)))
    calls = [start_call(first) for _ in range(3)]
    await world.settle()
    second = world.attempts[-1].succeed(settings((MAX_CONCURRENT_STREAMS, 1)))
    await world.settle()
    assert (measured.attempts, measured.open) == ((2, 0), 2)
    world.attempts[-1].fail()
    await world.settle()
    assert (measured.attempts, measured.open) == ((2, 1), 2)
    late = RecordingPlugin()
    handle.subchannel.meter = None
    handle.measure(late.metrics, LABELS)
    assert late.count_of(SUBCHANNEL_OPEN_CONNECTIONS) == 2
    feed(first, encode_goaway(1, 0, b""))
    await world.settle()
    assert late.count_of(SUBCHANNEL_OPEN_CONNECTIONS) == 1
    assert late.count_of(SUBCHANNEL_DISCONNECTIONS) == 1
    handle.release()
    await world.settle()
    assert late.count_of(SUBCHANNEL_OPEN_CONNECTIONS) == 0
    assert not second.is_usable
    for call in calls:
        call.cancel()
