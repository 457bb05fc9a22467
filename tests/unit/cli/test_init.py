"""Unit tests of proxyless.cli.init."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from typing import TYPE_CHECKING

from proxyless.base import Status
from proxyless.cli import main
from proxyless.controlplane.short_form import short_form_schema
from proxyless.xds.bootstrap import load_bootstrap

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_mesh_is_valid_and_survives_the_outage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "new" / "shop"
    assert main(["init", str(directory)]) == 0
    out = capsys.readouterr().out
    mesh, script = str(directory / "mesh"), str(directory / "outage.yaml")
    assert f"wrote {mesh}/orders.yaml" in out
    assert main(["lint", mesh, "--strict"]) == 0
    assert main(["simulate", mesh, "--script", script]) == 0


def test_bootstrap_has_the_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path), "--listen", "127.0.0.1:19000"]) == 0
    bootstrap = load_bootstrap(str(tmp_path / "bootstrap.json"), {})
    assert not isinstance(bootstrap, Status)
    assert bootstrap.servers[0].uri == "127.0.0.1:19000"
    assert "proxyless serve mesh --listen 127.0.0.1:19000" in capsys.readouterr().out


def test_programs_parse_and_the_schema_is_ours(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path)]) == 0
    for name in ("backends.py", "client.py"):
        assert ast.get_docstring(ast.parse((tmp_path / name).read_text()))
    schema = json.loads((tmp_path / "short-form.schema.json").read_text())
    assert schema == short_form_schema()
    assert "$schema=../short-form.schema.json" in (tmp_path / "mesh" / "orders.yaml").read_text()


def test_unknown_backend_is_an_error_of_one_line(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path)]) == 0
    command = [sys.executable, str(tmp_path / "backends.py"), "a", "d"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "names are ['a', 'd'], wanted some of ['a', 'b', 'canary']\n"


def test_nothing_is_written_if_a_file_exists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "client.py").write_text("mine")
    assert main(["init", str(tmp_path)]) == 1
    assert f"{tmp_path}/client.py exists, wanted a new file" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["client.py"]


def test_directory_that_is_a_file_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["init", str(tmp_path / "file")]) == 1
    assert "cannot be written" in capsys.readouterr().err
