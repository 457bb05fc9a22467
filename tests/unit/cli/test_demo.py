"""Unit tests of proxyless.cli.demo: arguments, output and exit codes. tests/e2e has real runs."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import pytest

from proxyless.cli import demo, main
from proxyless.demo.verdict import Row, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.demo.play import Viewer
    from proxyless.demo.stage import Settings

GOOD = Verdict((Row("tear", "none"),))
BAD = Verdict((Row("tear", "none"), Row("RPCs failed", "3 INTERNAL", is_good=False)))


def pretend(monkeypatch: pytest.MonkeyPatch, outcome: Verdict | Exception) -> list[Settings]:
    """Replace the run by its outcome; returns the list of the settings used."""
    used: list[Settings] = []

    async def run_demo(settings: Settings, _viewers: Sequence[Viewer]) -> Verdict:
        used.append(settings)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(demo, "run_demo", run_demo)
    return used


@pytest.mark.parametrize(
    "arguments", [["--speed", "0"], ["--speed", "11"], ["--speed", "x"], ["--bad-backend", "z9"]]
)
def test_invalid_command_line_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["demo", *arguments])
    assert caught.value.code == 2


def test_good_verdict_exits_with_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = pretend(monkeypatch, GOOD)
    assert main(["demo", "--speed", "2", "--bad-backend", "c2"]) == 0
    assert [(each.speed, each.bad_backend) for each in settings] == [(2.0, "c2")]
    assert capsys.readouterr().out.splitlines()[2:] == ["good  tear  none"]


def test_bad_verdict_exits_with_1_and_shows_the_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, BAD)
    assert main(["demo"]) == 1
    assert "bad   RPCs failed  3 INTERNAL" in capsys.readouterr().out.splitlines()


def test_standard_output_has_only_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, BAD)
    assert main(["demo", "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["good"] is False
    assert [row["good"] for row in document["rows"]] == [True, False]


@pytest.mark.parametrize("is_in_a_group", [False, True])
def test_backend_that_cannot_be_started_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_in_a_group: bool
) -> None:
    error = OSError("backend 'a1' ended with 1 before it listened")
    pretend(monkeypatch, ExceptionGroup("tasks", [error]) if is_in_a_group else error)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err.splitlines() == [f"proxyless demo: {error}"]


def test_closed_pipe_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = ExceptionGroup("of a task group", [BrokenPipeError("the reader is gone")])
    pretend(monkeypatch, gone)
    parser = argparse.ArgumentParser()
    demo.fill_parser(parser)
    parser.set_defaults(parser=parser)
    # All commands end a broken pipe in the same way.
    with pytest.raises(BrokenPipeError):
        demo.run(parser.parse_args(["--plain"]))
    assert capsys.readouterr().err == ""
