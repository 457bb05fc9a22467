"""Benchmark of one changed resource among many: incremental xDS, state of the world, and grpcio.

    python bench/delta.py [--clusters 1000] [--changes 20]
    python bench/delta.py --endpoints 5000 [--changes 20]

Each client is a process with one channel, whose routes use every cluster. A proxy counts the bytes
between it and the control plane. Measured are the first configuration, a change of one cluster, a
change of one endpoint, and a new ADS stream; CPU time is that of the client process, until it is
quiet.

With `--endpoints` there is one cluster with that many, in its EDS resource or in a collection
(LEDS), of which one changes its address. All have connections.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

if not __package__:
    # Run as a file: import from the checkout, not from this directory.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import grpc
import grpc.aio

from bench.clients import METHOD, SERVICE
from bench.meshes import COLLECTION, collected, loopback_address, many_clusters, spread
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LB_ENDPOINT,
    LISTENER,
    ROUTE_CONFIG,
    ControlPlane,
    Resource,
    Snapshot,
)
from proxyless.controlplane.service import ServiceOptions

CLIENTS = ("grpcio", "proxyless", "proxyless, delta")
LEDS = "proxyless, LEDS, delta"
TYPES = (CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG)
PATIENCE_S = 120.0
# A client is quiet when it takes at most this share of a core for this time.
SETTLE_S = 0.25
QUIET_SHARE = 0.02


class CountingProxy:
    """A TCP proxy in front of the control plane that counts the bytes of its responses."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.received = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self._port)
        ends = (
            asyncio.ensure_future(self._copy(reader, back_writer, is_counted=False)),
            asyncio.ensure_future(self._copy(back_reader, writer, is_counted=True)),
        )
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        writer.close()
        back_writer.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_counted: bool
    ) -> None:
        while data := await reader.read(1 << 16):
            self.received += len(data) if is_counted else 0
            writer.write(data)
            await writer.drain()


class Client:
    """A client process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def cpu_s(self) -> float:
        """The CPU time of the process, after an RPC."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(b"\n")
        async with asyncio.timeout(PATIENCE_S):
            return float(await stdout.readline())

    async def settled_cpu_s(self) -> float:
        """The CPU time when the process is quiet: work may continue after the RPC."""
        async with asyncio.timeout(PATIENCE_S):
            before_s = await self.cpu_s()
            while True:
                await asyncio.sleep(SETTLE_S)
                after_s = await self.cpu_s()
                if after_s - before_s <= QUIET_SHARE * SETTLE_S:
                    return before_s
                before_s = after_s


@asynccontextmanager
async def running_client(kind: str, address: str) -> AsyncIterator[Client]:
    features = ["xds_v3", *(["delta"] if kind.endswith("delta") else [])]
    server = {"server_uri": address, "channel_creds": [{"type": "insecure"}]}
    config = {
        "xds_servers": [{**server, "server_features": features}],
        "node": {"id": "bench"},
        "authorities": {"bench": {}},
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--client", kind.partition(",")[0]),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(config)},
    )
    try:
        yield Client(process)
    finally:
        process.kill()
        await process.wait()


async def run_client(kind: str) -> None:
    """The client process: for each line of input an RPC, and the CPU time since the start."""
    if kind == "grpcio":
        channel = grpc.aio.insecure_channel(f"xds:///{SERVICE}")
    else:
        import proxyless.aio  # noqa: PLC0415 - grpcio's client does not load it

        channel = proxyless.aio.insecure_channel(f"xds:///{SERVICE}")
    call = channel.unary_unary(METHOD)
    while await asyncio.to_thread(sys.stdin.readline):
        await call(b"", timeout=PATIENCE_S)
        print(time.process_time(), flush=True)


class _Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(_echo)


async def _echo(request: bytes, _context: grpc.aio.ServicerContext) -> bytes:
    return request


def with_changed_cluster(snapshot: Snapshot, number: int) -> Snapshot:
    """The snapshot with another limit of requests in one cluster."""
    name = min(snapshot.resources(CLUSTER))
    message = snapshot.resources(CLUSTER)[name].message()
    del message.circuit_breakers.thresholds[:]
    message.circuit_breakers.thresholds.add().max_requests.value = 2_000 + number
    return snapshot.with_(message)


def with_changed_endpoint(snapshot: Snapshot, number: int) -> Snapshot:
    """The snapshot with another weight of one endpoint."""
    name = min(snapshot.resources(ENDPOINTS))
    message = snapshot.resources(ENDPOINTS)[name].message()
    endpoint = message.endpoints[0].lb_endpoints[0]
    endpoint.load_balancing_weight.value = 2 + number
    return snapshot.with_(message)


