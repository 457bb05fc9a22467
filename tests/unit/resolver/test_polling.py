"""Unit tests of proxyless.resolver.polling."""

import pytest

from proxyless.base import OK, Endpoint, Status, StatusCode, parse_address
from proxyless.resolver import PollingResolver, ResolverResult
from proxyless.runtime import VirtualClock

A, B = (Endpoint((parse_address(f"10.0.0.{n}:80"),)) for n in (1, 2))
REFUSAL = Status(StatusCode.UNAVAILABLE, "no use for it")


class ListResolver(PollingResolver):
    """Polls a list of the test, and is its own listener."""

    def __init__(self, *contents: Endpoint) -> None:
        self.clock = VirtualClock()
        super().__init__(self, self.clock, 2.0)
        self.contents: tuple[Endpoint, ...] | Exception = contents
        self.results: list[object] = []
        self.answer = OK
        self.is_closed_by_listener = False

    def poll(self) -> tuple[Endpoint, ...]:
        if isinstance(self.contents, Exception):
            raise self.contents
        return self.contents

    def on_result(self, result: ResolverResult) -> Status:
        self.results.append(result.endpoints)
        if self.is_closed_by_listener:
            self.close()
        return self.answer


def test_the_first_result_comes_after_the_start_and_not_inside() -> None:
    resolver = ListResolver(A)
    resolver.start()
    assert resolver.results == []
    resolver.clock.advance(0)
    assert resolver.results == [(A,)]


def test_only_changes_are_reported() -> None:
    resolver = ListResolver(A)
    resolver.start()
    resolver.clock.advance(10)
    resolver.contents = (A, B)
    resolver.clock.advance(1.9)
    assert resolver.results == [(A,)]
    resolver.clock.advance(0.1)
    assert resolver.results == [(A,), (A, B)]
    resolver.request_reresolution()
    resolver.reset_backoff()
    resolver.clock.advance(1)
    assert len(resolver.results) == 2


@pytest.mark.parametrize("error", [FileNotFoundError("gone"), ValueError("gone")])
def test_error_is_reported_once(error: Exception) -> None:
    resolver = ListResolver()
    resolver.contents = error
    resolver.start()
    resolver.clock.advance(10)
    assert resolver.results == [Status(StatusCode.UNAVAILABLE, "gone")]


def test_other_exception_is_reported_as_an_error_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    resolver = ListResolver()
    resolver.contents = KeyError("port")
    # Like a channel without an earlier result.
    resolver.answer = REFUSAL
    resolver.start()
    resolver.clock.advance(2)
    bug = Status(StatusCode.UNAVAILABLE, "resolver raised KeyError('port')")
    assert resolver.results == [bug, bug]
    assert [record.message for record in caplog.records] == ["resolver raised"]
    resolver.contents = (A,)
    resolver.clock.advance(2)
    assert resolver.results[-1] == (A,)


def test_error_is_one_line() -> None:
    resolver = ListResolver()
    resolver.contents = ValueError("bad:\nforged line of a log")
    resolver.start()
    resolver.clock.advance(0)
    assert resolver.results == [Status(StatusCode.UNAVAILABLE, "bad: forged line of a log")]


def test_result_that_the_listener_could_not_use_is_reported_again() -> None:
    resolver = ListResolver(A)
    resolver.answer = REFUSAL
    resolver.start()
    resolver.clock.advance(2)
    assert resolver.results == [(A,), (A,)]
    resolver.answer = OK
    resolver.clock.advance(10)
    assert len(resolver.results) == 3


def test_nothing_is_reported_after_close_even_if_the_listener_closes() -> None:
    resolver = ListResolver(A)
    resolver.is_closed_by_listener = True
    resolver.start()
    resolver.clock.advance(10)
    assert resolver.results == [(A,)]
    assert resolver.clock.timers_pending == 0
