"""run_seed: carries out a plan with both clients under load, and returns their records.

The control plane runs in this process; each client and each backend is a process of its own, ended
when the run ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxyless.base.frozen import frozen
from proxyless.controlplane import ControlPlane, Snapshot
from tools.fuzz_mesh.backends import run_backends
from tools.fuzz_mesh.mesh import to_resources
from tools.fuzz_mesh.records import (
    OURS,
    THEIRS,
    ClientRecords,
    Rpc,
    Stall,
    StepTime,
    Timeline,
)
from tools.fuzz_mesh.stalls import watch_stalls
from tools.fuzz_mesh.state import BACKENDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tools.fuzz_mesh.backends import Backend
    from tools.fuzz_mesh.mesh import Mesh
    from tools.fuzz_mesh.plan import Plan
    from tools.fuzz_mesh.state import Action, Kind, Step

ROOT: Final = Path(__file__).resolve().parents[2]
CLIENTS: Final = 2
RATE_PER_S: Final = 100.0
READY_S_MAX: Final = 60.0
# Longer than any deadline.
LEAVE_S_MAX: Final = 30.0
ACK_S_MAX: Final = 5.0
POLL_S: Final = 0.01
# The time after the last step in which RPCs may still fail, and the time in which none may.
CONVERGE_S: Final = 2.0
QUIET_S: Final = 1.0


@frozen
class Run:
    """Timeline and records of a run."""

    timeline: Timeline
    ours: ClientRecords
    theirs: ClientRecords


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)  # noqa: TID251 - the fuzzer runs on real time


class ClientProcess:
    """One client under load. `read` runs in a task of its own until the process ends."""

    def __init__(self, name: str, process: Process) -> None:
        self.name: Final = name
        self._process: Final = process
        self._is_ready: Final = asyncio.Event()
        self._is_stopping = False
        # Parsed from its output.
        self._rpcs: list[Rpc] = []
        self._stalls: list[Stall] = []
        self._under_way: tuple[float, ...] = ()
        # The error if it ended early.
        self.crash = ""
        self._crash_s = 0.0

    async def read(self) -> None:
        assert self._process.stdout is not None, "it is started with a pipe as stdout"
        while line := await self._process.stdout.readline():
            self._take(json.loads(line))
        code = await self._process.wait()
        if code != 0 or not self._is_stopping:
            self.crash = f"{self.name}: process ended with exit code {code}"
            self._crash_s = asyncio.get_running_loop().time()
        self._is_ready.set()

    def _take(self, printed: Mapping[str, Any]) -> None:
        match printed:
            case {"ready": True}:
                self._is_ready.set()
            case {"under_way": starts}:
                self._under_way = tuple(starts)
            case {"stall": {"start": start_s, "end": end_s, "cpu": cpu_s}}:
                self._stalls.append(Stall(start_s, end_s, cpu_s))
            case {"kind": kind, "start": start_s, "end": end_s, "code": code}:
                rest = (printed["details"], printed["peer"])
                self._rpcs.append(Rpc(kind, start_s, end_s, code, *rest))
            case _:
                raise ValueError(f"{self.name}: unknown line {printed!r}")

    async def wait_ready(self) -> None:
        async with asyncio.timeout(READY_S_MAX):
            await self._is_ready.wait()

    def start_load(self) -> None:
        self._write(b"start\n")

    def stop_load(self) -> None:
        self._is_stopping = not self.crash
        self._write(b"stop\n")

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None, "it is started with a pipe as stdin"
        with suppress(ConnectionError):
            self._process.stdin.write(line)

    def records(self, nacks: tuple[str, ...]) -> ClientRecords:
        return ClientRecords(
            tuple(self._rpcs),
            tuple(self._stalls),
            self._under_way,
            nacks,
            self.crash,
            self._crash_s,
        )


@asynccontextmanager
async def run_client(
    name: str, bootstrap: Mapping[str, object], log: Path, group: asyncio.TaskGroup
) -> AsyncIterator[ClientProcess]:
    """A client that has made its first RPC; its stderr goes to a file."""
    argv = ("-m", "tools.fuzz_mesh.client", name, json.dumps(bootstrap), str(RATE_PER_S))
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    with (log / f"{name}.stderr").open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *argv,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=PIPE,
            stdout=PIPE,
            stderr=stderr,
        )
    client = ClientProcess(name, process)
    reading = group.create_task(client.read())
    try:
        yield client
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S_MAX):
                await asyncio.shield(reading)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await reading


class World:
    """The control plane and the backends of a run; carries out actions."""

    def __init__(self, control_plane: ControlPlane, backends: list[Backend]) -> None:
        self._control_plane: Final = control_plane
        self._backends: Final = backends

    def serve(self, mesh: Mesh) -> None:
        addresses = [backend.address for backend in self._backends]
        snapshot = self._control_plane.snapshot.replaced(
            to_resources(mesh, addresses), partial=not mesh.is_complete
        )
        self._control_plane.set_snapshot(snapshot)

    async def do(self, action: Action) -> None:
        if action.mesh is not None:
            if not action.mesh.is_complete or not action.mesh.has_listener:
                await self._wait_for_acks()
            self.serve(action.mesh)
        elif action.kind == "sleep":
            await sleep(action.seconds)
        elif action.kind == "break_streams":
            self._control_plane.break_streams()
        else:
            if action.kind in {"kill", "drain"}:
                await self._wait_for_acks()
            await self._do_to_backend(action.kind, self._backends[action.backend])

    async def _do_to_backend(self, kind: Kind, backend: Backend) -> None:
        match kind:
            case "start":
                await backend.start()
            case "kill":
                await backend.kill()
            case "drain":
                backend.drain()
            case "pause":
                backend.stop()
            case "hang":
                # Kept connections of clients must get no response, either.
                await backend.start()
                backend.stop()
            case "continue":
                backend.resume()
            case _:
                raise ValueError(f"unknown action {kind!r}")

    async def _wait_for_acks(self) -> None:
        """Wait until both clients have acknowledged the config, for a limited time.

        A client whose stream is broken would miss the loss of a resource.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(ACK_S_MAX):
                while not self._is_all_acked():
                    await sleep(POLL_S)

    def _is_all_acked(self) -> bool:
        snapshot, streams = self._control_plane.snapshot, self._control_plane.streams
        return len(streams) == CLIENTS and all(
            stream.is_acked(type_url, snapshot.version_of(type_url))
            for stream in streams
            for type_url in stream.subscriptions
        )

    async def do_step(self, step: Step) -> StepTime:
        loop = asyncio.get_running_loop()
        start_s, kills_s = loop.time(), []
        for action in step.actions:
            if action.kind in {"kill", "hang"}:
                kills_s.append(loop.time())
            await self.do(action)
        outage_until_s = loop.time() + step.outage_s if step.outage_s else start_s
        await sleep(step.wait_s)
        return StepTime(step.name, start_s, tuple(kills_s), outage_until_s)


