"""Creates the development environment of `make env`, or updates it.

Run by the Makefile with the machine's own Python, which may be too old: so this file uses only
syntax that Python 3.6 can parse. Versions are those of
`constraints.txt`, even for the build itself.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

PYTHON_MIN = (3, 11)
CONSTRAINTS = Path(__file__).resolve().parent / "constraints.txt"


def fail(message: str) -> None:
    sys.exit(f"error: {message}")


def create(environment: Path) -> Path:
    """Make the environment unless it works already; return its Python."""
    python = environment / "bin" / "python"
    if not python.exists():
        print(f"making {environment} ...", flush=True)
        try:
            venv.create(environment, with_pip=True, clear=environment.exists())
        except subprocess.CalledProcessError as error:
            fail(f"cannot make {environment}: {error} (on Debian: apt install python3-venv)")
    return python


def main(environment: Path) -> None:
    found = tuple(sys.version_info[:2])
    if found < PYTHON_MIN:
        fail(f"found Python {found[0]}.{found[1]}, wanted 3.11 or newer: make PYTHON=/path/to/it")
    python = create(environment)
    print(f"installing the development dependencies into {environment} ...", flush=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # Through the environment, so that it applies to the isolated build as well.
    environ = dict(os.environ, PIP_CONSTRAINT=str(CONSTRAINTS))
    if subprocess.call([*install, "--editable", ".[dev]"], env=environ) != 0:
        fail("pip could not install '.[dev]': see its message above")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
