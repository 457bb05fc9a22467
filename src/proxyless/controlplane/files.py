"""FileSource: a snapshot from YAML and JSON files and directories, reloaded when they change.

While any file is invalid, for example half written by an editor, the last valid snapshot is kept
and the errors are reported. Files without any resource are invalid, so that a mesh is not emptied
by a truncated file, a lost mount or a wrong path. Changes are found by polling times and sizes,
which works on every file system, mounted ones included, and on any clock; they are read once
nothing changes.
"""

from __future__ import annotations

import logging
import os
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from proxyless.base import ValidationError, ValidationErrors
from proxyless.controlplane.documents import parse_documents
from proxyless.controlplane.snapshot import Snapshot
from proxyless.runtime import IDLE_TIMER
from proxyless.runtime.offload import thread_offload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxyless.controlplane.resource import Resource
    from proxyless.runtime import Clock
    from proxyless.runtime.offload import Offload

POLL_INTERVAL_S: Final = 1.0
# A change is read when nothing has changed for this time, or after this many such times.
SETTLE_INTERVAL_S: Final = 0.2
SETTLE_ROUNDS_MAX: Final = 10
FILES_MAX: Final = 1_000
FILE_BYTES_MAX: Final = 8 * 2**20

SUFFIXES: Final = (".yaml", ".yml", ".json")

T = TypeVar("T")

LOGGER: Final = logging.getLogger("proxyless.controlplane")

# Modification time, size and inode.
_Stamp: TypeAlias = tuple[int, int, int]
# Resources, each with its path in the file.
_Located: TypeAlias = "list[tuple[str, Resource]]"


def _run_now(work: Callable[[], T], on_result: Callable[[T], None], /) -> None:
    on_result(work())


class ThreadOffload:
    """Offload to a thread, with callbacks on the loop that runs at the first call."""

    def __init__(self) -> None:
        self._offload: Offload | None = None

    def __call__(self, work: Callable[[], T], on_result: Callable[[T], None], /) -> None:
        if self._offload is None:
            self._offload = thread_offload("proxyless-files", "reading of xds files")
        self._offload(work, on_result)


@dataclass(frozen=True, slots=True)
class _Parsed:
    """The last valid content of a file."""

    stamp: _Stamp
    resources: _Located
    ends_with_newline: bool


@dataclass(frozen=True, slots=True)
class _Scan:
    """Result of one scan of the directory."""

    stamps: dict[Path, _Stamp]
    parsed: dict[Path, _Parsed]
    # At most one of them; neither if nothing has changed.
    snapshot: Snapshot | None = None
    error: ValidationError | None = None
    # A change that may not be complete, and the number of scans that found one.
    unsettled: dict[Path, _Stamp] | None = None
    rounds: int = 0


