"""Modules that a process imports before its first RPC.

Each module adds about half a millisecond to the start of every process, and some libraries ten.
The set of modules is the same on every machine. Each test runs its own interpreter, which imports
nothing else.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxyless.cli import COMMANDS
from proxyless.controlplane import ControlPlane, simple_mesh
from tests.worlds.grpcio_peers import backends

# Modules of this package that `import proxyless.aio` loads: measured, with a small margin.
MODULES_MAX = 132
# Modules of this package that are loaded after the first RPC in a mesh.
MODULES_OF_FIRST_RPC_MAX = 224
# Message classes that it keeps; a process that creates those of all fields has 300.
MESSAGE_CLASSES_MAX = 15
# Files of descriptors that it adds to its pool, of 103: measured, and one more.
FILES_OF_FIRST_RPC_MAX = 68
# Modules of xDS that it loads; the others are those of `xds:` targets.
XDS_MODULES = {"proxyless.xds", "proxyless.xds.filters", "proxyless.xds.filters.registry"}

# Modules that an asyncio client of a plain mesh does not use.
UNUSED = (
    "proxyless.channel.measured_attempt",
    "proxyless.channel.measured_call",
    "proxyless.channel.retry",
    "proxyless.channel.retry_strategies",
    "proxyless.channel.subchannel_metrics",
    "proxyless.cli",
    "proxyless.controlplane",
    "proxyless.demo",
    "proxyless.front.aio.interceptors",
    "proxyless.front.aio.session",
    "proxyless.front.sync.background",
    "proxyless.front.sync.channel",
    "proxyless.lb.orca",
    "proxyless.lb.policies.least_request",
    "proxyless.lb.policies.outlier_detection.algorithms",
    "proxyless.lb.policies.peak_ewma",
    "proxyless.lb.policies.pick_first.shuffling",
    "proxyless.lb.policies.random",
    "proxyless.lb.policies.random_subsetting",
    "proxyless.lb.policies.ring_hash.policy",
    "proxyless.lb.policies.weighted_round_robin.policy",
    "proxyless.lb.policies.ring_hash.ring",
    "proxyless.metrics.call_labels",
    "proxyless.metrics.calls",
    "proxyless.metrics.instruments",
    "proxyless.observe",
    "proxyless.sim",
    "proxyless.resolver.polling",
    "proxyless.runtime.offload",
    "proxyless.testing",
    "proxyless.transport.http_connect",
    "proxyless.transport.server",
    "proxyless.transport.spiffe",
    "proxyless.transport.tls",
    "proxyless.transport.tls_sessions",
    "proxyless.transport.tunnel",
    "proxyless.wire.server",
    "proxyless.xds.client.config_store",
    "proxyless.xds.client.last_good",
    "proxyless.xds.client.load_counters",
    "proxyless.xds.client.lrs",
    "proxyless.xds.client.lrs_codec",
    "proxyless.xds.client.metrics",
    "proxyless.xds.config.endpoint_join",
    "proxyless.xds.filters.fault",
    "proxyless.xds.filters.stateful_session",
    "proxyless.xds.parsing.tls",
    "proxyless.xds.security.certificates",
    "proxyless.xds.resources.regex",
    "proxyless.xds.security.cluster_security",
    "proxyless.xds.security.server_credentials",
    "proxyless.xds.lb.cds.endpoint_weights",
    "proxyless.xds.lb.cluster_impl.drop_metrics",
    "proxyless.xds.lb.cluster_impl.metric_propagation",
    "proxyless.xds.lb.pick_labels",
    "proxyless.xds.view",
    "proxyless.xds.wait_texts",
)
# Other modules that are large or slow to load, and that asyncio and grpcio do not import.
HEAVY = (
    "decimal",
    "fnmatch",
    "google.protobuf.descriptor_pb2",
    "google.protobuf.descriptor_pool",
    "google.protobuf.internal.python_message",
    "google.protobuf.json_format",
    "google.protobuf.text_format",
    "hashlib",
    "importlib.metadata",
    "importlib.resources",
    "ipaddress",
    "pathlib",
    "re2",
    "rich",
    "shutil",
    "tempfile",
    "urllib.parse",
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
    """Modules that an interpreter has loaded after it ran this code."""
    return set(output_of(code + "\nimport sys\nprint(' '.join(sys.modules))").split())


def output_of(code: str) -> str:
    """The output of an interpreter that runs this code."""
    argv = [sys.executable, "-c", code]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    return loaded_after("import proxyless.aio")


@pytest.mark.parametrize("name", [*UNUSED, *HEAVY])
def test_asyncio_client_does_not_load_unused_or_heavy_modules(loaded: set[str], name: str) -> None:
    assert name not in loaded


def test_an_asyncio_client_loads_few_modules(loaded: set[str]) -> None:
    ours = [name for name in loaded if name.startswith("proxyless")]
    assert len(ours) <= MODULES_MAX


def test_asyncio_client_loads_neither_xds_nor_protobuf_before_an_xds_target(
    loaded: set[str],
) -> None:
    assert {name for name in loaded if name.startswith("proxyless.xds")} == XDS_MODULES
    assert "google.protobuf" not in loaded


@asynccontextmanager
async def first_rpc() -> AsyncIterator[str]:
    """Code of a process that makes one RPC in a mesh."""
    async with backends("a") as [backend]:
        mesh = simple_mesh("api", {"a": [backend.address]})
        async with ControlPlane(mesh) as control_plane:
            yield FIRST_RPC.replace("BOOTSTRAP", repr(control_plane.bootstrap()))


async def test_first_rpc_in_a_mesh_loads_few_modules_and_no_unused_or_heavy_one() -> None:
    async with first_rpc() as code:
        loaded = await asyncio.to_thread(loaded_after, code)
    assert loaded.isdisjoint((*UNUSED, *HEAVY))
    ours = [name for name in loaded if name.startswith("proxyless")]
    assert len(ours) <= MODULES_OF_FIRST_RPC_MAX


async def test_first_rpc_creates_only_the_message_classes_that_it_uses() -> None:
    counting = """
