"""How are seeds run, many at a time, and how is a failing one told?

`python -m proxyless.sim --seed 7` runs one, `--seeds 200` the first 200, in as many processes as
there are jobs. Each seed that fails gets one line that reproduces it.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proxyless.sim.checkers import CHECKERS
from proxyless.sim.draws import derived_random
from proxyless.sim.probes import NAMES, Probes
from proxyless.sim.scenario import Options, Scenario
from proxyless.sim.workloads import TRAFFIC, WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one seed."""

    seed: int
    digest: str
    violations: tuple[str, ...]
    rpcs: Counter[str]
    probes: Counter[str] = field(default_factory=Counter)
    lines: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return not self.violations


def run_seed(seed: int, options: Options | None = None, *, lines_kept: int | None = 200) -> Outcome:
    """One run of ten virtual minutes, checked."""
    names = [each.name for each in WORKLOADS]
    chosen = options or Options.draw(derived_random(seed, "options"), names)
    scenario = Scenario(seed, chosen, lines_kept=lines_kept)
    probes = Probes(scenario.world.journal, scenario.world.now_s)
    scenario.build()
    workloads = [TRAFFIC, *(each for each in WORKLOADS if each.name in chosen.workloads)]
    scenario.world.run(scenario.live(workloads))
    probes.look_at(scenario)
    violations = [text for check in CHECKERS for text in check(scenario)]
    return Outcome(
        seed=seed,
        digest=scenario.world.journal.digest,
        violations=tuple(violations),
        rpcs=Counter(rpc.code for rpc in scenario.recorder.rpcs.values()),
        probes=probes.hits,
        lines=tuple(scenario.world.journal.lines),
    )


def run_seeds(seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
    """Each as soon as it and all before it are done."""
    if jobs == 1:
        yield from map(run_seed_quietly, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_seed_quietly, seeds)


def run_seed_quietly(seed: int) -> Outcome:
    """As `run_seed`; what the stack would log is expected here, and an exception is a violation."""
    with _quiet():
        try:
            return run_seed(seed)
        except Exception as error:  # Whatever it is, the other seeds go on.
            text = f"the run raised {type(error).__name__}: {error}"
            return Outcome(seed, "", (text,), Counter())


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the logs of a stack whose world is full of faults; as it was afterwards."""
    loggers = [logging.getLogger(name) for name in ("proxyless", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every seed is good, 1 if one is not."""
    parser = argparse.ArgumentParser("python -m proxyless.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--seeds", type=int, default=20, help="run so many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--log", action="store_true", help="with --seed: print every event")
    settings = parser.parse_args(arguments)
    if settings.seed is not None:
        return _run_one(settings.seed, is_logged=settings.log)
    return _run_many(range(settings.first, settings.first + settings.seeds), settings.jobs)


def _run_one(seed: int, *, is_logged: bool) -> int:
    with _quiet():
        outcome = run_seed(seed, lines_kept=None if is_logged else 0)
    for line in outcome.lines:
        print(line)
    for text in outcome.violations:
        print(f"violation: {text}")
    print(f"seed {seed}: digest {outcome.digest[:16]}, rpcs {_show_rpcs(outcome.rpcs)}")
    return 0 if outcome.is_good else 1


def _run_many(seeds: range, jobs: int) -> int:
    failed = 0
    rpcs: Counter[str] = Counter()
    probes: Counter[str] = Counter()
    for outcome in run_seeds(seeds, jobs):
        rpcs += outcome.rpcs
        probes += outcome.probes
        if not outcome.is_good:
            failed += 1
            first, more = outcome.violations[0], len(outcome.violations) - 1
            print(f"python -m proxyless.sim --seed {outcome.seed}  # {first} (and {more} more)")
            sys.stdout.flush()
    print(f"{len(seeds)} seeds, {failed} failed, rpcs {_show_rpcs(rpcs)}")
    for name in NAMES:
        print(f"  {probes[name]:8} {name}" if probes[name] else f"     never {name}")
    return 1 if failed else 0


def _show_rpcs(rpcs: Counter[str]) -> str:
    return ", ".join(f"{code} {times}" for code, times in sorted(rpcs.items()))
