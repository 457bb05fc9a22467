"""The voice of a Python stack for the table of decisions; see `tools.peers.decisions.voice`.

python -m tools.peers.clients.voice <proxyless|grpcio>
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import TYPE_CHECKING

import grpc

from tools.peers.clients.stacks import Untyped, load_stack

if TYPE_CHECKING:
    from collections.abc import Mapping


class Calls:
    """Runs the commands; keeps a channel for each target."""

    def __init__(self, stack: Untyped) -> None:
        self._stack = stack
        self._channels: dict[str, Untyped] = {}

    async def run(self, command: Mapping[str, Untyped]) -> None:
        """Send the RPCs of a command, and print the reply."""
        channel = self._find_channel(command["target"])
        rpcs = []
        for _ in range(command["count"]):
            task = asyncio.create_task(_call(channel, command))
            if not command["concurrent"]:
                await task
            rpcs.append(task)
        reply = {"id": command["id"], "rpcs": [await each for each in rpcs]}
        print(json.dumps(reply), flush=True)

    def _find_channel(self, target: str) -> Untyped:
        """A target that is no xDS name may have an authority: `host:port authority`."""
        if target not in self._channels:
            address, _, authority = target.partition(" ")
            options = (("grpc.default_authority", authority),) if authority else ()
            self._channels[target] = self._stack.aio.insecure_channel(address, options=options)
        return self._channels[target]


async def _call(channel: Untyped, command: Mapping[str, Untyped]) -> Untyped:
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    call = channel.unary_unary(command["method"])(
        command["body"].encode(),
        metadata=tuple(_decode(*pair) for pair in command["metadata"]),
        timeout=command["timeout_s"],
        wait_for_ready=command["wait_for_ready"],
    )
    try:
        reply = bytes(await call).decode()
    except grpc.RpcError:
        reply = ""
    ends = [await call.initial_metadata() or (), await call.trailing_metadata() or ()]
    return {
        "code": (await call.code()).name,
        "details": await call.details(),
        "reply": reply,
        "seconds": loop.time() - start_s,
        "cookies": [value for end in ends for key, value in end if key == "set-cookie"],
    }


def _decode(key: str, value: str) -> tuple[str, str | bytes]:
    return (key, base64.b64decode(value)) if key.endswith("-bin") else (key, value)


async def _run(stack: str) -> None:
    calls = Calls(load_stack(stack))
    tasks = set()
    while line := await asyncio.to_thread(sys.stdin.readline):
        tasks.add(asyncio.create_task(calls.run(json.loads(line))))


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1]))
