"""Client transports on real sockets, closed at the end of a test; and raw servers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from ssl import SSLContext
from typing import Final

import pytest
import uvloop

from bench.transport_calls import StreamingCall, UnaryCall
from proxyless.base import Address, IpAddress, Metadata, Status, StatusCode
from proxyless.transport import ClientTransport, Connector, TransportOptions
from proxyless.wire import IDENTITY, RequestEncoder, StreamEnd

SERVICE: Final = "/test.Service/"
AUTHORITY: Final = "api.test"
# Only a hang takes longer.
PATIENCE_S: Final = 20.0

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
LOOPS: Final[Mapping[str, LoopFactory]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def choose_loops(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """For pytest-asyncio: a module with ON_BOTH_LOOPS runs on asyncio's loop and on uvloop."""
    is_on_both = getattr(getattr(item, "module", None), "ON_BOTH_LOOPS", False)
    return LOOPS if is_on_both else {"asyncio": LOOPS["asyncio"]}


async def until(happens: Callable[[], object], what: str) -> None:
    """Poll until a condition is true."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not happens():  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.002)  # noqa: TID251 - real sockets take real time
    except TimeoutError:
        raise AssertionError(f"waited {PATIENCE_S:g} s for {what}") from None


def encode(
    method: str,
    *,
    timeout_s: float | None = None,
    metadata: Metadata = (),
    encoding: str = IDENTITY,
    scheme: str = "http",
) -> bytes:
    """The header block of a call."""
    encoder = RequestEncoder(path=SERVICE + method, authority=AUTHORITY, scheme=scheme)
    return encoder.block(timeout_s, metadata, encoding)


class TransportClient:
    """Connections of one test, and calls on them."""

    def __init__(self) -> None:
        self.connector = Connector()
        self.transports: list[ClientTransport] = []
        # Statuses of all calls of `on_unusable`, in order.
        self.unusable: list[Status] = []

    async def connect(
        self, address: Address, options: TransportOptions | None = None, name: str | None = None
    ) -> ClientTransport:
        transport = await self._connect(address, options, name)
        assert isinstance(transport, ClientTransport), transport
        self.transports.append(transport)
        return transport

    async def refused(
        self, address: Address, options: TransportOptions | None = None, name: str | None = None
    ) -> str:
        """The error of a connection attempt, without the address."""
        status = await self._connect(address, options, name)
        assert isinstance(status, Status), "the connection was not refused"
        assert status.code is StatusCode.UNAVAILABLE
        assert status.details.startswith(f"{address}: ")
        return status.details.removeprefix(f"{address}: ")

    async def _connect(
        self, address: Address, options: TransportOptions | None, name: str | None
    ) -> ClientTransport | Status:
        async with asyncio.timeout(PATIENCE_S):
            return await self.connector.connect(
                address,
                options or TransportOptions(),
                server_name=name,
                on_unusable=self.unusable.append,
            )

    async def close(self) -> None:
        """Close every connection, and assert that nothing is left."""
        for transport in self.transports:
            transport.close()
        async with asyncio.timeout(PATIENCE_S):
            for transport in self.transports:
                await transport.wait_closed()
                assert transport.calls == 0
        assert len(self.unusable) == len(self.transports)
        assert len(self.connector.deadlines) == 0
        self.connector.deadlines.cancel_all()


async def finish(call: UnaryCall | StreamingCall) -> StreamEnd:
    """The end of a call."""
    async with asyncio.timeout(PATIENCE_S):
        return await (call if isinstance(call, UnaryCall) else call.wait_end())


async def expect_reply(call: UnaryCall) -> bytes:
    end = await finish(call)
    assert end.status.is_ok, end.status
    assert call.message is not None
    return call.message


async def expect_status(
    call: UnaryCall | StreamingCall, code: StatusCode, text: str = ""
) -> StreamEnd:
    """Assert the code of a call's end; `text` is part of the details."""
    end = await finish(call)
    assert end.status.code is code, end.status
    assert text in end.status.details
    return end


async def read_all(call: StreamingCall) -> list[bytes]:
    """Every message of a call that ends with OK."""
    async with asyncio.timeout(PATIENCE_S):
        messages = [message async for message in call]
    assert call.end is not None
    assert call.end.status.is_ok, call.end.status
    return messages


# Peers that are not gRPC servers

Behave = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(behave: Behave, tls: SSLContext | None = None) -> AsyncIterator[IpAddress]:
    """A server that runs `behave` for each connection, and closes them at the end."""
    running: set[asyncio.Task[None]] = set()
    is_open = True

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # The test or the client has ended.
            with suppress(asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
                await behave(reader, writer)
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if is_open:
            task = asyncio.create_task(run(reader, writer))
            running.add(task)
            task.add_done_callback(running.discard)
        else:  # The test ended during the handshake.
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield IpAddress(*server.sockets[0].getsockname())
    finally:
        is_open = False
        server.close()
        for task in running:
            task.cancel()
        # An exception in `behave` fails the test. A task that had not begun is cancelled.
        for result in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


async def stay_silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Read until the client closes the connection."""
    while await reader.read(65536):
        pass
