"""Our client and our server on real sockets: load, idleness, backpressure, and the end."""

import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import cast

import pytest

from bench.transport_calls import StreamingCall, UnaryCall
from proxyless.base import IpAddress, Status, StatusCode
from proxyless.runtime import LoopClock, Timer
from proxyless.transport import (
    ClientTls,
    ClientTransport,
    Connector,
    Server,
    ServerCall,
    TransportOptions,
)
from proxyless.wire import Limits
from tests.certificates import CertificateAuthority, server_context
from tests.worlds.transports import (
    AUTHORITY,
    PATIENCE_S,
    SERVICE,
    TransportClient,
    encode,
    expect_reply,
    expect_status,
    finish,
    raw_server,
    read_all,
    until,
)
from tests.worlds.wire import settings, window_update

ON_BOTH_LOOPS = True

KIB = 1024
MIB = 1024 * KIB
ANY_PORT = IpAddress("127.0.0.1", 0)
INITIAL_WINDOW_SIZE = 0x4
WINDOW_MAX = 0x7FFF_FFFF


@dataclass
class Backend:
    """Our server, and the records of its methods."""

    server: Server
    address: IpAddress = ANY_PORT
    started: int = 0
    cancelled: int = 0
    sent: int = 0
    received: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def echo(self, call: ServerCall) -> None:
        async for message in call:
            await call.write(message)

    async def flood(self, call: ServerCall) -> None:
        """Send messages as in the request: "count size"."""
        count, size = map(int, (await call.read() or b"").split())
        for number in range(count):
            await call.write(number.to_bytes(4, "big").ljust(size, b"f"))
            self.sent += 1

    async def swallow(self, call: ServerCall) -> None:
        """Read nothing before the gate opens, then everything; answer with the number of bytes."""
        self.started += 1
        await self.gate.wait()
        async for _ in call:
            self.received += 1
        await call.write(b"%d" % self.received)

    async def wait(self, call: ServerCall) -> None:
        self.started += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        await call.write(await call.read() or b"")

    async def both(self, call: ServerCall) -> None:
        """Read and write in two tasks: echo, while sending numbers of its own."""

        async def count() -> None:
            for _ in range(100):
                await call.write(b"n" * 64 * KIB)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(count())
            async for _ in call:
                self.received += 1


