"""Targets of the scale benchmark: rows, sizes, verdicts and tables. Pure.

A figure is the median over the rounds; a target compares ours with grpcio's of the same run, with
our own at a smaller size, or with a number.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan
from statistics import median
from typing import Final, Literal

from bench.report import ABSENT, format_columns
from bench.targets import Outcome

REFERENCE: Final = "grpc_aio_xds"
OURS: Final = ("xds_asyncio", "xds_uvloop")


@dataclass(frozen=True, slots=True)
class RowPlan:
    """One row: its number in the list of targets, its coroutine in `scale_rows`, and its sizes."""

    number: str
    name: str
    sizes: tuple[int, ...] = (1,)


ROWS: Final = (
    RowPlan("P8", "routes_by_path", (10, 1000, 10_000)),
    RowPlan("P8", "routes_by_header", (10, 1000, 10_000)),
    RowPlan("P9", "many_endpoints", (500, 2000, 5000)),
    RowPlan("P9", "first_of_many", (10, 5000)),
    RowPlan("P9", "first_after_config", (10, 5000)),
    RowPlan("P10", "one_added", (500, 2000, 5000)),
    RowPlan("P11", "leave_and_return", (500, 2000, 5000)),
    RowPlan("P11", "base_memory"),
    RowPlan("P12", "many_clusters", (10, 100, 1000)),
    RowPlan("P13", "cold_start"),
    RowPlan("P14", "failover_at_200"),
    RowPlan("P14", "failover_at_2000"),
    RowPlan("P14", "failover_at_6000"),
    RowPlan("P14", "failover_under_load"),
    RowPlan("P15", "torn_config"),
    RowPlan("P16", "idle", (10, 100, 1000)),
    RowPlan("P18", "tls_reconnects", (100, 1000)),
    RowPlan("P20", "all_replaced"),
)


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """One target for a measure of a row at a size; all are upper limits.

    `ratio`     ours over grpcio's
    `slope`     cost of one more from the base size to this one, ours over grpcio's
    `flat`      ours at this size over ours at the base size
    `linear`    the same, each divided by its size
    `value`     ours
    `no_more`   ours less grpcio's
    """

    row: str
    measure: str
    kind: Literal["ratio", "slope", "flat", "linear", "value", "no_more"]
    limit: float
    size: int = 1
    base: int = 1

    def __str__(self) -> str:
        size = "" if self.size == 1 else f" {self.size:,}"
        base = f" from {self.base:,}" if self.kind in ("slope", "flat", "linear") else ""
        return f"{self.row}{size}: {self.measure}, {self.kind}{base}"


TARGETS: Final = (
    ScaleTarget("routes_by_path", "cpu_us", "flat", 1.1, 10_000, 10),
    ScaleTarget("routes_by_header", "cpu_us", "flat", 1.1, 10_000, 10),
    ScaleTarget("many_endpoints", "connected_s", "ratio", 1.0, 5000),
    ScaleTarget("many_endpoints", "cpu_s", "ratio", 1.0, 5000),
    ScaleTarget("many_endpoints", "cpu_s", "linear", 1.2, 5000, 500),
    ScaleTarget("first_of_many", "first_rpc_s", "ratio", 1.0, 5000),
    ScaleTarget("first_after_config", "first_rpc_s", "value", 0.05, 5000),
    ScaleTarget("one_added", "cpu_s", "ratio", 0.1, 5000),
    ScaleTarget("one_added", "connected_s", "ratio", 0.15, 5000),
    ScaleTarget("one_added", "first_rpc_s", "ratio", 0.3, 5000),
    ScaleTarget("leave_and_return", "rss_kb_0", "slope", 0.5, 5000, 500),
    ScaleTarget("leave_and_return", "growth", "value", 1.05, 5000),
    ScaleTarget("base_memory", "rss_kb", "ratio", 1.1),
    ScaleTarget("many_clusters", "first_rpc_s", "ratio", 1.0, 100),
    ScaleTarget("many_clusters", "first_rpc_s", "ratio", 0.2, 1000),
    ScaleTarget("many_clusters", "cpu_s", "ratio", 0.2, 1000),
    ScaleTarget("many_clusters", "first_rpc_s", "linear", 1.5, 1000, 100),
    ScaleTarget("cold_start", "first_rpc_s", "ratio", 1.3),
    ScaleTarget("failover_at_200", "failed", "no_more", 0.0),
    ScaleTarget("failover_at_200", "on_p1_ms", "value", 10.0),
    ScaleTarget("failover_at_2000", "failed", "no_more", 0.0),
    ScaleTarget("failover_at_2000", "on_p1_ms", "value", 10.0),
    ScaleTarget("failover_at_6000", "failed", "no_more", 0.0),
    ScaleTarget("failover_at_6000", "on_p1_ms", "value", 10.0),
    ScaleTarget("failover_under_load", "failed", "no_more", 0.0),
    ScaleTarget("failover_under_load", "on_p1_ms", "value", 10.0),
    ScaleTarget("torn_config", "failed", "value", 0.0),
    # An RPC that waited for the late cluster would take half a second.
    ScaleTarget("torn_config", "max_ms", "value", 50.0),
    ScaleTarget("idle", "cpu_percent", "ratio", 1.0, 1000),
    ScaleTarget("tls_reconnects", "cpu_s", "ratio", 1.0, 1000),
    ScaleTarget("all_replaced", "failed", "value", 0.0),
    # An RPC that waited for a new endpoint would take half a second; the rest is scheduling.
    ScaleTarget("all_replaced", "max_ms", "value", 50.0),
    ScaleTarget("all_replaced", "max_ms", "ratio", 1.0),
)

# By row, size, measure and client, one value per round.
Key = tuple[str, int, str, str]


@dataclass(slots=True)
class ScaleResults:
    """All measurements of one run."""

    values: dict[Key, list[float]] = field(default_factory=dict)
    # Errors, by row, size and client.
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, row: str, size: int, client: str, measured: Mapping[str, float]) -> None:
        for measure, value in measured.items():
            self.values.setdefault((row, size, measure, client), []).append(value)

    def median(self, row: str, size: int, measure: str, client: str) -> float | None:
        values = self.values.get((row, size, measure, client))
        return median(values) if values else None


@dataclass(frozen=True, slots=True)
class ScaleVerdict:
    """Result of one target for one client; `got` is None if it was not measured."""

    target: ScaleTarget
    client: str
    got: float | None
    # The same figure from each round alone.
    rounds: tuple[float, ...] = ()

    @property
    def outcome(self) -> Outcome:
        if self.got is None:
            return Outcome.NOT_MEASURED
        return Outcome.PASS if self.got <= self.target.limit else Outcome.MISS


def judge(
    results: ScaleResults, clients: Iterable[str], targets: Iterable[ScaleTarget] = TARGETS
) -> list[ScaleVerdict]:
    """One verdict per target and client of ours."""
    ours = [client for client in clients if client != REFERENCE]
    return [_judge_one(results, target, client) for target in targets for client in ours]


def _judge_one(results: ScaleResults, target: ScaleTarget, client: str) -> ScaleVerdict:
    def find(size: int, name: str) -> list[float]:
        return results.values.get((target.row, size, target.measure, name), [])

    def get_median(size: int, name: str) -> float:
        return median(find(size, name) or [float("nan")])

    def get_round(number: int) -> Callable[[int, str], float]:
        return lambda size, name: ([*find(size, name)[number:], float("nan")])[0]

    rounds = [_compare(target, client, get_round(n)) for n in range(len(find(target.size, client)))]
    known = tuple(each for each in rounds if each is not None)
    return ScaleVerdict(target, client, _compare(target, client, get_median), known)


def _compare(target: ScaleTarget, client: str, get: Callable[[int, str], float]) -> float | None:
    """The figure of the target; None if a measurement for it is missing."""
    size, base = target.size, target.base
    match target.kind:
        case "value":
            got = get(size, client)
        case "ratio":
            got = get(size, client) / (get(size, REFERENCE) or float("nan"))
        case "no_more":
            got = get(size, client) - get(size, REFERENCE)
        case "flat":
            got = get(size, client) / get(base, client)
        case "linear":
            got = (get(size, client) / size) / (get(base, client) / base)
        case "slope":
            theirs = get(size, REFERENCE) - get(base, REFERENCE)
            got = (get(size, client) - get(base, client)) / theirs
    return None if isnan(got) else got


def is_acceptable(verdicts: Iterable[ScaleVerdict]) -> bool:
    """Whether no target was missed and at least one was met."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return Outcome.PASS in outcomes and Outcome.MISS not in outcomes


