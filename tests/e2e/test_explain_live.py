"""Explanations of asyncio and blocking channels, and of processes over CSDS, on real sockets."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import proxyless
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    http_connection_manager,
    keep_sessions,
    listener,
    route,
    route_config,
    session_filter,
    simple_mesh,
)
from tests.worlds.admin_servers import admin_port
from tests.worlds.grpcio_peers import WHERE, backends
from tests.worlds.transports import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET = "xds:///api"


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
    return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)


async def test_an_asyncio_channel_explains_where_its_rpcs_go() -> None:
    async with backends("a", "b") as started:
        places = [backend.address for backend in started]
        async with (
            ControlPlane(simple_mesh("api", {"web": places})) as control_plane,
            proxyless.aio.insecure_channel(TARGET, bootstrap=control_plane.bootstrap()) as channel,
        ):
            assert channel.lb_tree() is None
            await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
            explanation = channel.explain(WHERE)
            assert explanation.text == f'{WHERE} goes to cluster "web"'
            (pick,) = explanation.find("pick")
            assert set(pick.facts["addresses"]) <= set(places)  # type: ignore[call-overload]
            tree = channel.lb_tree()
            assert tree is not None
            assert (tree.name, tree.state) == (TARGET, "READY")


async def test_a_blocking_channel_explains_itself_and_its_errors_in_any_thread() -> None:
    async with backends("a") as (backend,):
        snapshot = simple_mesh("api", {"web": [backend.address]})
        async with ControlPlane(snapshot) as control_plane:
            await in_thread(use_blocking_channel, control_plane.bootstrap())


def use_blocking_channel(bootstrap: dict[str, Any]) -> None:
    with proxyless.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
        assert channel.lb_tree() is None
        call = channel.unary_unary(WHERE)
        call(b"", timeout=PATIENCE_S)
        assert channel.explain(WHERE).text == f'{WHERE} goes to cluster "web"'
        tree = channel.lb_tree()
        assert tree is not None
        assert tree.state == "READY"
        for begin in (call, lambda *a, **k: call.future(*a, **k).result()):
            with pytest.raises(grpc.RpcError) as caught:
                begin(b"", timeout=0.0)
            explanation = proxyless.explain_error(caught.value)
            assert explanation.text.startswith(f"{WHERE} failed with DEADLINE_EXCEEDED")
            assert explanation.text.endswith('; now goes to cluster "web"')
        stream = channel.unary_stream("/no/Such", None)(b"", timeout=0.0)
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        assert proxyless.explain_error(caught.value).text.startswith("/no/Such failed with ")
    assert proxyless.explain_error(caught.value).text.endswith("the channel is closed")


def with_sessions(places: list[str]) -> Snapshot:
    routes = route_config("routes", route(weighted={"web": 1, "other": 99}))
    manager = http_connection_manager(routes, filters=[session_filter("sid")])
    return Snapshot.of(
        [
            listener("api", manager),
            *(keep_sessions(eds_cluster(name)) for name in ("web", "other")),
            *(endpoints(name, places) for name in ("web", "other")),
        ]
    )


async def test_explanation_of_a_session_names_its_backend() -> None:
    async with backends("a", "b") as started:
        places = [backend.address for backend in started]
        async with (
            ControlPlane(with_sessions(places)) as control_plane,
            proxyless.aio.insecure_channel(TARGET, bootstrap=control_plane.bootstrap()) as channel,
            channel.session() as session,
        ):
            await session.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
            without = next(channel.explain(WHERE).find("session"))
            assert without.text == 'session: the RPC has no cookie "sid", so the policies pick'
            (explanation,) = session.explain(WHERE).find("session")
            assert (
                explanation.text
                == f"session lives at {session.backend}: the session's host is READY"
            )
            (cluster,) = session.explain(WHERE).find("cluster")
            assert cluster.facts["name"] == session.cluster


async def explain_process(*arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "proxyless",
        "explain",
        WHERE,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    return process.returncode, out.decode(), err.decode()


async def test_command_explains_the_resources_of_a_process() -> None:
    async with (
        admin_port() as address,
        backends("a") as (backend,),
        ControlPlane(simple_mesh("api", {"web": [backend.address]})) as control_plane,
        proxyless.aio.insecure_channel(TARGET, bootstrap=control_plane.bootstrap()) as channel,
    ):
        await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
        code, out, _ = await explain_process("--status", address, "--target", TARGET)
        first, source, *_ = out.splitlines()
        assert (code, first) == (0, f'{WHERE} goes to cluster "web"')
        assert source.strip().startswith('held by node "proxyless-test" at 127.0.0.1:')
        assert "channel.explain" in source
        # After a NACK the previous cluster stays in use.
        snapshot = control_plane.snapshot
        control_plane.set_snapshot(snapshot.with_(eds_cluster("web", lb_policy="MAGLEV")))
        await until(lambda: control_plane.nacks, "the NACK")
        code, out, _ = await explain_process("--status", address, "--target", TARGET, "-o", "json")
        assert code == 0
        assert "lb_policy" in json.dumps(json.loads(out))
        code, _, err = await explain_process("--status", address, "--target", "xds:///unknown")
        assert code == 1
        assert f"has no client for 'xds:///unknown', but for '{TARGET}'" in err


async def test_status_reports_a_process_that_does_not_answer() -> None:
    code, _, err = await explain_process("--status", "127.0.0.1:1", "--target", TARGET)
    assert code == 1
    assert "'127.0.0.1:1': UNAVAILABLE" in err
