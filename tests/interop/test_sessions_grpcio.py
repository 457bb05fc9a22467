"""Sessions of grpcio's client and of ours: the same backends, by the same cookies.

Each has a process or a channel in the same mesh, and makes the same RPCs (A55, A60, A75). Clients
of both kinds can share a session.
"""

from __future__ import annotations

from base64 import b64encode
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

import proxyless
from proxyless.controlplane import (
    ENDPOINTS,
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
from tests.worlds.grpcio_peers import Exchange, GrpcioClient, exchange, grpcio_client
from tests.worlds.sessions import COOKIE, CountedBackend, counted
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from proxyless.front import AioChannel
    from proxyless.protos import Proto

TARGET = "xds:///api"
WHO = "/test.Carts/Who"


class Both(NamedTuple):
    """Two clients of one mesh."""

    grpcio: GrpcioClient
    ours: AioChannel
    control_plane: ControlPlane

    async def ask(self, cookie: str | None = None, path: str = WHO) -> tuple[Exchange, Exchange]:
        """The responses to grpcio's client and to ours with this cookie."""
        metadata = () if cookie is None else (("cookie", cookie),)
        return (
            await self.grpcio.exchange(path, metadata),
            await exchange(self.ours, path, metadata),
        )

    async def expect(self, cookie: str | None, answer: str, *set_cookies: str) -> None:
        """Both get this response, with these cookies to set."""
        theirs, ours = await self.ask(cookie)
        assert ours == theirs
        assert theirs == Exchange(answer, list(set_cookies), [])

    async def until(self, answer: str) -> None:
        """RPCs without a session go there: both have the newest config."""
        for _ in range(int(PATIENCE_S * 100)):
            if {each.answer for each in await self.ask()} == {answer}:
                return
        raise AssertionError(f"no client is served by {answer!r}")


@asynccontextmanager
async def both_in(snapshot: Snapshot) -> AsyncIterator[Both]:
    async with ControlPlane(snapshot) as control_plane:
        bootstrap = control_plane.bootstrap()
        async with (
            grpcio_client(bootstrap, TARGET) as grpcio,
            proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as ours,
        ):
            yield Both(grpcio, ours, control_plane)
        assert not control_plane.nacks


def value_of(place: str) -> str:
    return b64encode(place.encode()).decode()


def cookie_of(place: str) -> str:
    return f"{COOKIE}={value_of(place)}"


def draining(backend: CountedBackend) -> Proto:
    return lb_endpoint(backend.address, health="DRAINING")


def mesh(
    places: Mapping[int | Locality, Sequence[str | Proto]], *, path: str = "", ttl_s: float = 0.0
) -> Snapshot:
    """One cluster, `web`, which lets sessions stay on draining endpoints."""
    return Snapshot.of(
        [
            listener(
                "api",
                [route(cluster="web")],
                filters=[session_filter(COOKIE, path=path, ttl_s=ttl_s)],
            ),
            keep_sessions(eds_cluster("web"), idle_timeout_s=60),
            endpoints("web", places),
        ]
    )


@pytest.mark.spec("A55-09")
async def test_cookies_are_the_same_byte_for_byte() -> None:
    for path, ttl_s in (("", 0.0), ("/test.Carts", 90.5)):
        async with (
            counted("a") as (a,),
            both_in(mesh({0: [a.address]}, path=path, ttl_s=ttl_s)) as both,
        ):
            theirs, ours = await both.ask()
            assert ours == theirs
            (cookie,) = theirs.initial
            assert cookie.startswith(f"{cookie_of(f'{a.address};web')}; HttpOnly")
            assert ("Path=" in cookie, "Max-Age=" in cookie) == (bool(path), bool(ttl_s))


@pytest.mark.spec("A55-03", "A55-08")
async def test_the_same_cookies_lead_to_the_same_backends() -> None:
    async with (
        counted("a", "b", "c", "d") as (a, b, c, d),
        both_in(mesh({0: [a.address], 1: [b.address, draining(c), d.address]})) as both,
    ):
        at_a, at_b = (f"{cookie_of(f'{each.address};web')}; HttpOnly" for each in (a, b))
        await both.expect(None, "a", at_a)
        await both.expect(cookie_of(f"{a.address};web"), "a")
        # A backend of a priority that was never started, and one that drains.
        await both.expect(cookie_of(f"{b.address};web"), "b")
        await both.expect(cookie_of(f"{c.address};web"), "c")
        # The cookie has another form: the session stays, and the cookie is set again.
        await both.expect(cookie_of(b.address), "b", at_b)
        await both.expect(cookie_of(f"{b.address};other"), "b", at_b)
        # The backend is not there; the cookie is not one.
        await both.expect(cookie_of("127.0.0.1:1;web"), "a", at_a)
        await both.expect(f"{COOKIE}=%%%", "a", at_a)
        await both.expect("other=x", "a", at_a)
        # Among others; twice; without padding.
        first = cookie_of(f"{b.address};web")
        await both.expect(f"x=1; {first}; y=2", "b")
        await both.expect(f"{first}; {cookie_of(f'{a.address};web')}", "b")
        await both.expect(first.rstrip("="), "b")
        # One address of the two: the first that can be used.
        two = cookie_of(f"127.0.0.1:1,{b.address};web")
        await both.expect(two, "b", at_b)
        assert (b.accepts, c.accepts, d.accepts) == (2, 2, 0), "one of each client"


async def test_paths_and_failures_are_treated_the_same() -> None:
    async with (
        counted("a", "b") as (a, b),
        both_in(mesh({0: [a.address], 1: [b.address]}, path="/test.Carts/Who")) as both,
    ):
        cookie = b.cookie("web")
        for path, answer in (("/test.Carts/Who", "b"), ("/test.Carts/Whose", "a")):
            theirs, ours = await both.ask(cookie, path)
            assert theirs == ours == Exchange(answer, [], [])
    async with (
        counted("a", "b") as (a, b),
        both_in(mesh({0: [a.address], 1: [b.address]})) as both,
    ):
        theirs, ours = await both.ask(None, "/test.Carts/Fail")
        assert theirs == ours
        assert theirs.answer == "NOT_FOUND: a"
        assert len(theirs.initial + theirs.trailing) == 1


@pytest.mark.spec("A75-47")
async def test_sessions_stay_when_endpoints_move_and_drain() -> None:
    async with (
        counted("a", "b") as (a, b),
        both_in(mesh({0: [b.address], 1: [a.address]})) as both,
    ):
        cookie = b.cookie("web")
        await both.expect(cookie, "b")
        both.control_plane.set_snapshot(mesh({0: [a.address], 1: [b.address]}))
        await both.until("a")
        await both.expect(cookie, "b")
        both.control_plane.set_snapshot(mesh({0: [a.address, draining(b)]}))
        await both.control_plane.wait_for_ack(ENDPOINTS)
        await both.expect(cookie, "b")
        assert b.accepts == 2, "one of each client, all the time"


@pytest.mark.spec("A60-01")
async def test_cookies_choose_among_weighted_clusters() -> None:
    async with counted("a", "b", "c") as (a, b, c):
        snapshot = Snapshot.of(
            [
                listener(
                    "api",
                    [
                        route("/test.Other/", cluster="green"),
                        route(weighted={"blue": 1, "red": 1}),
                    ],
                    filters=[session_filter(COOKIE)],
                ),
                *(eds_cluster(name) for name in ("blue", "red", "green")),
                endpoints("blue", [a.address]),
                endpoints("red", [b.address]),
                endpoints("green", [c.address]),
            ]
        )
        async with both_in(snapshot) as both:
            for _ in range(5):
                await both.expect(a.cookie("blue"), "a")
                await both.expect(b.cookie("red"), "b")
            # The cluster is not one of this route.
            theirs, ours = await both.ask(a.cookie("blue"), "/test.Other/Who")
            assert theirs == ours
            assert theirs.answer == "c"
            assert theirs.initial == [f"{cookie_of(f'{c.address};green')}; HttpOnly"]


@pytest.mark.spec("A75-07")
async def test_sessions_on_an_aggregate_are_the_aggregates() -> None:
    async with counted("a", "b", "c") as (a, b, c):
        snapshot = Snapshot.of(
            [
                listener("api", [route(cluster="top")], filters=[session_filter(COOKIE)]),
                aggregate_cluster("top", ["near", "far"]),
                *(keep_sessions(eds_cluster(name)) for name in ("near", "far")),
                endpoints("near", {0: [a.address], 1: [b.address]}),
                endpoints("far", [c.address]),
            ]
        )
        async with both_in(snapshot) as both:
            at_a = f"{cookie_of(f'{a.address};top')}; HttpOnly"
            await both.expect(None, "a", at_a)
            await both.expect(b.cookie("top"), "b")
            # The first cluster does not have the second's hosts.
            await both.expect(c.cookie("top"), "a", at_a)
            # The leaf is no cluster of the route.
            await both.expect(a.cookie("near"), "a", at_a)
