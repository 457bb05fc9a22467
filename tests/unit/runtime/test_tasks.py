"""Unit tests of proxyless.runtime.tasks."""

import asyncio
import gc
from typing import Any

import pytest

from proxyless.runtime.tasks import create_owned_task


async def wait_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("is_owned", [True, False])
def test_owned_task_is_not_logged_when_its_loop_is_closed(
    is_owned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.new_event_loop()

    async def start() -> None:
        running = asyncio.get_running_loop()
        if is_owned:
            create_owned_task(running, wait_for_ever())
        else:
            running.create_task(wait_for_ever())  # noqa: RUF006 - it is left on purpose

    loop.run_until_complete(start())
    loop.close()
    del loop
    gc.collect()
    assert ("Task was destroyed" in caplog.text) is not is_owned


async def test_owned_task_may_be_of_another_class() -> None:
    class SlottedTask:
        __slots__ = ()

        def set_name(self, _name: object) -> None:
            """Python 3.13 calls it for the task of a factory."""

    def make(_loop: asyncio.AbstractEventLoop, coroutine: Any, **_: object) -> Any:  # noqa: ANN401 - as asyncio calls it
        coroutine.close()
        return SlottedTask()

    loop = asyncio.get_running_loop()
    loop.set_task_factory(make)
    try:
        task = create_owned_task(loop, wait_for_ever())
    finally:
        loop.set_task_factory(None)
    assert isinstance(task, SlottedTask)
