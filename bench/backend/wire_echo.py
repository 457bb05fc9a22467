"""Backend for machines without a C compiler: our own wire server, in a process of its own.

It answers as `be.c` does: with a stream to a message that starts with ff 'S' 'T' 'R', and with an
echo to any other. It prints "up" and its ports, and ends when its standard input does.
"""

import asyncio
import sys
from struct import Struct

import uvloop

from bench.clients import METHOD
from proxyless.base import IpAddress
from proxyless.transport import Server, ServerCall

PORTS = 3
STREAM = b"\xffSTR"
_STREAM_REQUEST = Struct(">4sII")


async def echo(call: ServerCall) -> None:
    async for message in call:
        if message.startswith(STREAM) and len(message) >= _STREAM_REQUEST.size:
            _, count, size = _STREAM_REQUEST.unpack_from(message)
            for _ in range(count):
                await call.write(b"x" * size)
        else:
            await call.write(message)


async def serve() -> None:
    server = Server({METHOD: echo})
    addresses = [await server.listen(IpAddress("127.0.0.1", 0)) for _ in range(PORTS)]
    ports = [address.port for address in addresses if isinstance(address, IpAddress)]
    print("up", *ports, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
