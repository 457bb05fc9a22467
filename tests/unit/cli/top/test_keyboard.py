"""Unit tests of proxyless.cli.top.keyboard, on a pseudo-terminal."""

from __future__ import annotations

import io
import os
import pty
import sys
import termios
from typing import TYPE_CHECKING

from proxyless.cli.top.keyboard import Keyboard
from tests.worlds.transports import until

if TYPE_CHECKING:
    import pytest


async def test_keys_are_read_without_a_line_break_and_the_terminal_is_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, slave = pty.openpty()
    keys: list[str] = []
    with os.fdopen(slave) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        before = termios.tcgetattr(terminal)
        with Keyboard(keys.append):
            assert termios.tcgetattr(terminal) != before
            os.write(master, b"j\x1b[A")
            await until(lambda: keys == ["down", "up"], "the keys")
        assert termios.tcgetattr(terminal) == before
    os.close(master)


async def test_closed_terminal_is_the_key_that_quits(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    keys: list[str] = []
    with os.fdopen(slave) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        with Keyboard(keys.append):
            os.close(master)
            await until(lambda: keys == ["quit"], "the end")


async def test_pipe_has_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("q"))
    keys: list[str] = []
    with Keyboard(keys.append):
        pass
    assert keys == []
