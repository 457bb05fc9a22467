"""Envoy accepts the config of docs/howto/control-plane.md; tests/docs runs the rest of the page."""

import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import parse_page
from tests.worlds.grpcio_peers import ROOT
from tests.worlds.transports import PATIENCE_S
from tools.envoy_env import CannotInstallError, find_envoy

PAGE = "docs/howto/control-plane.md"


@pytest.mark.timeout(360)
def test_envoy_accepts_the_config(tmp_path: Path) -> None:
    try:
        binary = find_envoy()
    except CannotInstallError as error:
        pytest.skip(str(error))
    blocks = parse_page(PAGE, (ROOT / PAGE).read_text())
    [config] = [block.text for block in blocks if "dynamic_resources:" in block.text]
    (tmp_path / "envoy.yaml").write_text(config)
    command = [str(binary), "--mode", "validate", "-c", str(tmp_path / "envoy.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
