"""Churn: its limits, its output, and a short run of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bench import churn
from bench.churn import (
    LIMITS,
    ChurnLoad,
    Count,
    at_marks,
    find_excess,
    find_faults,
    format_counts,
    parse_arguments,
)

if TYPE_CHECKING:
    from pathlib import Path


def count(minute: float, **changed: int) -> Count:
    values = {"rss_kb": 50_000, "descriptors": 30, "tasks": 4, "objects": 60_000, **changed}
    rest = {"cpu_s": 1.0, "rpcs": 100, "failed": 0, **values}
    return Count(minute, **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda each: each.column)
def test_growth_beyond_its_limit_is_reported(limit: churn.Limit) -> None:
    first = count(5)
    start = getattr(first, limit.column)
    allowed = int(start + limit.allowed(start))
    assert not find_excess([first, count(30, **{limit.column: allowed})])
    (found,) = find_excess([first, count(30, **{limit.column: allowed + 1})])
    assert found.startswith(f"{limit.column} grew")


def test_marks_are_the_first_counts_at_or_after_their_minutes() -> None:
    counts = [count(minute) for minute in (1.0, 5.1, 6.0, 15.0, 29.9)]
    assert [each.minute for each in at_marks(counts, (5, 15, 30))] == [5.1, 15.0, 29.9]


def test_growth_between_marks_that_is_gone_at_the_last_one_is_no_fault() -> None:
    counts = [count(5), count(15, descriptors=90), count(30)]
    assert not find_faults({"proxyless": counts}, (5, 15, 30))


def test_failed_rpcs_of_ours_are_a_fault_and_those_of_grpcio_are_not() -> None:
    failed = [count(5), count(30, failed=2)]
    assert len(find_faults({"proxyless": failed}, (5, 30))) == 1
    assert not find_faults({"proxyless": [count(5), count(30)], "grpcio": failed}, (5, 30))


def test_output_has_a_line_per_client_and_mark() -> None:
    lines = format_counts({"proxyless": [count(5), count(30)]}, (5, 30)).splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["proxyless", "5.0", "50.0"],
        ["proxyless", "30.0", "50.0"],
    ]


def test_marks_follow_the_length_of_the_run() -> None:
    assert parse_arguments([])[0].marks == ChurnLoad().marks
    assert parse_arguments(["--minutes", "6"])[0].marks == (1.0, 3.0, 6.0)


def test_short_run_counts_what_the_client_holds(tmp_path: Path) -> None:
    """No limit is checked: so short a run begins before pools and caches are filled."""
    path = tmp_path / "churn.json"
    arguments = ["--minutes", "0.05", "--changes-per-s", "60", "--restart-s", "1"]
    churn.main([*arguments, "--settle-s", "0.1", "--clients", "proxyless", "--json", str(path)])
    (name, counts), *others = json.loads(path.read_text())["clients"].items()
    assert (name, others) == ("proxyless", [])
    last = counts[-1]
    assert last["failed"] == 0, last["last_failure"]
    assert last["rpcs"] > 0
    assert min(last[each] for each in ("rss_kb", "descriptors", "tasks", "objects")) > 0
