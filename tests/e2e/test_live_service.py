"""The live service of a running process, over real sockets, with all kinds of servers."""

from __future__ import annotations

import asyncio
import json
from concurrent import futures
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

import proxyless
import proxyless.aio
from proxyless.observe.flight import Recording, read_lines
from proxyless.observe.live import queries, service
from tests.worlds.live_meshes import (
    CLUSTER,
    METHOD,
    TARGET,
    blocking_live_client,
    live,
    live_client,
    live_mesh,
)
from tests.worlds.transports import until

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "Bearer 6f1c-secret"  # noqa: S105, RUF100 - not a real one


def read_file(path: str) -> Recording:
    with open(path, encoding="utf-8") as lines:
        return read_lines(lines)


def only(snapshot: Any, target: str = TARGET) -> Any:  # noqa: ANN401 - messages
    (found,) = [each for each in snapshot.channels if each.target == target]
    return found


async def test_snapshot_has_rpcs_clusters_endpoints_and_tree_of_an_asyncio_channel() -> None:
    async with (
        live_mesh() as mesh,
        live_client() as client,
        proxyless.aio.insecure_channel(TARGET, bootstrap=mesh.control_plane.bootstrap()) as channel,
    ):
        call = channel.unary_unary(METHOD)
        for _ in range(5):
            await call(b"x")
        with pytest.raises(grpc.aio.AioRpcError):
            await call(b"fail", metadata=(("authorization", SECRET),))
        snapshot = await client.snapshot(live("SnapshotRequest"))
    found = only(snapshot)
    assert (found.state, found.config_generation) == (live("Channel", state="READY").state, 1)
    assert (found.rpcs.started, found.rpcs.succeeded, found.rpcs.failed) == (6, 5, 1)
    assert dict(found.failures_by_code) == {"NOT_FOUND": 1}
    assert found.last_failure.details == r"no such\x1b[31m order"
    assert found.last_failure.address == mesh.address
    (cluster,) = found.clusters
    assert (cluster.name, cluster.priorities, cluster.priority_in_use) == (CLUSTER, 2, 0)
    assert (cluster.endpoints_ready, cluster.rpcs.succeeded) == (1, 5)
    (endpoint,) = cluster.endpoints
    assert (endpoint.address, endpoint.in_use, endpoint.rpcs.failed) == (mesh.address, True, 1)
    assert found.lb_tree.policy == "xds_cluster_manager_experimental"
    names = {event.name for event in snapshot.events}
    assert {"channel.state", "priority.choice", "rpc"} <= names
    assert SECRET not in str(snapshot)


async def test_blocking_server_returns_snapshot_and_explanation_of_a_blocking_channel() -> None:
    def use(bootstrap: dict[str, Any]) -> None:
        server = grpc.server(futures.ThreadPoolExecutor(2))
        with (
            blocking_live_client(server) as client,
            proxyless.insecure_channel(TARGET, bootstrap=bootstrap) as channel,
        ):
            assert channel.unary_unary(METHOD)(b"x") == b"x"
            found = only(client.snapshot(live("SnapshotRequest", target=TARGET)))
            assert found.rpcs.succeeded == 1
            request = live("ExplainRequest", method=METHOD[1:], channel_id=found.id)
            (explanation,) = client.explain(request).explanations
            text = str(channel.explain(METHOD))
            assert explanation.text.splitlines()[0] == text.splitlines()[0]
            assert json.loads(explanation.json)["kind"] == "rpc"
            watch = client.watch(live("WatchRequest"))
            first, second = next(watch), next(watch)
            assert only(second).id == only(first).id
            watch.cancel()

    async with live_mesh() as mesh:
        await asyncio.to_thread(use, mesh.control_plane.bootstrap())


def test_watch_ends_with_its_blocking_server() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    with blocking_live_client(server) as client:
        request = live("WatchRequest")
        request.interval.FromSeconds(600)
        watch = client.watch(request)
        next(watch)
        server.stop(None).wait()
        with pytest.raises(grpc.RpcError):
            next(watch)


async def test_watch_sends_whole_snapshots_and_each_event_once() -> None:
    async with (
        live_mesh() as mesh,
        live_client() as client,
        proxyless.aio.insecure_channel(TARGET, bootstrap=mesh.control_plane.bootstrap()) as channel,
    ):
        await channel.unary_unary(METHOD)(b"x")
        request = live("WatchRequest")
        request.interval.FromMilliseconds(1)
        watch = client.watch(request)
        first = await watch.read()
        await channel.unary_unary(METHOD)(b"x")
        # Snapshots may be taken while the second RPC is in flight.
        later = [await watch.read()]
        while only(later[-1]).rpcs.succeeded < 2:
            later.append(await watch.read())
        watch.cancel()
    assert only(first).rpcs.succeeded == 1
    assert only(later[-1]).rpcs.succeeded == 2
    numbers = [event.number for each in (first, *later) for event in each.events]
    assert numbers == sorted(set(numbers))
    assert (later[0].time.ToMilliseconds() - first.time.ToMilliseconds()) >= 99