async def run_seed(plan: Plan, log: Path) -> Run:
    """Carry out a plan. The directory gets the stderr of the clients."""
    async with AsyncExitStack() as stack:
        backends = await stack.enter_async_context(run_backends(BACKENDS))
        control_plane = await stack.enter_async_context(ControlPlane(Snapshot.of([])))
        world = World(control_plane, backends)
        world.serve(plan.mesh)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        clients = [
            await stack.enter_async_context(
                run_client(name, control_plane.bootstrap(name), log, group)
            )
            for name in (OURS, THEIRS)
        ]
        timeline = await _run_plan(plan, world, clients)
    ours, theirs = (
        client.records(
            tuple(str(nack) for nack in control_plane.nacks if nack.node_id == client.name)
        )
        for client in clients
    )
    return Run(timeline, ours, theirs)


async def _run_plan(plan: Plan, world: World, clients: list[ClientProcess]) -> Timeline:
    """Carry out the steps, until the end of the plan or a crash of a client."""
    loop = asyncio.get_running_loop()
    for client in clients:
        await client.wait_ready()
    for client in clients:
        client.start_load()
    stalls: list[Stall] = []
    watching = asyncio.create_task(watch_stalls(stalls.append))
    await sleep(QUIET_S)
    times = []
    for step in plan.steps:
        times.append(await world.do_step(step))
        if any(client.crash for client in clients):
            break
    await sleep(CONVERGE_S)
    quiet_s = loop.time()
    await sleep(QUIET_S)
    watching.cancel()
    for client in clients:
        client.stop_load()
    return Timeline(tuple(times), quiet_s, loop.time(), tuple(stalls))
