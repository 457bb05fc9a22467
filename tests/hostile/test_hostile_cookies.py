"""Backends whose cookies would fail the RPCs of a session, or move it.

grpcio's servers, with their default limit of 8 kB of metadata. grpcio's client has no sessions: its
applications handle cookies themselves.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio
import pytest

import proxyless
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    keep_sessions,
    listener,
    route,
    session_filter,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

COOKIE: Final = "session"
METHOD: Final = "/test.Mesh/Where"
RPCS: Final = 50
BIG: Final = 3_900


class CookieBackend(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types.
    """A backend that returns its name, and sets cookies."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rpcs = 0
        self.address = ""
        # Of the next response.
        self.make_cookies: Callable[[], list[str]] = list

    def service(self, _details: Any) -> Any:  # noqa: ANN401 - grpcio's
        return grpc.unary_unary_rpc_method_handler(self._serve)

    async def _serve(self, _request: bytes, context: Any) -> bytes:  # noqa: ANN401 - grpcio's
        self.rpcs += 1
        await context.send_initial_metadata([("set-cookie", each) for each in self.make_cookies()])
        return self.name.encode()

    @asynccontextmanager
    async def started(self) -> AsyncIterator[CookieBackend]:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        try:
            yield self
        finally:
            await server.stop(None)


def mesh(*started: CookieBackend) -> Snapshot:
    """One cluster for each backend, of one route, with sessions."""
    names = [each.name for each in started]
    return Snapshot.of(
        [
            listener(
                "api",
                [route(weighted=dict.fromkeys(names, 1))],
                filters=[session_filter(COOKIE)],
            ),
            *(keep_sessions(eds_cluster(name), idle_timeout_s=60) for name in names),
            *(endpoints(each.name, [each.address]) for each in started),
        ]
    )


class TwoBackendsWorld:
    """Two backends, and a channel."""

    def __init__(self, a: CookieBackend, b: CookieBackend, channel: Any) -> None:  # noqa: ANN401
        self.backends = {each.name: each for each in (a, b)}
        self.channel = channel

    @property
    def rpcs(self) -> int:
        return sum(each.rpcs for each in self.backends.values())


@pytest.fixture
async def world() -> AsyncIterator[TwoBackendsWorld]:
    async with (
        CookieBackend("a").started() as a,
        CookieBackend("b").started() as b,
        ControlPlane(mesh(a, b)) as control_plane,
        proxyless.aio.insecure_channel(
            "xds:///api", bootstrap=control_plane.bootstrap()
        ) as channel,
    ):
        yield TwoBackendsWorld(a, b, channel)


async def test_big_cookies_fail_no_rpc(world: TwoBackendsWorld) -> None:
    """Without limits, every RPC after the first two would fail with RESOURCE_EXHAUSTED."""
    for backend in world.backends.values():
        backend.make_cookies = lambda: [
            f"{name}{world.rpcs}={'x' * BIG}" for name in ("one", "two")
        ]
    async with world.channel.session() as session:
        call = session.unary_unary(METHOD)
        homes = {await call(b"", timeout=10.0) for _ in range(RPCS)}
        assert len(homes) == 1
        # The caller's own metadata has precedence.
        large = (("x-large", "y" * 5_000),)
        assert {await call(b"", timeout=10.0, metadata=large) for _ in range(5)} == homes
    assert world.rpcs == RPCS + 5


async def test_many_sessions_do_not_hold_many_bytes(world: TwoBackendsWorld) -> None:
    for backend in world.backends.values():
        backend.make_cookies = lambda: [f"c{world.rpcs}-{each}={'x' * 800}" for each in range(4)]
    async with world.channel.session() as session:
        for _ in range(RPCS):
            await session.unary_unary(METHOD)(b"", timeout=10.0)
        kept = session.cookies.jar._of_backends  # noqa: SLF001 - the memory is private
        assert sum(each.size_bytes for each in kept) <= 16 * 1024


def steal(world: TwoBackendsWorld, victim: str) -> str:
    """A cookie of the session filter, with the place of the other backend."""
    other = next(each for name, each in world.backends.items() if name != victim)
    value = b64encode(f"{other.address};{other.name}".encode()).decode()
    return f"{COOKIE}={value}"


ATTRIBUTES: Final = ["", "; Path=/", f"; Path={METHOD}", "; Max-Age=0", "; HttpOnly"]


@pytest.mark.parametrize("attributes", ATTRIBUTES)
async def test_backend_does_not_move_a_session(world: TwoBackendsWorld, attributes: str) -> None:
    """If the cookie were sent, the session would continue at the cluster that it names."""
    for name, backend in world.backends.items():
        backend.make_cookies = lambda name=name: [steal(world, name) + attributes]  # type: ignore[misc]
    async with world.channel.session() as session:
        homes = {bytes(await session.unary_unary(METHOD)(b"", timeout=10.0)) for _ in range(RPCS)}
        assert len(homes) == 1
        assert session.cluster == homes.pop().decode()


async def test_backend_does_not_move_a_blocking_session(world: TwoBackendsWorld) -> None:
    for name, backend in world.backends.items():
        backend.make_cookies = lambda name=name: [steal(world, name)]  # type: ignore[misc]

    def run(bootstrap: dict[str, Any]) -> tuple[set[bytes], str | None]:
        with (
            proxyless.insecure_channel("xds:///api", bootstrap=bootstrap) as channel,
            channel.session() as session,
        ):
            call = session.unary_unary(METHOD)
            return {call(b"", timeout=10.0) for _ in range(RPCS)}, session.cluster

    async with ControlPlane(mesh(*world.backends.values())) as control_plane:
        homes, cluster = await asyncio.to_thread(run, control_plane.bootstrap())
    assert len(homes) == 1
    assert homes == {str(cluster).encode()}