import gc
from google._upb._message import MessageMeta
gc.collect()
print(sum(type(each) is MessageMeta for each in gc.get_objects()))
"""
    async with first_rpc() as code:
        output = await asyncio.to_thread(output_of, code + counting)
    assert int(output) <= MESSAGE_CLASSES_MAX


async def test_first_rpc_adds_only_the_descriptors_that_it_uses() -> None:
    counting = """
from proxyless import protos
pool = protos._lazy_pool()
left = sum(1 for _ in pool._files)
print(sum(1 for _ in protos._split_files(protos._read_descriptors())) - left)
"""
    async with first_rpc() as code:
        output = await asyncio.to_thread(output_of, code + counting)
    assert int(output) <= FILES_OF_FIRST_RPC_MAX


def test_policies_of_every_config_are_loaded_before_the_control_plane_answers() -> None:
    waiting = """
import asyncio
import proxyless.aio

async def wait():
    server = {"server_uri": "unix:/nowhere", "channel_creds": [{"type": "insecure"}]}
    bootstrap = {"xds_servers": [server], "node": {"id": "waiting"}}
    async with proxyless.aio.insecure_channel("xds:///api", bootstrap=bootstrap) as channel:
        channel.get_state(try_to_connect=True)
        for _ in range(20):
            await asyncio.sleep(0)

asyncio.run(wait())
"""
    loaded = loaded_after(waiting)
    assert {"proxyless.xds.lb.cds.policy", "proxyless.xds.lb.cluster_manager"} <= loaded
    # Imported with the config whose policies need it.
    assert "proxyless.lb.policies.least_request" not in loaded


def test_control_plane_is_connected_to_before_the_first_config_is_prepared_for() -> None:
    connecting = """
import asyncio
import os
import sys
import proxyless.aio

def on_event(name, arguments):
    if name == "socket.connect":
        print(*sys.modules)
        sys.stdout.flush()
        os._exit(0)

async def wait():
    server = {"server_uri": "unix:/nowhere", "channel_creds": [{"type": "insecure"}]}
    bootstrap = {"xds_servers": [server], "node": {"id": "waiting"}}
    async with proxyless.aio.insecure_channel("xds:///api", bootstrap=bootstrap) as channel:
        channel.get_state(try_to_connect=True)
        await asyncio.sleep(5)

sys.addaudithook(on_event)
asyncio.run(wait())
"""
    loaded = set(output_of(connecting).split())
    assert "proxyless.xds.stack" in loaded
    # Imported with the first message, and with policies.
    assert "google.protobuf.internal.well_known_types" not in loaded
    assert "proxyless.xds.lb" not in loaded
    assert "proxyless.lb.policies.priority" not in loaded


def test_large_resource_is_decoded_without_heavy_modules() -> None:
    decoding = """
from proxyless.protos import message_class
from proxyless.protos.merging import PART_BYTES_MAX, merge_in_steps
kind = message_class("envoy.config.endpoint.v3.ClusterLoadAssignment")
made, merged = kind(), kind()
locality = made.endpoints.add()
while locality.ByteSize() <= PART_BYTES_MAX:
    locality.lb_endpoints.add().health_status = 1
for _ in merge_in_steps(merged, made.SerializeToString()):
    pass
assert merged == made
"""
    assert loaded_after(decoding).isdisjoint(HEAVY)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_command_line_loads_no_command_without_its_name(arguments: list[str]) -> None:
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
