"""Unit tests of proxyless.cli.serve without sockets. Others are in tests/interop."""

import json
import logging
from pathlib import Path

import pytest

from proxyless.cli import main
from proxyless.cli.serve import JsonFormatter
from proxyless.controlplane import CLUSTER

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
    text = f"proxyless serve: {tmp_path}: a.yaml[0].nam: line 4, column 1: there is no such field\n"
    assert captured.err == text


def test_bad_file_is_named_once_when_it_is_the_argument(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"{GOOD}nam: b\n")
    assert main(["serve", str(file), "--once-check"]) == 1
    text = f"proxyless serve: {file}[0].nam: line 4, column 1: there is no such field\n"
    assert capsys.readouterr().err == text


def test_each_bad_file_is_reported_on_its_own_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("[")
    (tmp_path / "b.yaml").write_text("x: 1")
    assert main(["serve", str(tmp_path), "--once-check"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"proxyless serve: {tmp_path}: a.yaml: line ")
    assert second.startswith(f"proxyless serve: {tmp_path}: b.yaml[0]: ")


def test_serve_takes_files_and_directories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mesh").mkdir()
    (tmp_path / "mesh" / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(GOOD.replace("name: a", "name: b"))
    paths = [str(tmp_path / "mesh"), str(tmp_path / "b.yaml")]
    assert main(["serve", *paths, "--once-check"]) == 0
    assert capsys.readouterr().out == "version 1: 2 clusters\n"


def test_serve_fails_before_listening_when_files_are_bad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path / "none")]) == 1
    assert "there is no such file or directory" in capsys.readouterr().err


def test_serve_fails_with_a_hint_when_there_is_nothing_to_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path)]) == 1
    text = f"proxyless serve: {tmp_path}: has no resources, wanted at least one or --allow-empty\n"
    assert capsys.readouterr().err == text
    assert main(["serve", str(tmp_path), "--once-check", "--allow-empty"]) == 0


@pytest.mark.parametrize(
    "options",
    [["--tls-cert", "a.pem"], ["--tls-key", "a.pem"], ["--tls-client-ca", "a.pem"]],
    ids=lambda options: str(options[0]),
)
def test_incomplete_tls_options_exit_with_2(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", str(tmp_path), *options])
    assert caught.value.code == 2
    assert "--tls-cert and --tls-key" in capsys.readouterr().err


def test_missing_certificate_is_1_with_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    files = ("--tls-cert", str(tmp_path / "no.pem"), "--tls-key", str(tmp_path / "no.key"))
    assert main(["serve", str(tmp_path), *files]) == 1
    assert "no.key" in capsys.readouterr().err


def test_json_log_has_one_object_per_record() -> None:
    record = logging.LogRecord("proxyless.serve", logging.INFO, "", 1, "a\n%s", ("\x1b[31m",), None)
    record.created = 0.5
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.500+00:00",
        "level": "INFO",
        "logger": "proxyless.serve",
        "message": "a \\x1b[31m",
    }


def test_reason_of_a_failed_start_is_in_the_json_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path), "-o", "json"]) == 1
    [record] = caplog.records
    assert record.levelname == "CRITICAL"
    assert record.getMessage().endswith("has no resources, wanted at least one or --allow-empty")
    assert "proxyless serve:" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["serve"], ["serve", ".", "--no-such"], ["no-such"]])
def test_invalid_command_line_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
