"""Unit tests of proxyless.transport.attempt, on a network without sockets."""

import asyncio
import errno
import weakref
from collections.abc import Callable

import pytest

from proxyless.base import Address, Status, StatusCode
from proxyless.runtime import AsyncioNetwork, DeadlineQueue, VirtualClock
from proxyless.transport import ClientTransport, TransportOptions
from proxyless.transport.attempt import PlainAttempt
from proxyless.transport.client import LoopTools
from proxyless.transport.pump import make_read_buffer, turns_of
from proxyless.wire import ErrorCode
from tests.worlds.fake_sockets import ADDRESS, FakeSocket, feed, turn
from tests.worlds.wire import goaway, settings

OPTIONS = TransportOptions(connect_timeout_s=5.0)
REFUSED = OSError(errno.ECONNREFUSED, "Connection refused")


class CallbackNetwork(AsyncioNetwork):
    """Network on which the test connects, or fails to."""

    __slots__ = ("error", "is_cancelled", "make", "on_failed", "socket")

    def __init__(self, error: Exception | None = None) -> None:
        # Raised by `start_connect`.
        self.error = error
        self.is_cancelled = False
        self.socket: FakeSocket | None = None

    def start_connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        on_failed: Callable[[OSError], None],
    ) -> Callable[[], None]:
        if self.error is not None:
            raise self.error
        self.make, self.on_failed = protocol_factory, on_failed
        return self.cancel

    def cancel(self) -> None:
        self.is_cancelled = True

    def connect_now(self) -> ClientTransport:
        protocol = self.make()
        assert isinstance(protocol, ClientTransport)
        self.socket = FakeSocket(protocol)
        protocol.connection_made(self.socket)
        return protocol


class AttemptWorld:
    """A started attempt, and the calls that it makes."""

    def __init__(self, error: Exception | None = None) -> None:
        self.clock = VirtualClock()
        self.deadlines = DeadlineQueue(self.clock)
        self.network = CallbackNetwork(error)
        self.results: list[ClientTransport | Status | None] = []
        self.unusable: list[Status] = []
        self.tools = LoopTools(
            asyncio.get_running_loop(),
            self.clock,
            make_read_buffer(),
            self.deadlines,
            turns_of(self.clock),
        )
        self.attempt = PlainAttempt(
            self.tools, ADDRESS, OPTIONS, self.results.append, self.unusable.append
        )
        assert self.attempt.start(self.network)
        assert self.results == []

    async def expect_failure(self, text: str) -> None:
        for _ in range(3):
            await turn()
        assert self.results == [Status(StatusCode.UNAVAILABLE, f"{ADDRESS}: {text}")]
        assert self.unusable == []
        assert len(self.deadlines) == 0
        assert self.network.socket is None or self.network.socket.is_closed


async def test_connection_is_handed_over_in_the_turn_after_its_settings() -> None:
    world = AttemptWorld()
    transport = world.network.connect_now()
    feed(transport, settings())
    assert world.results == []
    await turn()
    assert world.results == [transport]
    assert len(world.deadlines) == 0
    transport.close()
    assert [status.details for status in world.unusable] == ["connection closed by us"]
    await transport.wait_closed()


async def test_attempt_fails_when_the_peer_goes_away_behind_its_settings() -> None:
    world = AttemptWorld()
    feed(world.network.connect_now(), settings() + goaway(0, ErrorCode.NO_ERROR))
    await world.expect_failure("peer is going away: NO_ERROR")


async def test_attempt_fails_when_the_connection_is_lost_before_settings() -> None:
    world = AttemptWorld()
    world.network.connect_now()
    assert world.network.socket is not None
    world.network.socket.lose()
    await world.expect_failure("connection lost: closed by peer")


async def test_attempt_fails_when_the_network_does() -> None:
    world = AttemptWorld()
    world.network.on_failed(REFUSED)
    await world.expect_failure("connection refused")


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_transport_that_was_never_connected_is_freed(is_cancelled: bool) -> None:
    world = AttemptWorld()
    freed = weakref.ref(world.network.make())
    if is_cancelled:
        world.attempt.cancel()
    else:
        world.network.on_failed(REFUSED)
    assert freed() is None
    await turn()
    assert len(world.results) == 1


async def test_attempt_fails_in_a_later_turn_when_there_is_no_socket() -> None:
    world = AttemptWorld(OSError(errno.EMFILE, "Too many open files"))
    await world.expect_failure("too many open files")


async def test_attempt_fails_and_reports_when_starting_raises() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )
    error = RuntimeError("file descriptor 7 is used by a transport")
    world = AttemptWorld(error)
    await world.expect_failure(f"connecting raised {error!r}")
    assert reported == [error]


class Owner:
    """Owner of an attempt, with its two callbacks."""

    def on_done(self, result: ClientTransport | Status | None) -> None: ...

    def on_unusable(self, status: Status) -> None: ...


async def test_owner_is_freed_while_the_cancelled_deadline_is_in_the_queue() -> None:
    world, owner = AttemptWorld(), Owner()
    attempt = PlainAttempt(world.tools, ADDRESS, OPTIONS, owner.on_done, owner.on_unusable)
    attempt.start(world.network)
    freed = weakref.ref(owner)
    del owner
    attempt.cancel()
    await turn()
    assert freed() is None
    world.attempt.cancel()


@pytest.mark.parametrize("is_connected", [False, True])
async def test_attempt_fails_after_the_timeout(is_connected: bool) -> None:
    world = AttemptWorld()
    if is_connected:
        world.network.connect_now()
    world.clock.advance(OPTIONS.connect_timeout_s)
    await world.expect_failure("no connection within 5 s")
    assert world.network.is_cancelled


async def test_attempt_succeeds_when_the_deadline_passes_in_the_turn_of_the_settings() -> None:
    world = AttemptWorld()
    transport = world.network.connect_now()
    feed(transport, settings())
    world.clock.advance(OPTIONS.connect_timeout_s)
    await turn()
    assert world.results == [transport]
    transport.close()
    await transport.wait_closed()


@pytest.mark.parametrize("is_connected", [False, True])
async def test_cancelled_attempt_is_over_after_its_socket_is_closed(is_connected: bool) -> None:
    world = AttemptWorld()
    if is_connected:
        # Settled, and not handed over yet.
        feed(world.network.connect_now(), settings())
    world.attempt.cancel()
    world.attempt.cancel()
    assert world.results == []
    assert world.network.is_cancelled
    for _ in range(3):
        await turn()
    assert world.results == [None]
    assert world.unusable == []
    assert len(world.deadlines) == 0
    assert world.network.socket is None or world.network.socket.is_closed
