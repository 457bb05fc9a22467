"""Unit tests of proxyless.front.aio.outcomes, with a fake call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import grpc.aio
import pytest

from proxyless.base import OK, Status, StatusCode
from proxyless.channel.statuses import CANCELLED
from proxyless.front.aio.calls import UnaryUnaryCall
from proxyless.front.aio.outcomes import StreamOutcome
from proxyless.wire import StreamEnd
from proxyless.wire.limits import BUFFERED_BYTES_MAX
from proxyless.wire.messages import Unpacking
from tests.worlds.fake_sockets import turn
from tests.worlds.unread_calls import FakeChannel

if TYPE_CHECKING:
    from proxyless.channel import Call
    from proxyless.front.conversions import Deserializer

END_FROM_TRAILERS = StreamEnd(OK, (("t", "1"),), is_from_trailers=True)
LOST = StreamEnd(Status(StatusCode.UNAVAILABLE, "gone"))


class FakeCall:
    """A call that the test controls."""

    def __init__(self, outcome: StreamOutcome) -> None:
        self._outcome = outcome
        self._channel = self.channel = FakeChannel()
        self.is_ended = False
        self.is_connected = False
        self.calls: list[str] = []
        # Responses that are kept packed, and the end behind them.
        self.packed: list[bytes] = []
        self.undelivered_end: StreamEnd | None = None

    def end(self, end: StreamEnd) -> None:
        if not self.is_ended:
            self.is_ended = True
            self._outcome.on_end(end)

    def cancel(self, status: Status) -> None:
        self.end(StreamEnd(status))

    def time_remaining_s(self) -> float | None:
        return 7.0

    def hold(self) -> None:
        self.calls.append("hold")

    def release(self) -> None:
        self.calls.append("release")

    def request_message(self) -> None:
        self.calls.append("request")
        if self.packed:
            self._outcome.on_message(self.packed.pop(0))
            if not self.packed and self.undelivered_end is not None:
                self.end(self.undelivered_end)


def start(
    deserializer: Deserializer = None, *, has_head: bool = True
) -> tuple[StreamOutcome, FakeCall, list[str]]:
    """An outcome, its call, and the calls of its callbacks."""
    outcome = StreamOutcome(asyncio.get_running_loop(), deserializer)
    call = FakeCall(outcome)
    outcome.call = cast("Call", call)
    outcome.is_starting = False
    if has_head:
        outcome.on_head(())
    called: list[str] = []
    outcome.call_when_done(lambda: called.append("done"))
    outcome.stop_sending = lambda: called.append("stop")
    return outcome, call, called


async def test_a_response_is_deserialized_once_if_the_end_is_delivered_later() -> None:
    outcome = UnaryUnaryCall(asyncio.get_running_loop(), lambda message: message + b"!")
    outcome.on_message(b"1")
    # The stub has not returned yet, so the end is delivered in a later turn.
    outcome.on_end(END_FROM_TRAILERS)
    assert outcome.end is None
    assert await outcome == b"1!"


async def test_a_unary_call_has_no_dictionary_entries() -> None:
    # Python gives up sharing the keys of dictionaries if many calls start before the first ends.
    outcome = UnaryUnaryCall(asyncio.get_running_loop(), None)
    outcome.call = cast("Call", object())
    outcome.is_starting = False
    outcome.on_head(())
    outcome.on_message(b"1")
    outcome.on_end(END_FROM_TRAILERS)
    assert await outcome == b"1"
    assert vars(outcome) == {}


async def test_failure_without_headers_is_delivered_in_a_later_turn() -> None:
    outcome, call, called = start(has_head=False)
    call.end(LOST)
    assert (outcome.end, called) == (None, [])
    assert await outcome.wait_end() == LOST
    assert called == ["stop", "done"]


async def test_an_end_from_trailers_is_delivered_when_everything_is_read() -> None:
    outcome, call, called = start()
    outcome.on_message(b"1")
    outcome.on_message(b"2")
    call.end(END_FROM_TRAILERS)
    # Sending ends at once, before the responses are read.
    assert (outcome.end, called) == (None, ["stop"])
    assert await outcome.read() == b"1"
    assert (outcome.end, called) == (None, ["stop"])
    assert await outcome.read() == b"2"
    assert outcome.end == END_FROM_TRAILERS
    assert called[-1] == "done"
    assert await outcome.read() is grpc.aio.EOF
    assert not outcome.cancel()
    assert call.channel.is_left_alone


@pytest.mark.parametrize("code", [StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED])
async def test_an_unread_rpc_ends_at_its_deadline_or_with_its_channel(
    code: StatusCode,
) -> None:
    outcome, call, called = start()
    outcome.on_message(b"1")
    outcome.on_message(b"2")
    call.end(END_FROM_TRAILERS)
    assert await outcome.read() == b"1"
    waiting = asyncio.ensure_future(outcome.wait_end())
    call.channel.clock.advance(6.9)
    await turn()
    assert not waiting.done()
    if code is StatusCode.CANCELLED:
        call.channel.close(CANCELLED)
    else:
        call.channel.clock.advance(0.2)
    end = await waiting
    assert (end.status.code, called.count("done")) == (code, 1)
    assert call.channel.is_left_alone
    # The responses stay readable, and the pending end is replaced.
    assert [await outcome.read(), await outcome.read()] == [b"2", grpc.aio.EOF]
    assert outcome.end is end
    assert not outcome.cancel()


async def test_any_other_end_is_delivered_at_once_and_responses_stay_readable() -> None:
    outcome, call, called = start()
    outcome.on_message(b"1")
    call.end(LOST)
    assert (outcome.end, called) == (LOST, ["stop", "done"])
    assert [await outcome.read(), await outcome.read()] == [b"1", grpc.aio.EOF]


@pytest.mark.parametrize("has_pending_end", [False, True])
async def test_a_cancelled_call_has_no_more_responses(has_pending_end: bool) -> None:
    outcome, call, called = start()
    outcome.on_message(b"1")
    if has_pending_end:
        call.end(END_FROM_TRAILERS)
    assert outcome.cancel()
    assert called[-1] == "done"
    assert outcome.end == StreamEnd(CANCELLED)
    assert await outcome.read() is grpc.aio.EOF
    assert not outcome.cancel()
    assert call.channel.is_left_alone


@pytest.mark.parametrize("has_pending_end", [False, True])
async def test_a_response_that_cannot_be_deserialized_ends_the_call(has_pending_end: bool) -> None:
    def broken(_: bytes) -> object:
        raise ValueError("what is this?")

    outcome, call, called = start(broken)
    outcome.on_message(b"1")
    outcome.on_message(b"2")
    if has_pending_end:
        call.end(END_FROM_TRAILERS)
    assert await outcome.read() is grpc.aio.EOF
    assert outcome.end is not None
    assert outcome.end.status.code is StatusCode.INTERNAL
    assert outcome.end.trailers == (END_FROM_TRAILERS.trailers if has_pending_end else ())
    assert call.channel.is_left_alone
    assert called[-1] == "done"
    assert await outcome.read() is grpc.aio.EOF


async def test_a_packed_response_is_requested_when_it_is_read() -> None:
    outcome, call, called = start()
    assert outcome.choose_unpacking() is Unpacking.ON_READ
    call.packed, call.undelivered_end = [b"1", b"2"], END_FROM_TRAILERS
    assert call.calls == []
    assert await outcome.read() == b"1"
    assert call.calls == ["request"]
    assert not called
    assert await outcome.read() == b"2"
    assert outcome.end == END_FROM_TRAILERS
    assert await outcome.read() is grpc.aio.EOF
    assert call.calls == ["request", "request"]
    assert called[-1] == "done"


async def test_a_reader_that_came_before_the_head_requests_a_packed_response() -> None:
    outcome, call, _ = start()
    reading = asyncio.ensure_future(outcome.read())
    await turn()
    assert call.calls == []
    outcome.choose_unpacking()
    await turn()
    assert call.calls == ["request"]
    outcome.on_message(b"1")
    assert await reading == b"1"


@pytest.mark.parametrize("is_packed", [True, False])
async def test_sending_ends_when_the_server_has_ended_behind_unread_responses(
    is_packed: bool,
) -> None:
    outcome, call, called = start()
    if is_packed:
        outcome.choose_unpacking()
    else:
        outcome.on_message(bytes(BUFFERED_BYTES_MAX))
    outcome.on_writable()
    assert (called, outcome.received_end) == ([], None)
    call.undelivered_end = END_FROM_TRAILERS
    outcome.on_writable()
    assert called == ["stop"]
    assert (outcome.received_end, outcome.end) == (END_FROM_TRAILERS, None)


async def test_a_reader_that_lags_holds_the_call() -> None:
    outcome, call, _ = start()
    outcome.on_message(bytes(BUFFERED_BYTES_MAX))
    assert call.calls == ["hold"]
    await outcome.read()
    assert call.calls == ["hold", "release"]


async def test_a_bad_response_precedes_the_end_that_release_delivers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: bytes) -> object:
        raise ValueError("what is this?")

    outcome, call, _ = start(broken)
    monkeypatch.setattr(call, "release", lambda: call.end(END_FROM_TRAILERS))
    outcome.on_message(bytes(BUFFERED_BYTES_MAX))
    assert await outcome.read() is grpc.aio.EOF
    assert outcome.end is not None
    assert outcome.end.status.code is StatusCode.INTERNAL


async def test_a_response_precedes_the_end_that_release_delivers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome, call, _ = start()
    monkeypatch.setattr(call, "release", lambda: call.end(END_FROM_TRAILERS))
    outcome.on_message(bytes(BUFFERED_BYTES_MAX))
    assert len(await outcome.read()) == BUFFERED_BYTES_MAX
    assert outcome.end == END_FROM_TRAILERS


async def test_a_waiter_that_timed_out_is_removed() -> None:
    outcome, call, _ = start(has_head=False)
    for wait in (outcome.wait_head, outcome.wait_connected, outcome.wait_end):
        tasks = [asyncio.ensure_future(wait()) for _ in range(3)]
        await turn()
        assert len(outcome._waiters) + len(outcome._end_waiters) == 3
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert (outcome._waiters, outcome._end_waiters) == ((), ())
    waiting = asyncio.ensure_future(outcome.wait_connected())
    await turn()
    call.is_connected = True
    outcome.on_head(())
    await waiting
    assert outcome._waiters == ()


async def test_wait_for_connection_returns_if_the_end_is_pending() -> None:
    outcome, call, _ = start()
    outcome.on_message(b"1")
    call.end(END_FROM_TRAILERS)
    await outcome.wait_connected()
