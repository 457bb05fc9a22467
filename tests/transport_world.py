"""How do tests use the transport room on real sockets?

Shared by the rings that open sockets: a client that closes what it opened, and patience for what
another thread or process does.
"""

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
    """For pytest-asyncio: a module that says ON_BOTH_LOOPS runs on both that users have."""
    is_on_both = getattr(getattr(item, "module", None), "ON_BOTH_LOOPS", False)
    return LOOPS if is_on_both else {"asyncio": LOOPS["asyncio"]}


async def until(happens: Callable[[], object], what: str) -> None:
    """Wait for something that the code under test does not tell."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not happens():  # noqa: ASYNC110 - nobody sets an event
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


class Client:
    """Connections of one test, and calls on them."""

    def __init__(self) -> None:
        self.connector = Connector()
        self.transports: list[ClientTransport] = []
        # What each connection's `on_unusable` said, in order.
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
        """Why there is no connection, without the address that every such text starts with."""
        status = await self._connect(address, options, name)
        assert isinstance(status, Status), "connected, though that should have been refused"
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
        """Close every connection, and look that nothing is left of it."""
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
    """How a call ends, if it does."""
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
    """The call ends with this code; `text` is part of the details."""
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


# Peers that are no gRPC servers

Behave = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(behave: Behave, tls: SSLContext | None = None) -> AsyncIterator[IpAddress]:
    """Accept connections and do to them whatever the test wants; close them at the end."""
    running: set[asyncio.Task[None]] = set()
    is_open = True

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # The end of the test, or the client's.
            with suppress(asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
                await behave(reader, writer)
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if is_open:
            task = asyncio.create_task(run(reader, writer))
            running.add(task)
            task.add_done_callback(running.discard)
        else:  # The handshake was not over when the test was.
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield IpAddress(*server.sockets[0].getsockname())
    finally:
        is_open = False
        server.close()
        for task in running:
            task.cancel()
        # What a behaviour raised is its failure, and the test's.
        await asyncio.gather(*running)


async def stay_silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Read until the client gives up."""
    while await reader.read(65536):
        pass
