"""First mistakes of a user: each ends in one line that names the cause and the next command."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from proxyless.controlplane import Snapshot, listener, route_config, simple_mesh
from proxyless.sim import UNARY, World, pause

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from proxyless.front import AioChannel

COMMAND = f"proxyless explain {UNARY[1:]} --target xds:///"
SERVER = 'xds server "ipv4:10.0.0.2:18000"'


class FirstSteps:
    """A world with a control plane, one backend and a client without a channel."""

    def __init__(self) -> None:
        self.world = World(seed=5)
        self.backend = self.world.backend("web-0")
        mesh = simple_mesh("orders", {"web": [str(self.backend.address)]})
        self.control = self.world.control_plane(snapshot=mesh)
        self.client = self.world.client("till")
        self.channel: AioChannel

    def run(self, story: Callable[[], Coroutine[Any, Any, None]], target: str = "orders") -> None:
        async def whole() -> None:
            self.channel = self.client.channel(f"xds:///{target}")
            await story()

        self.world.run(whole(), virtual_seconds=300.0)
        assert not self.world.exceptions

    async def fail(self, **settings: Any) -> tuple[str, str]:  # noqa: ANN401 - of the RPC
        """Code and details of an RPC that fails within its deadline."""
        before_s = self.world.now_s()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.channel.unary_unary(UNARY)(b"", **{"timeout": 2.0, **settings})
        assert self.world.now_s() - before_s <= 2.1
        details = str(caught.value.details())
        assert details.isprintable()
        return caught.value.code().name, details


@pytest.fixture
def steps() -> FirstSteps:
    return FirstSteps()


def test_typo_in_the_target_names_the_listener_that_the_server_does_not_send(
    steps: FirstSteps,
) -> None:
    async def story() -> None:
        code, details = await steps.fail()
        assert code == "DEADLINE_EXCEEDED"
        assert details == (
            "Deadline Exceeded while waiting for the target's config: "
            f'listener "order": not here yet, {SERVER} has 13 s left to send it '
            f'(node id "till"); see: {COMMAND}order'
        )

    steps.run(story, "order")


def test_control_plane_that_is_not_there_is_named_with_the_cause(steps: FirstSteps) -> None:
    async def story() -> None:
        await steps.control.stop()
        code, details = await steps.fail()
        assert code == "UNAVAILABLE"
        assert details == (
            f'listener "orders": {SERVER}: does not answer: failed to connect to all addresses; '
            f'last error: 10.0.0.2:18000: connection refused (node id "till"); see: {COMMAND}orders'
        )

    steps.run(story)


def test_port_without_a_server_is_named_with_its_cluster(steps: FirstSteps) -> None:
    async def story() -> None:
        await steps.backend.stop()
        code, details = await steps.fail()
        assert code == "UNAVAILABLE"
        assert details.startswith('cluster "web": ')
        assert "10.0.0.1:50051: connection refused" in details
        assert details.endswith(f'(node id "till"); see: {COMMAND}orders')

    steps.run(story)


def test_listener_without_routes_is_named(steps: FirstSteps) -> None:
    steps.control.set_snapshot(Snapshot.of([listener("orders", route_config("none"))]))

    async def story() -> None:
        text = 'listener "orders": has no virtual host for "orders" (node id "till")'
        assert await steps.fail() == ("UNAVAILABLE", f"{text}; see: {COMMAND}orders")

    steps.run(story)


def test_command_is_not_repeated_when_the_channel_has_been_ready(steps: FirstSteps) -> None:
    async def story() -> None:
        await steps.channel.unary_unary(UNARY)(b"", timeout=2.0)
        await steps.backend.stop()
        await pause(1.0)
        code, details = await steps.fail()
        assert code == "UNAVAILABLE"
        assert "see:" not in details

    steps.run(story)


def test_outage_of_the_control_plane_is_named_once(steps: FirstSteps) -> None:
    async def story() -> None:
        await steps.channel.unary_unary(UNARY)(b"", timeout=2.0)
        await steps.control.stop()
        await steps.backend.stop()
        await pause(30.0)
        _, details = await steps.fail()
        assert details.count("xds server") == 1
        assert details.count("does not answer") == 1
        assert "10.0.0.1:50051: connection refused" in details
        assert len(details) < 400

    steps.run(story)


def test_rpc_that_the_default_of_a31_ends_names_the_switch_and_logs_it_once(
    steps: FirstSteps, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "proxyless.channel")

    async def story() -> None:
        await steps.channel.unary_unary(UNARY)(b"", timeout=2.0)
        steps.backend.host.hang(*steps.world.others(steps.backend.host))
        note = (
            "its route sets no timeout, so it has 15 s (A31); the channel option "
            "proxyless.xds_default_route_timeout_ms or GRPC_XDS_DEFAULT_ROUTE_TIMEOUT, 0 for none, "
            "changes that"
        )
        for timeout_s in (None, 60.0):
            before_s = steps.world.now_s()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await steps.channel.unary_unary(UNARY)(b"", timeout=timeout_s)
            assert 14.9 < steps.world.now_s() - before_s < 15.1
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert caught.value.details() == f"Deadline Exceeded: {note}"
        # A deadline of the application is its own.
        assert await steps.fail() == ("DEADLINE_EXCEEDED", "Deadline Exceeded")
        logged = [text for text in caplog.messages if "sets no timeout" in text]
        assert logged == [f"xds:///orders: RPC ended: {note}"]

    steps.run(story)
