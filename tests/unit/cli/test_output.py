"""Unit tests of proxyless.cli.output."""

from __future__ import annotations

import io
import sys

import pytest

from proxyless.cli.output import print_json, print_table


class Terminal(io.StringIO):
    """A stream whose `isatty` is true."""

    def isatty(self) -> bool:
        return True


def test_table_in_a_pipe_has_one_line_per_row_without_padding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("name", "what"), [("a", "x" * 300), ("bb", "[red]short[/red]")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME  WHAT",
        f"a     {'x' * 300}",
        # Text that looks like markup is printed unchanged.
        "bb    [red]short[/red]",
    ]


@pytest.mark.parametrize(("no_color", "has_color"), [(None, True), ("1", False)])
def test_table_on_a_terminal_has_colours_unless_no_color_is_set(
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
def test_table_on_a_narrow_terminal_is_not_folded(
    monkeypatch: pytest.MonkeyPatch, columns: str, is_folded: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    words = " ".join(["word"] * 20)
    print_table(("a", "b", "what"), [("x", "y", words)])
    assert (words in terminal.getvalue()) is not is_folded
    # A table that fits is printed as a table.
    print_table(("a", "b", "what"), [("x", "y", "short")])
    assert terminal.getvalue().splitlines()[-2:] == ["A  B  WHAT ", "x  y  short"]


def test_json_keeps_order_and_non_ascii_letters(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"b": "→", "a": 1})
    assert capsys.readouterr().out == '{\n  "b": "→",\n  "a": 1\n}\n'
