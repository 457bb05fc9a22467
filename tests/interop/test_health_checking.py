"""Client-side health checking (A17) with grpcio's health service, on both stacks.

Each scenario runs with `grpc.aio` and with ours. It does not sleep: it makes calls until the
expected backends answer.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

import proxyless
from tests.certificates import CertificateAuthority
from tests.interop.drop_in import STACKS, Untyped, stop_server
from tests.worlds.transports import PATIENCE_S, until

WHO = "/test.Service/Who"
SERVICE = "shop.Orders"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

# Enough RPCs in a row to reach every READY backend.
ENOUGH = 12


def config_of(policy: str = "round_robin", service: str = SERVICE) -> str:
    return json.dumps(
        {
            "loadBalancingConfig": [{policy: {}}],
            "healthCheckConfig": {"serviceName": service},
        }
    )


class Servicer(health.aio.HealthServicer):  # type: ignore[misc]
    """grpcio's health service, which also records the requests."""

    def __init__(self) -> None:
        super().__init__()
        self.requested: list[str] = []
        self.metadata: dict[str, str] = {}
        self.watches = 0
        # Whether the first stream ends without an answer, and the next ones get none.
        self.is_broken = False

    async def Watch(self, request: Untyped, context: Untyped) -> None:  # noqa: N802
        self.requested.append(request.service)
        self.metadata = dict(context.invocation_metadata())
        if self.is_broken:
            if len(self.requested) == 1:
                await context.abort(grpc.StatusCode.INTERNAL, "out of order")
            await asyncio.Event().wait()
        self.watches += 1
        try:
            await super().Watch(request, context)
        finally:
            self.watches -= 1


class Backend:
    """A grpcio server that answers with its name, with grpcio's health service beside."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.health = Servicer()
        # The client's end of each connection that RPCs came by.
        self.peers: set[str] = set()
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self.port = 0

    async def start(self, *, knows_health: bool = True, credentials: Untyped = None) -> None:
        handler = grpc.unary_unary_rpc_method_handler(self._who)
        service = grpc.method_handlers_generic_handler("test.Service", {"Who": handler})
        self._server.add_generic_rpc_handlers((service,))
        if knows_health:
            health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        if credentials is None:
            self.port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        await self._server.start()

    async def say(self, status: Untyped) -> None:
        await self.health.set(SERVICE, status)

    async def stop(self) -> None:
        await self._server.stop(None)

    async def close(self) -> None:
        """Stop, and wait for the handlers of all servers: those must have been stopped."""
        await stop_server(self._server)

    async def _who(self, _: bytes, context: Untyped) -> bytes:
        self.peers.add(context.peer())
        return self.name.encode()


class Stage:
    """One stack, and backends for it to call."""

    def __init__(self, aio: Untyped, exits: AsyncExitStack) -> None:
        self._aio = aio
        self._exits = exits
        self.backends: list[Backend] = []

    async def serve(self, names: str, **options: Untyped) -> Sequence[Backend]:
        self._exits.push_async_callback(self._close)
        for name in names:
            backend = Backend(name)
            self.backends.append(backend)
            await backend.start(**options)
        return self.backends

    async def _close(self) -> None:
        for backend in self.backends:
            await backend.stop()
        for backend in self.backends:
            await backend.close()

    def open(
        self, config: str = "", options: Sequence[tuple[str, Untyped]] = (), **more: Untyped
    ) -> Untyped:
        target = "ipv4:" + ",".join(f"127.0.0.1:{each.port}" for each in self.backends)
        options = [("grpc.service_config", config or config_of()), *options]
        # A pool of its own: grpcio would share connections with the channels of other tests.
        options.append(("grpc.use_local_subchannel_pool", 1))
        if credentials := more.get("credentials"):
            channel = self._aio.secure_channel(target, credentials, options=options)
        else:
            channel = self._aio.insecure_channel(target, options=options)
        self._exits.push_async_callback(channel.close)
        return channel


async def call(channel: Untyped, *, wait_for_ready: bool = False) -> str:
    reply = await channel.unary_unary(WHO)(b"", timeout=PATIENCE_S, wait_for_ready=wait_for_ready)
    return str(reply, "ascii")


async def expect_names(channel: Untyped, names: str) -> None:
    """Wait until exactly these backends answer."""
    async with asyncio.timeout(PATIENCE_S):
        while {await call(channel, wait_for_ready=True) for _ in range(ENOUGH)} != set(names):
            pass


async def call_until_failure(channel: Untyped) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await call(channel)


async def expect_failure(channel: Untyped) -> str:
    """RPCs fail from now on, or soon; returns why."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call_until_failure(channel)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(raised.value.details())


@pytest.fixture(params=list(STACKS))
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as exits:
        yield Stage(STACKS[request.param], exits)


async def test_traffic_leaves_and_returns_on_the_same_connection(stage: Stage) -> None:
    a, b = await stage.serve("ab")
    await a.say(SERVING)
    await b.say(NOT_SERVING)
    channel = stage.open()
    await expect_names(channel, "a")
    await b.say(SERVING)
    await expect_names(channel, "ab")
    await a.say(NOT_SERVING)
    await expect_names(channel, "b")
    await a.say(SERVING)
    await expect_names(channel, "ab")
    assert [(len(each.peers), each.health.requested) for each in (a, b)] == [(1, [SERVICE])] * 2


