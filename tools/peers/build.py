"""Installation of suites into build/peers: Go modules, packages from PyPI, generated code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent.parent
BUILD: Final = ROOT / "build" / "peers"
# The first download and build of a module takes minutes.
_INSTALL_TIMEOUT_S: Final = 1200


class UnavailableError(Exception):
    """A suite is not available on this machine; the text has the reason."""


def install_go_command(package: str, version: str, name: str) -> Path:
    """Build a command of a Go module, unless this version exists."""
    go = _find_go()
    directory = BUILD / "bin" / f"{name}-{version}"
    binary = directory / package.rpartition("/")[2]
    if not binary.exists():
        print(f"peers: go install {package}@{version}", flush=True)
        environment = {**os.environ, "GOBIN": str(directory)}
        run([go, "install", f"{package}@{version}"], environment)
    return binary


def build_go_program(source: Path, name: str) -> Path:
    """Build a program of this repository; Go rebuilds only what has changed."""
    binary = BUILD / "bin" / name
    print(f"peers: go build {source.relative_to(ROOT)}", flush=True)
    run([_find_go(), "build", "-C", str(source), "-o", str(binary), "."])
    return binary


def read_go_version(source: Path, module: str) -> str:
    """The version of a module that a program's go.mod requires."""
    for line in (source / "go.mod").read_text().splitlines():
        match line.split():
            case ["require", name, version] | [name, version, *_] if name == module:
                return version
    raise ValueError(f"{source}/go.mod does not require {module}")


def find_go_module(module: str, version: str) -> Path:
    """The directory of a module's sources, downloaded if necessary."""
    found = json.loads(run([_find_go(), "mod", "download", "-json", f"{module}@{version}"]))
    return Path(found["Dir"])


def install_packages(requirements: Sequence[str], name: str) -> Path:
    """Install from PyPI into a directory of its own, unless it exists."""
    directory = BUILD / name
    if not directory.exists():
        print(f"peers: pip install {' '.join(requirements)}", flush=True)
        aside = BUILD / f"{name}.new"
        shutil.rmtree(aside, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "--target", str(aside), *requirements])
        aside.rename(directory)
    return directory


def generate(root: Path, files: Iterable[str], name: str) -> Path:
    """Compile .proto files to Python; returns the directory of the modules."""
    directory = BUILD / name
    directory.mkdir(parents=True, exist_ok=True)
    compiler = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", f"--python_out={directory}"]
    run([*compiler, *files])
    return directory


def _find_go() -> str:
    go = shutil.which("go")
    if go is None:
        raise UnavailableError("there is no go command on the PATH")
    return go


def run(command: Sequence[str], environment: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            env=environment,
            cwd=ROOT,
            timeout=_INSTALL_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        raise UnavailableError(f"{' '.join(command[:3])} failed: {lines[-1]}") from None
    except subprocess.TimeoutExpired:
        text = f"{' '.join(command[:3])} took longer than {_INSTALL_TIMEOUT_S} s"
        raise UnavailableError(text) from None
    return done.stdout