Start = Callable[..., Awaitable[Backend]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start servers; close them at the end."""
    backends: list[Backend] = []

    async def start(limits: Limits | None = None, tls: SSLContext | None = None) -> Backend:
        methods: dict[str, Callable[[ServerCall], Awaitable[Status | None]]] = {}
        backend = Backend(Server(methods, limits))
        for method in (
            backend.echo, backend.flood, backend.swallow, backend.wait, backend.both
        ):  # fmt: skip
            methods[SERVICE + method.__name__.capitalize()] = method
        address = await backend.server.listen(ANY_PORT, tls=tls)
        assert isinstance(address, IpAddress)
        backend.address = address
        backends.append(backend)
        return backend

    yield start
    async with asyncio.timeout(PATIENCE_S):
        for backend in backends:
            await backend.server.close()
            assert not backend.server.connections


# Load


async def test_a_thousand_calls_run_at_the_same_time(client: TransportClient, start: Start) -> None:
    backend = await start()
    transport = await client.connect(backend.address)
    calls = [UnaryCall(transport, encode("Wait"), b"%d" % number) for number in range(1000)]
    await until(lambda: backend.started == 1000, "all calls at the server")
    backend.gate.set()
    assert [await expect_reply(call) for call in calls] == [b"%d" % n for n in range(1000)]
    assert backend.server.accepted == 1


class CountingClock(LoopClock):
    """Clock that records the timers that were started on it."""

    __slots__ = ("timers",)

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self.timers: list[Timer] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        timer = super().call_later(delay_s, callback)
        self.timers.append(timer)
        return timer

    @property
    def pending(self) -> int:
        return sum(timer.pending for timer in self.timers)


async def call_in_sequence(transport: ClientTransport, calls: int) -> None:
    block = encode("Echo", timeout_s=30.0)
    for _ in range(calls):
        end = await UnaryCall(transport, block, b"some message", 30.0)
        assert end.status.is_ok


async def test_memory_and_timers_do_not_grow_with_calls(start: Start) -> None:
    backend = await start()
    clock = CountingClock()
    connector = Connector(clock=clock)
    transport = await connector.connect(backend.address, TransportOptions())
    assert isinstance(transport, ClientTransport)
    await call_in_sequence(transport, 500)
    tasks, timers = len(asyncio.all_tasks()), len(clock.timers)
    gc.collect()
    blocks = sys.getallocatedblocks()
    await call_in_sequence(transport, 8000)
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 1000
    tracemalloc.start()  # Counts bytes, and makes everything slow.
    await call_in_sequence(transport, 2000)
    gc.collect()
    grown_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown_bytes < 16 * KIB
    assert len(asyncio.all_tasks()) == tasks
    assert len(connector.deadlines) == 0
    assert clock.pending <= 1
    # One for many calls.
    assert len(clock.timers) - timers < 10_000 / 50
    connector.deadlines.cancel_all()
    assert clock.pending == 0
    transport.close()
    await transport.wait_closed()


async def test_calls_leave_no_garbage_to_the_collector(
    client: TransportClient, start: Start
) -> None:
    backend = await start()
    transport = await client.connect(backend.address)
    await call_in_sequence(transport, 100)
    gc.collect()
    gc.disable()
    try:
        await call_in_sequence(transport, 1000)
        assert gc.collect() < 100
    finally:
        gc.enable()


# Idleness


@pytest.mark.rerun("measures the processor time of the process during a sleep")
async def test_idle_connections_cost_nothing(client: TransportClient, start: Start) -> None:
    backend = await start()
    for _ in range(100):
        transport = await client.connect(backend.address)
        assert await expect_reply(UnaryCall(transport, encode("Echo"), b"m")) == b"m"
    assert len(backend.server.connections) == 100
    gc.collect()
    before_s = time.process_time()
    await asyncio.sleep(0.7)
    assert time.process_time() - before_s < 0.02


# Backpressure


async def settle(read: Callable[[], int]) -> int:
    """The value, once it has not changed for a while."""
    value, unchanged = read(), 0
    while unchanged < 20:
        await asyncio.sleep(0.005)
        value, unchanged = (value, unchanged + 1) if read() == value else (read(), 0)
    return value


async def test_a_slow_reader_stops_the_servers_writes(
    client: TransportClient, start: Start
) -> None:
    backend = await start()
    transport = await client.connect(backend.address)
    call = StreamingCall(transport, encode("Flood"))
    await call.write(b"512 %d" % (64 * KIB), end_stream=True)
    assert await call.read() is not None
    sent = await settle(lambda: backend.sent)
    assert sent * 64 * KIB < 3 * MIB
    # Other calls do not wait for the slow one.
    assert await expect_reply(UnaryCall(transport, encode("Echo"), b"other")) == b"other"
    rest = await read_all(call)
    assert [int.from_bytes(each[:4], "big") for each in rest] == list(range(1, 512))


async def test_writes_wait_when_the_server_is_slow(client: TransportClient, start: Start) -> None:
    backend = await start()
    transport = await client.connect(backend.address)
    call = StreamingCall(transport, encode("Swallow"))
    written = 0

    async def write_all() -> None:
        nonlocal written
        for _ in range(512):
            await call.write(bytes(64 * KIB))
            written += 1
        call.close_sending()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_all())
        await until(lambda: backend.started, "the call at the server")
        assert await settle(lambda: written) * 64 * KIB < 3 * MIB
        assert await expect_reply(UnaryCall(transport, encode("Echo"), b"other")) == b"other"
        backend.gate.set()
        assert await read_all(call) == [b"512"]


def stop_reading(writer: asyncio.StreamWriter) -> Callable[[], None]:
    """Leave the bytes in the socket; returns a function that ends that."""
    transport = cast("asyncio.Transport", writer.transport)
    transport.pause_reading()
    return transport.resume_reading


async def test_writes_wait_when_the_peer_does_not_read_its_socket(
    client: TransportClient,
) -> None:
    """The peer's windows have the maximum size: only the socket limits writes."""
    may_read = asyncio.Event()
    received = 0

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        huge = settings((INITIAL_WINDOW_SIZE, WINDOW_MAX))
        writer.write(huge + window_update(0, WINDOW_MAX - 65_535))
        resume_reading = stop_reading(writer)
        await may_read.wait()
        resume_reading()
        while data := await reader.read(MIB):
            received += len(data)

    messages, written = 640, 0
    async with raw_server(behave) as address:
        transport = await client.connect(address)
        call = StreamingCall(transport, encode("Echo"))

        async def write_all() -> None:
            nonlocal written
            for _ in range(messages):
                await call.write(bytes(64 * KIB))
                written += 1

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write_all())
            stopped_at = await settle(lambda: written)
            # The kernel's buffers on both sides are not bounded by us.
            assert 0 < stopped_at < messages / 2
            may_read.set()
        await until(lambda: received > messages * 64 * KIB, "everything to arrive")
        call.cancel()


