"""RPCs of our channel when grpcio's servers are full, restart or are killed, and when loops end.

Every RPC has a number, and servers record the numbers, so that the tests can tell whether a failed
RPC reached an application.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from threading import get_ident

import grpc
import grpc.aio
import pytest
import uvloop

import proxyless.aio
from tests.interop.drop_in import Untyped, stop_server
from tests.worlds.transports import PATIENCE_S, until

ECHO, REPEAT = "/test.Service/Echo", "/test.Service/Repeat"
WORK_S = 0.003
# One RPC each at a time.
WORKERS = 15
QUICK_RECONNECT = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 100),
]
ROUND_ROBIN = '{"loadBalancingConfig": [{"round_robin": {}}]}'
RETRY_CANCELLED = """{
  "loadBalancingConfig": [{"round_robin": {}}],
  "methodConfig": [{"name": [{}], "retryPolicy": {
    "maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.1s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["CANCELLED"]
  }}]
}"""


class Backend:
    """A grpcio server that can be started again at the same port."""

    def __init__(self, *options: tuple[str, int]) -> None:
        self._options = (("grpc.so_reuseport", 0), *options)
        self._server: Untyped = None
        self.port = 0
        self.seen: set[bytes] = set()
        self.served = 0
        self._running = 0
        self.running_max = 0

    async def start(self) -> None:
        self._server = grpc.aio.server(options=self._options)
        methods = {
            "Echo": grpc.unary_unary_rpc_method_handler(self._echo),
            "Repeat": grpc.stream_stream_rpc_method_handler(self._repeat),
        }
        handler = grpc.method_handlers_generic_handler("test.Service", methods)
        self._server.add_generic_rpc_handlers((handler,))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self, grace_s: float | None) -> None:
        await self._server.stop(grace_s)

    async def close(self) -> None:
        await stop_server(self._server)

    async def _echo(self, request: bytes, _context: Untyped) -> bytes:
        self.seen.add(request)
        self._running += 1
        self.running_max = max(self.running_max, self._running)
        try:
            await asyncio.sleep(WORK_S)
        finally:
            self._running -= 1
        self.served += 1
        return request

    async def _repeat(
        self, requests: AsyncIterator[bytes], _context: Untyped
    ) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request


@asynccontextmanager
async def backends(count: int, *options: tuple[str, int]) -> AsyncIterator[list[Backend]]:
    started = [Backend(*options) for _ in range(count)]
    for backend in started:
        await backend.start()
    try:
        yield started
    finally:
        for backend in started:
            await backend.close()


def target_of(servers: list[Backend]) -> str:
    return "ipv4:" + ",".join(f"127.0.0.1:{server.port}" for server in servers)


# Full servers


async def test_a_thousand_calls_share_a_hundred_streams() -> None:
    async with backends(1, ("grpc.max_concurrent_streams", 100)) as servers:
        async with proxyless.aio.insecure_channel(target_of(servers)) as channel:
            echo = channel.unary_unary(ECHO)
            calls = [echo(b"%d" % number, timeout=PATIENCE_S) for number in range(1000)]
            assert [await call for call in calls] == [b"%d" % number for number in range(1000)]
        assert servers[0].running_max <= 100


async def test_conversations_wait_for_a_stream() -> None:
    async with backends(1, ("grpc.max_concurrent_streams", 20)) as servers:
        async with proxyless.aio.insecure_channel(target_of(servers)) as channel:
            repeat = channel.stream_stream(REPEAT)

            async def talk(number: int) -> list[bytes]:
                words = [b"%d %d" % (number, word) for word in range(3)]
                return [reply async for reply in repeat(words, timeout=PATIENCE_S)]

            talks = await asyncio.gather(*(talk(number) for number in range(200)))
        assert talks == [[b"%d %d" % (number, word) for word in range(3)] for number in range(200)]


# Restarts


class Load:
    """Calls without pause, and their results."""

    def __init__(self, channel: Untyped) -> None:
        self._echo = channel.unary_unary(ECHO)
        self._is_over = False
        self._next = 0
        self.good = 0
        self.failures: dict[bytes, grpc.aio.AioRpcError] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._work())
            try:
                yield
            finally:
                self._is_over = True

    async def _work(self) -> None:
        while not self._is_over:
            self._next += 1
            number = b"%d" % self._next
            try:
                assert await self._echo(number, timeout=PATIENCE_S) == number
                self.good += 1
            except grpc.aio.AioRpcError as error:
                self.failures[number] = error

    @property
    def codes(self) -> Counter[grpc.StatusCode]:
        return Counter(error.code() for error in self.failures.values())


async def restart_each(servers: list[Backend], grace_s: float | None) -> None:
    """Restart one after the other, each when the one before serves again."""
    for server in servers:
        await server.stop(grace_s)
        await server.start()
        before = server.served
        await until(lambda: server.served > before + WORKERS, "the server to be used again")  # noqa: B023


async def restart_under_load(service_config: str, grace_s: float | None) -> tuple[Load, set[bytes]]:
    """The failures of callers, and the RPCs that reached an application."""
    options = [*QUICK_RECONNECT, ("grpc.service_config", service_config)]
    async with (
        backends(3) as servers,
        proxyless.aio.insecure_channel(target_of(servers), options=options) as channel,
    ):
        load = Load(channel)
        async with load.running():
            await until(lambda: all(server.served for server in servers), "every server's share")
            await restart_each(servers, grace_s)
            failed = len(load.failures)
            good = load.good
            await until(lambda: load.good > good + 10 * WORKERS, "calm")
            assert len(load.failures) == failed, "RPCs fail after the last restart"
    return load, set().union(*(server.seen for server in servers))


@pytest.mark.rerun("restarts grpcio's servers under load")
async def test_a_graceful_restart_fails_only_what_the_server_itself_refuses() -> None:
    """grpcio's server answers CANCELLED to RPCs that reach it before the client has its GOAWAY.

    No application sees them, but a client cannot know that, so it must not send them again.
    """
    load, seen = await restart_under_load(ROUND_ROBIN, grace_s=PATIENCE_S)
    assert load.codes.keys() <= {grpc.StatusCode.CANCELLED}, load.codes
    assert {error.details() for error in load.failures.values()} <= {"CANCELLED"}
    assert not load.failures.keys() & seen
    assert len(load.failures) <= 3 * WORKERS


@pytest.mark.rerun("restarts grpcio's servers under load")
async def test_graceful_restart_fails_no_rpc_if_cancelled_rpcs_are_retried() -> None:
    load, _ = await restart_under_load(RETRY_CANCELLED, grace_s=PATIENCE_S)
    assert load.codes == {}


@pytest.mark.rerun("restarts grpcio's servers under load")
async def test_abrupt_restart_fails_only_rpcs_in_flight() -> None:
    load, _ = await restart_under_load(ROUND_ROBIN, grace_s=None)
    assert load.codes.keys() <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
    # Each worker has one RPC under way when a server stops, and there are three servers.
    assert len(load.failures) <= 3 * WORKERS, load.codes


# Loops


async def in_a_loop_of_its_own(
    run: Callable[[], Awaitable[Untyped]], loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> Untyped:
    """Run in another thread, on a new loop."""

    async def main() -> Untyped:
        return await run()

    def run_thread() -> Untyped:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(main())

    return await asyncio.to_thread(run_thread)


async def echo_all(channel: Untyped, count: int) -> list[bytes]:
    echo = channel.unary_unary(ECHO)
    calls = [echo(b"%d" % number, timeout=PATIENCE_S) for number in range(count)]
    return [await call for call in calls]


async def test_loops_in_several_threads_have_channels_of_their_own() -> None:
    async with backends(1) as servers:
        threads: set[int] = set()

        async def run() -> list[bytes]:
            threads.add(get_ident())
            async with proxyless.aio.insecure_channel(target_of(servers)) as channel:
                await echo_all(channel, 30)
                return await echo_all(channel, 30)

        factories = (asyncio.new_event_loop, uvloop.new_event_loop) * 2
        replies = await asyncio.gather(*(in_a_loop_of_its_own(run, each) for each in factories))
    assert replies == [[b"%d" % number for number in range(30)]] * 4
    assert len(threads) == 4


async def test_a_channel_is_refused_on_another_loop_than_its_own() -> None:
    async with (
        backends(1) as servers,
        proxyless.aio.insecure_channel(target_of(servers)) as channel,
    ):
        await channel.channel_ready()

        async def use() -> None:
            with pytest.raises(RuntimeError, match="belongs to another event loop"):
                channel.unary_unary(ECHO)(b"")
            with pytest.raises(RuntimeError, match="belongs to another event loop"):
                await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)

        await in_a_loop_of_its_own(use, asyncio.new_event_loop)
        assert await echo_all(channel, 1) == [b"0"]


async def test_channel_can_be_closed_after_its_loop_has_ended() -> None:
    async with backends(1) as servers:
        channel = proxyless.aio.insecure_channel(target_of(servers))
        await in_a_loop_of_its_own(lambda: echo_all(channel, 1), asyncio.new_event_loop)
        await channel.close()
        assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN


async def test_a_channel_may_be_made_before_there_is_a_loop() -> None:
    async with backends(1) as servers:

        def make() -> tuple[Untyped, Untyped]:
            channel = proxyless.aio.insecure_channel(target_of(servers))
            return channel, channel.unary_unary(ECHO)

        channel, echo = await asyncio.to_thread(make)

        async def use() -> bytes:
            async with channel:
                reply: bytes = await echo(b"hello")
                return reply

        assert await in_a_loop_of_its_own(use, asyncio.new_event_loop) == b"hello"


async def test_a_channel_is_of_no_use_in_a_thread_without_a_loop() -> None:
    channel = proxyless.aio.insecure_channel("ipv4:127.0.0.1:1")
    for use in (lambda: channel.unary_unary(ECHO)(b""), channel.get_state):
        # The loop of this channel runs in another thread.
        with pytest.raises(RuntimeError, match="used outside of a running event loop"):
            await asyncio.to_thread(use)

    def make_and_use() -> None:
        proxyless.aio.insecure_channel("ipv4:127.0.0.1:1").unary_unary(ECHO)(b"")

    with pytest.raises(RuntimeError, match="used outside of a running event loop"):
        await asyncio.to_thread(make_and_use)
