"""Example mesh on one machine: a control plane, two backends, and a route whose weights change.

python examples/mesh.py
"""

import asyncio
from collections import Counter

import grpc

import proxyless
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
)

WHO = "/example.Greeter/Who"


class Backend(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A grpcio server that answers every call with its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.server = grpc.aio.server()
        self.server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def service(self, _details: object) -> object:
        return grpc.unary_unary_rpc_method_handler(self.answer)

    async def answer(self, _request: bytes, _context: object) -> bytes:
        return self.name.encode()


def mesh(blue: Backend, green: Backend, weights: dict[str, int]) -> Snapshot:
    """The resources of `xds:///greeter`, with these weights."""
    return Snapshot.of(
        [
            listener("greeter", [route(weighted=weights)]),
            eds_cluster("blue"),
            endpoints("blue", [blue.address]),
            eds_cluster("green"),
            endpoints("green", [green.address]),
        ]
    )


async def main() -> None:
    blue, green = Backend("blue"), Backend("green")
    for backend in (blue, green):
        await backend.server.start()
    async with ControlPlane(mesh(blue, green, {"blue": 1})) as control_plane:
        bootstrap = control_plane.bootstrap()
        async with proxyless.aio.insecure_channel("xds:///greeter", bootstrap=bootstrap) as channel:
            who = channel.unary_unary(WHO)
            for weights in ({"blue": 1}, {"blue": 1, "green": 3}, {"green": 1}):
                control_plane.set_snapshot(mesh(blue, green, weights))
                while not await has_arrived(who, weights):
                    pass
                answers = [bytes(await who(b"", timeout=5.0)).decode() for _ in range(400)]
                print(f"weights {weights}: {dict(Counter(answers))}")
    for backend in (blue, green):
        await backend.server.stop(None)


async def has_arrived(who: grpc.aio.UnaryUnaryMultiCallable, weights: dict[str, int]) -> bool:
    """Whether RPCs go to all of these clusters and to no other."""
    answers = {bytes(await who(b"", timeout=5.0)).decode() for _ in range(40)}
    return answers == set(weights)


if __name__ == "__main__":
    asyncio.run(main())
