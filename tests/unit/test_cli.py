"""Unit tests of proxyless.cli: errors of output and arguments, which all commands share."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from proxyless.cli import COMMANDS, main
from proxyless.controlplane import CLUSTER

if TYPE_CHECKING:
    from pathlib import Path


def valid_file(directory: Path) -> str:
    path = directory / "valid.yaml"
    eds = "eds_cluster_config: {eds_config: {ads: {}}}"
    path.write_text(f'"@type": {CLUSTER}\nname: a\ntype: EDS\n{eds}\n')
    return str(path)


def test_a_valid_file_has_no_findings(tmp_path: Path) -> None:
    assert main(["lint", "--partial", valid_file(tmp_path)]) == 0


def test_every_command_has_a_help_text(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    for name, text in COMMANDS.items():
        assert re.search(rf"^    {name}\s+{text.split()[0]} ", printed, re.MULTILINE)


def test_commands_are_listed_when_none_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.search("^ +lint +report what ", printed.err, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_ends_with_its_exit_codes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    _, _, codes = capsys.readouterr().out.partition("\nexit codes:\n")
    assert codes.startswith("  0 ")
    assert "  2 " in codes


def test_a_closed_pipe_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with `proxyless lint mesh | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["lint", "--partial", valid_file(tmp_path)]) == 1
    assert capsys.readouterr().err == ""


def test_a_full_disk_is_an_error_of_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["lint", "--partial", valid_file(tmp_path)]) == 1
    assert capsys.readouterr().err == "proxyless: [Errno 28] No space left on device\n"


def test_an_unknown_option_is_an_error_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["lint", "x", "--partical"])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith("usage: proxyless lint ")
    assert printed.endswith("proxyless lint: error: unrecognized arguments: --partical\n")


@pytest.mark.parametrize("interrupted", ["lint.run", "cli.import_module"])
def test_an_interruption_prints_one_line_and_ends_by_the_signal(interrupted: str) -> None:
    """So that Ctrl-C also ends a shell's loop of commands."""
    script = (
        "from proxyless import cli\nfrom proxyless.cli import lint\n"
        "def interrupt(_):\n    raise KeyboardInterrupt\n"
        f"{interrupted} = interrupt\ncli.main(['lint', 'x'])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == "proxyless: interrupted\n"


def test_a_command_without_output_streams_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As with `>&-`."""
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["lint", str(tmp_path / "missing.yaml")]) == 1
    sys.stdout.close()


def test_errors_are_not_printed_on_standard_output_when_standard_error_is_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with `2>&-`."""
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["replay", str(tmp_path / "missing.jsonl")]) == 1
    sys.stderr.close()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_printed_when_the_output_is_ascii_only(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `LC_ALL=C`."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with pytest.raises(SystemExit):
        main([name, "--help"])
    sys.stdout.flush()
    assert written.getvalue().startswith(b"usage: ")


def test_characters_that_the_output_cannot_encode_are_escaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["lint", "gr\udcfc\u00df.yaml"]) == 1
    assert rb"gr\udcfc\xdf.yaml" in written.getvalue()
