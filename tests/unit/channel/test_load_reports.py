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
from proxyless.channel.load_reports import REPORT_BYTES_MAX, LoadReports
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
    """One call of the reporting method, whose backend the test controls."""

    def __init__(self, listener: CallListener, message: bytes) -> None:
        self.listener = listener
        request_class = message_class("xds.service.orca.v3.OrcaLoadReportRequest")
        interval = request_class.FromString(message).report_interval
        self.interval_s = interval.seconds + interval.nanos / 1e9
        self.is_ended = False

    def send_report(self, qps: float) -> None:
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
    """A fake transport."""

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
        """The only open stream."""
        [stream] = [stream for stream in self.streams if not stream.is_ended]
        return stream

    @property
    def count(self) -> int:
        """Number of streams opened so far."""
        return len(self.streams)


class Middle:
    """A random generator that always returns the middle of the range."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class LoadReportsWorld:
    """The reports of one subchannel."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.trace = Trace()
        tools = SimpleNamespace(clock=self.clock, random=Middle(), trace=self.trace)
        self.reports = LoadReports(
            IpAddress("10.0.0.1", 80), SubchannelOptions(), cast("SubchannelTools", tools)
        )
        self.received: list[float] = []

    def connect(self, *, is_usable: bool = True) -> Connection:
        connection = Connection(is_usable=is_usable)
        self.reports.on_connection(cast("ClientTransport", connection))
        return connection

    def disconnect(self) -> None:
        self.reports.on_connection(None)

    def on_report(self, report: LoadReport) -> None:
        self.received.append(report.qps)

    def settle(self) -> None:
        self.clock.advance(0)


@pytest.fixture
def world() -> Iterator[LoadReportsWorld]:
    world = LoadReportsWorld()
    yield world
    world.disconnect()
    assert world.clock.timers_pending == 0


# ---------------------------------------------------------------------------------------------
# Start and stop of the stream


def test_stream_is_open_while_there_are_subscriptions_and_a_connection(
    world: LoadReportsWorld,
) -> None:
    connection = world.connect()
    world.settle()
    assert connection.count == 0
    cancel = world.reports.subscribe(10, world.on_report)
    assert connection.count == 0, "the backend is called before the policy's call has returned"
    world.settle()
    stream = connection.stream
    cancel()
    assert stream.is_ended
    world.settle()
    assert connection.count == 1


def test_subscription_before_the_connection_waits_for_it(world: LoadReportsWorld) -> None:
    world.reports.subscribe(10, world.on_report)
    world.settle()
    connection = world.connect()
    world.settle()
    connection.stream.send_report(5)
    assert world.received == [5]


def test_each_connection_has_its_own_stream(world: LoadReportsWorld) -> None:
    world.reports.subscribe(10, world.on_report)
    first = world.connect()
    world.settle()
    old = first.stream
    world.disconnect()
    assert old.is_ended
    second = world.connect()
    world.settle()
    old.send_report(1)
    second.stream.send_report(2)
    assert world.received == [2]
    assert first.count == 1


def test_repeated_notification_of_a_connection_changes_nothing(world: LoadReportsWorld) -> None:
    world.reports.subscribe(10, world.on_report)
    connection = world.connect()
    world.settle()
    world.reports.on_connection(cast("ClientTransport", connection))
    world.settle()
    assert connection.count == 1
    assert not connection.stream.is_ended


def test_no_stream_is_started_when_the_subscription_is_cancelled_at_once(
    world: LoadReportsWorld,
) -> None:
    connection = world.connect()
    cancel = world.reports.subscribe(10, world.on_report)
    cancel()
    cancel()
    world.settle()
    assert connection.count == 0


# ---------------------------------------------------------------------------------------------
# Intervals


def test_shortest_interval_is_requested_and_all_listeners_are_called(
    world: LoadReportsWorld,
) -> None:
    connection = world.connect()
    others: list[float] = []
    world.reports.subscribe(10, world.on_report)
    world.reports.subscribe(2.5, lambda report: others.append(report.qps))
    world.settle()
    assert connection.count == 1
    assert connection.stream.interval_s == 2.5
    connection.stream.send_report(7)
    assert world.received == others == [7]


def test_stream_is_restarted_for_a_shorter_interval_only(world: LoadReportsWorld) -> None:
    connection = world.connect()
    world.reports.subscribe(10, world.on_report)
    world.settle()
    world.reports.subscribe(60, world.on_report)
    world.settle()
    assert connection.count == 1
    cancel = world.reports.subscribe(3, world.on_report)
    world.settle()
    assert (connection.count, connection.stream.interval_s) == (2, 3)
    cancel()
    world.settle()
    assert (connection.count, connection.stream.interval_s) == (3, 10)


def test_changes_within_one_turn_restart_the_stream_once(world: LoadReportsWorld) -> None:
    connection = world.connect()
    cancel = world.reports.subscribe(10, world.on_report)
    world.settle()
    cancel()
    for interval_s in (9, 4, 6):
        world.reports.subscribe(interval_s, world.on_report)
    world.settle()
    assert (connection.count, connection.stream.interval_s) == (2, 4)


# ---------------------------------------------------------------------------------------------
# Ends of the stream


