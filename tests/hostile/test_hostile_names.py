"""Name servers that do not answer, or answer too much; executors that the application fills.

Figures with names whose look-ups hang for 10 s, if they run in the loop's executor and if they run
in `LookupThreads`; grpcio's in brackets:
  10 hanging names, then an RPC to localhost   DEADLINE_EXCEEDED after 4 s   0.01 s (0.01 s)
  full executor, then an RPC to localhost      DEADLINE_EXCEEDED after 4 s   0.01 s (0.01 s)
  the end of `asyncio.run` after the first     6 s; uvloop 46 s              0 s (0 s)
  100,000 addresses, longest callback          725 ms; round_robin 3.6 s     32 ms, 10 ms
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from threading import Event

import grpc
import grpc.aio
import pytest

import proxyless.aio
from proxyless.controlplane import ControlPlane
from proxyless.runtime import AsyncioNetwork
from proxyless.runtime import lookups as lookups_module
from proxyless.runtime.lookups import (
    ADDRESSES_PER_NAME_MAX,
    BUSY_MAX,
    LookupThreads,
    NameKind,
)
from tests.hostile.watchdog import loop_watchdog
from tests.worlds.authorities import (
    AUTHORITY_METHOD,
    TARGET,
    authority_echo_server,
    dns_resources,
    rewriting_snapshot,
)
from tests.worlds.transports import until

# A pause of the machine may add CPU time to one callback.
pytestmark = pytest.mark.rerun("the CPU time of callbacks is measured")

RPC_TIMEOUT_S = 20.0


@pytest.fixture(autouse=True)
def own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests do not share the look-ups of these."""
    threads = LookupThreads()
    monkeypatch.setattr(lookups_module, "lookup_threads", lambda: threads)


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Look-ups of `*.silent.test` hang until the event is set."""
    by_system, is_over = socket.getaddrinfo, Event()

    def getaddrinfo(host: str, port: int | None, **options: int) -> object:
        if host.endswith(".silent.test"):
            is_over.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return by_system(host, port, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield is_over
    is_over.set()


@asynccontextmanager
async def serve_echo() -> AsyncIterator[int]:
    async def echo(request: bytes, _context: object) -> bytes:
        return request

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, _details: object) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(echo)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("localhost:0")
    await server.start()
    yield port
    await server.stop(None)


async def call(target: str) -> bytes:
    async with proxyless.aio.insecure_channel(target) as channel:
        reply: bytes = await channel.unary_unary("/a/b")(b"hello", timeout=RPC_TIMEOUT_S)
        return reply


@asynccontextmanager
async def hanging_channels(number: int) -> AsyncIterator[None]:
    channels = [proxyless.aio.insecure_channel(f"n{each}.silent.test:80") for each in range(number)]
    for each in channels:
        each.get_state(try_to_connect=True)
    # As many as may; the others wait.
    busy = min(number, BUSY_MAX[NameKind.NEW])
    await until(lambda: lookups_module.lookup_threads().busy >= busy, "look-ups hang")
    yield
    for each in channels:
        await each.close()


@pytest.mark.parametrize("number", [10, 200])
async def test_localhost_is_resolved_while_other_names_hang(silence: Event, number: int) -> None:
    async with serve_echo() as port, hanging_channels(number):
        assert await call(f"localhost:{port}") == b"hello"
        assert not silence.is_set()
        assert lookups_module.lookup_threads().busy == min(number, BUSY_MAX[NameKind.NEW])


async def test_another_name_is_resolved_while_names_hang(
    silence: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched = socket.getaddrinfo

    def getaddrinfo(host: str, port: int | None, **options: int) -> object:
        host = "localhost" if host == "answered.test" else host
        return patched(host, port, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    async with serve_echo() as port:
        assert await call(f"answered.test:{port}") == b"hello"
        # More than there are threads for names that were never looked up.
        async with hanging_channels(200):
            assert await call(f"answered.test:{port}") == b"hello"
    assert not silence.is_set()


async def test_threads_of_closed_channels_are_used_again(silence: Event) -> None:
    """A client that makes a channel for each RPC does not collect look-ups."""
    for _ in range(50):
        async with hanging_channels(1):
            pass
    assert lookups_module.lookup_threads().busy == 1, "the look-up that hangs is shared"
    async with hanging_channels(200):
        pass
    await until(
        lambda: lookups_module.lookup_threads().waiting == 0, "waiting look-ups are dropped"
    )
    assert lookups_module.lookup_threads().busy == BUSY_MAX[NameKind.NEW]
    silence.set()
    await until(lambda: lookups_module.lookup_threads().busy == 0, "look-ups end")


@asynccontextmanager
async def full_executor() -> AsyncIterator[None]:
    loop, may_end = asyncio.get_running_loop(), Event()
    loop.set_default_executor(ThreadPoolExecutor(2))  # The loop shuts it down.
    jobs = [asyncio.ensure_future(asyncio.to_thread(may_end.wait, 60)) for _ in range(12)]
    try:
        yield
    finally:
        may_end.set()
        await asyncio.gather(*jobs)


async def test_a_full_executor_delays_no_look_up() -> None:
    async with full_executor(), serve_echo() as port:
        for host in ("localhost", "127.0.0.1", "LOCALHOST"):
            assert await call(f"{host}:{port}") == b"hello"


@pytest.mark.usefixtures("silence")
async def test_names_of_a_control_plane_and_of_a_cluster_are_resolved_while_others_hang() -> None:
    """The bootstrap names the server `localhost`, and so does the LOGICAL_DNS cluster."""
    async with (
        authority_echo_server() as server,
        ControlPlane(rewriting_snapshot(*dns_resources(server))) as plane,
        full_executor(),
        hanging_channels(60),
    ):
        bootstrap = plane.bootstrap()
        [xds_server] = bootstrap["xds_servers"]
        port = xds_server["server_uri"].rpartition(":")[2]
        xds_server["server_uri"] = f"localhost:{port}"
        async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
            await channel.unary_unary(AUTHORITY_METHOD)(b"", timeout=RPC_TIMEOUT_S)


@pytest.mark.parametrize("policy", ["pick_first", "round_robin"])
async def test_100_000_addresses_take_no_long_turn(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Loopback addresses at which nothing listens.
    rows = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.{n >> 16}.{n >> 8 & 255}.{n & 255}", 0))
        for n in range(1 << 17, (1 << 17) + 100_000)
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
    config = f'{{"loadBalancingConfig": [{{"{policy}": {{}}}}]}}'
    options = [("grpc.service_config", config)]
    with loop_watchdog():
        async with proxyless.aio.insecure_channel("many.test:1", options=options) as channel:
            state = channel.get_state(try_to_connect=True)
            while state is not grpc.ChannelConnectivity.CONNECTING:
                await channel.wait_for_state_change(state)
                state = channel.get_state()
        found = await AsyncioNetwork().resolve("many.test", 1)
    assert len(found) == ADDRESSES_PER_NAME_MAX
