"""The wheel and the sdist: their contents, and installs without extras and beside other packages.

Built from a copy of the sources that has no descriptors, as a fresh clone has none, and installed
into environments of their own beside packages with which a shared copy of Envoy's messages would
collide (docs/adr/0011-private-descriptors.md). Needs a package index, as `make env` does.
"""

import asyncio
import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Sequence
from concurrent import futures
from pathlib import Path
from zipfile import ZipFile

import grpc
import pytest

import proxyless
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
)

ROOT = Path(__file__).parents[2]
DESCRIPTORS = "proxyless/protos/descriptors.pb"

# Building and two installs take 25 s, from an index nearby.

OURS = """
import proxyless
from proxyless.protos import message_class
ours = message_class("envoy.config.route.v3.Route")
"""
OTLP_EXPORTER = """
import opentelemetry.exporter.otlp.proto.grpc.trace_exporter
"""
XDS_PROTOS = """
from envoy.config.route.v3 import route_components_pb2
theirs = route_components_pb2.Route
"""


def run(*command: str | Path) -> str:
    """The output of a command, which must succeed, without this process's environment."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    result = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def pip(*arguments: str | Path) -> None:
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def make_environment(directory: Path, requirements: Sequence[str | Path]) -> Path:
    """A new environment with these packages; returns its Python."""
    venv.create(directory, with_pip=False, symlinks=True)
    python = directory / "bin" / "python"
    pip("--python", python, "install", *requirements)
    return python


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, output = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    without_built = shutil.ignore_patterns("descriptors.pb", "__pycache__")
    shutil.copytree(ROOT / "src", source / "src", ignore=without_built)
    for name in ("pyproject.toml", "README.md", "LICENSE", "tools/hatch_build.py"):
        (source / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    pip("wheel", "--no-deps", "--wheel-dir", output, source)
    [path] = output.iterdir()
    return path


@pytest.fixture(scope="module")
def client_only(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the wheel and no extra."""
    return make_environment(tmp_path_factory.mktemp("client_only"), (wheel,))


@pytest.fixture(scope="module")
def beside_otlp(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    requirements = (wheel, "opentelemetry-exporter-otlp-proto-grpc")
    return make_environment(tmp_path_factory.mktemp("beside_otlp"), requirements)


@pytest.fixture(scope="module")
def beside_xds_protos(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("beside_xds_protos"), (wheel, "xds-protos"))


def test_the_wheel_carries_the_descriptors(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        assert archive.getinfo(DESCRIPTORS).file_size > 10_000


def test_the_wheel_carries_the_page_of_the_demo(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        assert archive.getinfo("proxyless/demo/page.html").file_size > 1_000


def test_wheel_installs_only_the_package_proxyless(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        packages = {name.partition("/")[0] for name in archive.namelist()}
    assert {name for name in packages if not name.endswith(".dist-info")} == {"proxyless"}


def test_xds_protos_is_no_requirement_of_users(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        [path] = (name for name in archive.namelist() if name.endswith("/METADATA"))
        requirements = email.message_from_bytes(archive.read(path)).get_all("Requires-Dist", [])
    assert any(requirement.startswith("protobuf") for requirement in requirements)
    assert not any("xds-protos" in requirement for requirement in requirements)


@pytest.mark.parametrize("code", [OURS + OTLP_EXPORTER, OTLP_EXPORTER + OURS], ids=["1st", "2nd"])
def test_otlp_exporter_works_beside_the_package(beside_otlp: Path, code: str) -> None:
    lines = (
        "from importlib.util import find_spec",
        "print(ours(name='r').name, find_spec('envoy'), find_spec('udpa'), find_spec('xds'))",
    )
    assert run(beside_otlp, "-I", "-c", code + "\n".join(lines)) == "r None None None\n"


@pytest.mark.parametrize("code", [OURS + XDS_PROTOS, XDS_PROTOS + OURS], ids=["1st", "2nd"])
def test_xds_protos_works_beside_the_package(beside_xds_protos: Path, code: str) -> None:
    lines = (
        "print(ours is theirs, ours.FromString(theirs(name='r').SerializeToString()).name)",
        "print(ours.DESCRIPTOR.file.pool is theirs.DESCRIPTOR.file.pool)",
    )
    printed = run(beside_xds_protos, "-I", "-c", code + "\n".join(lines))
    assert printed == "False r\nFalse\n"


CLIENT = """
import json, sys
import proxyless
with proxyless.insecure_channel("xds:///api", bootstrap=json.loads(sys.argv[1])) as channel:
    print(channel.unary_unary("/echo.Echo/Echo")(b"hello", timeout=20).decode())
for name in ("yaml", "rich", "hpack", "uvloop", "opentelemetry"):
    assert name not in sys.modules, name
"""


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers every method with its request."""

    def service(self, _details: object) -> object:
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: request)


async def test_wheel_without_extras_runs_a_client_in_a_mesh(client_only: Path) -> None:
    backend = grpc.server(futures.ThreadPoolExecutor(2))
    backend.add_generic_rpc_handlers((Echo(),))
    port = backend.add_insecure_port("127.0.0.1:0")
    backend.start()
    resources = [
        listener("api", [route(cluster="echo")]),
        eds_cluster("echo"),
        endpoints("echo", [f"127.0.0.1:{port}"]),
    ]
    async with ControlPlane(Snapshot.of(resources)) as control_plane:
        bootstrap = json.dumps(control_plane.bootstrap())
        printed = await asyncio.to_thread(run, client_only, "-I", "-c", CLIENT, bootstrap)
    backend.stop(None).wait()
    assert printed == "hello\n"


def test_command_names_the_extra_when_it_is_missing(client_only: Path, tmp_path: Path) -> None:
    (tmp_path / "mesh.yaml").write_text("{}")
    result = subprocess.run(
        [client_only, "-I", "-m", "proxyless", "lint", tmp_path / "mesh.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    [line] = result.stderr.splitlines()
    assert "pip install 'proxyless[cli]'" in line


def test_description_has_no_relative_links(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        [path] = (name for name in archive.namelist() if name.endswith("/METADATA"))
        description = email.message_from_bytes(archive.read(path)).get_payload()
    assert "# Proxyless" in description
    targets = re.findall(r"\]\(([^)]*)\)", str(description))
    assert [target for target in targets if not target.startswith("https://")] == []


def test_version_has_one_source(wheel: Path) -> None:
    assert wheel.name.startswith(f"proxyless-{proxyless.__version__}-")
    assert "version =" not in (ROOT / "pyproject.toml").read_text().partition("[project.")[0]


def test_sdist_has_the_tests_and_installs(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--quiet", "--sdist", "--outdir", tmp_path, ROOT)
    [archive] = tmp_path.iterdir()
    with tarfile.open(archive) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = {"Makefile", "SECURITY.md", ".ci/run", "tests/conftest.py", "tools/constraints.txt"}
    assert wanted | {"bench/backend/be.c", "docs/spec/lb.md"} <= names
    python = make_environment(tmp_path / "environment", (archive,))
    assert run(python, "-I", "-c", OURS + "print(ours(name='r').name)") == "r\n"
