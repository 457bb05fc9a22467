"""Unit tests of proxyless.cli.serve without sockets. Others are in tests/interop."""

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from proxyless.base import Event, ValidationError
from proxyless.cli import main
from proxyless.cli.serve import _load, _log_event
from proxyless.controlplane import CLUSTER, FileSource, Nack
from proxyless.controlplane import files as files_module
from proxyless.runtime import VirtualClock

GOOD = f'"@type": {CLUSTER}\nname: a\ntype: STATIC\n'


def test_once_check_prints_the_number_of_resources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    assert main(["serve", str(tmp_path), "--once-check"]) == 0
    assert capsys.readouterr().out == "version 1: 1 cluster\n"


def test_bad_file_is_reported_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(f"{GOOD}nam: b\n")
    assert main(["serve", str(tmp_path), "--once-check"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    text = f"proxyless serve: {tmp_path}: a.yaml[0].nam: there is no such field\n"
    assert captured.err == text


def test_each_bad_file_is_reported_on_its_own_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("[")
    (tmp_path / "b.yaml").write_text("x: 1")
    assert main(["serve", str(tmp_path), "--once-check"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"proxyless serve: {tmp_path}: a.yaml: line ")
    assert second.startswith(f"proxyless serve: {tmp_path}: b.yaml[0]: ")


def test_serve_fails_for_a_file_instead_of_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(GOOD)
    assert main(["serve", str(file), "--once-check"]) == 1
    assert capsys.readouterr().err == f"proxyless serve: {file}: is no directory\n"


def test_serve_fails_before_listening_when_files_are_bad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path / "none")]) == 1
    assert "there is no such directory" in capsys.readouterr().err


async def test_load_returns_none_when_stopped_while_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    loop = asyncio.get_running_loop()
    is_reading, go_on, stopped = asyncio.Event(), threading.Event(), asyncio.Event()

    def read_for_ever(_path: Path, _errors: object) -> str:
        loop.call_soon_threadsafe(is_reading.set)
        go_on.wait()
        return ""

    monkeypatch.setattr(files_module, "read_bounded", read_for_ever)
    source = FileSource(
        tmp_path, VirtualClock(), on_snapshot=lambda _: None, on_problem=lambda _: None
    )
    loading = asyncio.ensure_future(_load(source, stopped))
    await is_reading.wait()
    stopped.set()
    assert await loading is None
    go_on.set()


async def test_load_returns_the_snapshot_or_raises(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    source = FileSource(
        tmp_path, VirtualClock(), on_snapshot=lambda _: None, on_problem=lambda _: None
    )
    snapshot = await _load(source, asyncio.Event())
    assert snapshot is source.snapshot is not None
    (tmp_path / "b.yaml").write_text(GOOD)
    with pytest.raises(ValidationError, match="is there already"):
        await _load(source, asyncio.Event())


@pytest.mark.parametrize("arguments", [[], ["serve"], ["serve", ".", "--no-such"], ["no-such"]])
def test_invalid_command_line_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_nack_is_logged_with_its_text(caplog: pytest.LogCaptureFixture) -> None:
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
