"""Unit tests of proxyless.cli.replay."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from proxyless.cli import main
from proxyless.observe.flight import Entry
from proxyless.observe.flight.recording import RESOURCE_EVENT, write_lines
from tests.worlds.bad_days import bad_day

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return bad_day()


@pytest.fixture
def file(tmp_path: Path, lines: list[str]) -> Path:
    path = tmp_path / "flight.jsonl"
    path.write_text("".join(lines))
    return path


def test_timeline_and_verdict_are_printed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(file)]) == 0
    output = capsys.readouterr().out.splitlines()
    assert "+0.000 s  channel.state target=xds:///api state=CONNECTING" in output[0]
    assert any('resource endpoints "web", version "1"' in line for line in output)
    assert any("rpc" in line and "status=UNAVAILABLE" in line for line in output)
    assert not any("status=OK" in line and " rpc " in line for line in output)
    assert output[-1].startswith("the same decisions; ")


def test_different_decisions_are_a_failure(
    file: Path, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [line for line in lines if f'"event": "{RESOURCE_EVENT}"' in line]
    file.write_text("".join(line for line in lines if line is not changes[-1]))
    assert main(["replay", "--no-timeline", str(file)]) == 1
    output = capsys.readouterr().out
    assert "different decisions" in output
    assert "+" not in output.splitlines()[0]


def test_json_has_entries_and_comparison(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "-o", "json", str(file)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["replay"]["is_same"]
    assert document["header"]["format"] == "proxyless.flight"
    assert document["entries"][0]["event"] == "channel.state"


def test_recording_without_resources_is_shown_and_not_re_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "flight.jsonl"
    entry = Entry(1, 0.0, 1, "dns.answer", {"host": "\x1b[31m", "endpoints": ["10.0.0.1:80"]})
    path.write_text("".join(write_lines({}, [entry], 0)))
    assert main(["replay", str(path)]) == 0
    output = capsys.readouterr().out
    assert r"dns.answer host=\x1b[31m endpoints=[10.0.0.1:80]" in output
    assert "not re-run: it has no resources" in output


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "line 1: not JSON"),
        (b"\xff", "is not UTF-8 at byte 0"),
        (b'{"format": "proxyless.flight", "version": 9}', "version is 9, wanted 1"),
    ],
)
def test_file_that_is_no_recording_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, problem: str
) -> None:
    path = tmp_path / "flight.jsonl"
    path.write_bytes(content)
    assert main(["replay", str(path)]) == 1
    assert problem in capsys.readouterr().err


def test_missing_file_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "/nowhere/flight.jsonl"]) == 1
    wanted = "proxyless replay: /nowhere/flight.jsonl: cannot be read: No such file or directory"
    assert capsys.readouterr().err.splitlines() == [wanted]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--no-timeline", "--rpcs"], "--rpcs: has no effect with --no-timeline"),
        (["--no-timeline", "--no-rerun"], "--no-rerun: has no effect with --no-timeline"),
        (["--no-rerun", "--seed", "1"], "--seed: has no effect with --no-rerun"),
        (["-o", "json", "--rpcs"], "--rpcs: has no effect with -o json"),
    ],
)
def test_option_without_effect_is_a_usage_error(
    options: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as info:
        main(["replay", "flight.jsonl", *options])
    assert info.value.code == 2
    assert text in capsys.readouterr().err
