"""Istio's generators for gRPC clients without a proxy, as the control plane of a mesh."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from tools.peers.build import ROOT, build_go_program, read_go_version
from tools.peers.suite import run_client

if TYPE_CHECKING:
    from pathlib import Path

    from tools.peers.outcomes import Run

MODULES: Final = ("istio.io/istio", "istio.io/api")
SOURCE: Final = ROOT / "examples" / "istio"


class IstioSuite:
    """Implements `Suite`."""

    name = "istio"
    title = "Istio"
    about = (
        "The program in examples/istio: Istio's discovery server, without Kubernetes, configured "
        "with ServiceEntry, VirtualService and DestinationRule. Both clients have the same "
        "bootstrap, in the form that Istio's agent writes, and the same backends. Each case runs "
        "with the state-of-the-world and with the incremental protocol."
    )
    known: Final[dict[str, str]] = {}
    runs = 1

    def __init__(self) -> None:
        self._binary: Path | None = None

    @property
    def versions(self) -> dict[str, str]:
        return {module: read_go_version(SOURCE, module) for module in MODULES}

    def prepare(self) -> None:
        self._binary = build_go_program(SOURCE, "istiod")

    def run(self, stack: str) -> Run:
        plain = self._run(stack, "sotw")
        if stack == "grpcio":
            delta: Run = dict.fromkeys(plain, "grpcio has no incremental xDS")
        else:
            delta = self._run(stack, "delta")
        return plain | {f"{case}, incremental": reason for case, reason in delta.items()}

    def _run(self, stack: str, variant: str) -> Run:
        program = [sys.executable, "-m", "tools.peers.clients.istio"]
        return run_client([*program, stack, str(self._binary), variant])

    def fold(self, case: str) -> str:
        """One entry for all cases of the variant that grpcio does not have."""
        return "all cases, incremental" if case.endswith(", incremental") else case
