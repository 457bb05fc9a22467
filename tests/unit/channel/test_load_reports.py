"""Unit tests of proxyless.channel.load_reports; see also e2e/test_orca.py."""

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from proxyless.base import (
    IpAddress,
    Status,
    StatusCode,
    Trace,
    hits,
)
from proxyless.channel.load_reports import LoadReports
from proxyless.channel.subchannel_options import SubchannelOptions
from proxyless.lb import LoadReport
from proxyless.protos import message_class
from proxyless.runtime import VirtualClock
from proxyless.wire import CallListener, StreamEnd

if TYPE_CHECKING:
    from proxyless.channel.connection import SubchannelTools
    from proxyless.transport import ClientTransport

UNIMPLEMENTED = StatusCode.UNIMPLEMENTED
UNAVAILABLE = StatusCode.UNAVAILABLE


class Stream:
    """One call of the reporting method, with the backend in the test's hands."""

    def __init__(self, listener: CallListener, message: bytes) -> None:
        self.listener = listener
        request_class = message_class("xds.service.orca.v3.OrcaLoadReportRequest")
        interval = request_class.FromString(message).report_interval
        self.interval_s = interval.seconds + interval.nanos / 1e9
        self.is_ended = False

    def say(self, qps: float) -> None:
        report = message_class("xds.data.orca.v3.OrcaLoadReport")(rps_fractional=qps)
        self.listener.on_message(report.SerializeToString())

    def end(self, code: StatusCode = UNAVAILABLE) -> None:
        self._end(Status(code, "said by the backend"))

    def cancel(self, status: Status) -> None:
        if not self.is_ended:
            self._end(status)

    def _end(self, status: Status) -> None:
        self.is_ended = True
        self.listener.on_end(StreamEnd(status))


class Connection:
    """Stands in for a transport."""

    def __init__(self, *, is_usable: bool = True) -> None:
        self.streams: list[Stream] = []
        self.is_usable = is_usable

    def open_unary(self, head: bytes, listener: CallListener, message: bytes) -> Stream:
        stream = Stream(listener, message)
        self.streams.append(stream)
        if not self.is_usable:
            stream.end()
        return stream

    @property
    def stream(self) -> Stream:
        """The only one that is open."""
        [stream] = [stream for stream in self.streams if not stream.is_ended]
        return stream

    @property
    def count(self) -> int:
        """How many were opened so far."""
        return len(self.streams)


class Middle:
    """A random generator that always draws from the middle."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class World:
    """The reports of one subchannel."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.trace = Trace()
        tools = SimpleNamespace(clock=self.clock, random=Middle(), trace=self.trace)
        self.reports = LoadReports(
            IpAddress("10.0.0.1", 80), SubchannelOptions(), cast("SubchannelTools", tools)
        )
        self.heard: list[float] = []

    def connect(self, *, is_usable: bool = True) -> Connection:
        connection = Connection(is_usable=is_usable)
        self.reports.on_connection(cast("ClientTransport", connection))
        return connection

    def disconnect(self) -> None:
        self.reports.on_connection(None)

    def hear(self, report: LoadReport) -> None:
        self.heard.append(report.qps)

    def settle(self) -> None:
        self.clock.advance(0)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.disconnect()
    assert world.clock.timers_pending == 0


# ---------------------------------------------------------------------------------------------
# When there is a stream


def test_there_is_a_stream_while_somebody_listens_and_there_is_a_connection(world: World) -> None:
    connection = world.connect()
    world.settle()
    assert connection.count == 0
    cancel = world.reports.subscribe(10, world.hear)
    assert connection.count == 0, "the backend is called before the policy's call has returned"
    world.settle()
    stream = connection.stream
    cancel()
    assert stream.is_ended
    world.settle()
    assert connection.count == 1


def test_those_who_listen_before_there_is_a_connection_wait_for_it(world: World) -> None:
    world.reports.subscribe(10, world.hear)
    world.settle()
    connection = world.connect()
    world.settle()
    connection.stream.say(5)
    assert world.heard == [5]


def test_each_connection_has_its_own_stream(world: World) -> None:
    world.reports.subscribe(10, world.hear)
    first = world.connect()
    world.settle()
    old = first.stream
    world.disconnect()
    assert old.is_ended
    second = world.connect()
    world.settle()
    old.say(1)
    second.stream.say(2)
    assert world.heard == [2]
    assert first.count == 1


def test_the_same_connection_told_again_changes_nothing(world: World) -> None:
    world.reports.subscribe(10, world.hear)
    connection = world.connect()
    world.settle()
    world.reports.on_connection(cast("ClientTransport", connection))
    world.settle()
    assert connection.count == 1
    assert not connection.stream.is_ended


def test_a_cancelled_subscription_before_the_stream_starts_starts_none(world: World) -> None:
    connection = world.connect()
    cancel = world.reports.subscribe(10, world.hear)
    cancel()
    cancel()
    world.settle()
    assert connection.count == 0


# ---------------------------------------------------------------------------------------------
# Intervals


def test_the_shortest_interval_is_asked_for_and_all_are_told(world: World) -> None:
    connection = world.connect()
    others: list[float] = []
    world.reports.subscribe(10, world.hear)
    world.reports.subscribe(2.5, lambda report: others.append(report.qps))
    world.settle()
    assert connection.count == 1
    assert connection.stream.interval_s == 2.5
    connection.stream.say(7)
    assert world.heard == others == [7]


