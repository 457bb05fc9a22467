"""Results of all rows in one file, from which docs/performance.md is made. Pure but for load, save.

The schema is stable: a change of it gets another number in `SCHEMA`. Numbers are rounded to five
digits, so that a file shows what was measured and no more.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

SCHEMA: Final = 1
DIGITS: Final = 5
MET, MISSED, NOT_MEASURED = "met", "missed", "not measured"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement of one client: a value per round."""

    what: str
    size: int
    measure: str
    client: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.rounds)


@dataclass(frozen=True, slots=True)
class Judgement:
    """One target of one client of ours. `rounds` has the same figure from each round alone."""

    text: str
    client: str
    limit: float
    # Whether less is better.
    is_upper: bool
    got: float | None
    rounds: tuple[float, ...] = ()

    @property
    def outcome(self) -> str:
        if self.got is None:
            return NOT_MEASURED
        is_met = self.got <= self.limit if self.is_upper else self.got >= self.limit
        return MET if is_met else MISSED


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row of the list of targets."""

    number: str
    title: str
    date: str
    environment: Mapping[str, Any]
    rounds: int
    commands: tuple[str, ...]
    figures: tuple[Figure, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    # Reasons, by client or step.
    unavailable: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        outcomes = {each.outcome for each in self.judgements}
        if MISSED in outcomes:
            return MISSED
        return MET if MET in outcomes else NOT_MEASURED

    def find(self, what: str, measure: str) -> dict[str, dict[int, Figure]]:
        """Figures by client, then by size."""
        found: dict[str, dict[int, Figure]] = {}
        for each in self.figures:
            if (each.what, each.measure) == (what, measure):
                found.setdefault(each.client, {})[each.size] = each
        return found


def rounded(value: Any) -> Any:  # noqa: ANN401 - any part of JSON
    """The value with every number rounded to `DIGITS` digits."""
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}")
        case dict():
            return {key: rounded(each) for key, each in value.items()}
        case list() | tuple():
            return [rounded(each) for each in value]
        case _:
            return value


def to_json(rows: Sequence[RowResult]) -> dict[str, Any]:
    shown = []
    for row in rows:
        value = asdict(row)
        for plain, judgement in zip(value["judgements"], row.judgements, strict=True):
            plain["outcome"] = judgement.outcome
        for plain, figure in zip(value["figures"], row.figures, strict=True):
            plain["median"] = figure.median
        shown.append({**value, "outcome": row.outcome})
    return {"schema": SCHEMA, "rows": rounded(shown)}


def from_json(value: Mapping[str, Any]) -> list[RowResult]:
    """Raises ValueError if this is another schema."""
    if value.get("schema") != SCHEMA:
        raise ValueError(f"results have schema {value.get('schema')!r}, wanted {SCHEMA}")
    rows = []
    for each in value["rows"]:
        plain = {name: part for name, part in each.items() if name != "outcome"}
        plain["commands"] = tuple(plain["commands"])
        plain["figures"] = tuple(_without(part, "median", Figure) for part in plain["figures"])
        plain["judgements"] = tuple(
            _without(part, "outcome", Judgement) for part in plain["judgements"]
        )
        rows.append(RowResult(**plain))
    return rows


def _without(part: Mapping[str, Any], derived: str, made: type[Any]) -> Any:  # noqa: ANN401
    plain = {name: each for name, each in part.items() if name != derived}
    return made(**{**plain, "rounds": tuple(plain["rounds"])})


def load(path: Path) -> list[RowResult]:
    return from_json(json.loads(path.read_text())) if path.exists() else []


def save(path: Path, rows: Sequence[RowResult]) -> None:
    """Replace the file; it is never incomplete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(format_json(to_json(rows)))
    partial.replace(path)


def format_json(value: Mapping[str, Any]) -> str:
    """A line per figure and judgement, so that differences can be read."""
    rows = []
    for row in value["rows"]:
        lines = []
        for name, part in row.items():
            if name in ("figures", "judgements"):
                listed = ",\n".join(f"    {_line(each)}" for each in part)
                lines.append(f'   "{name}": [\n{listed}\n   ]' if part else f'   "{name}": []')
            else:
                lines.append(f'   "{name}": {_line(part)}')
        rows.append("  {\n" + ",\n".join(lines) + "\n  }")
    return f'{{\n "schema": {value["schema"]},\n "rows": [\n' + ",\n".join(rows) + "\n ]\n}\n"


def _line(part: object) -> str:
    return json.dumps(part, ensure_ascii=False)