def with_moved_endpoint(snapshot: Snapshot, number: int) -> Snapshot:
    """The snapshot with another address of one endpoint, in its EDS resource or collection."""
    member = snapshot.get(LB_ENDPOINT, f"{COLLECTION}/0")
    message = (snapshot.resources(ENDPOINTS)["c"] if member is None else member).message()
    endpoint = message.endpoints[0].lb_endpoints[0] if member is None else message
    endpoint.endpoint.address.socket_address.address = f"127.99.0.{1 + number}"
    return snapshot.with_(message if member is None else Resource.of(message, member.name))


CLUSTER_CHANGES = (
    ("one cluster changed", with_changed_cluster),
    ("one endpoint changed", with_changed_endpoint),
)
ENDPOINT_CHANGES = (("one endpoint changed", with_moved_endpoint),)


async def measure(
    kind: str, clusters: int, changes: int, endpoints: int = 0
) -> dict[str, tuple[float, float]]:
    """Kilobytes and CPU milliseconds of each step, by name."""
    backend = grpc.aio.server()
    backend.add_generic_rpc_handlers((_Echo(),))
    port = backend.add_insecure_port("0.0.0.0:0")
    await backend.start()
    if kind == LEDS:
        snapshot = Snapshot.of(collected(endpoints, [port]))
    elif endpoints:
        snapshot = Snapshot.of(spread([loopback_address(n, [port]) for n in range(endpoints)]))
    else:
        snapshot = Snapshot.of(many_clusters(clusters, [port]))
    options = ServiceOptions(removal_grace_s=0.0)
    async with ControlPlane(snapshot, options=options) as plane:
        proxy = CountingProxy(plane.port)
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with running_client(kind, address) as client:
            found = {"first configuration": await _step(plane, proxy, client, 0.0)}
            for name, change in ENDPOINT_CHANGES if endpoints else CLUSTER_CHANGES:
                found[name] = await _changes(plane, proxy, client, change, changes)
            before_s = await client.settled_cpu_s()
            plane.break_streams()
            await plane.wait_for_streams(0, timeout_s=PATIENCE_S)
            await plane.wait_for_streams(1, timeout_s=PATIENCE_S)
            found["new ADS stream"] = await _step(plane, proxy, client, before_s)
        server.close()
    await backend.stop(None)
    return found


async def _changes(
    plane: ControlPlane,
    proxy: CountingProxy,
    client: Client,
    change: Callable[[Snapshot, int], Snapshot],
    count: int,
) -> tuple[float, float]:
    """The mean of many changes."""
    before_s, received = await client.settled_cpu_s(), proxy.received
    for number in range(count):
        plane.set_snapshot(plane.snapshot.replaced(change(plane.snapshot, number)))
        await _wait_acked(plane)
    cpu_s = await client.settled_cpu_s() - before_s
    return (proxy.received - received) / count / 1000, cpu_s / count * 1000


async def _step(
    plane: ControlPlane, proxy: CountingProxy, client: Client, before_s: float
) -> tuple[float, float]:
    received = proxy.received
    await client.cpu_s()
    await _wait_acked(plane)
    cpu_s = await client.settled_cpu_s()
    return (proxy.received - received) / 1000, (cpu_s - before_s) * 1000


async def _wait_acked(plane: ControlPlane) -> None:
    has_members = bool(plane.snapshot.resources(LB_ENDPOINT))
    for type_url in (*TYPES, LB_ENDPOINT) if has_members else TYPES:
        await plane.wait_for_ack(type_url, timeout_s=PATIENCE_S)


async def main(arguments: argparse.Namespace) -> None:
    rows: dict[str, list[str]] = {}
    measured = {}
    kinds = (*CLIENTS, LEDS) if arguments.endpoints else CLIENTS
    for kind in kinds:
        found = await measure(kind, arguments.clusters, arguments.changes, arguments.endpoints)
        measured[kind] = found
        for name, (kilobytes, cpu_ms) in found.items():
            rows.setdefault(name, []).append(f"{kilobytes:,.1f} kB, {cpu_ms:.1f} ms")
    size = f"{arguments.clusters} clusters"
    if arguments.endpoints:
        size = f"one cluster with {arguments.endpoints} endpoints"
    print(f"{size}; received bytes and CPU time of the client")
    print(_row("", kinds))
    for name, cells in rows.items():
        print(_row(name, cells))
    if arguments.json:
        run = {"clusters": arguments.clusters, "kilobytes_and_cpu_ms": measured}
        arguments.json.write_text(json.dumps(run, indent=2) + "\n")


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{name:24}" + "".join(f"{cell:>26}" for cell in cells)


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--endpoints", type=int, default=0, help="in one cluster")
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number to FILE")
    parser.add_argument("--client", choices=("grpcio", "proxyless"), help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    parsed = parse_arguments()
    asyncio.run(run_client(parsed.client) if parsed.client else main(parsed))
