"""Config cache: a process starts while the control plane is away, with real sockets and files."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import grpc
import pytest

import proxyless.aio
from proxyless.assembly import xds_clients_by_loop
from proxyless.controlplane import CLUSTER, ControlPlane, simple_mesh
from proxyless.metrics import Instrument
from proxyless.xds.client.last_good import WAIT_S
from proxyless.xds.client.metrics import report_gauges
from tests.interop.drop_in import Untyped
from tests.worlds.grpcio_peers import NamedBackend, backends
from tests.worlds.ports import free_port
from tests.worlds.transports import PATIENCE_S, until

TARGET = "xds:///api"
WHERE = "/test.Mesh/Where"


@pytest.fixture
async def two() -> AsyncIterator[list[NamedBackend]]:
    async with backends("a", "b") as started:
        yield started


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def channel_to(bootstrap: Mapping[str, object], directory: Path | None) -> Untyped:
    options = [] if directory is None else [("proxyless.config_cache", str(directory))]
    return proxyless.aio.insecure_channel(TARGET, options, bootstrap=bootstrap)


def files_in(directory: Path) -> set[Path]:
    return set(directory.iterdir())


async def call(channel: Untyped) -> str:
    response: bytes = await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
    return response.decode()


async def save(control_plane: ControlPlane, directory: Path) -> None:
    """Let a first process accept the config, and end."""
    async with channel_to(control_plane.bootstrap(), directory) as channel:
        await call(channel)
        await until(lambda: list(directory.glob("*.xds")), "the file")


def mesh(backend: NamedBackend) -> ControlPlane:
    """A control plane whose port is its own while it is away."""
    address = f"127.0.0.1:{free_port()}"
    return ControlPlane(simple_mesh("api", {"pool": [backend.address]}), address)


async def stopped_mesh(backend: NamedBackend, directory: Path) -> ControlPlane:
    """A control plane that was there, and has left a config cache."""
    control_plane = mesh(backend)
    async with control_plane:
        await save(control_plane, directory)
    return control_plane


async def test_first_rpc_fails_without_a_cache_when_the_control_plane_is_away(
    two: list[NamedBackend], directory: Path
) -> None:
    control_plane = await stopped_mesh(two[0], directory)
    async with channel_to(control_plane.bootstrap(), None) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.spec("CACHE-02", "CACHE-06")
async def test_first_rpc_succeeds_with_a_cache_and_the_live_config_follows(
    two: list[NamedBackend], directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    control_plane = await stopped_mesh(two[0], directory)
    async with channel_to(control_plane.bootstrap(), directory) as channel:
        assert await call(channel) == "a"
        assert "no xds server answers, started with the config of 2" in caplog.text
        explanation = str(channel.explain(WHERE))
        assert 'listener "api": from the config cache, saved at 2' in explanation
        assert "next attempt in" in explanation or "does not answer" in explanation

        control_plane.set_snapshot(simple_mesh("api", {"pool": [two[1].address]}))
        async with control_plane:
            await control_plane.wait_for_ack(CLUSTER)
            async with asyncio.timeout(PATIENCE_S):
                while await call(channel) != "b":
                    pass
            assert "from the config cache" not in str(channel.explain(WHERE))


async def test_silent_control_plane_is_waited_for(two: list[NamedBackend], directory: Path) -> None:
    """It accepts connections and never answers."""
    control_plane = await stopped_mesh(two[0], directory)

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            pass
        writer.close()
        is_left.set()

    is_left = asyncio.Event()
    host, _, port = control_plane.address.rpartition(":")
    server = await asyncio.start_server(never_answer, host, int(port))
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    async with channel_to(control_plane.bootstrap(), directory) as channel:
        assert await call(channel) == "a"
        assert loop.time() - started_s >= WAIT_S
    await is_left.wait()
    server.close()
    await server.wait_closed()


@pytest.mark.spec("CACHE-04")
async def test_damaged_cache_is_ignored_and_replaced(
    two: list[NamedBackend], directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    control_plane = await stopped_mesh(two[0], directory)
    [file] = files_in(directory)
    file.write_bytes(file.read_bytes()[:-7])
    async with channel_to(control_plane.bootstrap(), directory) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await call(channel)
    warnings = [each for each in caplog.records if each.name == "proxyless.xds.client.last_good"]
    assert [each.getMessage().endswith("it is not used") for each in warnings] == [True]
    size = file.stat().st_size
    async with control_plane, channel_to(control_plane.bootstrap(), directory) as channel:
        await call(channel)
        await until(lambda: file.stat().st_size > size, "a whole file")


async def test_cache_of_another_node_is_not_used(two: list[NamedBackend], directory: Path) -> None:
    control_plane = await stopped_mesh(two[0], directory)
    async with channel_to(control_plane.bootstrap("another-node"), directory) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await call(channel)


@pytest.mark.spec("CACHE-04")
async def test_renamed_cache_of_another_node_is_not_used(
    two: list[NamedBackend], directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    control_plane = await stopped_mesh(two[0], directory)
    [mine] = files_in(directory)
    async with control_plane, channel_to(control_plane.bootstrap("other"), directory) as channel:
        await call(channel)
        await until(lambda: len(list(directory.glob("*.xds"))) == 2, "its own file")
    [other] = files_in(directory) - {mine}
    mine.rename(other)
    async with channel_to(control_plane.bootstrap("other"), directory) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await call(channel)
    assert "is of another node, server or target" in caplog.text


@pytest.mark.spec("CACHE-06")
async def test_gauge_counts_the_resources_from_the_cache(
    two: list[NamedBackend], directory: Path
) -> None:
    control_plane = await stopped_mesh(two[0], directory)
    async with channel_to(control_plane.bootstrap(), directory) as channel:
        await call(channel)
        clients = xds_clients_by_loop()[asyncio.get_running_loop()]
        [client] = clients.by_scope[TARGET]
        reported: dict[str, float] = {}

        def report(instrument: Instrument, value: float, _labels: object) -> None:
            reported[instrument.name] = value

        report_gauges(TARGET, client, report)
        assert reported["proxyless.xds_client.saved_resources"] == 4


WORKER = """
import asyncio, json, sys
import proxyless.aio

