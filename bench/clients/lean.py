"""Lower bound of a Python HTTP/2 client: frames without a transport."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager

from bench.clients import METHOD, Client
from bench.probe.lean_core import LeanConnection


class LeanClient:
    """Adds the method's path to each call."""

    def __init__(self, connection: LeanConnection) -> None:
        self._connection = connection

    def unary(self, message: bytes, /) -> asyncio.Future[bytes]:
        return self._connection.unary(METHOD, message)

    def server_stream(self, request: bytes, /) -> AsyncIterable[bytes]:
        return self._connection.server_stream(METHOD, request)


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[Client]:
    host, port = address.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    transport, connection = await loop.create_connection(
        lambda: LeanConnection(loop), host, int(port)
    )
    try:
        yield LeanClient(connection)
    finally:
        transport.close()
