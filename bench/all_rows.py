"""Rows of `bench/all.py`: for each, the programs that measure it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from bench.conversion import (
    Convert,
    from_churn,
    from_delta,
    from_observed,
    from_picks,
    from_rpc,
    from_scale,
    from_soak,
)


@dataclass(frozen=True, slots=True)
class Step:
    """One program: a module of this package, its arguments, and the reader of its JSON.

    `quick` are the arguments of a short test run, which follow the others; `short` those of a run
    whose figures are reliable, but which may not find what is rare. A program that counts rare
    events has more rounds than others, by `rounds_factor`.
    """

    module: str
    arguments: tuple[str, ...]
    convert: Convert
    has_rounds: bool = True
    rounds_factor: int = 1
    quick: tuple[str, ...] = ("--quick",)
    short: tuple[str, ...] = ()

    def argv(
        self,
        rounds: int,
        *,
        seconds: float | None = None,
        is_quick: bool = False,
        is_short: bool = False,
    ) -> tuple[str, ...]:
        """The command line, without the interpreter. `seconds` are those of a turn of RPCs."""
        found = ["-m", f"bench.{self.module}", *self.arguments]
        if is_quick:
            found += self.quick
        elif is_short:
            found += self.short
        if self.has_rounds:
            found += ["--rounds", str(self.count_rounds(rounds, is_quick=is_quick))]
        if seconds is not None and self.module == "rpc":
            found += ["--seconds", f"{seconds:g}"]
        return tuple(found)

    def count_rounds(self, wanted: int, *, is_quick: bool = False) -> int:
        """Programs like the soak run once, however many rounds the others have."""
        if not self.has_rounds:
            return 1
        return wanted if is_quick else wanted * self.rounds_factor


@dataclass(frozen=True, slots=True)
class RowRun:
    """One row of the list of targets."""

    number: str
    title: str
    steps: tuple[Step, ...]

    def count_rounds(self, wanted: int, *, is_quick: bool = False) -> int:
        return max(step.count_rounds(wanted, is_quick=is_quick) for step in self.steps)


def _rpc(workloads: Sequence[str], *options: str) -> Step:
    return Step("rpc", ("--targets", "--only", *workloads, *options), from_rpc)


def _mesh_rpc(*workloads: str) -> Step:
    """The clients of a mesh, and the peers besides grpcio."""
    return _rpc(workloads, "--target", "xds", "--peers")


def _scale(row: str) -> Step:
    return Step("scale", ("--rows", row), from_scale)


_UNARY: Final = ("unary-16B-1", "unary-16B-16", "unary-16B-100")
_BARE: Final = ("grpc_aio", "transport_uvloop", "transport_asyncio")
_MESH: Final = ("grpc_aio_xds", "xds_uvloop", "xds_asyncio")
_PEERS: Final = ("connectrpc", "envoy_sidecar")
_FLOOR: Final = ("lean_uvloop", "raw_uvloop")
_SOAK_SHORT: Final = ("--rpcs", "15000", "--outages", "4")
_CHURN_SHORT: Final = ("--minutes", "6")
_CHURN_QUICK: Final = ("--minutes", "0.2", "--changes-per-s", "40", "--settle-s", "0.5")

ROWS: Final = (
    RowRun("P1", "unary RPCs in a mesh, 100 in flight", (_mesh_rpc("unary-16B-100"),)),
    RowRun("P2", "unary RPCs in a mesh, 16 in flight", (_mesh_rpc("unary-16B-16"),)),
    RowRun(
        "P3",
        "unary RPCs in a mesh, 1 in flight, and at 2,000 per second",
        # The lower bounds show what of a steady rate is timers and wake-ups.
        (
            _rpc(
                ("unary-16B-1", "open-16B-2000"),
                *("--target", "xds", "--clients", *_MESH, *_PEERS, *_FLOOR),
            ),
        ),
    ),
    RowRun(
        "P4",
        "larger payloads in a mesh, 100 in flight",
        (_mesh_rpc("unary-1KiB-100", "unary-64KiB-100"),),
    ),
    RowRun(
        "P5",
        "the blocking API: 1, 8 and 32 threads",
        (_rpc(("blocking",), "--clients", "grpc_sync", "channel_sync"),),
    ),
    RowRun(
        "P6",
        "the bare transport, and the lower bounds",
        (_rpc(_UNARY, "--clients", *_BARE, *_FLOOR),),
    ),
    RowRun(
        "P7",
        "server streaming on the bare transport",
        # With 16 streams connectrpc's HTTP/2 ends the connection: "too_many_data_frames".
        (
            _rpc(("stream-16B-1", "stream-64KiB-1"), "--clients", *_BARE, "connectrpc"),
            _rpc(("stream-16B-16",), "--clients", *_BARE),
        ),
    ),
    RowRun("P8", "routes: CPU per RPC when only the last of many matches", (_scale("P8"),)),
    RowRun("P9", "many endpoints: until all are connected; the first RPC", (_scale("P9"),)),
    RowRun("P10", "one endpoint added to many", (_scale("P10"),)),
    RowRun("P11", "memory", (_scale("P11"),)),
    RowRun(
        "P12",
        "many clusters: the first RPC; one changed cluster",
        (
            _scale("P12"),
            Step("delta", (), from_delta, has_rounds=False, quick=("--clusters", "50")),
        ),
    ),
    RowRun("P13", "cold start: process start to the end of the first RPC", (_scale("P13"),)),
    RowRun(
        "P14",
        "failover: the backends of the first priority are killed",
        (replace(_scale("P14"), rounds_factor=3),),
    ),
    RowRun("P15", "torn config: the new cluster comes 500 ms late", (_scale("P15"),)),
    RowRun("P16", "an idle channel with many connections", (_scale("P16"),)),
    RowRun(
        "P17",
        "the soak",
        (Step("soak", (), from_soak, has_rounds=False, short=_SOAK_SHORT),),
    ),
    RowRun(
        "P18",
        "TLS and mTLS; all connections made again",
        (
            _rpc(
                (*_UNARY[::2], "unary-64KiB-100", "stream-16B-1", "stream-64KiB-1"),
                "--target",
                "tls",
            ),
            _scale("P18"),
        ),
    ),
    RowRun(
        "P19",
        "metrics and traces",
        (
            Step("observed", (), from_observed, quick=("--rpcs", "200")),
            _rpc(("blocking-16B-1", "blocking-16B-8"), "--clients", "metrics_"),
        ),
    ),
    RowRun("P20", "all endpoints replaced; new ones take 0.5 s to connect", (_scale("P20"),)),
    RowRun("picks", "time by number of endpoints", (Step("picks", (), from_picks),)),
    RowRun(
        "churn",
        "30 minutes of load and churn",
        (
            Step(
                "churn",
                (),
                from_churn,
                has_rounds=False,
                quick=_CHURN_QUICK,
                short=_CHURN_SHORT,
            ),
        ),
    ),
)


def select_rows(wanted: Sequence[str] | None) -> list[RowRun]:
    """The rows with these numbers, in their order; all if None. Raises ValueError if unknown."""
    if wanted is None:
        return list(ROWS)
    known = [row.number for row in ROWS]
    unknown = [each for each in wanted if each not in known]
    if unknown:
        raise ValueError(f"unknown row {unknown[0]!r}, wanted one of {', '.join(known)}")
    return [row for row in ROWS if row.number in wanted]
