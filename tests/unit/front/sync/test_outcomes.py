"""Unit tests of proxyless.front.sync.outcomes, with a fake call and a fake background."""

from collections.abc import Callable
from threading import Thread

import pytest

from proxyless.base import EMPTY_METADATA, OK, State, Status, StatusCode
from proxyless.channel import Call
from proxyless.channel.channel import CHANNEL_CLOSED
from proxyless.channel.unread_call import UnreadCall, track_unread
from proxyless.front.conversions import COLLECTED
from proxyless.front.sync import outcomes as sync_outcomes
from proxyless.front.sync.outcomes import NO_MORE, Outcome, Waiters
from proxyless.wire import StreamEnd
from proxyless.wire.limits import BUFFERED_BYTES_MAX, MESSAGE_OVERHEAD_BYTES
from proxyless.wire.messages import Unpacking
from tests.worlds.sync_outcomes import END_FROM_TRAILERS, ENDED, FAILED, OutcomeWorld

PATIENCE_S = 20.0


@pytest.fixture
def world() -> OutcomeWorld:
    return OutcomeWorld()


def broken(_: bytes) -> object:
    raise ValueError("what is this?")


def code_of(outcome: Outcome) -> StatusCode:
    end = outcome.wait_end(0)
    assert end is not None, "the RPC has ended"
    return end.status.code


# Waiting


def test_wait_once_returns_at_once_if_the_condition_is_met() -> None:
    Waiters().wait_once(lambda: True)


