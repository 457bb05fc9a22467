"""Is an HTTP proxy that means harm, or does not know better, refused with a reason and in time?

On the simulated network, where an hour of waiting takes no time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

import pytest

from proxyless.base import HttpProxy, IpAddress, Status, StatusCode
from proxyless.runtime import seeded_random
from proxyless.sim.loop import SimLoop
from proxyless.sim.network import Fabric, SimNetwork
from proxyless.transport import ClientTransport, Connector, TransportOptions
from proxyless.transport.http_connect import HEAD_BYTES_MAX
from tests.wire_world import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

CLIENT: Final = "10.0.0.1"
PROXY: Final = IpAddress("10.0.0.9", 3128)
BACKEND: Final = IpAddress("10.0.0.5", 443)
WHERE: Final = "10.0.0.5:443 through proxy 10.0.0.9:3128"
REQUEST: Final = b"CONNECT 10.0.0.5:443 HTTP/1.1\r\nHost: 10.0.0.5:443\r\n\r\n"
ACCEPTED: Final = b"HTTP/1.1 200 OK\r\n\r\n"
TIMEOUT_S: Final = 20.0


@dataclass(eq=False)
class Proxy(asyncio.Protocol):
    """Says its pieces once it was asked, one after each pause."""

    pieces: Sequence[bytes]
    pause_s: float = 0.0
    # After the last piece.
    is_closing: bool = False
    heard: bytearray = field(default_factory=bytearray)
    is_lost: bool = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        was_asked = bool(self.heard)
        self.heard += data
        if not was_asked:
            self._say(0)

    def _say(self, index: int) -> None:
        if self.is_lost:
            return
        if index < len(self.pieces):
            self._socket.write(self.pieces[index])
            asyncio.get_running_loop().call_later(self.pause_s, self._say, index + 1)
        elif self.is_closing:
            self._socket.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


@dataclass
class World:
    """A client, and a proxy of any kind."""

    network: SimNetwork
    fabric: Fabric

    async def connect(self, proxy: Proxy | None) -> ClientTransport | Status:
        there = SimNetwork(self.fabric, PROXY.host)
        if proxy is not None:
            await there.listen(PROXY, lambda: proxy)
        options = TransportOptions(http_proxy=HttpProxy(PROXY), connect_timeout_s=TIMEOUT_S)
        return await Connector(network=self.network).connect(BACKEND, options)

    async def expect_refused(self, text: str, proxy: Proxy | None) -> None:
        """No connection, for this reason, and nothing of it left behind."""
        status = await self.connect(proxy)
        assert status == Status(StatusCode.UNAVAILABLE, f"{WHERE}: {text}")
        await asyncio.sleep(1)  # noqa: TID251 - of virtual time, for what is under way
        assert self.fabric.connections == 0
        assert proxy is None or proxy.is_lost


def run(story: Callable[[World], Coroutine[object, object, None]]) -> None:
    fabric = Fabric(seeded_random(1))
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(story(World(SimNetwork(fabric, CLIENT), fabric)))


def expect_refused(text: str, proxy: Proxy | None) -> None:
    run(lambda world: world.expect_refused(text, proxy))


def test_a_proxy_that_is_not_there() -> None:
    expect_refused("connection refused", None)


def test_407_is_named_and_the_body_is_not_read() -> None:
    head = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 999999\r\n\r\n"
    proxy = Proxy([head, b"<html>" * 1000])
    expect_refused(
        "proxy answered CONNECT with HTTP status '407 Proxy Authentication Required', "
        "wanted 200 to 299",
        proxy,
    )
    assert bytes(proxy.heard) == REQUEST


def test_a_head_without_end() -> None:
    proxy = Proxy([b"HTTP/1.1 200 OK\r\n", *[b"X: y\r\n"] * HEAD_BYTES_MAX], pause_s=0.0001)
    expect_refused("proxy answered CONNECT with a head of more than 16384 bytes", proxy)


def test_a_head_that_comes_byte_by_byte_takes_no_longer_than_a_connection_may() -> None:
    proxy = Proxy([bytes([each]) for each in ACCEPTED], pause_s=2.0)
    expect_refused("no connection within 20 s", proxy)


def test_a_proxy_that_says_nothing() -> None:
    expect_refused("no connection within 20 s", Proxy([]))


def test_a_server_behind_the_proxy_that_says_nothing() -> None:
    expect_refused("no connection within 20 s", Proxy([ACCEPTED]))


def test_garbage() -> None:
    expect_refused(
        "proxy answered CONNECT with '\\x15\\x03\\x01\\x00\\x02\\x02F', which is not HTTP/1",
        Proxy([b"\x15\x03\x01\0\x02\x02F"]),
    )


def test_an_end_in_the_middle_of_the_head() -> None:
    proxy = Proxy([b"HTTP/1.1 200 OK\r\nVia"], is_closing=True)
    expect_refused("proxy closed the connection after 20 bytes of its answer", proxy)


def test_an_end_without_a_word() -> None:
    proxy = Proxy([], is_closing=True)
    expect_refused("proxy closed the connection without an answer to CONNECT", proxy)


def test_an_end_right_behind_the_answer() -> None:
    expect_refused("connection lost: closed by peer", Proxy([ACCEPTED], is_closing=True))


def test_a_body_behind_the_answer_is_the_peers_and_no_http2() -> None:
    proxy = Proxy([ACCEPTED + b"<html>welcome</html>\r\n"])

    async def story(world: World) -> None:
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
def test_what_the_server_says_first_is_not_lost(pieces: list[bytes]) -> None:
    proxy = Proxy(pieces, pause_s=0.01)

    async def story(world: World) -> None:
        transport = await world.connect(proxy)
        assert isinstance(transport, ClientTransport), transport
        await asyncio.sleep(1)  # noqa: TID251 - of virtual time
        # The client's own greeting comes after the request, and nothing in between.
        assert proxy.heard.startswith(REQUEST + b"PRI * HTTP/2.0\r\n")
        transport.close()
        await transport.wait_closed()

    run(story)


def test_giving_up_leaves_no_connection_behind() -> None:
    proxy = Proxy([ACCEPTED[:8]])

    async def story(world: World) -> None:
        attempt = asyncio.ensure_future(world.connect(proxy))
        await asyncio.sleep(5)  # noqa: TID251 - of virtual time
        assert proxy.heard
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await asyncio.sleep(1)  # noqa: TID251 - of virtual time
        assert world.fabric.connections == 0

    run(story)
