"""Unit tests of proxyless.cli.progress."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from proxyless.cli.progress import Progress

if TYPE_CHECKING:
    import pytest


class FakeTerminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def show(file: io.StringIO, *texts: str) -> str:
    with Progress(file) as progress:
        for text in texts:
            progress.show(text)
    return file.getvalue()


def test_pipe_gets_one_line_per_text_that_differs_in_more_than_numbers() -> None:
    shown = show(io.StringIO(), "a: 14.9 s left", "a: 14.8 s left", "b", "b", "a: 3 s left")
    assert shown == "a: 14.9 s left\nb\na: 3 s left\n"


def test_terminal_gets_one_line_that_is_erased_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    shown = show(FakeTerminal(), "first", "x" * 30)
    assert shown == f"\r\x1b[Kfirst\r\x1b[K{'x' * 19}\r\x1b[K"


def test_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert show(FakeTerminal(), "first", "second") == "first\nsecond\n"


def test_text_is_escaped() -> None:
    assert show(io.StringIO(), "a\x1b[2J") == "a\\x1b[2J\n"
