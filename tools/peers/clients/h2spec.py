"""Client under test for h2specd, which has one test case on each of its ports.

It reads ports from stdin, one per line. At each it opens a channel to that port and starts a unary
RPC; the channel is open until the next line comes, so that only the client's answer to the server's
frames closes a connection. A relay in between accepts only one connection per case, because
a client may connect again to retry.

    python -m tools.peers.clients.h2spec <proxyless|grpcio>
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Final

import grpc

from tools.peers.clients.stacks import Untyped, load_stack

# Longer than any case takes.
_RPC_TIMEOUT_S: Final = 60.0
_READ_BYTES_MAX: Final = 65_536


class Relay:
    """A port that forwards one connection to another port, byte for byte."""

    def __init__(self, port: int) -> None:
        self._to_port = port
        self._server: asyncio.Server | None = None
        self._is_used = False

    async def open(self) -> int:
        """Listen; returns the port."""
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Accept no more connections; the current one continues. Idempotent."""
        if self._server is not None:
            self._server.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_used:
            writer.close()
            return
        self._is_used = True
        self.close()
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        await asyncio.gather(_pump(reader, to_writer), _pump(to_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_READ_BYTES_MAX):
            writer.write(data)
            await writer.drain()
    writer.close()


async def call(channel: Untyped) -> None:
    """One RPC, which fails in most cases: the server does not implement gRPC."""
    with suppress(grpc.RpcError, asyncio.CancelledError):
        await channel.unary_unary("/h2spec/Case")(b"request", timeout=_RPC_TIMEOUT_S)


async def main(stack: str) -> None:
    aio = load_stack(stack).aio
    line = await asyncio.to_thread(sys.stdin.readline)
    while line:
        relay = Relay(int(line))
        async with aio.insecure_channel(f"127.0.0.1:{await relay.open()}") as channel:
            rpc = asyncio.create_task(call(channel))
            line = await asyncio.to_thread(sys.stdin.readline)
            rpc.cancel()
            await asyncio.wait([rpc])
        relay.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
