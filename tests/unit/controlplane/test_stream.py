"""Unit tests of proxyless.controlplane.stream."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from proxyless.base import OK, Status, StatusCode
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTE_CONFIG,
    AdsStream,
    endpoints,
)
from proxyless.controlplane import stream as stream_module
from proxyless.controlplane.change_condition import ChangeCondition
from proxyless.controlplane.stream import OUTBOX_MAX, ServedConfig, StreamPump
from proxyless.protos import Proto
from tests.worlds.ads_clients import mesh, request, show


class QueuePeer:
    """A client on two queues."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[Proto | None] = asyncio.Queue()
        self.responses: asyncio.Queue[Proto] = asyncio.Queue()
        self.is_gone = False
        self.reads = 0
        # While it is not set, the client receives no responses.
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self) -> Proto | None:
        self.reads += 1
        return await self.requests.get()

    async def write(self, response: Proto) -> bool:
        await self.gate.wait()
        self.responses.put_nowait(response)
        return not self.is_gone


class StreamPumpWorld:
    """A running pump and its client."""

    def __init__(self) -> None:
        self.peer = QueuePeer()
        self.served = ServedConfig(mesh("a"))
        self.pump = StreamPump(AdsStream(), self.peer, self.served, ChangeCondition())
        self.ended = asyncio.ensure_future(self.pump.run())

    async def subscribe(self, type_url: str, *names: str, nonce: str = "") -> None:
        self.peer.requests.put_nowait(request(type_url, names, nonce=nonce))
        await settle()

    async def received(self) -> list[str]:
        """The responses since the last call."""
        await settle()
        return show([self.peer.responses.get_nowait() for _ in range(self.peer.responses.qsize())])


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251 - one iteration of the loop


@pytest.fixture
async def world() -> AsyncIterator[StreamPumpWorld]:
    world = StreamPumpWorld()
    yield world
    world.pump.end(OK)
    await world.ended


async def test_subscription_gets_a_response(world: StreamPumpWorld) -> None:
    await world.subscribe(CLUSTER)
    assert await world.received() == ["CDS 1: a"]


async def test_new_snapshot_is_sent_after_wake(world: StreamPumpWorld) -> None:
    await world.subscribe(ENDPOINTS, "a")
    assert await world.received() == ["EDS 1: a"]
    world.served.source = mesh("a").with_(endpoints("a", []))
    world.pump.wake()
    assert await world.received() == ["EDS 2: a"]


async def test_snapshot_is_chosen_by_node(world: StreamPumpWorld) -> None:
    world.served.source = lambda node: mesh(node.id)
    await world.subscribe(CLUSTER)
    assert await world.received() == ["CDS 1: node-1"]


async def test_source_is_not_called_before_the_first_request(world: StreamPumpWorld) -> None:
    world.served.source = lambda node: pytest.fail(f"called with {node}")
    world.pump.wake()
    assert await world.received() == []


async def test_slow_client_gets_only_the_newest_snapshot(world: StreamPumpWorld) -> None:
    await world.subscribe(ENDPOINTS, "a")
    await world.received()
    world.peer.gate.clear()
    snapshot = mesh("a")
    for port in range(2, 50):
        snapshot = snapshot.with_(endpoints("a", [f"10.0.0.1:{port}"]))
        world.served.source = snapshot
        world.pump.wake()
        await settle()
    world.peer.gate.set()
    assert await world.received() == ["EDS 2: a", "EDS 49: a"]


async def test_requests_are_not_read_while_responses_are_queued(world: StreamPumpWorld) -> None:
    await world.subscribe(LISTENER, "api")
    await world.subscribe(ROUTE_CONFIG, "routes")
    world.peer.gate.clear()
    for number in range(OUTBOX_MAX * 10):
        await world.subscribe(ENDPOINTS, "a" if number % 2 else "b", "a")
        await world.subscribe(CLUSTER, f"{number}")
    assert world.peer.reads < OUTBOX_MAX * 4
    assert world.peer.requests.qsize() > 0


async def test_stream_ends_when_the_client_closes_it(world: StreamPumpWorld) -> None:
    world.peer.requests.put_nowait(None)
    assert await world.ended == OK


async def test_stream_ends_when_a_write_fails(world: StreamPumpWorld) -> None:
    world.peer.is_gone = True
    await world.subscribe(CLUSTER)
    assert await world.ended == OK


async def test_stream_ends_with_the_status_of_the_owner(world: StreamPumpWorld) -> None:
    status = Status(StatusCode.UNAVAILABLE, "restart")
    world.pump.end(status)
    world.pump.end(OK)
    assert await world.ended == status


async def test_current_response_is_sent_before_the_stream_ends(world: StreamPumpWorld) -> None:
    world.peer.gate.clear()
    await world.subscribe(CLUSTER)
    world.pump.end(OK)
    await settle()
    assert not world.ended.done()
    world.peer.gate.set()
    assert await world.ended == OK
    assert await world.received() == ["CDS 1: a"]


async def test_stream_ends_when_the_client_does_not_receive_in_time(
    world: StreamPumpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "WRITE_TIMEOUT_S", 0)
    world.peer.gate.clear()
    await world.subscribe(CLUSTER)
    world.pump.end(OK)
    assert await world.ended == OK
    assert await world.received() == []


async def test_stream_ends_when_a_request_is_rejected(world: StreamPumpWorld) -> None:
    await world.subscribe("")
    assert (await world.ended).code is StatusCode.INVALID_ARGUMENT


async def test_exception_of_the_source_is_raised() -> None:
    world = StreamPumpWorld()
    world.served.source = {"other-node": mesh("a")}.__getitem__
    await world.subscribe(CLUSTER)
    with pytest.raises(TypeError):
        await world.ended


async def test_old_clusters_are_removed_when_the_client_does_not_subscribe_to_new_ones(
    world: StreamPumpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.subscribe(ROUTE_CONFIG, "routes")
    await world.subscribe(CLUSTER, "a")
    assert await world.received() == ["RDS 1: routes", "CDS 1: a"]
    await world.subscribe(ROUTE_CONFIG, "routes", nonce="1")
    await world.subscribe(CLUSTER, "a", nonce="2")
    world.served.source = mesh("a").replaced(mesh("b"))
    world.pump.wake()
    assert await world.received() == ["RDS 2: routes"]
    monkeypatch.setattr(stream_module, "REMOVAL_TIMEOUT_S", 0)
    world.pump._removal_timer.cancel()
    await world.subscribe(ROUTE_CONFIG, "routes", nonce="3")
    assert await world.received() == ["CDS 2:"]


async def test_old_clusters_are_removed_when_the_grace_is_over(world: StreamPumpWorld) -> None:
    world.pump.core.removal_grace_s = 3600
    await world.subscribe(CLUSTER)
    await world.subscribe(CLUSTER, nonce="1")
    assert await world.received() == ["CDS 1: a"]
    world.served.source = mesh("a").replaced(mesh("b"))
    world.pump.wake()
    assert await world.received() == ["CDS 2: a b"]
    await world.subscribe(CLUSTER, nonce="2")
    assert await world.received() == []
    # The running timer is replaced by one that fires at once.
    world.pump._grace_timer.cancel()
    world.pump._grace = None
    world.pump.core.removal_grace_s = 1e-9
    world.pump.wake()
    assert await world.received() == ["CDS 2: b"]


async def test_response_is_delayed(world: StreamPumpWorld) -> None:
    world.served.delay_s = 3600
    await world.subscribe(CLUSTER)
    assert await world.received() == []
