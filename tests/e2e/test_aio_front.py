"""The asyncio API with our own server: errors of applications affect only their own calls."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

import proxyless.aio
from proxyless.base import IpAddress
from proxyless.front import AioChannel
from proxyless.transport import Server, ServerCall

PATIENCE_S = 10.0


async def echo(call: ServerCall) -> None:
    async for message in call:
        await call.write(message)


@asynccontextmanager
async def channel_to_echo(
    interceptors: list[grpc.aio.ClientInterceptor] | None = None,
) -> AsyncIterator[AioChannel]:
    server = Server({"/echo": echo})
    address = await server.listen(IpAddress("127.0.0.1", 0))
    async with proxyless.aio.insecure_channel(str(address), interceptors=interceptors) as channel:
        yield channel
    await server.close()


def refuse_three(number: int) -> bytes:
    if number == 3:
        raise ValueError("three is not a number of ours")
    return str(number).encode()


async def test_request_iterator_is_not_read_after_the_rpc_has_ended() -> None:
    taken = 0

    def numbers() -> Iterator[int]:
        nonlocal taken
        for number in range(100_000):
            taken = number
            yield number

    async with channel_to_echo() as channel:
        call = channel.stream_stream("/echo", request_serializer=refuse_three)(numbers())
        async with asyncio.timeout(PATIENCE_S):
            assert await call.code() is grpc.StatusCode.INTERNAL
            await asyncio.sleep(0)
    assert taken == 3


async def test_cancelled_close_has_closed_the_channel() -> None:
    async with channel_to_echo() as channel:
        call = channel.stream_stream("/echo")()
        await call.write(b"hello")
        assert await call.read() == b"hello"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await channel.close(grace=60.0)
        assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN
        async with asyncio.timeout(PATIENCE_S):
            assert await call.code() is grpc.StatusCode.CANCELLED


class PassOn(grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc] # grpcio has no types
    """An interceptor that changes nothing, and shows the call it passes on."""

    call: grpc.aio.StreamStreamCall

    async def intercept_stream_stream(
        self,
        continuation: object,
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: object,
    ) -> grpc.aio.StreamStreamCall:
        assert callable(continuation)
        self.call = await continuation(client_call_details, request_iterator)
        return self.call


async def test_writes_through_interceptors_do_not_leak_futures() -> None:
    interceptor = PassOn()
    async with channel_to_echo([interceptor]) as channel:
        call = channel.stream_stream("/echo")()
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(50):
                await call.write(b"x")
                assert await call.read() == b"x"
            # A future that leaks with each write would be visible only in this attribute.
            assert len(interceptor.call._outcome._end_waiters) <= 1  # noqa: SLF001
            await call.done_writing()
            assert await call.code() is grpc.StatusCode.OK


async def test_timeout_that_is_not_a_number_raises_at_once() -> None:
    async with channel_to_echo() as channel:
        with pytest.raises(TypeError, match="timeout is '5', wanted a number of seconds"):
            channel.unary_unary("/echo")(b"x", timeout="5")  # type: ignore[arg-type]
        assert await channel.unary_unary("/echo")(b"x", timeout=PATIENCE_S) == b"x"
