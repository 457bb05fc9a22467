"""The example of `proxyless simulate`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from proxyless.cli import main

if TYPE_CHECKING:
    import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "simulate"


def test_bad_day_script_holds(capsys: pytest.CaptureFixture[str]) -> None:
    script = str(EXAMPLE / "bad-day.yaml")
    assert main(["simulate", str(EXAMPLE / "mesh"), "--script", script]) == 0
    out = capsys.readouterr().out
    assert "0:30.000  kill zone a (2 of 4 endpoints)" in out
    assert "1:30.000  push next" in out
    assert "held     only zones b, from 0:31 to 0:50" in out
    assert "missed" not in out
    assert "2400 RPCs, 0 failed" in out


def test_silent_zone_script_holds_only_with_keepalive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = EXAMPLE / "silent-zone.yaml"
    assert main(["simulate", str(EXAMPLE / "mesh"), "--script", str(path)]) == 1
    assert "missed   failover within 20 s" in capsys.readouterr().out
    with_keepalive = tmp_path / "script.yaml"
    with_keepalive.write_text(path.read_text().replace("# options:", "options:"))
    assert main(["simulate", str(EXAMPLE / "mesh"), "--script", str(with_keepalive)]) == 0
    assert "held     failover within 20 s" in capsys.readouterr().out


def test_output_is_the_same_in_every_process() -> None:
    command = ["simulate", str(EXAMPLE / "mesh"), "--script", str(EXAMPLE / "bad-day.yaml")]
    outputs = {
        subprocess.run(
            [sys.executable, "-m", "proxyless", *command, "-o", "json"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1
