"""Services of pages: generated stubs, and backends."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import grpc.aio
from grpc_tools import protoc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROTOS = {
    "orders": """
        syntax = "proto3";
        service Orders { rpc Get(GetRequest) returns (Order); }
        message GetRequest { string id = 1; }
        message Order { string id = 1; string backend = 2; }
    """,
    "carts": """
        syntax = "proto3";
        service Carts { rpc Add(Item) returns (Cart); rpc Pay(PayRequest) returns (Cart); }
        message Item { string name = 1; }
        message PayRequest {}
        message Cart { repeated string names = 1; }
    """,
}


def generate(name: str) -> dict[str, Any]:
    """The two modules that grpcio-tools generates for a service, by name."""
    with TemporaryDirectory() as directory:
        (Path(directory) / f"{name}.proto").write_text(PROTOS[name])
        options = (f"-I{directory}", f"--python_out={directory}", f"--grpc_python_out={directory}")
        assert protoc.main(["protoc", *options, f"{name}.proto"]) == 0
        sys.path.insert(0, directory)
        try:
            return {each: import_module(each) for each in (f"{name}_pb2", f"{name}_pb2_grpc")}
        finally:
            sys.path.remove(directory)


@asynccontextmanager
async def orders_backend(modules: dict[str, Any]) -> AsyncIterator[str]:
    """A server of orders; its address."""
    pb2, services = modules["orders_pb2"], modules["orders_pb2_grpc"]

    class Orders(services.OrdersServicer):  # type: ignore[misc, name-defined]
        """Finds every order."""

        async def Get(self, request: Any, _context: object) -> Any:  # noqa: ANN401, N802
            return pb2.Order(id=request.id, backend="orders-1")

    server = grpc.aio.server()
    services.add_OrdersServicer_to_server(Orders(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def carts_backend(modules: dict[str, Any]) -> AsyncIterator[tuple[str, list[str]]]:
    """A server of carts; its address, and what was put in."""
    pb2, services = modules["carts_pb2"], modules["carts_pb2_grpc"]
    names: list[str] = []

    class Carts(services.CartsServicer):  # type: ignore[misc, name-defined]
        """Keeps items in memory, so RPCs need a session."""

        async def Add(self, request: Any, _context: object) -> Any:  # noqa: ANN401, N802
            names.append(request.name)
            return pb2.Cart(names=names)

        async def Pay(self, _request: object, _context: object) -> Any:  # noqa: ANN401, N802
            return pb2.Cart(names=names)

    server = grpc.aio.server()
    services.add_CartsServicer_to_server(Carts(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", names
    finally:
        await server.stop(None)
