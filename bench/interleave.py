"""Order of turns: in each round and workload each client runs alone, one after the other.

A disturbance of the machine then affects all clients alike, and their ratios stay valid.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, cast

from bench.clients import CLIENTS, ClientUnavailableError
from bench.processes import (
    Backend,
    ClientLostError,
    ClientProcess,
    TurnFailedError,
    run_backend,
    run_client,
    run_mesh,
)
from bench.report import Results
from bench.samples import Sample
from bench.workloads import WORKLOADS

Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """Rounds, clients and workloads of a run."""

    clients: Sequence[str]
    workloads: Sequence[str]
    rounds: int
    duration_s: float
    warm_up_s: float


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """The names, rotated each turn, so that a client does not always follow the same one."""
    start = turn % len(names) if names else 0
    return [*names[start:], *names[:start]]


def can_run(client: str, workload: str) -> bool:
    kind = WORKLOADS[workload].kind
    if CLIENTS[client].is_blocking:
        return kind == "blocking"
    return kind == "unary" or (kind == "stream" and CLIENTS[client].backend != "raw")


class Run:
    """One run of a plan: owns the processes and collects their samples."""

    def __init__(self, plan: Plan, log: Log) -> None:
        self._plan = plan
        self._log = log
        self._clients: dict[str, ClientProcess] = {}
        self.results = Results()
        self.backend_name = ""

    async def execute(self) -> None:
        async with AsyncExitStack() as stack:
            backend = await enter_backend(stack, self._plan.clients)
            self.backend_name = backend.name
            for name in self._plan.clients:
                await self._open(stack, name, backend)
            for number in range(self._plan.rounds):
                for workload in self._plan.workloads:
                    await self._run_round(number, workload, backend)

    async def _open(self, stack: AsyncExitStack, name: str, backend: Backend) -> None:
        try:
            self._clients[name] = await stack.enter_async_context(run_client(name, backend))
        except ClientUnavailableError as error:
            self.results.unavailable[name] = str(error)
            self._log(f"{name} is not available: {error}")
        except ClientLostError as error:
            self._exclude(name, error)

    async def _run_round(self, number: int, workload: str, backend: Backend) -> None:
        costs: dict[str, float] = {}
        able = [name for name in self._plan.clients if can_run(name, workload)]
        for name in rotated(able, number):
            if name not in self._clients:
                continue
            try:
                sample = await self._measure(self._clients[name], workload, backend)
            except (TurnFailedError, ClientLostError) as error:
                self._exclude(name, error)
            else:
                self.results.add(workload, name, sample)
                costs[name] = sample.cpu_us
        if not able:
            return
        shown = "  ".join(f"{name} {costs[name]:.1f}" for name in able if name in costs)
        self._log(f"round {number + 1}/{self._plan.rounds} {workload} (CPU µs): {shown}")

    async def _measure(self, client: ClientProcess, workload: str, backend: Backend) -> Sample:
        before_s, begin_s = backend.cpu_s(), time.perf_counter()
        answer = await client.order(workload, self._plan.duration_s, self._plan.warm_up_s)
        after_s, elapsed_s = backend.cpu_s(), time.perf_counter() - begin_s
        sample = Sample(**cast("Mapping[str, Any]", answer["sample"]))
        if before_s is None or after_s is None:
            return sample
        return replace(sample, backend_busy=(after_s - before_s) / elapsed_s)

    def _exclude(self, name: str, error: Exception) -> None:
        # A client that failed once is not measured again: its median would lack rounds.
        self._clients.pop(name, None)
        self.results.failures[name] = str(error)
        self._log(f"{name} failed: {error}")


async def enter_backend(stack: AsyncExitStack, clients: Sequence[str]) -> Backend:
    """The backend, with TLS or a control plane if one of the clients needs it."""
    kinds = {CLIENTS[client].backend for client in clients}
    has_tls = bool(kinds & {"tls", "mtls"})
    backend = await stack.enter_async_context(run_backend(has_tls=has_tls))
    if backend.three_addresses is None or "xds" not in kinds:
        return backend
    mesh = await stack.enter_async_context(run_mesh())
    await mesh.serve("spread", addresses=backend.three_addresses.split(","))
    return replace(backend, control_plane=mesh.address)


async def profile(client: str, workload: str, duration_s: float, warm_up_s: float) -> str:
    """The profile of one client on one workload, as text."""
    async with AsyncExitStack() as stack:
        backend = await enter_backend(stack, [client])
        process = await stack.enter_async_context(run_client(client, backend))
        answer = await process.order(workload, duration_s, warm_up_s, is_profile=True)
        return str(answer["profile"])