async def test_rpcs_fail_or_wait_when_no_backend_is_serving(stage: Stage) -> None:
    a, b = await stage.serve("ab")
    await a.say(NOT_SERVING)
    channel = stage.open()
    text = await expect_failure(channel)
    assert text.startswith("connections to all backends failing; last error: ")
    assert channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
    waiting = asyncio.ensure_future(call(channel, wait_for_ready=True))
    await b.say(SERVING)
    assert await waiting == "b"


async def test_a_server_without_a_health_service_is_healthy(stage: Stage) -> None:
    a, b = await stage.serve("ab", knows_health=False)
    channel = stage.open()
    await expect_names(channel, "ab")
    assert (a.health.requested, b.health.requested) == ([], [])


async def test_the_empty_name_is_the_whole_server(stage: Stage) -> None:
    a, _ = await stage.serve("ab")
    channel = stage.open(config_of(service=""))
    await expect_names(channel, "ab")
    await a.health.set("", NOT_SERVING)
    await expect_names(channel, "b")


async def test_no_rpc_is_lost_when_a_server_is_not_serving_before_it_stops(stage: Stage) -> None:
    a, b = await stage.serve("ab")
    for each in (a, b):
        await each.say(SERVING)
    channel = stage.open()
    await expect_names(channel, "ab")
    await a.health.enter_graceful_shutdown()
    # None of these fails.
    await expect_names(channel, "b")
    await a.stop()
    await expect_names(channel, "b")


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (config_of("pick_first"), ()),
        (config_of(), (("grpc.inhibit_health_checking", 1),)),
    ],
    ids=["pick_first", "inhibited"],
)
async def test_no_health_stream_is_opened_when_health_checking_is_disabled(
    stage: Stage, config: str, options: Sequence[tuple[str, Untyped]]
) -> None:
    [a] = await stage.serve("a")
    await a.say(NOT_SERVING)
    channel = stage.open(config, options)
    await expect_names(channel, "a")
    assert a.health.requested == []


async def test_closed_channel_has_no_health_streams(stage: Stage) -> None:
    [a] = await stage.serve("a")
    await a.say(SERVING)
    channel = stage.open()
    await expect_names(channel, "a")
    assert a.health.watches == 1
    await channel.close()
    await until(lambda: a.health.watches == 0, "the stream to end")


@pytest.mark.spec("HC-12")
async def test_call_credentials_are_sent(stage: Stage, authority: CertificateAuthority) -> None:
    certificate, key = authority.issue(["api.test"])
    [a] = await stage.serve("a", credentials=grpc.ssl_server_credentials([(key, certificate)]))
    await a.say(SERVING)
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(authority.certificate_pem),
        grpc.access_token_call_credentials("secret"),
    )
    name = ("grpc.ssl_target_name_override", "api.test")
    channel = stage.open(options=[name], credentials=credentials)
    await expect_names(channel, "a")
    assert a.health.metadata["authorization"] == "Bearer secret"


# Differences


OURS = pytest.mark.parametrize("stage", ["proxyless"], indirect=True)
THEIRS = pytest.mark.parametrize("stage", ["grpcio"], indirect=True)


@THEIRS
async def test_grpcio_reports_only_that_a_backend_is_unhealthy(stage: Stage) -> None:
    [a] = await stage.serve("a")
    text = await expect_failure(stage.open())
    assert text.endswith(f"127.0.0.1:{a.port}: backend unhealthy")


@OURS
async def test_proxyless_reports_the_answer_of_the_backend(stage: Stage) -> None:
    [a] = await stage.serve("a")
    text = await expect_failure(stage.open())
    reason = f"health check: service {SERVICE!r} is SERVICE_UNKNOWN"
    assert text.endswith(f"127.0.0.1:{a.port}: {reason}")


@THEIRS
async def test_rpcs_of_grpcio_wait_during_a_retry_of_the_health_stream(stage: Stage) -> None:
    [a] = await stage.serve("a")
    a.health.is_broken = True
    channel = stage.open()
    await expect_failure(channel)
    await until(lambda: len(a.health.requested) > 1, "the next stream")
    connecting = grpc.ChannelConnectivity.CONNECTING
    await until(lambda: channel.get_state() is connecting, "the channel to have hope")


@OURS
async def test_rpcs_of_proxyless_fail_during_a_retry_of_the_health_stream(stage: Stage) -> None:
    [a] = await stage.serve("a")
    a.health.is_broken = True
    channel = stage.open()
    await expect_failure(channel)
    await until(lambda: len(a.health.requested) > 1, "the next stream")
    assert "ended with INTERNAL: out of order" in await expect_failure(channel)
    assert channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE


async def test_blocking_channel_checks_health() -> None:
    async with AsyncExitStack() as exits:
        stage = Stage(None, exits)
        a, b = await stage.serve("ab")
        await a.say(SERVING)
        target = f"ipv4:127.0.0.1:{a.port},127.0.0.1:{b.port}"
        options = [("grpc.service_config", config_of())]

        def call_all(names: str) -> None:
            """Call until those answer."""
            who = channel.unary_unary(WHO)
            while {
                str(who(b"", timeout=PATIENCE_S, wait_for_ready=True), "ascii")
                for _ in range(ENOUGH)
            } != set(names):
                pass

        with proxyless.insecure_channel(target, options) as channel:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.to_thread(call_all, "a")
                await b.say(SERVING)
                await a.say(NOT_SERVING)
                await asyncio.to_thread(call_all, "b")
        await until(lambda: a.health.watches + b.health.watches == 0, "the streams to end")
