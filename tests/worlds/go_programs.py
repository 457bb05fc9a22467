"""Programs in Go: built for a test, or the test is skipped."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

# The first compilation of Envoy's API takes a minute.
BUILD_S: Final = 300
_NO_NETWORK: Final = ("dial tcp", "lookup ", "connection refused", "i/o timeout", "requires go >= ")


def build_go(source: Path, binary: Path) -> Path:
    """Build the program of a directory."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no go")
    done = subprocess.run(
        [go, "build", "-o", str(binary), "."],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if done.returncode and any(each in done.stderr for each in _NO_NETWORK):
        pytest.skip(f"go build: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return binary
