"""Unit tests of proxyless.demo.traffic: in virtual time, with a stub channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from proxyless.demo import greeter_pb2
from proxyless.demo.traffic import BUCKET_S, Load, Record, Rpc
from proxyless.sim.loop import SimLoop, pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop()
    yield loop
    loop.close()


class Channel:
    """Channel for the generated stub: every RPC takes 10 ms, then `behave` answers it."""

    def __init__(self, behave: Callable[[], str]) -> None:
        self._behave = behave
        self.timeouts: set[float] = set()

    def unary_unary(self, path: str, **_: Any) -> Any:  # noqa: ANN401
        assert path == "/proxyless.demo.Greeter/Greet"
        return self._call

    async def _call(self, request: Any, *, timeout: float) -> Any:  # noqa: ANN401, ASYNC109
        self.timeouts.add(timeout)
        await pause(0.01)
        return greeter_pb2.GreetReply(backend=self._behave(), peer=f"of {request.name}")


def run_load(loop: SimLoop, channel: Any, seconds: float, rate: float = 100.0) -> Record:  # noqa: ANN401
    async def run() -> Record:
        record = Record()
        load = Load(channel, record, rate=rate, is_session=False, begin_s=loop.time())
        loop.call_later(seconds, load.stop)
        await load.run()
        return record

    return loop.run_until_complete(run())


def test_load_keeps_its_rate_and_records_every_rpc(loop: SimLoop) -> None:
    channel = Channel(lambda: "a1")
    record = run_load(loop, channel, 2.0)
    assert record.started == len(record.rpcs) == pytest.approx(200, abs=2)
    assert {rpc.backend for rpc in record.rpcs} == {"a1"}
    assert not record.failures
    first = record.rpcs[0]
    assert first.took_s == pytest.approx(0.01)
    assert (first.backend, first.peer, first.is_session) == ("a1", "of demo", False)
    assert channel.timeouts == {5.0}


def test_failure_is_recorded_with_code_and_details(loop: SimLoop) -> None:
    def fail() -> str:
        empty = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, empty, empty, "connection lost")

    record = run_load(loop, Channel(fail), 0.1)
    assert record.failures == record.rpcs
    assert record.failures[0].code == "UNAVAILABLE"
    assert record.failures[0].details == "connection lost"


def test_rates_are_those_of_complete_buckets() -> None:
    record = Record()
    for ended_s in (0.1, 0.2, 0.6, 1.4):
        record.on_end(Rpc(0.0, ended_s, is_session=False, backend="a1"))
    record.on_end(Rpc(0.0, 0.1, is_session=True, backend="a1"))
    record.on_end(Rpc(0.0, 0.1, is_session=False, backend="b1"))
    # The bucket of 1.4 is not complete.
    assert record.rates("a1", 1.45, columns=3) == (0.0, 2 / BUCKET_S, 1 / BUCKET_S)
    assert record.rates("b1", 1.45, columns=2) == (1 / BUCKET_S, 0.0)
    assert record.rates("c1", 1.45, columns=1) == (0.0,)
    assert [rpc.backend for rpc in record.session] == ["a1"]


def test_ended_since_yields_the_newest_first() -> None:
    record = Record()
    for ended_s in (1.0, 2.0, 3.0):
        record.on_end(Rpc(0.0, ended_s, is_session=False, backend="a1"))
    assert [rpc.ended_s for rpc in record.ended_since(2.0)] == [3.0, 2.0]
