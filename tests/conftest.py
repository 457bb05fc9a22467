"""What holds for every test: known requirement IDs, repeatable examples, nothing left running.

Unclosed sockets and never-awaited coroutines need no fixture: they are warnings, and pytest is
configured to treat a warning as an error.
"""

import asyncio
import inspect
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tools.spec_plugin"]

# A shell that starts something in the background has it ignore Ctrl-C, of which some tests are.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: a shared machine is slow at times, and that proves nothing about the code. The same
# examples each run: a red build is then about the change. `--hypothesis-profile=explore` looks
# for new ones.
settings.register_profile("house", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2_000)
settings.load_profile("house")


# The proxies of the machine that runs the tests are for neither library: backends are on loopback.
for _variable in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
    os.environ.pop(_variable, None)


def is_of_grpcio(task: asyncio.Task[object]) -> bool:
    """Whether grpcio's client left it: one of its calls that fails while it starts may."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.endswith("grpc/aio/_call.py")


@pytest.fixture
async def no_task_left() -> AsyncIterator[None]:
    """Fail a test that ends while a task it started still lives: tasks have owners."""
    before = asyncio.all_tasks()
    yield
    started = asyncio.all_tasks() - before - {asyncio.current_task()}
    theirs = {task for task in started if is_of_grpcio(task)}
    for task in theirs:
        task.cancel()
    await asyncio.gather(*theirs, return_exceptions=True)
    left = started - theirs
    assert not left, f"tasks still running after the test: {sorted(map(repr, left))}"


# Rings whose tests meet real time and processes that we did not write. A pause of the machine may
# fail one of them, so they have another try; the summary names who needed it. Nobody else has one.
_RINGS_ON_REAL_TIME = {"bench", "contracts", "docs", "e2e", "interop"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give each asynchronous test the check; others have no loop and should not pay for one."""
    if item.path.relative_to(Path(__file__).parent).parts[0] in _RINGS_ON_REAL_TIME:
        item.add_marker(pytest.mark.flaky(reruns=1))
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        # First in, last out: the test's own fixtures have closed what they opened by then.
        item.fixturenames.insert(0, "no_task_left")
