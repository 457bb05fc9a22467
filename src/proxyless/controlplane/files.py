"""How does a directory of files become what a control plane serves?

`FileSource` reads every YAML and JSON file below a directory, looks again at intervals, and makes a
new snapshot when something has changed. It keeps the last good snapshot while any file is bad, and
says what is wrong and where: one file that an editor has half written must not empty a mesh.

It looks at times and sizes and is told nothing by the operating system: that works on every file
system, mounted ones included, and on any clock.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar, cast

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

T = TypeVar("T")

LOGGER: Final = logging.getLogger("proxyless.controlplane")

# Time, size and inode: what changes when a file does.
_Stamp: TypeAlias = tuple[int, int, int]
# What a good file held when it had that stamp, each resource with its place.
_Parsed: TypeAlias = "tuple[_Stamp, list[tuple[str, Resource]]]"


class Offload(Protocol):
    """Somewhere to do work that takes long: it is done, then its owner is told of the result."""

    def __call__(self, work: Callable[[], _Look], tell: Callable[[_Look], None], /) -> None: ...


def _do_now(work: Callable[[], _Look], tell: Callable[[_Look], None], /) -> None:
    tell(work())


def run_in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """What the work comes to, on this loop, which goes on meanwhile.

    The thread is one that nobody waits for: a large file takes seconds to read, and whoever ends
    the process does not want to spend them.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("T", result))

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # Whoever awaits it is told.
            failure = error
        with suppress(RuntimeError):  # The loop is closed: nobody listens any more.
            loop.call_soon_threadsafe(tell, result, failure)

    threading.Thread(target=run, name="proxyless-files", daemon=True).start()
    return future


class ThreadOffload:
    """Does work in a thread, so that a loop that serves goes on serving. Driven by its owner.

    One piece of work at a time. Results are told on the loop, as long as that runs.
    """

    def __init__(self) -> None:
        self._future: asyncio.Future[_Look] | None = None

    def __call__(self, work: Callable[[], _Look], tell: Callable[[_Look], None], /) -> None:
        assert self._future is None or self._future.done(), "one piece of work at a time"
        self._future = run_in_thread(work)
        self._future.add_done_callback(lambda future: tell(future.result()))


@dataclass(frozen=True, slots=True)
class _Look:
    """What was found when the directory was looked at."""

    stamps: dict[Path, _Stamp]
    parsed: dict[Path, _Parsed]
    # Either of them; neither if nothing has changed.
    snapshot: Snapshot | None = None
    error: ValidationError | None = None


