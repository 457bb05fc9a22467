"""HTTP proxies that are hostile or broken: the error of the connection, and its time limit.

Most tests run on the simulated network, where waiting takes no time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

import grpc
import grpc.aio
import pytest

import proxyless
from proxyless.base import HttpProxy, IpAddress, Status, StatusCode
from proxyless.runtime import seeded_random
from proxyless.sim.loop import SimLoop
from proxyless.sim.network import Fabric, SimNetwork
from proxyless.transport import ClientTransport, Connector, TransportOptions
from proxyless.transport.http_connect import HEAD_BYTES_MAX
from tests.hostile.watchdog import loop_watchdog
from tests.worlds.wire import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

# A pause of the machine may add CPU time to one callback.
pytestmark = pytest.mark.rerun("the CPU time of callbacks is measured")

CLIENT: Final = "10.0.0.1"
PROXY: Final = IpAddress("10.0.0.9", 3128)
BACKEND: Final = IpAddress("10.0.0.5", 443)
WHERE: Final = "10.0.0.5:443 through proxy 10.0.0.9:3128"
REQUEST: Final = b"CONNECT 10.0.0.5:443 HTTP/1.1\r\nHost: 10.0.0.5:443\r\n\r\n"
ACCEPTED: Final = b"HTTP/1.1 200 OK\r\n\r\n"
TIMEOUT_S: Final = 20.0


@dataclass(eq=False)
class Proxy(asyncio.Protocol):
    """Sends its pieces after the first data, with a pause between them."""

    pieces: Sequence[bytes]
    pause_s: float = 0.0
    # Close the connection after the last piece.
    is_closing: bool = False
    received: bytearray = field(default_factory=bytearray)
    is_lost: bool = False
    # Pieces sent so far.
    sent: int = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        had_data = bool(self.received)
        self.received += data
        if not had_data:
            self._send(0)

    def _send(self, index: int) -> None:
        if self.is_lost:
            return
        if index < len(self.pieces):
            self._socket.write(self.pieces[index])
            self.sent += 1
            asyncio.get_running_loop().call_later(self.pause_s, self._send, index + 1)
        elif self.is_closing:
            self._socket.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


@dataclass
class HostileProxyWorld:
    """A client and a proxy."""

    network: SimNetwork
    fabric: Fabric

    async def connect(self, proxy: Proxy | None) -> ClientTransport | Status:
        there = SimNetwork(self.fabric, PROXY.host)
        if proxy is not None:
            await there.listen(PROXY, lambda: proxy)
        options = TransportOptions(http_proxy=HttpProxy(PROXY), connect_timeout_s=TIMEOUT_S)
        return await Connector(network=self.network).connect(BACKEND, options)

    async def expect_refused(self, text: str, proxy: Proxy | None) -> None:
        """Check that the connection fails for this reason, and that none is left open."""
        status = await self.connect(proxy)
        assert status == Status(StatusCode.UNAVAILABLE, f"{WHERE}: {text}")
        await asyncio.sleep(1)  # noqa: TID251 - virtual time, for pending work
        assert self.fabric.connections == 0
        assert proxy is None or proxy.is_lost


def run(story: Callable[[HostileProxyWorld], Coroutine[object, object, None]]) -> None:
    fabric = Fabric(seeded_random(1))
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(story(HostileProxyWorld(SimNetwork(fabric, CLIENT), fabric)))


def expect_refused(text: str, proxy: Proxy | None) -> None:
    run(lambda world: world.expect_refused(text, proxy))


def test_connection_fails_when_there_is_no_proxy() -> None:
    expect_refused("connection refused", None)


def test_connection_fails_with_the_status_when_the_proxy_answers_407() -> None:
    head = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 999999\r\n\r\n"
    proxy = Proxy([head, b"<html>" * 1000])
    expect_refused(
        "proxy answered CONNECT with HTTP status '407 Proxy Authentication Required', "
        "wanted 200 to 299",
        proxy,
    )
    assert bytes(proxy.received) == REQUEST


def test_connection_fails_when_the_response_head_is_too_large() -> None:
    proxy = Proxy([b"HTTP/1.1 200 OK\r\n", *[b"X: y\r\n"] * HEAD_BYTES_MAX], pause_s=0.0001)
    expect_refused("proxy answered CONNECT with a head of more than 16384 bytes", proxy)


def test_connection_fails_at_the_limit_when_the_response_head_has_100_mb() -> None:
    proxy = Proxy([b"HTTP/1.1 200 OK\r\nX: ", *[b"y" * 65_536] * 1_600], pause_s=0.001)
    with loop_watchdog():
        expect_refused("proxy answered CONNECT with a head of more than 16384 bytes", proxy)
    # The rest is not read.
    assert proxy.sent < 10


def test_connection_fails_at_the_limit_when_the_head_arrives_in_single_bytes() -> None:
    endless = b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * HEAD_BYTES_MAX
    proxy = Proxy([bytes([each]) for each in endless], pause_s=0.0001)
    with loop_watchdog() as watchdog:
        expect_refused("proxy answered CONNECT with a head of more than 16384 bytes", proxy)
    assert HEAD_BYTES_MAX < proxy.sent < 2 * HEAD_BYTES_MAX
    # Each byte takes constant time: a scan of the whole head for each would take seconds.
    assert watchdog.longest_s < 0.01


async def test_deadline_of_an_rpc_applies_while_the_proxy_sends_single_bytes() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        with suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b"y")
                await writer.drain()
                await asyncio.sleep(0.02)  # noqa: TID251 - real sockets take real time
        writer.close()
        is_over.set()

    is_over = asyncio.Event()
    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with proxyless.aio.insecure_channel(
        "backend.example:80", options=[("grpc.http_proxy", f"http://127.0.0.1:{port}")]
    ) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/a.B/C")(b"", timeout=0.3)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    async with asyncio.timeout(TIMEOUT_S):
        await is_over.wait()
    server.close()
    await server.wait_closed()


def test_connection_times_out_when_the_response_head_arrives_slowly() -> None:
    proxy = Proxy([bytes([each]) for each in ACCEPTED], pause_s=2.0)
    expect_refused("no connection within 20 s", proxy)


def test_connection_times_out_when_the_proxy_sends_nothing() -> None:
    expect_refused("no connection within 20 s", Proxy([]))


def test_connection_times_out_when_the_server_behind_the_proxy_sends_nothing() -> None:
    expect_refused("no connection within 20 s", Proxy([ACCEPTED]))


def test_connection_fails_when_the_response_is_not_http() -> None:
    expect_refused(
        "proxy answered CONNECT with '\\x15\\x03\\x01\\x00\\x02\\x02F', which is not HTTP/1",
        Proxy([b"\x15\x03\x01\0\x02\x02F"]),
    )


def test_connection_fails_when_the_proxy_closes_inside_the_response_head() -> None:
    proxy = Proxy([b"HTTP/1.1 200 OK\r\nVia"], is_closing=True)
    expect_refused("proxy closed the connection after 20 bytes of its answer", proxy)


def test_connection_fails_when_the_proxy_closes_without_a_response() -> None:
    proxy = Proxy([], is_closing=True)
    expect_refused("proxy closed the connection without an answer to CONNECT", proxy)


def test_connection_fails_when_the_proxy_closes_after_the_response() -> None:
    expect_refused("connection lost: closed by peer", Proxy([ACCEPTED], is_closing=True))


def test_connection_fails_when_a_body_follows_the_response() -> None:
    proxy = Proxy([ACCEPTED + b"<html>welcome</html>\r\n"])

    async def story(world: HostileProxyWorld) -> None:
        status = await world.connect(proxy)
        assert isinstance(status, Status)
        assert status.details.startswith(f"{WHERE}: peer broke HTTP/2: ")

    run(story)


@pytest.mark.parametrize(
    "pieces",
    [
        [ACCEPTED + settings()],
        [ACCEPTED, settings()],
        [ACCEPTED[:5], ACCEPTED[5:] + settings()[:4], settings()[4:]],
        [bytes([each]) for each in ACCEPTED + settings()],
    ],
    ids=["in one", "apart", "torn", "bytes"],
)
def test_first_bytes_of_the_server_are_not_lost(pieces: list[bytes]) -> None:
    proxy = Proxy(pieces, pause_s=0.01)

    async def story(world: HostileProxyWorld) -> None:
        transport = await world.connect(proxy)
        assert isinstance(transport, ClientTransport), transport
        await asyncio.sleep(1)  # noqa: TID251 - virtual time
        # The preface of the client follows the request directly.
        assert proxy.received.startswith(REQUEST + b"PRI * HTTP/2.0\r\n")
        transport.close()
        await transport.wait_closed()

    run(story)


def test_cancelled_connect_closes_its_connection() -> None:
    proxy = Proxy([ACCEPTED[:8]])

    async def story(world: HostileProxyWorld) -> None:
        attempt = asyncio.ensure_future(world.connect(proxy))
        await asyncio.sleep(5)  # noqa: TID251 - virtual time
        assert proxy.received
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await asyncio.sleep(1)  # noqa: TID251 - virtual time
        assert world.fabric.connections == 0

    run(story)
