"""Benchmark of RPCs: client CPU per RPC. The command line.

    python bench/rpc.py [--rounds N] [--seconds S] [--only WORKLOAD...] [--clients CLIENT...] ...

Exit codes: 0 measured (and with --targets: all met), 1 no backend, a client failed or a target
was missed, 2 wrong usage, 130 interrupted.
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

if not __package__:
    # Run as a file: import from the checkout, not from this directory.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.backend import BackendUnavailableError
from bench.clients import CLIENTS, ClientUnavailableError
from bench.interleave import Plan, Run, profile
from bench.processes import ClientLostError, TurnFailedError
from bench.report import format_results, format_verdicts, to_json
from bench.selection import select_names
from bench.targets import TARGETS, is_acceptable, judge, reference_of
from bench.workloads import WORKLOADS

ROUNDS, SECONDS, WARM_UP_S = 5, 1.0, 0.2
QUICK_ROUNDS, QUICK_SECONDS = 3, 0.3
PROFILE_SECONDS = 3.0
PACKAGES = ("grpcio", "uvloop", "hpack")
INTERRUPTED = 130
# The default clients and workloads: addresses in the target, a control plane, or addresses and TLS.
TARGET_BACKENDS: dict[str, frozenset[str]] = {
    "direct": frozenset({"grpc", "raw", "three"}),
    "xds": frozenset({"xds"}),
    "tls": frozenset({"tls", "mtls"}),
}
TARGET_WORKLOADS: dict[str, tuple[str, ...]] = {
    "direct": tuple(name for name, work in WORKLOADS.items() if work.rate_per_s is None),
    "xds": ("unary-16B-1", "unary-16B-16", "unary-16B-100", "open-16B-2000"),
    "tls": ("unary-16B-1", "unary-16B-100", "unary-64KiB-100", "stream-16B-1", "stream-64KiB-1"),
}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Client CPU per RPC, beside grpcio.")
    parser.add_argument("--rounds", type=int, help=f"turns per client (default {ROUNDS})")
    parser.add_argument("--seconds", type=float, help=f"length of a turn (default {SECONDS})")
    parser.add_argument("--only", nargs="+", metavar="WORKLOAD", help="names or their beginnings")
    parser.add_argument("--clients", nargs="+", metavar="CLIENT", help="names or their beginnings")
    parser.add_argument(
        "--target", choices=TARGET_BACKENDS, default="direct", help="kind of channel"
    )
    parser.add_argument(
        "--floor", action="store_true", help="also the lower bounds: lean probe, raw TCP"
    )
    parser.add_argument(
        "--peers", action="store_true", help="also connectrpc, and grpcio through an Envoy"
    )
    parser.add_argument(
        "--quick", action="store_true", help="short test run; the figures are not reliable"
    )
    parser.add_argument("--profile", nargs=2, metavar=("CLIENT", "WORKLOAD"), help="top functions")
    parser.add_argument("--targets", action="store_true", help="judge against the targets")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number to FILE")
    parser.add_argument("--list", action="store_true", help="list the clients and the workloads")
    arguments = parser.parse_args(argv)
    try:
        fill_defaults(arguments)
    except ValueError as error:
        parser.error(str(error))
    return arguments


def fill_defaults(arguments: argparse.Namespace) -> None:
    """Resolve names of clients and workloads; raises ValueError for unknown names."""
    is_quick = arguments.quick
    if arguments.rounds is None:
        arguments.rounds = QUICK_ROUNDS if is_quick else ROUNDS
    if arguments.seconds is None:
        arguments.seconds = QUICK_SECONDS if is_quick else SECONDS
    if arguments.rounds < 1 or arguments.seconds <= 0:
        raise ValueError("--rounds and --seconds must be positive")
    arguments.only = select_names(WORKLOADS, arguments.only or TARGET_WORKLOADS[arguments.target])
    backends = TARGET_BACKENDS[arguments.target]
    usual = [
        name
        for name, kind in CLIENTS.items()
        if (arguments.floor or not kind.is_floor)
        and not kind.is_extra
        and (kind.backend in backends or kind.is_peer)
        and (arguments.peers or not kind.is_peer)
    ]
    arguments.clients = select_names(CLIENTS, arguments.clients or usual)
    if arguments.profile:
        client, workload = arguments.profile
        if client not in CLIENTS or workload not in WORKLOADS:
            raise ValueError(f"unknown client {client!r} or workload {workload!r} (see --list)")
        if WORKLOADS[workload].kind == "blocking":
            raise ValueError(f"workload {workload!r} runs in threads, which are not profiled")


def log_progress(line: str) -> None:
    """Print to stderr; stdout has only the results."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def show(text: str) -> None:
    sys.stdout.write(text + "\n")


def describe_environment(plan: Plan, backend_name: str) -> dict[str, object]:
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "python": platform.python_version(),
        "machine": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": versions,
        "backend": backend_name,
        "rounds": plan.rounds,
        "seconds": plan.duration_s,
        "warm_up_s": plan.warm_up_s,
    }


async def run_profile(client: str, workload: str, duration_s: float) -> int:
    try:
        show(await profile(client, workload, duration_s, WARM_UP_S))
    except (ClientUnavailableError, ClientLostError, TurnFailedError) as error:
        log_progress(f"{client}: {error}")
        return 1
    return 0


async def run_plan(arguments: argparse.Namespace) -> int:
    plan = Plan(
        clients=arguments.clients,
        workloads=arguments.only,
        rounds=arguments.rounds,
        duration_s=arguments.seconds,
        warm_up_s=WARM_UP_S,
    )
    for missing in sorted({reference_of(name) for name in plan.clients} - {*plan.clients}):
        log_progress(f"without {missing} some ratios are missing")
    run = Run(plan, log_progress)
    await run.execute()
    summaries = run.results.summaries()
    verdicts = judge(summaries, [each for each in TARGETS if each.client in plan.clients])
    show(format_results(summaries))
    if arguments.targets:
        show("\n" + format_verdicts(verdicts))
    if arguments.json:
        environment = describe_environment(plan, run.backend_name)
        text = json.dumps(to_json(run.results, verdicts, environment), indent=2)
        arguments.json.write_text(text + "\n")
    is_missed = arguments.targets and not is_acceptable(verdicts)
    return 1 if run.results.failures or is_missed else 0


async def run_until_terminated(arguments: argparse.Namespace) -> int:
    """Run; SIGTERM ends the run as Ctrl-C does, with all processes."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    if arguments.profile:
        client, workload = arguments.profile
        return await run_profile(client, workload, PROFILE_SECONDS)
    return await run_plan(arguments)


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    if arguments.list:
        show("clients:   " + " ".join(CLIENTS) + "\nworkloads: " + " ".join(WORKLOADS))
        return 0
    try:
        return asyncio.run(run_until_terminated(arguments))
    except (KeyboardInterrupt, asyncio.CancelledError):
        log_progress("interrupted")
        return INTERRUPTED
    except BackendUnavailableError as error:
        log_progress(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
