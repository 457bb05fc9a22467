"""xDS channels with our control plane and grpcio's backends, on real sockets."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import proxyless
from examples import mesh
from proxyless.controlplane import (
    CLUSTER,
    ControlPlane,
    Snapshot,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
    simple_mesh,
)
from tests.worlds.grpcio_peers import NamedBackend, backends

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

TARGET = "xds:///api"
WHERE = "/test.Mesh/Where"


@asynccontextmanager
async def joined(control_plane: ControlPlane) -> AsyncIterator[Callable[..., Any]]:
    """A channel's call that returns the name of the backend."""
    async with proxyless.aio.insecure_channel(
        TARGET, bootstrap=control_plane.bootstrap()
    ) as channel:
        call = channel.unary_unary(WHERE)

        async def where(**settings: Any) -> str:  # noqa: ANN401
            reply = await call(b"", timeout=20.0, **settings)
            return bytes(reply).decode()

        yield where


def mesh_of(started: list[NamedBackend], *routes: Any) -> Snapshot:  # noqa: ANN401
    """A cluster for each backend, with its name, and these routes."""
    return Snapshot.of(
        [
            listener("api", "api-routes"),
            route_config("api-routes", *routes),
            *(eds_cluster(backend.name) for backend in started),
            *(endpoints(backend.name, [backend.address]) for backend in started),
        ]
    )


async def failure(call: Callable[..., Any], **settings: Any) -> grpc.aio.AioRpcError | None:  # noqa: ANN401
    """How a call fails; None if it does not."""
    try:
        await call(**settings)
    except grpc.aio.AioRpcError as error:
        return error
    return None


async def test_rpcs_follow_the_routes_of_the_control_plane() -> None:
    async with backends("a", "b", "c") as started:
        snapshot = mesh_of(
            started, route(headers={"who": "c"}, cluster="c"), route(weighted={"a": 1, "b": 3})
        )
        async with ControlPlane(snapshot) as control_plane, joined(control_plane) as where:
            served = Counter([await where() for _ in range(400)])
            assert served["a"] + served["b"] == 400
            assert 50 < served["a"] < 150
            assert await where(metadata=(("who", "c"),)) == "c"
            assert not control_plane.nacks


async def test_no_rpc_fails_when_the_config_changes_under_load() -> None:
    async with backends("a", "b") as started:
        snapshot = mesh_of(started, route(cluster="a"))
        async with ControlPlane(snapshot) as control_plane, joined(control_plane) as where:
            assert await where() == "a"
            running = True
            served: Counter[str] = Counter()

            async def load() -> None:
                while running:
                    served[await where()] += 1

            tasks = [asyncio.create_task(load()) for _ in range(10)]
            for turn in range(40):
                name = "ab"[turn % 2]
                control_plane.set_snapshot(
                    mesh_of(started, route(cluster="ba"[turn % 2]))
                    if turn % 3
                    else simple_mesh("api", {name: [started[turn % 2].address]})
                )
                await asyncio.sleep(0.01)
            running = False
            await asyncio.gather(*tasks)
            assert set(served) == {"a", "b"}


async def test_no_rpc_fails_when_the_control_plane_restarts_fifty_times() -> None:
    async with backends("a", "b") as started:
        places = [backend.address for backend in started]
        snapshot = simple_mesh("api", {"a": places})
        async with ControlPlane(snapshot) as control_plane:
            bootstrap = control_plane.bootstrap()
            async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
                call = channel.unary_unary(WHERE)
                await call(b"", timeout=20.0)
                running = True
                # The answers of all callers: one caller may get the same backend every time.
                served: list[bytes] = []

                async def load() -> None:
                    while running:
                        served.append(bytes(await call(b"", timeout=20.0)))

                tasks = [asyncio.create_task(load()) for _ in range(5)]
                for _ in range(50):
                    await control_plane.stop()
                    await control_plane.start()
                assert set(served) == {b"a", b"b"}
                # Subscriptions resume by themselves: what changes now arrives.
                control_plane.set_snapshot(simple_mesh("api", {"a": places[1:]}, version="2"))
                while len(served) < 200 or b"a" in served[-100:]:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                running = False
                await asyncio.gather(*tasks)
                [stream] = control_plane.streams
                assert stream.node.id == "proxyless-test"
                assert not control_plane.nacks


async def test_aggregate_fails_over_to_dns_and_back() -> None:
    async with backends("a", "b") as started:
        first, second = started
        port = int(second.address.rpartition(":")[2])
        snapshot = Snapshot.of(
            [
                listener("api", [route(cluster="top")]),
                aggregate_cluster("top", ["near", "far"]),
                eds_cluster("near"),
                endpoints("near", [first.address]),
                dns_cluster("far", "localhost", port),
            ]
        )
        async with ControlPlane(snapshot) as control_plane, joined(control_plane) as where:
            assert await where() == "a"
            await first.leave()
            assert await where(wait_for_ready=True) == "b"
            await first.start()
            while await where(wait_for_ready=True) != "a":  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.05)


