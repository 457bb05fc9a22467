"""Backends for tests of sessions: they count connections, and make cookies that name them.

Shared by the test suites that open sockets. A backend is a grpcio server behind a relay, which
counts connections, and keeps the port when the server stops and starts again.
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import grpc

from tests.generated_protos import generate_protos
from tests.interop.drop_in import Untyped, stop_server

COOKIE: Final = "session"
_CHUNK_BYTES: Final = 65536


class CountedBackend:
    """A grpcio server that responds to every kind of call with its name, and counts connections."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = 0
        self.accepts = 0
        # The tasks of open connections.
        self._open: set[asyncio.Task[None]] = set()
        self._relay: asyncio.Server | None = None
        self._server: Untyped = None
        self._inner_port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cookie(self, cluster: str) -> str:
        """The cookie of a session on this backend."""
        return f"{COOKIE}={b64encode(f'{self.address};{cluster}'.encode()).decode()}"

    async def start(self) -> None:
        """Serve, at the same port after each restart."""
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self,))
        self._inner_port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self._relay = await asyncio.start_server(self._on_connection, "127.0.0.1", self.port)
        self.port = self._relay.sockets[0].getsockname()[1]

    async def leave(self) -> None:
        """Stop with a GOAWAY. grpcio cancels the RPCs in flight."""
        if self._relay is not None:
            self._relay.close()
            self._relay = None
            await self._server.stop(None)
            await asyncio.gather(*self._open, return_exceptions=True)

    async def stop(self) -> None:
        """Called at the end of a test, when other servers of this process have stopped."""
        await self.leave()
        await stop_server(self._server)

    # The relay

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.accepts += 1
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            inner_reader, inner_writer = await asyncio.open_connection(
                "127.0.0.1", self._inner_port
            )
            await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
        except OSError:
            pass  # The client or the server closed the connection.
        finally:
            writer.close()
            self._open.discard(task)

    # The server

    def service(self, details: Untyped) -> Untyped:
        """Called by grpcio: the handler of a method, by the method's name."""
        kind = details.method.rpartition("/")[2]
        match kind:
            case "UnaryStream":
                return grpc.unary_stream_rpc_method_handler(self._stream)
            case "StreamUnary":
                return grpc.stream_unary_rpc_method_handler(self._drain)
            case "StreamStream":
                return grpc.stream_stream_rpc_method_handler(self._stream)
            case "Fail":
                return grpc.unary_unary_rpc_method_handler(self._fail)
            case "SayHello":
                return grpc.unary_unary_rpc_method_handler(self._say_hello)
            case _:
                return grpc.unary_unary_rpc_method_handler(self._respond)

    async def _respond(self, _request: bytes, _context: Untyped) -> bytes:
        return self.name.encode()

    async def _say_hello(self, _request: bytes, _context: Untyped) -> bytes:
        reply = generate_protos().helloworld.HelloReply(message=self.name)
        serialized: bytes = reply.SerializeToString()
        return serialized

    async def _stream(self, _requests: object, _context: Untyped) -> AsyncIterator[bytes]:
        for _ in range(2):
            yield self.name.encode()

    async def _drain(self, requests: AsyncIterator[bytes], _context: Untyped) -> bytes:
        async for _ in requests:
            pass
        return self.name.encode()

    async def _fail(self, _request: bytes, context: Untyped) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, self.name)
        raise AssertionError("abort raises")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward all bytes and the end of the stream."""
    try:
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def counted(*names: str) -> AsyncIterator[list[CountedBackend]]:
    """Started backends of these names."""
    async with AsyncExitStack() as exits:
        started = [CountedBackend(name) for name in names]
        for backend in started:
            await backend.start()
            exits.push_async_callback(backend.stop)
        yield started
