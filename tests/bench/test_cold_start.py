"""What does a process import before its first RPC? Named, because that is the same everywhere.

Each module is about half a millisecond of every process's start, whether it uses it or not, and
some libraries are ten. Each test has an interpreter of its own, which imports and calls nothing
else.
"""

import asyncio
import subprocess
import sys

import pytest

from proxyless.cli import COMMANDS
from proxyless.controlplane import ControlPlane, simple_mesh
from tests.worlds.grpcio_peers import backends

# Modules of this package that `import proxyless.aio` loads. Measured, and a little room.
MODULES_MAX = 205

# Of no use to an asyncio client of a plain mesh.
UNUSED = (
    "proxyless.cli",
    "proxyless.controlplane",
    "proxyless.demo",
    "proxyless.front.aio.session",
    "proxyless.front.sync.background",
    "proxyless.front.sync.channel",
    "proxyless.lb.policies.least_request",
    "proxyless.lb.policies.random",
    "proxyless.lb.policies.random_subsetting",
    "proxyless.lb.policies.ring_hash.policy",
    "proxyless.lb.policies.weighted_round_robin.policy",
    "proxyless.lb.policies.ring_hash.ring",
    "proxyless.observe",
    "proxyless.sim",
    "proxyless.testing",
    "proxyless.transport.server",
    "proxyless.wire.server",
    "proxyless.xds.security.cluster_security",
    "proxyless.xds.view",
)
# Of others: large, or slow to load. What asyncio and grpcio bring themselves is not our business.
HEAVY = (
    "google.protobuf.json_format",
    "importlib.metadata",
    "importlib.resources",
    "pathlib",
    "re2",
    "rich",
    "shutil",
    "tempfile",
    "xxhash",
    "yaml",
)

FIRST_RPC = """
import asyncio
import proxyless.aio

async def call(bootstrap):
    async with proxyless.aio.insecure_channel("xds:///api", bootstrap=bootstrap) as channel:
        assert await channel.unary_unary("/test.Mesh/Where")(b"") == b"a"

asyncio.run(call(BOOTSTRAP))
"""


def loaded_after(code: str) -> set[str]:
    """The modules that an interpreter has loaded when it has run this."""
    ending = "\nimport sys\nprint(' '.join(sys.modules))"
    argv = [sys.executable, "-c", code + ending]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    return loaded_after("import proxyless.aio")


@pytest.mark.parametrize("name", [*UNUSED, *HEAVY])
def test_an_asyncio_client_does_not_load(loaded: set[str], name: str) -> None:
    assert name not in loaded


def test_an_asyncio_client_loads_few_modules(loaded: set[str]) -> None:
    ours = [name for name in loaded if name.startswith("proxyless")]
    assert len(ours) <= MODULES_MAX


async def test_the_first_rpc_in_a_mesh_loads_none_of_it_either() -> None:
    async with backends("a") as [backend]:
        mesh = simple_mesh("api", {"a": [backend.address]})
        async with ControlPlane(mesh) as control_plane:
            code = FIRST_RPC.replace("BOOTSTRAP", repr(control_plane.bootstrap()))
            loaded = await asyncio.to_thread(loaded_after, code)
    assert loaded.isdisjoint((*UNUSED, *HEAVY))


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_the_command_line_loads_no_command_that_is_not_named(arguments: list[str]) -> None:
    loaded = loaded_after(
        "import contextlib, io, proxyless.cli\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        f"    proxyless.cli.main({arguments!r})"
    )
    ours = {name for name in loaded if name.startswith("proxyless")}
    assert ours == {"proxyless", "proxyless.cli", "proxyless.version"}
    assert "grpc" not in loaded


def test_a_command_loads_its_own_module_only() -> None:
    loaded = loaded_after(
        "import contextlib, io, proxyless.cli\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    proxyless.cli.main(['lint', '--help'])"
    )
    commands = {f"proxyless.cli.{name}" for name in COMMANDS}
    assert loaded & commands == {"proxyless.cli.lint"}
