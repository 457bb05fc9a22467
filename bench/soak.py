"""Soak: RPCs through changes of the config and outages of the control plane, beside grpcio.

    python bench/soak.py [--rpcs N] [--rate N] [--mode MODE] [--outages N] [--outage-s S]
                         [--changes-per-s N] [--clients NAME...] [--quick] [--json FILE]

Both clients run at the same time, each in a process of its own, with the same control plane and
backend. The backend is up all the time, so every failed RPC is caused by the control plane. Changes
continue during outages; the control plane has all of them when it is back.

Modes: `restart` (SIGTERM, then a new process), `kill` (SIGKILL), `freeze` (SIGSTOP: connections
stay, nothing is answered), `mute` (streams are accepted and not answered), `mixed` (one after the
other).

Exit codes: 0 none of our RPCs failed, 1 some did or a client did not get the last config, 2 wrong
usage.
"""

import argparse
import asyncio
import json
import platform
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

if not __package__:
    # Run as a file: import from the checkout, not from this directory.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.processes import START_TIMEOUT_S, OrderedProcess, running
from bench.report import format_columns
from bench.scale_world import run_echo
from bench.soak_child import OURS, REFERENCE

MODES: Final = ("restart", "kill", "freeze", "mute")
PORTS: Final = 4
# Time for the longest RPC, and for a client to get the last config after the last outage.
RESULT_GRACE_S: Final = 60.0
NEWEST_TIMEOUT_S: Final = 60.0
NEWEST_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Load:
    """Parameters of a run."""

    rpcs: int = 100_000
    rate_per_s: float = 250.0
    changes_per_s: float = 15.0
    outages: int = 24
    outage_s: float = 1.0
    mode: str = "restart"

    @property
    def duration_s(self) -> float:
        return self.rpcs / self.rate_per_s

    def mode_of(self, outage: int) -> str:
        return MODES[outage % len(MODES)] if self.mode == "mixed" else self.mode


QUICK: Final = Load(rpcs=1_500, rate_per_s=150.0, changes_per_s=15.0, outages=4, mode="mixed")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one client."""

    client: str
    rpcs: int
    failed: int
    codes: Mapping[str, int]
    texts: Mapping[str, int]
    p50_ms: float
    p99_ms: float
    max_ms: float
    # From the end of the last RPC until the client had the newest config; None: not in time.
    newest_after_s: float | None


class Plane:
    """The control plane at one port: its process, and the step that it serves."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = [str(port) for port in ports]
        self._stack = AsyncExitStack()
        self._process: OrderedProcess | None = None
        self._running: asyncio.subprocess.Process | None = None
        self._is_frozen = False
        # Held while an order is under way: the process must not be ended in the middle.
        self._order = asyncio.Lock()
        self.address = "127.0.0.1:0"
        self.step = 0

    async def start(self) -> None:
        argv = (sys.executable, "-m", "bench.soak_plane", self.address, *self._ports)
        process = await self._stack.enter_async_context(running(argv, leaves_at_eof=True))
        ordered = OrderedProcess("control plane", process)
        self.address = str((await ordered.send({"step": self.step}, START_TIMEOUT_S))["address"])
        await ordered._answer(START_TIMEOUT_S)  # noqa: SLF001 - the first answer was its address
        self._process, self._running = ordered, process

    async def change(self) -> None:
        """Go to the next step, which a control plane that is away serves when it is back."""
        self.step += 1
        await self._send({"step": self.step})

    async def nodes(self) -> Sequence[str]:
        return list((await self._send({"nodes": True}))["done"])

    async def _send(self, order: Mapping[str, object]) -> Mapping[str, Any]:
        """Send an order; a control plane that is away gets none."""
        async with self._order:
            if self._process is None or self._is_frozen:
                return {}
            return await self._process.send(order, START_TIMEOUT_S)

    async def lose(self, mode: str, outage_s: float) -> None:
        """One outage."""
        running_process = self._running
        assert running_process is not None, "it runs"
        match mode:
            case "restart" | "kill":
                async with self._order:
                    self._process = None
                    number = signal.SIGTERM if mode == "restart" else signal.SIGKILL
                    running_process.send_signal(number)
                    await running_process.wait()
                await self._stack.aclose()
                await asyncio.sleep(outage_s)
                await self.start()
            case "freeze":
                async with self._order:
                    self._is_frozen = True
                    running_process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(outage_s)
                running_process.send_signal(signal.SIGCONT)
                self._is_frozen = False
            case "mute":
                await self._send({"mute": True})
                await asyncio.sleep(outage_s)
                await self._send({"mute": False})
            case _:
                raise ValueError(f"mode is {mode!r}, wanted one of {MODES}")

    async def close(self) -> None:
        await self._stack.aclose()


@asynccontextmanager
async def run_plane(ports: Sequence[int]) -> AsyncIterator[Plane]:
    plane = Plane(ports)
    try:
        await plane.start()
        yield plane
    finally:
        await plane.close()


