"""`proxyless serve` as a process, with grpcio's client."""

import asyncio
import json
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

import proxyless.aio
from proxyless.controlplane import ControlPlane, Snapshot, eds_cluster, endpoints, simple_mesh
from proxyless.protos import Proto, descriptor_pool_of_envoy
from tests.certificates import CertificateAuthority
from tests.worlds.grpcio_peers import NamedBackend, grpcio_client
from tests.worlds.transports import PATIENCE_S, until

TARGET = "xds:///api"


def to_json(message: Proto) -> dict[str, Any]:
    fields = json_format.MessageToDict(message, descriptor_pool=descriptor_pool_of_envoy())
    return {"@type": f"type.googleapis.com/{message.DESCRIPTOR.full_name}", **fields}


def write_mesh(path: Path, snapshot: Snapshot) -> None:
    path.parent.mkdir(exist_ok=True)
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
async def serving(directory: Path, log: Path, *options: str) -> AsyncIterator[Serving]:
    command = (sys.executable, "-m", "proxyless", "serve", str(directory), *options)
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(*command, "--listen", "127.0.0.1:0"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            line = (await process.stdout.readline()).decode()
        if "json" in options:
            address = json.loads(line)["listening_at"]
        else:
            assert line.startswith("listening at "), f"it wrote {line!r}, see {log}"
            address = line.removeprefix("listening at ").strip()
        yield Serving(process, address, log)
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
        contents = "1 listener, 1 route config, 1 cluster, endpoints of 1 cluster"
        await command.wait_for_log(f"serving version 1: {contents}")
        assert await client.call() == {"a": 1}
        await command.wait_for_log("xds node 'edge-7': endpoints version '1' accepted")

        write_mesh(file, simple_mesh("api", {"pool": [two[1].address]}))
        await command.wait_for_log("xds node 'edge-7': endpoints version '2' accepted")
        await client.call_until("b")

        file.write_text(
            '[{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "x": 1}]'
        )
        await command.wait_for_log(
            "field:mesh.json[0][0].x error:line 1, column 67: there is no such field"
        )
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


def truncate(directory: Path) -> None:
    """As `: > mesh/mesh.json` does."""
    (directory / "mesh.json").write_text("")


def write_half(directory: Path) -> None:
    """As an editor that is interrupted while it saves."""
    text = (directory / "mesh.json").read_text()
    (directory / "mesh.json").write_text(text[: len(text) // 2])


def remove_the_last_file(directory: Path) -> None:
    (directory / "mesh.json").unlink()


def remove_the_directory(directory: Path) -> None:
    shutil.rmtree(directory)


def mount_an_empty_directory(directory: Path) -> None:
    directory.rename(directory.with_name("before"))
    directory.mkdir()


@pytest.mark.parametrize(
    ("empty", "text"),
    [
        (truncate, "error:is empty, wanted resources or --allow-empty"),
        (write_half, "field:mesh.json error:"),
        (remove_the_last_file, "has no resources, wanted at least one or --allow-empty"),
        (remove_the_directory, "there is no such file or directory"),
        (mount_an_empty_directory, "has no resources, wanted at least one or --allow-empty"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
async def test_no_rpc_fails_when_the_files_are_emptied_under_load(
    two: list[NamedBackend],
    mesh_dir: Path,
    tmp_path: Path,
    empty: Callable[[Path], None],
    text: str,
) -> None:
    file = mesh_dir / "mesh.json"
    write_mesh(file, simple_mesh("api", {"pool": [two[0].address]}))
    async with (
        serving(mesh_dir, tmp_path / "log") as command,
        grpcio_client(command.bootstrap, TARGET) as client,
    ):
        assert await client.call() == {"a": 1}
        await client.start_load()
        empty(mesh_dir)
        await command.wait_for_log("ERROR kept the last good state: ")
        await command.wait_for_log(text)

        # A client that connects now is served, too.
        async with grpcio_client(command.bootstrap, TARGET) as second:
            assert await second.call() == {"a": 1}

        write_mesh(file, simple_mesh("api", {"pool": [two[1].address]}))
        await client.call_until("b")
        assert set(await client.stop_load()) == {"a", "b"}


async def test_empty_directory_is_served_when_that_is_allowed(
    two: list[NamedBackend], mesh_dir: Path, tmp_path: Path
) -> None:
    async with (
        serving(mesh_dir, tmp_path / "log", "--allow-empty") as command,
        grpcio_client(command.bootstrap, TARGET) as client,
    ):
        [failure] = await client.call()
        assert failure.startswith("UNAVAILABLE")
        await command.wait_for_log('requested listener "api", which is not here; there is no')
        write_mesh(mesh_dir / "mesh.json", simple_mesh("api", {"pool": [two[0].address]}))
        await client.call_until("a")


async def test_request_for_a_missing_resource_is_logged_with_those_that_are_there(
    two: list[NamedBackend], mesh_dir: Path, tmp_path: Path
) -> None:
    write_mesh(mesh_dir / "mesh.json", simple_mesh("orders", {"pool": [two[0].address]}))
    async with (
        serving(mesh_dir, tmp_path / "log") as command,
        grpcio_client(command.bootstrap, "xds:///order") as client,
    ):
        await client.call()
        what = 'requested listener "order", which is not here; there are "orders"'
        await command.wait_for_log(f"WARNING xds node 'edge-7' {what}")


async def test_mtls_and_json_logs(
    two: list[NamedBackend], mesh_dir: Path, tmp_path: Path, authority: CertificateAuthority
) -> None:
    write_mesh(mesh_dir / "mesh.json", simple_mesh("api", {"pool": [two[0].address]}))
    roots, stranger = tmp_path / "ca.pem", CertificateAuthority("another")
    roots.write_bytes(authority.certificate_pem)
    server = write_identity(tmp_path / "server", authority.issue(["127.0.0.1"]))
    options = ("--tls-cert", server[0], "--tls-key", server[1], "--tls-client-ca", str(roots))
    async with serving(mesh_dir, tmp_path / "log", *options, "-o", "json") as command:
        for issuer, expected in ((authority, "OK"), (stranger, "UNAVAILABLE")):
            identity = write_identity(tmp_path / expected, issuer.issue(["me"], client=True))
            bootstrap = command.bootstrap
            bootstrap["xds_servers"][0]["channel_creds"] = [
                {
                    "type": "tls",
                    "config": {
                        "ca_certificate_file": str(roots),
                        "certificate_file": identity[0],
                        "private_key_file": identity[1],
                    },
                }
            ]
            async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
                call = channel.unary_unary("/test.Mesh/Where")(b"", timeout=PATIENCE_S)
                assert (await call.code()).name == expected
        for line in (tmp_path / "log").read_text().splitlines():
            assert json.loads(line)["level"] in ("INFO", "WARNING")


def write_identity(path: Path, identity: tuple[bytes, bytes]) -> tuple[str, str]:
    """Write a certificate chain and its key; return the paths."""
    chain, key = path.with_suffix(".pem"), path.with_suffix(".key")
    chain.write_bytes(identity[0])
    key.write_bytes(identity[1])
    return str(chain), str(key)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signal_ends_serve_with_exit_code_0(
    number: signal.Signals, mesh_dir: Path, tmp_path: Path
) -> None:
    write_mesh(mesh_dir / "mesh.json", simple_mesh("api", {"pool": ["127.0.0.1:1"]}))
    async with serving(mesh_dir, tmp_path / "log") as command:
        command.process.send_signal(number)
        async with asyncio.timeout(PATIENCE_S):
            assert await command.process.wait() == 0
        await command.wait_for_log("stopped")


async def test_sighup_does_not_end_serve(
    two: list[NamedBackend], mesh_dir: Path, tmp_path: Path
) -> None:
    write_mesh(mesh_dir / "mesh.json", simple_mesh("api", {"pool": [two[0].address]}))
    async with serving(mesh_dir, tmp_path / "log") as command:
        command.process.send_signal(signal.SIGHUP)
        await command.wait_for_log("SIGHUP has no effect: changed files are read without it")
        async with grpcio_client(command.bootstrap, TARGET) as client:
            assert await client.call() == {"a": 1}


async def test_an_address_that_is_taken_is_1(mesh_dir: Path, tmp_path: Path) -> None:
    write_mesh(mesh_dir / "mesh.json", simple_mesh("api", {"pool": ["127.0.0.1:1"]}))
    async with serving(mesh_dir, tmp_path / "log") as command:
        second = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxyless", "serve", str(mesh_dir)),
            *("--listen", command.address),
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE_S):
            _, errors = await second.communicate()
    assert second.returncode == 1
    text = f"proxyless serve: control plane cannot listen at {command.address!r}: address in use"
    # grpcio would write a line of its own before it.
    (line,) = errors.decode().splitlines()
    assert line.startswith(text)
