"""Sessions stay on their backends: our channel and control plane, grpcio's backends, real sockets.

The backends count connections: a session that stays has one.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import proxyless
from proxyless.controlplane import (
    ControlPlane,
    Locality,
    Snapshot,
    aggregate_cluster,
    eds_cluster,
    endpoints,
    keep_sessions,
    lb_endpoint,
    listener,
    route,
    session_filter,
)
from tests.generated_protos import generate_protos
from tests.worlds.sessions import COOKIE, CountedBackend, counted
from tests.worlds.transports import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from proxyless.front import AioChannel, AioSession, SyncChannel, SyncSession
    from proxyless.protos import Proto

    Places = Sequence[str | Proto] | Mapping[int | Locality, Sequence[str | Proto]]

ON_BOTH_LOOPS = True

TARGET = "xds:///api"
WHO = "/test.Carts/Who"
SESSIONS = session_filter(COOKIE)


def mesh(places: Places, *, filters: Sequence[Proto] = (SESSIONS,)) -> Snapshot:
    """One cluster, `web`, which lets sessions stay on draining endpoints."""
    return Snapshot.of(
        [
            listener("api", [route(cluster="web")], filters=filters),
            keep_sessions(eds_cluster("web"), idle_timeout_s=60),
            endpoints("web", places),
        ]
    )


def draining(backend: CountedBackend) -> Proto:
    return lb_endpoint(backend.address, health="DRAINING")


class CountedMeshWorld:
    """A mesh of counted backends, and a channel in it."""

    def __init__(
        self, control_plane: ControlPlane, channel: AioChannel, started: Sequence[CountedBackend]
    ) -> None:
        self.control_plane = control_plane
        self.channel = channel
        self.backends = started

    @property
    def addresses(self) -> list[str]:
        return [backend.address for backend in self.backends]

    def say(self, snapshot: Snapshot) -> None:
        self.control_plane.set_snapshot(snapshot)


@asynccontextmanager
async def world_of(*names: str, **settings: Any) -> AsyncIterator[CountedMeshWorld]:  # noqa: ANN401
    async with (
        counted(*names) as started,
        ControlPlane(mesh([backend.address for backend in started])) as control_plane,
        proxyless.aio.insecure_channel(
            TARGET, bootstrap=control_plane.bootstrap(), **settings
        ) as channel,
    ):
        yield CountedMeshWorld(control_plane, channel, started)


async def ask(channel: AioChannel, **settings: Any) -> str:  # noqa: ANN401
    """The backend that serves an RPC."""
    return bytes(await channel.unary_unary(WHO)(b"", timeout=10.0, **settings)).decode()


async def served(channel: AioChannel, count: int = 8, **settings: Any) -> set[str]:  # noqa: ANN401
    """The backends that serve RPCs, one after the other."""
    return {await ask(channel, **settings) for _ in range(count)}


# ---------------------------------------------------------------------------------------------
# The API


async def test_rpcs_of_a_session_go_to_one_backend() -> None:
    async with world_of("a", "b", "c") as world:
        by_address = {backend.address: backend.name for backend in world.backends}
        await until_served(world.channel, {"a", "b", "c"})
        async with world.channel.session() as session:
            assert (session.backend, session.cluster) == (None, None)
            (home,) = await served(session)
            assert session.backend is not None
            assert by_address[session.backend] == home
            assert session.cluster == "web"
        # The channel stays open, and other sessions are not affected.
        assert await served(world.channel) == {"a", "b", "c"}
        with pytest.raises(grpc.aio.UsageError, match="Session is closed"):
            await ask(session)
        assert session.get_state() is grpc.ChannelConnectivity.SHUTDOWN
        homes = [await served(world.channel.session(), 3) for _ in range(3)]
        assert sorted(map(sorted, homes)) == [["a"], ["b"], ["c"]]
        assert [backend.accepts for backend in world.backends] == [1, 1, 1]


async def test_every_kind_of_call_keeps_and_begins_a_session() -> None:
    async with world_of("a", "b", "c") as world:
        await until_served(world.channel, {"a", "b", "c"})
        calls = (call_unary_stream, call_stream_unary, call_stream_stream)
        session = world.channel.session()
        home = await ask(session)
        for call in calls * 3:
            assert await call(session) == {home}
        for call in calls:
            fresh = world.channel.session()
            assert await call(fresh) == await served(fresh)


async def call_unary_stream(channel: AioChannel) -> set[str]:
    call = channel.unary_stream("/test.Carts/UnaryStream")(b"", timeout=10.0)
    return {each.decode() async for each in call}


async def call_stream_unary(channel: AioChannel) -> set[str]:
    call = channel.stream_unary("/test.Carts/StreamUnary")(iter([b"x"]), timeout=10.0)
    return {bytes(await call).decode()}


async def call_stream_stream(channel: AioChannel) -> set[str]:
    call = channel.stream_stream("/test.Carts/StreamStream")(iter([b"x"]), timeout=10.0)
    return {each.decode() async for each in call}


async def test_generated_stubs_accept_sessions() -> None:
    protos = generate_protos()
    request = protos.helloworld.HelloRequest(name="x")
    async with world_of("a", "b", "c") as world:
        await until_served(world.channel, {"a", "b", "c"})
        stub = protos.helloworld_grpc.GreeterStub(world.channel.session())
        assert len({(await stub.SayHello(request, timeout=10.0)).message for _ in range(8)}) == 1
        bootstrap = world.control_plane.bootstrap()
        with proxyless.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
            say_hello = protos.helloworld_grpc.GreeterStub(channel.session()).SayHello
            replies = [await asyncio.to_thread(say_hello, request, 10.0) for _ in range(8)]
            assert len({reply.message for reply in replies}) == 1


async def test_closing_a_session_closes_no_channel_or_call() -> None:
    async with world_of("a", "b") as world:
        other = world.channel.session()
        home = await ask(other)
        async with world.channel.session() as session:
            call = session.stream_stream("/test.Carts/StreamStream")(timeout=10.0)
            name = await call.read()
        await call.done_writing()
        assert [name, await call.read(), await call.read()] == [name, name, grpc.aio.EOF]
        assert await served(other) == {home}


async def test_the_end_of_a_channel_ends_its_sessions() -> None:
    async with world_of("a") as world:
        session = world.channel.session()
        await ask(session)
        await world.channel.close()
        with pytest.raises(grpc.aio.UsageError, match="Channel is closed"):
            await ask(session)
        assert session.backend == world.addresses[0], "what was known last"


async def test_a_cookie_of_the_applications_own_comes_first() -> None:
    async with world_of("a", "b") as world:
        a, b = world.backends
        session = await start_on(world, a)
        assert await ask(session, metadata=(("cookie", b.cookie("web")),)) == "b"
        assert await served(session) == {"a"}


async def test_many_threads_may_share_a_session() -> None:
    async with world_of("a", "b", "c") as world:
        await until_served(world.channel, {"a", "b", "c"})
        bootstrap = world.control_plane.bootstrap()
        with proxyless.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
            session = channel.session()
            call = session.unary_unary(WHO)
            home = await asyncio.to_thread(call, b"", 10.0)
            calls = (asyncio.to_thread(call, b"", 10.0) for _ in range(40))
            assert set(await asyncio.gather(*calls)) == {home}


async def test_closed_session_is_not_notified_of_the_channels_state() -> None:
    async with world_of("a") as world:
        bootstrap = world.control_plane.bootstrap()
        with proxyless.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
            session_states: list[grpc.ChannelConnectivity] = []
            states: list[grpc.ChannelConnectivity] = []
            with channel.session() as session:
                session.subscribe(session_states.append, try_to_connect=True)
                is_ready = grpc.ChannelConnectivity.READY
                await until(lambda: is_ready in session_states, "the channel's state")
            channel.subscribe(states.append)
            before = list(session_states)
            await world.backends[0].leave()
            await until(lambda: states and states[-1] is not is_ready, "another state")
            assert session_states == before


async def test_failed_rpc_starts_a_session() -> None:
    async with world_of("a", "b", "c") as world:
        session = world.channel.session()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await session.unary_unary("/test.Carts/Fail")(b"", timeout=10.0)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert await served(session) == {caught.value.details()}


async def test_rpcs_that_begin_together_settle_on_one_backend() -> None:
    async with world_of("a", "b", "c") as world:
        await until_served(world.channel, {"a", "b", "c"})
        session = world.channel.session()
        first = await asyncio.gather(*(ask(session) for _ in range(30)))
        assert set(first) == {"a", "b", "c"}
        homes = {(await ask(session), session.backend) for _ in range(8)}
        assert len(homes) == 1
        assert len(set(await asyncio.gather(*(ask(session) for _ in range(30))))) == 1


async def test_without_the_filter_a_session_is_a_channel() -> None:
    async with world_of("a", "b") as world:
        world.say(mesh(world.addresses, filters=()))
        await until_served(world.channel, {"a", "b"})
        async with world.channel.session() as session:
            await until_served(session, {"a", "b"})
            assert (session.backend, session.cluster) == (None, None)
        async with (
            proxyless.aio.insecure_channel(f"ipv4:{world.addresses[0]}") as channel,
            channel.session() as session,
        ):
            assert await served(session) == {"a"}
            assert session.backend is None


class Interceptor(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Notes each call."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    async def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:  # noqa: ANN401
        self.seen.append(details.method)
        return await go_on(details, request)


async def test_interceptors_of_the_channel_are_the_sessions() -> None:
    interceptor = Interceptor()
    async with world_of("a", "b", "c", interceptors=[interceptor]) as world:
        assert len(await served(world.channel.session())) == 1
    assert interceptor.seen == [WHO.encode()] * 8


async def test_paths_and_ages_of_cookies_are_respected() -> None:
    async with world_of("a", "b", "c") as world:
        filters = [session_filter(COOKIE, path="/test.Carts", ttl_s=1)]
        world.say(mesh(world.addresses, filters=filters))
        await until_served(world.channel, {"a", "b", "c"})
        session = world.channel.session()
        assert len(await served(session)) == 1
        other = session.unary_unary("/test.Other/Who")
        assert {bytes(await other(b"", timeout=10.0)) for _ in range(8)} == {b"a", b"b", b"c"}
        # Its time is over: it is not sent, so the session begins anew.
        await until(lambda: session.backend is None, "the cookie's end")
        assert session.cluster is None
        assert len(await served(session)) == 1
        assert session.backend is not None


async def test_rpcs_of_a_blocking_session_stay_on_one_backend() -> None:
    async with world_of("a", "b", "c") as world:
        by_address = {backend.address: backend.name for backend in world.backends}
        await asyncio.to_thread(use_blocking, world.control_plane.bootstrap(), by_address)


def use_blocking(bootstrap: Mapping[str, object], by_address: Mapping[str, str]) -> None:
    def served_by(channel: SyncChannel) -> str:
        return bytes(channel.unary_unary(WHO)(b"", timeout=10.0)).decode()

    with proxyless.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
        while {served_by(channel) for _ in range(8)} != {"a", "b", "c"}:
            pass
        with channel.session() as session:
            assert (session.backend, session.cluster) == (None, None)
            (home,) = {served_by(session) for _ in range(8)}
            assert session.backend is not None
            assert by_address[session.backend] == home
            assert session.cluster == "web"
            expect_all_kinds(session, home.encode())
        with pytest.raises(ValueError, match="closed session"):
            served_by(session)
        assert {served_by(channel) for _ in range(8)} == {"a", "b", "c"}
    assert by_address[session.backend] == home, "closing the channel does not change the session"


def expect_all_kinds(session: SyncSession, home: bytes) -> None:
    service = "/test.Carts"
    future = session.unary_unary(WHO).future(b"", timeout=10.0)
    assert future.result() == home
    assert session.unary_unary(WHO).with_call(b"", timeout=10.0)[0] == home
    assert list(session.unary_stream(f"{service}/UnaryStream")(b"")) == [home, home]
    assert session.stream_unary(f"{service}/StreamUnary")(iter([b"x"])) == home
    assert list(session.stream_stream(f"{service}/StreamStream")(iter([b"x"]))) == [home, home]


async def test_max_age_of_a_cookie_is_used_by_blocking_sessions() -> None:
    async with world_of("a", "b", "c") as world:
        world.say(mesh(world.addresses, filters=[session_filter(COOKIE, ttl_s=1)]))
        await until_served(world.channel, {"a", "b", "c"})
        bootstrap = world.control_plane.bootstrap()
        with proxyless.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
            session = channel.session()
            call = session.unary_unary(WHO)
            await asyncio.to_thread(call, b"", 10.0)
            assert session.backend is not None
            # There are no calls meanwhile, so the loop of the channel sleeps.
            await until(lambda: session.backend is None, "the cookie's end")
            await asyncio.to_thread(call, b"", 10.0)
            assert session.backend is not None


# ---------------------------------------------------------------------------------------------
# Sessions that stay, and sessions that move


async def start_on(world: CountedMeshWorld, backend: CountedBackend) -> AioSession:
    """A session on this backend."""
    async with asyncio.timeout(10):
        while True:
            session = world.channel.session()
            if await ask(session) == backend.name:
                return session


async def until_served(channel: AioChannel, names: set[str], **settings: Any) -> None:  # noqa: ANN401
    """Wait until the last RPCs went to exactly these backends."""
    async with asyncio.timeout(15):
        while await served(channel, 8, **settings) != names:
            pass


@pytest.mark.spec("A75-47", "A75-41")
async def test_a_session_stays_when_its_endpoint_moves_to_another_priority() -> None:
    async with world_of("a", "b") as world:
        a, b = world.backends
        session = await start_on(world, b)
        world.say(mesh({0: [a.address], 1: [b.address]}))
        await until_served(world.channel, {"a"})
        assert await served(session) == {"b"}
        assert session.backend == b.address
        world.say(mesh({0: [a.address, b.address]}))
        await until_served(world.channel, {"a", "b"})
        assert await served(session) == {"b"}
        assert (a.accepts, b.accepts) == (1, 1), "one connection all the time"


async def test_a_session_stays_while_its_endpoint_drains() -> None:
    async with world_of("a", "b") as world:
        a, b = world.backends
        session = await start_on(world, b)
        world.say(mesh([a.address, draining(b)]))
        await until_served(world.channel, {"a"})
        assert await served(session) == {"b"}
        assert b.accepts == 1
        # The backend is drained: the session moves, and `backend` changes.
        world.say(mesh([a.address]))
        await until_served(session, {"a"})
        assert session.backend == a.address


async def test_a_session_moves_when_its_backend_leaves_and_stays_there() -> None:
    async with world_of("a", "b") as world:
        a, b = world.backends
        world.say(mesh({0: [b.address], 1: [a.address]}))
        await until_served(world.channel, {"b"})
        session = await start_on(world, b)
        await b.leave()
        assert await ask(session, wait_for_ready=True) == "a"
        assert session.backend == a.address
        await b.start()
        await until_served(world.channel, {"b"})
        before = a.accepts
        assert await served(session) == {"a"}
        assert a.accepts == before


@pytest.mark.spec("A75-49")
async def test_a_cookie_to_a_priority_that_never_started_connects_that_endpoint_only() -> None:
    async with counted("a", "b", "c") as (a, b, c):
        snapshot = mesh({0: [a.address], 1: [b.address, c.address]})
        async with (
            ControlPlane(snapshot) as control_plane,
            proxyless.aio.insecure_channel(TARGET, bootstrap=control_plane.bootstrap()) as channel,
        ):
            assert await served(channel) == {"a"}
            cookie = (("cookie", b.cookie("web")),)
            assert await served(channel, metadata=cookie) == {"b"}
            assert (a.accepts, b.accepts, c.accepts) == (1, 1, 0)


def two_leaves(near: Places, far: Places) -> Snapshot:
    return Snapshot.of(
        [
            listener("api", [route(cluster="top")], filters=[SESSIONS]),
            aggregate_cluster("top", ["near", "far"]),
            *(keep_sessions(eds_cluster(name)) for name in ("near", "far")),
            endpoints("near", near),
            endpoints("far", far),
        ]
    )


async def test_a_session_stays_across_an_aggregate_failover_and_back() -> None:
    async with world_of("a", "b", "c") as world:
        a, b, c = world.backends
        # The session's backend is in both clusters, and draining in the first.
        world.say(two_leaves([a.address, c.address], [b.address, c.address]))
        await until_served(world.channel, {"a", "c"})
        session = await start_on(world, c)
        world.say(two_leaves([a.address, draining(c)], [b.address, c.address]))
        await until_served(world.channel, {"a"})
        before = c.accepts
        assert await served(session) == {"c"}
        await a.leave()
        await until_served(world.channel, {"b", "c"}, wait_for_ready=True)
        assert await served(session) == {"c"}
        await a.start()
        await until_served(world.channel, {"a"})
        assert await served(session) == {"c"}
        assert (session.backend, session.cluster) == (c.address, "top")
        assert c.accepts == before, "one connection all the time"


async def test_session_moves_to_another_cluster_when_its_own_fails() -> None:
    async with world_of("a", "b") as world:
        a, b = world.backends
        world.say(two_leaves([a.address], [b.address]))
        await until_served(world.channel, {"a"})
        session = await start_on(world, a)
        await a.leave()
        assert await ask(session, wait_for_ready=True) == "b"
        assert (session.backend, session.cluster) == (b.address, "top")
        assert await served(session) == {"b"}
        await a.start()
        await until_served(world.channel, {"a"})
        # The first cluster does not have the second's hosts (A75).
        assert await served(session) == {"a"}
        assert session.backend == a.address


# ---------------------------------------------------------------------------------------------
# The how-to


class CartsStub:
    """As generated code has it."""

    def __init__(self, channel: Any) -> None:  # noqa: ANN401
        self.Add = channel.unary_unary("/shop.Carts/Add")
        self.Pay = channel.unary_unary("/shop.Carts/Pay")


async def test_the_code_of_the_howto_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "sessions.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {
        "carts_pb2_grpc": SimpleNamespace(CartsStub=CartsStub),
        "carts_pb2": SimpleNamespace(PayRequest=lambda: b"pay"),
    }
    for block in blocks:
        exec(block, names)
    async with counted("a", "b") as started:
        addresses = [backend.address for backend in started]
        async with ControlPlane(names["shop_mesh"](addresses)) as control_plane:
            settings: Any = {"bootstrap": control_plane.bootstrap()}
            async with proxyless.aio.insecure_channel("xds:///shop", **settings) as channel:
                assert await names["buy"](channel, [b"x", b"y"]) in addresses
            with proxyless.insecure_channel("xds:///shop", **settings) as blocking:
                home = await asyncio.to_thread(names["buy_in_a_thread"], blocking, [b"x", b"y"])
                assert home in addresses
            assert not control_plane.nacks
