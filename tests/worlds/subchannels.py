"""World of subchannels: the test controls the clock and every connection attempt.

Connections are real `ClientTransport`s on sockets without a peer, so that closing, draining and
keepalive are real; the test provides the bytes of the peer.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from bench.transport_calls import UnaryCall
from proxyless.base import Address, State, Status, StatusCode, Trace, parse_address
from proxyless.channel.pool import SubchannelHandle, SubchannelPool
from proxyless.channel.subchannel_options import SubchannelOptions
from proxyless.runtime import DeadlineQueue, Random, VirtualClock, seeded_random
from proxyless.transport import ClientTransport, TransportOptions
from proxyless.transport.attempt import OnDone, TaskAttempt
from proxyless.transport.client import LoopTools
from proxyless.transport.pump import make_read_buffer, turns_of
from proxyless.wire import RequestEncoder
from tests.worlds.fake_sockets import FakeSocket, feed, turn
from tests.worlds.wire import settings

IDLE, CONNECTING, READY = State.IDLE, State.CONNECTING, State.READY
FAILURE, SHUTDOWN = State.TRANSIENT_FAILURE, State.SHUTDOWN

ADDRESS = "10.0.0.1:80"
DEFAULT_OPTIONS = SubchannelOptions()

NO_SETTINGS = settings()

# More turns of the loop than any test needs to settle.
_TURNS = 20
_BUFFER = make_read_buffer()
_ENCODER = RequestEncoder(path="/test.Service/Method", authority="test.example")


class Attempt:
    """One call of the connector. The test calls `succeed` or `fail`, or it times out."""

    def __init__(
        self,
        world: "SubchannelWorld",
        address: Address,
        options: TransportOptions,
        server_name: str | None,
        on_unusable: Callable[[Status], None],
    ) -> None:
        self._world = world
        self.address = address
        self.options = options
        self.server_name = server_name
        self.started_s = world.clock.now_s()
        self.is_cancelled = False
        # Cancellation comes too late, as can happen to any coroutine.
        self.is_stubborn = False
        self._on_unusable = on_unusable
        self.outcome: asyncio.Future[ClientTransport | Status] = world.loop.create_future()

    def succeed(self, first_bytes: bytes = NO_SETTINGS) -> ClientTransport:
        """Complete the handshake, with the peer's SETTINGS received."""
        transport = ClientTransport(self._world.transport_tools, self.options, self._on_unusable)
        transport.connection_made(FakeSocket(transport))
        feed(transport, first_bytes)
        self.outcome.set_result(transport)
        return transport

    def fail(self, text: str = "connection refused") -> None:
        self.outcome.set_result(Status(StatusCode.UNAVAILABLE, f"{self.address}: {text}"))

    def on_timeout(self) -> None:
        self.fail(f"no connection within {self.options.connect_timeout_s:g} s")


class Watcher:
    """Listener that records its notifications."""

    def __init__(self) -> None:
        self.states: list[State] = []
        self.last = Status(StatusCode.UNKNOWN, "no notification yet")

    def __call__(self, state: State, status: Status) -> None:
        self.states.append(state)
        self.last = status

    def take(self) -> list[State]:
        """Return the states since the last call."""
        states, self.states = self.states, []
        return states


class SubchannelWorld:
    """Subchannel pool whose connector is this object. Needs a running loop."""

    def __init__(self, random: Random, trace: Trace) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = VirtualClock()
        self.transport_tools = LoopTools(
            self.loop, self.clock, _BUFFER, DeadlineQueue(self.clock), turns_of(self.clock)
        )
        self.pool = SubchannelPool(self, clock=self.clock, random=random, trace=trace)
        self.attempts: list[Attempt] = []

    def start(
        self,
        address: Address,
        options: TransportOptions,
        *,
        server_name: str | None = None,
        on_done: OnDone,
        on_unusable: Callable[[Status], None],
    ) -> TaskAttempt:
        connect = partial(self._connect, address, options, server_name, on_unusable)
        return TaskAttempt(self.loop, address, connect, on_done)

    async def _connect(
        self,
        address: Address,
        options: TransportOptions,
        server_name: str | None,
        on_unusable: Callable[[Status], None],
    ) -> ClientTransport | Status:
        attempt = Attempt(self, address, options, server_name, on_unusable)
        self.attempts.append(attempt)
        # A connector must enforce the timeout of the options.
        timer = self.clock.call_later(options.connect_timeout_s, attempt.on_timeout)
        try:
            return await asyncio.shield(attempt.outcome)
        except asyncio.CancelledError:
            attempt.is_cancelled = True
            if attempt.is_stubborn:
                return attempt.outcome.result()
            raise
        finally:
            timer.cancel()

    # Actions of policies

    def acquire(
        self,
        address: str = ADDRESS,
        options: SubchannelOptions = DEFAULT_OPTIONS,
        holder: object = None,
    ) -> SubchannelHandle:
        return self.pool.acquire(parse_address(address), options, holder=holder)

    def watched(
        self, address: str = ADDRESS, options: SubchannelOptions = DEFAULT_OPTIONS
    ) -> tuple[SubchannelHandle, Watcher]:
        """Return a handle and its watcher, which has recorded the initial state."""
        handle, watcher = self.acquire(address, options), Watcher()
        handle.watch(watcher)
        return handle, watcher

    async def request(self, handle: SubchannelHandle) -> Attempt:
        """Request a connection, and return the attempt."""
        count = len(self.attempts)
        handle.request_connection()
        await self.settle()
        assert len(self.attempts) == count + 1, "the request started no attempt"
        return self.attempts[-1]

    async def connected(self, handle: SubchannelHandle) -> ClientTransport:
        """Request a connection that succeeds."""
        transport = (await self.request(handle)).succeed()
        await self.settle()
        assert handle.transport is transport
        return transport

    async def failed(self, handle: SubchannelHandle, text: str = "connection refused") -> None:
        """Request a connection that fails."""
        (await self.request(handle)).fail(text)
        await self.settle()

    @property
    def cancelled(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.is_cancelled]

    # Time and checks

    async def settle(self) -> None:
        await settle(self.clock)

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.settle()

    def expect_nothing_left(self) -> None:
        """Check that there are no connections, subchannels or timers."""
        assert not self.pool.connections
        assert len(self.pool) == 0
        assert self.clock.timers_pending == 0


async def settle(clock: VirtualClock) -> None:
    """Run the loop until nothing is left that is due now."""
    for _ in range(_TURNS):
        await turn()
        clock.advance(0)


@asynccontextmanager
async def subchannel_world(
    *, random: Random | None = None, trace: Trace | None = None
) -> AsyncIterator[SubchannelWorld]:
    """Create a world, and check that it is empty after its pool is closed."""
    world = SubchannelWorld(random or seeded_random(1), trace or Trace())
    try:
        yield world
    finally:
        await world.pool.aclose()
    world.expect_nothing_left()


def lose(transport: ClientTransport, reason: str | None = None) -> None:
    """Lose the connection."""
    transport.connection_lost(None if reason is None else OSError(reason))


def start_call(transport: ClientTransport) -> UnaryCall:
    """Start a call that gets no response."""
    return UnaryCall(transport, _ENCODER.block(), b"")
