"""Page of results: its tables and plots, and that the published page is current."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from bench import page
from bench.page import make_page, make_plots, split_notes
from bench.page_tables import format_judgements, format_number
from bench.plots import Plot, format_svg, ticks
from bench.results import Figure, Judgement, RowResult

MISS = Judgement("CPU", "xds_asyncio", 0.2, is_upper=True, got=0.25, rounds=(0.21, 0.3))
GOOD = replace(MISS, text="p50", got=0.1, rounds=(0.1,))
NOTES = "# Notes\n\n## Before\n\nhow\n\n## P9: connecting\n\nwhy P9\n\n## Where\n\nafter all\n"


def row(number: str, *judgements: Judgement, figures: tuple[Figure, ...] = ()) -> RowResult:
    environment = {
        "processor": "a processor", "cpus": 2, "kernel": "6", "python": "3.11",
        "packages": {"grpcio": "1.85"}, "commit": "abc", "load_average": 0.5,
    }  # fmt: skip
    date = "2026-11-17T10:00:00+00:00"
    return RowResult(number, "a title", date, environment, 5, (), figures, judgements)


def sized(client: str, *values: float) -> tuple[Figure, ...]:
    return tuple(
        Figure("many_endpoints", 10**n, "cpu_s", client, (value,))
        for n, value in enumerate(values, 1)
    )


def test_misses_come_first_in_the_page_and_in_its_tables() -> None:
    made = make_page([row("P1", GOOD), row("P9", GOOD, MISS)], NOTES, {})
    assert made.index("## P9: a title") < made.index("## P1: a title")
    assert "1 of 3 targets" not in made
    assert "2 of 3 targets are met" in made
    table = format_judgements(row("P9", GOOD, MISS)).splitlines()
    assert table[2] == "| CPU | `xds_asyncio` | ≤ 0.200 | 0.250 | 0.210-0.300 | **missed** |"


def test_notes_stay_with_their_row_and_nothing_of_them_is_lost() -> None:
    assert split_notes(NOTES) == ("## Before\n\nhow", {"P9": "why P9"}, "## Where\n\nafter all")
    plot = Plot("a plot", "x", "y", {"a": {1.0: 1.0}})
    made = make_page([row("P9", MISS)], NOTES, {"a.svg": plot})
    order = ["how", "## Summary", "images/a.svg", "## P9: a title", "why P9", "after all"]
    assert [made.index(each) for each in order] == sorted(made.index(each) for each in order)
    assert "why P9" in make_page([row("P1", GOOD)], NOTES, {}), "even of a row without results"


def test_two_sections_of_one_row_are_both_in_the_page() -> None:
    _, by_row, _ = split_notes(f"{NOTES}\n## P9: more\n\nand why\n")
    assert by_row == {"P9": "why P9\n\nand why"}


def test_plots_have_a_line_per_client_and_are_svg() -> None:
    figures = (*sized("grpc_aio_xds", 0.1, 1.0), *sized("xds_asyncio", 0.2, 0.5))
    plots = make_plots({"P9": row("P9", figures=figures)})
    (text,) = map(format_svg, plots.values())
    root = ET.fromstring(text)
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2
    assert "ours, asyncio" in text
    assert make_plots({}) == {}


def test_one_point_is_a_plot() -> None:
    assert "<circle" in format_svg(Plot("t", "x", "y", {"a": {10.0: 3.0}}))


def test_ticks_enclose_the_values() -> None:
    assert ticks(0.3, 4.0) == [0.2, 0.5, 1.0, 2.0, 5.0]
    assert ticks(7.0, 7.0) == [5.0, 10.0]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.0034, "0.0034"), (0.1234, "0.123"), (45.67, "45.7"), (5000.4, "5,000")],
)
def test_numbers_have_about_three_digits(value: float, text: str) -> None:
    assert format_number(value) == text


def test_published_page_is_what_the_results_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert page.main(["--check"]) == 0, capsys.readouterr().err
