"""Case of the table, and the registry of cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tools.peers.decisions.mesh import Mesh

    Run = Callable[[Mesh], Awaitable[str]]


@dataclass(frozen=True)
class Case:
    """A question to all voices."""

    title: str
    # Our outcome.
    wanted: str
    run: Run
    # Of docs/spec/decisions.md, or a gRFC.
    source: str = ""


# In the order of imports; `suite.CASES` has the order of the table.
REGISTERED: Final[dict[str, Case]] = {}


def case(title: str, wanted: str, source: str = "") -> Callable[[Run], Run]:
    """Register a case; its name is the function's."""

    def register(run: Run) -> Run:
        name = getattr(run, "__name__", title)
        assert name not in REGISTERED, name
        REGISTERED[name] = Case(title, wanted, run, source)
        return run

    return register
