"""Unit tests of proxyless.cli.top.command with a fake process. Others are in tests/e2e."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from proxyless.cli import main
from proxyless.cli.top import command
from proxyless.cli.top.sources import SourceError
from tests.unit.cli.top.process_samples import make_sample

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from proxyless.cli.top.samples import Sample


class EndOfScriptError(Exception):
    """There are no more samples."""


class FakeSource:
    """The given samples and errors, then `EndOfScriptError`."""

    script: tuple[Sample | Exception, ...] = ()

    def __init__(self, *_: object) -> None:
        self._script = list(self.script)

    async def samples(self) -> AsyncIterator[Sample]:
        while self._script:
            each = self._script.pop(0)
            if isinstance(each, Exception):
                raise each
            yield each

    async def pause(self) -> None:
        if not self._script:
            raise EndOfScriptError


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> type[FakeSource]:
    monkeypatch.setattr(command, "ProcessSource", FakeSource)
    monkeypatch.setattr(command, "call_on_termination", lambda *_: None)
    return FakeSource


def test_once_prints_the_rates_between_two_samples(
    script: type[FakeSource], capsys: pytest.CaptureFixture[str]
) -> None:
    script.script = (make_sample(0, 10.0), make_sample(50, 11.0))
    assert main(["top", "h:1", "--once"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].split()[:5] == [
        *("xds:///api", "web", "10.0.0.1:80", "READY", "50")
    ]
    assert captured.err == ""


def test_once_needs_one_sample_if_there_are_no_counts(
    script: type[FakeSource], capsys: pytest.CaptureFixture[str]
) -> None:
    script.script = (replace(make_sample(), channels=(), notes=("a note",)),)
    assert main(["top", "h:1", "--once", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == ["a note"]
    script.script = (replace(make_sample(), channels=(), notes=("a note",)),)
    assert main(["top", "h:1", "--once"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("no channel is there\n", "proxyless top: a note\n")


def test_lines_go_on_after_an_error_and_repeat_no_notes(
    script: type[FakeSource], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = (
        replace(make_sample(number, float(number)), notes=("a note",)) for number in (1, 2, 3)
    )
    script.script = (first, second, SourceError("it is gone"), third)
    with pytest.raises(EndOfScriptError):
        main(["top", "h:1"])
    captured = capsys.readouterr()
    assert captured.out.count("TARGET") == 3
    assert captured.err.splitlines()[:2] == [
        "proxyless top: a note",
        "proxyless top: no answer, trying again: it is gone",
    ]


def test_first_error_ends_the_command(
    script: type[FakeSource], capsys: pytest.CaptureFixture[str]
) -> None:
    script.script = (SourceError("it is gone"),)
    assert main(["top", "h:1"]) == 1
    assert capsys.readouterr().err == "proxyless top: it is gone\n"


def test_port_of_the_page_in_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["top", "127.0.0.1:1", "--web", "--port", str(port)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    wanted = f"proxyless top: page cannot be served at 'http://127.0.0.1:{port}/': address in use"
    assert line.startswith(wanted)
