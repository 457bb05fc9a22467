"""The examples of applications: as processes, with real backends and a control plane.

FastAPI and gunicorn are dependencies of the tests only.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from proxyless.base import ValidationErrors
from proxyless.cli import main
from proxyless.controlplane import ControlPlane, simple_mesh
from proxyless.xds.bootstrap.bootstrap import parse_bootstrap
from tests.interop.drop_in import Untyped
from tests.mesh_files import write_resources
from tests.worlds.grpcio_peers import NamedBackend, backends
from tests.worlds.ports import free_port
from tests.worlds.transports import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
async def mesh() -> AsyncIterator[tuple[NamedBackend, ControlPlane]]:
    async with (
        backends("a") as [backend],
        ControlPlane(simple_mesh("orders", {"pool": [backend.address]})) as control_plane,
    ):
        yield backend, control_plane


def environment(control_plane: ControlPlane) -> dict[str, str]:
    return {**os.environ, "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(control_plane.bootstrap())}


async def get(port: int, path: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of an HTTP response; raises OSError without a server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.0\r\nHost: test\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE_S):
        content = (await reader.read()).decode()
    writer.close()
    head, _, body = content.partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, body


async def serve(*command: str, env: dict[str, str], port: int) -> Untyped:
    """Start a server as a process, and wait until it accepts connections."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *command, cwd=ROOT, env=env, stderr=asyncio.subprocess.DEVNULL
    )

    def accepts() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    await until(accepts, f"{command[0]} at port {port}")
    return process


async def test_fastapi_application_sends_rpcs_and_explains(
    mesh: tuple[NamedBackend, ControlPlane],
) -> None:
    backend, control_plane = mesh
    port = free_port()
    command = ("uvicorn", "examples.fastapi_app:app", "--port", str(port))
    process = await serve(*command, env=environment(control_plane), port=port)
    try:
        status, _, body = await get(port, "/where")
        assert (status, json.loads(body)) == (200, {"backend": "a"})
        status, _, body = await get(port, "/ready")
        assert status == 200
        assert "pool" in body
        await backend.leave()
        status, _, body = await get(port, "/where")
        assert status == 503
        assert backend.address in body
    finally:
        process.terminate()
        assert await process.wait() in (0, -15)


async def test_gunicorn_workers_use_the_channel_of_the_parent(
    mesh: tuple[NamedBackend, ControlPlane],
) -> None:
    port = free_port()
    command = ("gunicorn", "--preload", "--workers", "2", "--bind", f"127.0.0.1:{port}")
    process = await serve(
        *command, "examples.gunicorn_app:app", env=environment(mesh[1]), port=port
    )
    try:
        workers = set[str]()
        async with asyncio.timeout(PATIENCE_S):
            while len(workers) < 2:
                status, headers, body = await get(port, "/")
                assert (status, body) == (200, "a")
                workers.add(headers["x-worker"])
        assert str(process.pid) not in workers
    finally:
        process.terminate()
        await process.wait()


def test_suite_with_the_mesh_fixture_passes_without_other_plugins() -> None:
    # Of pytest's plugins, the example installs none.
    plugins = ("-p", "no:asyncio", "-p", "no:timeout", "-p", "no:cacheprovider")
    command = (sys.executable, "-m", "pytest", "-q", *plugins, "examples/pytest_mesh")
    done = subprocess.run(command, cwd=EXAMPLES.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def documents(name: str) -> list[dict[str, Untyped]]:
    return list(yaml.safe_load_all((EXAMPLES / "kubernetes" / name).read_text()))


def test_bootstrap_of_the_manifest_is_valid() -> None:
    [config] = [each for each in documents("client.yaml") if each["kind"] == "ConfigMap"]
    errors = ValidationErrors()
    bootstrap = parse_bootstrap(json.loads(config["data"]["bootstrap.json"]), errors)
    assert errors.ok, str(errors)
    assert bootstrap.config_cache is not None
    [deployment] = [each for each in documents("client.yaml") if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    paths = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert bootstrap.config_cache.directory in paths
    [service] = [each for each in documents("control-plane.yaml") if each["kind"] == "Service"]
    name, port = service["metadata"]["name"], service["spec"]["ports"][0]["port"]
    assert bootstrap.servers[0].uri == f"dns:///{name}:{port}"


@pytest.mark.parametrize("source", ["manifest", "image"])
def test_command_of_the_manifest_and_of_the_image_is_valid(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if source == "manifest":
        [deployment] = [
            each for each in documents("control-plane.yaml") if each["kind"] == "Deployment"
        ]
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        arguments = container["args"]
    else:
        lines = (EXAMPLES / "docker" / "Dockerfile").read_text().splitlines()
        [command] = [line for line in lines if line.startswith("CMD ")]
        arguments = json.loads(command.removeprefix("CMD "))
    write_resources(tmp_path / "mesh.json", simple_mesh("orders", {"pool": ["127.0.0.1:1"]}))
    directory, *options = arguments
    assert directory == "/mesh"
    assert main(["serve", str(tmp_path), *options, "--once-check"]) == 0
    assert capsys.readouterr().out.startswith("version 1: ")