async def test_uploads_and_downloads_of_many_mebibytes_pass(
    client: TransportClient, start: Start
) -> None:
    limits = Limits(message_bytes_max=16 * MIB)
    backend = await start(limits)
    transport = await client.connect(backend.address, TransportOptions(limits=limits))
    message = bytes(range(256)) * (8 * 4 * KIB)
    calls = [UnaryCall(transport, encode("Echo"), message) for _ in range(4)]
    for call in calls:
        assert await expect_reply(call) == message


async def test_a_method_may_read_and_write_in_two_tasks(
    client: TransportClient, start: Start
) -> None:
    backend = await start()
    transport = await client.connect(backend.address)
    call = StreamingCall(transport, encode("Both"))
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read_all(call))
        for _ in range(200):
            await call.write(bytes(16 * KIB))
        call.close_sending()
    assert len(reading.result()) == 100
    assert backend.received == 200


async def test_waiting_for_the_server_to_read_ends_with_the_call(
    client: TransportClient, start: Start
) -> None:
    backend = await start()
    transport = await client.connect(backend.address)
    call = StreamingCall(transport, encode("Swallow"))

    async def write_all() -> None:
        for _ in range(100):
            await call.write(bytes(MIB))

    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write_all())
        await until(lambda: backend.started, "the call at the server")
        assert not writing.done()
        call.cancel()
    await expect_status(call, StatusCode.CANCELLED)


# Cancelling


async def test_a_storm_of_cancelled_calls_reaches_the_server(
    client: TransportClient, start: Start
) -> None:
    backend = await start()
    transport = await client.connect(backend.address)
    calls = [UnaryCall(transport, encode("Wait"), b"") for _ in range(900)]
    await until(lambda: backend.started == 900, "all calls at the server")
    for call in calls:
        call.cancel()
    for call in calls:
        await expect_status(call, StatusCode.CANCELLED, "cancelled by the client")
    await until(lambda: backend.cancelled == 900, "all methods to be cancelled")
    assert transport.calls == 0
    assert await expect_reply(UnaryCall(transport, encode("Echo"), b"after")) == b"after"


async def test_calls_cancelled_at_every_stage_leave_the_connection_usable(
    client: TransportClient, start: Start
) -> None:
    backend = await start()
    transport = await client.connect(backend.address)
    for turns in range(40):
        unary = UnaryCall(transport, encode("Echo"), bytes(200 * KIB))
        flood = StreamingCall(transport, encode("Flood"))
        await flood.write(b"20 %d" % (64 * KIB), end_stream=True)
        for _ in range(turns):
            await asyncio.sleep(0)
        unary.cancel()
        flood.cancel()
        assert (await finish(unary)).status.code in (StatusCode.OK, StatusCode.CANCELLED)
        assert (await finish(flood)).status.code in (StatusCode.OK, StatusCode.CANCELLED)
    assert await expect_reply(UnaryCall(transport, encode("Echo"), b"after")) == b"after"
    assert client.unusable == []


