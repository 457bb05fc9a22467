"""Latency while a new backend warms up, with slow start and without. The command line.

    python bench/cold_backend.py        # sockets, a control plane, and backends of grpcio

Four warm backends; a fifth joins them under load. A backend serves one RPC at a time: 5 ms of work,
and at first 100 ms in the new one, less and less until it is warm, as with caches and a compiler at
run time. So a cold backend with the share of a warm one has a queue. RPCs start at random times,
independent of their answers (an open loop).
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any, Final

if not __package__:
    # Run as a file: import from the checkout, not from this directory.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import grpc
import grpc.aio

import proxyless
from bench.report import format_columns
from bench.slow_backend import BACKENDS, WARM_UP_S, Outcome, send_all, sender
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    lb_policy,
    listener,
    route,
)
from proxyless.controlplane.builders import pack, set_duration
from proxyless.protos import Proto, message_class

PATH: Final = "/bench.Cold/Get"
SERVICE: Final = "shop"
WARM_WORK_S, COLD_WORK_S = 0.005, 0.1
RATE, SECONDS = 200, 20.0
# A minute in production.
WARMING_S: Final = 10.0
WINDOWS_S: Final = (0.0, WARMING_S, 2 * WARMING_S)
_POLICIES: Final = "envoy.extensions.load_balancing_policies"
_WRR: Final = f"{_POLICIES}.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin"


def work_s(age_s: float, warming_s: float) -> float:
    """The work of an RPC at a backend of this age."""
    cold = max(0.0, 1.0 - age_s / warming_s)
    return WARM_WORK_S + cold * (COLD_WORK_S - WARM_WORK_S)


class WarmingBackend:
    """grpcio server that serves one RPC after the other. It is cold when it gets its first one."""

    def __init__(self, name: str, warming_s: float) -> None:
        self._name = name
        self._warming_s = warming_s
        # None until the first RPC.
        self._started_s: float | None = None
        self._worker = asyncio.Lock()
        self._server: Any = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        self._server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def service(self, _details: object) -> Any:  # noqa: ANN401 - called by grpcio
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, _request: bytes, _context: object) -> bytes:
        now_s = asyncio.get_running_loop().time
        if self._started_s is None:
            self._started_s = now_s()
        async with self._worker:
            age_s = now_s() - self._started_s
            await asyncio.sleep(work_s(age_s, self._warming_s) if self._warming_s else WARM_WORK_S)
        return self._name.encode()

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)


def make_cluster(window_s: float) -> Proto:
    """A cluster with weighted_round_robin, and slow start if there is a window."""
    cluster = lb_policy(eds_cluster(SERVICE), "weighted_round_robin")
    if not window_s:
        return cluster
    (outer,) = cluster.load_balancing_policy.policies
    locality = message_class(f"{_POLICIES}.wrr_locality.v3.WrrLocality")()
    outer.typed_extension_config.typed_config.Unpack(locality)
    (inner,) = locality.endpoint_picking_policy.policies
    config = message_class(_WRR)()
    set_duration(config.slow_start_config.slow_start_window, window_s)
    pack(config, inner.typed_extension_config.typed_config)
    pack(locality, outer.typed_extension_config.typed_config)
    return cluster


async def measure(window_s: float, *, rate: int, seconds: float, warming_s: float) -> Outcome:
    """One run: the last backend joins when the counted time begins."""
    warm = [WarmingBackend(f"b{number}", 0.0) for number in range(1, BACKENDS)]
    backends = [*warm, WarmingBackend("b0", warming_s)]
    for backend in backends:
        await backend.start()
    addresses = [each.address for each in backends]
    first = endpoints(SERVICE, addresses[:-1])
    config = [listener(SERVICE, [route(cluster=SERVICE)]), make_cluster(window_s)]
    try:
        async with (
            ControlPlane(Snapshot.of([*config, first])) as plane,
            proxyless.aio.insecure_channel(
                f"xds:///{SERVICE}", bootstrap=plane.bootstrap()
            ) as channel,
        ):
            await channel.unary_unary(PATH)(b"")
            # The warm backends leave their own window.
            await asyncio.sleep(window_s)
            load = asyncio.create_task(send_all(sender(channel, PATH), rate, seconds))
            await asyncio.sleep(WARM_UP_S)
            plane.set_snapshot(plane.snapshot.with_(endpoints(SERVICE, addresses)))
            return await load
    finally:
        for backend in backends:
            await backend.stop()


def format_outcomes(outcomes: dict[float, Outcome]) -> str:
    rows: list[tuple[str, ...]] = [
        ("slow start", "p50", "p90", "p99", "longest", "to the new backend", "failed")
    ]
    for window_s, outcome in outcomes.items():
        rows.append(
            (
                f"window of {window_s:g} s" if window_s else "none",
                *(f"{outcome.percentile_ms(each):.1f} ms" for each in (50, 90, 99, 100)),
                f"{outcome.backends['b0'] / outcome.total:.1%}",
                f"{outcome.failures / outcome.total:.1%}",
            )
        )
    return format_columns(rows, left=1)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Latency while a new backend warms up.")
    parser.add_argument("--rate", type=int, default=RATE, help="RPCs per second")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="counted time of a run")
    parser.add_argument("--warming", type=float, default=WARMING_S, help="time until it is warm")
    parsed = parser.parse_args(argv)
    scale = parsed.warming / WARMING_S
    outcomes = {
        window_s * scale: asyncio.run(
            measure(
                window_s * scale,
                rate=parsed.rate,
                seconds=parsed.seconds,
                warming_s=parsed.warming,
            )
        )
        for window_s in WINDOWS_S
    }
    sys.stdout.write(format_outcomes(outcomes) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
