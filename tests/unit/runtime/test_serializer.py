"""Unit tests of proxyless.runtime.serializer."""

from functools import partial

import pytest

from proxyless.runtime.serializer import Serializer


@pytest.fixture
def serializer() -> Serializer:
    return Serializer()


@pytest.fixture
def ran() -> list[str]:
    return []


def test_a_callback_runs_at_once_when_none_is_running(
    serializer: Serializer, ran: list[str]
) -> None:
    serializer.run(lambda: ran.append("a"))
    assert ran == ["a"]


def test_a_callback_scheduled_by_a_running_one_waits_for_its_end(
    serializer: Serializer, ran: list[str]
) -> None:
    def outer() -> None:
        ran.append("outer begins")
        serializer.run(inner)
        serializer.run(lambda: ran.append("second"))
        ran.append("outer ends")

    def inner() -> None:
        ran.append("inner")
        serializer.run(lambda: ran.append("third"))

    serializer.run(outer)
    assert ran == ["outer begins", "outer ends", "inner", "second", "third"]


def test_a_long_chain_does_not_overflow_the_stack(serializer: Serializer) -> None:
    left = 100_000

    def link() -> None:
        nonlocal left
        left -= 1
        if left:
            serializer.run(link)

    serializer.run(link)
    assert left == 0


def raiser(error: BaseException) -> None:
    raise error


def test_the_others_run_before_the_error_comes_out(serializer: Serializer, ran: list[str]) -> None:
    def outer() -> None:
        serializer.run(lambda: ran.append("queued"))
        raise KeyError("outer")

    with pytest.raises(KeyError, match="outer"):
        serializer.run(outer)
    assert ran == ["queued"]


def test_several_errors_come_out_together(serializer: Serializer) -> None:
    errors = [KeyError("a"), ValueError("b")]

    def outer() -> None:
        for error in errors:
            serializer.run(partial(raiser, error))

    with pytest.raises(ExceptionGroup) as caught:
        serializer.run(outer)
    assert list(caught.value.exceptions) == errors


def test_a_serializer_works_on_after_an_error(serializer: Serializer, ran: list[str]) -> None:
    with pytest.raises(KeyError):
        serializer.run(lambda: raiser(KeyError("a")))
    serializer.run(lambda: ran.append("next"))
    assert ran == ["next"]


def test_an_interrupt_stops_at_once_and_the_rest_runs_next_time(
    serializer: Serializer, ran: list[str]
) -> None:
    def outer() -> None:
        serializer.run(lambda: ran.append("queued"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serializer.run(outer)
    assert not ran
    serializer.run(lambda: ran.append("next"))
    assert ran == ["queued", "next"]
