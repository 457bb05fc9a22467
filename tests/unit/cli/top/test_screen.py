"""Unit tests of proxyless.cli.top.screen. Tests on a terminal are in tests/e2e."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from proxyless.cli.top.navigation import Navigation, press
from proxyless.cli.top.samples import EventRow, Sample
from proxyless.cli.top.screen import TopScreen, render, render_table
from proxyless.cli.top.tables import Cell, SampleTable, TableRow
from proxyless.lb.description import LbNode
from tests.unit.cli.top.process_samples import make_sample

SAMPLE = make_sample()
WIDTH, HEIGHT = 110, 30


def draw(sample: Sample, navigation: Navigation = Navigation(), problem: str = "") -> str:  # noqa: B008
    console = Console(width=WIDTH, height=HEIGHT, file=io.StringIO(), record=True)
    console.print(render(sample, navigation, "h:1", problem, HEIGHT))
    return console.export_text()


def test_screen_has_head_table_events_and_keys() -> None:
    text = draw(SAMPLE)
    assert " proxyless top   h:1  pid 7  - RPCs/s" in text
    assert "TARGET" in text
    assert "xds:///api" in text
    assert "00:00:10.000Z channel.state state=READY" in text
    assert text.rstrip().endswith("q quit")


def test_footer_has_problem_pause_and_notes() -> None:
    sample = replace(SAMPLE, notes=("a note",))
    text = draw(sample, Navigation(is_paused=True), "no answer")
    assert "no answer  paused  a note" in text


def test_tree_replaces_the_table_and_may_be_missing() -> None:
    tree = press(Navigation(), "tree", SAMPLE)
    assert "LB tree of xds:///api" in draw(SAMPLE, tree)
    assert "10.0.0.1:80" in draw(SAMPLE, tree)
    other = press(press(Navigation(), "down", SAMPLE), "tree", SAMPLE)
    assert "the channel has no LB tree" in draw(SAMPLE, other)


def test_tree_may_have_states_that_are_not_known_here() -> None:
    channel = replace(SAMPLE.channels[0], lb_tree=LbNode("root", "x", "SHUTDOWN"))
    assert "· root" in draw(replace(SAMPLE, channels=(channel,)), Navigation("1", shows_tree=True))


def test_markup_in_texts_is_shown_as_it_is() -> None:
    sample = replace(SAMPLE, events=(EventRow(0.0, "[red]text[/red]"),))
    assert "[red]text[/red]" in draw(sample)


def test_rows_around_the_selected_one_are_visible() -> None:
    rows = tuple(TableRow(str(each), (Cell(f"row{each}", each),)) for each in range(50))
    table = SampleTable("many", ("endpoint",), rows)
    console = Console(width=WIDTH, file=io.StringIO(), record=True)
    console.print(render_table(table, Navigation(selected="40"), 5))
    assert console.export_text().split() == ["ENDPOINT", *(f"row{each}" for each in range(38, 43))]


def test_sorted_column_has_an_arrow() -> None:
    assert "▼ STATE" in draw(SAMPLE, Navigation(sort="state"))
    assert "▲ STATE" in draw(SAMPLE, Navigation(sort="state", is_reversed=True))


def test_screen_is_restored_at_its_exit() -> None:
    file = io.StringIO()
    console = Console(width=WIDTH, height=HEIGHT, file=file, force_terminal=True)
    with TopScreen(console, "h:1") as screen:
        screen.show(SAMPLE, Navigation(), "")
    assert file.getvalue().startswith("\x1b[?1049h")
    assert "\x1b[?1049l" in file.getvalue()
    assert "\x1b[?25h" in file.getvalue()
