"""Lower bound of every protocol: the same payload echoed over plain TCP, in order."""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from bench.clients import Client


class RawConnection(asyncio.Protocol):
    """Connection without framing: responses have the order and the length of the requests."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport
        self._unsent: list[bytes] = []
        self._unread = b""
        self._waiting: deque[tuple[int, asyncio.Future[bytes]]] = deque()

    def unary(self, message: bytes, /) -> asyncio.Future[bytes]:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(message)
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting.append((len(message), future))
        return future

    def server_stream(self, request: bytes, /) -> AsyncIterable[bytes]:
        raise NotImplementedError(f"plain TCP has no streams, got a request of {len(request)} B")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._unread + data if self._unread else data
        start = 0
        while self._waiting and len(data) - start >= self._waiting[0][0]:
            size, future = self._waiting.popleft()
            if not future.done():
                future.set_result(data[start : start + size])
            start += size
        self._unread = data[start:]

    def connection_lost(self, exc: Exception | None) -> None:
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(exc or ConnectionError("the backend closed the connection"))

    def _flush(self) -> None:
        parts, self._unsent = self._unsent, []
        self._transport.write(b"".join(parts))


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[Client]:
    host, port = address.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    transport, connection = await loop.create_connection(
        lambda: RawConnection(loop), host, int(port)
    )
    try:
        yield connection
    finally:
        transport.close()