class FileSource:
    """Watches files and directories and calls back with snapshots and errors.

    `offload` runs the scans. A scan starts after the previous one has ended, so callbacks are in
    the order of the changes. Without `allow_empty`, a file without content and a source without
    any resource are errors, which suggest `empty_option`.
    """

    def __init__(  # noqa: PLR0913 - independent options
        self,
        paths: Path | str | Sequence[Path | str],
        clock: Clock,
        *,
        on_snapshot: Callable[[Snapshot], None],
        on_problem: Callable[[ValidationError], None],
        poll_interval_s: float = POLL_INTERVAL_S,
        offload: Offload = _run_now,
        allow_empty: bool = False,
        empty_option: str = "allow_empty=True",
    ) -> None:
        # Fixed at construction.
        given = (paths,) if isinstance(paths, Path | str) else paths
        self._roots: Final = tuple(map(Path, given))
        self._allow_empty: Final = allow_empty
        self._or_option: Final = f" or {empty_option}" if empty_option else ""
        self._clock: Final = clock
        self._on_snapshot: Final = on_snapshot
        self._on_problem: Final = on_problem
        self._poll_interval_s: Final = poll_interval_s
        self._offload: Final = offload
        # From the last scan.
        self._last = _Scan({}, {})
        self._problem = ""
        self._timer = IDLE_TIMER
        self._is_closed = False
        # The last valid one.
        self.snapshot: Snapshot | None = None

    def start(self) -> None:
        """Load, then poll until `close`. ValidationError if the files are invalid now."""
        self.load()
        self.watch()

    def watch(self) -> None:
        """Poll until `close`, after a `load`."""
        self._poll_in(self._poll_interval_s)

    def _poll_in(self, delay_s: float) -> None:
        self._timer = self._clock.call_later(delay_s, self._poll)

    def close(self) -> None:
        """Stop polling. A scan in another thread ends after its current file."""
        self._is_closed = True
        self._timer.cancel()

    def load(self) -> Snapshot:
        """Read the files. ValidationError, and the old snapshot is kept, if they are invalid.

        Can be called in another thread before `watch`.
        """
        self._last = scan = self._scan_all()
        if scan.error is not None:
            self._problem = str(scan.error)  # `watch` reads the files again, even without a change.
            raise scan.error
        assert scan.snapshot is not None, "a scan of all files has an error or a snapshot"
        self.snapshot = scan.snapshot
        return scan.snapshot

    def _poll(self) -> None:
        try:
            self._offload(self._scan_changes, self._on_scan)
        except Exception as error:
            if self._is_closed or self._timer.pending:  # A callback of the owner raised it.
                raise
            # The offload is the owner's, and its next call may succeed.
            self._on_scan(self._fail(error))

    def _on_scan(self, scan: _Scan) -> None:
        if self._is_closed:
            return
        self._poll_in(self._poll_interval_s if scan.unsettled is None else SETTLE_INTERVAL_S)
        self._last = scan
        if scan.error is not None:
            if str(scan.error) != self._problem:  # Each error is reported once.
                self._problem = str(scan.error)
                self._on_problem(scan.error)
        elif scan.snapshot is not None:
            before, self.snapshot = self.snapshot, scan.snapshot
            had_problem, self._problem = bool(self._problem), ""
            if had_problem or before is None or scan.snapshot.version != before.version:
                self._on_snapshot(scan.snapshot)

    # Scans. They change no attributes, because they may run in another thread.

    def _scan_changes(self) -> _Scan:
        """Scan the files if any has changed. Does not raise, so that polling continues."""
        try:
            errors = ValidationErrors()
            last, stamps = self._last, self._list_files(errors)
            is_same = stamps == last.stamps and errors.ok
            is_settled = stamps == last.unsettled or last.rounds >= SETTLE_ROUNDS_MAX
            if errors.ok and not is_same and not is_settled:
                rounds = last.rounds + 1
                return _Scan(last.stamps, last.parsed, unsettled=stamps, rounds=rounds)
            # A file that could not be read may become readable with the same stamp.
            if is_same and not self._problem:
                return _Scan(last.stamps, last.parsed)
            scan = self._scan_all()
            stamps = self._list_files(ValidationErrors())
            if stamps != scan.stamps and last.rounds < SETTLE_ROUNDS_MAX:
                # Replaced while it was read, as a ConfigMap is: old and new files are not mixed.
                return _Scan(last.stamps, last.parsed, unsettled=stamps, rounds=last.rounds + 1)
            return scan
        except Exception as error:  # A bug must not stop the control plane.
            return self._fail(error)

    def _fail(self, error: Exception) -> _Scan:
        LOGGER.error("%s cannot be read", describe_paths(self._roots), exc_info=error)
        errors = ValidationErrors()
        errors.add(f"{type(error).__name__}: {error}")
        return _Scan({}, {}, error=self._make_error(errors))

    def _scan_all(self) -> _Scan:
        errors = ValidationErrors()
        stamps = self._list_files(errors)
        parsed: dict[Path, _Parsed] = {}
        located: _Located = []
        for path, stamp in stamps.items():
            if self._is_closed:
                errors.add("is not read any more")
                break
            last = self._last.parsed.get(path)
            found = self._read(path, stamp, last, errors)
            if found is not None:
                name = self._name(path)
                located += [(f"{name}{place}", resource) for place, resource in found.resources]
            kept = found or last
            if kept is not None:
                parsed[path] = kept
        resources = reject_duplicates(located, errors)
        if errors.ok and not resources and not self._allow_empty:
            errors.add(f"has no resources, wanted at least one{self._or_option}")
        if not errors.ok:
            return _Scan(stamps, parsed, error=self._make_error(errors))
        try:
            before = self.snapshot
            snapshot = Snapshot.of(resources) if before is None else before.replaced(resources)
        except ValidationError as error:
            return _Scan(stamps, parsed, error=error)
        return _Scan(stamps, parsed, snapshot)

    def _make_error(self, errors: ValidationErrors) -> ValidationError:
        return ValidationError(describe_paths(self._roots), errors)

    def _list_files(self, errors: ValidationErrors) -> dict[Path, _Stamp]:
        """The files in a fixed order."""
        stamps: dict[Path, _Stamp] = {}
        for root in self._roots:
            for path in self._list_root(root, errors):
                stamp = self._stamp(path, errors)
                if stamp is not None:
                    stamps[path] = stamp
        if len(stamps) > FILES_MAX:
            errors.add(f"has {len(stamps)} files, wanted at most {FILES_MAX}")
            return {}
        return stamps

    def _list_root(self, root: Path, errors: ValidationErrors) -> list[Path]:
        """The files of a directory, or the file itself."""
        with errors.field(str(root)) if len(self._roots) > 1 else nullcontext():
            try:
                is_directory = S_ISDIR(root.stat().st_mode)
            except (FileNotFoundError, NotADirectoryError):
                errors.add("there is no such file or directory")
                return []
            except OSError as error:
                errors.add(f"cannot be read: {error.strerror}")
                return []
            return list_files(root, errors) if is_directory else [root]

    def _stamp(self, path: Path, errors: ValidationErrors) -> _Stamp | None:
        """None if the file was removed since it was listed, and after an error."""
        with errors.field(self._name(path)):
            try:
                stat = path.stat()
            except OSError as error:
                if not isinstance(error, FileNotFoundError) or _may_be_link(path):
                    # The file still exists, so its resources must not be removed.
                    errors.add(f"cannot be read: {error.strerror}")
                return None
            if not (S_ISREG(stat.st_mode) or S_ISDIR(stat.st_mode)):
                # Opening a pipe would block.
                errors.add("is no file")
                return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _read(
        self, path: Path, stamp: _Stamp, before: _Parsed | None, errors: ValidationErrors
    ) -> _Parsed | None:
        """The content of a file, as before if it has not changed; None if it is invalid."""
        if before is not None and before.stamp == stamp:
            return before
        count, is_json = errors.count, path.suffix == ".json"
        with errors.field(self._name(path)):
            text = read_bounded(path, errors)
            ends_with_newline = text.endswith("\n")
            if errors.count > count:
                return None
            if not self._allow_empty and is_blank(text):
                errors.add(f"is empty, wanted resources{self._or_option}")
            elif (
                before is not None
                and before.ends_with_newline
                and not (ends_with_newline or is_json)
            ):
                # Half of a YAML file is often valid.
                errors.add("has no newline at its end any more: it may be half written")
            else:
                found = parse_documents(text, errors, is_json=is_json)
        return None if errors.count > count else _Parsed(stamp, found, ends_with_newline)

    def _name(self, path: Path) -> str:
        if len(self._roots) > 1 or path == self._roots[0]:
            return str(path)
        return path.relative_to(self._roots[0]).as_posix()


