"""Unit tests of proxyless.demo.terminal: everything in a view reaches the screen and the log."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from proxyless.demo.terminal import PlainLog, TerminalView, bar, render, sparkline
from proxyless.demo.view import SEEN, WAITING
from tests.unit.demo.views import MISSED_STEP, STEPS, VIEW

SUMMARY = "b1 151/s, b2 149/s; session on b1; CDS 3; 3 RPCs lost with their backend, 0 failed"


def screen(width: int = 130, **changes: object) -> str:
    console = Console(width=width, height=32, file=io.StringIO(), record=True)
    console.print(render(replace(VIEW, **changes), "http://127.0.0.1:8080/"))  # type: ignore[arg-type]
    return console.export_text()


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
        "42 RPCs, 1 moves",
        "served 3",
        "CDS 3",
        "waits for greeter-v2",
        "RPCs on greeter-eds",
    ],
)
def test_everything_in_the_view_is_on_the_screen(shown: str) -> None:
    assert shown in screen()


def test_backends_are_bars_unless_they_were_killed() -> None:
    lines = {line[9:11]: line for line in screen().splitlines() if line.startswith("│ zone ")}
    assert "killed" in lines["a1"]
    assert "█" not in lines["a1"]
    assert "█" * 10 in lines["b1"]
    assert " 151 " in lines["b1"]
    assert "killed" not in lines["c1"]


def test_the_newest_part_of_the_history_is_always_there() -> None:
    history = (*(300.0 for _ in range(59)), 1.0)
    backends = tuple(replace(backend, history=history) for backend in VIEW.backends)
    for width in (90, 130, 400):
        lines = screen(width, backends=backends).splitlines()
        [line] = [line.partition("││")[0] for line in lines if line.startswith("│ zone b b1 ")]
        assert line.rstrip().endswith("█▁")


def test_a_missed_step_says_what_was_there() -> None:
    text = screen(steps=(STEPS[0], MISSED_STEP, STEPS[2]))
    assert "✕ zone a is killed" in text
    assert "answered by nobody" in text


def test_a_control_plane_that_is_away_is_shown() -> None:
    away = replace(VIEW.generation, is_served=False)
    assert "control plane is away" in screen(generation=away)


def test_a_small_screen_is_cut_and_not_broken() -> None:
    lines = screen(width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert "0 failed" in lines[0]
    [line] = [line for line in lines if line.startswith("│ zone b b1 p1 ")]
    assert " 151 " in line


def test_the_terminal_is_given_back() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=130, height=32)
    with TerminalView(console) as terminal:
        terminal.show(VIEW)
    text = out.getvalue()
    assert "zone a is killed" in text
    assert text.index("\x1b[?1049h") < text.index("\x1b[?1049l"), "the other screen and back"


def test_bars_and_sparklines_are_to_scale() -> None:
    assert bar(0.0, 4) == ""
    assert bar(0.5, 4) == "██"
    assert bar(0.55, 4) == "██▎"
    assert bar(7.0, 4) == "████"
    assert sparkline([0.0, 0.1, 50.0, 100.0, 120.0], 100.0) == " ▁▄██"


def test_the_log_tells_each_thing_once() -> None:
    lines: list[str] = []
    log = PlainLog(lines.append)
    waiting = tuple(replace(step, state=WAITING, note="") for step in STEPS)
    log.show(replace(VIEW, steps=waiting))
    assert lines == []
    log.show(VIEW)
    log.show(VIEW)
    assert lines == [
        "  4.2 s  everything is well",
        "  4.2 s    seen at once: zone a answers",
        f"  4.2 s    {SUMMARY}",
        "  4.2 s  zone a is killed",
    ]
    del lines[:]
    running = replace(STEPS[1], note="0.3 s")
    log.show(replace(VIEW, steps=(STEPS[0], running, STEPS[2])))
    assert lines == ["  4.2 s    seen 0.3 s: zone b answers"]
    del lines[:]
    log.show(replace(VIEW, steps=(STEPS[0], replace(running, state=SEEN), STEPS[2])))
    assert [line[9:] for line in lines] == [f"  {SUMMARY}"]


def test_the_log_tells_what_was_missed() -> None:
    lines: list[str] = []
    PlainLog(lines.append).show(replace(VIEW, steps=(MISSED_STEP,)))
    assert [line[9:] for line in lines][:2] == [
        "zone a is killed",
        "  missed, got: answered by nobody",
    ]
