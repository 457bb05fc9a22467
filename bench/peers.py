"""Peers from the package registry, installed on demand into `bench/.build/`.

They are not in the development environment: their dependencies need not agree with ours. Their
directory is at the end of the path, so that a package of the environment is preferred.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.backend import BUILD_DIR
from bench.clients import ClientUnavailableError

CONNECTRPC: Final = ("connectrpc==0.13.*",)
# Without its dependency grpcio, which the environment has.
GRPC_OBSERVABILITY: Final = ("--no-deps", "grpcio-observability==1.85.*")
INSTALL_TIMEOUT_S: Final = 300


def use_peer(requirement: tuple[str, ...]) -> Path:
    """Make a peer importable; ClientUnavailableError, with pip's reason, if that fails."""
    digest = hashlib.sha256(" ".join(requirement).encode()).hexdigest()[:12]
    directory = BUILD_DIR / f"peer-{digest}"
    if not directory.exists():
        # Installed under another name and renamed, so that it is never incomplete.
        partial = directory.with_suffix(f".{os.getpid()}")
        try:
            _install(requirement, partial)
            partial.rename(directory)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
    return directory


def _install(requirement: tuple[str, ...], target: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    argv = [*install, "--only-binary", ":all:", "--target", str(target), *requirement]
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        text = f"pip cannot install {requirement[-1]!r}: {reason[0]}"
        raise ClientUnavailableError(text) from None
    except subprocess.TimeoutExpired:
        text = f"pip did not install {requirement[-1]!r} in {INSTALL_TIMEOUT_S} s"
        raise ClientUnavailableError(text) from None
