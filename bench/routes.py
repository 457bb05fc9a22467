"""What does selection cost an RPC, and does it cost more with more routes? The command line.

    python bench/routes.py [--rounds N] [--seconds S] [--only SUBJECT...] [--targets] [--json FILE]

CPU time of this process for one `select` and its commit, as an xDS channel does it for each RPC.
Only the last route takes the RPCs, so that a search from the first to the last would show. The
paths of the RPCs are known by then: what the first RPC of a path costs is printed beside it.

Exit codes: 0 measured (and with --targets: all met), 1 a target was missed, 2 wrong usage, 130
interrupted.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

if not __package__:
    # Run as a file: what is importable is the checkout, not this directory.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import format_columns
from bench.selection import select_names
from proxyless.base import Metadata
from proxyless.channel import CallConfig, ConfigSelector
from proxyless.runtime import seeded_random
from proxyless.xds.config import XdsConfig
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.resources import (
    ClusterChoice,
    HeaderMatcher,
    HttpConnectionManager,
    Listener,
    PathMatcher,
    Route,
    RouteAction,
    RouteConfiguration,
    StringMatcher,
    VirtualHost,
)
from proxyless.xds.routing.cluster_refs import ClusterRefs
from proxyless.xds.routing.route_table import RouteTable
from proxyless.xds.routing.selector import SelectorTools, XdsConfigSelector

SIZES = (10, 1_000, 10_000)
# What 10,000 routes may cost an RPC, as a multiple of what 10 cost.
RATIO_MAX = 1.2
ROUNDS, SECONDS = 7, 0.1
QUICK_ROUNDS, QUICK_SECONDS = 3, 0.02
INTERRUPTED = 130
NANOSECONDS = 1e9

# What an RPC has beside its path; the headers of routes are among them.
METADATA: Metadata = (("x-request-id", "0123456789"), ("x-tenant", "last"), ("x-trace", "abc"))
CALLS_PER_TURN = 100

# ---------------------------------------------------------------------------------------------
# What is measured


def by_path(number: int) -> Route:
    return _route(PathMatcher("path", f"/shop.Service{number}/Get"))


def by_prefix(number: int) -> Route:
    return _route(PathMatcher("prefix", f"/shop.Service{number}/"))


def by_header(number: int) -> Route:
    """For every path, if the tenant is the right one: all of these come into question."""
    matcher = HeaderMatcher("x-tenant", StringMatcher("exact", f"tenant-{number}"))
    return _route(PathMatcher("prefix", "/"), matcher)


def by_anything(number: int) -> Route:
    return (by_path, by_prefix, by_header)[number % 3](number)


SUBJECTS: Mapping[str, Callable[[int], Route]] = {
    "paths": by_path,
    "prefixes": by_prefix,
    "headers": by_header,
    "mixed": by_anything,
}


def _route(path: PathMatcher, *headers: HeaderMatcher) -> Route:
    return Route(path=path, headers=headers, action=RouteAction(choice=ClusterChoice("cluster")))


def make_routes(subject: str, count: int) -> tuple[Route, ...]:
    """So many routes, of which only the last takes the RPCs of `METADATA`."""
    last = HeaderMatcher("x-tenant", StringMatcher("exact", "last"))
    others = map(SUBJECTS[subject], range(count - 1))
    return (*others, _route(PathMatcher("prefix", "/wanted."), last))


def make_selector(routes: tuple[Route, ...]) -> XdsConfigSelector:
    host = VirtualHost(domains=("*",), routes=routes)
    config = RouteConfiguration(name="routes", virtual_hosts=(host,))
    listener = Listener("bench", HttpConnectionManager(config))
    random = seeded_random(1)
    tools = SelectorTools(
        ClusterRefs(lambda: None), _Subscriptions(), FilterRegistry(FILTER_FACTORIES), random, 15.0
    )
    return XdsConfigSelector(XdsConfig(listener, config, host, {}), RouteTable(host, random), tools)


class _Subscriptions:
    """Nobody is asked for clusters."""

    def subscribe(self, name: str) -> "_Subscriptions":
        return self

    def release(self) -> None:
        return


# ---------------------------------------------------------------------------------------------
# Measuring


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured of one subject."""

    name: str
    # Nanoseconds per RPC, round by round, by number of routes.
    ns_rounds: Mapping[int, Sequence[float]]
    # And of the first RPC of a path.
    ns_first: Mapping[int, float]

    def ns(self, size: int) -> float:
        return median(self.ns_rounds[size])

    @property
    def ratio(self) -> float:
        """What an RPC costs with the most routes over what it costs with the fewest."""
        return self.ns(max(self.ns_rounds)) / self.ns(min(self.ns_rounds))

    @property
    def is_met(self) -> bool:
        return self.ratio <= RATIO_MAX


