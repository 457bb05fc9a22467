"""Interface of a suite, and `run_client`."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Final, Protocol

from tools.peers.build import ROOT
from tools.peers.outcomes import BrokenSuiteError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tools.peers.outcomes import Run

_CLIENT_TIMEOUT_S: Final = 600


class Suite(Protocol):
    """One suite of another project."""

    @property
    def name(self) -> str:
        """The name for the command line."""

    @property
    def title(self) -> str:
        """The name for the page."""

    @property
    def about(self) -> str:
        """The description for the page, in a sentence or two."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of its parts, by name."""

    @property
    def known(self) -> Mapping[str, str]:
        """Cases that our client fails, with the reason."""

    @property
    def runs(self) -> int:
        """The number of runs with each stack: more than one if results depend on timing."""

    def prepare(self) -> None:
        """Download and build. Raises UnavailableError with the reason."""

    def run(self, stack: str) -> Run:
        """Run all cases with one stack."""

    def fold(self, case: str) -> str:
        """The name of a case without its configuration, for the page."""


def run_client(command: Sequence[str]) -> Run:
    """Run a client that prints its cases: JSON lines of a name, and a reason or null."""
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=_CLIENT_TIMEOUT_S,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
        raise BrokenSuiteError(f"the client ended with {done.returncode}: {last[0]}")
    return dict(map(json.loads, done.stdout.splitlines()))
