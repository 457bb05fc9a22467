"""Unit tests of proxyless.front.sync.requests, without a loop."""

from collections.abc import Iterator
from threading import Thread

import pytest

from proxyless.base import StatusCode
from proxyless.front.sync.outcomes import Outcome
from proxyless.front.sync.requests import RequestFeeder
from tests.worlds.sync_outcomes import FAILED, OutcomeWorld

PATIENCE_S = 20.0
# So large that the next request is taken only after it is sent.
LARGE = bytes(100_000)


@pytest.fixture
def world() -> OutcomeWorld:
    return OutcomeWorld()


def feed(outcome: Outcome, requests: Iterator[object]) -> RequestFeeder:
    feeder = outcome.feeder = RequestFeeder(outcome, None, requests)
    return feeder


def test_sending_is_closed_after_the_last_request(world: OutcomeWorld) -> None:
    feed(world.unary(), iter([b"1", b"2", b"3"]))._run()
    world.expect_calls(b"1", b"2", b"3", "close sending")


def start(feeder: RequestFeeder) -> Thread:
    """Start it in a thread; return when it waits."""
    thread = Thread(target=feeder._run, daemon=True)
    thread.start()
    until_waiting(feeder, thread)
    return thread


def until_waiting(feeder: RequestFeeder, thread: Thread) -> None:
    while not feeder._waiters:
        thread.join(0.001)
        assert thread.is_alive(), "wanted it to wait"


def expect_end(thread: Thread) -> None:
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_the_iterator_waits_while_the_call_is_not_writable(world: OutcomeWorld) -> None:
    taken: list[int] = []

    def requests() -> Iterator[bytes]:
        for number in range(4):
            taken.append(number)
            yield LARGE

    outcome = world.stream()
    feeder = feed(outcome, requests())
    thread = start(feeder)
    world.call.is_writable = False
    for number in range(3):
        assert taken == list(range(number + 1))
        world.background.run()
        until_waiting(feeder, thread)
        # It is sent, but the call is not writable yet.
        assert taken == list(range(number + 1))
        outcome.on_writable()
        until_waiting(feeder, thread)
    outcome.on_writable()
    world.background.run()
    outcome.on_writable()
    expect_end(thread)
    world.expect_calls(*[LARGE] * 4, "close sending")


def test_small_requests_may_be_ahead_of_the_loop_up_to_a_limit(world: OutcomeWorld) -> None:
    taken: list[bytes] = []

    def requests() -> Iterator[bytes]:
        while True:
            taken.append(b"x")
            yield b"x"

    outcome = world.stream()
    thread = start(feed(outcome, requests()))
    assert 1 < len(taken) < 100
    outcome.on_end(FAILED)
    expect_end(thread)


def test_the_iterator_stops_when_the_rpc_has_ended(world: OutcomeWorld) -> None:
    outcome = world.stream()
    requests = iter([b"1", b"2", b"3"])
    outcome.on_end(FAILED)
    feed(outcome, requests)._run()
    world.expect_calls()
    assert next(requests) == b"2"


@pytest.mark.parametrize("error", [OSError("broken"), SystemExit("leave")])
def test_an_iterator_that_raises_ends_the_rpc(
    world: OutcomeWorld, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def requests() -> Iterator[bytes]:
        yield b"1"
        raise error

    outcome = world.stream()
    feed(outcome, requests())._run()
    world.expect_calls(b"1", StatusCode.UNKNOWN)
    assert outcome.end is not None
    assert type(error).__name__ in outcome.end.status.details
    assert "request iterator" in caplog.text


def test_an_iterator_that_raises_after_the_end_changes_nothing(
    world: OutcomeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = world.stream()

    def requests() -> Iterator[bytes]:
        yield b"1"
        outcome.on_end(FAILED)
        raise OSError("broken pipe")

    feed(outcome, requests())._run()
    world.expect_calls(b"1")
    assert outcome.end == FAILED
    assert not caplog.text


def test_a_request_that_cannot_be_serialized_ends_the_rpc(world: OutcomeWorld) -> None:
    outcome = world.stream()
    feed(outcome, iter([b"1", "text"]))._run()
    world.expect_calls(b"1", StatusCode.INTERNAL)
