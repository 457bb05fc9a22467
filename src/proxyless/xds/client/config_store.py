"""Store of a client's accepted resources in a file of the config cache directory.

Files are replaced atomically, so several processes may share a directory: the last one to write
wins. Only the owner can read them. All calls block, and are made in a thread (`last_good`). No call
raises: each kind of error is logged once, and the client continues without the cache.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import one_line
from proxyless.protos.redaction import without_secrets
from proxyless.xds.client.config_file import (
    ClientIdentity,
    SavedResource,
    decode_config,
    encode_config,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.xds.bootstrap import ConfigCacheConfig
    from proxyless.xds.client.cache import ResourceKey

LOGGER: Final = logging.getLogger("proxyless.xds.client.last_good")

FILE_BYTES_MAX: Final = 32 * 2**20
# Files in a directory, one for each server, node and target. The oldest are removed.
FILES_MAX: Final = 256
# Other clients' files of this age are not in use, whatever their maximum age is.
UNUSED_AGE_MAX_S: Final = 30 * 86_400.0
# Temporary files of this age were left behind by a process that has ended.
TEMPORARY_AGE_MAX_S: Final = 3_600.0

SUFFIX: Final = ".xds"
TEMPORARY: Final = ".tmp"
# Part of a private key in PEM, which the config of an application's extension may contain.
_SECRET: Final = b"PRIVATE KEY-----"


def unix_time_s() -> float:
    return datetime.now(UTC).timestamp()


class Files(Protocol):
    """File system. Every method may raise OSError."""

    def read(self, path: Path, limit: int) -> bytes:
        """At most `limit` bytes. ValueError if it is not a file, or another user can change it."""

    def replace(self, path: Path, content: bytes) -> None:
        """Write the file atomically; only its owner can read it."""

    def times(self, directory: Path) -> dict[Path, float]:
        """Modification times of the files in a directory."""

    def remove(self, path: Path) -> None: ...


class OsFiles:
    """The file system of the machine."""

    def read(self, path: Path, limit: int) -> bytes:
        if not stat.S_ISREG(path.lstat().st_mode):
            # Opening a pipe would block, and a link may lead anywhere.
            raise ValueError("is no regular file")
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            is_own = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
            if not is_own or (os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o022):
                raise ValueError("can be changed by another user")
            return file.read(limit)

    def replace(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Not the process id: each container has a process 1.
        temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}{TEMPORARY}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise

    def times(self, directory: Path) -> dict[Path, float]:
        found: dict[Path, float] = {}
        for entry in os.scandir(directory):
            with suppress(FileNotFoundError):  # Another process removed it.
                found[Path(entry.path)] = entry.stat(follow_symlinks=False).st_mtime
        return found

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)


class ConfigStore:
    """File with the resources of one client."""

    def __init__(
        self,
        config: ConfigCacheConfig,
        identity: ClientIdentity,
        *,
        files: Files | None = None,
        wall_time_s: Callable[[], float] = unix_time_s,
    ) -> None:
        # Fixed at construction.
        self._config = config
        self._identity = identity
        self._files = files or OsFiles()
        self._path = Path(config.directory, identity.file_name)
        self.wall_time_s = wall_time_s
        self.max_age_s = config.max_age_s
        # Texts that were logged.
        self._logged: set[str] = set()
        self._is_pruned = False
        # Resources of the last write that were searched for secrets, without and with them: most
        # are the same in the next one.
        self._written: dict[ResourceKey, tuple[bytes, bytes]] = {}

    def __str__(self) -> str:
        return f"config cache {str(self._path)!r}"

    def read(self) -> dict[ResourceKey, SavedResource]:
        """The saved resources; none if the file does not exist, is unusable or is too old."""
        try:
            content = self._files.read(self._path, FILE_BYTES_MAX + 1)
            if len(content) > FILE_BYTES_MAX:
                raise ValueError(f"has more than {FILE_BYTES_MAX} bytes")
            saved = decode_config(content, self._identity)
        except FileNotFoundError:
            LOGGER.info("%s: there is none yet for this node, its servers and its target", self)
            return {}
        except OSError as error:
            self._warn(f"cannot be read: {_reason(error)}: it is not used")
            return {}
        except ValueError as error:
            self._warn(f"{error}: it is not used")
            return {}
        max_age_s = self._config.max_age_s
        now_s = self.wall_time_s()
        # A clock that was wrong may have dated it in the future, where it would never be too old.
        fresh = {key: each for key, each in saved.items() if abs(now_s - each.saved_s) <= max_age_s}
        if len(fresh) < len(saved):
            what = f"{len(saved) - len(fresh)} of its {len(saved)} resources are not used"
            self._warn(f"is older than {max_age_s:g} s, or from the future: {what}")
        return fresh

    def write(self, resources: Mapping[ResourceKey, SavedResource]) -> bool:
        """Replace the file, and remove old ones of other clients. False: try again later."""
        content = encode_config(self._identity, self._remove_secrets(resources))
        if len(content) > FILE_BYTES_MAX:
            self._warn(f"would have more than {FILE_BYTES_MAX} bytes: it is not written")
            return True
        try:
            self._files.replace(self._path, content)
        except (OSError, ValueError) as error:
            self._warn(f"cannot be written: {_reason(error)}")
            return False
        if not self._is_pruned:
            self._is_pruned = True
            with suppress(OSError):  # Files of another user.
                self._prune()
        return True

    def _remove_secrets(
        self, resources: Mapping[ResourceKey, SavedResource]
    ) -> dict[ResourceKey, SavedResource]:
        kept: dict[ResourceKey, SavedResource] = {}
        before, self._written = self._written, {}
        for key, saved in resources.items():
            original = saved.serialized
            redacted, last = before.get(key, (b"", None))
            if last != original:
                redacted = without_secrets(key[0], original)
            if redacted is not original:
                # Endpoints are not searched, and would be kept for nothing.
                self._written[key] = redacted, original
            if _SECRET not in redacted:
                kept[key] = SavedResource(saved.version, redacted, saved.saved_s)
        if len(kept) < len(resources):
            self._warn("does not hold the resources that have a private key")
        return kept

    def _prune(self) -> None:
        times = self._files.times(self._path.parent)
        times.pop(self._path, None)
        now = self.wall_time_s()
        caches = sorted((each for each in times if each.suffix == SUFFIX), key=times.__getitem__)
        too_many = caches[: max(len(caches) + 1 - FILES_MAX, 0)]
        max_age_s = max(self._config.max_age_s, UNUSED_AGE_MAX_S)
        too_old = [each for each in caches if times[each] < now - max_age_s]
        temporary = [each for each in times if each.suffix == TEMPORARY and SUFFIX in each.name]
        left_behind = [each for each in temporary if times[each] < now - TEMPORARY_AGE_MAX_S]
        for path in {*too_many, *too_old, *left_behind}:
            self._files.remove(path)

    def _warn(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            LOGGER.warning("%s %s", self, one_line(text))


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
