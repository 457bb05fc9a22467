"""Results of all rows: outcomes, and their file."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from bench.results import (
    MET,
    MISSED,
    NOT_MEASURED,
    Figure,
    Judgement,
    RowResult,
    format_json,
    from_json,
    load,
    save,
    to_json,
)

if TYPE_CHECKING:
    from pathlib import Path

FIGURE = Figure("unary-16B-100", 1, "cpu_us", "xds_asyncio", (20.0, 18.123456, 19.0))
JUDGEMENT = Judgement("CPU", "xds_asyncio", 0.2, is_upper=True, got=0.19, rounds=(0.18, 0.21))
ROW = RowResult(
    "P1", "title", "2026-11-17T10:00:00+00:00", {"cpus": 2}, 3, ("python -m bench.rpc",),
    (FIGURE,), (JUDGEMENT,), {"connectrpc": "no wheel"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("is_upper", "got", "outcome"),
    [
        (True, 0.2, MET),
        (True, 0.21, MISSED),
        (False, 0.2, MET),
        (False, 0.19, MISSED),
        (True, None, NOT_MEASURED),
    ],
)
def test_outcome_depends_on_the_direction(is_upper: bool, got: float | None, outcome: str) -> None:
    assert replace(JUDGEMENT, is_upper=is_upper, got=got).outcome == outcome


def test_row_is_missed_if_one_of_its_targets_is() -> None:
    missed = replace(JUDGEMENT, got=0.3)
    assert replace(ROW, judgements=(JUDGEMENT, missed)).outcome == MISSED
    assert ROW.outcome == MET
    assert replace(ROW, judgements=()).outcome == NOT_MEASURED


def test_file_has_what_was_saved_with_five_digits(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    assert load(path) == []
    save(path, [ROW])
    (found,) = load(path)
    assert found == replace(ROW, figures=(replace(FIGURE, rounds=(20.0, 18.123, 19.0)),))
    save(path, [found])
    assert load(path) == [found], "a file that is saved again does not change"


def test_text_of_the_file_is_json_with_medians_and_outcomes() -> None:
    value = to_json([ROW, replace(ROW, number="P2", figures=(), judgements=())])
    assert json.loads(format_json(value)) == value
    assert value["rows"][0]["outcome"] == MET
    assert value["rows"][0]["figures"][0]["median"] == 19.0


def test_other_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="schema 7, wanted 1"):
        from_json({"schema": 7, "rows": []})


def test_figures_are_found_by_client_and_size() -> None:
    larger = replace(FIGURE, size=100)
    row = replace(ROW, figures=(FIGURE, larger, replace(FIGURE, measure="p50_us")))
    assert row.find("unary-16B-100", "cpu_us") == {"xds_asyncio": {1: FIGURE, 100: larger}}