def test_stream_without_a_report_is_retried_after_a_backoff(world: LoadReportsWorld) -> None:
    connection = world.connect()
    world.reports.subscribe(10, world.on_report)
    world.settle()
    for delay_s in (1, 1.6, 2.56):
        count = connection.count
        connection.stream.end()
        world.clock.advance(delay_s - 0.01)
        assert connection.count == count
        world.clock.advance(0.02)
        assert connection.count == count + 1


@pytest.mark.parametrize("code", [StatusCode.OK, UNAVAILABLE, StatusCode.INTERNAL])
def test_stream_with_a_report_is_retried_at_once_but_only_once(
    world: LoadReportsWorld, code: StatusCode
) -> None:
    connection = world.connect()
    world.reports.subscribe(10, world.on_report)
    world.settle()
    connection.stream.end()
    world.clock.advance(1)
    connection.stream.end()
    world.clock.advance(1.6)
    connection.stream.send_report(1)
    connection.stream.end(code)
    world.settle()
    assert connection.count == 4
    # The backoff was reset.
    connection.stream.end()
    world.settle()
    assert connection.count == 4
    world.clock.advance(1)
    assert connection.count == 5


def test_stream_is_not_retried_when_it_is_unimplemented(
    world: LoadReportsWorld, caplog: pytest.LogCaptureFixture
) -> None:
    connection = world.connect()
    cancel = world.reports.subscribe(10, world.on_report)
    world.settle()
    with hits(world.trace, "load_reports.end") as events:
        connection.stream.end(UNIMPLEMENTED)
    assert [event.fields["address"] for event in events] == [IpAddress("10.0.0.1", 80)]
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.message == "10.0.0.1:80 does not report its load: said by the backend"
    world.clock.advance(1_000)
    cancel()
    world.reports.subscribe(5, world.on_report)
    world.clock.advance(1_000)
    assert connection.count == 1
    # A new connection may have another server.
    after = world.connect()
    world.settle()
    assert after.count == 1


def test_new_connection_resets_the_backoff(world: LoadReportsWorld) -> None:
    world.reports.subscribe(10, world.on_report)
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


def test_unusable_connection_counts_as_a_failure(world: LoadReportsWorld) -> None:
    world.reports.subscribe(10, world.on_report)
    connection = world.connect(is_usable=False)
    world.settle()
    assert connection.count == 1
    world.clock.advance(1)
    assert connection.count == 2


def test_an_interval_that_changes_during_a_backoff_does_not_end_it(world: LoadReportsWorld) -> None:
    connection = world.connect()
    world.reports.subscribe(10, world.on_report)
    world.settle()
    connection.stream.end()
    world.reports.subscribe(3, world.on_report)
    world.clock.advance(0.9)
    assert connection.count == 1
    world.clock.advance(0.1)
    assert connection.stream.interval_s == 3


# ---------------------------------------------------------------------------------------------
# Reports


def test_listener_is_not_called_after_its_subscription_is_cancelled(
    world: LoadReportsWorld,
) -> None:
    connection = world.connect()
    received: list[float] = []
    cancel = world.reports.subscribe(10, world.on_report)
    world.reports.subscribe(10, lambda report: received.append(report.qps))
    world.settle()
    cancel()
    connection.stream.send_report(1)
    assert (world.received, received) == ([], [1])


def test_listener_may_cancel_the_next_subscription(world: LoadReportsWorld) -> None:
    connection = world.connect()
    world.reports.subscribe(10, lambda report: cancel())
    cancel = world.reports.subscribe(10, world.on_report)
    world.settle()
    connection.stream.send_report(1)
    assert world.received == []


def test_other_listeners_are_called_when_a_load_listener_raises(
    world: LoadReportsWorld, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(report: LoadReport) -> None:
        raise RuntimeError("a policy's bug")

    connection = world.connect()
    world.reports.subscribe(10, fail)
    world.reports.subscribe(10, world.on_report)
    world.settle()
    connection.stream.send_report(1)
    assert world.received == [1]
    assert "load listener" in caplog.text


def test_report_that_cannot_be_parsed_is_ignored(
    world: LoadReportsWorld, caplog: pytest.LogCaptureFixture
) -> None:
    connection = world.connect()
    world.reports.subscribe(10, world.on_report)
    world.settle()
    for data in (b"\xff\xff", bytes(REPORT_BYTES_MAX + 1)):
        connection.stream.listener.on_message(data)
        world.settle()
    connection.stream.send_report(3)
    assert world.received == [3]
    # Once for a stream.
    assert caplog.text.count("load report of 10.0.0.1:80 cannot be read") == 1


def test_one_report_is_delivered_in_a_turn_when_there_are_many(world: LoadReportsWorld) -> None:
    connection = world.connect()
    world.reports.subscribe(10, world.on_report)
    world.settle()
    for number in range(1, 1001):
        connection.stream.send_report(number)
    assert world.received == [1]
    world.settle()
    assert world.received == [1, 1000]
    connection.stream.send_report(1001)
    world.settle()
    assert world.received == [1, 1000, 1001]


def test_last_report_of_a_turn_is_delivered_when_the_stream_has_ended(
    world: LoadReportsWorld,
) -> None:
    connection = world.connect()
    world.reports.subscribe(10, world.on_report)
    world.settle()
    stream = connection.stream
    stream.send_report(1)
    stream.send_report(2)
    stream.end()
    world.settle()
    assert world.received == [1, 2]
