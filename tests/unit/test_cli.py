"""Unit tests of proxyless.cli: what every command does when it cannot say what it wants to."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

import pytest

from proxyless import cli
from proxyless.cli import COMMANDS, lint, main
from proxyless.controlplane import CLUSTER

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def good_file(directory: Path) -> str:
    path = directory / "good.yaml"
    eds = "eds_cluster_config: {eds_config: {ads: {}}}"
    path.write_text(f'"@type": {CLUSTER}\nname: a\ntype: EDS\n{eds}\n')
    return str(path)


def test_a_good_file_is_good(tmp_path: Path) -> None:
    assert main(["lint", "--partial", good_file(tmp_path)]) == 0


def test_every_command_says_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert all(f"    {name} " in said for name in COMMANDS)


def test_a_reader_who_has_read_enough_is_not_told_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `proxyless lint mesh | head -1` does."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["lint", "--partial", good_file(tmp_path)]) == 1
    assert capsys.readouterr().err == ""


def test_a_full_disk_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["lint", "--partial", good_file(tmp_path)]) == 1
    assert capsys.readouterr().err == "proxyless: [Errno 28] No space left on device\n"


def test_an_option_that_is_mistyped_is_told_in_the_words_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["lint", "x", "--partical"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: proxyless lint ")
    assert said.endswith("proxyless lint: error: unrecognized arguments: --partical\n")


def test_an_interruption_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_parsed: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(lint, "run", interrupt)
    assert main(["lint", "x"]) == 1
    assert capsys.readouterr().err == "proxyless: interrupted\n"


def test_an_interruption_while_a_command_is_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "import_module", interrupt)
    assert main(["lint", "x"]) == 1
    assert capsys.readouterr().err == "proxyless: interrupted\n"


def test_nothing_is_said_where_there_is_no_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As with `>&-`."""
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["lint", str(tmp_path / "missing.yaml")]) == 1
    sys.stdout.close()


def test_letters_that_the_output_does_not_have_are_written_in_another_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["lint", "gr\udcfc\u00df.yaml"]) == 1
    assert rb"gr\udcfc\xdf.yaml" in written.getvalue()