def describe_paths(paths: Sequence[Path]) -> str:
    """Subject of error texts: `directory 'mesh'`."""
    names = ", ".join(repr(str(path)) for path in paths)
    if len(paths) > 1:
        return f"files {names}"
    return f"{'file' if os.path.isfile(paths[0]) else 'directory'} {names}"


def is_blank(text: str) -> bool:
    """Whether a file has no document: nothing, or only comments and separators."""
    lines = (line.strip() for line in text.splitlines())
    return all(not line or line == "---" or line.startswith("#") for line in lines)


def _may_be_link(path: Path) -> bool:
    """Whether a file that was not found may be a broken link, which still exists."""
    try:
        return S_ISLNK(path.lstat().st_mode)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def list_files(directory: Path, errors: ValidationErrors) -> list[Path]:
    """The paths with a suffix of YAML or JSON below a directory, sorted, without hidden ones.

    Links to directories are followed, each directory once. A directory that cannot be listed is an
    error, because its files may still exist; so a broken link is in the result, whatever its name.
    """

    def on_error(error: OSError) -> None:
        errors.add(f"{error.filename!r} cannot be listed: {error.strerror}")

    found: list[Path] = []
    visited: set[tuple[int, int]] = set()
    for place, folders, names in os.walk(directory, onerror=on_error, followlinks=True):
        identity = _identify(place)
        if identity in visited:
            folders.clear()
            continue
        visited.add(identity)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in (*folders, *names):
            path = Path(place, name)
            is_wanted = path.suffix in SUFFIXES or (path.is_symlink() and not path.exists())
            if is_wanted and not name.startswith("."):
                found.append(path)
    return sorted(found)


def _identify(directory: str) -> tuple[int, int]:
    """Device and inode; zeros if it was removed since it was listed."""
    try:
        stat = os.stat(directory)
    except OSError:
        return 0, 0
    return stat.st_dev, stat.st_ino


def read_bounded(path: Path, errors: ValidationErrors) -> str:
    """The text of a file. An empty text may add an error."""
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


def reject_duplicates(
    located: list[tuple[str, Resource]], errors: ValidationErrors
) -> list[Resource]:
    """The first resource of each type and name; adds an error for each other one."""
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
