"""Logs of a whole stack in a simulated mesh."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from proxyless.controlplane import Snapshot, eds_cluster, endpoints, listener, route
from proxyless.sim import UNARY, pause

if TYPE_CHECKING:
    from proxyless.sim import World

SECRET = "Bearer ey.secret"


def two_priorities(mesh: World) -> None:
    """A service with one backend in each of two priorities."""
    near, far = mesh.backend("near"), mesh.backend("far")
    where: dict[Any, list[str]] = {0: [str(near.address)], 1: [str(far.address)]}
    mesh.control_plane(
        "control",
        Snapshot.of(
            [listener("api", [route(cluster="web")]), eds_cluster("web"), endpoints("web", where)]
        ),
    )


def test_priority_choice_is_logged_with_its_reason(
    mesh: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "proxyless.lb.priority")
    two_priorities(mesh)

    async def story() -> None:
        call = mesh.client("shop").channel("xds:///api").unary_unary(UNARY)
        assert await call(b"", timeout=5.0) == b"near"
        await mesh.backends["near"].kill()
        await pause(1.0)
        assert await call(b"", timeout=5.0) == b"far"

    mesh.run(story())
    choices = [
        record.getMessage().partition(" priority=")[2]
        for record in caplog.records
        if record.getMessage().startswith("priority.choice ")
    ]
    assert choices[0] == '0 reason="failover timer is pending"'
    assert '0 reason="child is READY or IDLE"' in choices
    assert choices[-1] == '1 reason="child is READY or IDLE"'
    assert {record.name for record in caplog.records} == {"proxyless.lb.priority"}


def test_log_level_takes_effect_while_rpcs_run(
    mesh: World, caplog: pytest.LogCaptureFixture
) -> None:
    two_priorities(mesh)
    caplog.set_level(logging.WARNING, "proxyless")

    async def story() -> None:
        call = mesh.client("shop").channel("xds:///api").unary_unary(UNARY)
        await call(b"", timeout=5.0)
        assert not caplog.records
        caplog.set_level(logging.DEBUG, "proxyless.subchannel")
        await mesh.backends["near"].kill()
        await pause(1.0)

    mesh.run(story())
    assert any("subchannel.state" in record.getMessage() for record in caplog.records)


def test_successful_rpcs_are_not_logged_and_secrets_are_never_logged(
    mesh: World, caplog: pytest.LogCaptureFixture
) -> None:
    two_priorities(mesh)
    caplog.set_level(logging.DEBUG, "proxyless")

    async def story() -> None:
        call = mesh.client("shop").channel("xds:///api").unary_unary(UNARY)
        metadata = (("authorization", SECRET), ("cookie", SECRET), ("token-bin", SECRET.encode()))
        await call(b"", metadata=metadata, timeout=5.0)
        await pause(1.0)
        logged = len(caplog.records)
        for _ in range(20):
            await call(SECRET.encode(), metadata=metadata, timeout=5.0)
        assert len(caplog.records) == logged, "a successful RPC is not logged"
        for backend in mesh.backends.values():
            await backend.stop()
        with pytest.raises(grpc.aio.AioRpcError):
            await call(b"", metadata=metadata, timeout=60.0)

    mesh.run(story())
    assert len(caplog.records) > 20
    lines = [*(record.getMessage() for record in caplog.records), *mesh.journal.lines]
    assert not any("secret" in line for line in lines)


def test_backend_that_stays_down_does_not_flood_the_log(
    mesh: World, caplog: pytest.LogCaptureFixture
) -> None:
    two_priorities(mesh)
    caplog.set_level(logging.INFO, "proxyless")

    async def story() -> None:
        channel = mesh.client("shop").channel("xds:///api")
        call = channel.unary_unary(UNARY)
        await call(b"", timeout=5.0)
        for backend in mesh.backends.values():
            await backend.kill()
        for _ in range(100):
            with pytest.raises(grpc.aio.AioRpcError):
                await call(b"", timeout=60.0)
            await pause(36.0)
        for backend in mesh.backends.values():
            await backend.start()
        await pause(180.0)
        await call(b"", timeout=60.0)

    mesh.run(story())
    lines = [record.getMessage() for record in caplog.records]
    # An hour without a backend: cluster and channel each log its start and its end.
    assert len(lines) == 4, lines
    assert lines[0] == lines[1].removeprefix("xds:///api: ")
    assert 'cluster "web": connections to all backends failing; last error:' in lines[0]
    assert lines[2:] == ['cluster "web": READY again', "xds:///api: READY again"]
