"""The fixture `proxyless_mesh` in a project without other pytest plugins."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CONFTEST = "from proxyless.pytest_plugin import proxyless_mesh as mesh\n"
GOOD = """
from proxyless.controlplane import simple_mesh
from proxyless.sim import UNARY

def test_one_rpc(mesh):
    backend = mesh.backend("web-1")
    mesh.control_plane("control", simple_mesh("api", {"web": [str(backend.address)]}))

    async def story():
        channel = mesh.client("shop").channel("xds:///api")
        return await channel.unary_unary(UNARY)(b"", timeout=5.0)

    assert mesh.run(story(), virtual_seconds=60.0) == b"web-1"
    assert mesh.seed == 7

def test_without_a_story(proxyless_mesh):
    assert proxyless_mesh.hosts == {}
"""
BAD = """
from proxyless.sim import pause

def test_that_leaves_something_behind(mesh):
    async def story():
        mesh.loop.create_task(pause(1000.0))

    mesh.run(story())
"""


def run_pytest(directory: Path, text: str) -> subprocess.CompletedProcess[str]:
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "proxyless.pytest_plugin"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", "--mesh-seed", "7", "test_it.py"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_test_has_its_own_mesh_by_both_names(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, GOOD)
    assert "2 passed" in done.stdout, done.stdout


def test_fixture_fails_a_test_that_leaves_a_task(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, BAD)
    assert "the world did not end well: a task: pause" in done.stdout, done.stdout
