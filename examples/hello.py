"""Minimal example: a grpcio server in this process, and a Proxyless channel to it.

It makes a unary call, a server stream and a bidirectional stream, and shows an error. The exit code
is 0 if all results are as expected.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

import grpc
import grpc.aio

import proxyless.aio


async def say_hello(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
    if not request:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "wanted a name")
    return b"hello, " + request


async def count(request: bytes, _context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
    for number in range(int(request)):
        yield str(number + 1).encode()


async def shout(
    requests: AsyncIterator[bytes], _context: grpc.aio.ServicerContext
) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request.upper()


async def start_server() -> tuple[grpc.aio.Server, str]:
    server = grpc.aio.server()
    handlers = {
        "SayHello": grpc.unary_unary_rpc_method_handler(say_hello),
        "Count": grpc.unary_stream_rpc_method_handler(count),
        "Shout": grpc.stream_stream_rpc_method_handler(shout),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("demo.Greeter", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"dns:///localhost:{port}"


async def main() -> int:
    server, target = await start_server()
    print(f"grpcio server at {target}")
    async with proxyless.aio.insecure_channel(target) as channel:
        say_hello = channel.unary_unary("/demo.Greeter/SayHello")
        reply = await say_hello(b"world", timeout=5.0)
        print(f"unary:            {reply.decode()}")

        numbers = [number async for number in channel.unary_stream("/demo.Greeter/Count")(b"5")]
        print(f"server streaming: {b' '.join(numbers).decode()}")

        call = channel.stream_stream("/demo.Greeter/Shout")()
        echoes = []
        for word in (b"one", b"two", b"three"):
            await call.write(word)
            echoes.append(await call.read())
        await call.done_writing()
        print(f"bidi streaming:   {b' '.join(echoes).decode()}")

        try:
            await say_hello(b"")
        except grpc.aio.AioRpcError as error:
            failure = f"{error.code().name}: {error.details()}"
        print(f"a failure:        {failure}")
    await server.stop(None)

    expected = (b"hello, world", [b"1", b"2", b"3", b"4", b"5"], [b"ONE", b"TWO", b"THREE"])
    is_right = (reply, numbers, echoes) == expected and failure.startswith("INVALID_ARGUMENT")
    print("all as expected" if is_right else "something is wrong")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
