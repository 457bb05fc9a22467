"""`proxyless serve` as a process, with grpcio's client."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from proxyless.controlplane import ControlPlane, Snapshot, eds_cluster, endpoints, simple_mesh
from proxyless.protos import Proto, descriptor_pool_of_envoy
from tests.worlds.grpcio_peers import NamedBackend, grpcio_client
from tests.worlds.transports import PATIENCE_S, until

TARGET = "xds:///api"


def to_json(message: Proto) -> dict[str, Any]:
    fields = json_format.MessageToDict(message, descriptor_pool=descriptor_pool_of_envoy())
    return {"@type": f"type.googleapis.com/{message.DESCRIPTOR.full_name}", **fields}


def write_mesh(path: Path, snapshot: Snapshot) -> None:
    path.write_text(json.dumps([to_json(resource.message()) for resource in snapshot]))


class Serving:
    """The command while it runs."""

    def __init__(self, process: asyncio.subprocess.Process, address: str, log: Path) -> None:
        self.process = process
        self.address = address
        self._log = log

    @property
    def bootstrap(self) -> dict[str, Any]:
        return ControlPlane(Snapshot.of(()), self.address).bootstrap("edge-7")

    async def wait_for_log(self, text: str) -> None:
        try:
            await until(lambda: text in self._log.read_text(), f"{text!r} in the log")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._log.read_text()}") from None


@asynccontextmanager
async def serving(directory: Path, log: Path) -> AsyncIterator[Serving]:
    command = (sys.executable, "-m", "proxyless", "serve", str(directory))
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command, "--listen", "127.0.0.1:0", stdout=asyncio.subprocess.PIPE, stderr=stderr
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("listening at "), f"it said {line!r}, see {log}"
        yield Serving(process, line.removeprefix("listening at ").strip(), log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
def mesh_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "mesh"
    directory.mkdir()
    return directory


async def test_files_are_served_and_changes_followed(
    two: list[NamedBackend], mesh_dir: Path, tmp_path: Path
) -> None:
    file = mesh_dir / "mesh.json"
    write_mesh(file, simple_mesh("api", {"pool": [two[0].address]}))
    async with (
        serving(mesh_dir, tmp_path / "log") as command,
        grpcio_client(command.bootstrap, TARGET) as client,
    ):
        await command.wait_for_log("serving version 1: 1 listener, 1 route config, 1 cluster")
        assert await client.call() == {"a": 1}
        await command.wait_for_log("xds node 'edge-7': endpoints version '1' accepted")

        write_mesh(file, simple_mesh("api", {"pool": [two[1].address]}))
        await command.wait_for_log("xds node 'edge-7': endpoints version '2' accepted")
        await client.call_until("b")

        file.write_text(
            '[{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "x": 1}]'
        )
        await command.wait_for_log("field:mesh.json[0][0].x error:there is no such field")
        assert set(await client.call(count=5)) == {"b"}


async def test_what_clients_refuse_is_logged_with_their_text(
    two: list[NamedBackend], mesh_dir: Path, tmp_path: Path
) -> None:
    snapshot = simple_mesh("api", {"pool": [two[0].address]})
    bad = snapshot.with_(eds_cluster("pool", lb_policy="MAGLEV"), endpoints("pool", []))
    write_mesh(mesh_dir / "mesh.json", bad)
    async with (
        serving(mesh_dir, tmp_path / "log") as command,
        grpcio_client(command.bootstrap, TARGET) as client,
    ):
        [failure] = await client.call()
        assert failure.startswith("UNAVAILABLE")
        await command.wait_for_log("WARNING xds node 'edge-7': cluster version '1' refused: ")
        await command.wait_for_log("lb_policy")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signal_ends_serve_with_exit_code_0(
    number: signal.Signals, mesh_dir: Path, tmp_path: Path
) -> None:
    async with serving(mesh_dir, tmp_path / "log") as command:
        command.process.send_signal(number)
        async with asyncio.timeout(PATIENCE_S):
            assert await command.process.wait() == 0
        await command.wait_for_log("stopped")


async def test_an_address_that_is_taken_is_1(mesh_dir: Path, tmp_path: Path) -> None:
    async with serving(mesh_dir, tmp_path / "log") as command:
        second = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxyless", "serve", str(mesh_dir)),
            *("--listen", command.address),
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE_S):
            _, said = await second.communicate()
    assert second.returncode == 1
    assert f"cannot listen at {command.address!r}".encode() in said
