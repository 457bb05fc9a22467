"""Which clients can be measured, and what must an adapter offer?

An adapter is one module with `open_client(address)`, where address is "host:port": an async context
manager whose value is a `Client`. It is entered once, before the first turn, and stays open until
the run ends. Add a client by adding its module and a line to `CLIENTS`.
"""

from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, Protocol, cast

# The echo method every adapter calls; the backends answer any path alike.
METHOD = "/bench.Echo/Echo"


class Client(Protocol):
    """One open connection to the backend."""

    def unary(self, message: bytes, /) -> Awaitable[bytes]: ...

    def server_stream(self, request: bytes, /) -> AsyncIterable[bytes]: ...


OpenClient = Callable[[str], AbstractAsyncContextManager[Client]]


class ClientUnavailableError(Exception):
    """This client cannot run here; the text says why."""


@dataclass(frozen=True, slots=True)
class ClientKind:
    """How a client is started."""

    module: str
    loop: Literal["asyncio", "uvloop"]
    # Clients that say what the floor is are only measured when asked for.
    is_floor: bool = False
    # `raw` clients speak plain TCP to the backend's raw port and know no streams.
    backend: Literal["grpc", "raw"] = "grpc"

    def load(self) -> OpenClient:
        """Import the adapter, in the process that will run it."""
        try:
            module = import_module(f"bench.clients.{self.module}")
        except ModuleNotFoundError as error:
            raise ClientUnavailableError(str(error)) from error
        return cast("OpenClient", module.open_client)


CLIENTS: dict[str, ClientKind] = {
    # The reference runs on asyncio's own loop, which is where its users run it.
    "grpc_aio": ClientKind("grpc_aio", "asyncio"),
    "transport_uvloop": ClientKind("transport", "uvloop"),
    "transport_asyncio": ClientKind("transport", "asyncio"),
    "lean_uvloop": ClientKind("lean", "uvloop", is_floor=True),
    "lean_asyncio": ClientKind("lean", "asyncio", is_floor=True),
    "raw_uvloop": ClientKind("raw", "uvloop", is_floor=True, backend="raw"),
    "raw_asyncio": ClientKind("raw", "asyncio", is_floor=True, backend="raw"),
}
