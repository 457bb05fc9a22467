"""Unit tests of proxyless.xds.client.config_store."""

import os
import stat
import threading
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from proxyless.controlplane import CLUSTER, eds_cluster
from proxyless.controlplane.builders import pack
from proxyless.protos import message_class
from proxyless.xds.bootstrap import Bootstrap, ChannelCreds, ConfigCacheConfig, Node, ServerConfig
from proxyless.xds.client import config_store
from proxyless.xds.client.config_file import ClientIdentity, SavedResource
from proxyless.xds.client.config_store import (
    FILES_MAX,
    TEMPORARY_AGE_MAX_S,
    UNUSED_AGE_MAX_S,
    ConfigStore,
    OsFiles,
)

NOW_S = 1_800_000_000.0
BOOTSTRAP = Bootstrap(servers=(ServerConfig("a:1", ChannelCreds("insecure")),), node=Node("me"))
IDENTITY = ClientIdentity.of(BOOTSTRAP, "xds:///api")
SAVED = {("t", "n"): SavedResource("1", b"resource", NOW_S)}


def make_store(
    directory: Path, *, now_s: float = NOW_S, files: OsFiles | None = None
) -> ConfigStore:
    config = ConfigCacheConfig(str(directory), max_age_s=3_600.0)
    return ConfigStore(config, IDENTITY, files=files, wall_time_s=lambda: now_s)


def test_resources_are_read_by_another_store(tmp_path: Path) -> None:
    make_store(tmp_path / "new" / "cache").write(SAVED)
    assert make_store(tmp_path / "new" / "cache").read() == SAVED


@pytest.mark.spec("CACHE-01")
def test_file_and_directory_are_only_for_their_owner(tmp_path: Path) -> None:
    make_store(tmp_path / "cache").write(SAVED)
    [file] = (tmp_path / "cache").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_nothing_is_read_and_logged_when_there_is_no_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert make_store(tmp_path).read() == {}
    assert not caplog.records


@pytest.mark.spec("CACHE-04")
def test_damaged_file_is_ignored_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path)
    store.write(SAVED)
    path = tmp_path / IDENTITY.file_name
    path.write_bytes(path.read_bytes()[:-1])
    assert (store.read(), store.read()) == ({}, {})
    [record] = caplog.records
    assert record.getMessage() == (
        f"config cache {str(path)!r} is damaged: its checksum is wrong: it is not used"
    )


@pytest.mark.spec("CACHE-04")
def test_file_that_another_user_can_change_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path)
    store.write(SAVED)
    (tmp_path / IDENTITY.file_name).chmod(0o620)
    assert store.read() == {}
    assert "can be changed by another user" in caplog.text


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_only_regular_files_are_read(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Opening a pipe would block."""
    store = make_store(tmp_path)
    store.write(SAVED)
    path = tmp_path / IDENTITY.file_name
    path.rename(tmp_path / "elsewhere")
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert store.read() == {}
    assert caplog.text.endswith("is no regular file: it is not used\n")


@pytest.mark.spec("CACHE-04")
@pytest.mark.parametrize(
    ("age_s", "expected"), [(3_599.0, SAVED), (3_601.0, {}), (-3_599.0, SAVED), (-3_601.0, {})]
)
def test_file_is_ignored_when_it_is_too_old_or_from_the_future(
    tmp_path: Path, age_s: float, expected: object, caplog: pytest.LogCaptureFixture
) -> None:
    make_store(tmp_path).write(SAVED)
    assert make_store(tmp_path, now_s=NOW_S + age_s).read() == expected
    assert ("is older than 3600 s" in caplog.text) is not bool(expected)


@pytest.mark.spec("CACHE-04")
def test_resources_that_are_too_old_are_not_used_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that the control plane rejects becomes no younger with the others."""
    rejected = {("t", "old"): SavedResource("1", b"resource", NOW_S - 3_601.0)}
    make_store(tmp_path).write({**SAVED, **rejected})
    assert make_store(tmp_path).read() == SAVED
    text = "is older than 3600 s, or from the future: 1 of its 2 resources are not used"
    assert text in caplog.text


def test_too_large_file_is_neither_written_nor_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path)
    store.write(SAVED)
    monkeypatch.setattr(config_store, "FILE_BYTES_MAX", 10)
    store.write({})
    assert "it is not written" in caplog.text
    assert store.read() == {}
    assert "has more than 10 bytes" in caplog.text


def test_secrets_are_searched_only_in_resources_that_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[bytes] = []

    def search(_type_url: str, serialized: bytes) -> bytes:
        searched.append(serialized)
        return serialized.upper()

    monkeypatch.setattr(config_store, "without_secrets", search)
    store = make_store(tmp_path)
    for contents in ({"n": b"a", "m": b"b"}, {"n": b"a", "m": b"c"}, {"n": b"a"}):
        store.write(
            {("t", name): SavedResource("1", each, NOW_S) for name, each in contents.items()}
        )
        read = {name: saved.serialized for (_, name), saved in store.read().items()}
        assert read == {name: each.upper() for name, each in contents.items()}
    assert searched == [b"a", b"b", b"c"]


