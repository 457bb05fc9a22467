"""Unit tests of proxyless.controlplane.file_transport, with an xDS client."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from proxyless.assembly import Registries
from proxyless.base import OK, Status, StatusCode
from proxyless.controlplane import dns_cluster, listener, route
from proxyless.controlplane import documents as documents_module
from proxyless.controlplane import file_transport as file_transport_module
from proxyless.controlplane.file_transport import FileTransports, parse_file_uri
from proxyless.controlplane.files import POLL_INTERVAL_S, SETTLE_INTERVAL_S
from proxyless.runtime import VirtualClock, seeded_random
from proxyless.xds.bootstrap import DELTA, Bootstrap, ChannelCreds, Node, ServerConfig
from proxyless.xds.client import Tools, XdsClient
from proxyless.xds.client.codec import ADS_PATH
from proxyless.xds.client.lrs_codec import LRS_PATH
from proxyless.xds.resolver import resource_types
from tests.mesh_files import to_document
from tests.worlds.xds_clients import WatchRecorder


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///etc/mesh", "/etc/mesh"),
        ("file:mesh/a.yaml", "mesh/a.yaml"),
        ("file://localhost/etc/my%20mesh", "/etc/my mesh"),
        ("file:///etc/mesh#1?x", "/etc/mesh#1?x"),
    ],
)
def test_path_of_a_uri_is_decoded(uri: str, path: str) -> None:
    assert parse_file_uri(uri) == Path(path)


@pytest.mark.parametrize("uri", ["file:", "file:///", "file://host/etc"])
def test_uri_without_a_path_or_with_a_host_is_rejected(uri: str) -> None:
    with pytest.raises(ValueError, match="wanted file:///path"):
        parse_file_uri(uri)


def clusters(*names: str) -> str:
    return json.dumps([to_document(dns_cluster(name, f"{name}.test", 80)) for name in names])


class HeldOffload:
    """Offload that runs the work at once, or when the test calls `run`."""

    def __init__(self) -> None:
        self.is_held = False
        self._held: list[Callable[[], None]] = []

    def __call__(self, work: Callable[[], Any], on_result: Callable[[Any], None], /) -> None:
        self._held.append(lambda: on_result(work()))
        if not self.is_held:
            self.run()

    def run(self) -> None:
        held, self._held = self._held, []
        for each in held:
            each()


class FileClientWorld:
    """An xDS client of a directory."""

    def __init__(self, directory: Path, *features: str) -> None:
        self.directory = directory
        self.clock = VirtualClock()
        self.offload = HeldOffload()
        uri, creds = f"file://{directory}", ChannelCreds("insecure")
        server = ServerConfig(uri, creds, features=frozenset(features))
        bootstrap = Bootstrap(servers=(server,), node=Node("edge-7"))
        transports = FileTransports(self.clock, self.offload)
        self.client = XdsClient(bootstrap, transports, Tools(self.clock, seeded_random(1)))
        registries = Registries()
        self.types = resource_types(registries.policies, registries.filters)

    def write(self, text: str, name: str = "mesh.yaml") -> None:
        (self.directory / name).write_text(text)

    def watch(self, name: str) -> WatchRecorder:
        recorder = WatchRecorder()
        watcher: Any = recorder
        self.client.watch(self.types.cluster, name, watcher)
        return recorder

    async def settle(self, after_s: float = 0.0) -> None:
        """Advance the clock, and run the tasks of the stream to the end."""
        self.clock.advance(after_s)
        for _ in range(50):
            await asyncio.sleep(0)  # noqa: TID251 - turns of the loop, no time
            self.clock.advance(0)

    async def follow(self) -> None:
        """Let a change of the files be found."""
        await self.settle(POLL_INTERVAL_S)
        await self.settle(SETTLE_INTERVAL_S)


@pytest.fixture(params=["", DELTA])
async def world(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[FileClientWorld]:
    """A client of each variant of the protocol."""
    world = FileClientWorld(tmp_path, request.param)
    yield world
    world.client.close()
    await world.settle()
    assert len(asyncio.all_tasks()) == 1, "a closed client leaves no task"


def names(received: list[Any]) -> list[object]:
    return [each.code.name if isinstance(each, Status) else each.name for each in received]


async def test_resources_are_read_from_files_and_changes_are_followed(
    world: FileClientWorld,
) -> None:
    world.write(clusters("a"))
    a = world.watch("a")
    await world.settle()
    assert names(a.take()) == ["a"]
    b = world.watch("b")
    await world.settle()
    # The incremental variant reports at once that it does not exist.
    assert set(names(b.take())) <= {"NOT_FOUND"}
    world.write(clusters("a", "b"))
    await world.follow()
    assert names(b.take()) == ["b"]
    assert a.take() == []


async def test_old_cluster_is_kept_for_a_grace_after_new_routes(
    world: FileClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RPCs that were routed before may not be picked yet."""

    def write(cluster: str) -> None:
        documents = [to_document(listener("api", [route(cluster=cluster)]))]
        world.write(json.dumps(documents + json.loads(clusters(cluster))))

    monkeypatch.setattr(file_transport_module, "REMOVAL_GRACE_S", 3_600.0)
    write("old")
    recorder: Any = WatchRecorder()
    world.client.watch(world.types.listener, "api", recorder)
    old, new = world.watch("old"), world.watch("new")
    await world.settle()
    assert names(old.take()) == ["old"]
    write("new")
    await world.follow()
    assert names(recorder.take()) == ["api", "api"]
    assert names(new.take())[-1] == "new"
    assert old.take() == []


