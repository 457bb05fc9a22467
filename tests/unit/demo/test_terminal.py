"""Unit tests of proxyless.demo.terminal: the screen has every value of a view."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from proxyless.demo.terminal import TerminalView, bar, render, sparkline
from tests.unit.demo.views import MISSED_STEP, STEPS, VIEW


def screen(width: int = 130, **changes: object) -> str:
    console = Console(width=width, height=32, file=io.StringIO(), record=True)
    console.print(render(replace(VIEW, **changes), "http://127.0.0.1:8080/"))  # type: ignore[arg-type]
    return console.export_text()


def without_padding(text: str) -> str:
    """The text with one space between words: rich before 14.3 pads columns with more."""
    return " ".join(text.split())


@pytest.mark.parametrize(
    "shown",
    [
        "300 RPCs/s",
        "1,234 sent",
        "3 lost with their backend",
        "0 failed",
        "http://127.0.0.1:8080/",
        "✓ everything is well",
        "▸ zone a is killed",
        "· zones are back",
        "zone b answers",
        "● xds:///greeter",
        "✕ priority 0",
        "connection refused",
        "the session is here",
        "not needed so far",
        "on b1",
        "42 RPCs, 1 move",
        "served 3",
        "CDS 3",
        "waits for greeter-v2",
        "RPCs on greeter-eds",
    ],
)
def test_screen_has_every_value_of_the_view(shown: str) -> None:
    assert shown in without_padding(screen())


def test_backends_have_bars_unless_they_are_killed() -> None:
    lines = {line[9:11]: line for line in screen().splitlines() if line.startswith("│ zone ")}
    assert "killed" in lines["a1"]
    assert "█" not in lines["a1"]
    assert "█" * 10 in lines["b1"]
    assert " 151 " in lines["b1"]
    assert "killed" not in lines["c1"]


def test_screen_has_the_newest_part_of_the_history_at_every_width() -> None:
    history = (*(300.0 for _ in range(59)), 1.0)
    backends = tuple(replace(backend, history=history) for backend in VIEW.backends)
    for width in (90, 130, 400):
        lines = screen(width, backends=backends).splitlines()
        [line] = [line.partition("││")[0] for line in lines if line.startswith("│ zone b b1 ")]
        assert line.rstrip().endswith("█▁")


def test_missed_step_is_shown_with_the_observation() -> None:
    text = without_padding(screen(steps=(STEPS[0], MISSED_STEP, STEPS[2])))
    assert "✕ zone a is killed" in text
    assert "answered by no backend" in text


def test_stopped_control_plane_is_shown() -> None:
    away = replace(VIEW.generation, is_served=False)
    assert "control plane is away" in screen(generation=away)


def test_lines_are_cut_on_a_small_screen() -> None:
    lines = screen(width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert "0 failed" in lines[0]
    [line] = [line for line in lines if line.startswith("│ zone b b1 p1 ")]
    assert " 151 " in line


def test_terminal_is_restored_at_the_exit() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=130, height=32)
    with TerminalView(console) as terminal:
        terminal.show(VIEW)
    text = out.getvalue()
    assert "zone a is killed" in text
    assert text.index("\x1b[?1049h") < text.index("\x1b[?1049l"), "alternate screen on, then off"


def test_bars_and_sparklines_are_to_scale() -> None:
    assert bar(0.0, 4) == ""
    assert bar(0.5, 4) == "██"
    assert bar(0.55, 4) == "██▎"
    assert bar(7.0, 4) == "████"
    assert sparkline([0.0, 0.1, 50.0, 100.0, 120.0], 100.0) == " ▁▄██"
