"""Envoy as a client of our control plane."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from proxyless.controlplane import ControlPlane
from tests.worlds.transports import PATIENCE_S, until


def envoy_config(control_plane: ControlPlane, api_type: str = "GRPC") -> dict[str, Any]:
    """Return a bootstrap that only has the address of the control plane."""
    ads = {"ads": {}, "resource_api_version": "V3"}
    host, _, port = control_plane.address.rpartition(":")
    place = {"socket_address": {"address": host, "port_value": int(port)}}
    http2 = {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    cluster = {
        "name": "control-plane",
        "type": "STATIC",
        "typed_extension_protocol_options": {http2["@type"].partition("/")[2]: http2},  # type: ignore[attr-defined]
        "load_assignment": {
            "cluster_name": "control-plane",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": place}}]}],
        },
    }
    ads_config = {
        "api_type": api_type,
        "transport_api_version": "V3",
        "grpc_services": [{"envoy_grpc": {"cluster_name": "control-plane"}}],
    }
    return {
        "node": {"id": "envoy-1", "cluster": "test"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "dynamic_resources": {"ads_config": ads_config, "cds_config": ads, "lds_config": ads},
        "static_resources": {"clusters": [cluster]},
    }


class Envoy:
    """Running Envoy."""

    def __init__(self, admin_path: Path) -> None:
        self._admin_path = admin_path

    async def find_listener(self, name: str) -> str:
        """Wait until a listener accepts connections, and return its address."""

        def accepts() -> bool:
            host, _, port = self.list_listeners().get(name, "").rpartition(":")
            if not host:
                return False
            with socket.socket() as probe:
                return probe.connect_ex((host, int(port))) == 0

        await until(accepts, f"Envoy to accept connections at {name!r}")
        return self.list_listeners()[name]

    def list_listeners(self) -> dict[str, str]:
        if not self._admin_path.exists() or not (admin := self._admin_path.read_text()):
            return {}
        with urlopen(f"http://{admin}/listeners?format=json", timeout=PATIENCE_S) as response:
            statuses = json.load(response).get("listener_statuses", [])
        places = {each["name"]: each["local_address"]["socket_address"] for each in statuses}
        return {name: f"{place['address']}:{place['port_value']}" for name, place in places.items()}


@asynccontextmanager
async def running_envoy(
    binary: Path, control_plane: ControlPlane, directory: Path, api_type: str = "GRPC"
) -> AsyncIterator[Envoy]:
    config, admin = directory / "envoy.json", directory / "admin"
    config.write_text(json.dumps(envoy_config(control_plane, api_type)))
    options = ["--admin-address-path", str(admin), "--disable-hot-restart", "--concurrency", "1"]
    with (directory / "envoy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(binary), "-c", str(config), *options, "-l", "warning", stdout=log, stderr=log
        )
    try:
        yield Envoy(admin)
        assert process.returncode is None, (directory / "envoy.log").read_text()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