async def test_name_that_is_not_in_the_files_is_logged_at_once(
    world: FileClientWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.write(clusters("orders"))
    world.watch("ordres")
    await world.settle()
    [record] = caplog.records[:1]
    assert record.getMessage() == (
        'xds node \'edge-7\' requested cluster "ordres", which is not here; there are "orders"'
    )


async def test_empty_file_is_an_error_that_names_no_option(world: FileClientWorld) -> None:
    world.write("")
    watcher = world.watch("a")
    await world.settle()
    [failure] = watcher.take()
    assert "[field:mesh.yaml error:is empty, wanted resources]" in failure.details


async def test_invalid_files_are_unreachable_until_they_are_valid(world: FileClientWorld) -> None:
    world.write("x: 1")
    watcher = world.watch("a")
    await world.settle()
    [failure] = watcher.take()
    assert failure.code is StatusCode.UNAVAILABLE
    assert "field:mesh.yaml[0]" in failure.details
    assert str(world.directory) in failure.details
    world.write(clusters("a"))
    await world.follow()
    assert names(watcher.take()) == ["a"]


async def test_last_valid_resources_are_kept_when_a_file_becomes_invalid(
    world: FileClientWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.write(clusters("a"))
    watcher = world.watch("a")
    await world.settle()
    watcher.take()
    world.write("")
    with caplog.at_level(logging.ERROR, "proxyless.controlplane"):
        await world.follow()
    assert watcher.take() == []
    assert "kept the last good state: " in caplog.text
    new = world.watch("a")
    await world.settle()
    assert names(new.take()) == ["a"]


async def test_missing_directory_is_followed(tmp_path: Path) -> None:
    world = FileClientWorld(tmp_path / "later")
    watcher = world.watch("a")
    await world.settle()
    assert "there is no such file or directory" in watcher.take()[0].details
    world.directory.mkdir()
    world.write(clusters("a"))
    await world.follow()
    assert names(watcher.take()) == ["a"]
    world.client.close()
    await world.settle()


async def test_missing_pyyaml_is_the_reason(
    world: FileClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_text: str) -> list[object]:
        raise ModuleNotFoundError("No module named 'yaml'", name="yaml")

    monkeypatch.setattr(documents_module, "_load_yaml", fail)
    world.write(clusters("a"))
    watcher = world.watch("a")
    await world.settle()
    assert "pip install 'proxyless[cli]'" in watcher.take()[0].details


async def test_nothing_happens_when_files_are_read_after_close(world: FileClientWorld) -> None:
    world.write(clusters("a"))
    world.offload.is_held = True
    watcher = world.watch("a")
    await world.settle()
    world.client.close()
    world.offload.run()
    await world.settle()
    assert watcher.take() == []
    assert world.clock.timers_pending == 0


async def test_probe_is_answered(world: FileClientWorld, tmp_path: Path) -> None:
    server = ServerConfig(f"file://{tmp_path}", ChannelCreds("insecure"))
    transport = FileTransports(world.clock, world.offload).create(server)
    recorder: Any = EndRecorder()
    answers: list[int] = []
    transport.open(ADS_PATH, recorder).probe(lambda: answers.append(1))
    assert not answers
    world.clock.advance(0)
    assert answers
    transport.close()


class EndRecorder:
    """Listener that records the end of its stream."""

    def __init__(self) -> None:
        self.status = OK

    def on_end(self, status: Status) -> None:
        self.status = status


async def test_load_reports_are_not_accepted(world: FileClientWorld, tmp_path: Path) -> None:
    server = ServerConfig(f"file://{tmp_path}", ChannelCreds("insecure"))
    transport = FileTransports(world.clock, world.offload).create(server)
    recorder: Any = EndRecorder()
    transport.open(LRS_PATH, recorder)
    await world.settle()
    assert recorder.status.code is StatusCode.UNIMPLEMENTED
    transport.close()
