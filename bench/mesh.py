"""The process of the control plane.

    python -m bench.mesh [--unpaced]

One JSON line per order on stdin, one JSON line per answer on stdout, the first of which has its
address; the end of stdin ends the process. Unpaced, it sends all parts of a change at once.
"""

import asyncio
import functools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from typing import Any, TextIO

from bench.meshes import MESHES
from proxyless.controlplane import ControlPlane, Resource, ServiceOptions, Snapshot

ORDER_LIMIT_BYTES = 1 << 20


@functools.cache
def build(mesh: str, arguments: str) -> tuple[Resource, ...]:
    """The resources of a mesh, cached because every round of every client uses the same ones."""
    return tuple(map(Resource.of, MESHES[mesh](**json.loads(arguments))))


def execute_order(control_plane: ControlPlane, order: Mapping[str, Any]) -> dict[str, object]:
    """Carry out one order; the reported time is taken after the mesh is built."""
    match order:
        case {"serve": mesh, "arguments": arguments}:
            resources = build(mesh, json.dumps(arguments))
            snapshot = control_plane.snapshot.replaced(resources)
            at_s = time.monotonic()
            control_plane.set_snapshot(snapshot)
        case {"withhold": [type_url, *names]}:
            at_s = time.monotonic()
            control_plane.withhold(type_url, *names)
        case {"release": True}:
            at_s = time.monotonic()
            control_plane.release()
        case _:
            raise ValueError(f"unknown order {order!r}, wanted serve, withhold or release")
    return {"at_s": at_s}


async def serve(answers: TextIO, options: ServiceOptions) -> None:
    """Carry out orders until stdin ends."""
    orders = asyncio.StreamReader(limit=ORDER_LIMIT_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    async with ControlPlane(Snapshot.of([]), options=options) as control_plane:
        write_answer(answers, {"address": control_plane.address})
        while line := await orders.readline():
            try:
                write_answer(answers, execute_order(control_plane, json.loads(line)))
            except Exception as error:  # Reported to the parent.
                write_answer(answers, {"error": "".join(traceback.format_exception(error))})


def write_answer(answers: TextIO, value: dict[str, object]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def main() -> None:
    # Ctrl-C reaches the whole process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Output of libraries must not be parsed as an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asyncio.run(serve(answers, ServiceOptions(is_paced="--unpaced" not in sys.argv[1:])))


if __name__ == "__main__":
    main()
