"""Backends and Istio configuration for `tools.peers.clients.istio`, and the process of istiod."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from tests.certificates import CertificateAuthority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from tools.peers.clients.stacks import Untyped

PORT: Final = 7070
DOMAIN: Final = "shop.example.com"
# The identity of the backends in ISTIO_MUTUAL.
IDENTITY: Final = "spiffe://cluster.local/ns/shop/sa/orders"
REGION: Final = "west"
_SLOW_S: Final = 20.0
_START_TIMEOUT_S: Final = 60.0

Document = dict[str, Any]


@dataclass
class Backend:
    """A server of grpcio whose answers name it."""

    name: str
    port: int = 0
    is_failing: bool = False
    attempts: dict[str, int] = field(default_factory=dict)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        handlers = {
            "/shop.Orders/Get": grpc.unary_unary_rpc_method_handler(self._get),
            "/shop.Orders/Slow": grpc.unary_unary_rpc_method_handler(self._slow),
            "/shop.Orders/Flaky": grpc.unary_unary_rpc_method_handler(self._flaky),
            "/shop.Orders/Watch": grpc.unary_stream_rpc_method_handler(self._watch),
        }
        return handlers.get(details.method)

    async def _get(self, request: bytes, context: Untyped) -> bytes:
        if self.is_failing:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"{self.name} is failing")
        return json.dumps({"backend": self.name, "remaining_s": context.time_remaining()}).encode()

    async def _slow(self, request: bytes, context: Untyped) -> bytes:
        await asyncio.sleep(float(request or _SLOW_S))
        return self.name.encode()

    async def _flaky(self, request: bytes, context: Untyped) -> bytes:
        """Fail until the attempt that the request names."""
        attempt = int(dict(context.invocation_metadata()).get("grpc-previous-rpc-attempts", 0))
        if attempt < int(request):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "try again")
        return str(attempt).encode()

    async def _watch(self, request: bytes, context: Untyped) -> AsyncIterator[bytes]:
        for _ in range(int(request)):
            yield self.name.encode()
            await asyncio.sleep(1.0)


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def service(self, details: Untyped) -> Untyped:
        return self._backend.service(details)


@asynccontextmanager
async def backends(
    names: Sequence[str], credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[dict[str, Backend]]:
    """Running backends, by name."""
    made, servers = {}, []
    for name in names:
        server, backend = grpc.aio.server(), Backend(name)
        server.add_generic_rpc_handlers((_Handler(backend),))
        if credentials is None:
            backend.port = server.add_insecure_port("127.0.0.1:0")
        else:
            backend.port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        made[name] = backend
        servers.append(server)
    try:
        yield made
    finally:
        await asyncio.gather(*(server.stop(None) for server in servers))


# ---------------------------------------------------------------------------------------------
# Istio's kinds


def service_entry(name: str, endpoints: Sequence[Document], **spec: object) -> Document:
    return _kind(
        "ServiceEntry",
        name,
        hosts=[host(name)],
        location="MESH_INTERNAL",
        resolution="STATIC",
        ports=[{"number": PORT, "name": "grpc", "protocol": "GRPC"}],
        endpoints=list(endpoints),
        **spec,
    )


def endpoint(backend: Backend | int, version: str = "v1", **fields: object) -> Document:
    port = backend if isinstance(backend, int) else backend.port
    labels = {"version": version}
    return {"address": "127.0.0.1", "ports": {"grpc": port}, "labels": labels, **fields}


def destination_rule(name: str, **policy: object) -> Document:
    """A DestinationRule with subsets v1 and v2, without TLS unless the policy has it."""
    return _kind(
        "DestinationRule",
        name,
        host=host(name),
        trafficPolicy={"tls": {"mode": "DISABLE"}, **policy},
        subsets=[{"name": version, "labels": {"version": version}} for version in ("v1", "v2")],
    )


def virtual_service(name: str, *routes: Document) -> Document:
    return _kind("VirtualService", name, hosts=[host(name)], http=list(routes))


def route_to(name: str, weights: Mapping[str, int], **fields: object) -> Document:
    """An HTTPRoute to subsets with weights."""
    return {
        "route": [
            {
                "destination": {"host": host(name), "subset": subset, "port": {"number": PORT}},
                "weight": weight,
            }
            for subset, weight in weights.items()
        ],
        **fields,
    }


def host(name: str) -> str:
    """The host name of a service; hosts have no underscores."""
    return f"{name.replace('_', '-')}.{DOMAIN}"


def target(name: str) -> str:
    return f"xds:///{host(name)}:{PORT}"


def _kind(kind: str, name: str, **spec: object) -> Document:
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": kind,
        "metadata": {"name": name.replace("_", "-"), "namespace": "shop"},
        "spec": spec,
    }


# ---------------------------------------------------------------------------------------------
# istiod


class Istiod:
    """A process of examples/istio, and its file."""

    def __init__(self, process: asyncio.subprocess.Process, file: Path, address: str) -> None:
        self._process = process
        self._file = file
        self.address = address

    async def load(self, documents: Sequence[Document]) -> None:
        """Replace the configuration."""
        write(self._file, documents)
        reply = await self._command("reload")
        assert reply == "reloaded", reply

    async def client_count(self) -> int:
        """The number of xDS clients that are connected."""
        return int(await self._command("clients"))

    async def _command(self, text: str) -> str:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(f"{text}\n".encode())
        await stdin.drain()
        return await _read_line(self._process)


@asynccontextmanager
async def istiod(
    binary: str, directory: Path, documents: Sequence[Document], address: str = "127.0.0.1:0"
) -> AsyncIterator[Istiod]:
    """A running istiod with this configuration."""
    file = directory / "config.yaml"
    write(file, documents)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        binary,
        str(file),
        address,
        stdin=pipe,
        stdout=pipe,
    )
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            word, _, served = (await _read_line(process)).partition(" ")
        assert word == "serving", f"istiod printed {word}"
        yield Istiod(process, file, f"unix:{served}" if address.startswith("unix:") else served)
    finally:
        process.kill()
        await process.wait()


async def _read_line(process: asyncio.subprocess.Process) -> str:
    stdout = process.stdout
    assert stdout is not None
    line = await stdout.readline()
    assert line, "istiod ended"
    return line.decode().strip()


def write(file: Path, documents: Sequence[Document]) -> None:
    """Write documents as YAML; JSON is a part of YAML."""
    file.write_text("\n---\n".join(json.dumps(each) for each in documents))


def bootstrap(address: str, directory: Path, features: Sequence[str] = ()) -> Document:
    """A bootstrap in the form that Istio's agent writes."""
    return {
        "xds_servers": [
            {
                "server_uri": address,
                "channel_creds": [{"type": "insecure"}],
                "server_features": ["xds_v3", *features],
            }
        ],
        "node": {
            "id": "sidecar~127.0.0.1~client.shop~shop.svc.cluster.local",
            "metadata": {"GENERATOR": "grpc", "NAMESPACE": "shop", "CLUSTER_ID": "Kubernetes"},
            "locality": {"region": REGION},
        },
        "certificate_providers": {
            "default": {
                "plugin_name": "file_watcher",
                "config": {
                    "certificate_file": str(directory / "cert-chain.pem"),
                    "private_key_file": str(directory / "key.pem"),
                    "ca_certificate_file": str(directory / "root-cert.pem"),
                    "refresh_interval": "900s",
                },
            }
        },
        "server_listener_resource_name_template": "xds.istio.io/grpc/lds/inbound/%s",
    }


def make_certificates(directory: Path) -> grpc.ServerCredentials:
    """Write the client's certificate files; returns credentials of servers that require mTLS."""
    authority = CertificateAuthority()
    certificate, key = authority.issue(["spiffe://cluster.local/ns/shop/sa/client"], client=True)
    (directory / "cert-chain.pem").write_bytes(certificate)
    (directory / "key.pem").write_bytes(key)
    (directory / "root-cert.pem").write_bytes(authority.certificate_pem)
    certificate, key = authority.issue([IDENTITY])
    return grpc.ssl_server_credentials(
        [(key, certificate)],
        root_certificates=authority.certificate_pem,
        require_client_auth=True,
    )
