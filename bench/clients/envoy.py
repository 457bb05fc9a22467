"""Peer: grpc.aio through an Envoy on the same machine, which balances over three ports.

CPU is that of both processes: without the sidecar, the client would do its work.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.request import urlopen

import grpc.aio

from bench.clients import Client, ClientUnavailableError
from bench.clients.grpc_aio import GrpcAioClient
from tools.envoy_env import CannotInstallError, find_envoy

START_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.05
# Threads that handle connections; the reference has as many cores.
CONCURRENCY: Final = 2
FILTERS: Final = "envoy.filters"
TYPE: Final = "type.googleapis.com/envoy.extensions"


class SidecarClient(GrpcAioClient):
    """grpc.aio's multi-callables, and the CPU of client and sidecar."""

    def __init__(self, channel: grpc.aio.Channel, pid: int) -> None:
        super().__init__(channel)
        self._pid = pid

    def cpu_s(self) -> float:
        # Fields utime and stime, counted from the end of the name, which may contain spaces.
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        sidecar_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return time.process_time() + sidecar_s


def make_config(addresses: Sequence[str]) -> dict[str, Any]:
    """A listener whose requests all go to the addresses, in turns."""
    connections = {
        "@type": f"{TYPE}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "codec_type": "HTTP2",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "backends"}}],
                }
            ]
        },
        "http_filters": [
            {
                "name": f"{FILTERS}.http.router",
                "typed_config": {"@type": f"{TYPE}.filters.http.router.v3.Router"},
            }
        ],
    }
    listener = {
        "name": "in",
        "address": _place("127.0.0.1:0"),
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": f"{FILTERS}.network.http_connection_manager",
                        "typed_config": connections,
                    }
                ]
            }
        ],
    }
    options = f"{TYPE}.upstreams.http.v3.HttpProtocolOptions"
    cluster = {
        "name": "backends",
        "type": "STATIC",
        "lb_policy": "ROUND_ROBIN",
        "typed_extension_protocol_options": {
            options.partition("/")[2]: {
                "@type": options,
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
        "load_assignment": {
            "cluster_name": "backends",
            "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": _place(each)}} for each in addresses]}
            ],
        },
    }
    return {
        "admin": {"address": _place("127.0.0.1:0")},
        "static_resources": {"listeners": [listener], "clusters": [cluster]},
    }


def _place(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}


@asynccontextmanager
async def run_sidecar(addresses: Sequence[str]) -> AsyncIterator[tuple[int, str]]:
    """An Envoy for these backends: its process id and the address of its listener."""
    try:
        binary = await asyncio.to_thread(find_envoy)
    except CannotInstallError as error:
        raise ClientUnavailableError(str(error)) from error
    with TemporaryDirectory(prefix="bench-envoy-") as name:
        config, admin = Path(name) / "envoy.json", Path(name) / "admin"
        config.write_text(json.dumps(make_config(addresses)))
        options = ("--disable-hot-restart", "--log-level", "error", "--concurrency", CONCURRENCY)
        arguments = ("-c", config, "--admin-address-path", admin, *options)
        process = await asyncio.create_subprocess_exec(
            binary, *map(str, arguments), stdin=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                listener = await _find_listener(admin)
            yield process.pid, listener
        finally:
            process.kill()
            await process.wait()


async def _find_listener(admin: Path) -> str:
    """The address of the only listener, when it listens."""
    while True:
        found = await asyncio.to_thread(_list_listeners, admin)
        if found:
            place = found[0]["local_address"]["socket_address"]
            return f"{place['address']}:{place['port_value']}"
        await asyncio.sleep(POLL_S)


def _list_listeners(admin: Path) -> list[dict[str, Any]]:
    """Listeners by the admin interface, whose address Envoy writes to a file."""
    if not admin.exists() or not (address := admin.read_text()):
        return []
    with urlopen(f"http://{address}/listeners?format=json", timeout=START_TIMEOUT_S) as response:
        return list(json.load(response).get("listener_statuses", []))


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[Client]:
    async with (
        run_sidecar(address.split(",")) as (pid, listener),
        grpc.aio.insecure_channel(f"ipv4:{listener}") as channel,
    ):
        await channel.channel_ready()
        yield SidecarClient(channel, pid)
