"""Unit tests of proxyless.observe.live.queries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from proxyless.observe.live.queries import (
    Pause,
    Query,
    _AioRunner,
    start_work,
    take_results,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from proxyless.channel import LoopStack

STACK = cast("LoopStack", object())


async def settle(answers: list[Any]) -> None:
    await asyncio.wait([asyncio.wrap_future(each) for each in answers])


async def test_each_slice_runs_in_a_turn_of_its_own() -> None:
    turns: list[str] = []

    def work(_stack: LoopStack) -> Generator[None, None, str]:
        for name in "ab":
            turns.append(name)
            yield
        return "done"

    loop = asyncio.get_running_loop()
    answers = start_work({loop: STACK}, work)
    loop.call_soon(turns.append, "between")
    await settle(answers)
    assert turns == ["a", "between", "b"]
    assert take_results(answers) == (["done"], 0)


async def test_next_snapshot_is_not_collected_until_the_reader_has_taken_the_last() -> None:
    collected: list[int] = []

    def finish(_results: list[Any], _silent: int) -> list[bytes]:
        collected.append(1)
        return [b"snapshot"]

    def method(_request: object) -> Iterator[Query | Pause]:
        while True:
            yield Query(lambda _stack: iter(()), finish)  # type: ignore[arg-type, return-value]
            yield Pause(0.0)

    stream = _AioRunner(dict).stream(method)(None, None)
    for number in (1, 2):
        assert await anext(stream) == b"snapshot"
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)
        assert len(collected) == number
    await stream.aclose()


async def test_queries_run_one_at_a_time() -> None:
    running: list[int] = []
    most: list[int] = []

    def work(_stack: LoopStack) -> Generator[None, None, None]:
        running.append(1)
        most.append(len(running))
        yield
        running.pop()

    runner = _AioRunner(lambda: {asyncio.get_running_loop(): STACK})
    handle = runner.unary(lambda _request: Query(work, lambda _results, _silent: [b"x"]))
    assert await asyncio.gather(*(handle(None, None) for _ in range(5))) == [b"x"] * 5
    assert most == [1] * 5


async def test_closed_loop_is_left_out_and_silent_one_is_counted() -> None:
    closed, silent = asyncio.new_event_loop(), asyncio.new_event_loop()
    closed.close()
    began: list[object] = []

    def work(stack: LoopStack) -> Generator[None, None, None]:
        began.append(stack)
        yield from ()

    answers = start_work({closed: STACK, silent: STACK}, work)
    assert take_results(answers) == ([], 1)
    # Work that was given up does not begin when the loop runs again.
    silent.call_soon(silent.stop)
    await asyncio.to_thread(silent.run_forever)
    silent.close()
    assert began == []


async def test_exception_of_the_work_is_raised() -> None:
    def work(_stack: LoopStack) -> Generator[None, None, None]:
        yield from ()
        raise KeyError("broken")

    answers = start_work({asyncio.get_running_loop(): STACK}, work)
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)
    with pytest.raises(KeyError):
        take_results(answers)
