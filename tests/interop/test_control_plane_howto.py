"""Does everything that docs/howto/control-plane.md shows work?"""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxyless.cli import main
from tests.interop.mesh_world import ROOT, backends
from tests.transport_world import PATIENCE_S
from tools.envoy_env import CannotInstallError, find_envoy

PAGE = ROOT / "docs" / "howto" / "control-plane.md"

# grpcio reads its bootstrap config once per process.
SCRIPT = """
import asyncio, json, os, sys
import grpc.aio

def channel_to(target, bootstrap):
    os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = json.dumps(bootstrap)
    return grpc.aio.insecure_channel(target)

answers = asyncio.run(try_it(channel_to, sys.argv[1], sys.argv[2]))
print([answer.decode() for answer in answers])
"""


def blocks(language: str) -> Iterator[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"the page shows no {language}"
    return iter(found)


async def test_the_python_code_runs(tmp_path: Path) -> None:
    script = tmp_path / "shop.py"
    script.write_text("\n".join([*blocks("python"), SCRIPT]))
    async with backends("cart", "web") as (cart, web):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(script), cart.address, web.address),
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE_S):
            said, _ = await process.communicate()
    assert json.loads(said.decode().replace("'", '"')) == ["cart", "web"]


def test_the_files_are_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shop.yaml").write_text(next(blocks("yaml")))
    assert main(["serve", str(tmp_path), "--once-check"]) == 0
    # What the page shows is what is said.
    assert capsys.readouterr().out in PAGE.read_text()


@pytest.mark.timeout(360)
def test_envoy_takes_its_config(tmp_path: Path) -> None:
    try:
        binary = find_envoy()
    except CannotInstallError as error:
        pytest.skip(str(error))
    _, config = blocks("yaml")
    (tmp_path / "envoy.yaml").write_text(config)
    command = [str(binary), "--mode", "validate", "-c", str(tmp_path / "envoy.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
