"""Benchmark of route selection: cost per RPC by number of routes. The command line.

    python bench/routes.py [--rounds N] [--seconds S] [--only SUBJECT...] [--targets] [--json FILE]

It measures CPU time of this process for one `select` and its commit, as an xDS channel does for
each RPC. Only the last route matches, so that a linear search would be visible. The paths of the
RPCs are cached by then: the cost of the first RPC of a path is printed beside it.

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
    # Run as a file: import from the checkout, not from this directory.
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
# The cost of an RPC with 10,000 routes, at most, as a multiple of that with 10.
RATIO_MAX = 1.2
ROUNDS, SECONDS = 7, 0.1
QUICK_ROUNDS, QUICK_SECONDS = 3, 0.02
INTERRUPTED = 130
NANOSECONDS = 1e9

# Metadata of each RPC, with the headers that routes match.
METADATA: Metadata = (("x-request-id", "0123456789"), ("x-tenant", "last"), ("x-trace", "abc"))
CALLS_PER_TURN = 100

# ---------------------------------------------------------------------------------------------
# Subjects


def by_path(number: int) -> Route:
    return _route(PathMatcher("path", f"/shop.Service{number}/Get"))


def by_prefix(number: int) -> Route:
    return _route(PathMatcher("prefix", f"/shop.Service{number}/"))


def by_header(number: int) -> Route:
    """A route for every path, by header: every route is a candidate."""
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
    """`count` routes, of which only the last matches RPCs with `METADATA`."""
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
    """Cluster subscriptions that do nothing."""

    def subscribe(self, name: str) -> "_Subscriptions":
        return self

    def release(self) -> None:
        return


# ---------------------------------------------------------------------------------------------
# Measuring


@dataclass(frozen=True, slots=True)
class Result:
    """Measurements of one subject."""

    name: str
    # Nanoseconds per RPC of each round, by number of routes.
    ns_rounds: Mapping[int, Sequence[float]]
    # The same for the first RPC of a path.
    ns_first: Mapping[int, float]

    def ns(self, size: int) -> float:
        return median(self.ns_rounds[size])

    @property
    def ratio(self) -> float:
        """Cost of an RPC with the most routes, divided by that with the fewest."""
        return self.ns(max(self.ns_rounds)) / self.ns(min(self.ns_rounds))

    @property
    def is_met(self) -> bool:
        return self.ratio <= RATIO_MAX


def measure(
    names: Sequence[str], sizes: Sequence[int], rounds: int, seconds: float
) -> list[Result]:
    """Run turns of all subjects and sizes in each round, to compare them at the same speed."""
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
    """Select and commit one RPC."""
    config = selector.select(path, METADATA)
    assert isinstance(config, CallConfig), f"{path} is not routed: {config}"
    assert config.on_commit is not None, "a cluster is marked as in use"
    config.on_commit()


def take_first(selector: ConfigSelector) -> float:
    """Nanoseconds for the first RPC of a path: the fastest of a few."""
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
    parser.add_argument(
        "--quick", action="store_true", help="short test run; the figures are not reliable"
    )
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
