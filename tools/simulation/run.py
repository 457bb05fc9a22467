"""Command line that runs seeds, many at a time.

`python -m tools.simulation --seed 7` runs one, `--seeds 200` the first 200, in as many processes as
there are jobs. Each seed that fails gets one line that reproduces it, and `--shrink` finds a
smaller run that fails in the same way.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from time import perf_counter  # noqa: TID251 - the duration for the user is not virtual
from typing import TYPE_CHECKING, Final

from proxyless.sim.journal import without_logs
from tools.simulation.checkers import CHECKERS
from tools.simulation.options import Options
from tools.simulation.probes import Probes
from tools.simulation.report import Outcome, Report, show_command, show_failure, show_rpcs
from tools.simulation.scenario import Scenario
from tools.simulation.shrink import cut_log, shrink
from tools.simulation.workloads import TRAFFIC, WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Outcome", "main", "options_of", "run_seed", "run_seed_quietly", "run_seeds"]

# Resolution of processor time.
_TICK_S: Final = 0.01


def options_of(seed: int) -> Options:
    return Options.of_seed(seed, [each.name for each in WORKLOADS])


def run_seed(seed: int, options: Options | None = None, *, lines_kept: int | None = 200) -> Outcome:
    """Execute and check one run of ten virtual minutes."""
    chosen = options or options_of(seed)
    workloads = [TRAFFIC, *(each for each in WORKLOADS if each.name in chosen.workloads)]
    scenario = Scenario(seed, chosen, lines_kept=lines_kept)
    probes = Probes(scenario.world.journal, scenario.world.now_s)
    try:
        scenario.build()
        scenario.world.run(scenario.live(workloads))
    finally:
        scenario.world.loop.close()
    probes.count_records(scenario)
    found = [(check.__name__, text) for check in CHECKERS for text in check(scenario)]
    return Outcome(
        seed=seed,
        digest=scenario.world.journal.digest,
        violations=tuple(text for _, text in found),
        rpcs=Counter(rpc.code for rpc in scenario.recorder.rpcs.values()),
        probes=probes.hits,
        lines=tuple(scenario.world.journal.lines),
        kinds=tuple(name for name, _ in found),
        virtual_s=scenario.world.now_s() - scenario.start_s,
        events=scenario.world.journal.counts.total(),
        finals=tuple(
            f"{name}: generation {config.generation}, cluster {cluster}: {view.describe()}"
            for name, client in sorted(scenario.recorder.clients.items())
            for config in client.configs[-1:]
            for cluster, view in sorted(config.clusters.items())
        ),
    )


def run_seeds(seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
    """Outcomes in the order of the seeds."""
    if jobs == 1:
        yield from map(run_seed_quietly, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_seed_quietly, seeds)


def run_seed_quietly(
    seed: int, options: Options | None = None, *, lines_kept: int | None = 200
) -> Outcome:
    """`run_seed` without logs, whose warnings are expected; an exception is a violation."""
    with without_logs():
        try:
            return run_seed(seed, options, lines_kept=lines_kept)
        except Exception as error:  # The other seeds must run.
            kind = f"raised {type(error).__name__}"
            return Outcome(seed, "", (f"the run {kind}: {error}",), Counter(), kinds=(kind,))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; returns 1 if one fails, or if a required situation was not reached."""
    parser = argparse.ArgumentParser("python -m tools.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("--options", type=Options.parse, help="with --seed: other options")
    parser.add_argument("--log", action="store_true", help="with --seed: print every event")
    parser.add_argument("--shrink", action="store_true", help="with --seed: find a smaller run")
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument(
        "--variants", action="store_true", help="run each seed with both variants of xDS"
    )
    parser.add_argument(
        "--require-probes", action="store_true", help="fail if a rare situation is never reached"
    )
    settings = parser.parse_args(arguments)
    if settings.seed is None:
        seeds = range(settings.first, settings.first + settings.seeds)
        if settings.variants:
            return _compare_variants(seeds, settings.jobs)
        return _run_many(seeds, settings.jobs, is_strict=settings.require_probes)
    if settings.shrink:
        return _shrink(settings.seed, settings.options)
    return _run_one(settings.seed, settings.options, is_logged=settings.log)


def _compare_variants(seeds: range, jobs: int) -> int:
    """Run each seed with both variants, and with LEDS: good, and the same last configs."""
    failed = 0
    with ProcessPoolExecutor(jobs) as pool:
        for number, texts in enumerate(pool.map(find_differences, seeds), 1):
            for text in texts:
                print(text, flush=True)
            failed += bool(texts)
            if sys.stderr.isatty():
                print(f"\r{number} of {len(seeds)} seeds", end="", file=sys.stderr, flush=True)
    print(f"{len(seeds)} seeds with both variants of xDS, {failed} of them differ or fail")
    return 1 if failed else 0


def find_differences(seed: int) -> list[str]:
    """What is wrong in a run of either variant, or with LEDS, and last configs that differ."""
    variants = [
        replace(options_of(seed), is_delta=is_delta, has_collections=has_collections)
        for is_delta, has_collections in ((False, False), (True, False), (True, True))
    ]
    outcomes = [run_seed_quietly(seed, options) for options in variants]
    texts = [
        show_failure(outcome, options)
        for outcome, options in zip(outcomes, variants, strict=True)
        if not outcome.is_good
    ]
    if texts:
        return texts
    first, *others = outcomes
    return [
        f"{show_command(seed, options)}  # {text} only with one variant"
        for other, options in zip(others, variants[1:], strict=True)
        for text in sorted({*first.finals} ^ {*other.finals})
    ]


def _run_one(seed: int, options: Options | None, *, is_logged: bool) -> int:
    with without_logs():
        outcome = run_seed(seed, options, lines_kept=None if is_logged else 0)
    for line in outcome.lines:
        print(line)
    for text in outcome.violations:
        print(f"violation: {text}")
    print(f"seed {seed}: digest {outcome.digest[:16]}, rpcs {show_rpcs(outcome.rpcs)}")
    return 0 if outcome.is_good else 1


def _run_many(seeds: range, jobs: int, *, is_strict: bool) -> int:
    report, started_s, worked_s = Report(), perf_counter(), _worked_s()
    for outcome in run_seeds(seeds, jobs):
        report.add(outcome)
        if not outcome.is_good:
            print(show_failure(outcome), flush=True)
        _show_progress(report, len(seeds))
    real_s, cpu_s = perf_counter() - started_s, max(_worked_s() - worked_s, _TICK_S)
    for line in report.lines(real_s, cpu_s):
        print(line)
    if is_strict and report.missed:
        print(f"never reached: {'; '.join(report.missed)}")
    return 1 if report.failed or (is_strict and report.missed) else 0


def _worked_s() -> float:
    """Processor time of this process and of its finished children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _show_progress(report: Report, total: int) -> None:
    """Overwrite the line of progress, if stderr is a terminal."""
    if sys.stderr.isatty():
        end = "\n" if report.seeds == total else ""
        text = f"\r{report.seeds} of {total} seeds, {report.failed} failed{end}"
        print(text, end="", file=sys.stderr, flush=True)


def _shrink(seed: int, options: Options | None) -> int:
    def run(tried: int, with_options: Options) -> Outcome:
        return run_seed_quietly(tried, with_options, lines_kept=None)

    try:
        found = shrink(seed, options or options_of(seed), run)
    except ValueError as error:
        print(error)
        return 0
    for line in cut_log(found.outcome.lines, found.violation):
        print(line)
    print(f"violation: {found.violation}")
    print(f"{show_command(found.seed, found.options)}  # the smallest of {found.runs} runs")
    return 1
