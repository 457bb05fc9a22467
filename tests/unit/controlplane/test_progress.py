"""Unit tests of proxyless.controlplane.progress."""

import asyncio

import pytest

from proxyless.controlplane.progress import Progress

LONG_S = 60.0


async def test_who_waits_looks_again_after_each_note() -> None:
    progress, looks, count = Progress(), 0, 0

    def holds() -> bool:
        nonlocal looks
        looks += 1
        return count == 2

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(progress.wait_until(holds, "two", LONG_S))
        for _ in range(2):
            await asyncio.sleep(0)  # noqa: TID251 - a turn of the loop, no time
            assert not waiting.done()
            count += 1
            progress.note()
    assert looks == 3


async def test_what_holds_already_is_not_waited_for() -> None:
    await Progress().wait_until(lambda: True, "nothing", 0)


async def test_waiting_in_vain_says_what_for() -> None:
    with pytest.raises(TimeoutError, match=r"waited 0 s for an ACK"):
        await Progress().wait_until(lambda: False, "an ACK", 0)


async def test_what_looking_raises_reaches_who_waits() -> None:
    def holds() -> bool:
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        await Progress().wait_until(holds, "nothing", LONG_S)
