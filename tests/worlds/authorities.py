"""Server of grpcio that returns the authority of its calls, and a mesh that rewrites it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc

from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    dns_cluster,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    route,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from proxyless.protos import Proto

NAME = "orders.test"
TARGET = f"xds:///{NAME}"
AUTHORITY_METHOD = "/test.Mesh/Authority"


class AuthorityEchoServer:
    """Server whose unary methods return the authority of the call."""

    def __init__(self, identity: tuple[bytes, bytes] | None = None) -> None:
        self._server = grpc.server(ThreadPoolExecutor(2), options=(("grpc.so_reuseport", 0),))
        self._server.add_generic_rpc_handlers((self,))
        if identity is None:
            self.port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            chain, key = identity
            credentials = grpc.ssl_server_credentials([(key, chain)])
            self.port = self._server.add_secure_port("127.0.0.1:0", credentials)

    def service(self, _details: object) -> Any:  # noqa: ANN401 - grpcio's objects have no types
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, _request: bytes, context: Any) -> bytes:  # noqa: ANN401
        # grpcio has no public attribute for it.
        host: bytes = context._rpc_event.call_details.host  # noqa: SLF001
        return host

    def start(self) -> None:
        self._server.start()

    async def stop(self) -> None:
        stopped = self._server.stop(None)
        await asyncio.to_thread(stopped.wait)


@asynccontextmanager
async def authority_echo_server(
    identity: tuple[bytes, bytes] | None = None,
) -> AsyncIterator[AuthorityEchoServer]:
    server = AuthorityEchoServer(identity)
    server.start()
    try:
        yield server
    finally:
        await server.stop()


def eds_resources(server: AuthorityEchoServer, hostname: str) -> tuple[Proto, Proto]:
    endpoint = lb_endpoint(f"127.0.0.1:{server.port}", hostname=hostname)
    return eds_cluster("orders"), endpoints("orders", [endpoint])


def dns_resources(server: AuthorityEchoServer) -> tuple[Proto]:
    return (dns_cluster("orders", "localhost", server.port),)


def rewriting_snapshot(*resources: Proto) -> Snapshot:
    """Mesh whose only route has auto_host_rewrite."""
    only = route(cluster="orders")
    only.route.auto_host_rewrite.value = True
    return Snapshot.of([listener(NAME, [only]), *resources])


def bootstrap_of(plane: ControlPlane, *, is_trusted: bool) -> dict[str, Any]:
    bootstrap = plane.bootstrap()
    if is_trusted:
        bootstrap["xds_servers"][0]["server_features"].append("trusted_xds_server")
    return bootstrap
