"""Unit tests of proxyless.cli.output."""

from __future__ import annotations

import io
import sys

import pytest

from proxyless.cli.output import apply_color, print_json, print_table, uses_color


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


@pytest.mark.parametrize(
    ("variables", "is_terminal", "wanted"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
    ],
)
def test_colours_are_for_terminals_unless_variables_differ(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_terminal: bool, wanted: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", **variables}.items():
        monkeypatch.setenv(name, value)
    file = Terminal() if is_terminal else io.StringIO()
    assert uses_color(file) is wanted
    # A pipe with colours still has one line per row.
    monkeypatch.setattr(sys, "stdout", file)
    print_table(("name", "what"), [("bad", "x" * 300)], styles={"bad": "red"})
    assert ("\x1b[31m" in file.getvalue()) is wanted
    assert is_terminal or "x" * 300 in file.getvalue()


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("auto", {"NO_COLOR": "a", "FORCE_COLOR": "b"}),
        ("always", {"FORCE_COLOR": "1"}),
        ("never", {"NO_COLOR": "1"}),
    ],
)
def test_color_option_has_precedence_over_variables(choice: str, wanted: dict[str, str]) -> None:
    environ = {"NO_COLOR": "a", "FORCE_COLOR": "b"}
    apply_color(choice, environ)
    assert environ == wanted


@pytest.mark.parametrize(("columns", "is_folded"), [("60", True), ("40", False)])
def test_table_on_a_narrow_terminal_is_not_folded(
    monkeypatch: pytest.MonkeyPatch, columns: str, is_folded: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    words = " ".join(["word"] * 20)
    print_table(("a", "b", "what"), [("x", "y", words)])
    assert (words in terminal.getvalue()) is not is_folded
    # A table that fits is printed as a table.
    print_table(("a", "b", "what"), [("x", "y", "short")])
    assert terminal.getvalue().splitlines()[-2:] == ["A  B  WHAT ", "x  y  short"]


def test_cell_may_have_a_style_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_table(("a", "b"), [(("5", "red"), "5")], styles={"x": "green"})
    assert capsys.readouterr().out.splitlines()[1] == "\x1b[31m5\x1b[0m  5"


def test_json_keeps_order_and_non_ascii_letters(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"b": "→", "a": 1})
    assert capsys.readouterr().out == '{\n  "b": "→",\n  "a": 1\n}\n'
