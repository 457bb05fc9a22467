"""Reports of a run: a table, and JSON for later comparison. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from bench.samples import Sample, Summary, summarise
from bench.targets import (
    Summaries,
    Verdict,
    cpu_ratio,
    cpu_ratio_range,
    gain,
    measure_rounds,
    reference_of,
)
from bench.workloads import WORKLOADS, Workload

MILLI = 1000.0
ABSENT = "-"


@dataclass(slots=True)
class Results:
    """All measurements of one run."""

    # By workload, then by client, one sample per round.
    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    # By client: the reason why it cannot run here, and its errors.
    unavailable: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, workload: str, client: str, sample: Sample) -> None:
        self.samples.setdefault(workload, {}).setdefault(client, []).append(sample)

    def summaries(self) -> Summaries:
        return {
            workload: {client: summarise(samples) for client, samples in by_client.items()}
            for workload, by_client in self.samples.items()
        }


def format_results(summaries: Summaries) -> str:
    """One block per workload, one line per client."""
    blocks = (
        _format_block(WORKLOADS[workload], by_client) for workload, by_client in summaries.items()
    )
    return "\n\n".join(blocks)


def format_verdicts(verdicts: Iterable[Verdict]) -> str:
    rows = [("target", "client", "measure", "wanted", "got", "")]
    for verdict in verdicts:
        target = verdict.target
        sign, unit = ("≤", "") if target.is_upper else ("≥", "×")
        got = ABSENT if verdict.got is None else f"{verdict.got:.3f}{unit}"
        wanted = f"{sign} {target.limit:.2f}{unit}"
        row = (target.workload, target.client, target.measure, wanted, got)
        rows.append((*row, verdict.outcome.value))
    return format_columns(rows, left=3)


def format_columns(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Align the rows; the first `left` columns to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def to_json(
    results: Results, verdicts: Iterable[Verdict], environment: Mapping[str, object]
) -> dict[str, object]:
    """The run as plain values: all rounds, medians, ratios and verdicts."""
    return {
        "environment": dict(environment),
        "results": [
            _result_to_json(results, workload, client, by_client)
            for workload, by_client in results.summaries().items()
            for client in by_client
        ],
        "targets": [
            asdict(verdict.target)
            | {
                "got": verdict.got,
                "rounds": _rounds_of(results, verdict),
                "outcome": verdict.outcome.value,
            }
            for verdict in verdicts
        ],
        "unavailable": dict(results.unavailable),
        "failures": dict(results.failures),
    }


def _rounds_of(results: Results, verdict: Verdict) -> list[float]:
    target, by_client = verdict.target, results.samples.get(verdict.target.workload, {})
    ours, reference = (
        by_client.get(name, []) for name in (target.client, reference_of(target.client))
    )
    return measure_rounds(target.measure, ours, reference)


def _result_to_json(
    results: Results, workload: str, client: str, by_client: Mapping[str, Summary]
) -> dict[str, object]:
    summary, reference = by_client[client], by_client.get(reference_of(client))
    size_bytes = WORKLOADS[workload].size_bytes
    return {
        "workload": workload,
        "client": client,
        "median": asdict(summary)
        | {
            "per_cpu_s": summary.per_cpu_s,
            "megabytes_per_cpu_s": summary.megabytes_per_cpu_s(size_bytes),
        },
        "cpu_ratio": None if reference is None else cpu_ratio(summary, reference),
        "gain": None if reference is None else gain(summary, reference),
        "rounds": [asdict(sample) for sample in results.samples[workload][client]],
    }


def _format_block(workload: Workload, by_client: Mapping[str, Summary]) -> str:
    is_unary = workload.kind != "stream"
    rows: list[Sequence[str]] = [(workload.name, *(_UNARY_HEAD if is_unary else _STREAM_HEAD))]
    for client, summary in by_client.items():
        reference = by_client.get(reference_of(client))
        cells = (
            _unary_cells(summary, reference)
            if is_unary
            else _stream_cells(summary, reference, workload.size_bytes)
        )
        rows.append((f"  {client}", *cells))
    return format_columns(rows)


_UNARY_HEAD = (
    "CPU µs/RPC",
    "spread",
    "RPCs/s",
    "p50 ms",
    "p99 ms",
    "backend",
    "of grpcio",
    "by round",
)


def _unary_cells(summary: Summary, reference: Summary | None) -> tuple[str, ...]:
    ratio = by_round = ABSENT
    if reference is not None:
        ratio = f"{cpu_ratio(summary, reference):.3f}"
        by_round = "{:.3f}-{:.3f}".format(*cpu_ratio_range(summary, reference))
    return (
        f"{summary.cpu_us:.1f}",
        f"{summary.spread:.0%}",
        f"{summary.rate_per_s:,.0f}",
        _milliseconds(summary.p50_us),
        _milliseconds(summary.p99_us),
        _share(summary.backend_busy),
        ratio,
        by_round,
    )


_STREAM_HEAD = (
    "CPU µs/msg",
    "spread",
    "msgs/s",
    "msgs/CPU-s",
    "MB/CPU-s",
    "backend",
    "× grpcio",
    "by round",
)


def _stream_cells(summary: Summary, reference: Summary | None, size_bytes: int) -> tuple[str, ...]:
    times = by_round = ABSENT
    if reference is not None:
        times = f"{gain(summary, reference):.2f}"
        low, high = cpu_ratio_range(summary, reference)
        by_round = f"{1 / high:.2f}-{1 / low:.2f}"
    return (
        f"{summary.cpu_us:.1f}",
        f"{summary.spread:.0%}",
        f"{summary.rate_per_s:,.0f}",
        f"{summary.per_cpu_s:,.0f}",
        f"{summary.megabytes_per_cpu_s(size_bytes):,.1f}",
        _share(summary.backend_busy),
        times,
        by_round,
    )


def _milliseconds(value_us: float | None) -> str:
    return ABSENT if value_us is None else f"{value_us / MILLI:.2f}"


def _share(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.0%}"