def test_every_thread_that_waits_is_woken() -> None:
    waiters = Waiters()
    changes: list[str] = []
    threads = [
        Thread(target=waiters.wait_once, args=(lambda: bool(changes),), daemon=True)
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    changes.append("change")
    waiters.wake()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_waiter_that_timed_out_is_removed() -> None:
    waiters = Waiters()
    for timeout_s in (0.0, -1.0, 0.001):
        waiters.wait_once(lambda: False, timeout_s)
    assert not waiters
    waiters.wake()


def test_a_wait_without_timeout_handles_signals_regularly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    class SlowLock:
        """Is acquired at the third attempt."""

        def acquire(self, timeout: float = -1.0) -> bool:
            waits.append(timeout)
            return len(waits) in {1, 4}

    monkeypatch.setattr(sync_outcomes, "Lock", SlowLock)
    Waiters().wait_once(lambda: False)
    assert waits == [-1.0, *[sync_outcomes.SIGNALS_SEEN_AFTER_S] * 3]


def test_a_timeout_may_be_longer_than_the_maximum_of_a_lock() -> None:
    waiters = Waiters()

    def is_met() -> bool:
        waiters.wake()
        return False

    waiters.wait_once(is_met, 1e300)


def test_waking_twice_wakes_once() -> None:
    waiters = Waiters()
    waiters.wait_once(lambda: True)
    waiters.wake()
    waiters.wake()


# The end


def test_wait_end_returns_none_after_the_timeout(world: OutcomeWorld) -> None:
    assert world.unary().wait_end(0.001) is None


def test_the_first_end_is_kept(world: OutcomeWorld) -> None:
    outcome = world.unary()
    assert outcome.cancel()
    outcome.on_end(FAILED)
    assert code_of(outcome) is StatusCode.CANCELLED
    assert not outcome.cancel()
    world.expect_calls(StatusCode.CANCELLED)


def test_cancelling_an_ended_rpc_returns_false(world: OutcomeWorld) -> None:
    outcome = world.unary()
    outcome.on_end(FAILED)
    assert not outcome.cancel()
    assert not outcome.is_cancelled
    assert outcome.end == FAILED
    world.expect_calls()


def test_a_call_that_is_freed_is_cancelled_only_while_running(world: OutcomeWorld) -> None:
    outcome = world.stream()
    outcome.collect()
    world.expect_calls(StatusCode.CANCELLED)
    outcome.on_end(ENDED)
    outcome.collect()
    world.expect_calls()


def test_callbacks_run_once_and_not_on_the_loop(world: OutcomeWorld) -> None:
    outcome = world.unary()
    assert outcome.call_when_done(lambda: None)
    assert not world.callbacks.posted
    outcome.on_end(FAILED)
    assert len(world.callbacks.posted) == 1
    assert not outcome.call_when_done(lambda: None)


def test_callbacks_of_a_cancelled_call_run_when_the_call_has_ended(
    world: OutcomeWorld,
) -> None:
    outcome = world.unary()
    outcome.call_when_done(lambda: None)
    outcome.cancel()
    assert not world.callbacks.posted
    outcome.on_end(FAILED)
    assert len(world.callbacks.posted) == 1


def test_the_end_wakes_threads_that_wait_for_metadata(world: OutcomeWorld) -> None:
    outcome = world.unary()
    outcome.on_end(FAILED)
    assert outcome.wait_head() == EMPTY_METADATA


def test_wait_head_returns_the_metadata_of_the_head(world: OutcomeWorld) -> None:
    outcome = world.unary()
    outcome.on_head((("x", "1"),))
    assert outcome.wait_head() == (("x", "1"),)


# The start


def test_a_call_with_one_request_starts_with_it(world: OutcomeWorld) -> None:
    outcome = world.unary()
    outcome.request = b""
    outcome.start()
    world.expect_calls(("start", b""))


def test_a_call_that_was_cancelled_before_its_start_ends_at_once(world: OutcomeWorld) -> None:
    outcome = world.unary()
    outcome.cancel()
    outcome.start()
    world.expect_calls(("start failed", StatusCode.CANCELLED), StatusCode.CANCELLED)


def test_call_ends_at_once_when_its_channel_is_closed(world: OutcomeWorld) -> None:
    world.core.state = State.SHUTDOWN
    outcome = world.unary()
    outcome.start()
    world.expect_calls(("start failed", StatusCode.CANCELLED))


def test_at_exit_the_call_of_a_daemon_thread_does_not_end(world: OutcomeWorld) -> None:
    world.core.state = State.SHUTDOWN
    world.background.is_usable = False
    world.unary().start()
    world.expect_calls()


def test_an_exception_at_the_start_ends_the_call(
    world: OutcomeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.call, "start", lambda: broken(b""))
    world.unary().start()
    world.expect_calls(StatusCode.INTERNAL)


def test_a_call_of_the_parent_has_ended_in_the_child(world: OutcomeWorld) -> None:
    world.background.is_abandoned = True
    assert code_of(world.unary()) is StatusCode.CANCELLED
    assert world.stream().read() is NO_MORE


def test_the_time_remaining_is_read_on_the_loop_while_it_runs(world: OutcomeWorld) -> None:
    outcome = world.unary()
    assert outcome.time_remaining_s() == 7.0
    world.background.is_usable = False
    assert outcome.time_remaining_s() is None


# One response


def test_a_response_is_deserialized_once_when_it_is_waited_for(world: OutcomeWorld) -> None:
    seen: list[bytes] = []

    def note(message: bytes) -> str:
        seen.append(message)
        return message.decode()

    outcome = world.unary(note)
    outcome.on_message(b"reply")
    outcome.on_end(ENDED)
    assert not seen
    assert [code_of(outcome), code_of(outcome)] == [StatusCode.OK] * 2
    assert outcome.response == "reply"
    assert seen == [b"reply"]


def test_signal_handler_may_cancel_while_its_thread_deserializes(world: OutcomeWorld) -> None:
    """A handler runs in the main thread, in the middle of what that does."""
    results: list[bool] = []

    def interrupted(message: bytes) -> bytes:
        results.extend([outcome.cancel(), outcome.call_when_done(lambda: None)])
        return message

    outcome = world.unary(interrupted)
    outcome.on_message(b"a")
    outcome.on_end(ENDED)
    thread = Thread(target=outcome.wait_end, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert (results, outcome.response) == ([False, False], b"a")


def test_a_response_that_cannot_be_deserialized_is_an_internal_error_with_trailers(
    world: OutcomeWorld,
) -> None:
    outcome = world.unary(broken)
    outcome.on_message(b"")
    outcome.on_end(StreamEnd(OK, (("t", "1"),)))
    assert code_of(outcome) is StatusCode.INTERNAL
    assert outcome.end is not None
    assert outcome.end.trailers == (("t", "1"),)


def test_the_response_of_a_failed_call_is_not_deserialized(world: OutcomeWorld) -> None:
    outcome = world.unary(broken)
    outcome.on_message(b"")
    outcome.on_end(FAILED)
    assert code_of(outcome) is StatusCode.ABORTED
    assert outcome.response is None


def test_unary_outcome_is_unimplemented_when_ok_comes_without_a_message(
    world: OutcomeWorld,
) -> None:
    outcome = world.unary()
    outcome.on_end(ENDED)
    assert code_of(outcome) is StatusCode.UNIMPLEMENTED


def test_a_second_message_cancels_the_call(world: OutcomeWorld) -> None:
    outcome = world.unary()
    outcome.on_message(b"")
    world.expect_calls()
    outcome.on_message(b"")
    world.expect_calls(StatusCode.UNIMPLEMENTED)


# Many responses


def test_messages_are_read_in_order_and_before_the_end(world: OutcomeWorld) -> None:
    outcome = world.stream()
    outcome.on_message(b"1")
    outcome.on_message(b"2")
    outcome.on_end(FAILED)
    assert [outcome.read() for _ in range(4)] == [b"1", b"2", NO_MORE, NO_MORE]


def test_a_cancelled_stream_has_no_more_responses(world: OutcomeWorld) -> None:
    outcome = world.stream()
    outcome.on_message(b"1")
    outcome.cancel()
    assert outcome.read() is NO_MORE


def test_a_packed_response_is_requested_when_it_is_read(
    world: OutcomeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = world.stream()
    assert outcome.choose_unpacking() is Unpacking.ON_READ
    packed = [b"1", b"2"]
    world.call.on_request = lambda: outcome.on_message(packed.pop(0))
    # The loop runs what is posted at once.
    monkeypatch.setattr(world.background, "post", lambda action: action())
    assert outcome.read() == b"1"
    assert world.call.calls == ["request"]
    assert outcome.read() == b"2"
    world.expect_calls("request", "request")


def test_a_packed_response_is_not_requested_while_one_is_unread(world: OutcomeWorld) -> None:
    outcome = world.stream()
    outcome.choose_unpacking()
    outcome.on_message(b"1")
    outcome._request_message()
    assert outcome.read() == b"1"
    world.expect_calls()


def test_a_reader_that_came_before_the_head_requests_a_packed_response(
    world: OutcomeWorld,
) -> None:
    outcome = world.stream()
    found: list[object] = []
    reader = Thread(target=lambda: found.append(outcome.read()))
    reader.start()
    while not outcome._waiters:
        pass
    outcome.choose_unpacking()
    while not world.background.posted:
        pass
    world.call.on_request = lambda: outcome.on_message(b"1")
    world.expect_calls("request")
    reader.join()
    assert found == [b"1"]


def test_an_end_behind_unread_responses_takes_no_requests(world: OutcomeWorld) -> None:
    outcome = world.stream()
    outcome.choose_unpacking()
    assert outcome.takes_requests
    world.call.undelivered_end = END_FROM_TRAILERS
    assert not outcome.takes_requests


def test_a_full_queue_holds_the_server_until_it_is_half_empty(world: OutcomeWorld) -> None:
    outcome = world.stream()
    quarter = bytes(BUFFERED_BYTES_MAX // 4 - MESSAGE_OVERHEAD_BYTES)
    for _ in range(4):
        outcome.on_message(quarter)
    world.expect_calls()
    outcome.on_message(quarter)
    world.expect_calls("hold")
    outcome.on_message(quarter)
    outcome.read()
    outcome.read()
    outcome.read()
    world.expect_calls()
    outcome.read()
    world.expect_calls("release")
    outcome.read()
    world.expect_calls()


def test_a_reader_that_takes_everything_before_the_hold_does_not_stall_the_call(
    world: OutcomeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = world.stream()

    def hold() -> None:
        # The reader takes everything between `_is_held` and the effect of `hold`.
        outcome._is_held = False
        outcome.read()
        outcome._is_held = True
        world.call.calls.append("hold")

    monkeypatch.setattr(world.call, "hold", hold)
    outcome.on_message(bytes(BUFFERED_BYTES_MAX + 1))
    world.expect_calls("hold", "release")


def test_a_message_that_cannot_be_deserialized_ends_the_call(world: OutcomeWorld) -> None:
    outcome = world.stream(broken)
    outcome.on_message(b"1")
    outcome.on_message(b"2")
    assert outcome.read() is NO_MORE
    assert code_of(outcome) is StatusCode.INTERNAL
    assert outcome.read() is NO_MORE
    world.expect_calls(StatusCode.INTERNAL)


def test_a_message_that_cannot_be_deserialized_replaces_ok(world: OutcomeWorld) -> None:
    outcome = world.stream(broken)
    outcome.on_message(b"1")
    outcome.on_end(StreamEnd(OK, (("t", "1"),)))
    assert outcome.read() is NO_MORE
    assert code_of(outcome) is StatusCode.INTERNAL
    world.expect_calls()


def test_a_message_that_cannot_be_deserialized_keeps_the_error_of_the_server(
    world: OutcomeWorld,
) -> None:
    outcome = world.stream(broken)
    outcome.on_message(b"1")
    outcome.on_end(FAILED)
    assert outcome.read() is NO_MORE
    assert outcome.end == FAILED


def test_a_deserializer_that_returns_nothing_is_an_error(world: OutcomeWorld) -> None:
    unary, stream = world.unary(lambda _: None), world.stream(lambda _: None)
    unary.on_message(b"1")
    unary.on_end(END_FROM_TRAILERS)
    stream.on_message(b"1")
    assert stream.read() is NO_MORE
    assert [code_of(unary), code_of(stream)] == [StatusCode.INTERNAL] * 2


# An end from trailers


def test_an_end_from_trailers_is_delivered_when_everything_is_read(world: OutcomeWorld) -> None:
    outcome = world.stream()
    assert outcome.call_when_done(lambda: None)
    outcome.on_message(b"1")
    outcome.on_message(b"2")
    outcome.on_end(END_FROM_TRAILERS)
    assert outcome.read() == b"1"
    assert (outcome.end, outcome.wait_end(0), world.callbacks.posted) == (None, None, [])
    assert not outcome.takes_requests
    assert outcome.read() == b"2"
    assert outcome.wait_end() == END_FROM_TRAILERS
    assert len(world.callbacks.posted) == 1
    assert outcome.read() is NO_MORE
    assert not outcome.cancel()
    world.expect_calls()
    assert world.channel.is_left_alone


def test_an_end_from_trailers_without_responses_is_delivered_at_once(world: OutcomeWorld) -> None:
    outcome = world.stream()
    outcome.on_end(END_FROM_TRAILERS)
    assert outcome.end == END_FROM_TRAILERS
    assert outcome.read() is NO_MORE


def test_any_other_end_is_delivered_at_once_and_responses_stay_readable(
    world: OutcomeWorld,
) -> None:
    outcome = world.stream()
    outcome.on_message(b"1")
    outcome.on_end(FAILED)
    assert outcome.end == FAILED
    assert [outcome.read(), outcome.read()] == [b"1", NO_MORE]


def test_an_rpc_whose_responses_are_not_read_may_be_cancelled(world: OutcomeWorld) -> None:
    outcome = world.stream()
    assert outcome.call_when_done(lambda: None)
    outcome.on_message(b"1")
    outcome.on_end(END_FROM_TRAILERS)
    assert outcome.cancel()
    assert len(world.callbacks.posted) == 1
    assert code_of(outcome) is StatusCode.CANCELLED
    assert outcome.read() is NO_MORE
    assert not outcome.cancel()
    world.background.run()
    assert world.channel.is_left_alone


@pytest.mark.parametrize("code", [StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED])
def test_an_unread_rpc_ends_at_its_deadline_or_with_its_channel(
    world: OutcomeWorld, code: StatusCode
) -> None:
    outcome = world.stream()
    assert outcome.call_when_done(lambda: None)
    outcome.on_message(b"1")
    outcome.on_message(b"2")
    outcome.on_end(END_FROM_TRAILERS)
    assert outcome.read() == b"1"
    waiting = Thread(target=outcome.wait_end, daemon=True)
    waiting.start()
    world.channel.clock.advance(6.9)
    assert outcome.end is None
    if code is StatusCode.CANCELLED:
        world.channel.close(CHANNEL_CLOSED)
    else:
        world.channel.clock.advance(0.2)
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    assert (code_of(outcome), outcome.is_cancelled) == (code, False)
    assert len(world.callbacks.posted) == 1
    # The responses stay readable, and the pending end is replaced.
    assert [outcome.read(), outcome.read()] == [b"2", NO_MORE]
    assert code_of(outcome) is code
    assert not outcome.cancel()
    world.background.run()
    assert world.channel.is_left_alone


def test_an_unread_rpc_ends_when_its_call_is_freed(world: OutcomeWorld) -> None:
    outcome = world.stream()
    assert outcome.call_when_done(lambda: None)
    outcome.on_message(b"1")
    outcome.on_end(END_FROM_TRAILERS)
    outcome.collect()
    # Posted to the loop, because it may run in any thread, with any lock held.
    assert outcome.wait_end(0) is None
    world.background.run()
    assert outcome.end == StreamEnd(COLLECTED)
    assert len(world.callbacks.posted) == 1
    assert world.channel.is_left_alone


def test_the_last_response_may_be_read_before_the_unread_call_is_set(
    world: OutcomeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = world.stream()
    outcome.on_message(b"1")

    def read_first(call: Call, on_unread_end: Callable[[Status], None]) -> UnreadCall:
        assert outcome.read() == b"1"
        return track_unread(call, on_unread_end)

    monkeypatch.setattr(sync_outcomes, "track_unread", read_first)
    outcome.on_end(END_FROM_TRAILERS)
    assert outcome.end == END_FROM_TRAILERS
    world.background.run()
    assert world.channel.is_left_alone


def test_a_response_that_comes_after_a_cancellation_is_dropped(
    world: OutcomeWorld,
) -> None:
    outcome = world.stream()
    assert outcome.cancel()
    outcome.on_message(b"late")
    assert outcome.read() is NO_MORE
    outcome.on_end(END_FROM_TRAILERS)
    assert code_of(outcome) is StatusCode.CANCELLED


def test_the_end_may_come_while_the_last_response_is_read(
    world: OutcomeWorld,
) -> None:
    def read(message: bytes) -> bytes:
        # The end comes while the response is being deserialized.
        outcome.on_end(END_FROM_TRAILERS)
        return message

    outcome = world.stream(read)
    outcome.on_message(b"1")
    assert outcome.read() == b"1"
    assert outcome.end == END_FROM_TRAILERS


def test_an_rpc_ends_if_its_reader_is_interrupted(world: OutcomeWorld) -> None:
    def interrupt(_: bytes) -> object:
        raise KeyboardInterrupt

    outcome = world.stream(interrupt)
    outcome.on_message(b"1")
    outcome.on_end(END_FROM_TRAILERS)
    with pytest.raises(KeyboardInterrupt):
        outcome.read()
    assert outcome.end == END_FROM_TRAILERS


def test_a_response_that_cannot_be_deserialized_replaces_a_pending_end(
    world: OutcomeWorld,
) -> None:
    outcome = world.stream(broken)
    assert outcome.call_when_done(lambda: None)
    outcome.on_message(b"1")
    outcome.on_message(b"2")
    outcome.on_end(END_FROM_TRAILERS)
    assert outcome.read() is NO_MORE
    assert code_of(outcome) is StatusCode.INTERNAL
    assert len(world.callbacks.posted) == 1
