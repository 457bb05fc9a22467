"""CSDS under load: large dumps and many requests take small slices of a loop's time.

grpcio dumps in its C++ threads, and so never in a turn of an application's loop.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from proxyless.base import OK
from proxyless.observe import csds_service, read_status
from proxyless.observe.csds import (
    CONTENT_BYTES_MAX,
    RESPONSE,
    SLICE_BYTES,
    SLICE_RESOURCES,
    encode_in_slices,
)
from proxyless.observe.csds_service import REQUEST, _AioService, _SyncService
from proxyless.protos import Proto, message_class
from proxyless.xds.bootstrap import Node
from proxyless.xds.view import ResourceDump, ResourceStatus
from tests.hostile.watchdog import loop_watchdog
from tests.worlds.transports import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.observe.csds_service import ClientsByLoop

# A pause of the machine may add CPU time to one callback.
pytestmark = pytest.mark.rerun("the CPU time of callbacks is measured")

TYPE_URL: Final = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
REQUESTS: Final = 200


class Clients:
    """The xDS clients of a loop: one that holds many resources, and counts dumps."""

    def __init__(self, resources: int, size_bytes: int) -> None:
        self.dumped = 0
        content = b"x" * size_bytes
        self.by_scope = {"xds:///api": [self], "xds:///other": []}
        self.bootstrap = SimpleNamespace(node=Node("edge"))
        self._entries = [
            SimpleNamespace(dumps=lambda name=f"cluster-{number}": [self._dump(name, content)])
            for number in range(resources)
        ]

    def all_entries(self) -> Iterator[object]:
        return iter(self._entries)

    def _dump(self, name: str, content: bytes) -> ResourceDump:
        self.dumped += 1
        return ResourceDump(TYPE_URL, name, ResourceStatus.ACKED, "1", content, 1.0, OK, "")

    def of_loop(self, loop: asyncio.AbstractEventLoop) -> ClientsByLoop:
        return cast("ClientsByLoop", lambda: {loop: self})


def request(**fields: bool) -> Proto:
    return message_class(REQUEST)(**fields)


@pytest.mark.parametrize(
    ("resources", "size_bytes"), [(20_000, 500), (2_000, 16_000), (30, 1_000_000), (0, 0)]
)
async def test_large_dump_takes_no_long_turn(
    resources: int, size_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """In one turn, 10,000 resources of 5 kB would take 160 ms."""
    clients = Clients(resources, size_bytes)
    service = _AioService(clients.of_loop(asyncio.get_running_loop()))
    with loop_watchdog() as watchdog:
        serialized = await service.fetch(request(), None)
    content_bytes = min(resources * size_bytes, CONTENT_BYTES_MAX - size_bytes)
    slices = resources // SLICE_RESOURCES + content_bytes // (SLICE_BYTES + size_bytes)
    assert watchdog.callbacks >= slices
    (client,) = read_status(message_class(RESPONSE).FromString(serialized))
    assert (client.scope, client.node_id) == ("xds:///api", "edge")
    assert [row.name for row in client.resources] == [f"cluster-{n}" for n in range(resources)]
    assert content_bytes <= sum(len(row.value) for row in client.resources) <= CONTENT_BYTES_MAX
    assert {len(row.value) for row in client.resources} <= {0, size_bytes}
    left_out = sum(row.is_left_out for row in client.resources)
    text = (
        f"CSDS leaves out the contents of {left_out} resources: there are more than 8388608 bytes"
    )
    assert caplog.messages == ([text] if left_out else [])
    assert left_out == sum(not row.value for row in client.resources)


async def test_many_requests_share_dumps() -> None:
    clients = Clients(1_000, 100)
    service = _AioService(clients.of_loop(asyncio.get_running_loop()))
    with loop_watchdog():
        first = asyncio.ensure_future(service.fetch(request(), None))
        # It has begun, so later requests get a newer dump.
        await until(lambda: clients.dumped > 0, "a dump")
        others = [asyncio.ensure_future(service.fetch(request(), None)) for _ in range(REQUESTS)]
        bare = [
            asyncio.ensure_future(service.fetch(request(exclude_resource_contents=True), None))
            for _ in range(REQUESTS)
        ]
        # A caller that is gone does not end the dump of the others.
        others[0].cancel()
        found = await asyncio.gather(first, *others[1:], *bare)
    assert clients.dumped == 3 * 1_000
    assert len(set(map(len, found[:REQUESTS]))) == 1
    assert len(found[-1]) < len(found[0])


async def test_requests_of_threads_share_dumps(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = Clients(1_000, 100)
    loop = asyncio.get_running_loop()
    service = _SyncService(clients.of_loop(loop))
    is_held = threading.Event()

    def encode_late(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        is_held.wait()
        return encode_in_slices(*args, **kwargs)

    monkeypatch.setattr(csds_service, "encode_in_slices", encode_late)
    with loop_watchdog(), ExitStack() as at_end:
        # The threads end even if this test fails.
        at_end.callback(is_held.set)
        first = asyncio.ensure_future(asyncio.to_thread(service.fetch, request(), None))
        await until(lambda: clients.dumped == 1_000, "a dump")
        # The second dump waits for the first.
        threads = [
            asyncio.ensure_future(asyncio.to_thread(service.fetch, request(), None))
            for _ in range(3)
        ]
        await until(lambda: service._waiting, "a thread")  # noqa: SLF001
        is_held.set()
        found = await asyncio.gather(first, *threads)
    assert clients.dumped <= 4 * 1_000
    assert len(set(map(len, found))) == 1


async def test_failed_dump_fails_its_requests_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = Clients(10, 10)
    service = _AioService(clients.of_loop(asyncio.get_running_loop()))
    blocking = _SyncService(clients.of_loop(asyncio.get_running_loop()))

    def fail(*_: object, **__: object) -> Iterator[None]:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(csds_service, "encode_in_slices", fail)
        with pytest.raises(MemoryError):
            await service.fetch(request(), None)
        with pytest.raises(MemoryError):
            await asyncio.to_thread(blocking.fetch, request(), None)
    assert await service.fetch(request(), None)
    assert await asyncio.to_thread(blocking.fetch, request(), None)
