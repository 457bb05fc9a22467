"""Unit tests of proxyless.cli.serve: what needs no socket. The rest is in tests/interop."""

import logging
from pathlib import Path

import pytest

from proxyless.base import Event
from proxyless.cli import main
from proxyless.cli.serve import _log_event
from proxyless.controlplane import CLUSTER, Nack

GOOD = f'"@type": {CLUSTER}\nname: a\ntype: STATIC\n'


def test_good_files_are_checked_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    assert main(["serve", str(tmp_path), "--once-check"]) == 0
    assert capsys.readouterr().out == "version 1: 1 cluster\n"


def test_bad_files_fail_with_their_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(f"{GOOD}nam: b\n")
    assert main(["serve", str(tmp_path), "--once-check"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "field:a.yaml[0].nam error:there is no such field" in captured.err


def test_serving_bad_files_fails_before_a_port_is_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path / "none")]) == 1
    assert "there is no such directory" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["serve"], ["serve", ".", "--no-such"], ["no-such"]])
def test_a_command_line_that_makes_no_sense_is_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_a_refusal_is_logged_with_its_text(caplog: pytest.LogCaptureFixture) -> None:
    nack = Nack("edge-7", CLUSTER, "2", 3, "bad policy")
    with caplog.at_level(logging.INFO, "proxyless.serve"):
        _log_event(Event("controlplane.nack", {"nack": nack}))
        fields = {"node_id": "edge-7", "type_url": CLUSTER, "version": "2"}
        _log_event(Event("controlplane.ack", fields))
        _log_event(Event("controlplane.response", fields))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "xds node 'edge-7': cluster version '2' refused: bad policy"),
        ("INFO", "xds node 'edge-7': cluster version '2' accepted"),
    ]
