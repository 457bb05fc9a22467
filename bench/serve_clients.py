"""Clients of one `proxyless serve` process: time and CPU of a start and of a change, measured.

Each client is an ADS stream of its own on a connection of its own, in one process of grpcio, which
subscribes to the four resources of a target and sends ACKs, without decoding the resources: the
figures are those of the control plane. Both processes share the machine.

    python -m bench.serve_clients --clients 500 --endpoints 5000
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
from google.protobuf import json_format

from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTE_CONFIG,
    Snapshot,
    simple_mesh,
)
from proxyless.protos import descriptor_pool_of_envoy, message_class

ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
PATIENCE_S = 300.0


def write_mesh(path: Path, addresses: int, version: int) -> None:
    hosts = [f"10.9.{each // 250}.{each % 250 + 1}:50051" for each in range(addresses)]
    hosts[-1] = f"10.200.0.{version}:50051"
    snapshot: Snapshot = simple_mesh("api", {"pool": hosts})
    pool = descriptor_pool_of_envoy()
    documents = [
        {
            "@type": resource.type_url,
            **json_format.MessageToDict(resource.message(), descriptor_pool=pool),
        }
        for resource in snapshot
    ]
    new = path.with_suffix(".new")
    new.write_text(json.dumps(documents))
    new.replace(path)


class StreamClient:
    """One ADS stream, which counts its responses and their bytes."""

    def __init__(self, address: str, number: int, subscribed: dict[str, str]) -> None:
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", -1),
        ]
        self._channel = grpc.aio.insecure_channel(address, options)
        self._call: Any = self._channel.stream_stream(ADS)()
        self._number = number
        self._subscribed = subscribed
        # By type URL.
        self.versions: dict[str, str] = {}
        self.bytes = 0
        self.responses = 0

    async def run(self, on_response: asyncio.Event) -> None:
        request = message_class("envoy.service.discovery.v3.DiscoveryRequest")
        response = message_class("envoy.service.discovery.v3.DiscoveryResponse")
        for type_url, name in self._subscribed.items():
            first = request(type_url=type_url, resource_names=[name])
            first.node.id = f"client-{self._number}"
            await self._call.write(first.SerializeToString())
        while (message := await self._call.read()) is not grpc.aio.EOF:
            received = response.FromString(message)
            self.bytes += len(message)
            self.responses += 1
            self.versions[received.type_url] = received.version_info
            ack = request(
                type_url=received.type_url,
                version_info=received.version_info,
                response_nonce=received.nonce,
                resource_names=[self._subscribed[received.type_url]],
            )
            await self._call.write(ack.SerializeToString())
            on_response.set()

    async def close(self) -> None:
        self._call.cancel()
        await self._channel.close()


def cpu_s_of(process_id: int) -> float:
    """CPU time of a process, from /proc."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes_of(process_id: int) -> int:
    fields = Path(f"/proc/{process_id}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


class ServeRun:
    """The command with its clients."""

    def __init__(self, process: asyncio.subprocess.Process, clients: list[StreamClient]) -> None:
        self._process = process
        self._clients = clients
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> dict[str, object]:
        return await self._measure("start", "1", self._start_clients)

    def _start_clients(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(each.run(self._changed)) for each in self._clients]

    async def change(self, file: Path, addresses: int) -> dict[str, object]:
        return await self._measure("change", "2", lambda: write_mesh(file, addresses, 2))

    async def _measure(
        self, name: str, version: str, begin: Callable[[], None]
    ) -> dict[str, object]:
        cpu_s, started_s = cpu_s_of(self._process.pid), time.monotonic()
        sizes, responses = self._totals()
        begin()
        first_s = None
        async with asyncio.timeout(PATIENCE_S):
            while True:
                done = sum(each.versions.get(ENDPOINTS) == version for each in self._clients)
                if done and first_s is None:
                    first_s = time.monotonic()
                if done == len(self._clients):
                    break
                self._changed.clear()
                await self._changed.wait()
        now_s = time.monotonic()
        return {
            "phase": name,
            "seconds": round(now_s - started_s, 2),
            "from_first_to_last_s": round(now_s - (first_s or now_s), 2),
            "cpu_s": round(cpu_s_of(self._process.pid) - cpu_s, 2),
            "responses": self._totals()[1] - responses,
            "megabytes": round((self._totals()[0] - sizes) / 1e6, 1),
            "memory_mb": round(resident_bytes_of(self._process.pid) / 1e6),
        }

    def _totals(self) -> tuple[int, int]:
        return sum(each.bytes for each in self._clients), sum(
            each.responses for each in self._clients
        )

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def run(size: int, addresses: int) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "mesh.json")
        write_mesh(file, addresses, 1)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxyless", "serve", directory, "--listen", "127.0.0.1:0"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            line = (await process.stdout.readline()).decode()
            address = line.removeprefix("listening at ").strip()
            subscribed = {LISTENER: "api", ROUTE_CONFIG: "api-routes", CLUSTER: "pool"}
            subscribed[ENDPOINTS] = "pool"
            clients = [StreamClient(address, number, subscribed) for number in range(size)]
            running = ServeRun(process, clients)
            results = [await running.start(), await running.change(file, addresses)]
            await running.close()
        finally:
            process.terminate()
            await process.wait()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--endpoints", type=int, default=100)
    parsed = parser.parse_args()
    for result in asyncio.run(run(parsed.clients, parsed.endpoints)):
        print(json.dumps(result))


if __name__ == "__main__":
    main()
