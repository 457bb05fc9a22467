"""Unit tests of proxyless.cli.top.sources. Tests with our services are in tests/e2e."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from proxyless.cli.admin_client import CSDS_FETCH, LIVE_SERVICE, live_message, status_response
from proxyless.cli.top.sources import ProcessSource, SourceError
from tests.interop.drop_in import stop_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class FakeAdmin:
    """A server with a stream of two snapshots, or with CSDS only."""

    def __init__(self, *, has_live: bool) -> None:
        self._has_live = has_live
        self.intervals_s: list[float] = []
        self.targets: list[str] = []

    def service(self, details: Any) -> Any:  # noqa: ANN401 - called by grpcio
        if details.method == f"/{LIVE_SERVICE}/WatchSnapshots" and self._has_live:
            return grpc.unary_stream_rpc_method_handler(self._watch)
        if details.method == CSDS_FETCH:
            return grpc.unary_unary_rpc_method_handler(self._fetch)
        return None

    async def _watch(self, serialized: bytes, _context: Any) -> AsyncIterator[bytes]:  # noqa: ANN401
        request = type(live_message("WatchRequest")).FromString(serialized)
        self.intervals_s.append(request.interval.ToNanoseconds() / 1e9)
        self.targets.append(request.request.target)
        for pid in (1, 2):
            snapshot = live_message("Snapshot")
            snapshot.process.pid = pid
            yield snapshot.SerializeToString()

    async def _fetch(self, _request: bytes, _context: Any) -> bytes:  # noqa: ANN401
        response = status_response()()
        for scope in ("xds:///a", "xds:///b"):
            response.config.add(client_scope=scope)
        serialized: bytes = response.SerializeToString()
        return serialized


@asynccontextmanager
async def serving(admin: FakeAdmin) -> AsyncIterator[str]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((admin,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await stop_server(server)


async def test_stream_of_snapshots_is_followed_to_its_end() -> None:
    admin = FakeAdmin(has_live=True)
    async with serving(admin) as address:
        samples = ProcessSource(address, 0.5, "xds:///a").samples()
        seen = [await anext(samples), await anext(samples)]
        with pytest.raises(SourceError, match="ended the stream"):
            await anext(samples)
    assert [each.process.partition(",")[0] for each in seen] == ["pid 1", "pid 2"]
    assert (admin.intervals_s, admin.targets) == ([0.5], ["xds:///a"])


async def test_process_without_a_live_service_is_polled_over_csds() -> None:
    async with serving(FakeAdmin(has_live=False)) as address:
        samples = ProcessSource(address, 0.01, "xds:///b").samples()
        seen = [await anext(samples), await anext(samples)]
        await samples.aclose()  # type: ignore[attr-defined]  # It is a generator.
    assert [[channel.target for channel in each.channels] for each in seen] == [["xds:///b"]] * 2


async def test_process_that_is_not_there_is_an_error() -> None:
    with pytest.raises(SourceError, match="UNAVAILABLE"):
        await anext(ProcessSource("127.0.0.1:1", 0.1).samples())
