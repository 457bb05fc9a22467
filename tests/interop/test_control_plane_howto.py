"""Does Envoy take the config that docs/howto/control-plane.md shows? tests/docs runs the rest."""

import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import parse_page
from tests.interop.mesh_world import ROOT
from tests.transport_world import PATIENCE_S
from tools.envoy_env import CannotInstallError, find_envoy

PAGE = "docs/howto/control-plane.md"


@pytest.mark.timeout(360)
def test_envoy_takes_its_config(tmp_path: Path) -> None:
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
