"""Search for the smallest run that fails in the same way.

A seed that fails has hundreds of RPCs and many workloads, most of which are unrelated to the
failure. `shrink` removes one option after another while the same checker still reports a violation;
`cut_log` then selects the events that concern the names in the violation.

Removing an option changes the whole run, so a smaller run may need another seed to fail.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from tools.simulation.options import CALM_S, Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tools.simulation.report import Outcome

    Run = Callable[[int, Options], Outcome]

# Maximum number of runs, which take a second or two each.
RUNS_MAX: Final = 150
# Number of other seeds that are tried for a smaller run.
OTHER_SEEDS: Final = 2
# Shortest fault phase: there is a fault about every ten seconds.
FAULTS_MIN_S: Final = 20.0
RPCS_PER_S_MIN: Final = 0.25
# Length of the log, and its start before the violation.
LINES_MAX: Final = 60
BEFORE_S: Final = 30.0

# Options that are reduced in steps; others are set to their default at once.
_COUNTS: Final = ("clients", "clusters", "backends", "localities")
_APART: Final = frozenset({*_COUNTS, "workloads", "faults_s", "calm_s", "rpcs_per_s", "steady"})

# Names in a violation or an event: RPCs, hosts, addresses; and clusters, in quotes.
_NAMES: Final = re.compile(
    r"\b(?:session-\d+-client-\d+-\d+|(?:rpc|client|web|control)-\d+|\d+(?:\.\d+){3}:\d+)\b"
)
_QUOTED: Final = re.compile(r"'([\w-]+)'")
_AT: Final = re.compile(r"\bat (\d+\.\d+) s\b")
_RPC: Final = re.compile(r"\brpc=(\S+)")
# Events that are shown for all hosts.
_ALWAYS_SHOWN: Final = re.compile(
    r"fault\.|dns\.changed|control\.(?:start|stop|snapshot)|backend\.(?:start|stop|goaway)|"
    r"client\.restart"
)

# ---------------------------------------------------------------------------------------------
# The run


@frozen
class Shrunk:
    """The smallest run that was found, its outcome, and the number of runs of the search."""

    seed: int
    options: Options
    outcome: Outcome
    # The checker whose violation is searched for.
    kind: str
    runs: int = 1

    @property
    def violation(self) -> str:
        """The first violation of the kind."""
        return self.outcome.violations[self.outcome.kinds.index(self.kind)]


def shrink(seed: int, options: Options, run: Run, runs_max: int = RUNS_MAX) -> Shrunk:
    """Search for a smaller run that fails; ValueError if the run itself does not fail."""
    outcome = run(seed, options)
    if outcome.is_good:
        raise ValueError(f"seed {seed} fails nothing with these options")
    smallest = Shrunk(seed, options, outcome, outcome.kinds[0])
    search = _Search(run, runs_max)
    before = None
    while smallest is not before:
        before, smallest = smallest, search.go_round(smallest)
    return replace(smallest, runs=search.runs)


class _Search:
    """Search with a limited number of runs."""

    def __init__(self, run: Run, runs_max: int) -> None:
        self._run = run
        self._runs_max = runs_max
        self.runs = 1

    def go_round(self, found: Shrunk) -> Shrunk:
        """Try each step, and repeat it while it helps."""
        tried: set[str] = set()
        while True:
            steps = smaller_options(found.options)
            step = next(((name, each) for name, each in steps if name not in tried), None)
            if step is None:
                return found
            name, options = step
            smaller = self._try(found, options)
            if smaller is None:
                tried.add(name)
            else:
                found = smaller

    def _try(self, found: Shrunk, options: Options) -> Shrunk | None:
        """A run with these options and the same violation, if there is one."""
        for seed in range(found.seed, found.seed + OTHER_SEEDS + 1):
            if self.runs == self._runs_max:
                return None
            self.runs += 1
            outcome = self._run(seed, options)
            if found.kind in outcome.kinds:
                return Shrunk(seed, options, outcome, found.kind)
        return None


def smaller_options(options: Options) -> Iterator[tuple[str, Options]]:
    """Smaller options, each with the name of the step; the largest steps first."""
    for name in options.workloads:
        rest = tuple(each for each in options.workloads if each != name)
        yield f"no {name}", replace(options, workloads=rest)
    if options.calm_s > CALM_S:
        yield "calm_s", replace(options, calm_s=CALM_S)
    default = Options()
    for name in (each.name for each in fields(options)):
        if name not in _APART and getattr(options, name) != getattr(default, name):
            yield name, _with(options, name, getattr(default, name))
    for name in _COUNTS:
        count = getattr(options, name)
        for step, fewer in ((f"one of {name}", 1), (f"fewer {name}", count - 1)):
            if 0 < fewer < count and _is_possible(options, name, fewer):
                yield step, _with(options, name, fewer)
    if options.faults_s > FAULTS_MIN_S:
        yield "faults_s", replace(options, faults_s=max(options.faults_s / 2, FAULTS_MIN_S))
    if options.rpcs_per_s > RPCS_PER_S_MIN:
        rpcs_per_s = max(options.rpcs_per_s / 2, RPCS_PER_S_MIN)
        yield "rpcs_per_s", replace(options, rpcs_per_s=rpcs_per_s)


def _with(options: Options, name: str, value: object) -> Options:
    changed: dict[str, object] = {name: value}
    smaller = replace(options, **changed)  # type: ignore[arg-type]
    # There are at most as many steady backends as clusters.
    return replace(smaller, steady=min(smaller.steady, smaller.clusters))


def _is_possible(options: Options, name: str, count: int) -> bool:
    """Whether every cluster has a backend."""
    clusters = count if name == "clusters" else options.clusters
    backends = count if name == "backends" else options.backends
    return backends >= clusters


# ---------------------------------------------------------------------------------------------
# The log


def cut_log(lines: Sequence[str], violation: str, lines_max: int = LINES_MAX) -> list[str]:
    """The newest events that concern the names in a violation, oldest first."""
    rpcs, names = _subjects(lines, violation)
    start_s, end_s = _window(lines, violation, rpcs)
    found = [
        line
        for line in lines
        if start_s <= _time_of(line) <= end_s and _concerns(line, rpcs, names)
    ]
    return found[-lines_max:]


def _subjects(lines: Sequence[str], violation: str) -> tuple[set[str], set[str]]:
    """The RPCs in a violation, and its other names with the hosts of these RPCs."""
    named = set(_NAMES.findall(violation)) | set(_QUOTED.findall(violation))
    rpcs = {name for name in named if name.startswith(("rpc-", "session-"))}
    hosts = {line.split()[1] for line in lines if _rpc_of(line) in rpcs}
    return rpcs, (named - rpcs) | hosts


def _window(lines: Sequence[str], violation: str, rpcs: set[str]) -> tuple[float, float]:
    """Time of the events to show: that of the violation and its RPCs, or of the whole run."""
    times = [float(text) for text in _AT.findall(violation)]
    times += [_time_of(line) for line in lines if _rpc_of(line) in rpcs]
    if not times:
        times = [_time_of(line) for line in (*lines[:1], *lines[-1:])]
    return min(times, default=0.0) - BEFORE_S, max(times, default=0.0) + 1.0


def _concerns(line: str, rpcs: set[str], names: set[str]) -> bool:
    rpc = _rpc_of(line)
    if rpc:
        return rpc in rpcs
    _, host, event = line.split()[:3]
    mentioned = {host, *re.findall(r"[\w.:-]+", line)}
    return bool(_ALWAYS_SHOWN.match(event)) or not names.isdisjoint(mentioned)


def _rpc_of(line: str) -> str:
    found = _RPC.search(line)
    return found.group(1) if found else ""


def _time_of(line: str) -> float:
    return float(line.split(maxsplit=1)[0])
