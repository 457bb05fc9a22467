"""Hostile servers and a whole channel: no turn of the application's event loop takes over 50 ms.

The server is a thread with a plain socket. It sends its attack when all calls are open, and a PING
behind it: the acknowledgement shows that the client has handled everything.
"""

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from struct import pack
from threading import Thread
from typing import Any

import grpc
import pytest

import proxyless.aio
from proxyless.wire import compress
from proxyless.wire import frames as kinds
from tests.hostile.watchdog import loop_watchdog
from tests.worlds.fake_sockets import turn
from tests.worlds.wire import (
    ACK,
    HEAD,
    OK_TRAILERS,
    PREFACE,
    block,
    data,
    frame,
    headers,
    ping,
    prefixed,
    settings,
    settings_ack,
    window_update,
)

# A pause of the machine may add CPU time to one callback.
pytestmark = pytest.mark.rerun("the CPU time of callbacks is measured")

MB = 1024 * 1024
GZIPPED_HEAD = block([*HEAD, ("grpc-encoding", "gzip")])
BOMB = prefixed(compress("gzip", bytes(4 * MB)), compressed=1)
END = b"the end!"
TIMEOUT_S = 50

Attack = Callable[[list[int]], bytes]


class HostileServer(Thread):
    """Accepts one connection; attacks when this number of streams is open."""

    def __init__(self, streams: int, announce: bytes, attack: Attack) -> None:
        super().__init__(daemon=True)
        self._streams = streams
        self._announce = announce
        self._attack = attack
        self._loop = asyncio.get_running_loop()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        # Set in the loop when the client has handled the attack.
        self.is_handled = asyncio.Event()

    def run(self) -> None:
        peer, _ = self._listener.accept()
        with self._listener, peer:
            peer.sendall(self._announce)
            opened: list[int] = []
            received, skip = b"", len(PREFACE)
            while chunk := peer.recv(MB):
                received += chunk
                if skip and len(received) < skip:
                    continue
                received, skip = received[skip:], 0
                received = self._handle_frames(peer, received, opened)

    def _handle_frames(self, peer: socket.socket, received: bytes, opened: list[int]) -> bytes:
        at = 0
        while len(received) - at >= 9:
            size, kind, flags = (
                int.from_bytes(received[at : at + 3], "big"),
                *received[at + 3 : at + 5],
            )
            if len(received) - at < 9 + size:
                break
            if kind == kinds.HEADERS:
                opened.append(int.from_bytes(received[at + 5 : at + 9], "big"))
                if len(opened) == self._streams:
                    peer.sendall(self._attack(opened) + ping(END))
            elif kind == kinds.SETTINGS and not flags & ACK:
                peer.sendall(settings_ack())
            elif kind == kinds.PING and received[at + 9 : at + 17] == END:
                self._loop.call_soon_threadsafe(self.is_handled.set)
            at += 9 + size
        return received[at:]


@asynccontextmanager
async def attacked(
    streams: int, attack: Attack, *pairs: tuple[int, int]
) -> AsyncIterator[tuple[grpc.aio.Channel, HostileServer]]:
    server = HostileServer(
        streams, settings((kinds.MAX_CONCURRENT_STREAMS, 10_000), *pairs), attack
    )
    server.start()
    async with proxyless.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel, server
    for _ in range(5):
        await turn()  # A connection that is drained closes its socket.


async def wait_handled(server: HostileServer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        await server.is_handled.wait()


def bombs(opened: list[int]) -> bytes:
    return b"".join(headers(each, GZIPPED_HEAD) + data(each, BOMB) for each in opened)


def bombs_with_end(opened: list[int]) -> bytes:
    return b"".join(
        headers(each, GZIPPED_HEAD) + data(each, BOMB) + headers(each, OK_TRAILERS, end=True)
        for each in opened
    )


async def read_all(call: grpc.aio.UnaryStreamCall) -> int:
    return sum([len(response) async for response in call])


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
async def test_bombs_that_are_not_read_take_neither_time_nor_memory(kind: str) -> None:
    async with attacked(200, bombs) as (channel, server):
        tracemalloc.start()
        try:
            calls: list[Any] = [getattr(channel, kind)("/a/b")(b"") for _ in range(200)]
            before, _ = tracemalloc.get_traced_memory()
            await wait_handled(server)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Unpacked, the messages would take 805 MB.
        assert peak - before < 8 * MB
        assert not any(call.done() for call in calls)
        for call in calls:
            call.cancel()


async def test_bombs_that_are_read_take_one_turn_each() -> None:
    async with attacked(40, bombs_with_end) as (channel, server):
        with loop_watchdog():
            calls = [channel.unary_stream("/a/b")(b"") for _ in range(40)]
            sizes = await asyncio.gather(*map(read_all, calls))
            await wait_handled(server)
        assert sizes == [4 * MB] * 40


async def test_unary_responses_that_are_bombs_take_one_turn_each() -> None:
    async with attacked(20, bombs_with_end) as (channel, server):
        with loop_watchdog():
            unary = channel.unary_unary("/a/b", response_deserializer=len)
            sizes = await asyncio.gather(*(unary(b"") for _ in range(20)))
            await wait_handled(server)
        assert sizes == [4 * MB] * 20


def window_updates(_: list[int]) -> bytes:
    return window_update(0, 1) * 900


def initial_windows(_: list[int]) -> bytes:
    pairs = [(kinds.INITIAL_WINDOW_SIZE, number % 2) for number in range(900)]
    return b"".join(settings(pair) for pair in pairs)


def goaways(_: list[int]) -> bytes:
    return frame(kinds.GOAWAY, 0, 0, pack(">II", 2**31 - 1, 0)) * 900


@pytest.mark.parametrize("attack", [window_updates, initial_windows, goaways])
async def test_floods_with_many_blocked_streams_keep_the_loop_free(attack: Attack) -> None:
    async with attacked(1000, attack, (kinds.INITIAL_WINDOW_SIZE, 0)) as (channel, server):
        unary = channel.unary_unary("/a/b")
        await channel.channel_ready()
        with loop_watchdog() as watchdog:
            calls: list[Any] = []
            for _ in range(10):
                # In ten turns: starting a thousand calls takes longer than a turn may.
                calls += [unary(b"request") for _ in range(100)]
                await turn()
            await wait_handled(server)
        assert watchdog.callbacks
        for call in calls:
            call.cancel()


async def test_small_messages_on_unread_streams_keep_the_loop_free() -> None:
    small = prefixed(b"ab") * 1800

    def send_small(opened: list[int]) -> bytes:
        heads = b"".join(headers(each, block(HEAD)) for each in opened)
        return heads + b"".join(data(each, small) for _ in range(4) for each in opened)

    async with attacked(300, send_small) as (channel, server):
        await channel.channel_ready()
        with loop_watchdog():
            calls: list[Any] = []
            for _ in range(3):
                calls += [channel.unary_stream("/a/b")(b"") for _ in range(100)]
                await turn()
            await wait_handled(server)
        # What was kept can be read.
        assert await calls[0].read() == b"ab"
        for call in calls:
            call.cancel()


async def test_tiny_frames_keep_the_loop_free() -> None:
    def send_tiny(opened: list[int]) -> bytes:
        heads = b"".join(headers(each, block(HEAD)) for each in opened)
        return heads + b"".join(data(each, prefixed(b"")) for _ in range(400) for each in opened)

    async with attacked(100, send_tiny) as (channel, server):
        await channel.channel_ready()
        with loop_watchdog():
            calls: list[Any] = [channel.unary_stream("/a/b")(b"") for _ in range(100)]
            await wait_handled(server)
        for call in calls:
            call.cancel()
