"""A resolver of one's own: `file:///path` is a file of addresses, and changes when the file does.

    registries = proxyless.Registries().extended(resolvers=[FileFactory()])
    channel = proxyless.aio.insecure_channel("file:///etc/backends", registries=registries)

The file has one address per line: `10.0.0.1:80`, `[::1]:80`, `unix:/run/backend`.
How it works is told in docs/howto/write-a-resolver.md.
"""

from pathlib import Path
from typing import Final

from proxyless.base import Endpoint, Status, StatusCode, parse_address
from proxyless.resolver import (
    Resolver,
    ResolverContext,
    ResolverListener,
    ResolverResult,
    Target,
)
from proxyless.runtime import IDLE_TIMER, Clock

POLL_S = 1.0


class FileFactory:
    """What the registry knows of the scheme `file`."""

    scheme: Final = "file"

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> Resolver:
        return FileResolver(Path(target.path), listener, context.clock)

    def default_authority(self, target: Target) -> str:
        return "localhost"


class FileResolver:
    """Looks at the file every now and then, and reads it when it has changed."""

    def __init__(self, path: Path, listener: ResolverListener, clock: Clock) -> None:
        self._path, self._listener, self._clock = path, listener, clock
        self._version: object = None
        self._found: tuple[Endpoint, ...] | Status | None = None
        self._timer = IDLE_TIMER

    def start(self) -> None:
        self._timer = self._clock.call_later(0, self._look)

    def _look(self) -> None:
        self._timer = self._clock.call_later(POLL_S, self._look)
        try:
            stat = self._path.stat()
            version = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if version == self._version:
                return
            texts = self._path.read_text().split()
            found: tuple[Endpoint, ...] | Status = tuple(
                Endpoint((parse_address(text),)) for text in texts
            )
        except (OSError, ValueError) as error:
            # A channel that has endpoints keeps them.
            version, found = None, Status(StatusCode.UNAVAILABLE, f"file {self._path}: {error}")
        self._version = version
        if found != self._found:
            self._found = found
            self._listener.on_result(ResolverResult(found))

    def request_reresolution(self) -> None:
        """It will look again soon anyway."""

    def reset_backoff(self) -> None:
        """There is no wait to cut short."""

    def close(self) -> None:
        self._timer.cancel()
