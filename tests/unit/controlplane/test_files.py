"""Unit tests of proxyless.controlplane.files."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxyless.base import ValidationError, ValidationErrors
from proxyless.controlplane import CLUSTER, FileSource, Snapshot
from proxyless.controlplane import files as files_module
from proxyless.controlplane.files import (
    POLL_INTERVAL_S,
    SETTLE_INTERVAL_S,
    SETTLE_ROUNDS_MAX,
    ThreadOffload,
)
from proxyless.runtime import LoopClock, VirtualClock
from proxyless.runtime.offload import Offload


def clusters(*names: str) -> str:
    return "---\n".join(f'"@type": {CLUSTER}\nname: {name}\ntype: STATIC\n' for name in names)


class FileSourceWorld:
    """A directory, a source that watches it, and its callbacks."""

    def __init__(
        self, directory: Path, offload: Offload | None = None, *, allow_empty: bool = False
    ) -> None:
        self.directory = directory
        self.clock = VirtualClock()
        self.snapshots: list[Snapshot] = []
        self.problems: list[str] = []
        more: dict[str, Any] = {} if offload is None else {"offload": offload}
        self.source = FileSource(
            directory,
            self.clock,
            on_snapshot=self.snapshots.append,
            on_problem=lambda error: self.problems.append(str(error)),
            allow_empty=allow_empty,
            **more,
        )
        self._writes = 0

    def write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        # Two writes within the resolution of the file system's clock must differ.
        self._writes += 1
        os.utime(path, ns=(self._writes * 10**9, self._writes * 10**9))

    def start(self) -> list[str]:
        self.source.start()
        return self.names()

    def names(self) -> list[str]:
        assert self.source.snapshot is not None
        return list(self.source.snapshot.resources(CLUSTER))

    def poll(self) -> None:
        """Let a change be found, and read after it has settled."""
        self.clock.advance(POLL_INTERVAL_S)
        self.clock.advance(SETTLE_INTERVAL_S)

    def load_error(self) -> str:
        with pytest.raises(ValidationError) as caught:
            self.source.load()
        return str(caught.value).removeprefix(f"directory {str(self.directory)!r}: ")


@pytest.fixture
def world(tmp_path: Path) -> FileSourceWorld:
    return FileSourceWorld(tmp_path)


def test_all_files_below_the_directory_are_read(world: FileSourceWorld) -> None:
    world.write("b.yaml", clusters("b1", "b2"))
    world.write("a.yml", clusters("a"))
    world.write("more/c.json", f'{{"@type": "{CLUSTER}", "name": "c"}}')
    world.write("notes.txt", "not this")
    world.write(".hidden.yaml", "[nor this")
    world.write("..data/d.yaml", "[nor that")
    assert world.start() == ["a", "b1", "b2", "c"]


EMPTY = "[error:has no resources, wanted at least one or allow_empty=True]"


def test_source_without_resources_is_an_error(world: FileSourceWorld) -> None:
    assert world.load_error() == EMPTY
    world.write("a.json", "[]")
    assert world.load_error() == EMPTY


def test_source_without_resources_is_empty_when_that_is_allowed(tmp_path: Path) -> None:
    world = FileSourceWorld(tmp_path, allow_empty=True)
    world.write("a.yaml", "# nothing yet\n---\n")
    assert world.start() == []


def test_missing_directory_is_an_error(tmp_path: Path) -> None:
    assert FileSourceWorld(tmp_path / "none").load_error() == (
        "[error:there is no such file or directory]"
    )


def test_start_raises_and_starts_no_timer_when_a_file_is_invalid(world: FileSourceWorld) -> None:
    world.write("a.yaml", "x: 1")
    with pytest.raises(ValidationError, match=r"a.yaml\[0\]"):
        world.source.start()
    assert world.clock.timers_pending == 0


# Changes


def test_change_is_found_by_the_next_poll(world: FileSourceWorld) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    world.write("a.yaml", clusters("a", "b"))
    world.clock.advance(POLL_INTERVAL_S * 0.9)
    assert world.snapshots == []
    world.clock.advance(POLL_INTERVAL_S * 0.1)
    assert world.snapshots == []
    world.clock.advance(SETTLE_INTERVAL_S)
    assert world.names() == ["a", "b"]
    assert [snapshot.version for snapshot in world.snapshots] == ["2"]


def test_change_is_read_when_files_have_settled(world: FileSourceWorld) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    world.write("a.yaml", clusters("a", "b"))
    world.clock.advance(POLL_INTERVAL_S)
    world.write("a.yaml", clusters("a", "b", "c"))
    world.clock.advance(SETTLE_INTERVAL_S)
    assert world.snapshots == []
    world.clock.advance(SETTLE_INTERVAL_S)
    assert world.names() == ["a", "b", "c"]


def test_file_that_changes_all_the_time_is_read(world: FileSourceWorld) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    world.clock.advance(POLL_INTERVAL_S - SETTLE_INTERVAL_S)
    for number in range(SETTLE_ROUNDS_MAX + 1):
        assert world.snapshots == []
        world.write("a.yaml", clusters(f"c{number}"))
        world.clock.advance(SETTLE_INTERVAL_S)
    assert world.names() == [f"c{SETTLE_ROUNDS_MAX}"]


def test_change_that_is_undone_is_not_read(world: FileSourceWorld) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    (world.directory / "b.yaml").write_text(clusters("b"))
    world.clock.advance(POLL_INTERVAL_S)
    (world.directory / "b.yaml").unlink()
    world.poll()
    assert world.snapshots == []


@pytest.mark.parametrize("text", ["", "\n", "# all commented out\n", "---\n---\n"])
def test_last_valid_snapshot_is_kept_when_a_file_is_emptied(
    world: FileSourceWorld, text: str
) -> None:
    world.write("a.yaml", clusters("a"))
    world.write("b.yaml", clusters("b"))
    world.start()
    world.write("a.yaml", text)
    world.poll()
    assert world.names() == ["a", "b"]
    [problem] = world.problems
    assert "field:a.yaml error:is empty, wanted resources or allow_empty=True" in problem


def test_last_valid_snapshot_is_kept_when_a_file_ends_without_its_newline(
    world: FileSourceWorld,
) -> None:
    """Half of a YAML file is often valid: here it has one cluster of two."""
    world.write("a.yaml", clusters("a", "b"))
    world.start()
    half = clusters("a", "b")[: len(clusters("a")) - 1]
    world.write("a.yaml", "")
    world.poll()
    world.write("a.yaml", half)
    world.poll()
    assert world.problems[-1].endswith(
        "[field:a.yaml error:has no newline at its end any more: it may be half written]"
    )
    assert world.names() == ["a", "b"]
    world.write("a.yaml", f"{half}\n")
    world.poll()
    assert world.names() == ["a"]


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_file_without_a_newline_at_its_end_is_read(world: FileSourceWorld, name: str) -> None:
    """If it never had one; in JSON, half a file is always invalid."""
    document = f'{{"@type": "{CLUSTER}", "name": "%s", "type": "STATIC"}}'
    world.write(name, document % "a" + ("\n" if name == "a.json" else ""))
    assert world.start() == ["a"]
    world.write(name, document % "b")
    world.poll()
    assert world.names() == ["b"]


def test_last_valid_snapshot_is_kept_when_the_last_file_is_removed(
    world: FileSourceWorld,
) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    (world.directory / "a.yaml").unlink()
    world.poll()
    world.poll()
    assert world.names() == ["a"]
    [problem] = world.problems
    assert problem.endswith(EMPTY)


def test_last_file_can_be_removed_when_empty_is_allowed(tmp_path: Path) -> None:
    world = FileSourceWorld(tmp_path, allow_empty=True)
    world.write("a.yaml", clusters("a"))
    world.start()
    (world.directory / "a.yaml").unlink()
    world.poll()
    assert world.names() == []


class MountedConfigMap:
    """A ConfigMap as a kubelet mounts it: files are links through `..data`, which is replaced."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._version = 0

    def publish(self, **files: str) -> None:
        self._version += 1
        content = self._directory / f"..2026_{self._version}"
        content.mkdir()
        for name, text in files.items():
            (content / f"{name}.yaml").write_text(text)
        self._replace(content)
        for name in files:
            link = self._directory / f"{name}.yaml"
            if not link.is_symlink():
                link.symlink_to(Path("..data") / link.name)
        for link in self._directory.glob("*.yaml"):
            if link.stem not in files:
                link.unlink()

    def publish_folder(self, folder: str, text: str) -> None:
        """A file whose path in the volume has a directory, which is the link then."""
        self._version += 1
        content = self._directory / f"..2026_{self._version}"
        (content / folder).mkdir(parents=True)
        (content / folder / "a.yaml").write_text(text)
        self._replace(content)
        link = self._directory / folder
        if not link.is_symlink():
            link.symlink_to(Path("..data") / folder)

    def _replace(self, content: Path) -> None:
        new = self._directory / "..data_tmp"
        new.symlink_to(content.name)
        new.replace(self._directory / "..data")


