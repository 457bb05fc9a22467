"""Outcome of one seed, and the summary of many."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proxyless.base.frozen import frozen
from tools.simulation.probes import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.simulation.options import Options


@frozen
class Outcome:
    """Outcome of one seed."""

    seed: int
    digest: str
    violations: tuple[str, ...]
    rpcs: Counter[str]
    probes: Counter[str] = field(default_factory=Counter)
    lines: tuple[str, ...] = ()
    # The checker of each violation, in the same order.
    kinds: tuple[str, ...] = ()
    virtual_s: float = 0.0
    events: int = 0
    # The clusters of the last config of each client, as texts.
    finals: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return not self.violations


def show_command(seed: int, options: Options | None = None) -> str:
    """Command line that runs a seed again, with options if they are not the seed's own."""
    command = f"python -m tools.simulation --seed {seed}"
    return command if options is None else f"{command} --options '{options.describe()}'"


def show_failure(outcome: Outcome, options: Options | None = None) -> str:
    """One line for a seed that failed: the command to run it again, and the first violation."""
    first, more = outcome.violations[0], len(outcome.violations) - 1
    return f"{show_command(outcome.seed, options)}  # {first} (and {more} more)"


def show_rpcs(rpcs: Counter[str]) -> str:
    return ", ".join(f"{code} {times:,}" for code, times in sorted(rpcs.items()))


@dataclass(slots=True)
class Report:
    """Sum of many outcomes."""

    seeds: int = 0
    failed: int = 0
    rpcs: Counter[str] = field(default_factory=Counter)
    probes: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0
    events: int = 0

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.failed += not outcome.is_good
        self.rpcs += outcome.rpcs
        self.probes += outcome.probes
        self.virtual_s += outcome.virtual_s
        self.events += outcome.events

    @property
    def missed(self) -> list[str]:
        """Rare situations that no seed reached."""
        return [name for name in NAMES if not self.probes[name]]

    def lines(self, real_s: float, cpu_s: float) -> Iterator[str]:
        """Lines of the summary. `real_s` is elapsed time, `cpu_s` processor time."""
        yield f"{self.seeds:,} seeds, {self.failed} failed"
        yield f"rpcs {show_rpcs(self.rpcs)}"
        yield (
            f"{self.virtual_s:,.0f} virtual s in {real_s:,.1f} s:"
            f" {self.virtual_s / real_s:,.0f} times as fast"
            f" ({self.virtual_s / cpu_s:,.0f} times per processor, {cpu_s:,.1f} s of it);"
            f" {self.events:,} events, {self.events / real_s:,.0f} per s"
        )
        for name in NAMES:
            times = self.probes[name]
            yield f"  {times:8} {name}" if times else f"     never {name}"
