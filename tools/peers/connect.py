"""Connect's conformance suite for clients: gRPC over HTTP/2, with and without TLS.

The runner starts the servers and the client (`clients.connect`), describes an RPC for each case,
and compares the client's report with the expected one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from tools.peers.build import BUILD, ROOT, find_go_module, generate, install_go_command
from tools.peers.outcomes import BrokenSuiteError

if TYPE_CHECKING:
    from pathlib import Path

    from tools.peers.outcomes import Run

MODULE: Final = "connectrpc.com/conformance"
VERSION: Final = "v1.0.6"
_RUN_TIMEOUT_S: Final = 600
_CONFIG: Final = """\
features:
  versions: [HTTP_VERSION_2]
  protocols: [PROTOCOL_GRPC]
  codecs: [CODEC_PROTO]
  compressions: [COMPRESSION_IDENTITY, COMPRESSION_GZIP]
  supportsH2c: true
  supportsTls: true
  supportsTlsClientCerts: true
  supportsMessageReceiveLimit: true
"""
# Verbose output of the runner.
_STARTED: Final = re.compile(r'^Sending request for "(?P<case>.+)"\.\.\.$', re.MULTILINE)
_FAILED: Final = re.compile(r"^FAILED: (?P<case>.+):\n\s*(?P<reason>.*)$", re.MULTILINE)
_TOTAL: Final = re.compile(r"^Total cases: (?P<total>\d+)$", re.MULTILINE)
# Parts of a case's name that describe the configuration of the run.
_PERMUTATION: Final = re.compile(r"(HTTPVersion|Protocol|Codec|Compression|TLS):[^/]*/|\([^)]*\)/")


class ConnectSuite:
    """Implements `Suite`."""

    name = "connect"
    title = "Connect conformance"
    about = (
        "The conformance runner of the Connect project, for clients that speak gRPC: plain and "
        "compressed messages, over TCP, TLS and mutual TLS. A case that fails in one of three runs "
        "counts as failed."
    )
    versions: Final = {MODULE: VERSION}
    known: Final[dict[str, str]] = {}
    runs = 3

    def __init__(self) -> None:
        self._binary: Path | None = None
        self._protos: Path | None = None

    def prepare(self) -> None:
        self._binary = install_go_command(f"{MODULE}/cmd/connectconformance", VERSION, self.name)
        root = find_go_module(MODULE, VERSION) / "proto"
        files = sorted(str(path.relative_to(root)) for path in root.rglob("*.proto"))
        self._protos = generate(root, files, "connect-protos")
        (BUILD / "connect.yaml").write_text(_CONFIG)

    def run(self, stack: str) -> Run:
        adapter = [sys.executable, "-m", "tools.peers.clients.connect", stack, str(self._protos)]
        command = [str(self._binary), "--mode", "client", "--conf", str(BUILD / "connect.yaml")]
        done = subprocess.run(
            [*command, "--vv", "--", *adapter],
            check=False,
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=_RUN_TIMEOUT_S,
        )
        (BUILD / f"connect-{stack}.log").write_text(done.stdout + done.stderr)
        return parse_output(done.stdout + done.stderr)

    def fold(self, case: str) -> str:
        return fold_case(case)


def fold_case(case: str) -> str:
    """The suite and the test, without protocol, compression, TLS and server."""
    return _PERMUTATION.sub("", case)


def parse_output(text: str) -> Run:
    """The outcome of each case."""
    total = _TOTAL.search(text)
    outcomes: Run = dict.fromkeys(match["case"] for match in _STARTED.finditer(text))
    outcomes |= {match["case"]: match["reason"] for match in _FAILED.finditer(text)}
    if total is None or int(total["total"]) != len(outcomes):
        wanted = "a total" if total is None else f"{total['total']} cases"
        raise BrokenSuiteError(f"the runner reported {len(outcomes)} cases, wanted {wanted}")
    return outcomes
