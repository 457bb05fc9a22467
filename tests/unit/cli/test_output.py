"""Unit tests of proxyless.cli.output."""

from __future__ import annotations

import io
import sys

import pytest

from proxyless.cli.output import print_json, print_table


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_one_line_per_row_without_padding(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "what"), [("a", "x" * 300), ("bb", "[red]short[/red]")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME  WHAT",
        f"a     {'x' * 300}",
        # What looks like markup is what somebody called it.
        "bb    [red]short[/red]",
    ]


@pytest.mark.parametrize(("no_color", "has_color"), [(None, True), ("1", False)])
def test_a_terminal_gets_colours_unless_it_has_no_color(
    monkeypatch: pytest.MonkeyPatch, no_color: str | None, has_color: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    print_table(("name",), [("bad",)], styles={"bad": "red"})
    assert ("\x1b[31m" in terminal.getvalue()) is has_color
    assert ("\x1b" in terminal.getvalue()) is has_color
    assert "bad" in terminal.getvalue()


@pytest.mark.parametrize(("columns", "is_folded"), [("60", True), ("40", False)])
def test_a_terminal_that_is_too_narrow_for_columns_gets_lines(
    monkeypatch: pytest.MonkeyPatch, columns: str, is_folded: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    words = " ".join(["word"] * 20)
    print_table(("a", "b", "what"), [("x", "y", words)])
    assert (words in terminal.getvalue()) is not is_folded
    # What fits is a table in any terminal.
    print_table(("a", "b", "what"), [("x", "y", "short")])
    assert terminal.getvalue().splitlines()[-2:] == ["A  B  WHAT ", "x  y  short"]


def test_json_keeps_order_and_letters(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"b": "→", "a": 1})
    assert capsys.readouterr().out == '{\n  "b": "→",\n  "a": 1\n}\n'
