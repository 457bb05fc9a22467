"""Do threads and the loop agree on an RPC? Both sides are played by the test."""

from collections.abc import Callable
from threading import Thread

import pytest

from proxyless.base import EMPTY_METADATA, OK, State, Status, StatusCode
from proxyless.channel import Call
from proxyless.channel.channel import CHANNEL_CLOSED
from proxyless.channel.unread import Unread, await_reader
from proxyless.front.conversions import COLLECTED
from proxyless.front.sync import outcomes as sync_outcomes
from proxyless.front.sync.outcomes import NO_MORE, Outcome, Waiters
from proxyless.wire import StreamEnd
from proxyless.wire.limits import BUFFERED_BYTES_MAX, MESSAGE_OVERHEAD_BYTES
from tests.unit.front.sync.sync_world import ENDED, FAILED, LAST_WORD, OutcomeWorld

PATIENCE_S = 20.0


@pytest.fixture
def world() -> OutcomeWorld:
    return OutcomeWorld()


def broken(_: bytes) -> object:
    raise ValueError("what is this?")


def code_of(outcome: Outcome) -> StatusCode:
    end = outcome.wait_end(0)
    assert end is not None, "the RPC is over"
    return end.status.code


# Waiting


def test_news_that_came_before_the_wait_are_not_waited_for() -> None:
    Waiters().wait_once(lambda: True)


