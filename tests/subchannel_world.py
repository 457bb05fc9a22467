"""A world around subchannels: the clock, and every attempt to connect, are in the test's hands.

Connections are real `ClientTransport`s on sockets that lead nowhere, so closing, draining and
keepalive behave as they do outside; what the peer says is said by the test.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from struct import pack

from bench.transport_calls import UnaryCall
from proxyless.base import Address, State, Status, StatusCode, Trace, parse_address
from proxyless.channel.pool import SubchannelHandle, SubchannelPool
from proxyless.channel.subchannel_options import SubchannelOptions
from proxyless.runtime import DeadlineQueue, Random, VirtualClock, seeded_random
from proxyless.transport import ClientTransport, TransportOptions
from proxyless.transport.client import LoopTools
from proxyless.transport.pump import ReadBuffer
from proxyless.wire import RequestEncoder

IDLE, CONNECTING, READY = State.IDLE, State.CONNECTING, State.READY
FAILURE, SHUTDOWN = State.TRANSIENT_FAILURE, State.SHUTDOWN

ADDRESS = "10.0.0.1:80"
# The least that a peer says to be believed that it speaks HTTP/2.
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
DEFAULT_OPTIONS = SubchannelOptions()

# More turns of the loop than anything here takes to come to rest.
_TURNS = 20
_BUFFER = ReadBuffer()
_ENCODER = RequestEncoder(path="/test.Service/Method", authority="test.example")


class NowhereSocket(asyncio.Transport):
    """Takes every byte, and says nothing until it is closed from either side."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        # The peer reads nothing, so not all can be sent that must be sent before closing.
        self.is_stuck = False
        self._protocol = protocol
        self._is_closing = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def write(self, data: bytes | bytearray | memoryview) -> None:
        return

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self.is_stuck:
            self.abort()

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)


class Attempt:
    """One call of the connector. Driven by the test (`succeed`, `fail`) or by its own deadline."""

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
        # Cancelling comes too late, as it may for any coroutine.
        self.is_stubborn = False
        self._on_unusable = on_unusable
        self.outcome: asyncio.Future[ClientTransport | Status] = world.loop.create_future()

    def succeed(self) -> ClientTransport:
        """The handshake is done, SETTINGS are here."""
        transport = ClientTransport(self._world.transport_tools, self.options, self._on_unusable)
        transport.connection_made(NowhereSocket(transport))
        feed(transport, SETTINGS)
        self.outcome.set_result(transport)
        return transport

    def fail(self, text: str = "connection refused") -> None:
        self.outcome.set_result(Status(StatusCode.UNAVAILABLE, f"{self.address}: {text}"))

    def on_timeout(self) -> None:
        self.fail(f"no connection within {self.options.connect_timeout_s:g} s")


class Watcher:
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.states: list[State] = []
        self.last = Status(StatusCode.UNKNOWN, "nothing was told yet")

    def __call__(self, state: State, status: Status) -> None:
        self.states.append(state)
        self.last = status

    def take(self) -> list[State]:
        """What was told since the last time."""
        states, self.states = self.states, []
        return states


class SubchannelWorld:
    """A pool whose connector is the world itself. Made inside a running loop."""

    def __init__(self, random: Random, trace: Trace) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = VirtualClock()
        self.transport_tools = LoopTools(self.loop, self.clock, _BUFFER, DeadlineQueue(self.clock))
        self.pool = SubchannelPool(self, clock=self.clock, random=random, trace=trace)
        self.attempts: list[Attempt] = []

    async def connect(
        self,
        address: Address,
        options: TransportOptions,
        *,
        server_name: str | None = None,
        on_unusable: Callable[[Status], None],
    ) -> ClientTransport | Status:
        attempt = Attempt(self, address, options, server_name, on_unusable)
        self.attempts.append(attempt)
        # As a connector does: "give up after the options' time".
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

    # What policies do

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
        """A handle, and a watcher of it that was told the first state."""
        handle, watcher = self.acquire(address, options), Watcher()
        handle.watch(watcher)
        return handle, watcher

    async def request(self, handle: SubchannelHandle) -> Attempt:
        """Ask for a connection; return the attempt that this started."""
        count = len(self.attempts)
        handle.request_connection()
        await self.settle()
        assert len(self.attempts) == count + 1, "the request started no attempt"
        return self.attempts[-1]

    async def connected(self, handle: SubchannelHandle) -> ClientTransport:
        """Ask for a connection and get it."""
        transport = (await self.request(handle)).succeed()
        await self.settle()
        assert handle.transport is transport
        return transport

    async def failed(self, handle: SubchannelHandle, text: str = "connection refused") -> None:
        """Ask for a connection in vain."""
        (await self.request(handle)).fail(text)
        await self.settle()

    @property
    def cancelled(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.is_cancelled]

    # What the world does

    async def settle(self) -> None:
        await settle(self.clock)

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.settle()

    def expect_nothing_left(self) -> None:
        """No task, no connection, no subchannel, no timer."""
        assert not self.pool.connections
        assert len(self.pool) == 0
        assert self.clock.timers_pending == 0


async def settle(clock: VirtualClock) -> None:
    """Let everything happen that needs no time."""
    loop = asyncio.get_running_loop()
    for _ in range(_TURNS):
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn
        clock.advance(0)


@asynccontextmanager
async def subchannel_world(
    *, random: Random | None = None, trace: Trace | None = None
) -> AsyncIterator[SubchannelWorld]:
    """A world that must be empty after its pool was closed."""
    world = SubchannelWorld(random or seeded_random(1), trace or Trace())
    try:
        yield world
    finally:
        await world.pool.aclose()
    world.expect_nothing_left()


def feed(transport: ClientTransport, data: bytes) -> None:
    """The peer says this."""
    transport.get_buffer(-1)[: len(data)] = data
    transport.buffer_updated(len(data))


def goaway(code: int = 0, text: str = "", last_stream_id: int = 0) -> bytes:
    """A frame of the peer: streams after the last one will not be processed."""
    payload = pack(">II", last_stream_id, code) + text.encode()
    return len(payload).to_bytes(3, "big") + b"\x07\0\0\0\0\0" + payload


def lose(transport: ClientTransport, reason: str | None = None) -> None:
    """The peer is gone without a word."""
    transport.connection_lost(None if reason is None else OSError(reason))


def start_call(transport: ClientTransport) -> UnaryCall:
    """A call that nobody answers."""
    return UnaryCall(transport, _ENCODER.block(), b"")
