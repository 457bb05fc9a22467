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


def test_plugin_imports_nothing_of_the_package() -> None:
    code = "import proxyless.pytest_plugin, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    ours = {name for name in loaded if name.partition(".")[0] == "proxyless"}
    assert ours == {"proxyless", "proxyless.pytest_plugin", "proxyless.version"}
    assert "grpc" not in loaded


def test_pytest_run_without_the_fixture_imports_nothing_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(UNRELATED_TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env={key: text for key, text in os.environ.items() if not key.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout
