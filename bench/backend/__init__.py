"""Backend of the benchmarks: the C echo server, built on demand into `bench/.build/`.

Without a C compiler it is our own wire server in a process of its own. Both are commands that
print "up" and their ports and then serve.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "be.c"
BUILD_DIR = HERE.parent / ".build"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O2",)
COMPILE_TIMEOUT_S = 60


class BackendUnavailableError(Exception):
    """No backend can run here; the text has the reason."""


@dataclass(frozen=True, slots=True)
class BackendCommand:
    """A command line, and its ports besides the first.

    The ports are printed in this order: gRPC, raw TCP echo if there is one, more gRPC.
    """

    name: str
    argv: tuple[str, ...]
    has_raw: bool
    has_three: bool


def backend_command() -> BackendCommand:
    """The fastest backend this machine can run; raises BackendUnavailableError if cc fails."""
    binary = build_c_backend()
    argv: tuple[str, ...]
    if binary is not None:
        argv = (str(binary), "--die-with-parent", "0", "--raw", "0", "0", "0")
        return BackendCommand("be.c", argv, has_raw=True, has_three=True)
    argv = (sys.executable, "-m", "bench.backend.wire_echo")
    return BackendCommand("wire_echo", argv, has_raw=False, has_three=True)


def build_c_backend() -> Path | None:
    """The compiled server, built if source or flags are new; None without a compiler."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return None
    digest = hashlib.sha256(SOURCE.read_bytes() + " ".join(FLAGS).encode()).hexdigest()[:12]
    binary = BUILD_DIR / f"be-{digest}"
    if not binary.exists():
        BUILD_DIR.mkdir(exist_ok=True)
        # Built under another name and renamed, so that concurrent runs never use a partial file.
        partial = BUILD_DIR / f"be-{digest}.{os.getpid()}"
        _compile(compiler, partial)
        partial.rename(binary)
    return binary


def _compile(compiler: str, binary: Path) -> None:
    argv = [compiler, *FLAGS, "-o", str(binary), str(SOURCE)]
    try:
        subprocess.run(argv, check=True, timeout=COMPILE_TIMEOUT_S)
    except (subprocess.SubprocessError, OSError) as error:
        raise BackendUnavailableError(f"backend {SOURCE.name}: {error}") from error
