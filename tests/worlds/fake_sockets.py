"""Client transport on a fake socket, which records what is written.

The loop is real, because futures need one. Time is a `VirtualClock`, and tests await `turn`.
"""

import asyncio
from types import SimpleNamespace

from bench.transport_calls import StreamingCall, UnaryCall
from proxyless.base import Address, IpAddress, Status
from proxyless.runtime import DeadlineQueue, VirtualClock
from proxyless.transport import ClientTransport, TransportOptions
from proxyless.transport.client import LoopTools
from proxyless.transport.pump import Pump, make_read_buffer, turns_of
from proxyless.wire import RequestEncoder
from tests.worlds.wire import PREFACE, SentFrames, read_frames, settings, settings_ack

ADDRESS: Address = IpAddress("192.0.2.1", 443)
BLOCK = RequestEncoder(path="/test.Service/Method", authority="test.example").block()
ONE_BUFFER = make_read_buffer()


async def turn() -> None:
    """Run the callbacks that are scheduled for the next turn of the loop."""
    loop = asyncio.get_running_loop()
    taken = loop.create_future()
    loop.call_soon(taken.set_result, None)
    await taken


class FakeSocket(asyncio.Transport):
    """Records writes. Calls `connection_lost` one turn after it is closed."""

    def __init__(
        self, protocol: asyncio.BaseProtocol, extra: dict[str, object] | None = None
    ) -> None:
        super().__init__(extra)
        self.writes: list[bytes] = []
        self.write_buffer_high: int | None = None
        self.is_closed = False
        self.is_aborted = False
        self.is_reading_paused = False
        # The peer does not read, so closing never completes.
        self.is_stuck = False
        # Writes fail, as after the peer's RST.
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

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

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
        """Lose the connection with this error."""
        self.is_closed = True
        if not self._is_lost:
            self._is_lost = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)


def feed(pump: Pump, data: bytes) -> None:
    """Pass bytes of the peer to a pump."""
    view = pump.get_buffer(-1)
    assert len(data) <= len(view)
    view[: len(data)] = data
    pump.buffer_updated(len(data))


def is_over(call: UnaryCall | StreamingCall) -> bool:
    return call.end is not None


class SocketEnd:
    """The socket of a pump, with the peer's end."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self.socket = FakeSocket(pump)
        self._writes_taken = 0

    def peer_sends(self, *pieces: bytes) -> None:
        feed(self._pump, b"".join(pieces))

    def take_writes(self) -> list[SentFrames]:
        """The frames of each write since the last call."""
        writes = self.socket.writes[self._writes_taken :]
        self._writes_taken = len(self.socket.writes)
        return [SentFrames(list(read_frames(write.removeprefix(PREFACE)))) for write in writes]

    def take_frames(self) -> SentFrames:
        """All frames since the last call."""
        return SentFrames([frame for write in self.take_writes() for frame in write.frames])


class ClientTransportWorld(SocketEnd):
    """A client's transport on a socket, by default with a peer that has sent SETTINGS."""

    def __init__(
        self,
        options: TransportOptions | None = None,
        *,
        send_settings: bool = True,
        announce: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.clock = VirtualClock(100.0)
        self.unusable: list[Status] = []
        loop = asyncio.get_running_loop()
        self.deadlines = DeadlineQueue(self.clock)
        self.turns = turns_of(self.clock)
        tools = LoopTools(loop, self.clock, ONE_BUFFER, self.deadlines, self.turns)
        self.transport = ClientTransport(tools, options or TransportOptions(), self.unusable.append)
        super().__init__(self.transport)
        if send_settings:
            self.transport.connection_made(self.socket)
            self.peer_sends(settings(*announce), settings_ack())
            self.take_frames()

    def expect_unusable(self, text: str) -> None:
        """Assert that `on_unusable` was called once, with these details."""
        assert [status.details for status in self.unusable] == [text]
        assert not self.transport.is_usable


class FakeTls:
    """The used part of `ssl.SSLObject`."""

    # Names are checked during the handshake, which is over.
    context = SimpleNamespace(check_hostname=False)

    def __init__(self, alpn: str | None) -> None:
        self._alpn = alpn

    def selected_alpn_protocol(self) -> str | None:
        return self._alpn

    def getpeercert(self, binary_form: bool = False) -> object:
        return b"der" if binary_form else {"subjectAltName": (("URI", "spiffe://a/b"),)}
