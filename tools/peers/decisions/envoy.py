"""The voice of Envoy: a process of Envoy, and our client, which sends RPCs to its listeners."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxyless.controlplane import ROUTE_CONFIG
from proxyless.controlplane.for_envoy import adapt_for_envoy
from tests.worlds.envoy import Envoy, running_envoy
from tools.peers.decisions.programs import OURS, PROGRAMS
from tools.peers.decisions.voice import Command, Rpc, running_voice

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from proxyless.controlplane import ControlPlane, Resource

# For 8 s.
_LISTENER_POLLS: Final = 80
_POLL_S: Final = 0.1


def adapt(resources: Sequence[Resource]) -> list[Resource]:
    """Resources for Envoy; routes stay as they are, because only their timeouts would change."""
    return [
        before if before.type_url == ROUTE_CONFIG else after
        for before, after in zip(resources, adapt_for_envoy(resources, "127.0.0.1:0"), strict=True)
    ]


@asynccontextmanager
async def running_envoy_voice(
    binary: Path, plane: ControlPlane
) -> AsyncIterator[Callable[[Command], Awaitable[list[Rpc]]]]:
    """Start both processes; returns the function that sends RPCs."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        envoy = await stack.enter_async_context(running_envoy(binary, plane, directory))
        voice = await stack.enter_async_context(running_voice(PROGRAMS[OURS]().command, {}))

        async def send(command: Command) -> list[Rpc]:
            name = command.target.removeprefix("xds:///")
            address = await _find_listener(envoy, name)
            if address is None:
                return [Rpc("UNAVAILABLE", "no listener")] * command.count
            return await voice.call(replace(command, target=f"{address} {name}"))

        yield send


async def _find_listener(envoy: Envoy, name: str) -> str | None:
    for _ in range(_LISTENER_POLLS):
        address = (await asyncio.to_thread(envoy.list_listeners)).get(name)
        if address is not None:
            return address
        await asyncio.sleep(_POLL_S)
    return None