# Output


def format_results(results: ScaleResults, clients: Sequence[str]) -> str:
    """One line per row, size and measure: each client's median and extremes, and the ratio."""
    ours = [client for client in clients if client != REFERENCE]
    head = ["row", "size", "measure", *clients, *(f"{client} of grpcio" for client in ours)]
    lines: list[Sequence[str]] = [head]
    seen = dict.fromkeys(key[:3] for key in results.values)
    for row, size, measure in seen:
        cells = [row, f"{size:,}", measure]
        cells += [_cell(results.values.get((row, size, measure, each))) for each in clients]
        reference = results.median(row, size, measure, REFERENCE)
        for client in ours:
            value = results.median(row, size, measure, client)
            cells.append(f"{value / reference:.3f}" if reference and value is not None else ABSENT)
        lines.append(cells)
    return format_columns(lines, left=3)


def format_verdicts(verdicts: Iterable[ScaleVerdict]) -> str:
    rows: list[Sequence[str]] = [("target", "client", "wanted", "measured", "")]
    for verdict in verdicts:
        got = ABSENT if verdict.got is None else f"{verdict.got:.3f}"
        outcome = {Outcome.PASS: "met", Outcome.MISS: "missed"}.get(
            verdict.outcome, verdict.outcome.value
        )
        limit = f"≤ {verdict.target.limit:g}"
        rows.append((str(verdict.target), verdict.client, limit, got, outcome))
    return format_columns(rows, left=2)


def to_json(
    results: ScaleResults, verdicts: Iterable[ScaleVerdict], environment: Mapping[str, object]
) -> dict[str, object]:
    """The run as plain values: all rounds, medians and verdicts."""
    return {
        "environment": dict(environment),
        "results": [
            {
                "row": row,
                "size": size,
                "measure": measure,
                "client": client,
                "median": median(values),
                "rounds": values,
            }
            for (row, size, measure, client), values in results.values.items()
        ],
        "targets": [
            asdict(verdict.target)
            | {
                "text": str(verdict.target),
                "client": verdict.client,
                "got": verdict.got,
                "rounds": verdict.rounds,
                "outcome": verdict.outcome.value,
            }
            for verdict in verdicts
        ],
        "failures": dict(results.failures),
    }


def _cell(values: Sequence[float] | None) -> str:
    if not values:
        return ABSENT
    return f"{median(values):,.4g} ({min(values):,.4g}-{max(values):,.4g})"
