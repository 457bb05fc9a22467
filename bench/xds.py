"""Benchmark of ADS responses: CPU from the bytes to the notification of watchers.

    python bench/xds.py [--rounds N] [--only WORKLOAD...] [--targets] [--json FILE]

Each response goes through a real XdsClient whose transport is a function call: decoding,
validation, cache, notifications and the ACK are measured, the network is not. It measures CPU time
of the process for the first response, for one with a changed entry, and for the same again.

Exit codes: 0 measured (and with --targets: all met), 1 a target was missed, 2 wrong usage.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

if not __package__:
    # Run as a file: import from the checkout, not from this directory.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import format_columns
from bench.selection import select_names
from bench.xds_workloads import WORKLOADS, Workload
from proxyless.base import OK, Status
from proxyless.runtime import VirtualClock, seeded_random
from proxyless.xds.bootstrap import Bootstrap, ChannelCreds, Node, ServerConfig
from proxyless.xds.client import StreamListener, Tools, XdsClient

ROUNDS = 5

# Targets, at the largest size of a workload.
FIRST_MS_MAX = {"endpoints": 500.0}
CHANGED_SHARE_MAX = 1 / 3
# The cost per entry at the largest size, at most, as a multiple of that at the smallest.
GROWTH_MAX = 1.5

# ---------------------------------------------------------------------------------------------
# One delivery


class Loopback:
    """A transport and its only stream, to this benchmark as the control plane."""

    def __init__(self) -> None:
        self.listener: StreamListener | None = None
        self.sent = 0

    def create(self, server: ServerConfig) -> "Loopback":
        return self

    def open(self, method_path: str, listener: StreamListener) -> "Loopback":
        self.listener = listener
        return self

    def watch_connectivity(self, listener: Callable[[Status], None]) -> None:
        """No-op: it is always connected."""

    def retry_in_s(self) -> None:
        return None

    def last_failure(self) -> Status:
        return OK

    def send(self, message: bytes) -> None:
        self.sent += 1

    @property
    def is_writable(self) -> bool:
        return True

    def read_next(self) -> None:
        """No-op: `deliver_ms` calls the listener."""

    @property
    def is_receiving(self) -> bool:
        return False

    def probe(self, on_answer: Callable[[], None]) -> None:
        on_answer()

    def close(self) -> None:
        self.listener = None


class Counter:
    """A watcher that counts resources and collects errors."""

    def __init__(self) -> None:
        self.resources = 0
        self.errors: list[Status] = []

    def on_resource(self, resource: object) -> None:
        if isinstance(resource, Status):
            self.errors.append(resource)
        else:
            self.resources += 1

    def on_ambient_error(self, status: Status) -> None:
        self.errors.append(status)


class Session:
    """One client with watches for all resources of a workload."""

    def __init__(self, workload: Workload, size: int) -> None:
        server = ServerConfig("control-plane:1", ChannelCreds("insecure"))
        self._clock = VirtualClock()
        self._loopback = Loopback()
        tools = Tools(self._clock, seeded_random(1))
        bootstrap = Bootstrap(servers=(server,), node=Node("bench"))
        self._client = XdsClient(bootstrap, self._loopback, tools)
        self._counter = Counter()
        kind = workload.make_type()
        for name in workload.names(size):
            self._client.watch(kind, name, self._counter)
        self._clock.advance(0)
        assert self._loopback.listener is not None, "watching opens a stream"
        self._loopback.listener.on_ready()
        self._clock.advance(0)

    def deliver_ms(self, response: bytes, expected: int) -> float:
        """CPU time until every watcher is notified; `expected` resources must be delivered."""
        assert self._loopback.listener is not None, "watching opens a stream"
        count_before, sent_before = self._counter.resources, self._loopback.sent
        start_s = time.process_time()
        self._loopback.listener.on_message(response)
        self._clock.advance(0)
        spent_s = time.process_time() - start_s
        if self._counter.errors:
            raise RuntimeError(f"response was refused: {self._counter.errors[0].details}")
        delivered = self._counter.resources - count_before
        if delivered != expected or self._loopback.sent == sent_before:
            raise RuntimeError(
                f"{delivered} resources were delivered, wanted {expected} and an ACK"
            )
        return spent_s * 1000

    def close(self) -> None:
        self._client.close()


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one size of a workload, in milliseconds: medians over the rounds."""

    workload: str
    size: int
    first_ms: float
    changed_ms: float
    same_ms: float

    @property
    def us_per_entry(self) -> float:
        return self.first_ms * 1000 / self.size

    @property
    def changed_share(self) -> float:
        return self.changed_ms / self.first_ms