def measure(
    names: Sequence[str], sizes: Sequence[int], rounds: int, seconds: float
) -> list[Result]:
    """Each round gives every subject at every size a turn, so that all meet the same machine."""
    turns = {
        (name, size): make_selector(make_routes(name, size)) for name in names for size in sizes
    }
    first = {turn: take_first(selector) for turn, selector in turns.items()}
    samples: dict[tuple[str, int], list[float]] = {turn: [] for turn in turns}
    for _ in range(rounds):
        for turn, selector in turns.items():
            samples[turn].append(take_turn(selector, seconds))
    return [
        Result(
            name,
            {size: samples[name, size] for size in sizes},
            {size: first[name, size] for size in sizes},
        )
        for name in names
    ]


def select(selector: ConfigSelector, path: str) -> None:
    """One RPC: selected, and committed at once."""
    config = selector.select(path, METADATA)
    assert isinstance(config, CallConfig), f"{path} is not routed: {config}"
    assert config.on_commit is not None, "a cluster is marked as in use"
    config.on_commit()


def take_first(selector: ConfigSelector) -> float:
    """Nanoseconds for an RPC whose path nobody has asked for: the fastest of a few."""
    spent_s = []
    for number in range(5):
        begin_s = time.process_time()
        select(selector, f"/wanted.First{number}/Get")
        spent_s.append(time.process_time() - begin_s)
    return min(spent_s) * NANOSECONDS


def take_turn(selector: ConfigSelector, seconds: float) -> float:
    """Nanoseconds per RPC."""
    paths = [f"/wanted.Service/Method{number}" for number in range(CALLS_PER_TURN)]
    now = time.process_time
    for path in paths:
        select(selector, path)
    calls, begin_s, spent_s = 0, now(), 0.0
    while not calls or spent_s < seconds:
        for path in paths:
            select(selector, path)
        calls += len(paths)
        spent_s = now() - begin_s
    return spent_s / calls * NANOSECONDS


# ---------------------------------------------------------------------------------------------
# Results


def format_results(results: Sequence[Result]) -> str:
    sizes = sorted(results[0].ns_rounds)
    ratio = f"{sizes[-1]:,}:{sizes[0]:,}"
    rows = [
        (
            "ns per RPC",
            *(f"{size:,} routes" for size in sizes),
            ratio,
            "target",
            "",
            f"first, {sizes[-1]:,}",
        )
    ]
    for each in results:
        cells = (f"{each.ns(size):.0f}" for size in sizes)
        outcome = "pass" if each.is_met else "miss"
        first = f"{each.ns_first[sizes[-1]]:.0f}"
        rows.append((each.name, *cells, f"{each.ratio:.2f}", f"≤ {RATIO_MAX:.1f}", outcome, first))
    return format_columns(rows)


def to_json(results: Sequence[Result]) -> dict[str, object]:
    """The run as plain values: every round, the medians, the ratios."""
    return {
        "environment": {"python": platform.python_version(), "machine": platform.platform()},
        "results": [
            {
                "subject": each.name,
                "ns_per_rpc": {str(size): each.ns(size) for size in each.ns_rounds},
                "ns_rounds": {str(size): list(ns) for size, ns in each.ns_rounds.items()},
                "ns_first": {str(size): ns for size, ns in each.ns_first.items()},
                "ratio": each.ratio,
                "ratio_max": RATIO_MAX,
                "outcome": "pass" if each.is_met else "miss",
            }
            for each in results
        ],
    }


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Nanoseconds per RPC, by number of routes.")
    parser.add_argument("--rounds", type=int, help=f"turns of each size (default {ROUNDS})")
    parser.add_argument("--seconds", type=float, help=f"length of a turn (default {SECONDS})")
    parser.add_argument("--only", nargs="+", metavar="SUBJECT", help="names or their beginnings")
    parser.add_argument("--quick", action="store_true", help="short: shows that it works, no more")
    parser.add_argument("--targets", action="store_true", help="judge against the targets")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number to FILE")
    arguments = parser.parse_args(argv)
    if arguments.rounds is None:
        arguments.rounds = QUICK_ROUNDS if arguments.quick else ROUNDS
    if arguments.seconds is None:
        arguments.seconds = QUICK_SECONDS if arguments.quick else SECONDS
    if arguments.rounds < 1 or arguments.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    try:
        arguments.only = select_names(SUBJECTS, arguments.only or list(SUBJECTS))
    except ValueError as error:
        parser.error(str(error))
    return arguments


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    try:
        results = measure(arguments.only, SIZES, arguments.rounds, arguments.seconds)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    sys.stdout.write(format_results(results) + "\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(to_json(results), indent=2) + "\n")
    return 1 if arguments.targets and not all(each.is_met for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
