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
    Offload,
    ThreadOffload,
    run_in_thread,
)
from proxyless.runtime import LoopClock, VirtualClock


def clusters(*names: str) -> str:
    return "---\n".join(f'"@type": {CLUSTER}\nname: {name}\ntype: STATIC\n' for name in names)


class World:
    """A directory, a source that watches it, and what it says."""

    def __init__(self, directory: Path, offload: Offload | None = None) -> None:
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
            **more,
        )
        self._writes = 0

    def write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        # Two writes within one tick of the file system's clock must differ.
        self._writes += 1
        os.utime(path, ns=(self._writes * 10**9, self._writes * 10**9))

    def start(self) -> list[str]:
        self.source.start()
        return self.names()

    def names(self) -> list[str]:
        assert self.source.snapshot is not None
        return list(self.source.snapshot.resources(CLUSTER))

    def look(self) -> None:
        self.clock.advance(POLL_INTERVAL_S)

    def complaint(self) -> str:
        with pytest.raises(ValidationError) as caught:
            self.source.load()
        return str(caught.value).removeprefix(f"directory {str(self.directory)!r}: ")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_all_files_below_the_directory_count(world: World) -> None:
    world.write("b.yaml", clusters("b1", "b2"))
    world.write("a.yml", clusters("a"))
    world.write("more/c.json", f'{{"@type": "{CLUSTER}", "name": "c"}}')
    world.write("notes.txt", "not this")
    world.write(".hidden.yaml", "[nor this")
    world.write("..data/d.yaml", "[nor that")
    assert world.start() == ["a", "b1", "b2", "c"]


def test_an_empty_directory_is_an_empty_snapshot(world: World) -> None:
    assert world.start() == []


def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert World(tmp_path / "none").complaint() == "[error:there is no such directory]"


def test_a_bad_start_raises_and_starts_no_timer(world: World) -> None:
    world.write("a.yaml", "x: 1")
    with pytest.raises(ValidationError, match=r"a.yaml\[0\]"):
        world.source.start()
    assert world.clock.timers_pending == 0


# Changes


def test_a_change_is_seen_at_the_next_look(world: World) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    world.write("a.yaml", clusters("a", "b"))
    world.clock.advance(POLL_INTERVAL_S * 0.9)
    assert world.snapshots == []
    world.clock.advance(POLL_INTERVAL_S * 0.1)
    assert world.names() == ["a", "b"]
    assert [snapshot.version for snapshot in world.snapshots] == ["2"]


def test_files_come_and_go(world: World) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    world.write("b.yaml", clusters("b"))
    world.look()
    assert world.names() == ["a", "b"]
    (world.directory / "a.yaml").unlink()
    world.look()
    assert world.names() == ["b"]


def test_nothing_is_said_while_nothing_changes(world: World) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    for _ in range(5):
        world.look()
    world.write("a.yaml", f"# a comment\n{clusters('a')}")
    world.look()
    assert world.snapshots == []


def test_files_that_did_not_change_are_not_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
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
    world.look()
    assert read == ["b.yaml"]
    assert world.names() == ["a", "c"]


def test_a_bad_file_keeps_the_last_good_snapshot_and_is_said_once(world: World) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    before = world.source.snapshot
    world.write("a.yaml", f'"@type": {CLUSTER}\nnam: b\n')
    world.look()
    world.look()
    assert world.source.snapshot is before
    assert world.snapshots == []
    [problem] = world.problems
    assert "field:a.yaml[0].nam error:there is no such field" in problem


def test_a_file_that_is_mended_is_served(world: World) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    world.write("a.yaml", "x: 1")
    world.look()
    world.write("a.yaml", clusters("b"))
    world.look()
    assert world.names() == ["b"]
    assert len(world.snapshots) == 1
    # And the same mistake is said again.
    world.write("a.yaml", "x: 1")
    world.look()
    assert len(world.problems) == 2


