"""The page docs/peers.md, from the outcomes of all suites. The same outcomes give the same page."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tools.peers.outcomes import Outcomes
    from tools.peers.suite import Suite

OURS: Final = "proxyless"
THEIRS: Final = "grpcio"
_WIDTH: Final = 118
_CELL_CHARACTERS_MAX: Final = 320
_HEAD: Final = """\
# Peers

Test suites of other projects, run with our channels and with those of grpcio {grpcio}, by the same
client program. `make peers` writes this page; it needs Go and, when it first runs, the network.
`make peers ARGS='--only connect'` runs one suite. It fails if a case fails that is not listed here
as a known failure, or if a known failure passes.
"""


def make_page(results: Mapping[str, tuple[Suite, Outcomes]], grpcio: str) -> str:
    """The whole page."""
    lines = [_HEAD.format(grpcio=grpcio)]
    lines += ["| suite | cases | Proxyless passes | grpcio passes |", "|---|---|---|---|"]
    for suite, outcomes in results.values():
        counts = (len(outcomes.passed(stack)) for stack in (OURS, THEIRS))
        cells = [f"[{suite.title}](#{_anchor(suite.title)})", len(outcomes.cases()), *counts]
        lines.append(_row(*map(str, cells)))
    for suite, outcomes in results.values():
        lines += ["", *_section(suite, outcomes)]
    return "\n".join(lines) + "\n"


def _section(suite: Suite, outcomes: Outcomes) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in outcomes.versions.items())
    yield f"## {suite.title}"
    yield ""
    yield fill(f"{suite.about} Versions: {versions}.", _WIDTH, break_on_hyphens=False)
    if suite.known:
        yield ""
        yield "| known failure | reason |"
        yield "|---|---|"
        for case, reason in sorted(suite.known.items()):
            yield _row(case, reason)
    if theirs := _fold(suite, outcomes):
        yield ""
        yield "| grpcio fails | error of the suite |"
        yield "|---|---|"
        for case, reason in theirs.items():
            yield _row(case, reason)


def _fold(suite: Suite, outcomes: Outcomes) -> dict[str, str]:
    """Cases that grpcio fails, with one entry for all configurations of a case."""
    folded: dict[str, str] = {}
    always: set[str] = set()
    for case in outcomes.cases():
        if reasons := outcomes.failures(THEIRS, case):
            name = suite.fold(case)
            folded.setdefault(name, reasons[0])
            if outcomes.always_fails(THEIRS, case):
                always.add(name)
    return {
        name if name in always else f"{name} (not in every run)": folded[name]
        for name in sorted(folded)
    }


def _row(*cells: str) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    plain = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    if len(plain) <= _CELL_CHARACTERS_MAX:
        return plain
    return plain[:_CELL_CHARACTERS_MAX] + "…"


def _anchor(title: str) -> str:
    """The anchor of a heading on GitHub."""
    kept = "".join(each for each in title.lower() if each.isalnum() or each in " -")
    return kept.replace(" ", "-")
