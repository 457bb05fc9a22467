"""Unit tests of proxyless.channel.interception."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from proxyless.base import OK, Metadata, Status, StatusCode
from proxyless.channel import Call, CallConfig
from proxyless.channel.service_config import MethodConfig
from proxyless.wire import StreamEnd
from proxyless.wire.messages import Unpacking
from tests.worlds.channels import CallObserver, ChannelWorld, FakeSelector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.channel.config_selector import Mirror

ABORT = Status(StatusCode.ABORTED, "on purpose")


class Filters:
    """An interception that records its calls."""

    mirrors: Sequence[Mirror] = ()

    def __init__(self, delay_s: float = 0.0, abort: Status | None = None) -> None:
        self.delay_s = delay_s
        self.abort = abort
        self.events: list[str] = []

    def on_delay_start(self) -> None:
        self.events.append("delay starts")

    def on_delay_end(self) -> None:
        self.events.append("delay ends")

    def on_head(self, metadata: Metadata) -> Metadata:
        self.events.append("head")
        return (*metadata, ("by", "filter"))

    def on_end(self, end: StreamEnd, *, had_head: bool) -> StreamEnd:
        self.events.append(f"end {end.status.code.name} {'after' if had_head else 'without'} head")
        return StreamEnd(end.status, (*end.trailers, ("by", "filter")))


class Heads(CallObserver):
    """An observer that records the head, and the events of the filters by then."""

    def __init__(self, filters: Filters) -> None:
        super().__init__()
        self._filters = filters
        self.metadata: list[Metadata] = []
        self.filters_by_then: list[list[str]] = []

    def on_head(self, metadata: Metadata) -> None:
        super().on_head(metadata)
        self.metadata.append(metadata)
        self.filters_by_then.append(list(self._filters.events))


class InterceptedChannelWorld(ChannelWorld):
    """A channel whose RPCs are intercepted."""

    def __init__(self, filters: Filters) -> None:
        super().__init__()
        self.commits = 0
        config = CallConfig(MethodConfig(), on_commit=self._commit, interception=filters)
        self.picker = self.connect(FakeSelector(config))
        self.clock.advance(0)
        self.timers = self.clock.timers_pending

    def _commit(self) -> None:
        self.commits += 1


def test_rpc_continues_at_once_without_a_delay() -> None:
    filters = Filters()
    world = InterceptedChannelWorld(filters)
    _, observer = world.call()
    world.streams[0].respond()
    assert observer.status == OK
    assert observer.messages == [b"reply"]
    assert filters.events == ["head", "end OK after head"]


def test_observer_chooses_when_compressed_messages_are_unpacked() -> None:
    world = InterceptedChannelWorld(Filters())
    _, observer = world.call()
    observer.unpacking = Unpacking.AT_END
    world.streams[0].head("gzip")
    assert world.streams[0].unpacking is Unpacking.AT_END


def test_an_rpc_is_picked_for_after_the_delay() -> None:
    filters = Filters(delay_s=2.0)
    world = InterceptedChannelWorld(filters)
    world.call()
    world.clock.advance(1.999)
    assert world.picker.picks == []
    assert filters.events == ["delay starts"]
    world.clock.advance(0.001)
    assert len(world.picker.picks) == 1
    assert filters.events == ["delay starts", "delay ends"]
    assert world.streams[0].messages == [b"request"]


@pytest.mark.parametrize("delay_s", [0.0, 2.0])
def test_an_aborted_rpc_is_never_picked_for(delay_s: float) -> None:
    world = InterceptedChannelWorld(Filters(delay_s, ABORT))
    _, observer = world.call()
    assert observer.is_running is bool(delay_s)
    world.clock.advance(delay_s)
    assert observer.status == ABORT
    assert world.picker.picks == []
    assert world.commits == 1


def test_a_deadline_ends_a_delayed_rpc() -> None:
    filters = Filters(delay_s=60.0)
    world = InterceptedChannelWorld(filters)
    _, observer = world.call(timeout_s=1.0)
    world.clock.advance(1.5)
    assert observer.status.code is StatusCode.DEADLINE_EXCEEDED
    assert filters.events == ["delay starts", "delay ends", "end DEADLINE_EXCEEDED without head"]
    world.clock.advance(120.0)
    assert world.picker.picks == []
    assert len(observer.ends) == 1


def test_a_cancelled_rpc_leaves_no_timer() -> None:
    filters = Filters(delay_s=60.0)
    world = InterceptedChannelWorld(filters)
    call, observer = world.call()
    assert world.clock.timers_pending == world.timers + 1
    call.cancel()
    assert observer.status.code is StatusCode.CANCELLED
    assert filters.events == ["delay starts", "delay ends", "end CANCELLED without head"]
    assert world.clock.timers_pending == world.timers
    assert world.commits == 1


def test_filters_are_called_before_the_application() -> None:
    filters = Filters()
    world = InterceptedChannelWorld(filters)
    observer = Heads(filters)
    call = _start(world, observer)
    world.streams[0].head()
    assert observer.metadata == [(("by", "filter"),)]
    assert observer.filters_by_then == [["head"]]
    world.streams[0].end(StreamEnd(ABORT, (("k", "v"),)))
    assert observer.ends == [StreamEnd(ABORT, (("k", "v"), ("by", "filter")))]
    assert call.is_ended


def test_filters_get_that_there_was_no_head() -> None:
    filters = Filters()
    world = InterceptedChannelWorld(filters)
    _, observer = world.call()
    world.streams[0].end(StreamEnd(ABORT))
    assert filters.events == ["end ABORTED without head"]
    assert observer.ends[0].trailers == (("by", "filter"),)


class BrokenFilters(Filters):
    """Raises at one point."""

    def __init__(self, where: str, delay_s: float = 0.0) -> None:
        super().__init__(delay_s)
        self._where = where

    def _reach(self, where: str) -> None:
        if where == self._where:
            raise KeyError(where)

    def on_delay_start(self) -> None:
        self._reach("delay start")

    def on_delay_end(self) -> None:
        self._reach("delay end")

    def on_head(self, metadata: Metadata) -> Metadata:
        self._reach("head")
        return metadata

    def on_end(self, end: StreamEnd, *, had_head: bool) -> StreamEnd:
        self._reach("end")
        return end


@pytest.mark.parametrize("where", ["delay start", "delay end", "head", "end"])
def test_filter_that_raises_ends_only_its_rpc(where: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="proxyless")
    world = InterceptedChannelWorld(
        BrokenFilters(where, delay_s=2.0 if where.startswith("delay") else 0.0)
    )
    _, observer = world.call()
    world.clock.advance(2.0)
    for stream in world.streams:
        stream.respond()
    assert observer.status.code is StatusCode.INTERNAL
    assert "http filter raised KeyError" in observer.status.details
    assert "http filter raised" in caplog.text
    assert world.commits == 1
    assert world.clock.timers_pending == world.timers


def test_delayed_rpc_ends_when_a_filter_raises_during_its_cancel() -> None:
    world = InterceptedChannelWorld(BrokenFilters("delay end", delay_s=2.0))
    call, observer = world.call()
    call.cancel()
    assert observer.status.code is StatusCode.INTERNAL
    assert world.clock.timers_pending == world.timers


def _start(world: InterceptedChannelWorld, observer: CallObserver) -> Call:
    call = Call(world.channel, world.method, observer, (), None, None)
    call.start_unary(b"request")
    return call