async def test_deleted_cluster_drops_wait_for_ready_rpcs() -> None:
    async with backends("a") as started:
        snapshot = mesh_of(started, route(cluster="a"))
        async with ControlPlane(snapshot) as control_plane, joined(control_plane) as where:
            assert await where() == "a"
            control_plane.set_snapshot(snapshot.without(CLUSTER, "a", partial=True))
            while (error := await failure(where, wait_for_ready=True)) is None:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert 'cluster "a"' in str(error.details())
            control_plane.set_snapshot(snapshot)
            while await failure(where) is not None:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)


async def test_blocking_channel_joins_a_mesh() -> None:
    async with backends("a") as started:
        snapshot = mesh_of(started, route(cluster="a"))
        async with ControlPlane(snapshot) as control_plane:

            def call_blocking() -> bytes:
                with proxyless.insecure_channel(
                    TARGET, bootstrap=control_plane.bootstrap()
                ) as channel:
                    return bytes(channel.unary_unary(WHERE)(b"", timeout=20.0))

            assert await asyncio.to_thread(call_blocking) == b"a"


@pytest.mark.spec("A27-01", "A27-25")
async def test_bootstrap_comes_from_argument_file_or_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with backends("a") as started:
        snapshot = mesh_of(started, route(cluster="a"))
        async with ControlPlane(snapshot) as control_plane:
            good = json.dumps(control_plane.bootstrap())
            bad = json.dumps({"xds_servers": []})
            path = tmp_path / "bootstrap.json"
            path.write_text(good)

            async def outcome(**settings: Any) -> str:  # noqa: ANN401
                async with proxyless.aio.insecure_channel(TARGET, **settings) as channel:
                    call = channel.unary_unary(WHERE)
                    error = await failure(call, request=b"", timeout=20.0)
                    if error is None:
                        return bytes(await call(b"", timeout=20.0)).decode()
                    assert error.code() is grpc.StatusCode.UNAVAILABLE
                    assert channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
                    return str(error.details())

            monkeypatch.delenv("GRPC_XDS_BOOTSTRAP", raising=False)
            monkeypatch.delenv("GRPC_XDS_BOOTSTRAP_CONFIG", raising=False)
            assert "GRPC_XDS_BOOTSTRAP" in await outcome()
            monkeypatch.setenv("GRPC_XDS_BOOTSTRAP_CONFIG", bad)
            assert "xds_servers" in await outcome()
            monkeypatch.setenv("GRPC_XDS_BOOTSTRAP", str(path))
            assert await outcome() == "a", "the file wins over the inline document"
            path.write_text(bad)
            assert await outcome(bootstrap=json.loads(good)) == "a", "the argument wins over both"


@pytest.mark.spec("A27-04")
async def test_target_needs_a_name_with_the_scheme_xds() -> None:
    async with backends("a") as started:
        snapshot = mesh_of(started, route(cluster="a"))
        async with ControlPlane(snapshot) as control_plane:
            bootstrap = control_plane.bootstrap()
            for target in ("xds:///api", "xds:api"):
                async with proxyless.aio.insecure_channel(target, bootstrap=bootstrap) as channel:
                    assert bytes(await channel.unary_unary(WHERE)(b"", timeout=20)) == b"a"
            for target in ("xds:///", "xds:", "xds:///api/"):
                async with proxyless.aio.insecure_channel(target, bootstrap=bootstrap) as channel:
                    with pytest.raises(grpc.RpcError) as caught:
                        await channel.unary_unary(WHERE)(b"", timeout=20)
                    assert caught.value.code() is grpc.StatusCode.UNKNOWN
                    assert "has no name" in (caught.value.details() or "")


async def test_example_of_a_mesh_runs(capsys: pytest.CaptureFixture[str]) -> None:
    await mesh.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "weights {'blue': 1}: {'blue': 400}"
    assert "'blue'" in lines[1]
    assert "'green'" in lines[1]
    assert lines[2] == "weights {'green': 1}: {'green': 400}"


@pytest.mark.parametrize(("shared", "streams"), [(1, 1), (0, 2), (None, 2)])
async def test_targets_share_a_stream_if_the_option_is_set(
    shared: int | None, streams: int
) -> None:
    async with backends("a") as started:
        parts = [listener(name, [route(cluster="a")]) for name in ("api", "other")]
        places = endpoints("a", [started[0].address])
        snapshot = Snapshot.of([*parts, eds_cluster("a"), places])
        options = [] if shared is None else [("proxyless.xds_shared_stream", shared)]
        async with ControlPlane(snapshot) as control_plane:
            settings: Any = {"options": options, "bootstrap": control_plane.bootstrap()}
            async with (
                proxyless.aio.insecure_channel("xds:///api", **settings) as first,
                proxyless.aio.insecure_channel("xds:///other", **settings) as second,
            ):
                for channel in (first, second):
                    assert bytes(await channel.unary_unary(WHERE)(b"", timeout=20)) == b"a"
                assert len(control_plane.streams) == streams
