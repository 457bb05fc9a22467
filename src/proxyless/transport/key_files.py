"""Path for a private key in memory: the ssl module reads keys from files only.

On Linux the content is in an anonymous file in memory (`memfd_create`). Elsewhere, or without
/proc, it is in a file that only this user can read, and that exists only while it is read. The
working directory is never used.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARIABLES: Final = ("TMPDIR", "TEMP", "TMP")
_DIRECTORIES: Final = ("/dev/shm", "/tmp", "/var/tmp")


@contextmanager
def path_with(content: bytes) -> Iterator[str]:
    """A path with this content, inside the block. Raises OSError if there is none."""
    descriptor = _open_in_memory()
    path = f"/proc/self/fd/{descriptor}"
    if descriptor is None or not os.path.exists(path):
        if descriptor is not None:
            os.close(descriptor)
        with _temporary_file(content) as path:
            yield path
        return
    try:
        _write_all(descriptor, content)
        yield path
    finally:
        os.close(descriptor)


def _open_in_memory() -> int | None:
    create = getattr(os, "memfd_create", None)
    if create is None:
        return None
    try:
        # Closed in child processes.
        return int(create("proxyless-key", os.MFD_CLOEXEC))
    except OSError:  # A sandbox may forbid it.
        return None


@contextmanager
def _temporary_file(content: bytes) -> Iterator[str]:
    import tempfile  # noqa: PLC0415 - slow to import, and seldom needed

    error = OSError("no directory for temporary files")
    for directory in _list_directories():
        try:
            # Created with mode 0600.
            descriptor, path = tempfile.mkstemp(prefix="proxyless-", dir=directory)
        except OSError as refused:
            error = refused
            continue
        try:
            try:
                _write_all(descriptor, content)
            finally:
                os.close(descriptor)
            yield path
        finally:
            with suppress(OSError):
                os.unlink(path)
        return
    raise error


def _list_directories() -> list[str]:
    """Directories for temporary files. Unlike in `tempfile`, the working directory is not one."""
    named = (os.environ.get(variable, "") for variable in _VARIABLES)
    return [each for each in (*named, *_DIRECTORIES) if os.path.isabs(each)]


def _write_all(descriptor: int, content: bytes) -> None:
    unwritten = memoryview(content)
    while unwritten:
        unwritten = unwritten[os.write(descriptor, unwritten) :]
