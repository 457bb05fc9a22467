"""Our asyncio channel and grpcio's: RPCs that are started while no event loop runs.

`loop.run_until_complete(stub.Get(request))` is common in scripts: the argument is evaluated first.
"""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import grpc
import grpc.aio
import pytest

import proxyless.aio
from tests.interop.drop_in import STACKS
from tests.worlds.transports import PATIENCE_S

# grpcio's objects.
Untyped = Any
REPLIES = 3


class Methods:
    """Handlers of a server of grpcio on threads."""

    @staticmethod
    def echo(request: bytes, _context: Untyped) -> bytes:
        return request

    @staticmethod
    def repeat(request: bytes, _context: Untyped) -> Iterator[bytes]:
        return iter([request] * REPLIES)

    @staticmethod
    def join(requests: Iterator[bytes], _context: Untyped) -> bytes:
        return b"".join(requests)


class PassOn(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Interceptor that changes nothing."""

    async def intercept_unary_unary(
        self, continuation: Untyped, details: Untyped, request: Untyped
    ) -> Untyped:
        return await continuation(details, request)


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    handlers = {
        "echo": grpc.unary_unary_rpc_method_handler(Methods.echo),
        "repeat": grpc.unary_stream_rpc_method_handler(Methods.repeat),
        "join": grpc.stream_unary_rpc_method_handler(Methods.join),
    }
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads, options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The current loop of this thread, which does not run."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_rpcs_are_started_before_the_loop_runs(
    stack: ModuleType, target: str, loop: asyncio.AbstractEventLoop
) -> None:
    channel = stack.insecure_channel(target)
    assert channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.IDLE

    async def read(call: Untyped) -> list[bytes]:
        return [response async for response in call]

    echo = channel.unary_unary("/s/echo")
    assert loop.run_until_complete(echo(b"a", timeout=PATIENCE_S)) == b"a"
    assert loop.run_until_complete(read(channel.unary_stream("/s/repeat")(b"b"))) == [b"b"] * 3
    assert loop.run_until_complete(channel.stream_unary("/s/join")(iter([b"c", b"d"]))) == b"cd"
    calls = [echo(b"%d" % number) for number in range(3)]

    async def gather() -> list[bytes]:
        return list(await asyncio.gather(*calls))

    assert loop.run_until_complete(gather()) == [b"0", b"1", b"2"]
    loop.run_until_complete(channel.close())


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_rpc_is_cancelled_before_the_loop_runs(
    stack: ModuleType, target: str, loop: asyncio.AbstractEventLoop
) -> None:
    channel = stack.insecure_channel(target)
    call = channel.unary_unary("/s/echo")(b"a")
    assert call.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(call)
    assert call.cancelled()
    loop.run_until_complete(channel.close())


@pytest.mark.parametrize("interceptors", [[], [PassOn()]], ids=["plain", "intercepted"])
def test_rpc_is_started_on_the_loop_on_which_the_channel_was_created(
    interceptors: list[PassOn], target: str
) -> None:
    async def make() -> Untyped:
        return proxyless.aio.insecure_channel(target, interceptors=interceptors)

    # Not the current loop of this thread, which grpcio needs.
    loop = asyncio.new_event_loop()
    channel = loop.run_until_complete(make())
    call = channel.unary_unary("/s/echo")(b"a", timeout=PATIENCE_S)

    async def wait() -> bytes:
        response: bytes = await call
        return response

    assert loop.run_until_complete(wait()) == b"a"
    loop.run_until_complete(channel.close())
    loop.close()


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_intercepted_rpc_is_started_before_the_loop_runs(
    stack: ModuleType, target: str, loop: asyncio.AbstractEventLoop
) -> None:
    channel = stack.insecure_channel(target, interceptors=[PassOn()])
    echo = channel.unary_unary("/s/echo")
    assert loop.run_until_complete(echo(b"a", timeout=PATIENCE_S)) == b"a"
    loop.run_until_complete(channel.close())


def test_session_starts_rpcs_before_the_loop_runs(
    target: str, loop: asyncio.AbstractEventLoop
) -> None:
    channel = proxyless.aio.insecure_channel(target)
    echo = channel.session().unary_unary("/s/echo")
    assert loop.run_until_complete(echo(b"a", timeout=PATIENCE_S)) == b"a"
    loop.run_until_complete(channel.close())


def test_channel_of_a_closed_loop_starts_no_rpc(target: str) -> None:
    channel = proxyless.aio.insecure_channel(target)
    echo = channel.unary_unary("/s/echo")

    async def use() -> None:
        # Without a connection, whose socket would stay open.
        assert channel.get_state() is grpc.ChannelConnectivity.IDLE

    loop = asyncio.new_event_loop()
    loop.run_until_complete(use())
    loop.close()
    with pytest.raises(RuntimeError, match="event loop of this channel is closed"):
        echo(b"a")
    asyncio.run(channel.close())


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_closed_channel_starts_no_rpc_before_the_loop_runs(
    stack: ModuleType, target: str, loop: asyncio.AbstractEventLoop
) -> None:
    channel = stack.insecure_channel(target)
    echo = channel.unary_unary("/s/echo")
    loop.run_until_complete(channel.close())
    with pytest.raises(grpc.aio.UsageError, match="closed"):
        echo(b"a")


def test_channel_made_before_its_loop_runs_works_where_grpcios_does_not(
    target: str, loop: asyncio.AbstractEventLoop
) -> None:
    async def use(channel: Untyped) -> object:
        try:
            return await channel.unary_unary("/s/echo")(b"a", timeout=PATIENCE_S)
        except RuntimeError as error:
            return "different loop" in str(error)

    # As a module does, before `asyncio.run`.
    ours, grpcios = (each.insecure_channel(target) for each in (proxyless.aio, grpc.aio))
    other = asyncio.new_event_loop()
    assert other.run_until_complete(use(ours)) == b"a"
    assert other.run_until_complete(use(grpcios)) is True
    other.run_until_complete(ours.close())
    other.close()
    loop.run_until_complete(grpcios.close())


def test_grpcio_starts_no_rpc_in_a_thread_without_a_current_loop(target: str) -> None:
    async def make() -> Untyped:
        return grpc.aio.insecure_channel(target)

    def run() -> None:
        loop = asyncio.new_event_loop()
        channel = loop.run_until_complete(make())
        with pytest.raises(RuntimeError, match="no current event loop"):
            channel.unary_unary("/s/echo")(b"a")
        loop.run_until_complete(channel.close())
        loop.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(run).result(PATIENCE_S)


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_channel_has_its_state_and_is_closed_on_another_loop(
    stack: ModuleType, target: str, loop: asyncio.AbstractEventLoop
) -> None:
    """As with a fixture of tests, or `asyncio.run(channel.close())` when a service ends."""

    async def use() -> Untyped:
        channel = stack.insecure_channel(target)
        assert await channel.unary_unary("/s/echo")(b"a", timeout=PATIENCE_S) == b"a"
        return channel

    async def close(channel: Untyped) -> tuple[grpc.ChannelConnectivity, grpc.ChannelConnectivity]:
        before = channel.get_state(try_to_connect=True)
        await channel.close()
        return before, channel.get_state()

    channel = loop.run_until_complete(use())
    other = asyncio.new_event_loop()
    states = other.run_until_complete(close(channel))
    other.close()
    assert states == (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.SHUTDOWN)
    with pytest.raises(grpc.aio.UsageError, match="closed"):
        channel.unary_unary("/s/echo")(b"a")
    # The connection is closed in a later turn of its own loop.
    loop.run_until_complete(channel.close())
    loop.run_until_complete(asyncio.sleep(0))


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
async def test_thread_has_the_state_of_a_channel_whose_loop_runs(
    stack: ModuleType, target: str
) -> None:
    async with stack.insecure_channel(target) as channel:
        await channel.channel_ready()
        state = await asyncio.to_thread(channel.get_state, True)
    assert state is grpc.ChannelConnectivity.READY
    assert await asyncio.to_thread(channel.get_state) is grpc.ChannelConnectivity.SHUTDOWN


async def test_channel_is_closed_while_its_loop_ends_in_another_thread(target: str) -> None:
    opened: list[Untyped] = []
    is_ready = threading.Event()

    async def own() -> None:
        channel = proxyless.aio.insecure_channel(target)
        opened.append((channel, channel.stream_stream("/s/join")()))
        await channel.channel_ready()
        is_ready.set()
        while not channel.is_closed:  # noqa: ASYNC110 - it is closed by another thread
            await asyncio.sleep(0)

    owner = threading.Thread(target=lambda: asyncio.run(own()))
    owner.start()
    await asyncio.to_thread(is_ready.wait)
    [(channel, _)] = opened
    await channel.close(grace=PATIENCE_S)
    await asyncio.to_thread(owner.join)
    assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN


async def test_thread_closes_a_channel_whose_loop_runs(target: str) -> None:
    channel = proxyless.aio.insecure_channel(target)
    await channel.channel_ready()
    call = channel.stream_stream("/s/join")()
    await asyncio.to_thread(lambda: asyncio.run(channel.close()))
    assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN
    assert call.cancelled()