def test_every_thread_that_waits_is_woken() -> None:
    waiters = Waiters()
    news: list[str] = []
    threads = [
        Thread(target=waiters.wait_once, args=(lambda: bool(news),), daemon=True) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    news.append("news")
    waiters.wake()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_who_gave_up_waiting_is_forgotten() -> None:
    waiters = Waiters()
    for timeout_s in (0.0, -1.0, 0.001):
        waiters.wait_once(lambda: False, timeout_s)
    assert not waiters._locks
    waiters.wake()


def test_a_thread_without_a_limit_looks_for_signals_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    class SlowLock:
        """Is released while the third wait for it lasts."""

        def acquire(self, timeout: float = -1.0) -> bool:
            waits.append(timeout)
            return len(waits) in {1, 4}

    monkeypatch.setattr(sync_outcomes, "Lock", SlowLock)
    Waiters().wait_once(lambda: False)
    assert waits == [-1.0, *[sync_outcomes.SIGNALS_SEEN_AFTER_S] * 3]


def test_waiting_may_be_limited_to_more_than_a_lock_can_wait() -> None:
    waiters = Waiters()

    def hear_news() -> bool:
        waiters.wake()
        return False

    waiters.wait_once(hear_news, 1e300)


def test_waking_twice_wakes_once() -> None:
    waiters = Waiters()
    waiters.wait_once(lambda: True)
    waiters.wake()
    waiters.wake()


# The end


def test_an_rpc_under_way_has_no_end_within_the_time(world: OutcomeWorld) -> None:
    assert world.unary().wait_end(0.001) is None


def test_the_first_end_stands(world: OutcomeWorld) -> None:
    outcome = world.unary()
    assert outcome.cancel()
    outcome.on_end(FAILED)
    assert code_of(outcome) is StatusCode.CANCELLED
    assert not outcome.cancel()
    world.expect_told(StatusCode.CANCELLED)


def test_what_is_over_cannot_be_cancelled(world: OutcomeWorld) -> None:
    outcome = world.unary()
    outcome.on_end(FAILED)
    assert not outcome.cancel()
    assert not outcome.is_cancelled
    assert outcome.end == FAILED
    world.expect_told()


def test_a_call_that_is_dropped_is_cancelled_only_while_under_way(world: OutcomeWorld) -> None:
    outcome = world.stream()
    outcome.collect()
    world.expect_told(StatusCode.CANCELLED)
    outcome.on_end(ENDED)
    outcome.collect()
    world.expect_told()


def test_callbacks_run_once_and_not_on_the_loop(world: OutcomeWorld) -> None:
    outcome = world.unary()
    assert outcome.call_when_done(lambda: None)
    assert not world.callbacks.posted
    outcome.on_end(FAILED)
    assert len(world.callbacks.posted) == 1
    assert not outcome.call_when_done(lambda: None)


def test_callbacks_wait_for_the_call_itself_to_end_when_it_is_cancelled(
    world: OutcomeWorld,
) -> None:
    outcome = world.unary()
    outcome.call_when_done(lambda: None)
    outcome.cancel()
    assert not world.callbacks.posted
    outcome.on_end(FAILED)
    assert len(world.callbacks.posted) == 1


def test_the_end_lets_those_go_on_who_wait_for_metadata(world: OutcomeWorld) -> None:
    outcome = world.unary()
    outcome.on_end(FAILED)
    assert outcome.wait_head() == EMPTY_METADATA


def test_the_head_is_what_the_server_sent(world: OutcomeWorld) -> None:
    outcome = world.unary()
    outcome.on_head((("x", "1"),))
    assert outcome.wait_head() == (("x", "1"),)


# The start


def test_a_call_with_one_request_starts_with_it(world: OutcomeWorld) -> None:
    outcome = world.unary()
    outcome.request = b""
    outcome.start()
    world.expect_told(("start", b""))


def test_a_call_that_was_cancelled_before_its_start_ends_at_once(world: OutcomeWorld) -> None:
    outcome = world.unary()
    outcome.cancel()
    outcome.start()
    world.expect_told(("start failed", StatusCode.CANCELLED), StatusCode.CANCELLED)


def test_a_call_on_a_channel_that_was_closed_meanwhile_ends_at_once(world: OutcomeWorld) -> None:
    world.core.state = State.SHUTDOWN
    outcome = world.unary()
    outcome.start()
    world.expect_told(("start failed", StatusCode.CANCELLED))


def test_at_exit_a_daemon_is_not_told_that_the_channel_is_closed(world: OutcomeWorld) -> None:
    world.core.state = State.SHUTDOWN
    world.background.is_usable = False
    world.unary().start()
    world.expect_told()


def test_what_starting_raises_reaches_the_caller(
    world: OutcomeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.call, "start", lambda: broken(b""))
    world.unary().start()
    world.expect_told(StatusCode.INTERNAL)


def test_a_call_of_the_parent_is_over_in_the_child(world: OutcomeWorld) -> None:
    world.background.is_left_behind = True
    assert code_of(world.unary()) is StatusCode.CANCELLED
    assert world.stream().read() is NO_MORE


def test_the_time_remaining_is_asked_on_the_loop_while_there_is_one(world: OutcomeWorld) -> None:
    outcome = world.unary()
    assert outcome.time_remaining_s() == 7.0
    world.background.is_usable = False
    assert outcome.time_remaining_s() is None


# One response


def test_a_response_is_deserialized_when_somebody_asks_and_only_once(world: OutcomeWorld) -> None:
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


def test_a_response_that_cannot_be_read_is_an_internal_error_with_trailers(
    world: OutcomeWorld,
) -> None:
    outcome = world.unary(broken)
    outcome.on_message(b"")
    outcome.on_end(StreamEnd(OK, (("t", "1"),)))
    assert code_of(outcome) is StatusCode.INTERNAL
    assert outcome.end is not None
    assert outcome.end.trailers == (("t", "1"),)


def test_the_response_of_a_call_that_failed_is_not_looked_at(world: OutcomeWorld) -> None:
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


def test_a_second_message_is_refused(world: OutcomeWorld) -> None:
    outcome = world.unary()
    outcome.on_message(b"")
    world.expect_told()
    outcome.on_message(b"")
    world.expect_told(StatusCode.UNIMPLEMENTED)


# Many responses


def test_messages_are_read_in_order_and_before_the_end(world: OutcomeWorld) -> None:
    outcome = world.stream()
    outcome.on_message(b"1")
    outcome.on_message(b"2")
    outcome.on_end(FAILED)
    assert [outcome.read() for _ in range(4)] == [b"1", b"2", NO_MORE, NO_MORE]


def test_who_cancels_does_not_get_the_rest(world: OutcomeWorld) -> None:
    outcome = world.stream()
    outcome.on_message(b"1")
    outcome.cancel()
    assert outcome.read() is NO_MORE


def test_a_full_queue_holds_the_server_until_it_is_half_empty(world: OutcomeWorld) -> None:
    outcome = world.stream()
    quarter = bytes(BUFFERED_BYTES_MAX // 4 - MESSAGE_OVERHEAD_BYTES)
    for _ in range(4):
        outcome.on_message(quarter)
    world.expect_told()
    outcome.on_message(quarter)
    world.expect_told("hold")
    outcome.on_message(quarter)
    outcome.read()
    outcome.read()
    outcome.read()
    world.expect_told()
    outcome.read()
    world.expect_told("release")
    outcome.read()
    world.expect_told()


def test_a_reader_who_was_quicker_than_the_hold_does_not_stall_the_call(
    world: OutcomeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = world.stream()

    def hold() -> None:
        # The reader takes everything between the decision to hold and its effect.
        outcome._is_held = False
        outcome.read()
        outcome._is_held = True
        world.call.told.append("hold")

    monkeypatch.setattr(world.call, "hold", hold)
    outcome.on_message(bytes(BUFFERED_BYTES_MAX + 1))
    world.expect_told("hold", "release")


def test_a_message_that_cannot_be_read_ends_the_call(world: OutcomeWorld) -> None:
    outcome = world.stream(broken)
    outcome.on_message(b"1")
    outcome.on_message(b"2")
    assert outcome.read() is NO_MORE
    assert code_of(outcome) is StatusCode.INTERNAL
    assert outcome.read() is NO_MORE
    world.expect_told(StatusCode.INTERNAL)


def test_a_message_that_cannot_be_read_makes_an_ok_an_error(world: OutcomeWorld) -> None:
    outcome = world.stream(broken)
    outcome.on_message(b"1")
    outcome.on_end(StreamEnd(OK, (("t", "1"),)))
    assert outcome.read() is NO_MORE
    assert code_of(outcome) is StatusCode.INTERNAL
    world.expect_told()


def test_a_message_that_cannot_be_read_does_not_hide_the_servers_error(
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
    unary.on_end(LAST_WORD)
    stream.on_message(b"1")
    assert stream.read() is NO_MORE
    assert [code_of(unary), code_of(stream)] == [StatusCode.INTERNAL] * 2


# The server's last word


def test_the_last_word_is_the_end_when_everything_is_read(world: OutcomeWorld) -> None:
    outcome = world.stream()
    assert outcome.call_when_done(lambda: None)
    outcome.on_message(b"1")
    outcome.on_message(b"2")
    outcome.on_end(LAST_WORD)
    assert outcome.read() == b"1"
    assert (outcome.end, outcome.wait_end(0), world.callbacks.posted) == (None, None, [])
    assert not outcome.takes_requests
    assert outcome.read() == b"2"
    assert outcome.wait_end() == LAST_WORD
    assert len(world.callbacks.posted) == 1
    assert outcome.read() is NO_MORE
    assert not outcome.cancel()
    world.expect_told()
    assert world.channel.is_left_alone


def test_the_last_word_without_responses_is_the_end(world: OutcomeWorld) -> None:
    outcome = world.stream()
    outcome.on_end(LAST_WORD)
    assert outcome.end == LAST_WORD
    assert outcome.read() is NO_MORE


def test_any_other_end_is_seen_at_once_and_hides_no_response(world: OutcomeWorld) -> None:
    outcome = world.stream()
    outcome.on_message(b"1")
    outcome.on_end(FAILED)
    assert outcome.end == FAILED
    assert [outcome.read(), outcome.read()] == [b"1", NO_MORE]


def test_an_rpc_whose_responses_are_not_read_may_be_cancelled(world: OutcomeWorld) -> None:
    outcome = world.stream()
    assert outcome.call_when_done(lambda: None)
    outcome.on_message(b"1")
    outcome.on_end(LAST_WORD)
    assert outcome.cancel()
    assert len(world.callbacks.posted) == 1
    assert code_of(outcome) is StatusCode.CANCELLED
    assert outcome.read() is NO_MORE
    assert not outcome.cancel()
    world.background.run()
    assert world.channel.is_left_alone


@pytest.mark.parametrize("code", [StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED])
def test_an_rpc_that_nobody_reads_ends_at_its_deadline_or_with_its_channel(
    world: OutcomeWorld, code: StatusCode
) -> None:
    outcome = world.stream()
    assert outcome.call_when_done(lambda: None)
    outcome.on_message(b"1")
    outcome.on_message(b"2")
    outcome.on_end(LAST_WORD)
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
    # Nothing that came is hidden, and the server's last word does not count any more.
    assert [outcome.read(), outcome.read()] == [b"2", NO_MORE]
    assert code_of(outcome) is code
    assert not outcome.cancel()
    world.background.run()
    assert world.channel.is_left_alone


def test_an_rpc_that_is_dropped_before_it_is_read_is_over(world: OutcomeWorld) -> None:
    outcome = world.stream()
    assert outcome.call_when_done(lambda: None)
    outcome.on_message(b"1")
    outcome.on_end(LAST_WORD)
    outcome.collect()
    # In whatever thread that was, and whatever it holds: not there.
    assert outcome.wait_end(0) is None
    world.background.run()
    assert outcome.end == StreamEnd(COLLECTED)
    assert len(world.callbacks.posted) == 1
    assert world.channel.is_left_alone


def test_a_reader_of_the_last_response_may_be_quicker_than_who_looks_after_it(
    world: OutcomeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = world.stream()
    outcome.on_message(b"1")

    def read_first(call: Call, on_cut: Callable[[Status], None]) -> Unread:
        assert outcome.read() == b"1"
        return await_reader(call, on_cut)

    monkeypatch.setattr(sync_outcomes, "await_reader", read_first)
    outcome.on_end(LAST_WORD)
    assert outcome.end == LAST_WORD
    world.background.run()
    assert world.channel.is_left_alone


def test_a_response_that_comes_before_the_loop_knows_of_a_cancellation_is_dropped(
    world: OutcomeWorld,
) -> None:
    outcome = world.stream()
    assert outcome.cancel()
    outcome.on_message(b"late")
    assert outcome.read() is NO_MORE
    outcome.on_end(LAST_WORD)
    assert code_of(outcome) is StatusCode.CANCELLED


def test_a_reader_of_the_last_response_may_be_quicker_than_the_last_word(
    world: OutcomeWorld,
) -> None:
    def read(message: bytes) -> bytes:
        # The server's last word comes while the response is being read.
        outcome.on_end(LAST_WORD)
        return message

    outcome = world.stream(read)
    outcome.on_message(b"1")
    assert outcome.read() == b"1"
    assert outcome.end == LAST_WORD


def test_a_reader_that_is_interrupted_leaves_no_rpc_without_end(world: OutcomeWorld) -> None:
    def interrupt(_: bytes) -> object:
        raise KeyboardInterrupt

    outcome = world.stream(interrupt)
    outcome.on_message(b"1")
    outcome.on_end(LAST_WORD)
    with pytest.raises(KeyboardInterrupt):
        outcome.read()
    assert outcome.end == LAST_WORD


def test_a_response_before_the_last_word_that_cannot_be_read_is_the_end(
    world: OutcomeWorld,
) -> None:
    outcome = world.stream(broken)
    assert outcome.call_when_done(lambda: None)
    outcome.on_message(b"1")
    outcome.on_message(b"2")
    outcome.on_end(LAST_WORD)
    assert outcome.read() is NO_MORE
    assert code_of(outcome) is StatusCode.INTERNAL
    assert len(world.callbacks.posted) == 1
