"""Example resolver: targets `file:///path`, the endpoints are the addresses in that file.

    registries = proxyless.Registries().extended(resolvers=[FileFactory()])
    channel = proxyless.aio.insecure_channel("file:///etc/backends", registries=registries)

The file has one address per line: `10.0.0.1:80`, `[::1]:80`, `unix:/run/backend`.
docs/howto/write-a-resolver.md explains it.
"""

from pathlib import Path
from typing import Final

from proxyless.base import Endpoint, parse_address
from proxyless.resolver import PollingResolver, ResolverContext, ResolverListener, Target
from proxyless.runtime import Clock

POLL_S = 1.0


class FileFactory:
    """Creates resolvers for the scheme `file`."""

    scheme: Final = "file"

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> "FileResolver":
        return FileResolver(Path(target.path), listener, context.clock)

    def default_authority(self, target: Target) -> str:
        return "localhost"


class FileResolver(PollingResolver):
    """Reads the file once per interval."""

    def __init__(self, path: Path, listener: ResolverListener, clock: Clock) -> None:
        super().__init__(listener, clock, POLL_S)
        self._path = path

    def poll(self) -> tuple[Endpoint, ...]:
        texts = self._path.read_text().split()
        return tuple(Endpoint((parse_address(text),)) for text in texts)
