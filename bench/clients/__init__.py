"""Clients that can be measured, and the interface of their adapters.

An adapter is one module with `open_client(address)`, where address is "host:port", or three of them
separated by commas, or the control plane's, or with TLS "host:port@directory of certificates": an
async context manager of a `Client`, or a `BlockingClient`. It is entered once, before the first
turn, and stays open until the run ends. Add a client by adding its module and a line to `CLIENTS`.
"""

from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, Protocol, cast

# The echo method that every adapter calls; backends ignore the path.
METHOD = "/bench.Echo/Echo"
# The target of xDS clients, and the name of its listener.
SERVICE = "bench"
TARGET = f"xds:///{SERVICE}"


class Client(Protocol):
    """One open connection to the backend."""

    def unary(self, message: bytes, /) -> Awaitable[bytes]: ...

    def server_stream(self, request: bytes, /) -> AsyncIterable[bytes]: ...


class BlockingClient(Protocol):
    """The same for threads."""

    def unary(self, message: bytes, /) -> bytes: ...


OpenClient = Callable[[str], AbstractAsyncContextManager[Client]]
OpenBlockingClient = Callable[[str], AbstractAsyncContextManager[BlockingClient]]


class ClientUnavailableError(Exception):
    """This client cannot run here; the text has the reason."""


@dataclass(frozen=True, slots=True)
class ClientKind:
    """Module, event loop and kind of a client."""

    module: str
    loop: Literal["asyncio", "uvloop"]
    # Lower bounds are measured only with `--floor`, peers other than grpcio only with `--peers`.
    is_floor: bool = False
    is_peer: bool = False
    # Measured only by name.
    is_extra: bool = False
    # `raw` clients use plain TCP to the backend's raw port and have no streams; `three` have a
    # channel to three ports, with round_robin; `xds` get the same three from a control plane; `tls`
    # verify the backend's certificate, and with `mtls` they have one, too.
    backend: Literal["grpc", "raw", "three", "xds", "tls", "mtls"] = "grpc"
    # Whether it runs in threads, not in coroutines.
    is_blocking: bool = False
    # The client that it is compared with.
    reference: str = "grpc_aio"

    def load(self) -> OpenClient | OpenBlockingClient:
        """Import the adapter, in the process that will run it."""
        try:
            module = import_module(f"bench.clients.{self.module}")
        except ModuleNotFoundError as error:
            raise ClientUnavailableError(str(error)) from error
        return cast("OpenClient | OpenBlockingClient", module.open_client)


CLIENTS: dict[str, ClientKind] = {
    # The reference runs on asyncio's own loop, as with most users.
    "grpc_aio": ClientKind("grpc_aio", "asyncio"),
    "transport_uvloop": ClientKind("transport", "uvloop"),
    "transport_asyncio": ClientKind("transport", "asyncio"),
    "grpc_aio_rr": ClientKind("grpc_aio_rr", "asyncio", backend="three", reference="grpc_aio_rr"),
    "channel_uvloop": ClientKind("channel", "uvloop", backend="three", reference="grpc_aio_rr"),
    "channel_asyncio": ClientKind("channel", "asyncio", backend="three", reference="grpc_aio_rr"),
    "grpc_aio_xds": ClientKind("grpc_aio_xds", "asyncio", backend="xds", reference="grpc_aio_xds"),
    "xds_uvloop": ClientKind("xds", "uvloop", backend="xds", reference="grpc_aio_xds"),
    "xds_asyncio": ClientKind("xds", "asyncio", backend="xds", reference="grpc_aio_xds"),
    "tls_grpc_aio": ClientKind("grpc_aio_tls", "asyncio", backend="tls", reference="tls_grpc_aio"),
    "tls_uvloop": ClientKind("tls", "uvloop", backend="tls", reference="tls_grpc_aio"),
    "tls_asyncio": ClientKind("tls", "asyncio", backend="tls", reference="tls_grpc_aio"),
    "mtls_grpc_aio": ClientKind(
        "grpc_aio_tls", "asyncio", backend="mtls", reference="mtls_grpc_aio"
    ),
    "mtls_uvloop": ClientKind("tls", "uvloop", backend="mtls", reference="mtls_grpc_aio"),
    "mtls_asyncio": ClientKind("tls", "asyncio", backend="mtls", reference="mtls_grpc_aio"),
    # Blocking clients have a loop of their own; the one here only reads orders.
    "grpc_sync": ClientKind("grpc_sync", "asyncio", is_blocking=True, reference="grpc_sync"),
    "channel_sync": ClientKind("channel_sync", "asyncio", is_blocking=True, reference="grpc_sync"),
    # With metrics: a stats plugin of OpenTelemetry's SDK, and a reader that exports nothing.
    "metrics_grpc_sync": ClientKind(
        "grpc_sync_metrics",
        "asyncio",
        is_blocking=True,
        is_extra=True,
        reference="metrics_grpc_sync",
    ),
    "metrics_sync": ClientKind(
        "channel_sync_metrics",
        "asyncio",
        is_blocking=True,
        is_extra=True,
        reference="metrics_grpc_sync",
    ),
    # Peers besides grpcio, beside the clients of a mesh.
    "connectrpc": ClientKind("connectrpc", "asyncio", is_peer=True, reference="grpc_aio_xds"),
    "envoy_sidecar": ClientKind(
        "envoy", "asyncio", is_peer=True, backend="three", reference="grpc_aio_xds"
    ),
    "lean_uvloop": ClientKind("lean", "uvloop", is_floor=True),
    "lean_asyncio": ClientKind("lean", "asyncio", is_floor=True),
    "raw_uvloop": ClientKind("raw", "uvloop", is_floor=True, backend="raw"),
    "raw_asyncio": ClientKind("raw", "asyncio", is_floor=True, backend="raw"),
}
