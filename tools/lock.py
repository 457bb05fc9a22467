"""Writes tools/constraints.txt: the exact versions with which `make env` and CI install.

Resolved in a new environment from the bounds of pyproject.toml, with what the build imports.
"""

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "tools" / "constraints.txt"
HEADER = "# Written by `make lock`: the versions that CI tests with. Users are not bound by them.\n"


def format_constraints(frozen: str) -> str:
    """The output of `pip freeze`, without this package."""
    lines = [line for line in frozen.splitlines() if "==" in line]
    return HEADER + "".join(f"{line}\n" for line in sorted(lines, key=str.lower))


def main() -> int:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True)
        pip = [f"{directory}/bin/python", "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", ".[dev]", *build], cwd=ROOT, check=True)
        frozen = subprocess.run([*pip, "freeze"], capture_output=True, text=True, check=True)
    CONSTRAINTS.write_text(format_constraints(frozen.stdout))
    print(f"wrote {CONSTRAINTS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
