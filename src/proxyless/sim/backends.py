"""Backend of the simulated mesh: an HTTP/2 server with an echo service, and its faults.

The service answers with the backend's name. The backend can be stopped, killed, slowed, set to fail
RPCs or to send GOAWAY, and started again; it counts connections and RPCs.
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
# Methods of the echo service of every backend, which answers with the backend's name.
UNARY: Final = "/sim.Echo/Unary"
STREAM: Final = "/sim.Echo/Stream"
# Metadata keys: the ID of an RPC in records, and the minimum size of its reply, filled with spaces.
RPC_ID: Final = "x-sim-rpc"
REPLY_BYTES: Final = "x-sim-reply-bytes"


def rpc_id_of(metadata: tuple[tuple[str, str | bytes], ...]) -> str:
    """The ID of the RPC, or an empty string."""
    return _find(metadata, RPC_ID)


def _find(metadata: tuple[tuple[str, str | bytes], ...], key: str) -> str:
    return next((str(value) for each, value in metadata if each == key), "")


class Backend:
    """One server. It owns the HTTP/2 server while it runs, and the faults of the service."""

    def __init__(
        self,
        host: Host,
        on_rpc: Callable[[Backend, str], None],
        *,
        addresses: Sequence[Address] = (),
        methods: Sequence[str] = (),
    ) -> None:
        """Addresses: default, that of the host. Methods: unary methods beside those of the echo."""
        self.host: Final = host
        self.name: Final = host.name
        self.addresses: Final = tuple(addresses) or (IpAddress(host.ip, PORT),)
        self.address: Final = self.addresses[0]
        self._unary_methods: Final = (UNARY, *methods)
        self._on_rpc = on_rpc
        self._server: Server | None = None
        # Delay of replies and status of unary RPCs; changed by faults.
        self.delay_s = 0.0
        self.status = OK
        self.rpcs = 0
        self._accepted_before = 0

    @property
    def is_running(self) -> bool:
        return self._server is not None

    @property
    def accepted(self) -> int:
        """Number of connections since the first start."""
        since_start = 0 if self._server is None else self._server.accepted
        return self._accepted_before + since_start

    async def start(self) -> None:
        """Start to serve. Idempotent."""
        if self._server is not None:
            return
        self.host.note("backend.start")
        methods = dict.fromkeys(self._unary_methods, self._answer_unary)
        self._server = Server({**methods, STREAM: self._answer_stream})
        for address in self.addresses:
            await self._server.listen(address, network=self.host.network)

    async def stop(self) -> None:
        """Send GOAWAY on each connection, and end the RPCs under way. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            self.host.note("backend.stop")
            self._accepted_before += server.accepted
            await server.close()

    async def kill(self) -> None:
        """Kill the process: connections are reset, and new ones refused."""
        self.host.reset_connections()
        await self.stop()

    async def lose_power(self) -> None:
        """Turn the machine off: connections are gone, and peers get a reset when it is back."""
        self.host.vanish_connections()
        await self.stop()

    def say_goaway(self) -> None:
        """Send GOAWAY on each connection; new connections are accepted."""
        self.host.note("backend.goaway")
        if self._server is not None:
            for connection in list(self._server.connections):
                connection.drain()

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
