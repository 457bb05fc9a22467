"""gRPC's interop test cases against the server of grpc-go, with and without TLS."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.certificates import CertificateAuthority
from tools.peers.build import BUILD, generate, install_go_command
from tools.peers.outcomes import BrokenSuiteError
from tools.peers.suite import run_client

if TYPE_CHECKING:
    from tools.peers.outcomes import Run

MODULE: Final = "google.golang.org/grpc"
VERSION: Final = "v1.85.0"
_START_TIMEOUT_S: Final = 10.0


class InteropSuite:
    """Implements `Suite`."""

    name = "interop"
    title = "gRPC interop, server of grpc-go"
    about = (
        "The cases of gRPC's interop-test-descriptions.md that need no cloud, and that the server "
        "of grpc-go has: it does not support the compressed ones."
    )
    versions: Final = {MODULE: VERSION}
    known: Final[dict[str, str]] = {}
    runs = 1

    def __init__(self) -> None:
        self._binary: Path | None = None
        self._protos: Path | None = None

    def prepare(self) -> None:
        self._binary = install_go_command(f"{MODULE}/interop/server", VERSION, self.name)
        self._protos = generate(Path(__file__).parent, ["interop.proto"], "interop-protos")
        authority = CertificateAuthority()
        certificate, key = authority.issue(["localhost"])
        (BUILD / "roots.pem").write_bytes(authority.certificate_pem)
        (BUILD / "server.pem").write_bytes(certificate)
        (BUILD / "server.key").write_bytes(key)

    def run(self, stack: str) -> Run:
        files = ["-tls_cert_file", str(BUILD / "server.pem"), "-tls_key_file"]
        tls = ["-use_tls", *files, str(BUILD / "server.key")]
        plain = self._run(stack, "plain", [], [])
        return plain | self._run(stack, "TLS", tls, [str(BUILD / "roots.pem")])

    def _run(self, stack: str, how: str, server: list[str], client: list[str]) -> Run:
        port = _find_port()
        command = [str(self._binary), "-port", str(port), *server]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
            try:
                _wait_until_open(port)
                return self._call(stack, how, [f"localhost:{port}", *client])
            finally:
                process.kill()

    def _call(self, stack: str, how: str, arguments: list[str]) -> Run:
        adapter = [sys.executable, "-m", "tools.peers.clients.interop", stack, str(self._protos)]
        outcomes = run_client([*adapter, *arguments])
        return {f"{case}, {how}": reason for case, reason in outcomes.items()}

    def fold(self, case: str) -> str:
        return case


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _wait_until_open(port: int) -> None:
    end_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < end_s:
        try:
            socket.create_connection(("localhost", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise BrokenSuiteError(f"the server does not listen on port {port}")
