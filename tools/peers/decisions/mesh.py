"""Control plane and backends of the cases."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTE_CONFIG,
    ControlPlane,
    NackedError,
    Resource,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route_config,
)
from tools.peers.decisions.voice import Command, Rpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from proxyless.protos import Proto
    from tools.peers.clients.stacks import Untyped

SERVICE: Final = "shop.example"
WHERE: Final = "/peers.Echo/Where"
SLOW: Final = "/peers.Echo/Slow"
FAIL: Final = "/peers.Echo/Fail"
FAIL_AT: Final = "/peers.Echo/FailAt"
NAMES: Final = ("a", "b", "c")
# Time in which a client receives a change and answers; then time until it uses the change.
_ANSWER_S: Final = 8.0
_SETTLE_S: Final = 0.5


class Backend:
    """A server of grpcio whose answers name it."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.address = ""
        # RPCs that `Fail` has received, by the key in the request.
        self.attempts: Counter[str] = Counter()
        self._server: Untyped = None

    async def start(self) -> None:
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        handlers = {
            "Where": grpc.unary_unary_rpc_method_handler(self._where),
            "Slow": grpc.unary_unary_rpc_method_handler(self._slow),
            "Fail": grpc.unary_unary_rpc_method_handler(self._fail),
            "FailAt": grpc.unary_unary_rpc_method_handler(self._fail_at),
        }
        service = grpc.method_handlers_generic_handler("peers.Echo", handlers)
        self._server.add_generic_rpc_handlers((service,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    async def _where(self, _request: bytes, _context: Untyped) -> bytes:
        return self.name.encode()

    async def _slow(self, request: bytes, _context: Untyped) -> bytes:
        await asyncio.sleep(float(request))
        return self.name.encode()

    async def _fail(self, request: bytes, context: Untyped) -> bytes:
        """`CODE key`: always fail; `CODE key n`: fail n times."""
        code, key, *times = request.decode().split()
        self.attempts[key] += 1
        if not times or self.attempts[key] <= int(times[0]):
            await context.abort(grpc.StatusCode[code], "as requested")
        return self.name.encode()

    async def _fail_at(self, request: bytes, context: Untyped) -> bytes:
        """Fail at the backend that the request names."""
        if request.decode() == self.name:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "as requested")
        return self.name.encode()


@asynccontextmanager
async def running_backends() -> AsyncIterator[dict[str, Backend]]:
    made = {name: Backend(name) for name in NAMES}
    for backend in made.values():
        await backend.start()
    try:
        yield made
    finally:
        for backend in made.values():
            await backend.stop()


class Mesh:
    """What a case works with: the control plane of one voice, the backends, and RPCs."""

    def __init__(
        self,
        key: str,
        plane: ControlPlane,
        backends: Mapping[str, Backend],
        send: Callable[[Command], Awaitable[list[Rpc]]],
        adapt: Callable[[Sequence[Resource]], Sequence[Resource]],
        shared: dict[str, str],
    ) -> None:
        # Unique for each case and voice.
        self.key: Final = key
        # Of a case, for all voices; ours runs first.
        self.shared: Final = shared
        self.addresses: Final = {name: backend.address for name, backend in backends.items()}
        self._backends = backends
        self._plane = plane
        self._send = send
        self._adapt = adapt
        self._resources: dict[tuple[str, str], Resource] = {}

    # Configuration

    async def serve(
        self, *routes: Proto, filters: Sequence[Proto] = (), more: Sequence[Proto] = ()
    ) -> None:
        """A service with these routes, the clusters a, b and c, and more resources.

        A cluster and its backend have the same name; resources in `more` replace others.
        """
        resources = [listener(SERVICE, SERVICE, filters=filters), route_config(SERVICE, *routes)]
        for name in NAMES:
            resources += [eds_cluster(name), endpoints(name, [self.addresses[name]])]
        await self.put(*resources, *more)

    async def put(self, *messages: Proto) -> str:
        """Add or replace resources; returns the answer of the client that has their types."""
        changed = [Resource.of(message) for message in messages]
        self._resources |= {(each.type_url, each.name): each for each in changed}
        return await self._publish({each.type_url for each in changed})

    async def remove(self, type_url: str, name: str) -> str:
        del self._resources[type_url, name]
        return await self._publish({type_url})

    async def _publish(self, changed: set[str]) -> str:
        had_client = bool(self._plane.streams)
        adapted = self._adapt(list(self._resources.values()))
        self._plane.set_snapshot(self._plane.snapshot.replaced(adapted))
        return await self.answer(*changed) if had_client else ""

    async def answer(self, *types: str) -> str:
        """ACK or NACK of the newest version of these types, or `no answer`."""
        try:
            for type_url in (CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG):
                if type_url in types:
                    await self._plane.wait_for_ack(type_url, timeout_s=_ANSWER_S)
        except NackedError:
            return "NACK"
        except TimeoutError:
            return "no answer"
        finally:
            await asyncio.sleep(_SETTLE_S)
        return "ACK"

    @property
    def has_nacks(self) -> bool:
        return bool(self._plane.nacks)

    # RPCs

    async def call(
        self, method: str = WHERE, *, service: str = SERVICE, **fields: Untyped
    ) -> list[Rpc]:
        return await self._send(Command(f"xds:///{service}", method, **fields))

    async def results(self, method: str = WHERE, **fields: Untyped) -> str:
        """The different results of RPCs: the backends' names, and codes."""
        rpcs = await self.call(method, **fields)
        return ", ".join(sorted({rpc.reply or rpc.code for rpc in rpcs}))

    async def counts(self, method: str = WHERE, **fields: Untyped) -> str:
        """The numbers of these results."""
        found = Counter(rpc.reply or rpc.code for rpc in await self.call(method, **fields))
        return ", ".join(f"{number} {result}" for result, number in sorted(found.items()))

    async def verdict(self, **fields: Untyped) -> str:
        """The result of an RPC, and whether the client has rejected a resource."""
        result = await self.results(**fields)
        # A client may fail RPCs before it sends its answer.
        await asyncio.sleep(_SETTLE_S)
        return f"NACK, {result}" if self.has_nacks else result

    async def settle(self) -> None:
        """Wait until RPCs succeed."""
        await self.call(wait_for_ready=True)

    def attempts(self) -> int:
        """The number of RPCs that the backends have failed for this case."""
        return sum(backend.attempts[self.key] for backend in self._backends.values())


def empty_plane() -> ControlPlane:
    return ControlPlane(Snapshot.of([], partial=True))
