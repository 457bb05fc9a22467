"""The page docs/peers.md, from the outcomes of all suites. The same outcomes give the same page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tools.peers.outcomes import Outcomes
    from tools.peers.suite import Suite

OURS: Final = "proxyless"
THEIRS: Final = "grpcio"
WIDTH: Final = 118
_CELL_CHARACTERS_MAX: Final = 320
_SUMMARY_ROW: Final = re.compile(r"^\| \[(?P<title>.*)\]\(#.*$", re.MULTILINE)
_HEAD: Final = """\
# Peers

Test suites of other projects, run with our channels and with those of grpcio {grpcio}, by the same
client program; and [a table](#decisions) of what gRPC's other xDS clients and Envoy decide. `make
peers` writes this page; it needs Go (the table also Maven and npm) and, when it first runs, the
network. `make peers ARGS='--only connect'` runs one suite. It fails if a case fails that is not
listed here as a known failure, or if a known failure passes.
"""


@dataclass(frozen=True)
class Section:
    """Part of the page: its row of the summary, which may be empty, and its text."""

    row: str
    text: str


def make_page(sections: Iterable[Section], grpcio: str) -> str:
    """The whole page."""
    found = list(sections)
    lines = [_HEAD.format(grpcio=grpcio)]
    lines += ["| suite | cases | Proxyless passes | grpcio passes |", "|---|---|---|---|"]
    lines += [each.row for each in found if each.row]
    for each in found:
        lines += ["", each.text]
    return "\n".join(lines) + "\n"


def split_page(text: str) -> dict[str, Section]:
    """The sections of a page, by title."""
    head, *parts = text.rstrip("\n").split("\n\n## ")
    rows = {match["title"]: match[0] for match in _SUMMARY_ROW.finditer(head)}
    sections = {}
    for part in parts:
        title = part.partition("\n")[0]
        sections[title] = Section(rows.get(title, ""), f"## {part}")
    return sections


def describe_suite(suite: Suite, outcomes: Outcomes) -> Section:
    """The section of a suite, from its outcomes."""
    counts = (len(outcomes.passed(stack)) for stack in (OURS, THEIRS))
    cells = [f"[{suite.title}](#{_anchor(suite.title)})", len(outcomes.cases()), *counts]
    return Section(row(*map(str, cells)), "\n".join(_describe(suite, outcomes)))


def _describe(suite: Suite, outcomes: Outcomes) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in outcomes.versions.items())
    yield f"## {suite.title}"
    yield ""
    yield fill(f"{suite.about} Versions: {versions}.", WIDTH, break_on_hyphens=False)
    if suite.known:
        yield ""
        yield "| known failure | reason |"
        yield "|---|---|"
        for case, reason in sorted(suite.known.items()):
            yield row(case, reason)
    if theirs := _fold(suite, outcomes):
        yield ""
        yield "| grpcio fails | error of the suite |"
        yield "|---|---|"
        for case, reason in theirs.items():
            yield row(case, reason)


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


def row(*cells: str) -> str:
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
