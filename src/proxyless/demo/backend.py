"""Backend of the demo: a process with a grpcio server and the generated servicer.

    python -m proxyless.demo.backend --name a1 --port 0

It prints its port on a line of its own, and exits when its standard input is closed, so it never
outlives the demo.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from proxyless.demo import greeter_pb2, greeter_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Sequence

# Each RPC takes this long, so that some are under way when a backend is killed.
WORK_S: Final = 0.004


class Greeter(greeter_pb2_grpc.GreeterServicer):  # type: ignore[misc]
    """The service. Called by grpcio's server."""

    def __init__(self, name: str, *, is_bad: bool) -> None:
        self._name: Final = name
        self._is_bad: Final = is_bad

    async def Greet(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - generated
        await asyncio.sleep(WORK_S)
        if self._is_bad:
            await context.abort(grpc.StatusCode.INTERNAL, f"backend {self._name!r} is a bad one")
        return greeter_pb2.GreetReply(
            text=f"hello, {request.name}", backend=self._name, peer=context.peer()
        )


async def serve(name: str, port: int, *, is_bad: bool) -> None:
    """Serve until standard input is closed."""
    # Two backends must not share a port.
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    greeter_pb2_grpc.add_GreeterServicer_to_server(Greeter(name, is_bad=is_bad), server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print(f"listening at {bound}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m proxyless.demo.backend")
    parser.add_argument("--name", required=True, help="name in the replies")
    parser.add_argument("--port", type=int, default=0, help="0 for any free port")
    parser.add_argument("--bad", action="store_true", help="fail every RPC")
    settings = parser.parse_args(arguments)
    asyncio.run(serve(settings.name, settings.port, is_bad=settings.bad))


if __name__ == "__main__":
    main()