def test_changes_of_a_mounted_config_map_are_followed(world: FileSourceWorld) -> None:
    mounted = MountedConfigMap(world.directory)
    mounted.publish(a=clusters("a"), b=clusters("b"))
    assert world.start() == ["a", "b"]
    mounted.publish(a=clusters("a2"))
    world.poll()
    assert world.names() == ["a2"]
    # `kubectl create configmap mesh` without its files.
    mounted.publish()
    world.poll()
    assert world.names() == ["a2"]
    assert world.problems[-1].endswith(EMPTY)


def test_links_to_directories_are_followed(world: FileSourceWorld) -> None:
    mounted = MountedConfigMap(world.directory)
    mounted.publish_folder("shop", clusters("a"))
    assert world.start() == ["a"]
    mounted.publish_folder("shop", clusters("a2"))
    world.poll()
    assert world.names() == ["a2"]
    # A volume that is not mounted: the directory may still exist.
    (world.directory / "..data").rename(world.directory / "..elsewhere")
    world.poll()
    assert "field:shop error:cannot be read: No such file or directory" in world.problems[0]
    assert world.names() == ["a2"]


def test_directory_with_several_links_is_read_once(world: FileSourceWorld) -> None:
    world.write("shop/a.yaml", clusters("a"))
    (world.directory / "latest").symlink_to("shop")
    (world.directory / "shop" / "loop").symlink_to("..")
    assert world.start() == ["a"]


