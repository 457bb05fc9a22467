"""A client library that Google generates from an API, on our channels and on grpcio's."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from tools.peers.build import install_packages
from tools.peers.suite import run_client

if TYPE_CHECKING:
    from pathlib import Path

    from tools.peers.outcomes import Run

# With its dependencies, so that runs are repeatable.
_PINNED: Final = {
    "google-cloud-secret-manager": "2.31.0",
    "google-api-core": "2.44.0",
    "google-auth": "2.62.2",
    "proto-plus": "1.29.0",
}


class GapicSuite:
    """Implements `Suite`."""

    name = "gapic"
    title = "Generated Google client (GAPIC)"
    about = (
        "google-cloud-secret-manager, blocking and asyncio, with a channel of each stack as its "
        "transport, against a server of grpcio: metadata, paging, timeouts, retries, and errors "
        "as exceptions of google-api-core."
    )
    versions: Final = _PINNED
    known: Final[dict[str, str]] = {}
    runs = 1

    def __init__(self) -> None:
        self._library: Path | None = None

    def prepare(self) -> None:
        name = f"gapic-{_PINNED['google-cloud-secret-manager']}"
        requirements = [f"{package}=={version}" for package, version in _PINNED.items()]
        self._library = install_packages(requirements, name)

    def run(self, stack: str) -> Run:
        client = [sys.executable, "-m", "tools.peers.clients.gapic", stack, str(self._library)]
        return run_client(client)

    def fold(self, case: str) -> str:
        return case
