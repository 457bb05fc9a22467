"""Records of a run: what each client's RPCs came to, and when each step began."""

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
    """What one client did in a run."""

    rpcs: tuple[Rpc, ...]
    stalls: tuple[Stall, ...] = ()
    # Starts of the RPCs that were under way when the load was stopped.
    under_way: tuple[float, ...] = ()
    nacks: tuple[str, ...] = ()
    # How its process ended before its time; empty if it did not.
    crash: str = ""
    crash_s: float = 0.0


@frozen
class StepTime:
    """When a step of the plan was carried out."""

    name: str
    start_s: float
    # When backends were killed.
    kills_s: tuple[float, ...] = ()
    # Until then RPCs may fail with UNAVAILABLE, from the start of the step on.
    outage_until_s: float = 0.0


@frozen
class Timeline:
    """The steps of a run in their order; the last one is the end that puts everything right."""

    steps: tuple[StepTime, ...]
    # From here on no RPC may fail, until the load is stopped.
    quiet_s: float
    end_s: float
    # Of the control plane, which is in the process of the fuzzer.
    stalls: tuple[Stall, ...] = ()
