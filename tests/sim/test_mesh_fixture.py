"""Does the fixture `mesh` work in a project that has nothing but pytest?"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

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

def test_without_a_story(mesh):
    assert mesh.hosts == {}
"""
BAD = """
from proxyless.sim import pause

def test_that_leaves_something_behind(mesh):
    async def story():
        mesh.loop.create_task(pause(1000.0))

    mesh.run(story())
"""


def run_pytest(directory: Path, text: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "proxyless.sim.pytest_plugin"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", "--mesh-seed", "7", "test_it.py"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_test_has_a_mesh_of_its_own(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, GOOD)
    assert "2 passed" in done.stdout, done.stdout


def test_a_test_that_leaves_something_behind_fails(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, BAD)
    assert "the world did not end well: a task: pause" in done.stdout, done.stdout
