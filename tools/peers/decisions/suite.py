"""The run of all cases with all voices."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.peers.build import UnavailableError
from tools.peers.decisions import balancing, clusters, routing, streams, updates
from tools.peers.decisions.case import REGISTERED
from tools.peers.decisions.envoy import adapt, running_envoy_voice
from tools.peers.decisions.mesh import WHERE, Backend, Mesh, empty_plane, running_backends
from tools.peers.decisions.programs import ENVOY, OURS, PROGRAMS, Program
from tools.peers.decisions.table import Table
from tools.peers.decisions.voice import Command, VoiceEndedError, running_voice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tools.peers.decisions.case import Case

# Each registers its cases.
MODULES: Final = (routing, streams, clusters, balancing, updates)
CASES: Final = {
    name: case
    for module in MODULES
    for name, case in REGISTERED.items()
    if case.run.__module__ == module.__name__
}
# Most of a case's time is waiting.
_PARALLEL: Final = 4
_CASE_TIMEOUT_S: Final = 180.0
_START_S: Final = 60.0


def prepare_voices(names: Sequence[str]) -> tuple[dict[str, Program], dict[str, str]]:
    """Build the voices; the reason for each that is not available."""
    programs: dict[str, Program] = {}
    skipped: dict[str, str] = {}
    for name in names:
        try:
            programs[name] = PROGRAMS[name]()
        except UnavailableError as error:
            print(f"peers: decisions: {name} is skipped: {error}", flush=True)
            skipped[name] = str(error)
    return programs, skipped


async def run_cases(
    names: Sequence[str], programs: Mapping[str, Program]
) -> dict[str, dict[str, str]]:
    """The outcome of each case with each voice."""
    limit = asyncio.Semaphore(_PARALLEL)
    async with running_backends() as backends:
        runs = [_run_case(name, programs, backends, limit) for name in names]
        return dict(zip(names, await asyncio.gather(*runs), strict=True))


async def _run_case(
    name: str,
    programs: Mapping[str, Program],
    backends: Mapping[str, Backend],
    limit: asyncio.Semaphore,
) -> dict[str, str]:
    """Ours first: others may be compared with it."""
    shared: dict[str, str] = {}
    outcomes = {}
    for voice, program in sorted(programs.items(), key=lambda item: item[0] != OURS):
        async with limit:
            outcomes[voice] = await _run_voice(name, voice, program, backends, shared)
        print(f"peers: decisions: {name}: {voice}: {outcomes[voice]}", flush=True)
    return {voice: outcomes[voice] for voice in programs}


async def _run_voice(
    name: str, voice: str, program: Program, backends: Mapping[str, Backend], shared: dict[str, str]
) -> str:
    case: Case = CASES[name]
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(empty_plane())
        if voice == ENVOY:
            starting = running_envoy_voice(Path(program.command[0]), plane)
            send = await stack.enter_async_context(starting)
        else:
            bootstrap = plane.bootstrap()
            bootstrap["node"]["locality"] = {}  # grpc-js requires it.
            environment = {
                **program.environment,
                "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(bootstrap),
            }
            starting_voice = running_voice(program.command, environment)
            send = (await stack.enter_async_context(starting_voice)).call
            # The start of a process is not part of its RPCs' time.
            await send(_first_command(backends))
        key = f"{name}-{voice.partition(' ')[0]}"
        mesh = Mesh(key, plane, backends, send, adapt if voice == ENVOY else list, shared)
        try:
            async with asyncio.timeout(_CASE_TIMEOUT_S):
                return await case.run(mesh)
        except VoiceEndedError:
            return "the process crashes"
        except TimeoutError:
            return "no reply"


def _first_command(backends: Mapping[str, Backend]) -> Command:
    """An RPC without xDS."""
    address = next(iter(backends.values())).address
    return Command(f"dns:///{address}", WHERE, timeout_s=_START_S, wait_for_ready=True)


def run_decisions(only: Sequence[str] = (), voices: Sequence[str] = ()) -> Table:
    """The table of these cases and voices, by default of all."""
    programs, skipped = prepare_voices([name for name in PROGRAMS if not voices or name in voices])
    cells = asyncio.run(run_cases([name for name in CASES if not only or name in only], programs))
    return Table({name: made.version for name, made in programs.items()}, skipped, cells)