def test_files_that_are_replaced_while_they_are_read_are_not_mixed(
    world: FileSourceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster moves from one file to the other: a mixture would not have it."""
    mounted = MountedConfigMap(world.directory)
    mounted.publish(a=clusters("a"), b=clusters("b", "moved"))
    world.start()
    really_read = files_module.read_bounded

    def read(path: Path, errors: ValidationErrors) -> str:
        text = really_read(path, errors)
        if path.name == "a.yaml" and "moved" not in text:
            mounted.publish(a=clusters("a2", "moved"), b=clusters("b2"))
        return text

    mounted.publish(a=clusters("a1"), b=clusters("b1", "moved"))
    monkeypatch.setattr(files_module, "read_bounded", read)
    world.poll()
    assert world.snapshots == []
    world.clock.advance(SETTLE_INTERVAL_S)
    assert world.names() == ["a2", "moved", "b2"]
    assert (len(world.snapshots), world.problems) == (1, [])


def test_files_and_directories_are_one_snapshot(tmp_path: Path) -> None:
    (tmp_path / "mesh").mkdir()
    (tmp_path / "mesh" / "a.yaml").write_text(clusters("a"))
    (tmp_path / "more.txt").write_text(clusters("b"))
    clock, problems = VirtualClock(), list[str]()
    source = FileSource(
        [tmp_path / "mesh", str(tmp_path / "more.txt")],
        clock,
        on_snapshot=lambda _: None,
        on_problem=lambda error: problems.append(str(error)),
    )
    source.start()
    assert source.snapshot is not None
    assert list(source.snapshot.resources(CLUSTER)) == ["a", "b"]
    (tmp_path / "more.txt").unlink()
    clock.advance(POLL_INTERVAL_S)
    assert list(source.snapshot.resources(CLUSTER)) == ["a", "b"]
    [problem] = problems
    assert f"field:{tmp_path / 'more.txt'} error:there is no such file or directory" in problem
    source.close()


def test_added_and_removed_files_are_found(world: FileSourceWorld) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    world.write("b.yaml", clusters("b"))
    world.poll()
    assert world.names() == ["a", "b"]
    (world.directory / "a.yaml").unlink()
    world.poll()
    assert world.names() == ["b"]


def test_no_callback_while_nothing_changes(world: FileSourceWorld) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    for _ in range(5):
        world.poll()
    world.write("a.yaml", f"# a comment\n{clusters('a')}")
    world.poll()
    assert world.snapshots == []


def test_unchanged_files_are_not_read_again(
    world: FileSourceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("a.yaml", clusters("a"))
    world.write("b.yaml", clusters("b"))
    world.start()
    read: list[str] = []
    real = files_module.read_bounded

    def note(path: Path, errors: ValidationErrors) -> str:
        read.append(path.name)
        return real(path, errors)

    monkeypatch.setattr(files_module, "read_bounded", note)
    world.write("b.yaml", clusters("c"))
    world.poll()
    assert read == ["b.yaml"]
    assert world.names() == ["a", "c"]


def test_last_valid_snapshot_is_kept_and_the_error_reported_once_when_a_file_is_invalid(
    world: FileSourceWorld,
) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    before = world.source.snapshot
    world.write("a.yaml", f'"@type": {CLUSTER}\nnam: b\n')
    world.poll()
    world.poll()
    assert world.source.snapshot is before
    assert world.snapshots == []
    [problem] = world.problems
    assert "field:a.yaml[0].nam error:line 2, column 1: there is no such field" in problem


def test_corrected_file_is_served(world: FileSourceWorld) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    world.write("a.yaml", "x: 1")
    world.poll()
    world.write("a.yaml", clusters("b"))
    world.poll()
    assert world.names() == ["b"]
    assert len(world.snapshots) == 1
    # The same error is reported again.
    world.write("a.yaml", "x: 1")
    world.poll()
    assert len(world.problems) == 2


def test_unreadable_file_is_read_as_soon_as_it_is_readable(
    world: FileSourceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example after a change of its owner, which does not change the stamp."""
    world.write("b.yaml", clusters("b"))
    world.start()

    def refuse(path: Path, errors: ValidationErrors) -> str:
        errors.add("cannot be read")
        return ""

    with monkeypatch.context() as patched:
        patched.setattr(files_module, "read_bounded", refuse)
        world.write("a.yaml", clusters("a"))
        world.poll()
        world.poll()
        assert len(world.problems) == 1
    world.poll()
    assert world.names() == ["a", "b"]


def test_reference_without_a_resource_is_a_problem(world: FileSourceWorld) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    world.write(
        "a.yaml", clusters("a").replace("STATIC", "EDS\nedsClusterConfig: {edsConfig: {ads: {}}}")
    )
    world.poll()
    assert "there are no endpoints 'a'" in world.problems[0]
    assert world.names() == ["a"]


def test_last_valid_snapshot_is_kept_when_the_directory_is_removed(
    world: FileSourceWorld, tmp_path: Path
) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    tmp_path.rename(tmp_path.with_name("elsewhere"))
    world.poll()
    world.poll()
    assert len(world.problems) == 1
    assert "there is no such file or directory" in world.problems[0]
    assert world.names() == ["a"]


def test_last_valid_snapshot_is_kept_when_a_link_is_broken(world: FileSourceWorld) -> None:
    """For example while a volume is mounted again: the file is not removed."""
    target = world.directory / ".target"
    target.write_text(clusters("a"))
    (world.directory / "a.yaml").symlink_to(target)
    assert world.start() == ["a"]
    target.rename(world.directory / ".elsewhere")
    world.poll()
    assert "field:a.yaml error:cannot be read: No such file or directory" in world.problems[0]
    assert world.names() == ["a"]
    (world.directory / ".elsewhere").rename(target)
    world.poll()
    assert len(world.snapshots) == 1


def test_pipe_is_not_opened(world: FileSourceWorld) -> None:
    """Opening it could block for ever."""
    world.write("a.yaml", clusters("a"))
    world.start()
    os.mkfifo(world.directory / "b.yaml")
    world.poll()
    assert "[field:b.yaml error:is no file]" in world.problems[0]
    assert world.names() == ["a"]


@pytest.mark.parametrize("error_number", [errno.ENOENT, errno.EACCES])
@pytest.mark.parametrize("place", ["", "below"])
def test_last_valid_snapshot_is_kept_when_a_directory_cannot_be_listed(
    world: FileSourceWorld, monkeypatch: pytest.MonkeyPatch, place: str, error_number: int
) -> None:
    """It was removed during the scan, or its permissions changed."""
    world.write("below/a.yaml", clusters("a"))
    world.start()
    really_scan = os.scandir
    closed = str(world.directory / place)

    def scan(path: str) -> object:
        if os.fspath(path) == closed:
            raise OSError(error_number, os.strerror(error_number), closed)
        return really_scan(path)

    monkeypatch.setattr(os, "scandir", scan)
    world.poll()
    what = f"[error:{closed!r} cannot be listed: {os.strerror(error_number)}]"
    assert what in world.problems[0]
    assert world.names() == ["a"]


@pytest.mark.parametrize("error_number", [errno.EACCES, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("place", ["", "below/a.yaml"])
def test_last_valid_snapshot_is_kept_while_stat_fails(
    world: FileSourceWorld, monkeypatch: pytest.MonkeyPatch, place: str, error_number: int
) -> None:
    """For example a directory without the execute permission, or an I/O error."""
    world.write("below/a.yaml", clusters("a"))
    world.start()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", refusing({world.directory / place: error_number}))
        world.poll()
        world.poll()
        assert f"error:cannot be read: {os.strerror(error_number)}]" in world.load_error()
    [problem] = world.problems
    assert f"error:cannot be read: {os.strerror(error_number)}]" in problem
    assert world.names() == ["a"]
    world.write("below/a.yaml", clusters("b"))
    world.poll()
    assert world.names() == ["b"]


@pytest.mark.parametrize(
    ("error_number", "expected"), [(errno.ENOENT, ["b"]), (errno.EIO, ["a", "b"]), (0, ["b"])]
)
def test_resources_are_removed_only_when_the_file_does_not_exist(
    world: FileSourceWorld, monkeypatch: pytest.MonkeyPatch, error_number: int, expected: list[str]
) -> None:
    """The file was listed, then not found; `lstat` decides whether it is a broken link."""
    path = world.directory / "a.yaml"
    world.write("a.yaml", clusters("a"))
    world.write("b.yaml", clusters("b"))
    world.start()
    monkeypatch.setattr(Path, "stat", refusing({path: errno.ENOENT}, {path: error_number}))
    world.poll()
    assert world.names() == expected
    assert len(world.problems) == ("a" in expected)


def refusing(
    followed: dict[Path, int], links: dict[Path, int] | None = None
) -> Callable[..., os.stat_result]:
    """A Path.stat that raises these errors; 0 is none. `links` is for lstat, if given."""
    really_stat = Path.stat

    def stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        numbers = followed if follow_symlinks or links is None else links
        if number := numbers.get(path):
            raise OSError(number, os.strerror(number), str(path))
        return really_stat(path, follow_symlinks=follow_symlinks)

    return stat


def test_hidden_directories_are_not_listed(
    world: FileSourceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be large, or not readable."""
    world.write("a.yaml", clusters("a"))
    world.write(".git/b.yaml", clusters("b"))
    scanned: list[str] = []
    really_scan = os.scandir

    def scan(path: str) -> object:
        scanned.append(os.fspath(path))
        return really_scan(path)

    monkeypatch.setattr(os, "scandir", scan)
    assert world.start() == ["a"]
    assert scanned == [str(world.directory)]


def test_closed_source_does_not_poll(world: FileSourceWorld) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    world.source.close()
    assert world.clock.timers_pending == 0


# Offload


class Held:
    """An offload that runs the work when the test calls `do`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def __call__(self, work: Callable[[], Any], on_result: Callable[[Any], None], /) -> None:
        self.waiting.append((work, on_result))

    def do(self) -> None:
        work, on_result = self.waiting.pop()
        on_result(work())


def test_next_scan_starts_after_the_last_one_has_ended(tmp_path: Path) -> None:
    held = Held()
    world = FileSourceWorld(tmp_path, held, allow_empty=True)
    world.start()
    world.write("a.yaml", clusters("a"))
    world.clock.advance(10 * POLL_INTERVAL_S)
    assert len(held.waiting) == 1
    held.do()
    world.clock.advance(SETTLE_INTERVAL_S)
    held.do()
    assert world.names() == ["a"]
    world.write("a.yaml", clusters("b"))
    world.clock.advance(POLL_INTERVAL_S)
    held.do()
    world.clock.advance(SETTLE_INTERVAL_S)
    held.do()
    assert [list(each.resources(CLUSTER)) for each in world.snapshots] == [["a"], ["b"]]


def test_result_of_a_scan_is_dropped_after_close(tmp_path: Path) -> None:
    held = Held()
    world = FileSourceWorld(tmp_path, held, allow_empty=True)
    world.start()
    world.write("a.yaml", clusters("a"))
    world.poll()
    world.source.close()
    held.do()
    assert (world.snapshots, world.problems) == ([], [])
    assert world.clock.timers_pending == 0


def test_scan_reads_no_further_file_after_close(
    world: FileSourceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def close_then_read(path: Path, errors: ValidationErrors) -> str:
        world.source.close()
        read.append(path.name)
        return ""

    world.write("a.yaml", clusters("a"))
    world.write("b.yaml", clusters("b"))
    monkeypatch.setattr(files_module, "read_bounded", close_then_read)
    assert "is not read any more" in world.load_error()
    assert read == ["a.yaml"]


def test_polling_continues_when_reading_raises(
    world: FileSourceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()

    def fail(path: Path, errors: ValidationErrors) -> str:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(files_module, "read_bounded", fail)
        world.write("a.yaml", clusters("b"))
        world.poll()
    [problem] = world.problems
    assert problem.endswith("[error:RuntimeError: a bug]")
    assert world.names() == ["a"]
    world.poll()
    assert world.names() == ["b"]


def test_polling_continues_when_listing_raises(
    world: FileSourceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()

    def fail(directory: Path, errors: ValidationErrors) -> list[Path]:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(files_module, "list_files", fail)
        world.poll()
    [problem] = world.problems
    assert problem.endswith("[error:RuntimeError: a bug]")
    world.write("a.yaml", clusters("b"))
    world.poll()
    assert world.names() == ["b"]


def test_polling_continues_when_the_offload_raises(tmp_path: Path) -> None:
    """For example when the process has too many threads."""
    has_threads = False

    def offload(work: Callable[[], Any], on_result: Callable[[Any], None], /) -> None:
        if not has_threads:
            raise RuntimeError("can't start new thread")
        on_result(work())

    world = FileSourceWorld(tmp_path, offload, allow_empty=True)
    world.start()
    world.write("a.yaml", clusters("a"))
    world.poll()
    world.poll()
    [problem] = world.problems
    assert problem.endswith("[error:RuntimeError: can't start new thread]")
    has_threads = True
    world.poll()
    assert world.names() == ["a"]


def test_polling_continues_when_a_callback_raises(tmp_path: Path) -> None:
    world = FileSourceWorld(tmp_path, allow_empty=True)
    world.start()
    received: list[Snapshot] = []

    def fail(snapshot: Snapshot) -> None:
        received.append(snapshot)
        raise RuntimeError("a bug of the owner")

    world.source._on_snapshot = fail  # type: ignore[misc]
    for name in ("a", "b"):
        world.write("a.yaml", clusters(name))
        with pytest.raises(RuntimeError, match="of the owner"):
            world.poll()
        assert world.clock.timers_pending == 1
    assert world.problems == []
    assert [list(each.resources(CLUSTER)) for each in received] == [["a"], ["b"]]


async def test_event_loop_runs_while_a_file_is_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    is_reading, go_on, is_notified = asyncio.Event(), threading.Event(), asyncio.Event()
    readers: list[int] = []
    real = files_module.read_bounded

    def read_slowly(path: Path, errors: ValidationErrors) -> str:
        readers.append(threading.get_ident())
        loop.call_soon_threadsafe(is_reading.set)
        go_on.wait()
        return real(path, errors)

    source = FileSource(
        tmp_path,
        LoopClock(loop),
        on_snapshot=lambda _snapshot: is_notified.set(),
        on_problem=lambda error: pytest.fail(str(error)),
        poll_interval_s=0.001,
        offload=ThreadOffload(),
        allow_empty=True,
    )
    source.load()
    monkeypatch.setattr(files_module, "read_bounded", read_slowly)
    (tmp_path / "a.yaml").write_text(clusters("a"))
    source.watch()
    # If the file were read on this loop, this would never return.
    await is_reading.wait()
    assert not is_notified.is_set()
    go_on.set()
    await is_notified.wait()
    source.close()
    assert source.snapshot is not None
    assert list(source.snapshot.resources(CLUSTER)) == ["a"]
    assert threading.get_ident() not in readers


async def test_no_callback_when_a_thread_ends_after_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    is_reading, go_on = asyncio.Event(), threading.Event()
    readers: list[threading.Thread] = []

    def read_slowly(path: Path, errors: ValidationErrors) -> str:
        readers.append(threading.current_thread())
        loop.call_soon_threadsafe(is_reading.set)
        go_on.wait()
        return ""

    source = FileSource(
        tmp_path,
        LoopClock(loop),
        on_snapshot=lambda _snapshot: pytest.fail("called"),
        on_problem=lambda error: pytest.fail(str(error)),
        poll_interval_s=0.001,
        offload=(offload := ThreadOffload()),
        allow_empty=True,
    )
    source.load()
    monkeypatch.setattr(files_module, "read_bounded", read_slowly)
    (tmp_path / "a.yaml").write_text(clusters("a"))
    source.watch()
    await is_reading.wait()
    source.close()
    go_on.set()
    [reader] = readers
    assert reader.daemon, "it does not keep the process from ending"
    # The thread works in order, so its callback has run when this one runs.
    last = loop.create_future()
    offload(lambda: None, last.set_result)
    await last


# Errors


def test_name_in_two_files_is_an_error_with_both_paths(world: FileSourceWorld) -> None:
    world.write("a.yaml", clusters("x", "a"))
    world.write("b.yaml", clusters("a"))
    assert world.load_error() == (
        "[field:b.yaml[0] error:cluster 'a' is there already, at a.yaml[1]]"
    )


def test_errors_of_all_files_are_reported(world: FileSourceWorld) -> None:
    world.write("a.yaml", "x: 1")
    world.write("b.yaml", "[")
    world.write("c.json", "[")
    error = world.load_error()
    assert [name for name in ("a.yaml[0]", "b.yaml", "c.json") if f"field:{name} " in error] == [
        "a.yaml[0]",
        "b.yaml",
        "c.json",
    ]


def test_too_large_file_is_rejected(
    world: FileSourceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "FILE_BYTES_MAX", 10)
    world.write("a.yaml", "#" * 11)
    assert world.load_error() == "[field:a.yaml error:has more than 10 bytes]"


def test_too_many_files_are_rejected(
    world: FileSourceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "FILES_MAX", 1)
    world.write("a.yaml", "")
    world.write("b.yaml", "")
    assert world.load_error() == "[error:has 2 files, wanted at most 1]"


def test_file_that_is_not_utf8_is_rejected(world: FileSourceWorld) -> None:
    (world.directory / "a.yaml").write_bytes(b"a\xff")
    assert world.load_error() == "[field:a.yaml error:is not UTF-8 at byte 1]"


def test_unreadable_file_is_an_error(world: FileSourceWorld) -> None:
    (world.directory / "a.yaml").mkdir()
    assert world.load_error() == "[field:a.yaml error:cannot be read: Is a directory]"
