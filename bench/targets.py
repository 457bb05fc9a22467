"""Targets of the RPC benchmark, and their verdicts. Pure.

A target is a ratio to grpcio in the same run, because ratios depend less on the machine than
microseconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from bench.clients import CLIENTS
from bench.samples import Sample, Summary, summarise

Measure = Literal["cpu", "p50", "gain", "rate"]
# Summaries by workload, then by client.
Summaries = Mapping[str, Mapping[str, Summary]]


@dataclass(frozen=True, slots=True)
class Target:
    """One target.

    `cpu` is our CPU per operation over grpcio's, and `p50` our median latency over grpcio's, at
    most `limit`; `gain` is our operations (or megabytes: the ratio is the same) per CPU-second over
    grpcio's, and `rate` the same per second, at least `limit`.
    """

    client: str
    workload: str
    measure: Measure
    limit: float
    # Its number in the list of targets, if it has one.
    number: str = ""

    @property
    def is_upper(self) -> bool:
        """Whether less is better."""
        return self.measure in ("cpu", "p50")

    def is_met_by(self, got: float) -> bool:
        return got <= self.limit if self.is_upper else got >= self.limit


class Outcome(Enum):
    PASS = "pass"
    MISS = "miss"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one target; `got` is None if it was not measured."""

    target: Target
    outcome: Outcome
    got: float | None


def _transport_targets_of(client: str, unary: tuple[float, float, float]) -> tuple[Target, ...]:
    return (
        Target(client, "unary-16B-100", "cpu", unary[0], "P6"),
        Target(client, "unary-16B-16", "cpu", unary[1], "P6"),
        Target(client, "unary-16B-1", "cpu", unary[2], "P6"),
        Target(client, "stream-16B-1", "gain", 4.0, "P7"),
        Target(client, "stream-16B-16", "gain", 3.0, "P7"),
        Target(client, "stream-64KiB-1", "gain", 1.2, "P7"),
    )


def _channel_targets_of(client: str) -> tuple[Target, ...]:
    return (
        Target(client, "unary-16B-100", "cpu", 0.25),
        Target(client, "unary-16B-16", "cpu", 0.25),
        Target(client, "unary-16B-1", "cpu", 0.45),
        Target(client, "unary-16B-100", "rate", 4.0),
    )


def _xds_targets_of(client: str) -> tuple[Target, ...]:
    return (
        Target(client, "unary-16B-100", "cpu", 0.15, "P1"),
        Target(client, "unary-16B-100", "rate", 6.0, "P1"),
        Target(client, "unary-16B-16", "cpu", 0.20, "P2"),
        Target(client, "unary-16B-1", "cpu", 0.20, "P3"),
        Target(client, "unary-16B-1", "p50", 0.40, "P3"),
        Target(client, "open-16B-2000", "cpu", 0.30, "P3"),
        Target(client, "open-16B-2000", "p50", 0.40, "P3"),
        Target(client, "unary-1KiB-100", "cpu", 0.20, "P4"),
        Target(client, "unary-64KiB-100", "cpu", 0.50, "P4"),
    )


def _tls_targets_of(client: str) -> tuple[Target, ...]:
    return (
        Target(client, "unary-16B-1", "cpu", 0.35, "P18"),
        Target(client, "unary-16B-100", "cpu", 0.30, "P18"),
    )


TARGETS: tuple[Target, ...] = (
    *_xds_targets_of("xds_uvloop"),
    *_xds_targets_of("xds_asyncio"),
    *_channel_targets_of("channel_uvloop"),
    *_channel_targets_of("channel_asyncio"),
    Target("channel_sync", "blocking-16B-1", "cpu", 0.45, "P5"),
    Target("channel_sync", "blocking-16B-1", "p50", 1.00, "P5"),
    Target("channel_sync", "blocking-16B-8", "cpu", 0.30, "P5"),
    Target("channel_sync", "blocking-16B-32", "cpu", 0.30, "P5"),
    *_transport_targets_of("transport_uvloop", (0.08, 0.12, 0.20)),
    *_transport_targets_of("transport_asyncio", (0.15, 0.20, 0.45)),
    *_tls_targets_of("tls_uvloop"),
    *_tls_targets_of("tls_asyncio"),
    *_tls_targets_of("mtls_uvloop"),
    *_tls_targets_of("mtls_asyncio"),
    Target("metrics_sync", "blocking-16B-1", "cpu", 0.50, "P19"),
    Target("metrics_sync", "blocking-16B-8", "cpu", 0.50, "P19"),
)


def reference_of(client: str) -> str:
    """The grpcio client that this one is compared with."""
    return CLIENTS[client].reference


def cpu_ratio(ours: Summary, reference: Summary) -> float:
    """Our CPU per operation over the reference's: less than 1 is better."""
    return ours.cpu_us / reference.cpu_us


def gain(ours: Summary, reference: Summary) -> float:
    """Our operations per CPU-second over the reference's: more than 1 is better."""
    return ours.per_cpu_s / reference.per_cpu_s


def cpu_ratio_range(ours: Summary, reference: Summary) -> tuple[float, float]:
    """The extremes of the ratio when each round is compared with the reference's same round."""
    pairs = zip(ours.cpu_us_rounds, reference.cpu_us_rounds, strict=False)
    ratios = [mine / theirs for mine, theirs in pairs]
    return min(ratios), max(ratios)


def measure_rounds(
    measure: Measure, ours: Sequence[Sample], reference: Sequence[Sample]
) -> list[float]:
    """The measure of each round compared with the reference's same round."""
    found = []
    for mine, theirs in zip(ours, reference, strict=False):
        got = _compare(measure, summarise([mine]), summarise([theirs]))
        if got is not None:
            found.append(got)
    return found


def judge(summaries: Summaries, targets: Iterable[Target] = TARGETS) -> list[Verdict]:
    """One verdict per target, in order."""
    return [_judge_one(target, summaries.get(target.workload, {})) for target in targets]


def is_acceptable(verdicts: Iterable[Verdict]) -> bool:
    """Whether no target was missed and at least one was met."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return Outcome.PASS in outcomes and Outcome.MISS not in outcomes


def _judge_one(target: Target, by_client: Mapping[str, Summary]) -> Verdict:
    ours, reference = by_client.get(target.client), by_client.get(reference_of(target.client))
    got = None if ours is None or reference is None else _compare(target.measure, ours, reference)
    if got is None:
        return Verdict(target, Outcome.NOT_MEASURED, None)
    return Verdict(target, Outcome.PASS if target.is_met_by(got) else Outcome.MISS, got)


def _compare(measure: Measure, ours: Summary, reference: Summary) -> float | None:
    match measure:
        case "cpu":
            return cpu_ratio(ours, reference)
        case "gain":
            return gain(ours, reference)
        case "rate":
            return ours.rate_per_s / reference.rate_per_s
        case "p50":
            if ours.p50_us is None or reference.p50_us is None:
                return None
            return ours.p50_us / reference.p50_us
