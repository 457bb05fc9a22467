"""Unit tests of proxyless.controlplane.stream."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from proxyless.base import OK, Status, StatusCode
from proxyless.controlplane import CLUSTER, ENDPOINTS, ROUTE_CONFIG, AdsStream, endpoints
from proxyless.controlplane import stream as stream_module
from proxyless.controlplane.progress import Progress
from proxyless.controlplane.stream import OUTBOX_MAX, Offer, StreamPump
from proxyless.protos import Proto
from tests.unit.controlplane.ads_world import mesh, request, show


class QueuePeer:
    """A client on two queues."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[Proto | None] = asyncio.Queue()
        self.responses: asyncio.Queue[Proto] = asyncio.Queue()
        self.is_gone = False
        self.reads = 0
        # Closed, the client takes no responses.
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self) -> Proto | None:
        self.reads += 1
        return await self.requests.get()

    async def write(self, response: Proto) -> bool:
        await self.gate.wait()
        self.responses.put_nowait(response)
        return not self.is_gone


class World:
    """A pump that runs."""

    def __init__(self) -> None:
        self.peer = QueuePeer()
        self.offer = Offer(mesh("a"))
        self.pump = StreamPump(AdsStream(), self.peer, self.offer, Progress())
        self.ended = asyncio.ensure_future(self.pump.run())

    async def ask(self, type_url: str, *names: str, nonce: str = "") -> None:
        self.peer.requests.put_nowait(request(type_url, names, nonce=nonce))
        await settle()

    async def heard(self) -> list[str]:
        """What came since the last time."""
        await settle()
        return show([self.peer.responses.get_nowait() for _ in range(self.peer.responses.qsize())])


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251 - a turn of the loop, no time


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    world.pump.end(OK)
    await world.ended


async def test_requests_are_answered(world: World) -> None:
    await world.ask(CLUSTER)
    assert await world.heard() == ["CDS 1: a"]


async def test_a_new_snapshot_is_told_when_the_pump_is_woken(world: World) -> None:
    await world.ask(ENDPOINTS, "a")
    assert await world.heard() == ["EDS 1: a"]
    world.offer.source = mesh("a").with_(endpoints("a", []))
    world.pump.wake()
    assert await world.heard() == ["EDS 2: a"]


async def test_each_node_may_have_its_own_snapshot(world: World) -> None:
    world.offer.source = lambda node: mesh(node.id)
    await world.ask(CLUSTER)
    assert await world.heard() == ["CDS 1: node-1"]


async def test_nothing_is_asked_of_the_source_before_the_node_is_known(world: World) -> None:
    world.offer.source = lambda node: pytest.fail(f"asked for {node}")
    world.pump.wake()
    assert await world.heard() == []


async def test_a_slow_client_is_told_the_newest_and_not_each(world: World) -> None:
    await world.ask(ENDPOINTS, "a")
    await world.heard()
    world.peer.gate.clear()
    snapshot = mesh("a")
    for port in range(2, 50):
        snapshot = snapshot.with_(endpoints("a", [f"10.0.0.1:{port}"]))
        world.offer.source = snapshot
        world.pump.wake()
        await settle()
    world.peer.gate.set()
    assert await world.heard() == ["EDS 2: a", "EDS 49: a"]


async def test_requests_are_not_read_while_responses_pile_up(world: World) -> None:
    world.peer.gate.clear()
    for number in range(OUTBOX_MAX * 10):
        await world.ask(ENDPOINTS, "a" if number % 2 else "b", "a")
        await world.ask(CLUSTER, f"{number}")
    assert world.peer.reads < OUTBOX_MAX * 4
    assert world.peer.requests.qsize() > 0


async def test_the_client_ends_the_stream(world: World) -> None:
    world.peer.requests.put_nowait(None)
    assert await world.ended == OK


async def test_a_client_that_is_gone_ends_the_stream(world: World) -> None:
    world.peer.is_gone = True
    await world.ask(CLUSTER)
    assert await world.ended == OK


async def test_the_owner_ends_the_stream_with_a_status(world: World) -> None:
    status = Status(StatusCode.UNAVAILABLE, "restart")
    world.pump.end(status)
    world.pump.end(OK)
    assert await world.ended == status


async def test_a_response_that_is_being_sent_leaves_before_the_stream_ends(world: World) -> None:
    world.peer.gate.clear()
    await world.ask(CLUSTER)
    world.pump.end(OK)
    await settle()
    assert not world.ended.done()
    world.peer.gate.set()
    assert await world.ended == OK
    assert await world.heard() == ["CDS 1: a"]


async def test_a_client_that_takes_nothing_does_not_hold_up_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "WRITE_PATIENCE_S", 0)
    world.peer.gate.clear()
    await world.ask(CLUSTER)
    world.pump.end(OK)
    assert await world.ended == OK
    assert await world.heard() == []


async def test_a_request_that_is_refused_ends_the_stream(world: World) -> None:
    await world.ask("")
    assert (await world.ended).code is StatusCode.INVALID_ARGUMENT


async def test_what_a_source_raises_ends_the_stream_and_is_not_hidden() -> None:
    world = World()
    world.offer.source = {"other-node": mesh("a")}.__getitem__
    await world.ask(CLUSTER)
    with pytest.raises(TypeError):
        await world.ended


async def test_a_client_that_never_asks_for_new_clusters_is_told_of_old_ones_in_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.ask(ROUTE_CONFIG, "routes")
    await world.ask(CLUSTER, "a")
    assert await world.heard() == ["RDS 1: routes", "CDS 1: a"]
    await world.ask(ROUTE_CONFIG, "routes", nonce="1")
    await world.ask(CLUSTER, "a", nonce="2")
    world.offer.source = mesh("a").replaced(mesh("b"))
    world.pump.wake()
    assert await world.heard() == ["RDS 2: routes"]
    monkeypatch.setattr(stream_module, "REMOVAL_PATIENCE_S", 0)
    world.pump._removal_timer.cancel()
    await world.ask(ROUTE_CONFIG, "routes", nonce="3")
    assert await world.heard() == ["CDS 2:"]


async def test_removed_clusters_are_told_when_the_grace_is_over(world: World) -> None:
    world.pump.core.removal_grace_s = 3600
    await world.ask(CLUSTER)
    await world.ask(CLUSTER, nonce="1")
    assert await world.heard() == ["CDS 1: a"]
    world.offer.source = mesh("a").replaced(mesh("b"))
    world.pump.wake()
    assert await world.heard() == ["CDS 2: a b"]
    await world.ask(CLUSTER, nonce="2")
    assert await world.heard() == []
    # The timer is running; here is one that is as good as over.
    world.pump._grace_timer.cancel()
    world.pump._grace = None
    world.pump.core.removal_grace_s = 1e-9
    world.pump.wake()
    assert await world.heard() == ["CDS 2: b"]


async def test_a_delay_holds_responses_back(world: World) -> None:
    world.offer.delay_s = 3600
    await world.ask(CLUSTER)
    assert await world.heard() == []