# The end


async def test_closing_ends_every_call_with_a_status(client: TransportClient, start: Start) -> None:
    backend = await start(Limits(concurrent_streams_max=10))
    transport = await client.connect(backend.address)
    unary = [UnaryCall(transport, encode("Wait"), b"") for _ in range(5)]
    streaming = [StreamingCall(transport, encode("Wait")) for _ in range(5)]
    waiting = UnaryCall(transport, encode("Wait"), b"")
    await until(lambda: backend.started == 10, "the calls at the server")
    transport.close()
    transport.close()
    running: list[UnaryCall | StreamingCall] = [*unary, *streaming]
    for call in running:
        end = await expect_status(call, StatusCode.UNAVAILABLE, "closed")
        assert not end.is_unprocessed
    end = await expect_status(waiting, StatusCode.UNAVAILABLE)
    assert end.is_unprocessed
    late = await expect_status(
        UnaryCall(transport, encode("Echo"), b""), StatusCode.UNAVAILABLE, "takes no new calls"
    )
    assert late.is_unprocessed
    assert [status.details for status in client.unusable] == ["connection closed by us"]
    await until(lambda: backend.cancelled == 10, "the methods to be cancelled")
    await until(lambda: not backend.server.connections, "the server's end to close")


async def test_draining_connection_finishes_calls_and_rejects_new_ones(
    client: TransportClient, start: Start
) -> None:
    backend = await start()
    transport = await client.connect(backend.address)
    call = UnaryCall(transport, encode("Wait"), b"work")
    await until(lambda: backend.started, "the call at the server")
    transport.drain()
    transport.drain()
    assert not transport.is_usable
    late = await finish(UnaryCall(transport, encode("Echo"), b""))
    assert late.is_unprocessed
    backend.gate.set()
    assert await expect_reply(call) == b"work"
    async with asyncio.timeout(PATIENCE_S):
        await transport.wait_closed()
    assert [status.details for status in client.unusable] == ["connection drained by us"]


async def test_draining_an_idle_connection_closes_it(client: TransportClient, start: Start) -> None:
    transport = await client.connect((await start()).address)
    transport.drain()
    async with asyncio.timeout(PATIENCE_S):
        await transport.wait_closed()


async def test_server_ends_its_calls_and_accepts_no_others_when_it_drains(
    client: TransportClient, start: Start
) -> None:
    backend = await start()
    busy = await client.connect(backend.address)
    idle = await client.connect(backend.address)
    call = UnaryCall(busy, encode("Wait"), b"work")
    await until(lambda: backend.started, "the call at the server")
    backend.server.drain()
    backend.server.drain()
    async with asyncio.timeout(PATIENCE_S):
        await idle.wait_closed()
    assert await client.refused(backend.address) == "connection refused"
    late = await finish(UnaryCall(busy, encode("Echo"), b""))
    assert late.is_unprocessed
    assert call.end is None
    backend.gate.set()
    assert await expect_reply(call) == b"work"
    async with asyncio.timeout(PATIENCE_S):
        await busy.wait_closed()
    assert {status.details for status in client.unusable} == {
        "peer is going away: NO_ERROR: server is shutting down"
    }


async def test_calls_that_cross_a_drain_are_answered_or_unprocessed(
    client: TransportClient, start: Start
) -> None:
    backend = await start()
    transport = await client.connect(backend.address)
    calls = [UnaryCall(transport, encode("Echo"), b"m") for _ in range(50)]
    backend.server.drain()
    for call in calls:
        end = await finish(call)
        assert end.status.is_ok or end.is_unprocessed, end


async def test_a_server_that_closes_ends_calls(client: TransportClient, start: Start) -> None:
    backend = await start()
    transport = await client.connect(backend.address)
    call = UnaryCall(transport, encode("Wait"), b"")
    await until(lambda: backend.started, "the call at the server")
    await backend.server.close()
    await expect_status(call, StatusCode.UNAVAILABLE)
    assert backend.cancelled == 1


