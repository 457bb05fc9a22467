"""Unit tests of proxyless.controlplane.change_condition."""

import asyncio

import pytest

from proxyless.controlplane.change_condition import ChangeCondition

LONG_S = 60.0


async def test_wait_for_evaluates_the_predicate_after_each_notification() -> None:
    changes, evaluations, count = ChangeCondition(), 0, 0

    def predicate() -> bool:
        nonlocal evaluations
        evaluations += 1
        return count == 2

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(changes.wait_for(predicate, "two", LONG_S))
        for _ in range(2):
            await asyncio.sleep(0)  # noqa: TID251 - one iteration of the loop
            assert not waiting.done()
            count += 1
            changes.notify_all()
    assert evaluations == 3


async def test_wait_for_returns_at_once_when_the_predicate_is_true() -> None:
    await ChangeCondition().wait_for(lambda: True, "nothing", 0)


async def test_timeout_error_has_the_description() -> None:
    with pytest.raises(TimeoutError, match=r"waited 0 s for an ACK"):
        await ChangeCondition().wait_for(lambda: False, "an ACK", 0)


async def test_exception_of_the_predicate_is_raised() -> None:
    def predicate() -> bool:
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        await ChangeCondition().wait_for(predicate, "nothing", LONG_S)