async def main():
    async with proxyless.aio.insecure_channel("xds:///api") as channel:
        print((await channel.unary_unary("/test.Mesh/Where")(b"", timeout=20)).decode(), flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


async def run_worker(bootstrap: Mapping[str, object], directory: Path) -> Untyped:
    """A process of its own, with the cache from its environment."""
    variables = {
        "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(bootstrap),
        "GRPC_XDS_CONFIG_CACHE": str(directory),
    }
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WORKER),
        env={**os.environ, **variables},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


@pytest.mark.spec("CACHE-07")
async def test_several_processes_share_a_cache(two: list[NamedBackend], directory: Path) -> None:
    control_plane = mesh(two[0])
    for is_up in (True, False):
        if is_up:
            await control_plane.start()
        workers = [await run_worker(control_plane.bootstrap(), directory) for _ in range(2)]
        async with asyncio.timeout(PATIENCE_S):
            assert [await worker.stdout.readline() for worker in workers] == [b"a\n", b"a\n"]
            if is_up:
                await until(lambda: list(directory.glob("*.xds")), "the file")
                await control_plane.stop()
            for worker in workers:
                worker.stdin.write(b"\n")
                assert await worker.wait() == 0
    # A process that ends while it writes leaves a temporary file.
    assert len([each for each in files_in(directory) if each.suffix == ".xds"]) == 1


async def test_cache_is_set_in_the_bootstrap(two: list[NamedBackend], directory: Path) -> None:
    control_plane = mesh(two[0])
    bootstrap = {"proxyless": {"config_cache": str(directory)}}
    async with control_plane:
        bootstrap |= control_plane.bootstrap()
        async with channel_to(bootstrap, None) as channel:
            await call(channel)
            await until(lambda: list(directory.glob("*.xds")), "the file")
    async with channel_to(bootstrap, None) as channel:
        assert await call(channel) == "a"
