"""Subchannels on real sockets, with our own server at the other end."""

import asyncio
import functools
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, cast

import pytest
import uvloop

from bench.transport_calls import UnaryCall
from proxyless.base import (
    Address,
    BackoffPolicy,
    IpAddress,
    State,
    Status,
    StatusCode,
    UnixAddress,
)
from proxyless.channel.pool import SubchannelHandle, SubchannelPool
from proxyless.channel.subchannel_options import SubchannelOptions
from proxyless.runtime import seeded_random
from proxyless.transport import (
    ClientTls,
    Connector,
    KeepaliveConfig,
    Server,
    ServerCall,
    TransportOptions,
)
from proxyless.wire import ErrorCode, RequestEncoder
from tests.certificates import CertificateAuthority, server_context
from tests.worlds.subchannels import CONNECTING, FAILURE, IDLE, READY
from tests.worlds.wire import goaway, settings

P = ParamSpec("P")

ANY_PORT = IpAddress("127.0.0.1", 0)
PATH = "/test.Service/Echo"
# Short delays for tests.
QUICK = SubchannelOptions(backoff=BackoffPolicy(initial_s=0.05, max_s=0.1))


class Watcher:
    """Records the states of a subchannel."""

    def __init__(self, handle: SubchannelHandle) -> None:
        self.states: list[State] = []
        self.failure = ""
        self._notified = asyncio.Event()
        handle.watch(self._listener)

    def _listener(self, state: State, status: Status) -> None:
        self.states.append(state)
        if state is FAILURE:
            self.failure = status.details
        self._notified.set()

    async def wait_for(self, *states: State) -> None:
        """Wait for exactly these states, in this order, since the last call."""
        async with asyncio.timeout(10):
            while len(self.states) < len(states):
                self._notified.clear()
                await self._notified.wait()
        assert self.states == list(states)
        self.states = []