async def test_watches_are_refused_past_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "WATCHES_MAX", 1)
    async with live_client() as client:
        watch = client.watch(live("WatchRequest"))
        await watch.read()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.watch(live("WatchRequest")).read()
        watch.cancel()
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("request_of", "code", "text"),
    [
        (lambda: live("ExplainRequest"), "INVALID_ARGUMENT", "0 characters"),
        (lambda: live("ExplainRequest", method="m" * 1001), "INVALID_ARGUMENT", "wanted 1 to 1000"),
        (
            lambda: live("ExplainRequest", method="a/b", target="x" * 5000),
            "INVALID_ARGUMENT",
            "5000",
        ),
        (lambda: live("ExplainRequest", method="a/b", channel_id=10**9), "NOT_FOUND", "no open"),
        (lambda: live("ExplainRequest", method="a/b", target="a\nb"), "NOT_FOUND", r'"a\nb"'),
        (
            lambda: live("ExplainRequest", method="a/b", metadata=[{"key": "k"}] * 101),
            "INVALID_ARGUMENT",
            "101 entries",
        ),
        (
            lambda: live("ExplainRequest", method="a/b", metadata=[{"key": "k", "value": b"\xff"}]),
            "INVALID_ARGUMENT",
            '"k"',
        ),
        (
            lambda: live("ExplainRequest", method="a/b", metadata=[{"key": "k\r\nx"}]),
            "INVALID_ARGUMENT",
            "not valid",
        ),
        (
            lambda: live(
                "ExplainRequest", method="a/b", metadata=[{"key": "k", "value": b"v" * 20_000}]
            ),
            "INVALID_ARGUMENT",
            "bytes",
        ),
    ],
)
async def test_bad_request_is_refused_with_its_reason(
    request_of: Callable[[], Any], code: str, text: str
) -> None:
    async with live_client() as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.explain(request_of())
    assert refused.value.code().name == code
    assert text in refused.value.details()


async def test_snapshot_of_an_unknown_channel_is_not_found() -> None:
    async with live_client() as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.snapshot(live("SnapshotRequest", target="xds:///nothing"))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_channels_come_in_pages() -> None:
    mine = [f"ipv4:127.0.0.2:{port}" for port in (1, 2, 3)]
    channels = [proxyless.aio.insecure_channel(target) for target in mine]
    async with live_client() as client:
        for channel in channels:
            channel.get_state()
        request = live("SnapshotRequest", channels_max=2)
        pages = list[Any]()
        # Channels of other tests may not be garbage-collected yet.
        while not pages or pages[-1].has_more_channels:
            pages.append(await client.snapshot(request))
            request.after_channel_id = pages[-1].channels[-1].id
    for channel in channels:
        await channel.close()
    targets = [each.target for page in pages for each in page.channels]
    assert [each for each in targets if each in mine] == mine
    assert len(pages) > 1
    assert {len(page.channels) for page in pages[:-1]} == {2}


async def test_silent_loop_is_counted_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    # Long enough for the loops that are not stuck.
    monkeypatch.setattr(queries, "ANSWER_TIMEOUT_S", 1.0)
    loop = asyncio.get_running_loop()

    async def block() -> None:
        channel = proxyless.aio.insecure_channel("ipv4:127.0.0.1:1")
        channel.get_state()
        done: futures.Future[None] = futures.Future()
        loop.call_soon_threadsafe(blocked.set_result, done)
        # The loop is stuck in a handler, as with a blocking call of an application.
        done.result()
        await channel.close()

    blocked: asyncio.Future[futures.Future[None]] = loop.create_future()
    async with live_client() as client:
        before = await client.snapshot(live("SnapshotRequest"))
        thread = asyncio.ensure_future(asyncio.to_thread(asyncio.run, block()))
        done = await blocked
        snapshot = await client.snapshot(live("SnapshotRequest"))
        done.set_result(None)
        await thread
    # Loops of other tests may not be closed.
    assert snapshot.silent_loops == before.silent_loops + 1


async def test_recording_is_sent_as_a_file_without_secrets() -> None:
    async with (
        live_mesh() as mesh,
        live_client() as client,
        proxyless.aio.insecure_channel(TARGET, bootstrap=mesh.control_plane.bootstrap()) as channel,
    ):
        await channel.unary_unary(METHOD)(b"x", metadata=(("authorization", SECRET),))
        chunks = [each.lines async for each in client.recording(live("RecordingRequest"))]
    text = b"".join(chunks).decode()
    recording = read_lines(text.splitlines())
    events = {entry.event for entry in recording.entries}
    assert {"channel.state", "resource", "rpc", "xds_resolver.config"} <= events
    assert not recording.is_cut
    assert SECRET not in text
    assert text.isprintable() or all(line.isprintable() for line in text.splitlines())


async def test_channel_with_the_option_records_without_admin_services(tmp_path: Any) -> None:  # noqa: ANN401
    async with live_mesh() as mesh:
        options = [("proxyless.flight_recorder", 1)]
        bootstrap = mesh.control_plane.bootstrap()
        async with proxyless.aio.insecure_channel(
            TARGET, options=options, bootstrap=bootstrap
        ) as channel:
            await channel.unary_unary(METHOD)(b"x")
            path = channel.record(str(tmp_path))
    events = {entry.event for entry in read_file(path).entries}
    assert {"channel.state", "resource", "rpc"} <= events


async def test_record_raises_without_a_recorder(tmp_path: Any) -> None:  # noqa: ANN401
    async with proxyless.aio.insecure_channel("ipv4:127.0.0.1:1") as channel:
        with pytest.raises(RuntimeError, match="no flight recorder"):
            channel.record(str(tmp_path))


async def test_failure_storm_writes_one_recording(tmp_path: Any) -> None:  # noqa: ANN401
    options = [("proxyless.flight_recorder_directory", str(tmp_path))]
    async with proxyless.aio.insecure_channel("ipv4:127.0.0.1:1", options=options) as channel:
        call = channel.unary_unary(METHOD)
        for _ in range(130):
            with pytest.raises(grpc.aio.AioRpcError):
                await call(b"x")
        await until(lambda: list(tmp_path.glob("*.jsonl")), "the recording")
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
