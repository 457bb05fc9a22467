"""Unit tests of proxyless.sim.loop."""

import asyncio

import pytest

from proxyless.sim.loop import START_S, SimLoop, StuckError, pause


def test_an_hour_passes_in_a_few_turns() -> None:
    loop = SimLoop()
    loop.run_until_complete(pause(3600.0))
    assert loop.time() == pytest.approx(START_S + 3600.0)
    assert loop.turns < 10
    loop.close()


def test_timers_fire_in_the_order_of_their_times() -> None:
    loop = SimLoop()
    seen: list[tuple[str, float]] = []

    def note(name: str) -> None:
        seen.append((name, loop.time() - START_S))

    loop.call_later(2.0, note, "late")
    loop.call_later(1.0, note, "early")
    loop.call_soon(note, "now")
    loop.run_until_complete(pause(3.0))
    assert [name for name, _ in seen] == ["now", "early", "late"]
    assert [at_s for _, at_s in seen] == pytest.approx([0.0, 1.0, 2.0])
    loop.close()


def test_timer_is_never_early_by_the_loop_time() -> None:
    loop = SimLoop()

    async def look() -> None:
        for delay_s in (0.1, 0.3, 1e-6, 7.7, 86_400.0):
            wanted_s = loop.time() + delay_s
            await pause(delay_s)
            assert loop.time() == pytest.approx(wanted_s, abs=1e-8)

    loop.run_until_complete(look())
    loop.close()


def test_timeouts_run_in_virtual_time() -> None:
    async def wait_too_long() -> None:
        async with asyncio.timeout(900.0):
            await asyncio.get_running_loop().create_future()

    loop = SimLoop()
    with pytest.raises(TimeoutError):
        loop.run_until_complete(wait_too_long())
    assert loop.time() == pytest.approx(START_S + 900.0)
    loop.close()


def test_deadlock_is_an_error() -> None:
    async def wait_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    loop = SimLoop()
    task = loop.create_task(wait_for_ever())
    with pytest.raises(StuckError, match="no timer is left"):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


def test_pending_timers_are_named_and_cancelled_ones_are_not() -> None:
    loop = SimLoop()
    loop.call_later(5.0, test_an_hour_passes_in_a_few_turns)
    loop.call_later(5.0, print).cancel()
    assert loop.pending_timers() == ["test_an_hour_passes_in_a_few_turns at 1005.000 s"]
    loop.close()


def test_executor_is_an_error() -> None:
    loop = SimLoop()
    with pytest.raises(RuntimeError, match="has no threads"):
        loop.run_in_executor(None, print)
    loop.close()
