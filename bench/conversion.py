"""Conversion of the programs' JSON to figures and judgements of one schema. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from bench.results import Figure, Judgement

# A figure that is not measured at several sizes.
ONE: Final = 1
MEASURES: Final = {
    "cpu": "CPU per RPC, of grpcio's",
    "p50": "median latency, of grpcio's",
    "gain": "messages per CPU-second, × grpcio's",
    "rate": "RPCs per second, × grpcio's",
}
KINDS: Final = {
    "ratio": "of grpcio's",
    "slope": "for one more, of grpcio's",
    "flat": "of ours at {base:,}",
    "linear": "for one, of ours at {base:,}",
    "value": "ours",
    "no_more": "ours less grpcio's",
}
# Columns of a sample of the RPC benchmark.
SAMPLE: Final = ("p50_us", "p99_us")


@dataclass(slots=True)
class Converted:
    """What one program has measured."""

    figures: list[Figure] = field(default_factory=list)
    judgements: list[Judgement] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


Convert = Callable[[str, Mapping[str, Any]], Converted]


def from_rpc(number: str, run: Mapping[str, Any]) -> Converted:
    """Of bench/rpc.py: figures of every workload, and the targets of this row."""
    made = Converted(unavailable=dict(run["unavailable"]), failures=dict(run["failures"]))
    for result in run["results"]:
        what, client, samples = result["workload"], result["client"], result["rounds"]

        def add(measure: str, values: list[float], what: str = what, client: str = client) -> None:
            made.figures.append(Figure(what, ONE, measure, client, tuple(values)))

        add("cpu_us", [each["cpu_s"] / each["operations"] * 1e6 for each in samples])
        add("rate_per_s", [each["operations"] / each["wall_s"] for each in samples])
        for column in SAMPLE:
            values = [each[column] for each in samples]
            if None not in values:
                add(column, values)
    for target in run["targets"]:
        if target["number"] != number or target["outcome"] == "not measured":
            continue
        is_upper = target["measure"] in ("cpu", "p50")
        text = f"{target['workload']}: {MEASURES[target['measure']]}"
        rounds = tuple(target["rounds"])
        made.judgements.append(
            Judgement(text, target["client"], target["limit"], is_upper, target["got"], rounds)
        )
    return made


def from_scale(_number: str, run: Mapping[str, Any]) -> Converted:
    """Of bench/scale.py, which measures only the rows that it is asked for."""
    made = Converted(failures=dict(run["failures"]))
    for each in run["results"]:
        rounds = tuple(each["rounds"])
        made.figures.append(
            Figure(each["row"], each["size"], each["measure"], each["client"], rounds)
        )
    for target in run["targets"]:
        size = "" if target["size"] == 1 else f" {target['size']:,}"
        kind = KINDS[target["kind"]].format(base=target["base"])
        text = f"{target['row']}{size}: {target['measure']}, {kind}"
        rounds = tuple(target["rounds"])
        made.judgements.append(
            Judgement(
                text,
                target["client"],
                target["limit"],
                is_upper=True,
                got=target["got"],
                rounds=rounds,
            )
        )
    return made


def from_soak(_number: str, run: Mapping[str, Any]) -> Converted:
    """Of bench/soak.py: one round."""
    made = Converted()
    for each in run["clients"]:
        for measure in ("rpcs", "failed", "p50_ms", "p99_ms", "max_ms"):
            value = (float(each[measure]),)
            made.figures.append(Figure("soak", ONE, measure, each["client"], value))
        if each["client"] == "proxyless":
            failed = float(each["failed"])
            text = f"failed of {each['rpcs']:,} RPCs"
            made.judgements.append(Judgement(text, "proxyless", 0.0, is_upper=True, got=failed))
    return made


def from_observed(_number: str, run: Mapping[str, Any]) -> Converted:
    """Of bench/observed.py: what a setting adds to our own RPC."""
    made = Converted()
    off = run["cpu_us"]["off"]
    for setting, values in run["cpu_us"].items():
        made.figures.append(Figure(setting, ONE, "cpu_us", "channel_asyncio", tuple(values)))
        if setting == "off":
            continue
        rounds = tuple(each / base for each, base in zip(values, off, strict=True))
        made.judgements.append(
            Judgement(
                f"{setting}: CPU per RPC, of ours without",
                "channel_asyncio",
                1.1,
                is_upper=True,
                got=median(rounds),
                rounds=rounds,
            )
        )
    return made


def from_delta(_number: str, run: Mapping[str, Any]) -> Converted:
    """Of bench/delta.py: bytes are exact, so one round is enough."""
    made = Converted()
    by_client = run["kilobytes_and_cpu_ms"]
    for client, steps in by_client.items():
        for step, (kilobytes, cpu_ms) in steps.items():
            made.figures.append(Figure(step, run["clusters"], "kB", client, (kilobytes,)))
            made.figures.append(Figure(step, run["clusters"], "cpu_ms", client, (cpu_ms,)))
    ours, whole = by_client["proxyless, delta"], by_client["grpcio"]
    for step in ("one cluster changed", "new ADS stream"):
        got = ours[step][0] / whole[step][0]
        text = f"{step}: bytes, of grpcio's"
        made.judgements.append(Judgement(text, "proxyless, delta", 0.02, is_upper=True, got=got))
    return made


def from_picks(_number: str, run: Mapping[str, Any]) -> Converted:
    """Of bench/picks.py: a pick does not get slower with more endpoints."""
    made = Converted()
    for each in run["results"]:
        sizes = {int(size): tuple(values) for size, values in each["ns_rounds"].items()}
        for size, values in sizes.items():
            made.figures.append(Figure(each["policy"], size, "ns", "picker", values))
        text = f"{each['policy']}: time of a pick of {max(sizes):,}, of ours of {min(sizes):,}"
        limit, got = each["ratio_max"], each["ratio"]
        made.judgements.append(Judgement(text, "picker", limit, is_upper=True, got=got))
    return made


def from_churn(_number: str, run: Mapping[str, Any]) -> Converted:
    """Of bench/churn.py: sizes are minutes."""
    made = Converted()
    marks = run["load"]["marks"]
    for client, counts in run["clients"].items():
        for mark in marks:
            count = next((each for each in counts if each["minute"] >= mark), counts[-1])
            for measure in ("rss_kb", "descriptors", "tasks", "objects", "rpcs", "failed"):
                value = (float(count[measure]),)
                made.figures.append(Figure("minute", round(mark), measure, client, value))
    faults = run["faults"]
    text = f"minute {marks[-1]:g} against {marks[0]:g}: counts beyond their limits, and failed RPCs"
    got = float(len(faults))
    made.judgements.append(Judgement(text, "proxyless", 0.0, is_upper=True, got=got))
    made.failures.update({f"limit {n + 1}": fault for n, fault in enumerate(faults)})
    return made