def test_a_file_that_could_not_be_read_is_read_as_soon_as_it_can_be(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its owner was changed: nothing of what we look at differs."""
    world.start()

    def refuse(path: Path, errors: ValidationErrors) -> str:
        errors.add("cannot be read")
        return ""

    with monkeypatch.context() as patched:
        patched.setattr(files_module, "read_bounded", refuse)
        world.write("a.yaml", clusters("a"))
        world.look()
        world.look()
        assert len(world.problems) == 1
    world.look()
    assert world.names() == ["a"]


def test_a_reference_that_leads_nowhere_is_a_problem(world: World) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    world.write(
        "a.yaml", clusters("a").replace("STATIC", "EDS\nedsClusterConfig: {edsConfig: {ads: {}}}")
    )
    world.look()
    assert "there is no endpoints 'a'" in world.problems[0]
    assert world.names() == ["a"]


def test_a_directory_that_goes_away_keeps_the_last_good_snapshot(
    world: World, tmp_path: Path
) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()
    tmp_path.rename(tmp_path.with_name("elsewhere"))
    world.look()
    world.look()
    assert len(world.problems) == 1
    assert "there is no such directory" in world.problems[0]
    assert world.names() == ["a"]


def test_a_link_that_leads_nowhere_keeps_the_last_good_snapshot(world: World) -> None:
    """As while a volume is mounted anew: nobody has removed the file."""
    target = world.directory / ".target"
    target.write_text(clusters("a"))
    (world.directory / "a.yaml").symlink_to(target)
    assert world.start() == ["a"]
    target.rename(world.directory / ".elsewhere")
    world.look()
    assert "field:a.yaml error:cannot be read: No such file or directory" in world.problems[0]
    assert world.names() == ["a"]
    (world.directory / ".elsewhere").rename(target)
    world.look()
    assert len(world.snapshots) == 1


def test_a_pipe_is_not_opened(world: World) -> None:
    """Nobody may ever write to it."""
    world.write("a.yaml", clusters("a"))
    world.start()
    os.mkfifo(world.directory / "b.yaml")
    world.look()
    assert "[field:b.yaml error:is no file]" in world.problems[0]
    assert world.names() == ["a"]


@pytest.mark.parametrize("error_number", [errno.ENOENT, errno.EACCES])
@pytest.mark.parametrize("place", ["", "below"])
def test_a_directory_that_cannot_be_listed_takes_nothing_from_the_mesh(
    world: World, monkeypatch: pytest.MonkeyPatch, place: str, error_number: int
) -> None:
    """It went while we looked, or it is not for us any more."""
    world.write("below/a.yaml", clusters("a"))
    world.start()
    really_scan = os.scandir
    closed = str(world.directory / place)

    def scan(path: str) -> object:
        if os.fspath(path) == closed:
            raise OSError(error_number, os.strerror(error_number), closed)
        return really_scan(path)

    monkeypatch.setattr(os, "scandir", scan)
    world.look()
    what = f"[error:{closed!r} cannot be listed: {os.strerror(error_number)}]"
    assert what in world.problems[0]
    assert world.names() == ["a"]


@pytest.mark.parametrize("error_number", [errno.EACCES, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("place", ["", "below/a.yaml"])
def test_what_cannot_be_looked_at_is_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch, place: str, error_number: int
) -> None:
    """As while a directory can be listed but not entered, or a disk or its server has trouble."""
    world.write("below/a.yaml", clusters("a"))
    world.start()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", refusing({world.directory / place: error_number}))
        world.look()
        world.look()
        assert f"error:cannot be read: {os.strerror(error_number)}]" in world.complaint()
    [problem] = world.problems
    assert f"error:cannot be read: {os.strerror(error_number)}]" in problem
    assert world.names() == ["a"]
    world.write("below/a.yaml", clusters("b"))
    world.look()
    assert world.names() == ["b"]


@pytest.mark.parametrize(
    ("error_number", "expected"), [(errno.ENOENT, []), (errno.EIO, ["a"]), (0, [])]
)
def test_only_what_has_gone_for_sure_is_taken_from_the_mesh(
    world: World, monkeypatch: pytest.MonkeyPatch, error_number: int, expected: list[str]
) -> None:
    """It was listed, then not found; whether it is a link that leads nowhere is what is asked."""
    path = world.directory / "a.yaml"
    world.write("a.yaml", clusters("a"))
    world.start()
    monkeypatch.setattr(Path, "stat", refusing({path: errno.ENOENT}, {path: error_number}))
    world.look()
    assert world.names() == expected
    assert len(world.problems) == len(expected)


def refusing(
    followed: dict[Path, int], links: dict[Path, int] | None = None
) -> Callable[..., os.stat_result]:
    """Path.stat where it raises these errors; 0 is none. Links are as the files if not said."""
    really_stat = Path.stat

    def stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        numbers = followed if follow_symlinks or links is None else links
        if number := numbers.get(path):
            raise OSError(number, os.strerror(number), str(path))
        return really_stat(path, follow_symlinks=follow_symlinks)

    return stat


def test_hidden_directories_are_not_looked_into(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be large, and closed to us."""
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


def test_a_closed_source_looks_no_more(world: World) -> None:
    world.start()
    world.source.close()
    assert world.clock.timers_pending == 0


# Elsewhere


class Held:
    """Work that is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def __call__(self, work: Callable[[], Any], tell: Callable[[Any], None], /) -> None:
        self.waiting.append((work, tell))

    def do(self) -> None:
        work, tell = self.waiting.pop()
        tell(work())


def test_the_next_look_waits_until_the_last_one_is_over(tmp_path: Path) -> None:
    held = Held()
    world = World(tmp_path, held)
    world.start()
    world.write("a.yaml", clusters("a"))
    world.clock.advance(10 * POLL_INTERVAL_S)
    assert len(held.waiting) == 1
    held.do()
    assert world.names() == ["a"]
    world.write("a.yaml", clusters("b"))
    world.look()
    held.do()
    assert [list(each.resources(CLUSTER)) for each in world.snapshots] == [["a"], ["b"]]


def test_nothing_is_told_of_a_look_that_was_under_way_when_it_was_closed(tmp_path: Path) -> None:
    held = Held()
    world = World(tmp_path, held)
    world.start()
    world.write("a.yaml", clusters("a"))
    world.look()
    world.source.close()
    held.do()
    assert (world.snapshots, world.problems) == ([], [])
    assert world.clock.timers_pending == 0


def test_a_look_that_is_closed_reads_no_further_file(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def close_then_read(path: Path, errors: ValidationErrors) -> str:
        world.source.close()
        read.append(path.name)
        return ""

    world.write("a.yaml", clusters("a"))
    world.write("b.yaml", clusters("b"))
    monkeypatch.setattr(files_module, "read_bounded", close_then_read)
    assert "is not read any more" in world.complaint()
    assert read == ["a.yaml"]


def test_a_bug_in_reading_is_a_problem_and_looks_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()

    def fail(path: Path, errors: ValidationErrors) -> str:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(files_module, "read_bounded", fail)
        world.write("a.yaml", clusters("b"))
        world.look()
    [problem] = world.problems
    assert problem.endswith("[error:RuntimeError: a bug]")
    assert world.names() == ["a"]
    world.look()
    assert world.names() == ["b"]


def test_a_bug_in_listing_is_a_problem_and_looks_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("a.yaml", clusters("a"))
    world.start()

    def fail(directory: Path, errors: ValidationErrors) -> list[Path]:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(files_module, "list_files", fail)
        world.look()
    [problem] = world.problems
    assert problem.endswith("[error:RuntimeError: a bug]")
    world.write("a.yaml", clusters("b"))
    world.look()
    assert world.names() == ["b"]


def test_a_look_that_nobody_can_take_is_a_problem_and_looks_go_on(tmp_path: Path) -> None:
    """As when the process has too many threads."""
    has_threads = False

    def offload(work: Callable[[], Any], tell: Callable[[Any], None], /) -> None:
        if not has_threads:
            raise RuntimeError("can't start new thread")
        tell(work())

    world = World(tmp_path, offload)
    world.start()
    world.write("a.yaml", clusters("a"))
    world.look()
    world.look()
    [problem] = world.problems
    assert problem.endswith("[error:RuntimeError: can't start new thread]")
    has_threads = True
    world.look()
    assert world.names() == ["a"]


def test_an_owner_that_raises_is_told_once_and_looks_go_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.start()
    heard: list[Snapshot] = []

    def fail(snapshot: Snapshot) -> None:
        heard.append(snapshot)
        raise RuntimeError("a bug of the owner")

    world.source._on_snapshot = fail  # type: ignore[misc]
    for name in ("a", "b"):
        world.write("a.yaml", clusters(name))
        with pytest.raises(RuntimeError, match="of the owner"):
            world.look()
        assert world.clock.timers_pending == 1
    assert world.problems == []
    assert [list(each.resources(CLUSTER)) for each in heard] == [["a"], ["b"]]


async def test_a_loop_goes_on_while_a_file_is_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    is_reading, go_on, told = asyncio.Event(), threading.Event(), asyncio.Event()
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
        on_snapshot=lambda _snapshot: told.set(),
        on_problem=lambda error: pytest.fail(str(error)),
        poll_interval_s=0.001,
        offload=ThreadOffload(),
    )
    source.load()
    monkeypatch.setattr(files_module, "read_bounded", read_slowly)
    (tmp_path / "a.yaml").write_text(clusters("a"))
    source.watch()
    # Were it read on this loop, nothing would ever come back here.
    await is_reading.wait()
    assert not told.is_set()
    go_on.set()
    await told.wait()
    source.close()
    assert source.snapshot is not None
    assert list(source.snapshot.resources(CLUSTER)) == ["a"]
    assert threading.get_ident() not in readers


async def test_nobody_is_told_of_a_file_whose_reader_outlives_the_source(
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
        on_snapshot=lambda _snapshot: pytest.fail("told"),
        on_problem=lambda error: pytest.fail(str(error)),
        poll_interval_s=0.001,
        offload=ThreadOffload(),
    )
    source.load()
    monkeypatch.setattr(files_module, "read_bounded", read_slowly)
    (tmp_path / "a.yaml").write_text(clusters("a"))
    source.watch()
    await is_reading.wait()
    source.close()
    go_on.set()
    [reader] = readers
    reader.join()
    assert reader.daemon, "it does not keep the process from ending"
    # What it has said is heard before this.
    last = loop.create_future()
    loop.call_soon(loop.call_soon, last.set_result, None)
    await last


async def test_what_a_thread_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run_in_thread(fail)


async def test_nobody_who_is_gone_is_told() -> None:
    go_on = threading.Event()
    future = run_in_thread(go_on.wait)
    future.cancel()
    go_on.set()
    assert await run_in_thread(lambda: 7) == 7


# What is wrong


def test_a_name_in_two_files_is_said_with_both_places(world: World) -> None:
    world.write("a.yaml", clusters("x", "a"))
    world.write("b.yaml", clusters("a"))
    assert world.complaint() == (
        "[field:b.yaml[0] error:cluster 'a' is there already, at a.yaml[1]]"
    )


def test_every_bad_file_is_said(world: World) -> None:
    world.write("a.yaml", "x: 1")
    world.write("b.yaml", "[")
    world.write("c.json", "[")
    said = world.complaint()
    assert [name for name in ("a.yaml[0]", "b.yaml", "c.json") if f"field:{name} " in said] == [
        "a.yaml[0]",
        "b.yaml",
        "c.json",
    ]


def test_a_file_that_is_too_large_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "FILE_BYTES_MAX", 10)
    world.write("a.yaml", "#" * 11)
    assert world.complaint() == "[field:a.yaml error:has more than 10 bytes]"


def test_too_many_files_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "FILES_MAX", 1)
    world.write("a.yaml", "")
    world.write("b.yaml", "")
    assert world.complaint() == "[error:has 2 files, wanted at most 1]"


def test_a_file_that_is_no_text_is_refused(world: World) -> None:
    (world.directory / "a.yaml").write_bytes(b"a\xff")
    assert world.complaint() == "[field:a.yaml error:is not UTF-8 at byte 1]"


def test_a_file_that_cannot_be_read_is_said(world: World) -> None:
    (world.directory / "a.yaml").mkdir()
    assert world.complaint() == "[field:a.yaml error:cannot be read: Is a directory]"
