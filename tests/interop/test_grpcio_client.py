"""grpcio's clients and our server, which is for tests, and has to be a real server for that."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import grpc
import pytest

from proxyless.base import IpAddress, Metadata, Status, StatusCode
from proxyless.transport import Server, ServerCall
from proxyless.wire import IDENTITY, Limits
from tests.certificates import CertificateAuthority, server_context
from tests.interop.grpcio_clients import (
    CLIENTS,
    KINDS,
    STREAM_STREAM,
    STREAM_UNARY,
    UNARY_STREAM,
    UNARY_UNARY,
    ChannelOptions,
    GrpcioClient,
    Outcome,
    SyncClient,
)
from tests.worlds.transports import AUTHORITY, PATIENCE_S, SERVICE, until

MIB = 1024 * 1024
ANY_PORT = IpAddress("127.0.0.1", 0)
ANY_SIZE = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))

Open = Callable[..., Awaitable[GrpcioClient]]


@dataclass
class OurServerWorld:
    """Our server with a test service; metadata steers what its methods do."""

    server: Server
    requests: list[Metadata] = field(default_factory=list)
    encodings: list[str] = field(default_factory=list)
    timeouts_s: list[float | None] = field(default_factory=list)
    running: int = 0
    running_max: int = 0
    cancelled: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def echo(self, call: ServerCall) -> Status:
        """Echo messages and metadata, and end with the requested status."""
        self.requests.append(call.request.metadata)
        self.encodings.append(call.request.encoding)
        self.timeouts_s.append(call.request.timeout_s)
        steering = dict(call.request.metadata)
        call.trailers = tuple(p for p in call.request.metadata if p[0].startswith("t-"))
        head = tuple(p for p in call.request.metadata if p[0].startswith("x-"))
        encoding = str(steering.get("encoding", IDENTITY))
        if "no-head" not in steering:
            call.send_head(head, encoding)
        async for message in call:
            await call.write(message)
        return Status(StatusCode(int(steering.get("code", "0"))), str(steering.get("details", "")))

    async def collect(self, call: ServerCall) -> None:
        sizes = [len(message) async for message in call]
        await call.write(f"{len(sizes)} {sum(sizes)}".encode())

    async def repeat(self, call: ServerCall) -> None:
        count, size = map(int, (await call.read() or b"").split())
        for number in range(count):
            await call.write(number.to_bytes(4, "big").ljust(size, b"r"))

    async def wait(self, call: ServerCall) -> None:
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        message = await call.read() or b""
        await self.gate.wait()
        self.running -= 1
        await call.write(message)

    async def hang(self, call: ServerCall) -> None:
        self.running += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def read(self, call: ServerCall) -> None:
        try:
            await call.read()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def crash(self, call: ServerCall) -> None:
        raise LookupError("a bug of the method")


def make_world(limits: Limits | None = None) -> OurServerWorld:
    methods: dict[str, Callable[[ServerCall], Awaitable[Status | None]]] = {}
    world = OurServerWorld(Server(methods, limits))
    for method in (
        world.echo, world.collect, world.repeat, world.wait, world.hang, world.read, world.crash
    ):  # fmt: skip
        methods[SERVICE + method.__name__.capitalize()] = method
    return world


@pytest.fixture
async def world() -> AsyncIterator[OurServerWorld]:
    world = make_world()
    yield world
    await world.server.close()
    assert not world.server.connections


@pytest.fixture(params=CLIENTS)
async def open_client(request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    """Listen if the world does not yet, and open a channel of one kind to it."""
    clients: list[GrpcioClient] = []

    async def open_client(
        world: OurServerWorld, address: object = None, **options: object
    ) -> GrpcioClient:
        target = address or await world.server.listen(ANY_PORT)
        client = CLIENTS[request.param](str(target), ChannelOptions(**options))  # type: ignore[arg-type]
        clients.append(client)
        return client

    yield open_client
    for client in clients:
        await client.close()


def expect_messages(outcome: Outcome, *messages: bytes) -> None:
    assert (outcome.code, outcome.details) == (grpc.StatusCode.OK, "")
    assert outcome.messages == list(messages)


# Calls


async def test_unary_calls_are_answered(world: OurServerWorld, open_client: Open) -> None:
    client = await open_client(world)
    for message in (b"", b"hello", bytes(range(256)) * 200):
        expect_messages(await client.call(UNARY_UNARY, "Echo", [message]), message)
    assert world.server.accepted == 1


async def test_hundreds_of_calls_share_a_connection(
    world: OurServerWorld, open_client: Open
) -> None:
    client = await open_client(world)
    messages = [b"%d" % number for number in range(300)]
    outcomes = await asyncio.gather(
        *(client.call(UNARY_UNARY, "Echo", [message]) for message in messages)
    )
    for outcome, message in zip(outcomes, messages, strict=True):
        expect_messages(outcome, message)
    assert world.server.accepted == 1


async def test_clients_stream_thousands_of_messages(
    world: OurServerWorld, open_client: Open
) -> None:
    client = await open_client(world)
    outcome = await client.call(STREAM_UNARY, "Collect", [bytes(100)] * 2000)
    expect_messages(outcome, b"2000 200000")


async def test_the_server_streams_thousands_of_messages(
    world: OurServerWorld, open_client: Open
) -> None:
    client = await open_client(world)
    outcome = await client.call(UNARY_STREAM, "Repeat", [b"2000 50"])
    expect_messages(outcome, *(n.to_bytes(4, "big").ljust(50, b"r") for n in range(2000)))


async def test_both_stream_thousands_of_messages(world: OurServerWorld, open_client: Open) -> None:
    client = await open_client(world)
    messages = [b"%d" % number for number in range(1000)]
    expect_messages(await client.call(STREAM_STREAM, "Echo", messages), *messages)


async def test_streams_may_be_empty(world: OurServerWorld, open_client: Open) -> None:
    client = await open_client(world)
    expect_messages(await client.call(STREAM_UNARY, "Collect", []), b"0 0")
    expect_messages(await client.call(UNARY_STREAM, "Repeat", [b"0 0"]))
    expect_messages(await client.call(STREAM_STREAM, "Echo", []))


# Metadata, status, time

PAIRS: Metadata = (
    ("plain", "some text: with, signs; and = more"),
    ("repeated", "first"),
    ("repeated", "second"),
    ("bytes-bin", bytes(range(256))),
    ("short-bin", b"\0"),
)


def picked(metadata: Metadata, prefix: str) -> list[tuple[str, str | bytes]]:
    found = [(key, value) for key, value in metadata if key.startswith(prefix)]
    return sorted(found, key=lambda pair: pair[0])


@pytest.mark.parametrize("kind", KINDS)
async def test_metadata_travels_both_ways(
    world: OurServerWorld, open_client: Open, kind: str
) -> None:
    client = await open_client(world)
    sent = tuple((prefix + key, value) for prefix in ("x-", "t-") for key, value in PAIRS)
    outcome = await client.call(kind, "Echo", [b"m"], metadata=sent)
    expect_messages(outcome, b"m")
    assert picked(world.requests[0], "x-") == picked(sent, "x-")
    assert picked(outcome.initial, "") == picked(sent, "x-")
    assert picked(outcome.trailing, "") == picked(sent, "t-")


async def test_the_transports_own_headers_are_no_metadata(
    world: OurServerWorld, open_client: Open
) -> None:
    client = await open_client(world)
    await client.call(UNARY_UNARY, "Echo", [b""], metadata=(("mine", "1"),))
    assert [key for key, _ in world.requests[0]] == ["user-agent", "mine"]


DETAILS = 'käse "日本語" 🚀 100% %41 a/b?c\ttab\nline'


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", [(), (("no-head", "1"),)], ids=["head", "trailers only"])
async def test_a_status_arrives_with_details_and_metadata(
    world: OurServerWorld, open_client: Open, kind: str, head: Metadata
) -> None:
    async def fail(call: ServerCall) -> Status:
        async for _ in call:
            pass
        call.trailers = (("t-why-bin", b"\0\xff"),)
        if not head:
            call.send_head((("x-head", "1"),))
        return Status(StatusCode.FAILED_PRECONDITION, DETAILS)

    server = Server({SERVICE + "Fail": fail})
    client = await open_client(world, await server.listen(ANY_PORT))
    outcome = await client.call(kind, "Fail", [b"m"])
    assert outcome.messages == []
    assert outcome.code is grpc.StatusCode.FAILED_PRECONDITION
    assert outcome.details == DETAILS
    # On asyncio, grpcio drops the head of a stream whose status follows it directly.
    if isinstance(client, SyncClient):
        assert picked(outcome.initial, "") == ([] if head else [("x-head", "1")])
    assert picked(outcome.trailing, "") == [("t-why-bin", b"\0\xff")]
    await server.close()


async def test_messages_come_before_a_bad_status(world: OurServerWorld, open_client: Open) -> None:
    client = await open_client(world)
    metadata: Metadata = (("code", "11"), ("details", "no more"))
    outcome = await client.call(STREAM_STREAM, "Echo", [b"1", b"2"], metadata=metadata)
    assert outcome.messages == [b"1", b"2"]
    assert (outcome.code, outcome.details) == (grpc.StatusCode.OUT_OF_RANGE, "no more")


async def test_an_unknown_method_is_unimplemented(world: OurServerWorld, open_client: Open) -> None:
    client = await open_client(world)
    # On asyncio, a request stream of grpcio that ends while it is sending fails with
    # "Internal error from Core", with any server.
    for kind in KINDS if isinstance(client, SyncClient) else (UNARY_UNARY, UNARY_STREAM):
        outcome = await client.call(kind, "Nowhere", [b""])
        assert outcome.code is grpc.StatusCode.UNIMPLEMENTED
        assert outcome.details == "no method '/test.Service/Nowhere' here"


async def test_a_method_that_raises_is_an_internal_error(
    world: OurServerWorld, open_client: Open
) -> None:
    raised: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: raised.append(context.get("exception")))
    client = await open_client(world)
    outcome = await client.call(UNARY_UNARY, "Crash", [b""])
    assert outcome.code is grpc.StatusCode.INTERNAL
    assert outcome.details == "the method raised an exception"


async def test_server_gets_the_timeout(world: OurServerWorld, open_client: Open) -> None:
    client = await open_client(world)
    await client.call(UNARY_UNARY, "Echo", [b""], timeout_s=10.0)
    assert world.timeouts_s[0] == pytest.approx(10.0, abs=2.0)


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_method_is_cancelled_at_the_clients_deadline(
    world: OurServerWorld, open_client: Open, kind: str
) -> None:
    client = await open_client(world)
    expect_messages(await client.call(UNARY_UNARY, "Echo", [b"warm"]), b"warm")
    timeout_s = 0.2
    while not world.running:  # On a busy machine the first may not get there in time.
        outcome = await client.call(kind, "Hang", [b""], timeout_s=timeout_s)
        assert outcome.code is grpc.StatusCode.DEADLINE_EXCEEDED
        timeout_s *= 2
    await until(lambda: world.cancelled == world.running, "the method to be cancelled")


# Compression


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("kind", KINDS)
async def test_compressed_responses_are_decoded(
    world: OurServerWorld, open_client: Open, kind: str, encoding: str
) -> None:
    client = await open_client(world)
    metadata: Metadata = (("encoding", encoding),)
    expect_messages(await client.call(kind, "Echo", [bytes(9999)], metadata=metadata), bytes(9999))


@pytest.mark.parametrize(
    ("compression", "encoding"),
    [(grpc.Compression.Gzip, "gzip"), (grpc.Compression.Deflate, "deflate")],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_client_compresses_is_understood(
    world: OurServerWorld,
    open_client: Open,
    kind: str,
    compression: grpc.Compression,
    encoding: str,
) -> None:
    client = await open_client(world, compression=compression)
    expect_messages(await client.call(kind, "Echo", [bytes(9999)]), bytes(9999))
    assert world.encodings == [encoding]


# Sizes and limits


async def test_messages_of_many_mebibytes_travel_both_ways(open_client: Open) -> None:
    world = make_world(Limits(message_bytes_max=16 * MIB))
    client = await open_client(world, options=ANY_SIZE)
    message = bytes(range(256)) * (4 * 10 * 1024)
    expect_messages(await client.call(UNARY_UNARY, "Echo", [message]), message)
    expect_messages(await client.call(STREAM_STREAM, "Echo", [message] * 3), *[message] * 3)
    await world.server.close()


async def test_a_message_over_the_limit_is_refused_and_its_method_cancelled(
    world: OurServerWorld, open_client: Open
) -> None:
    client = await open_client(world, options=ANY_SIZE)
    outcome = await client.call(UNARY_UNARY, "Read", [bytes(4 * MIB + 1)])
    assert outcome.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert outcome.details == "Received message larger than max (4194305 vs. 4194304)"
    await until(lambda: world.cancelled == 1, "the method to be cancelled")
    expect_messages(await client.call(UNARY_UNARY, "Echo", [b"next"]), b"next")
    assert world.server.accepted == 1


async def test_clients_respect_the_servers_limit_of_streams(open_client: Open) -> None:
    world = make_world(Limits(concurrent_streams_max=10))
    client = await open_client(world)
    messages = [b"%d" % number for number in range(30)]
    calls = asyncio.gather(*(client.call(UNARY_UNARY, "Wait", [each]) for each in messages))
    await until(lambda: world.running == 10, "ten calls")
    world.gate.set()
    for outcome, message in zip(await calls, messages, strict=True):
        expect_messages(outcome, message)
    assert world.running_max == 10
    await world.server.close()


@pytest.mark.rerun("grpcio's client limits the time of each PING")
async def test_keepalive_of_a_client_is_answered(world: OurServerWorld, open_client: Open) -> None:
    eager = (
        ("grpc.keepalive_time_ms", 20),
        ("grpc.keepalive_timeout_ms", 2000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    )
    client = await open_client(world, options=eager)
    call = asyncio.ensure_future(client.call(UNARY_UNARY, "Wait", [b"long"]))
    await until(lambda: world.running == 1, "the call")
    await asyncio.sleep(0.3)  # A dozen PINGs.
    world.gate.set()
    expect_messages(await call, b"long")
    assert world.server.accepted == 1


# The end of a server


async def test_draining_lets_calls_finish_and_sends_clients_elsewhere(
    world: OurServerWorld, open_client: Open
) -> None:
    client = await open_client(world)
    call = asyncio.ensure_future(client.call(UNARY_UNARY, "Wait", [b"work"]))
    await until(lambda: world.running == 1, "the call")
    world.server.drain()
    late = await client.call(UNARY_UNARY, "Echo", [b""])
    assert late.code is grpc.StatusCode.UNAVAILABLE
    assert world.requests == []
    world.gate.set()
    expect_messages(await call, b"work")
    await until(lambda: not world.server.connections, "the connection to close")


async def test_closing_ends_calls_with_unavailable(
    world: OurServerWorld, open_client: Open
) -> None:
    client = await open_client(world)
    call = asyncio.ensure_future(client.call(UNARY_UNARY, "Hang", [b""]))
    await until(lambda: world.running == 1, "the call")
    await world.server.close()
    assert (await call).code is grpc.StatusCode.UNAVAILABLE
    assert world.cancelled == 1


# TLS


def client_credentials(authority: CertificateAuthority, *, with_identity: bool = False) -> object:
    if not with_identity:
        return grpc.ssl_channel_credentials(authority.certificate_pem)
    certificate, key = authority.issue(["client.test"], client=True)
    return grpc.ssl_channel_credentials(authority.certificate_pem, key, certificate)


NAMED = (("grpc.ssl_target_name_override", AUTHORITY),)


@pytest.mark.parametrize("with_identity", [False, True], ids=["server", "both"])
async def test_calls_run_over_tls(
    world: OurServerWorld, open_client: Open, authority: CertificateAuthority, with_identity: bool
) -> None:
    client_roots = authority.certificate_pem if with_identity else None
    tls = server_context(*authority.issue([AUTHORITY]), client_roots)
    address = await world.server.listen(ANY_PORT, tls=tls)
    credentials = client_credentials(authority, with_identity=with_identity)
    client = await open_client(world, address, credentials=credentials, options=NAMED)
    for kind in KINDS:
        expect_messages(await client.call(kind, "Echo", [bytes(100_000)]), bytes(100_000))


async def test_client_that_rejects_the_certificate_leaves_no_connection(
    world: OurServerWorld, open_client: Open, authority: CertificateAuthority
) -> None:
    tls = server_context(*CertificateAuthority("stranger").issue([AUTHORITY]))
    address = await world.server.listen(ANY_PORT, tls=tls)
    credentials = client_credentials(authority)
    client = await open_client(world, address, credentials=credentials, options=NAMED)
    outcome = await client.call(UNARY_UNARY, "Echo", [b""])
    assert outcome.code is grpc.StatusCode.UNAVAILABLE
    async with asyncio.timeout(PATIENCE_S):
        await world.server.close()


async def test_client_without_a_required_certificate_is_rejected(
    world: OurServerWorld, open_client: Open, authority: CertificateAuthority
) -> None:
    tls = server_context(*authority.issue([AUTHORITY]), authority.certificate_pem)
    address = await world.server.listen(ANY_PORT, tls=tls)
    credentials = client_credentials(authority)
    client = await open_client(world, address, credentials=credentials, options=NAMED)
    outcome = await client.call(UNARY_UNARY, "Echo", [b""])
    assert outcome.code is grpc.StatusCode.UNAVAILABLE
    assert world.requests == []
