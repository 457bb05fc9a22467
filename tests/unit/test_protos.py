"""Unit tests of proxyless.protos."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, json_format, struct_pb2

from proxyless import protos
from proxyless.protos import descriptor_pool_of_envoy, message_class

ROUTE = "envoy.config.route.v3.Route"


def test_a_message_has_the_fields_of_envoys_api() -> None:
    route = message_class(ROUTE)(name="r")
    route.match.prefix = "/"
    route.route.cluster = "c"
    again = message_class(ROUTE).FromString(route.SerializeToString())
    assert (again.name, again.match.prefix, again.route.cluster) == ("r", "/", "c")


def test_a_class_is_created_once() -> None:
    assert message_class(ROUTE) is message_class(ROUTE)
    assert descriptor_pool_of_envoy() is descriptor_pool_of_envoy()


def test_threads_that_use_it_first_at_the_same_time_get_one_pool() -> None:
    # In a process of its own, because the pool is that of the process.
    code = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from proxyless import protos

both, read = Barrier(2), protos._read_descriptors

def read_together():
    both.wait()
    return read()

protos._read_descriptors = read_together
with ThreadPoolExecutor(2) as threads:
    names = ["envoy.service.discovery.v3.DiscoveryRequest", "envoy.config.core.v3.Node"]
    request, node = threads.map(protos.message_class, names)
request().node.CopyFrom(node(id="n"))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_fork_waits_until_another_thread_has_found_a_message() -> None:
    # In a process of its own, because the pool is that of the process.
    code = """
import os, signal
from threading import Event, Thread
from proxyless import protos

begun, forks = Event(), Event()
pool = protos._lazy_pool()

def add_slowly(files):
    begun.set()
    # Until the timeout with a fork that waits, as it should.
    forks.wait(0.2)
    yield from files

pool._files = add_slowly(pool._files)
thread = Thread(target=pool.find, args=["envoy.config.core.v3.Node"])
thread.start()
begun.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    pool.find("envoy.config.cluster.v3.Cluster")
    os._exit(0)
forks.set()
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_message_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="unknown"):
        message_class("envoy.unknown.v3.Nothing")


@pytest.mark.parametrize("implementation", ["python", "upb"])
def test_text_that_is_not_utf8_cannot_be_decoded(implementation: str) -> None:
    # In a process of its own, because protobuf chooses its implementation when it is imported.
    code = """
from google.protobuf.internal import api_implementation
from proxyless.protos import message_class
from proxyless.xds.client.codec import decode_response
from proxyless.xds.parsing.decoding import decode_resource

def decode(serialized):
    try:
        steps = decode_resource("envoy.config.cluster.v3.Cluster", serialized, None)
        while True:
            next(steps)
    except StopIteration as done:
        return done.value.error

not_utf8 = b"\\x0a\\x01\\x80"
print(api_implementation.Type(), decode_response(not_utf8), decode(not_utf8))
"""
    environ = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    error = "cluster: cannot be decoded as envoy.config.cluster.v3.Cluster"
    assert run.stdout == f"{implementation} None {error}\n", run.stderr


def test_the_pool_is_not_the_default_pool() -> None:
    assert descriptor_pool_of_envoy() is not descriptor_pool.Default()
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName(ROUTE)


def test_well_known_types_are_our_own_and_work_as_usual() -> None:
    struct = message_class("google.protobuf.Struct")()
    struct.update({"a": [1, {"b": None}]})
    packed = message_class("google.protobuf.Any")()
    packed.Pack(struct)
    assert packed.Is(struct.DESCRIPTOR)
    assert not isinstance(struct, struct_pb2.Struct)
    assert any_pb2.Any.FromString(packed.SerializeToString()).type_url == packed.type_url


def test_proto_json_finds_types_in_the_pool() -> None:
    type_url = f"type.googleapis.com/{ROUTE}"
    packed = message_class("google.protobuf.Any")()
    document = {"@type": type_url, "name": "r"}
    json_format.ParseDict(document, packed, descriptor_pool=descriptor_pool_of_envoy())
    assert message_class(ROUTE).FromString(packed.value).name == "r"


def test_every_descriptor_follows_those_it_imports() -> None:
    seen: set[str] = set()
    packed = Path(protos.__file__).with_name("descriptors.pb").read_bytes()
    files = descriptor_pb2.FileDescriptorSet.FromString(packed)
    for file in files.file:
        assert seen.issuperset(file.dependency), file.name
        seen.add(file.name)


def test_package_in_an_archive_reads_its_descriptors(tmp_path: Path) -> None:
    package = Path(protos.__file__).parents[1]
    with ZipFile(tmp_path / "proxyless.zip", "w") as archive:
        for path in (
            *package.glob("*.py"),
            *package.glob("protos/*.*"),
            *package.glob("base/*.py"),
        ):
            archive.write(path, path.relative_to(package.parent))
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path / "proxyless.zip")!r})
from proxyless import protos
print(protos.__file__, protos.message_class({ROUTE!r})(name="r").name)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == f"{tmp_path}/proxyless.zip/proxyless/protos/__init__.py r\n", run.stderr


def test_missing_descriptors_raise_with_the_command_that_makes_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Called directly: a second pool would create a second set of classes.
    monkeypatch.setattr(protos, "__file__", f"{tmp_path}/__init__.py")
    with pytest.raises(RuntimeError) as raised:
        protos._read_descriptors()
    assert str(raised.value) == (
        f"{tmp_path}/descriptors.pb is missing: the build makes it; "
        "in a source checkout, run 'make env'"
    )