class FileSource:
    """Watches one directory. Driven by its clock; tells its owner of snapshots and problems.

    Files that have changed are read where `offload` has it done; one look is over before the next
    begins, so what is told is told in the order of the changes.
    """

    def __init__(
        self,
        directory: Path | str,
        clock: Clock,
        *,
        on_snapshot: Callable[[Snapshot], None],
        on_problem: Callable[[ValidationError], None],
        poll_interval_s: float = POLL_INTERVAL_S,
        offload: Offload = _do_now,
    ) -> None:
        # Fixed at construction.
        self._directory: Final = Path(directory)
        self._clock: Final = clock
        self._on_snapshot: Final = on_snapshot
        self._on_problem: Final = on_problem
        self._poll_interval_s: Final = poll_interval_s
        self._offload: Final = offload
        # From the last look.
        self._last = _Look({}, {})
        self._problem = ""
        self._timer = IDLE_TIMER
        self._is_closed = False
        # The last good one.
        self.snapshot: Snapshot | None = None

    def start(self) -> None:
        """Load, and look again at intervals until `close`. ValidationError if it is bad now."""
        self.load()
        self.watch()

    def watch(self) -> None:
        """Look again at intervals until `close`, if it has been loaded before."""
        self._timer = self._clock.call_later(self._poll_interval_s, self._look)

    def close(self) -> None:
        """Look no more. A look that is under way ends with the file that it reads now."""
        self._is_closed = True
        self._timer.cancel()

    def load(self) -> Snapshot:
        """Read what has changed; ValidationError, and the old snapshot stays, if it is bad.

        It may be called in another thread, as long as nothing is watched yet.
        """
        self._last = look = self._read_all()
        if look.error is not None:
            raise look.error
        assert look.snapshot is not None, "whatever is not bad is good"
        self.snapshot = look.snapshot
        return look.snapshot

    def _look(self) -> None:
        try:
            self._offload(self._read_changes, self._on_look)
        except Exception as error:
            if self._is_closed or self._timer.pending:  # It is our owner who raised.
                raise
            # As when there can be no more threads now. Later there may be.
            self._on_look(self._failed(error))

    def _on_look(self, look: _Look) -> None:
        if self._is_closed:
            return
        self.watch()
        self._last = look
        if look.error is not None:
            if str(look.error) != self._problem:  # Once is enough.
                self._problem = str(look.error)
                self._on_problem(look.error)
        elif look.snapshot is not None:
            before, self.snapshot = self.snapshot, look.snapshot
            is_mended, self._problem = bool(self._problem), ""
            if is_mended or before is None or look.snapshot.version != before.version:
                self._on_snapshot(look.snapshot)

    # Reading. Nothing of ours is changed by it: it may happen in another thread.

    def _read_changes(self) -> _Look:
        """What is new. It raises nothing: whoever is told looks again, and must not miss it."""
        try:
            errors = ValidationErrors()
            is_same = self._list_files(errors) == self._last.stamps and errors.ok
            # What cannot be read now may be readable soon, and look the same.
            if is_same and not self._problem:
                return _Look(self._last.stamps, self._last.parsed)
            return self._read_all()
        except Exception as error:  # A bug. What is served must not depend on it.
            return self._failed(error)

    def _failed(self, error: Exception) -> _Look:
        LOGGER.error("directory %r cannot be read", str(self._directory), exc_info=error)
        errors = ValidationErrors()
        errors.add(f"{type(error).__name__}: {error}")
        return _Look({}, {}, error=self._refusal(errors))

    def _read_all(self) -> _Look:
        errors = ValidationErrors()
        stamps = self._list_files(errors)
        parsed: dict[Path, _Parsed] = {}
        located: list[tuple[str, Resource]] = []
        for path, stamp in stamps.items():
            if self._is_closed:
                errors.add("is not read any more")
                break
            found, is_good = self._read(path, stamp, errors)
            located += [(f"{self._name(path)}{place}", resource) for place, resource in found]
            if is_good:
                parsed[path] = (stamp, found)
        resources = refuse_duplicates(located, errors)
        if not errors.ok:
            return _Look(stamps, parsed, error=self._refusal(errors))
        try:
            before = self.snapshot
            snapshot = Snapshot.of(resources) if before is None else before.replaced(resources)
        except ValidationError as error:
            return _Look(stamps, parsed, error=error)
        return _Look(stamps, parsed, snapshot)

    def _refusal(self, errors: ValidationErrors) -> ValidationError:
        return ValidationError(f"directory {str(self._directory)!r}", errors)

    def _list_files(self, errors: ValidationErrors) -> dict[Path, _Stamp]:
        """The files that count, in a fixed order; hidden ones do not."""
        refusal = _refuse_directory(self._directory)
        if refusal is not None:
            errors.add(refusal)
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
                if not isinstance(error, FileNotFoundError) or _may_be_link(path):
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
    ) -> tuple[list[tuple[str, Resource]], bool]:
        """The resources of a file, from memory if it has not changed; and whether it is good."""
        kept = self._last.parsed.get(path)
        if kept is not None and kept[0] == stamp:
            return kept[1], True
        count = errors.count
        with errors.field(self._name(path)):
            text = read_bounded(path, errors)
            found = parse_documents(text, errors, is_json=path.suffix == ".json")
        return found, errors.count == count

    def _name(self, path: Path) -> str:
        return path.relative_to(self._directory).as_posix()


def _refuse_directory(directory: Path) -> str | None:
    """Why nothing in it can be looked at, or None."""
    try:
        mode = directory.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "there is no such directory"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if S_ISDIR(mode) else "is no directory"


def _may_be_link(path: Path) -> bool:
    """Whether what was not found is there all the same: a link that leads nowhere."""
    try:
        return S_ISLNK(path.lstat().st_mode)
    except FileNotFoundError:
        return False
    except OSError:  # Nobody knows, so nobody says that it has gone.
        return True


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
