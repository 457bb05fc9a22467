"""Unit tests of proxyless.pytest_plugin: its imports. The fixture is tested in tests/sim."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# A test of another project, in an environment where the plugin is installed.
UNRELATED_TEST = """
import sys

def test_nothing_is_imported(pytestconfig):
    assert pytestconfig.pluginmanager.hasplugin("proxyless_mesh")
    ours = {name for name in sys.modules if name.partition(".")[0] == "proxyless"}
    assert ours == {"proxyless", "proxyless.pytest_plugin", "proxyless.version"}
    assert "grpc" not in sys.modules
"""

# The same, in an environment where the plugin is installed from a wheel.
COMPILED_TEST = """
import proxyless.base
import proxyless.pytest_plugin

def test_modules_are_not_compiled_by_pytest(pytestconfig):
    hook = pytestconfig.pluginmanager.rewrite_hook
    # The plugin is imported before it can change anything.
    assert proxyless.pytest_plugin.__loader__ is hook
    assert proxyless.base.__loader__ is not hook
"""


def test_plugin_imports_nothing_of_the_package() -> None:
    code = "import proxyless.pytest_plugin, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    ours = {name for name in loaded if name.partition(".")[0] == "proxyless"}
    assert ours == {"proxyless", "proxyless.pytest_plugin", "proxyless.version"}
    assert "grpc" not in loaded


def test_pytest_run_without_the_fixture_imports_nothing_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(UNRELATED_TEST)
    assert "1 passed" in run_pytest(tmp_path)


def test_pytest_uses_the_bytecode_of_an_installed_package(tmp_path: Path) -> None:
    installed = tmp_path / "proxyless-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: proxyless\nVersion: 0\n")
    (installed / "RECORD").write_text("proxyless/__init__.py,,\n")
    (installed / "entry_points.txt").write_text(
        "[pytest11]\nproxyless_mesh = proxyless.pytest_plugin\n"
    )
    (tmp_path / "test_it.py").write_text(COMPILED_TEST)
    assert "1 passed" in run_pytest(tmp_path)


def run_pytest(directory: Path) -> str:
    """The output of pytest, run in this directory."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
        cwd=directory,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout
