"""Unit tests of proxyless.__main__: `python -m proxyless`, and commands without the extra `cli`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from proxyless.controlplane import simple_mesh
from proxyless.version import __version__
from tests.mesh_files import write_resources

if TYPE_CHECKING:
    from pathlib import Path

# None in `sys.modules` makes the import fail as if the package were not installed.
WITHOUT_EXTRA = """
import runpy, sys
sys.modules["rich"] = sys.modules["yaml"] = None
sys.argv[0] = "proxyless"
runpy.run_module("proxyless", run_name="__main__")
"""


def run(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    command = ["-c", code] if code else ["-m", "proxyless"]
    return subprocess.run(
        [sys.executable, *command, *arguments], capture_output=True, text=True, check=False
    )


def run_without_extra(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run(*arguments, code=WITHOUT_EXTRA)


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    write_resources(tmp_path / "mesh.json", simple_mesh("api", {"a": ["127.0.0.1:1"]}))
    return tmp_path


def test_python_m_runs_the_command_line() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"proxyless {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "package"),
    [
        (("lint", "mesh.json"), "rich"),
        (("simulate", "mesh.json"), "rich"),
        (("demo", "--plain"), "rich"),
        (("lint", "-o", "json", "mesh.yaml"), "PyYAML"),
        (("explain", "s/m", "--config", "mesh.yaml", "--target", "xds:///api"), "PyYAML"),
        (("simulate", "mesh.json", "--script", "script.yaml", "-o", "json"), "PyYAML"),
        (("serve", ".", "--once-check"), "PyYAML"),
    ],
    ids=lambda given: "-".join(given[:1]) if isinstance(given, tuple) else given,
)
def test_command_without_its_package_is_one_line_and_exit_code_2(
    mesh: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], package: str
) -> None:
    (mesh / "mesh.yaml").write_text("[]\n")
    (mesh / "script.yaml").write_text("{}\n")
    monkeypatch.chdir(mesh)
    done = run_without_extra(*arguments)
    wanted = "pip install 'proxyless[cli]'"
    assert done.stderr == f"proxyless: {package} is not installed, wanted: {wanted}\n"
    assert done.returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("demo", "--help"),
        ("lint", "-o", "json", "mesh.json"),
        ("explain", "s/m", "--config", "mesh.json", "--target", "xds:///api"),
        ("simulate", "-o", "json", "mesh.json", "--duration", "1s"),
        ("serve", ".", "--once-check"),
    ],
    ids=lambda given: given[0],
)
def test_command_that_needs_neither_package_works_without_them(
    mesh: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(mesh)
    done = run_without_extra(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