class Backend:
    """A server whose calls wait until they are let go."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.started = asyncio.Event()
        self._server = Server({PATH: self._echo})

    async def _echo(self, call: ServerCall) -> Status | None:
        self.started.set()
        await self.gate.wait()
        await call.write(await call.read() or b"")
        return None

    async def start(self, address: Address = ANY_PORT) -> Address:
        return await self._server.listen(address)

    async def start_with_tls(self, certificate: tuple[bytes, bytes]) -> Address:
        return await self._server.listen(ANY_PORT, tls=server_context(*certificate))

    def drain(self) -> None:
        self._server.drain()

    async def stop(self) -> None:
        await self._server.close()

    @property
    def connections(self) -> int:
        return len(self._server.connections)


class Stage:
    """A pool and a backend on one loop, for the time of one scenario."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._new_loop = new_loop
        self.pool: SubchannelPool
        self.backend: Backend

    def run(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with asyncio.Runner(loop_factory=self._new_loop) as runner:
            runner.run(self._run(story))

    async def _run(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        connector = Connector()
        self.backend = Backend()
        self.pool = SubchannelPool(connector, clock=connector.clock, random=seeded_random(1))
        async with self.pool:
            await story()
        assert not self.pool.connections
        await self.backend.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    def acquire(
        self, address: Address, options: SubchannelOptions = QUICK
    ) -> tuple[SubchannelHandle, Watcher]:
        handle = self.pool.acquire(address, options)
        return handle, Watcher(handle)

    async def connect(self, address: Address) -> tuple[SubchannelHandle, Watcher]:
        """A handle with a connection."""
        handle, watcher = self.acquire(address)
        handle.request_connection()
        await watcher.wait_for(IDLE, CONNECTING, READY)
        return handle, watcher


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(LOOPS[request.param])


def on_stage(
    story: Callable[Concatenate[Stage, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Stage, P], None]:
    """Run an asynchronous test on each loop that users have."""

    @functools.wraps(story)
    def test(stage: Stage, *args: P.args, **kwargs: P.kwargs) -> None:
        stage.run(lambda: story(stage, *args, **kwargs))

    return cast("Callable[Concatenate[Stage, P], None]", test)


def call(handle: SubchannelHandle) -> UnaryCall:
    assert handle.transport is not None, "there is no connection"
    block = RequestEncoder(path=PATH, authority="test.example").block()
    return UnaryCall(handle.transport, block, b"hello")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - some conditions are the kernel's.
            await asyncio.sleep(0.005)


@asynccontextmanager
async def scripted_peer(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[IpAddress]:
    """A peer that accepts connections, and closes each after `talk`."""
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await talk(reader, writer)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield IpAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def say_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await read_to_end(reader)


# ---------------------------------------------------------------------------------------------
# Life


@pytest.mark.parametrize("kind", ["tcp", "unix"])
@on_stage
async def test_a_request_connects_and_calls_run(stage: Stage, tmp_path: Path, kind: str) -> None:
    place = ANY_PORT if kind == "tcp" else UnixAddress(str(tmp_path / "s"))
    handle, watcher = stage.acquire(await stage.backend.start(place))
    handle.request_connection()
    await watcher.wait_for(IDLE, CONNECTING, READY)
    reply = call(handle)
    assert (await reply).status.is_ok
    assert reply.message == b"hello"


@on_stage
async def test_a_restarted_server_is_found_again(stage: Stage) -> None:
    address = await stage.backend.start()
    handle, watcher = await stage.connect(address)
    await stage.backend.stop()
    await watcher.wait_for(IDLE)
    await stage.backend.start(address)
    handle.request_connection()
    await watcher.wait_for(CONNECTING, READY)
    assert (await call(handle)).status.is_ok


@on_stage
async def test_handles_share_one_connection(stage: Stage) -> None:
    address = await stage.backend.start()
    both = [stage.acquire(address) for _ in range(2)]
    for handle, _ in both:
        handle.request_connection()
    for _, watcher in both:
        await watcher.wait_for(IDLE, CONNECTING, READY)
    assert stage.backend.connections == 1
    both[0][0].release()
    assert (await call(both[1][0])).status.is_ok


@pytest.mark.spec("SUB-07")
@on_stage
async def test_a_refused_connection_works_when_the_server_is_up(stage: Stage) -> None:
    address = await stage.backend.start()
    await stage.backend.stop()
    handle, watcher = stage.acquire(address)
    await watcher.wait_for(IDLE)
    for _ in range(3):
        handle.request_connection()
        await watcher.wait_for(CONNECTING, FAILURE, IDLE)
        assert watcher.failure.startswith(f"{address}: ")
        assert "refused" in watcher.failure
    await stage.backend.start(address)
    handle.request_connection()
    await watcher.wait_for(CONNECTING, READY)
    assert (await call(handle)).status.is_ok


@pytest.mark.spec("SUB-05")
@on_stage
async def test_goaway_is_idle_at_once_and_calls_finish(stage: Stage) -> None:
    backend = stage.backend
    handle, watcher = await stage.connect(await backend.start())
    backend.gate.clear()
    under_way = call(handle)
    await backend.started.wait()
    backend.drain()
    await watcher.wait_for(IDLE)
    assert handle.transport is None
    backend.gate.set()
    assert (await under_way).status.is_ok
    await until(lambda: backend.connections == 0 and not stage.pool.connections)


@on_stage
async def test_a_certificate_is_checked_by_the_server_name(stage: Stage) -> None:
    authority = CertificateAuthority()
    address = await stage.backend.start_with_tls(authority.issue(["api.test"]))
    tls = TransportOptions(tls=ClientTls(root_certificates=authority.certificate_pem))
    options = SubchannelOptions(transport=tls, server_name="api.test")
    right, seen_right = stage.acquire(address, options)
    wrong, seen_wrong = stage.acquire(address, replace(options, server_name="other.test"))
    right.request_connection()
    wrong.request_connection()
    await seen_right.wait_for(IDLE, CONNECTING, READY)
    await seen_wrong.wait_for(IDLE, CONNECTING, FAILURE)
    assert "certificate" in seen_wrong.failure
    assert (await call(right)).status.is_ok


# ---------------------------------------------------------------------------------------------
# Peers that are not HTTP/2 servers


@pytest.mark.spec("SUB-04", "SUB-05", "SUB-07")
@on_stage
async def test_attempt_times_out_when_the_peer_accepts_and_sends_nothing(stage: Stage) -> None:
    options = SubchannelOptions(
        min_connect_timeout_s=0.1, backoff=BackoffPolicy(initial_s=0.01, jitter=0)
    )
    async with scripted_peer(say_nothing) as address:
        handle, watcher = stage.acquire(address, options)
        handle.request_connection()
        await watcher.wait_for(IDLE, CONNECTING, FAILURE, IDLE)
        assert watcher.failure == f"{address}: no connection within 0.1 s"
        await until(lambda: not stage.pool.connections)


@on_stage
async def test_attempt_fails_when_the_peer_does_not_send_http2(stage: Stage) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await read_to_end(reader)

    async with scripted_peer(talk) as address:
        handle, watcher = stage.acquire(address)
        handle.request_connection()
        await watcher.wait_for(IDLE, CONNECTING, FAILURE)
        assert watcher.failure.startswith(f"{address}: ")
        assert "HTTP/1" in watcher.failure


@on_stage
async def test_a_server_that_complains_of_pings_gets_fewer(stage: Stage) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(settings())
        # Skip the bytes before the first keepalive PING.
        await reader.readuntil(b"keepaliv")
        writer.write(goaway(0, ErrorCode.ENHANCE_YOUR_CALM, b"too_many_pings"))
        await read_to_end(reader)

    keepalive = KeepaliveConfig(time_s=0.05, permit_without_calls=True)
    options = SubchannelOptions(transport=TransportOptions(keepalive=keepalive))
    async with scripted_peer(talk) as address:
        handle, watcher = stage.acquire(address, options)
        await watcher.wait_for(IDLE)
        for time_s in (0.05, 0.1, 0.2):
            handle.request_connection()
            await until(lambda: bool(stage.pool.connections))
            assert [each.keepalive.time_s for each in stage.pool.connections] == [time_s]
            await watcher.wait_for(CONNECTING, READY, IDLE)
            await until(lambda: not stage.pool.connections)


# ---------------------------------------------------------------------------------------------
# Release


def open_sockets() -> int:
    """The number of open sockets of this process."""
    # Collect sockets that earlier tests left as garbage.
    gc.collect()
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # The directory itself was open while it was read.
            count += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    return count


@pytest.mark.spec("SUB-09")
@on_stage
async def test_release_during_connect_leaves_no_task_and_no_socket(stage: Stage) -> None:
    async with scripted_peer(say_nothing) as address:
        tasks, sockets = asyncio.all_tasks(), open_sockets()
        handle, watcher = stage.acquire(address)
        handle.request_connection()
        await watcher.wait_for(IDLE, CONNECTING)
        # One at each end.
        await until(lambda: open_sockets() == sockets + 2)
        handle.release()
        await until(lambda: not stage.pool.connections)
        await until(lambda: open_sockets() == sockets and asyncio.all_tasks() == tasks)
        assert watcher.states == []


@pytest.mark.spec("SUB-09")
@on_stage
async def test_release_closes_the_connection_when_its_calls_have_finished(stage: Stage) -> None:
    backend = stage.backend
    handle, _ = await stage.connect(await backend.start())
    backend.gate.clear()
    under_way = call(handle)
    await backend.started.wait()
    handle.release()
    # Long enough to see the connection closed, if it were.
    await asyncio.sleep(0.05)
    assert backend.connections == 1
    backend.gate.set()
    assert (await under_way).status.is_ok
    await until(lambda: backend.connections == 0 and not stage.pool.connections)


@on_stage
async def test_closing_the_pool_ends_calls_and_sockets(stage: Stage) -> None:
    backend, sockets = stage.backend, open_sockets()
    handle, _ = await stage.connect(await backend.start())
    backend.gate.clear()
    under_way = call(handle)
    await backend.started.wait()
    await stage.pool.aclose()
    assert not stage.pool.connections
    assert (await under_way).status.code is StatusCode.UNAVAILABLE
    await backend.stop()
    await until(lambda: open_sockets() == sockets)


@pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)
def test_unclosed_connections_are_closed_when_their_loop_ends(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    sockets = open_sockets()

    async def forget() -> None:
        stage, connector = Stage(new_loop), Connector()
        stage.backend = Backend()
        stage.pool = SubchannelPool(connector, clock=connector.clock, random=seeded_random(1))
        address = await stage.backend.start()
        await stage.connect(address)
        # The client is not closed; the server is.
        stage.backend.drain()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(forget())
    gc.collect()
    assert open_sockets() == sockets
