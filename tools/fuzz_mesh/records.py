"""Records of a run: the results of each client's RPCs, and the times of the steps."""

from __future__ import annotations

from typing import Final

from proxyless.base.frozen import frozen

OURS: Final = "proxyless"
THEIRS: Final = "grpcio"


@frozen
class Rpc:
    """One RPC that has ended."""

    kind: str
    start_s: float
    end_s: float
    code: str
    details: str = ""
    peer: str = ""

    @property
    def is_ok(self) -> bool:
        return self.code == "OK"

    @property
    def took_s(self) -> float:
        return self.end_s - self.start_s


@frozen
class Stall:
    """A time in which the loop of a process did not run, and the CPU time that it used."""

    start_s: float
    end_s: float
    cpu_s: float


@frozen
class ClientRecords:
    """RPCs, stalls and NACKs of one client in a run."""

    rpcs: tuple[Rpc, ...]
    stalls: tuple[Stall, ...] = ()
    # Start times of the RPCs in flight when the load was stopped.
    under_way: tuple[float, ...] = ()
    nacks: tuple[str, ...] = ()
    # The error if its process ended early; empty otherwise.
    crash: str = ""
    crash_s: float = 0.0


@frozen
class StepTime:
    """Times of one step of the plan."""

    name: str
    start_s: float
    # Times of kills of backends.
    kills_s: tuple[float, ...] = ()
    # RPCs may fail with UNAVAILABLE from the start of the step until this time.
    outage_until_s: float = 0.0


@frozen
class Timeline:
    """The steps of a run in their order."""

    steps: tuple[StepTime, ...]
    # From this time on no RPC may fail, until the load is stopped.
    quiet_s: float
    end_s: float
    # Stalls of the control plane, which runs in the process of the fuzzer.
    stalls: tuple[Stall, ...] = ()