def tls_of(authority: CertificateAuthority | None) -> tuple[TransportOptions, SSLContext | None]:
    """TLS options of both sides, if there is an authority."""
    if authority is None:
        return TransportOptions(), None
    options = TransportOptions(tls=ClientTls(root_certificates=authority.certificate_pem))
    return options, server_context(*authority.issue([AUTHORITY]))


@pytest.mark.parametrize("authority", [None, CertificateAuthority()], ids=["plain", "tls"])
async def test_closing_does_not_wait_long_for_a_peer_that_does_not_read(
    client: TransportClient, authority: CertificateAuthority | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxyless.transport.pump.LINGER_S", 0.05)

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(settings((INITIAL_WINDOW_SIZE, WINDOW_MAX)))
        writer.write(window_update(0, WINDOW_MAX - 65_535))
        stop_reading(writer)
        await asyncio.Event().wait()

    options, context = tls_of(authority)
    async with raw_server(behave, context) as address:
        transport = await client.connect(address, options, AUTHORITY)
        call = StreamingCall(transport, encode("Echo"))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(call.write(bytes(32 * MIB)))
            await asyncio.sleep(0.05)
            transport.close()
        await expect_status(call, StatusCode.UNAVAILABLE)
        async with asyncio.timeout(PATIENCE_S):
            await transport.wait_closed()


# TLS


async def test_tls_carries_load_both_ways(client: TransportClient, start: Start) -> None:
    options, context = tls_of(CertificateAuthority())
    backend = await start(tls=context)
    transport = await client.connect(backend.address, options, AUTHORITY)
    small = [UnaryCall(transport, encode("Echo"), b"%d" % number) for number in range(300)]
    large = [UnaryCall(transport, encode("Echo"), bytes(2 * MIB)) for _ in range(4)]
    assert [await expect_reply(call) for call in small] == [b"%d" % n for n in range(300)]
    for call in large:
        assert await expect_reply(call) == bytes(2 * MIB)
    slow = StreamingCall(transport, encode("Flood"))
    await slow.write(b"256 %d" % (64 * KIB), end_stream=True)
    assert await settle(lambda: backend.sent) * 64 * KIB < 4 * MIB
    assert len(await read_all(slow)) == 256


async def test_connections_of_all_kinds_share_a_read_buffer(
    client: TransportClient, start: Start
) -> None:
    options, context = tls_of(CertificateAuthority())
    plain, secure = await start(), await start(tls=context)
    transports = [await client.connect(plain.address) for _ in range(4)]
    transports += [await client.connect(secure.address, options, AUTHORITY) for _ in range(4)]
    messages = [bytes((number,)) * 3 * MIB for number in range(len(transports))]
    calls = [
        UnaryCall(transport, encode("Echo"), message)
        for transport, message in zip(transports, messages, strict=True)
    ]
    for call, message in zip(calls, messages, strict=True):
        assert await expect_reply(call) == message


async def test_clients_that_fail_the_handshake_leave_no_connection(
    client: TransportClient, start: Start
) -> None:
    authority = CertificateAuthority()
    context = server_context(*authority.issue([AUTHORITY]), authority.certificate_pem)
    backend = await start(tls=context)
    trusting = TransportOptions(tls=ClientTls(root_certificates=authority.certificate_pem))
    distrusting = TransportOptions(
        tls=ClientTls(root_certificates=CertificateAuthority("other").certificate_pem)
    )
    reason = await client.refused(backend.address, distrusting, AUTHORITY)
    assert reason.startswith("TLS: certificate refused: ")
    # TLS 1.3 reports a missing client certificate only after the handshake.
    reason = await client.refused(backend.address, trusting, AUTHORITY)
    assert reason.startswith("connection lost: ")
    reason = await client.refused(backend.address)
    assert reason.startswith(("connection lost: ", "peer broke HTTP/2: "))
    assert backend.server.accepted == 3
    await until(lambda: not backend.server.connections, "the server to forget them")
