"""Benchmark of picks: cost of a pick by policy and number of endpoints. The command line.

    python bench/picks.py [--rounds N] [--seconds S] [--only POLICY...] [--targets] [--json FILE]

It measures CPU time of this process. Each round has a turn of every policy at every size, so that
a change of the machine's speed affects all of them.

Exit codes: 0 measured (and with --targets: all met), 1 a target was missed, 2 wrong usage, 130
interrupted.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

if not __package__:
    # Run as a file: import from the checkout, not from this directory.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.pick_subjects import Subject, find_subjects, make_infos, make_picker
from bench.report import format_columns
from bench.selection import select_names
from proxyless.lb import Picker, PickInfo

SIZES = (10, 1_000, 10_000)
ROUNDS, SECONDS = 7, 0.1
QUICK_ROUNDS, QUICK_SECONDS = 3, 0.02
INTERRUPTED = 130
NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Result:
    """Measurements of one subject."""

    name: str
    ratio_max: float
    # Nanoseconds per pick of each round, by number of endpoints.
    ns_rounds: Mapping[int, Sequence[float]]

    def ns(self, size: int) -> float:
        return median(self.ns_rounds[size])

    @property
    def ratio(self) -> float:
        """Cost of a pick with the most endpoints, divided by that with the fewest."""
        return self.ns(max(self.ns_rounds)) / self.ns(min(self.ns_rounds))

    @property
    def is_met(self) -> bool:
        return self.ratio <= self.ratio_max


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Nanoseconds per pick, by number of endpoints.")
    parser.add_argument("--rounds", type=int, help=f"turns of each size (default {ROUNDS})")
    parser.add_argument("--seconds", type=float, help=f"length of a turn (default {SECONDS})")
    parser.add_argument("--only", nargs="+", metavar="POLICY", help="names or their beginnings")
    parser.add_argument(
        "--quick", action="store_true", help="short test run; the figures are not reliable"
    )
    parser.add_argument("--targets", action="store_true", help="judge against the targets")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number to FILE")
    parser.add_argument("--list", action="store_true", help="list the policies")
    arguments = parser.parse_args(argv)
    if arguments.rounds is None:
        arguments.rounds = QUICK_ROUNDS if arguments.quick else ROUNDS
    if arguments.seconds is None:
        arguments.seconds = QUICK_SECONDS if arguments.quick else SECONDS
    if arguments.rounds < 1 or arguments.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    subjects = find_subjects()
    try:
        arguments.only = select_names(subjects, arguments.only or list(subjects))
    except ValueError as error:
        parser.error(str(error))
    return arguments


def measure(
    subjects: Sequence[Subject], sizes: Sequence[int], rounds: int, seconds: float
) -> list[Result]:
    infos = make_infos()
    pickers: dict[tuple[str, int], Picker] = {}
    for subject in subjects:
        log_progress(subject.name)
        for size in sizes:
            pickers[subject.name, size] = make_picker(subject, size, infos)
    samples: dict[tuple[str, int], list[float]] = {turn: [] for turn in pickers}
    for _ in range(rounds):
        for turn, picker in pickers.items():
            samples[turn].append(take_turn(picker, infos, seconds))
    return [
        Result(each.name, each.ratio_max, {size: samples[each.name, size] for size in sizes})
        for each in subjects
    ]


def take_turn(picker: Picker, infos: Sequence[PickInfo], seconds: float) -> float:
    """Nanoseconds per pick."""
    pick, now = picker.pick, time.process_time
    picks, begin_s, spent_s = 0, now(), 0.0
    while not picks or spent_s < seconds:
        for info in infos:
            pick(info)
        picks += len(infos)
        spent_s = now() - begin_s
    return spent_s / picks * NANOSECONDS


def format_results(results: Sequence[Result]) -> str:
    sizes = sorted(results[0].ns_rounds)
    ratio = f"{sizes[-1]:,}:{sizes[0]:,}"
    rows = [("ns per pick", *(f"{size:,} endpoints" for size in sizes), ratio, "target", "")]
    for each in results:
        cells = (f"{each.ns(size):.0f}" for size in sizes)
        outcome = "pass" if each.is_met else "miss"
        rows.append((each.name, *cells, f"{each.ratio:.2f}", f"≤ {each.ratio_max:.1f}", outcome))
    return format_columns(rows)


def to_json(results: Sequence[Result]) -> dict[str, object]:
    """The run as plain values: every round, the medians, the ratios."""
    return {
        "environment": {"python": platform.python_version(), "machine": platform.platform()},
        "results": [
            {
                "policy": each.name,
                "ns_per_pick": {str(size): each.ns(size) for size in each.ns_rounds},
                "ns_rounds": {str(size): list(ns) for size, ns in each.ns_rounds.items()},
                "ratio": each.ratio,
                "ratio_max": each.ratio_max,
                "outcome": "pass" if each.is_met else "miss",
            }
            for each in results
        ],
    }


def log_progress(line: str) -> None:
    """Print to stderr; stdout has only the results."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    if arguments.list:
        sys.stdout.write("\n".join(find_subjects()) + "\n")
        return 0
    subjects = [find_subjects()[name] for name in arguments.only]
    try:
        results = measure(subjects, SIZES, arguments.rounds, arguments.seconds)
    except KeyboardInterrupt:
        log_progress("interrupted")
        return INTERRUPTED
    sys.stdout.write(format_results(results) + "\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(to_json(results), indent=2) + "\n")
    return 1 if arguments.targets and not all(each.is_met for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
