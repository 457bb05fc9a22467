"""A mesh on real sockets whose RPCs are mirrored, with backends of grpcio that record requests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

import proxyless
from proxyless.controlplane import ControlPlane, Snapshot, eds_cluster, endpoints, listener, route
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from proxyless.protos import Proto

METHOD = "/test.Shop/Buy"
# Request of RPCs that wait for the connection of the mirror. Backends do not record it.
WARM_UP = b"warm-up"


class RecordingBackend:
    """grpcio server that records requests, and answers, fails, or waits."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.is_reached = False
        self.requests: list[bytes] = []
        self.users: list[str] = []
        # Set by the test.
        self.is_failing = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.cancelled = 0
        self._server: Any = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        self._server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def service(self, _details: object) -> Any:  # noqa: ANN401 - called by grpcio
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401
        self.is_reached = True
        if request == WARM_UP:
            return self._name.encode()
        self.requests.append(request)
        self.users += [value for key, value in context.invocation_metadata() if key == "user"]
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.is_failing:
            await context.abort(grpc.StatusCode.INTERNAL, "broken")
        return self._name.encode()

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)


class MirroredShop:
    """A mesh whose RPCs are mirrored, and a channel to it."""

    def __init__(
        self,
        main: RecordingBackend,
        copy: RecordingBackend,
        control_plane: ControlPlane,
        channel: Any,  # noqa: ANN401 - it has grpcio's interface
    ) -> None:
        self.main = main
        self.copy = copy
        self.control_plane = control_plane
        self.channel = channel

    async def call(self, request: bytes) -> bytes:
        call = self.channel.unary_unary(METHOD)
        return bytes(await call(request, timeout=PATIENCE_S, metadata=[("user", "ada")]))

    async def connect(self) -> None:
        """Call until the mirror is connected."""

        async def call_until_copied() -> None:
            while not self.copy.is_reached:
                await self.call(WARM_UP)

        await asyncio.wait_for(call_until_copied(), PATIENCE_S)


def mirrored_route() -> Proto:
    mirrored = route(cluster="main")
    mirrored.route.request_mirror_policies.add(cluster="copies")
    return mirrored


@asynccontextmanager
async def mirrored_shop() -> AsyncIterator[MirroredShop]:
    main, copy = RecordingBackend("main"), RecordingBackend("copy")
    for backend in (main, copy):
        await backend.start()
    snapshot = Snapshot.of(
        [
            listener("shop", [mirrored_route()]),
            eds_cluster("main"),
            endpoints("main", [main.address]),
            eds_cluster("copies"),
            endpoints("copies", [copy.address]),
        ]
    )
    try:
        async with (
            ControlPlane(snapshot) as control_plane,
            proxyless.aio.insecure_channel(
                "xds:///shop", bootstrap=control_plane.bootstrap()
            ) as channel,
        ):
            yield MirroredShop(main, copy, control_plane, channel)
    finally:
        for backend in (main, copy):
            await backend.stop()
