"""How does a directory of files become what a control plane serves?

`FileSource` reads every YAML and JSON file below a directory, looks again at intervals, and makes a
new snapshot when something has changed. It keeps the last good snapshot while any file is bad, and
says what is wrong and where: one file that an editor has half written must not empty a mesh.

It looks at times and sizes and is told nothing by the operating system: that works on every file
system, mounted ones included, and on any clock.
"""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Final

from proxyless.base import ValidationError, ValidationErrors
from proxyless.controlplane.documents import parse_documents
from proxyless.controlplane.snapshot import Snapshot
from proxyless.runtime import IDLE_TIMER

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.controlplane.resource import Resource
    from proxyless.runtime import Clock

POLL_INTERVAL_S: Final = 1.0
FILES_MAX: Final = 1_000
FILE_BYTES_MAX: Final = 8 * 2**20

SUFFIXES: Final = (".yaml", ".yml", ".json")

# Time, size and inode: what changes when a file does.
_Stamp = tuple[int, int, int]


class FileSource:
    """Watches one directory. Driven by its clock; tells its owner of snapshots and problems."""

    def __init__(
        self,
        directory: Path | str,
        clock: Clock,
        *,
        on_snapshot: Callable[[Snapshot], None],
        on_problem: Callable[[ValidationError], None],
        poll_interval_s: float = POLL_INTERVAL_S,
    ) -> None:
        # Fixed at construction.
        self._directory: Final = Path(directory)
        self._clock: Final = clock
        self._on_snapshot: Final = on_snapshot
        self._on_problem: Final = on_problem
        self._poll_interval_s: Final = poll_interval_s
        # From the last look.
        self._stamps: dict[Path, _Stamp] = {}
        self._parsed: dict[Path, tuple[_Stamp, list[tuple[str, Resource]]]] = {}
        self._problem = ""
        self._timer = IDLE_TIMER
        # The last good one.
        self.snapshot: Snapshot | None = None

    def start(self) -> None:
        """Load, and look again at intervals until `close`. ValidationError if it is bad now."""
        self.load()
        self._timer = self._clock.call_later(self._poll_interval_s, self._look)

    def close(self) -> None:
        self._timer.cancel()

    def load(self) -> Snapshot:
        """Read what has changed; ValidationError, and the old snapshot stays, if it is bad."""
        errors = ValidationErrors()
        self._stamps = stamps = self._list_files(errors)
        located = [
            (f"{self._name(path)}{place}", resource)
            for path, stamp in stamps.items()
            for place, resource in self._read(path, stamp, errors)
        ]
        self._parsed = {path: kept for path, kept in self._parsed.items() if path in stamps}
        resources = refuse_duplicates(located, errors)
        errors.raise_if_any(f"directory {str(self._directory)!r}")
        if self.snapshot is None:
            self.snapshot = Snapshot.of(resources)
        else:
            self.snapshot = self.snapshot.replaced(resources)
        return self.snapshot

    def _look(self) -> None:
        self._timer = self._clock.call_later(self._poll_interval_s, self._look)
        # What cannot be read now may be readable soon, and look the same.
        errors = ValidationErrors()
        if self._list_files(errors) == self._stamps and errors.ok and not self._problem:
            return
        before = self.snapshot
        try:
            snapshot = self.load()
        except ValidationError as error:
            if str(error) != self._problem:  # Once is enough.
                self._problem = str(error)
                self._on_problem(error)
            return
        is_mended, self._problem = bool(self._problem), ""
        if is_mended or before is None or snapshot.version != before.version:
            self._on_snapshot(snapshot)

    def _list_files(self, errors: ValidationErrors) -> dict[Path, _Stamp]:
        """The files that count, in a fixed order; hidden ones do not."""
        if not self._directory.is_dir():
            errors.add("there is no such directory")
            return {}
        stamps: dict[Path, _Stamp] = {}
        for path in list_files(self._directory, errors):
            stamp = self._stamp(path, errors)
            if stamp is not None:
                stamps[path] = stamp
        if len(stamps) > FILES_MAX:
            errors.add(f"has {len(stamps)} files, wanted at most {FILES_MAX}")
            return {}
        return stamps

    def _stamp(self, path: Path, errors: ValidationErrors) -> _Stamp | None:
        """None if it went while we looked, or should not be opened, which is an error."""
        with errors.field(self._name(path)):
            try:
                stat = path.stat()
            except OSError as error:
                if path.is_symlink() or not isinstance(error, FileNotFoundError):
                    # It is still there, so what it holds is not to be taken from the mesh.
                    errors.add(f"cannot be read: {error.strerror}")
                return None
            if not (S_ISREG(stat.st_mode) or S_ISDIR(stat.st_mode)):
                # Whoever opens a pipe waits until somebody writes to it.
                errors.add("is no file")
                return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _read(
        self, path: Path, stamp: _Stamp, errors: ValidationErrors
    ) -> list[tuple[str, Resource]]:
        """The resources of a file, from memory if it has not changed."""
        kept = self._parsed.get(path)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        count = errors.count
        with errors.field(self._name(path)):
            text = read_bounded(path, errors)
            found = parse_documents(text, errors, is_json=path.suffix == ".json")
        if errors.count == count:
            self._parsed[path] = (stamp, found)
        return found

    def _name(self, path: Path) -> str:
        return path.relative_to(self._directory).as_posix()


def list_files(directory: Path, errors: ValidationErrors) -> list[Path]:
    """What is called as YAML or JSON files are, below a directory, in a fixed order.

    Hidden files and directories do not count. A directory that cannot be listed is an error: what
    is in it has not gone.
    """

    def on_error(error: OSError) -> None:
        errors.add(f"{error.filename!r} cannot be listed: {error.strerror}")

    found: list[Path] = []
    for place, folders, names in os.walk(directory, onerror=on_error):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in (*folders, *names):
            path = Path(place, name)
            if path.suffix in SUFFIXES and not name.startswith("."):
                found.append(path)
    return sorted(found)


def read_bounded(path: Path, errors: ValidationErrors) -> str:
    """The text of a file; empty, and an error is added, if it cannot be had."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        errors.add(f"cannot be read: {error.strerror}")
        return ""
    if len(content) > FILE_BYTES_MAX:
        errors.add(f"has more than {FILE_BYTES_MAX} bytes")
        return ""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        errors.add(f"is not UTF-8 at byte {error.start}")
        return ""


def refuse_duplicates(
    located: list[tuple[str, Resource]], errors: ValidationErrors
) -> list[Resource]:
    """Those that come first of their type and name; for each other one an error is added."""
    places: dict[tuple[str, str], str] = {}
    resources: list[Resource] = []
    for place, resource in located:
        first = places.setdefault((resource.type_url, resource.name), place)
        if first is place:
            resources.append(resource)
        else:
            with errors.field(place):
                errors.add(f"{resource} is there already, at {first}")
    return resources
