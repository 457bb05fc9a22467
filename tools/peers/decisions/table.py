"""Outcomes of all cases by voice, their judgement, and their section of the page."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Final, Self

from tools.peers.decisions.programs import OURS, PROGRAMS
from tools.peers.page import WIDTH, row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tools.peers.decisions.case import Case

    Notes = Mapping[str, Mapping[str, str]]

TITLE: Final = "Decisions"
_ABOUT: Final = (
    "The same resources, backends and RPCs for each xDS client of gRPC, and for Envoy with a plain "
    "client in front of it: the programs in tools/peers/voices. `=` is our outcome; another "
    "outcome has a note. The letters are backends; NACK is the client's answer to the control "
    "plane. D1 and so on are rows of [decisions](spec/decisions.md)."
)


@dataclass(frozen=True)
class Table:
    """Outcomes by case and voice; the version, or the reason for its absence, of each voice."""

    versions: dict[str, str]
    skipped: dict[str, str]
    cells: dict[str, dict[str, str]]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))


def judge_table(table: Table, cases: Mapping[str, Case], notes: Notes) -> Iterator[str]:
    """Outcomes that are not as wanted, or not explained; and explanations of nothing."""
    for name, cells in table.cells.items():
        ours = cells[OURS]
        if ours != cases[name].wanted:
            yield f"{name}: our outcome is {ours!r}, wanted {cases[name].wanted!r}"
        explained = notes.get(name, {})
        for voice, outcome in cells.items():
            if outcome != ours and outcome not in explained:
                yield f"{name}: {voice} differs without a note: {outcome!r}, ours is {ours!r}"
        if not table.skipped:
            for outcome in explained:
                if outcome not in cells.values() or outcome == ours:
                    yield f"{name}: a note explains {outcome!r}, which is no other outcome"
    for name in notes:
        if name not in cases:
            yield f"{name}: has notes, but does not exist"


def make_section(table: Table, cases: Mapping[str, Case], notes: Notes) -> str:
    """The section of the page."""
    voices = [voice for voice in PROGRAMS if voice in table.versions]
    versions = ", ".join(f"{voice} {table.versions[voice]}" for voice in voices)
    lines = [f"## {TITLE}", "", fill(f"{_ABOUT} Versions: {versions}.", WIDTH), ""]
    for voice, reason in table.skipped.items():
        lines += [f"{voice} is not in the table: {reason}.", ""]
    lines += [_count(table, voices), ""]
    lines += [row("case", "source", *voices), "|---" * (len(voices) + 2) + "|"]
    numbers: dict[str, int] = {}
    for name, case in cases.items():
        if name not in table.cells:
            continue
        cells = table.cells[name]
        shown = [_cell(cells, voice, notes.get(name, {}), numbers) for voice in voices]
        lines.append(row(case.title, case.source, *shown))
    if numbers:
        lines.append("")
    lines += [f"[^{number}]: {text}" for text, number in numbers.items()]
    return "\n".join(lines)


def _count(table: Table, voices: list[str]) -> str:
    """A sentence with the number of outcomes that are as ours."""
    same = {
        voice: sum(cells[voice] == cells[OURS] for cells in table.cells.values())
        for voice in voices
        if voice != OURS
    }
    parts = ", ".join(f"{voice} {number}" for voice, number in same.items())
    return f"Outcomes as ours, of {len(table.cells)} cases: {parts}."


def _cell(
    cells: Mapping[str, str], voice: str, notes: Mapping[str, str], numbers: dict[str, int]
) -> str:
    outcome = cells[voice]
    if voice == OURS:
        return outcome
    if outcome == cells[OURS]:
        return "="
    text = notes.get(outcome, "not explained yet")
    number = numbers.setdefault(text, len(numbers) + 1)
    return f"**{outcome}**[^{number}]"
