"""xDS channel whose control plane is a directory of files, with real backends."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

import proxyless
import proxyless.aio
from proxyless.controlplane import simple_mesh
from tests.interop.drop_in import Untyped
from tests.mesh_files import write_resources
from tests.worlds.grpcio_peers import NamedBackend, backends
from tests.worlds.transports import PATIENCE_S

WHERE = "/test.Mesh/Where"


@pytest.fixture
async def two() -> AsyncIterator[list[NamedBackend]]:
    async with backends("a", "b") as started:
        yield started


async def call(channel: Untyped) -> str:
    response: bytes = await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
    return response.decode()


async def test_channel_reads_its_config_from_files_and_follows_changes(
    two: list[NamedBackend], tmp_path: Path
) -> None:
    file = tmp_path / "mesh.json"
    write_resources(file, simple_mesh("api", {"pool": [two[0].address]}))
    bootstrap = {"xds_servers": [{"server_uri": f"file://{tmp_path}"}], "node": {"id": "laptop"}}
    async with proxyless.aio.insecure_channel("xds:///api", bootstrap=bootstrap) as channel:
        assert await call(channel) == "a"
        assert f'xds server "file://{tmp_path}": answers' in str(channel.explain(WHERE))
        write_resources(file, simple_mesh("api", {"other": [two[1].address]}))
        async with asyncio.timeout(PATIENCE_S):
            while await call(channel) != "b":  # No RPC fails while a cluster is replaced.
                pass
        file.unlink()
        assert await call(channel) == "b"


async def test_blocking_channel_reads_its_config_from_files(
    two: list[NamedBackend], tmp_path: Path
) -> None:
    write_resources(tmp_path / "mesh.json", simple_mesh("api", {"pool": [two[0].address]}))
    bootstrap = {"xds_servers": [{"server_uri": f"file://{tmp_path}/mesh.json"}]}

    def call_once() -> bytes:
        with proxyless.insecure_channel("xds:///api", bootstrap=bootstrap) as channel:
            response: bytes = channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
            return response

    assert await asyncio.to_thread(call_once) == b"a"


async def test_details_of_an_rpc_name_the_error_in_the_files(tmp_path: Path) -> None:
    (tmp_path / "mesh.json").write_text('[{"@type": "x"}]')
    bootstrap = {"xds_servers": [{"server_uri": f"file://{tmp_path}"}]}
    async with proxyless.aio.insecure_channel("xds:///api", bootstrap=bootstrap) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "field:mesh.json[0][0]" in (caught.value.details() or "")
