"""The control plane's process of the soak: serves one step of the churn after the other.

    python -m bench.soak_plane ADDRESS PORT...

PORT are the backend's. One JSON line per order on stdin, one JSON line per answer on stdout; the
first answer has its address. The end of stdin ends the process.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO

from bench.clients import SERVICE
from bench.meshes import ROUTES, loopback_address
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTE_CONFIG,
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
)
from proxyless.controlplane.ads import AdsStream
from proxyless.protos import Proto

# Steps between two changes of the routes; the others change endpoints and weights.
STEPS_PER_ROUTES: Final = 3
CLUSTERS: Final = 24
ENDPOINTS_OF_CLUSTER: Final = 4
TYPES: Final = (LISTENER, ROUTE_CONFIG, CLUSTER, ENDPOINTS)


def resources_of(step: int, ports: Sequence[int]) -> list[Proto]:
    """Resources of one step.

    Every third step replaces the listener and the route configuration, and routes to a cluster that
    no client has subscribed to. The others change weights and endpoints. Clusters are not deleted:
    a client that reconnects may still have the routes of an earlier step.
    """
    era, phase = divmod(step, STEPS_PER_ROUTES)
    routes = f"{ROUTES}-{era % CLUSTERS}"
    weights = {f"c{era % CLUSTERS}": 10 + phase, f"c{(era + 1) % CLUSTERS}": 1 + phase}
    made = [listener(SERVICE, routes), route_config(routes, route(weighted=weights))]
    for number in range(CLUSTERS):
        addresses = [
            loopback_address(number + phase + n, ports) for n in range(ENDPOINTS_OF_CLUSTER)
        ]
        made += [eds_cluster(f"c{number}"), endpoints(f"c{number}", addresses)]
    return made


def has_newest(stream: AdsStream, plane: ControlPlane) -> bool:
    """Whether a client has accepted the newest resources of every type."""
    versions = {type_url: plane.snapshot.version_of(type_url) for type_url in TYPES}
    return all(stream.is_acked(*each) for each in versions.items())


def execute(plane: ControlPlane, order: Mapping[str, Any], ports: Sequence[int]) -> object:
    match order:
        case {"step": int(step)}:
            plane.set_snapshot(plane.snapshot.replaced(resources_of(step, ports)))
        case {"mute": True}:
            # Streams are accepted, and no request is answered.
            for type_url in TYPES:
                plane.withhold(type_url)
            plane.break_streams()
        case {"mute": False}:
            plane.release()
        case {"nodes": True}:
            return sorted(each.node_id for each in plane.streams if has_newest(each, plane))
        case _:
            raise ValueError(f"unknown order {order!r}, wanted step, mute or nodes")
    return None


async def serve(answers: TextIO, address: str, ports: Sequence[int]) -> None:
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    async with ControlPlane(Snapshot.of([]), address) as plane:
        answer(answers, {"address": plane.address})
        while line := await orders.readline():
            answer(answers, {"done": execute(plane, json.loads(line), ports)})


def answer(answers: TextIO, value: Mapping[str, object]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def main() -> None:
    # Ctrl-C reaches the whole process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Output of libraries must not be parsed as an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    address, *ports = sys.argv[1:]
    asyncio.run(serve(answers, address, list(map(int, ports))))


if __name__ == "__main__":
    main()
