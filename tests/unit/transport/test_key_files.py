"""Unit tests of proxyless.transport.key_files."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from proxyless.transport.key_files import path_with

CONTENT = b"key" * 1_000


@pytest.fixture
def no_memory_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux")
def test_content_is_in_memory_and_can_be_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tempfile, "mkstemp")
    before = os.listdir("/proc/self/fd")
    with path_with(CONTENT) as path:
        assert path.startswith("/proc/self/fd/")
        assert [Path(path).read_bytes() for _ in range(2)] == [CONTENT] * 2
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.usefixtures("no_memory_files")
def test_file_is_private_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with path_with(CONTENT) as path:
        assert Path(path).parent == tmp_path
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert Path(path).read_bytes() == CONTENT
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match="bad key"), path_with(CONTENT):
        raise ValueError("bad key")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("is_refused", [True, False])
def test_file_is_used_when_memory_files_are_refused_or_have_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    if is_refused:
        monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    else:
        monkeypatch.setattr(os.path, "exists", lambda _: False)
    with path_with(CONTENT) as path:
        assert Path(path).parent == tmp_path


@pytest.mark.usefixtures("no_memory_files")
def test_working_directory_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories: list[str] = []

    def refuse(*, prefix: str, dir: str) -> tuple[int, str]:  # noqa: A002 - as in tempfile
        directories.append(dir)
        raise PermissionError(13, "Permission denied", dir)

    monkeypatch.chdir(tmp_path)
    for variable in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(variable, ".")
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    with pytest.raises(PermissionError), path_with(CONTENT):
        pass
    assert directories == ["/dev/shm", "/tmp", "/var/tmp"]
