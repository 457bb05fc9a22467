"""A recording of a real process over real sockets, re-run in the simulator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc.aio

import proxyless.aio
from proxyless.controlplane import (
    ENDPOINTS,
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
)
from proxyless.observe.flight import read_lines
from proxyless.sim.replay import ReplayReport, replay
from tests.interop.drop_in import stop_server
from tests.worlds.live_meshes import METHOD

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def start_backend() -> tuple[Any, str]:
    async def handle(_request: bytes, context: Any) -> bytes:  # noqa: ANN401 - grpcio has no types
        return address.encode()

    server = grpc.aio.server()
    service, _, name = METHOD[1:].partition("/")
    handler = grpc.unary_unary_rpc_method_handler(handle)
    handlers = grpc.method_handlers_generic_handler(service, {name: handler})
    server.add_generic_rpc_handlers((handlers,))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    return server, address


def replay_file(path: str) -> ReplayReport:
    with open(path, encoding="utf-8") as lines:
        return replay(read_lines(lines))


def mesh(version: str, *addresses: str) -> Snapshot:
    resources = [
        listener("orders", [route(cluster="web")]),
        eds_cluster("web"),
        endpoints("web", {number: [each] for number, each in enumerate(addresses)}),
    ]
    return Snapshot.of(resources, version)


async def test_failover_of_a_real_process_is_replayed_with_the_same_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process has one recorder: it has events of tests that ran before.
    monkeypatch.setattr("proxyless.assembly._observation.recorder", None)
    first, near = await start_backend()
    second, far = await start_backend()
    options = [("proxyless.flight_recorder", 1)]
    async with (
        ControlPlane(mesh("1", near)) as control_plane,
        proxyless.aio.insecure_channel(
            "xds:///orders", options=options, bootstrap=control_plane.bootstrap()
        ) as channel,
    ):
        call = channel.unary_unary(METHOD)
        assert await call(b"") == near.encode()
        control_plane.set_snapshot(mesh("2", near, far))
        await control_plane.wait_for_ack(ENDPOINTS, "2")
        await first.stop(None)
        while await call(b"", wait_for_ready=True, timeout=30.0) != far.encode():
            pass
        path = channel.record(str(tmp_path))
    await stop_server(second)
    # The simulator has a loop of its own.
    report = await asyncio.to_thread(replay_file, path)
    found = {each.subject: each for each in report.decisions}
    assert [each.value for each in found['priority of cluster "web"'].recorded] == ["0", "1"]
    assert report.is_same, report
