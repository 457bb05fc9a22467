"""Our bare transport: one connection, no channel, no name resolution, no load balancing."""

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager

from bench.clients import METHOD, Client
from bench.transport_calls import StreamingCall, UnaryCall
from proxyless.base import Status, parse_address
from proxyless.transport import ClientTransport, Connector, TransportOptions
from proxyless.wire import RequestEncoder


class TransportClient:
    """Awaits calls and checks their status, as every user of a transport does."""

    def __init__(self, transport: ClientTransport, authority: str) -> None:
        self._transport = transport
        self._encoder = RequestEncoder(path=METHOD, authority=authority)

    async def unary(self, message: bytes, /) -> bytes:
        call = UnaryCall(self._transport, self._encoder.block(), message)
        end = await call
        if call.message is None:
            raise ConnectionError(str(end.status))
        return call.message

    async def server_stream(self, request: bytes, /) -> AsyncIterable[bytes]:
        call = StreamingCall(self._transport, self._encoder.block())
        await call.write(request, end_stream=True)
        async for message in call:
            yield message
        if call.end is None or not call.end.status.is_ok:
            raise ConnectionError(str(call.end))


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[Client]:
    transport = await Connector().connect(parse_address(address), TransportOptions())
    if isinstance(transport, Status):
        raise ConnectionError(str(transport))
    try:
        yield TransportClient(transport, address)
    finally:
        transport.close()
        await transport.wait_closed()