def measure(workload: Workload, size: int, rounds: int) -> Cost:
    first = workload.make_response(size, 1)
    changed = workload.make_response(size, 2, changed=size // 2)
    again = workload.make_response(size, 3, changed=size // 2)
    resources = len(workload.names(size))
    samples = []
    for _ in range(rounds):
        session = Session(workload, size)
        sample = (
            session.deliver_ms(first, resources),
            session.deliver_ms(changed, 1),
            session.deliver_ms(again, 0),
        )
        samples.append(sample)
        session.close()
    return Cost(workload.name, size, *(median(column) for column in zip(*samples, strict=True)))


# ---------------------------------------------------------------------------------------------
# Verdicts


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target and its result."""

    target: str
    limit: float
    got: float

    @property
    def is_met(self) -> bool:
        return self.got <= self.limit


def judge(costs: Iterable[Cost]) -> list[Verdict]:
    """The targets of each workload that was measured."""
    by_workload: dict[str, list[Cost]] = {}
    for cost in costs:
        by_workload.setdefault(cost.workload, []).append(cost)
    verdicts: list[Verdict] = []
    for name, sizes in by_workload.items():
        smallest, largest = sizes[0], sizes[-1]
        if name in FIRST_MS_MAX:
            text = f"{name} {largest.size}: first response, ms"
            verdicts.append(Verdict(text, FIRST_MS_MAX[name], largest.first_ms))
        share = f"{name} {largest.size}: one changed, share of the first"
        verdicts.append(Verdict(share, CHANGED_SHARE_MAX, largest.changed_share))
        growth = f"{name} {smallest.size} to {largest.size}: growth of the cost of one"
        verdicts.append(Verdict(growth, GROWTH_MAX, largest.us_per_entry / smallest.us_per_entry))
    return verdicts


def format_costs(costs: Iterable[Cost]) -> str:
    rows = [("workload", "size", "first ms", "µs each", "changed ms", "of first", "same ms")]
    rows += [
        (
            cost.workload,
            str(cost.size),
            f"{cost.first_ms:.1f}",
            f"{cost.us_per_entry:.1f}",
            f"{cost.changed_ms:.1f}",
            f"{cost.changed_share:.0%}",
            f"{cost.same_ms:.1f}",
        )
        for cost in costs
    ]
    return format_columns(rows)


def format_verdicts(verdicts: Iterable[Verdict]) -> str:
    rows = [("target", "wanted", "got", "")]
    rows += [
        (each.target, f"≤ {each.limit:.2f}", f"{each.got:.2f}", "met" if each.is_met else "MISSED")
        for each in verdicts
    ]
    return format_columns(rows)


# ---------------------------------------------------------------------------------------------
# Command line


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="CPU time of a control plane's responses.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--only", nargs="+", metavar="WORKLOAD", help="names or their beginnings")
    parser.add_argument("--targets", action="store_true", help="judge against the targets")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number to FILE")
    arguments = parser.parse_args(argv)
    if arguments.rounds < 1:
        parser.error("--rounds must be positive")
    try:
        arguments.only = select_names(WORKLOADS, arguments.only or list(WORKLOADS))
    except ValueError as error:
        parser.error(str(error))
    return arguments


def to_json(costs: list[Cost], verdicts: list[Verdict], rounds: int) -> str:
    document = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "rounds": rounds,
        "costs": [
            asdict(cost) | {"us_per_entry": cost.us_per_entry, "changed_share": cost.changed_share}
            for cost in costs
        ],
        "targets": [asdict(verdict) | {"is_met": verdict.is_met} for verdict in verdicts],
    }
    return json.dumps(document, indent=2)


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    costs: list[Cost] = []
    for name in arguments.only:
        for size in WORKLOADS[name].sizes:
            sys.stderr.write(f"{name} {size}\n")
            costs.append(measure(WORKLOADS[name], size, arguments.rounds))
    verdicts = judge(costs)
    print(format_costs(costs))
    if arguments.targets:
        print(f"\n{format_verdicts(verdicts)}")
    if arguments.json:
        arguments.json.write_text(to_json(costs, verdicts, arguments.rounds) + "\n")
    return int(arguments.targets and not all(verdict.is_met for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