async def soak(load: Load, clients: Sequence[str]) -> list[Outcome]:
    """Run all clients at the same time; returns their results."""
    async with AsyncExitStack() as stack:
        echo = await stack.enter_async_context(run_echo(PORTS))
        plane = await stack.enter_async_context(run_plane(echo.ports))
        started = {}
        for name in clients:
            arguments = (name, plane.address, str(load.rate_per_s), str(load.rpcs))
            argv = (sys.executable, "-m", "bench.soak_child", *arguments)
            process = await stack.enter_async_context(running(argv, leaves_at_eof=True))
            started[name] = SoakClient(name, process)
            await started[name].wait_ready()
        async with asyncio.TaskGroup() as group:
            timeout_s = load.duration_s + RESULT_GRACE_S
            results = {n: group.create_task(c.run(timeout_s)) for n, c in started.items()}
            is_over = asyncio.Event()
            group.create_task(change_steadily(plane, load, is_over))
            await lose_now_and_then(plane, load)
            for result in results.values():
                await result
            is_over.set()
        newest = await wait_for_newest(plane, clients)
        return [Outcome(n, **results[n].result(), newest_after_s=newest[n]) for n in clients]


class SoakClient(OrderedProcess):
    """One client in a process of its own."""

    async def wait_ready(self) -> None:
        await self._answer(START_TIMEOUT_S)

    async def run(self, timeout_s: float) -> Mapping[str, Any]:
        return await self.send({"run": True}, timeout_s)


async def change_steadily(plane: Plane, load: Load, is_over: asyncio.Event) -> None:
    """Change the config until the event is set.

    Not until a cancellation: that could come between an order and its answer, which the next order
    would then read as its own.
    """
    while not is_over.is_set():
        await asyncio.sleep(1 / load.changes_per_s)
        await plane.change()


async def lose_now_and_then(plane: Plane, load: Load) -> None:
    """All outages, evenly spread over the run; the first and the last part have none."""
    pause_s = load.duration_s / (load.outages + 1) - load.outage_s
    for outage in range(load.outages):
        await asyncio.sleep(max(pause_s, 0.0))
        await plane.lose(load.mode_of(outage), load.outage_s)


async def wait_for_newest(plane: Plane, clients: Sequence[str]) -> dict[str, float | None]:
    """Time until each client has the newest config."""
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    found: dict[str, float | None] = dict.fromkeys(clients)
    with suppress(TimeoutError):
        async with asyncio.timeout(NEWEST_TIMEOUT_S):
            while None in found.values():
                nodes = await plane.nodes()
                for name in clients:
                    if found[name] is None and f"soak-{name}" in nodes:
                        found[name] = loop.time() - begin_s
                await asyncio.sleep(NEWEST_POLL_S)
    return found


# ---------------------------------------------------------------------------------------------
# Output


def format_outcomes(outcomes: Sequence[Outcome]) -> str:
    rows: list[tuple[str, ...]] = [
        ("client", "RPCs", "failed", "p50 ms", "p99 ms", "max ms", "newest config after")
    ]
    for each in outcomes:
        newest = "never" if each.newest_after_s is None else f"{each.newest_after_s:.1f} s"
        times = (f"{value:.1f}" for value in (each.p50_ms, each.p99_ms, each.max_ms))
        rows.append((each.client, f"{each.rpcs:,}", f"{each.failed:,}", *times, newest))
    lines = [format_columns(rows)]
    lines += [
        f"{each.client}: {count:,} times {text}"
        for each in outcomes
        for text, count in sorted(each.texts.items(), key=lambda item: -item[1])
    ]
    return "\n".join(lines)


def is_good(outcomes: Sequence[Outcome]) -> bool:
    ours = [each for each in outcomes if each.client == OURS]
    return all(each.failed == 0 and each.newest_after_s is not None for each in ours)


def to_json(load: Load, outcomes: Sequence[Outcome]) -> dict[str, object]:
    environment = {"python": platform.python_version(), "machine": platform.platform()}
    clients = [asdict(each) for each in outcomes]
    return {"environment": environment, "load": asdict(load), "clients": clients}


def parse_arguments(arguments: Sequence[str] | None) -> tuple[Load, argparse.Namespace]:
    default = Load()
    parser = argparse.ArgumentParser("bench/soak.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--rpcs", type=int, default=default.rpcs, help="RPCs of each client")
    parser.add_argument("--rate", type=float, default=default.rate_per_s, help="RPCs per second")
    parser.add_argument("--changes-per-s", type=float, default=default.changes_per_s)
    parser.add_argument("--outages", type=int, default=default.outages)
    parser.add_argument("--outage-s", type=float, default=default.outage_s)
    parser.add_argument("--mode", choices=(*MODES, "mixed"), default=default.mode)
    parser.add_argument(
        "--clients", nargs="+", choices=(OURS, REFERENCE), default=(OURS, REFERENCE)
    )
    parser.add_argument("--quick", action="store_true", help="10 s, one outage of each mode")
    parser.add_argument("--json", type=Path, metavar="FILE")
    found = parser.parse_args(arguments)
    load = QUICK
    if not found.quick:
        counts = (found.rpcs, found.rate, found.changes_per_s, found.outages)
        load = Load(*counts, found.outage_s, found.mode)
    return load, found


def main(arguments: Sequence[str] | None = None) -> int:
    load, found = parse_arguments(arguments)
    print(f"{load.duration_s:.0f} s, {load.outages} outages ({load.mode})", file=sys.stderr)
    outcomes = asyncio.run(soak(load, found.clients))
    print(format_outcomes(outcomes))
    if found.json is not None:
        found.json.write_text(json.dumps(to_json(load, outcomes), indent=2) + "\n")
    return 0 if is_good(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
