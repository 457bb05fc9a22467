"""Our client and a server of grpc-go, both configured by our control plane.

The program is in tests/interop/go-xds-server. It needs Go, and at first the network for its
modules; without them these tests are skipped.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import proxyless
from proxyless.controlplane import (
    LISTENER,
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    socket_listener,
    tls,
)
from tests.certificates import CertificateAuthority
from tests.worlds.go_programs import BUILD_S, build_go
from tests.worlds.grpcio_peers import ROOT, WHERE
from tests.worlds.mtls import SERVER_NAMES, ProviderFiles
from tests.worlds.transports import PATIENCE_S
from tests.worlds.xds_messages import any_of, proto

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from proxyless.protos import Proto

pytestmark = pytest.mark.timeout(BUILD_S + 60)
TEMPLATE = "grpc/server?xds.resource.listening_address=%s"
DOWNSTREAM = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = ROOT / "tests" / "interop" / "go-xds-server"
    return build_go(source, tmp_path_factory.mktemp("go") / "server")


@dataclass
class GoServer:
    """The process, and where it listens."""

    process: asyncio.subprocess.Process
    address: str = ""

    async def line(self) -> str:
        assert self.process.stdout is not None, "the output is a pipe"
        async with asyncio.timeout(PATIENCE_S):
            return (await self.process.stdout.readline()).decode().strip()

    @property
    def resource_name(self) -> str:
        return TEMPLATE % self.address


@asynccontextmanager
async def go_server(
    binary: Path, plane: ControlPlane, providers: Mapping[str, Any]
) -> AsyncIterator[GoServer]:
    bootstrap = {
        **plane.bootstrap("go-server"),
        "server_listener_resource_name_template": TEMPLATE,
        "certificate_providers": providers,
    }
    process = await asyncio.create_subprocess_exec(
        *(str(binary), "-name", "go"),
        env={**os.environ, "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(bootstrap)},
        stdout=asyncio.subprocess.PIPE,
    )
    server = GoServer(process)
    try:
        server.address = await server.line()
        yield server
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def server_listener(server: GoServer, *, is_secure: bool = False) -> Proto:
    """The listener of the server: every method is served, with mTLS if it is secure."""
    served = route()
    served.ClearField("route")
    served.non_forwarding_action.SetInParent()
    made = socket_listener(server.resource_name, server.address, [served])
    if is_secure:
        provider = {"instance_name": "mesh"}
        validation = {"ca_certificate_provider_instance": provider}
        common = {
            "tls_certificate_provider_instance": provider,
            "validation_context": validation,
        }
        context = proto(
            DOWNSTREAM,
            common_tls_context=common,
            require_client_certificate=proto("google.protobuf.BoolValue", value=True),
        )
        socket = made.filter_chains[0].transport_socket
        socket.name = "envoy.transport_sockets.tls"
        socket.typed_config.CopyFrom(any_of(context))
    return made


def client_mesh(server: GoServer, cluster: Proto) -> list[Proto]:
    return [
        listener("api", [route(cluster="go")]),
        cluster,
        endpoints("go", [server.address]),
    ]


async def call_until_failure(call: Callable[..., Awaitable[bytes]]) -> None:
    """Call until an RPC fails: the server closes its connections after it says NOT_SERVING."""
    async with asyncio.timeout(PATIENCE_S):
        while await call(b"", timeout=PATIENCE_S) == b"go":
            pass


async def test_rpcs_are_served_while_the_listener_exists(binary: Path) -> None:
    async with (
        ControlPlane(Snapshot.of([], partial=True)) as plane,
        go_server(binary, plane, {}) as server,
    ):
        mesh = [*client_mesh(server, eds_cluster("go")), server_listener(server)]
        plane.set_snapshot(plane.snapshot.with_(*mesh))
        assert await server.line() == "SERVING"
        async with proxyless.aio.insecure_channel(
            "xds:///api", bootstrap=plane.bootstrap()
        ) as channel:
            where = channel.unary_unary(WHERE)
            assert await where(b"", timeout=PATIENCE_S) == b"go"
            plane.set_snapshot(plane.snapshot.without(LISTENER, server.resource_name))
            assert await server.line() == "NOT_SERVING"
            with pytest.raises(grpc.RpcError) as caught:
                await call_until_failure(where)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            plane.set_snapshot(plane.snapshot.with_(server_listener(server)))
            assert await server.line() == "SERVING"
            assert await where(b"", timeout=PATIENCE_S, wait_for_ready=True) == b"go"


@pytest.mark.parametrize("has_identity", [True, False], ids=["identity", "no-identity"])
async def test_mutual_tls_is_required_by_both_listeners(
    binary: Path, tmp_path: Path, has_identity: bool
) -> None:
    authority = CertificateAuthority()
    chain, key = authority.issue(SERVER_NAMES)
    of_server, of_client = ProviderFiles(tmp_path / "server"), ProviderFiles(tmp_path / "client")
    for files in (of_server, of_client):
        files.write_roots(authority)
        files.write_identity(authority)
    (tmp_path / "server" / "cert.pem").write_bytes(chain)
    (tmp_path / "server" / "key.pem").write_bytes(key)
    certificate = "mesh" if has_identity else ""
    cluster = tls(eds_cluster("go"), "mesh", certificate=certificate, names=[SERVER_NAMES[1]])
    async with (
        ControlPlane(Snapshot.of([], partial=True)) as plane,
        go_server(binary, plane, {"mesh": of_server.provider}) as server,
    ):
        mesh = [*client_mesh(server, cluster), server_listener(server, is_secure=True)]
        plane.set_snapshot(plane.snapshot.with_(*mesh))
        assert await server.line() == "SERVING"
        bootstrap = {
            **plane.bootstrap(),
            "certificate_providers": {"mesh": of_client.provider},
        }
        credentials = proxyless.xds_channel_credentials(proxyless.local_channel_credentials())
        async with proxyless.aio.secure_channel(
            "xds:///api", credentials, bootstrap=bootstrap
        ) as channel:
            where = channel.unary_unary(WHERE)
            if has_identity:
                assert await where(b"", timeout=PATIENCE_S) == b"go"
                return
            with pytest.raises(grpc.RpcError) as caught:
                await where(b"", timeout=PATIENCE_S)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