def test_a_shorter_interval_starts_the_stream_anew_and_a_longer_one_does_not(world: World) -> None:
    connection = world.connect()
    world.reports.subscribe(10, world.hear)
    world.settle()
    world.reports.subscribe(60, world.hear)
    world.settle()
    assert connection.count == 1
    cancel = world.reports.subscribe(3, world.hear)
    world.settle()
    assert (connection.count, connection.stream.interval_s) == (2, 3)
    cancel()
    world.settle()
    assert (connection.count, connection.stream.interval_s) == (3, 10)


def test_changes_of_one_turn_are_one_change(world: World) -> None:
    connection = world.connect()
    cancel = world.reports.subscribe(10, world.hear)
    world.settle()
    cancel()
    for interval_s in (9, 4, 6):
        world.reports.subscribe(interval_s, world.hear)
    world.settle()
    assert (connection.count, connection.stream.interval_s) == (2, 4)


# ---------------------------------------------------------------------------------------------
# Ends


def test_a_stream_that_brought_nothing_is_tried_again_after_a_backoff(world: World) -> None:
    connection = world.connect()
    world.reports.subscribe(10, world.hear)
    world.settle()
    for delay_s in (1, 1.6, 2.56):
        count = connection.count
        connection.stream.end()
        world.clock.advance(delay_s - 0.01)
        assert connection.count == count
        world.clock.advance(0.02)
        assert connection.count == count + 1


@pytest.mark.parametrize("code", [StatusCode.OK, UNAVAILABLE, StatusCode.INTERNAL])
def test_a_stream_that_brought_something_is_tried_again_at_once_but_only_once(
    world: World, code: StatusCode
) -> None:
    connection = world.connect()
    world.reports.subscribe(10, world.hear)
    world.settle()
    connection.stream.end()
    world.clock.advance(1)
    connection.stream.end()
    world.clock.advance(1.6)
    connection.stream.say(1)
    connection.stream.end(code)
    world.settle()
    assert connection.count == 4
    # The series of delays starts again.
    connection.stream.end()
    world.settle()
    assert connection.count == 4
    world.clock.advance(1)
    assert connection.count == 5


def test_a_backend_that_does_not_know_the_method_is_not_asked_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    connection = world.connect()
    cancel = world.reports.subscribe(10, world.hear)
    world.settle()
    with hits(world.trace, "load_reports.end") as events:
        connection.stream.end(UNIMPLEMENTED)
    assert [event.fields["address"] for event in events] == [IpAddress("10.0.0.1", 80)]
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.message == "10.0.0.1:80 does not report its load: said by the backend"
    world.clock.advance(1_000)
    cancel()
    world.reports.subscribe(5, world.hear)
    world.clock.advance(1_000)
    assert connection.count == 1
    # Another connection may lead to another server.
    after = world.connect()
    world.settle()
    assert after.count == 1


def test_a_new_connection_knows_no_backoff(world: World) -> None:
    world.reports.subscribe(10, world.hear)
    before = world.connect()
    world.settle()
    before.stream.end()
    world.disconnect()
    after = world.connect()
    world.settle()
    assert after.count == 1
    after.stream.end()
    world.clock.advance(1)
    assert after.count == 2


def test_a_connection_that_takes_no_calls_any_more_is_a_failure_like_others(world: World) -> None:
    world.reports.subscribe(10, world.hear)
    connection = world.connect(is_usable=False)
    world.settle()
    assert connection.count == 1
    world.clock.advance(1)
    assert connection.count == 2


def test_an_interval_that_changes_during_a_backoff_does_not_end_it(world: World) -> None:
    connection = world.connect()
    world.reports.subscribe(10, world.hear)
    world.settle()
    connection.stream.end()
    world.reports.subscribe(3, world.hear)
    world.clock.advance(0.9)
    assert connection.count == 1
    world.clock.advance(0.1)
    assert connection.stream.interval_s == 3


# ---------------------------------------------------------------------------------------------
# Reports


def test_nothing_is_told_after_the_end_of_a_subscription(world: World) -> None:
    connection = world.connect()
    heard: list[float] = []
    cancel = world.reports.subscribe(10, world.hear)
    world.reports.subscribe(10, lambda report: heard.append(report.qps))
    world.settle()
    cancel()
    connection.stream.say(1)
    assert (world.heard, heard) == ([], [1])


def test_a_listener_may_end_the_subscription_of_the_next_one(world: World) -> None:
    connection = world.connect()
    world.reports.subscribe(10, lambda report: cancel())
    cancel = world.reports.subscribe(10, world.hear)
    world.settle()
    connection.stream.say(1)
    assert world.heard == []


def test_a_listener_that_raises_disturbs_nobody_else(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(report: LoadReport) -> None:
        raise RuntimeError("a policy's bug")

    connection = world.connect()
    world.reports.subscribe(10, fail)
    world.reports.subscribe(10, world.hear)
    world.settle()
    connection.stream.say(1)
    assert world.heard == [1]
    assert "load listener" in caplog.text


def test_a_report_that_cannot_be_read_is_left_out(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    connection = world.connect()
    world.reports.subscribe(10, world.hear)
    world.settle()
    connection.stream.listener.on_message(b"\xff\xff")
    connection.stream.say(3)
    assert world.heard == [3]
    assert "load report of 10.0.0.1:80 cannot be read" in caplog.text
