"""The resolver that looks again and again."""

import pytest

from proxyless.base import OK, Endpoint, Status, StatusCode, parse_address
from proxyless.resolver import PollingResolver, ResolverResult
from proxyless.runtime import VirtualClock

A, B = (Endpoint((parse_address(f"10.0.0.{n}:80"),)) for n in (1, 2))
REFUSAL = Status(StatusCode.UNAVAILABLE, "no use for it")


class Shelf(PollingResolver):
    """Looks at what a test has put there; and is its own listener."""

    def __init__(self, *contents: Endpoint) -> None:
        self.clock = VirtualClock()
        super().__init__(self, self.clock, 2.0)
        self.contents: tuple[Endpoint, ...] | Exception = contents
        self.heard: list[object] = []
        self.answer = OK
        self.is_closed_by_listener = False

    def look(self) -> tuple[Endpoint, ...]:
        if isinstance(self.contents, Exception):
            raise self.contents
        return self.contents

    def on_result(self, result: ResolverResult) -> Status:
        self.heard.append(result.endpoints)
        if self.is_closed_by_listener:
            self.close()
        return self.answer


def test_the_first_result_comes_after_the_start_and_not_inside() -> None:
    shelf = Shelf(A)
    shelf.start()
    assert shelf.heard == []
    shelf.clock.advance(0)
    assert shelf.heard == [(A,)]


def test_only_what_is_new_is_told() -> None:
    shelf = Shelf(A)
    shelf.start()
    shelf.clock.advance(10)
    shelf.contents = (A, B)
    shelf.clock.advance(1.9)
    assert shelf.heard == [(A,)]
    shelf.clock.advance(0.1)
    assert shelf.heard == [(A,), (A, B)]
    shelf.request_reresolution()
    shelf.reset_backoff()
    shelf.clock.advance(1)
    assert len(shelf.heard) == 2


@pytest.mark.parametrize("trouble", [FileNotFoundError("gone"), ValueError("gone")])
def test_trouble_is_a_result_and_told_once(trouble: Exception) -> None:
    shelf = Shelf()
    shelf.contents = trouble
    shelf.start()
    shelf.clock.advance(10)
    assert shelf.heard == [Status(StatusCode.UNAVAILABLE, "gone")]


def test_a_bug_is_told_as_trouble_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf()
    shelf.contents = KeyError("port")
    # As a channel that has nothing else to go by.
    shelf.answer = REFUSAL
    shelf.start()
    shelf.clock.advance(2)
    bug = Status(StatusCode.UNAVAILABLE, "resolver raised KeyError('port')")
    assert shelf.heard == [bug, bug]
    assert [record.message for record in caplog.records] == ["resolver raised"]
    shelf.contents = (A,)
    shelf.clock.advance(2)
    assert shelf.heard[-1] == (A,)


def test_trouble_is_told_on_one_line() -> None:
    shelf = Shelf()
    shelf.contents = ValueError("bad:\nforged line of a log")
    shelf.start()
    shelf.clock.advance(0)
    assert shelf.heard == [Status(StatusCode.UNAVAILABLE, "bad: forged line of a log")]


def test_what_the_listener_could_not_use_is_told_again() -> None:
    shelf = Shelf(A)
    shelf.answer = REFUSAL
    shelf.start()
    shelf.clock.advance(2)
    assert shelf.heard == [(A,), (A,)]
    shelf.answer = OK
    shelf.clock.advance(10)
    assert len(shelf.heard) == 3


def test_nothing_follows_the_close_also_if_the_listener_closes() -> None:
    shelf = Shelf(A)
    shelf.is_closed_by_listener = True
    shelf.start()
    shelf.clock.advance(10)
    assert shelf.heard == [(A,)]
    assert shelf.clock.timers_pending == 0