@pytest.mark.spec("CACHE-05")
def test_resource_with_a_private_key_is_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path)
    key = b"x-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE"
    store.write({**SAVED, ("t", "secret"): SavedResource("1", key, NOW_S)})
    assert store.read() == SAVED
    assert b"MHcCAQEE" not in (tmp_path / IDENTITY.file_name).read_bytes()
    assert "private key" in caplog.text


@pytest.mark.spec("CACHE-05")
def test_secrets_in_fields_that_no_client_uses_are_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    message = eds_cluster("web")
    tls = message_class("envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext")()
    certificate = tls.common_tls_context.tls_certificates.add()
    certificate.password.inline_string = "hunter2"
    certificate.private_key.inline_bytes = b"\x30\x82DER"
    pack(tls, message.transport_socket.typed_config)
    key = (CLUSTER, "web")
    store = make_store(tmp_path)
    for version in ("1", "2"):
        saved = SavedResource(version, message.SerializeToString(), NOW_S)
        store.write({key: saved})
        found = store.read()[key]
        assert found.version == version
        assert b"hunter2" not in found.serialized
        assert b"DER" not in found.serialized
        assert type(message).FromString(found.serialized).name == "web"
    assert not caplog.records


class FailingFiles(OsFiles):
    """A file system without space, that fails in the middle of a file."""

    def replace(self, path: Path, content: bytes) -> None:
        raise OSError(28, os.strerror(28))


def test_errors_are_logged_once_and_not_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path, files=FailingFiles())
    assert not store.write(SAVED)
    assert not store.write(SAVED)
    [record] = caplog.records
    assert record.getMessage().endswith(f"cannot be written: {os.strerror(28)}")


def test_directory_that_is_a_file_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    store = make_store(tmp_path / "file")
    store.write(SAVED)
    assert store.read() == {}
    assert "cannot be written" in caplog.text
    assert "cannot be read: Not a directory: it is not used" in caplog.text


class ForeignFiles(OsFiles):
    """A directory in which another user has an old file."""

    def remove(self, path: Path) -> None:
        raise PermissionError(1, os.strerror(1), path)


def test_old_files_of_another_user_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "old.xds").touch()
    os.utime(tmp_path / "old.xds", (0, 0))
    assert make_store(tmp_path, files=ForeignFiles()).write(SAVED)
    assert make_store(tmp_path).read() == SAVED
    assert not caplog.records


@pytest.mark.spec("CACHE-01")
def test_file_before_stays_when_writing_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path)
    store.write(SAVED)

    def fail(_descriptor: int) -> None:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(os, "fsync", fail)
    store.write({("t", "n"): SavedResource("2", b"half", NOW_S)})
    assert store.read() == SAVED
    assert [path.name for path in tmp_path.iterdir()] == [IDENTITY.file_name]


def test_processes_with_the_same_id_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each container has a process 1. A module that is loaded twice stands for two processes."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    mine, other = load_again(config_store), load_again(config_store)
    path = tmp_path / "a.xds"
    really_sync = os.fsync

    def sync(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", really_sync)
        other.OsFiles().replace(path, b"other")
        really_sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    mine.OsFiles().replace(path, b"mine")
    assert path.read_bytes() == b"mine"
    assert list(tmp_path.iterdir()) == [path]


def load_again(module: ModuleType) -> Any:  # noqa: ANN401 - a module
    spec = module.__spec__
    assert spec is not None
    assert spec.loader is not None
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


def test_old_and_surplus_files_are_removed(tmp_path: Path) -> None:
    old, mine = tmp_path / "old.xds", tmp_path / IDENTITY.file_name
    left, fresh = tmp_path / ".a.xds.1-2.tmp", tmp_path / ".b.xds.1-2.tmp"
    notes = tmp_path / "notes.txt"
    # Its client may have a greater maximum age.
    others = tmp_path / "others.xds"
    ages_s = {
        old: UNUSED_AGE_MAX_S + 1,
        others: UNUSED_AGE_MAX_S - 1,
        left: TEMPORARY_AGE_MAX_S + 1,
        fresh: 1,
        notes: 1e8,
    }
    for path, age_s in ages_s.items():
        path.write_bytes(b"")
        os.utime(path, (NOW_S - age_s, NOW_S - age_s))
    for number in range(FILES_MAX + 10):
        path = tmp_path / f"{number}.xds"
        path.write_bytes(b"")
        os.utime(path, (NOW_S - 1_000 + number, NOW_S - 1_000 + number))
    make_store(tmp_path).write(SAVED)
    assert not old.exists()
    assert not left.exists()
    assert fresh.exists()
    assert notes.exists()
    assert mine.exists()
    assert len(list(tmp_path.glob("*.xds"))) == FILES_MAX
    assert not (tmp_path / "0.xds").exists()


@pytest.mark.spec("CACHE-07")
def test_readers_see_whole_files_while_several_stores_write(tmp_path: Path) -> None:
    configs = [
        {
            ("t", str(each)): SavedResource(str(number), bytes([number]) * 10_000, NOW_S)
            for each in range(9)
        }
        for number in range(4)
    ]
    make_store(tmp_path).write(configs[0])
    is_over = threading.Event()

    def write(config: dict[tuple[str, str], SavedResource]) -> None:
        store = make_store(tmp_path)
        while not is_over.is_set():
            store.write(config)

    threads = [threading.Thread(target=write, args=(config,)) for config in configs]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            assert make_store(tmp_path).read() in configs
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
