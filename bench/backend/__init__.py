"""Backend of the benchmarks: the C echo server, built on demand into `bench/.build/`.

Without a C compiler it is our own wire server in a process of its own. Both are commands that
print "up" and their ports and then serve.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "be.c"
BUILD_DIR = HERE.parent / ".build"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O2",)
# Needs OpenSSL's headers; without them the backend has no TLS.
TLS_FLAGS = ("-DWITH_TLS",)
TLS_LIBRARIES = ("-lssl", "-lcrypto")
COMPILE_TIMEOUT_S = 60


class BackendUnavailableError(Exception):
    """No backend can run here; the text has the reason."""


@dataclass(frozen=True, slots=True)
class BackendCommand:
    """A command line, and its ports besides the first.

    The ports are printed in this order: gRPC, raw TCP echo if there is one, more gRPC, TLS and mTLS
    if there are certificates.
    """

    name: str
    argv: tuple[str, ...]
    has_raw: bool
    has_three: bool
    has_tls: bool = False


def backend_command(certificates: Path | None = None) -> BackendCommand:
    """The fastest backend this machine can run; raises BackendUnavailableError if cc fails.

    With a directory of certificates it has TLS, if it can be built with it.
    """
    argv: tuple[str, ...]
    tls_binary = None
    if certificates is not None:
        with suppress(BackendUnavailableError):
            tls_binary = build_c_backend(has_tls=True)
    binary = tls_binary or build_c_backend()
    if binary is not None:
        argv = (str(binary), "--die-with-parent", "0", "--raw", "0", "0", "0")
        if tls_binary is not None:
            argv += ("--certificates", str(certificates), "--tls", "0", "--mtls", "0")
        is_tls = tls_binary is not None
        return BackendCommand("be.c", argv, has_raw=True, has_three=True, has_tls=is_tls)
    argv = (sys.executable, "-m", "bench.backend.wire_echo")
    return BackendCommand("wire_echo", argv, has_raw=False, has_three=True)


def build_c_backend(*, has_tls: bool = False) -> Path | None:
    """The compiled server, built if source or flags are new; None without a compiler."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return None
    flags = (*FLAGS, *(TLS_FLAGS if has_tls else ()))
    digest = hashlib.sha256(SOURCE.read_bytes() + " ".join(flags).encode()).hexdigest()[:12]
    binary = BUILD_DIR / f"be-{digest}"
    if not binary.exists():
        BUILD_DIR.mkdir(exist_ok=True)
        # Built under another name and renamed, so that concurrent runs never use a partial file.
        partial = BUILD_DIR / f"be-{digest}.{os.getpid()}"
        libraries = TLS_LIBRARIES if has_tls else ()
        _compile([compiler, *flags, "-o", str(partial), str(SOURCE), *libraries])
        partial.rename(binary)
    return binary


def _compile(argv: list[str]) -> None:
    try:
        subprocess.run(argv, check=True, timeout=COMPILE_TIMEOUT_S)
    except (subprocess.SubprocessError, OSError) as error:
        raise BackendUnavailableError(f"backend {SOURCE.name}: {error}") from error
