"""The vocabulary of the transport's unit tests: sockets that lead nowhere, and what they heard.

The loop is real, because futures need one, but nothing waits for anything: time is a
`VirtualClock`, and a turn of the loop is taken where the test says so.
"""

import asyncio

from bench.transport_calls import StreamingCall, UnaryCall
from proxyless.base import Address, IpAddress, Status
from proxyless.runtime import DeadlineQueue, VirtualClock
from proxyless.transport import ClientTransport, TransportOptions
from proxyless.transport.client import LoopTools
from proxyless.transport.pump import Pump, ReadBuffer
from proxyless.wire import RequestEncoder
from tests.wire_world import PREFACE, Heard, read_frames, settings, settings_ack

ADDRESS: Address = IpAddress("192.0.2.1", 443)
BLOCK = RequestEncoder(path="/test.Service/Method", authority="test.example").block()
ONE_BUFFER = ReadBuffer()


async def turn() -> None:
    """Let the loop do what it was asked to do soon."""
    loop = asyncio.get_running_loop()
    taken = loop.create_future()
    loop.call_soon(taken.set_result, None)
    await taken


class FakeSocket(asyncio.Transport):
    """Takes bytes and keeps them. Closed by either side, the protocol hears of it a turn later."""

    def __init__(
        self, protocol: asyncio.BaseProtocol, extra: dict[str, object] | None = None
    ) -> None:
        super().__init__(extra)
        self.writes: list[bytes] = []
        self.write_buffer_high: int | None = None
        self.is_closed = False
        self.is_aborted = False
        # The peer does not read, so what is to be sent before closing never is.
        self.is_stuck = False
        # The kernel takes no bytes any more, as after the peer's RST.
        self.is_broken = False
        self._protocol = protocol
        self._is_lost = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.write_buffer_high = high

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed, "nothing is written to a closed socket"
        if self.is_broken:
            self.lose(BrokenPipeError("broken pipe"))
            return
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True
        if not self.is_stuck:
            self.lose()

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True
        self.lose()

    def lose(self, error: Exception | None = None) -> None:
        """The connection is gone, for this reason."""
        self.is_closed = True
        if not self._is_lost:
            self._is_lost = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)


def feed(pump: Pump, data: bytes) -> None:
    """Bytes came from the peer."""
    view = pump.get_buffer(-1)
    assert len(data) <= len(view)
    view[: len(data)] = data
    pump.buffer_updated(len(data))


def is_over(call: UnaryCall | StreamingCall) -> bool:
    return call.end is not None


class Ended:
    """The socket under a pump, and everything said on it."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self.socket = FakeSocket(pump)
        self._writes_heard = 0

    def say(self, *pieces: bytes) -> None:
        feed(self._pump, b"".join(pieces))

    def hear_writes(self) -> list[Heard]:
        """The frames of each write since the last time."""
        writes = self.socket.writes[self._writes_heard :]
        self._writes_heard = len(self.socket.writes)
        return [Heard(list(read_frames(write.removeprefix(PREFACE)))) for write in writes]

    def hear(self) -> Heard:
        """All frames since the last time."""
        return Heard([frame for write in self.hear_writes() for frame in write.frames])


class ClientWorld(Ended):
    """A client's transport on a socket, with a peer that has greeted it unless told otherwise."""

    def __init__(
        self,
        options: TransportOptions | None = None,
        *,
        greet: bool = True,
        announce: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.clock = VirtualClock(100.0)
        self.deadlines = DeadlineQueue(self.clock)
        self.unusable: list[Status] = []
        loop = asyncio.get_running_loop()
        tools = LoopTools(loop, self.clock, ONE_BUFFER, self.deadlines)
        self.transport = ClientTransport(tools, options or TransportOptions(), self.unusable.append)
        super().__init__(self.transport)
        if greet:
            self.transport.connection_made(self.socket)
            self.say(settings(*announce), settings_ack())
            self.hear()

    def expect_unusable(self, text: str) -> None:
        """The owner was told once, with these details."""
        assert [status.details for status in self.unusable] == [text]
        assert not self.transport.is_usable
