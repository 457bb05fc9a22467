"""What is a backend of the simulated mesh, and what may happen to it?

Our own wire server with an echo service that answers with the backend's name. It can be stopped
politely, killed, hung, slowed, told to fail RPCs or to say GOAWAY, and started again; who asks
learns how many connections and RPCs came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import OK, IpAddress, Status, StatusCode
from proxyless.sim.loop import pause
from proxyless.transport import Server, ServerCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxyless.base import Address
    from proxyless.sim.hosts import Host

PORT: Final = 50051
# The methods of the echo service that every backend has: it answers with the backend's name.
UNARY: Final = "/sim.Echo/Unary"
STREAM: Final = "/sim.Echo/Stream"
# How an RPC is known to those who write down what happens to it.
RPC_ID: Final = "x-sim-rpc"
# How many bytes an RPC wants its answer to have at least: spaces follow the name.
REPLY_BYTES: Final = "x-sim-reply-bytes"


def rpc_id_of(metadata: tuple[tuple[str, str | bytes], ...]) -> str:
    """The RPC's name; empty for those that have none."""
    return _find(metadata, RPC_ID)


def _find(metadata: tuple[tuple[str, str | bytes], ...], wanted: str) -> str:
    for key, value in metadata:
        if key == wanted:
            return str(value)
    return ""


class Backend:
    """One server. Driven by the RPCs that come and by faults."""

    def __init__(
        self,
        host: Host,
        zone: str,
        on_rpc: Callable[[Backend, str], None],
        *,
        addresses: Sequence[Address] = (),
        methods: Sequence[str] = (),
    ) -> None:
        """It serves at its host's own IP address unless told where, and methods beside its own."""
        # Fixed at construction.
        self.host: Final = host
        self.name: Final = host.name
        self.zone: Final = zone
        self.addresses: Final = tuple(addresses) or (IpAddress(host.ip, PORT),)
        self.address: Final = self.addresses[0]
        self._unary_methods: Final = (UNARY, *methods)
        self._on_rpc = on_rpc
        # Present while it runs.
        self._server: Server | None = None
        # How long it takes for an answer, and how unary RPCs end; changed by faults.
        self.delay_s = 0.0
        self.status = OK
        # What came, ever.
        self.rpcs = 0
        self._accepted_before = 0

    @property
    def is_running(self) -> bool:
        return self._server is not None

    @property
    def accepted(self) -> int:
        """Connections, ever."""
        now = 0 if self._server is None else self._server.accepted
        return self._accepted_before + now

    # Life

    async def start(self) -> None:
        """Serve. Does nothing if it does already."""
        if self._server is not None:
            return
        self.host.note("backend.start")
        methods = dict.fromkeys(self._unary_methods, self._answer_unary)
        self._server = Server({**methods, STREAM: self._answer_stream})
        for address in self.addresses:
            await self._server.listen(address, network=self.host.network)

    async def stop(self) -> None:
        """Close politely: GOAWAY on each connection, and RPCs under way end. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            self.host.note("backend.stop")
            self._accepted_before += server.accepted
            await server.close()

    async def kill(self) -> None:
        """The process is gone: connections break, and new ones are refused."""
        self.host.reset_connections()
        await self.stop()

    async def lose_power(self) -> None:
        """The machine is gone: who sends something to it hears of that when it is back."""
        self.host.vanish_connections()
        await self.stop()

    def say_goaway(self) -> None:
        """Each connection is to be left when its RPCs are done; new ones are welcome."""
        self.host.note("backend.goaway")
        if self._server is not None:
            for connection in list(self._server.connections):
                connection.drain()

    # The service

    async def _answer_unary(self, call: ServerCall) -> Status:
        self._note_rpc(call)
        await call.read()
        if self.delay_s > 0:
            await pause(self.delay_s)
        if self.status.code is StatusCode.OK:
            reply_bytes = int(_find(call.request.metadata, REPLY_BYTES) or 0)
            await call.write(self.name.encode().ljust(reply_bytes))
        return self.status

    async def _answer_stream(self, call: ServerCall) -> Status:
        self._note_rpc(call)
        async for _ in call:
            if self.delay_s > 0:
                await pause(self.delay_s)
            await call.write(self.name.encode())
        return OK

    def _note_rpc(self, call: ServerCall) -> None:
        self.rpcs += 1
        rpc_id = rpc_id_of(call.request.metadata)
        if rpc_id:
            self.host.note("backend.rpc", rpc=rpc_id)
            self._on_rpc(self, rpc_id)
