"""create_owned_task: a task that its owner cancels, and that may be left when a loop is closed."""

from __future__ import annotations

from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

T = TypeVar("T")


def create_owned_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], *, name: str | None = None
) -> asyncio.Task[T]:
    """Like `loop.create_task`, but asyncio logs nothing if the loop is closed before the task ends.

    The application did not create the task: it gets a warning about the channel that it left open,
    and the task has none of its context variables, which would stay alive with the task.
    """
    # Not as an argument, which the application's task factory may not take.
    task: asyncio.Task[T] = Context().run(loop.create_task, coroutine, name=name)
    with suppress(AttributeError):  # The application's task factory may make other tasks.
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - as `gather`
    return task
