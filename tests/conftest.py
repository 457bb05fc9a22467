"""Configuration of all tests: Hypothesis, the check for running tasks, and reruns.

Unclosed sockets and coroutines that are never awaited need no fixture: they are warnings, and
pytest treats a warning as an error.
"""

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import settings

pytest_plugins = ["tools.spec_plugin"]

# A shell makes its background processes ignore Ctrl-C, and some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline, because a shared machine is slow at times. The same examples each run, so that a
# failure is caused by the change; `--hypothesis-profile=explore` searches for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2_000)
settings.load_profile("repeatable")


# Backends are on loopback, so neither library may use the proxies of the machine.
for _variable in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
    os.environ.pop(_variable, None)


# Names of the tasks that run a handler of a grpcio server. One that stops may leave them.
GRPCIO_HANDLERS = ("rpc_task", "HandleExceptions[")
GRPCIO_PATIENCE_S = 20.0


def is_of_grpcio(task: asyncio.Task[object]) -> bool:
    """Whether grpcio left the task: a call that fails while it starts may, and a handler."""
    code = getattr(task.get_coro(), "cr_code", None)
    is_call = code is not None and code.co_filename.endswith("grpc/aio/_call.py")
    return is_call or task.get_name().startswith(GRPCIO_HANDLERS)


@pytest.fixture
async def no_task_left() -> AsyncIterator[None]:
    """Fail a test that ends before a task that it started."""
    before = asyncio.all_tasks()
    yield
    started = asyncio.all_tasks() - before - {asyncio.current_task()}
    of_grpcio = {task for task in started if is_of_grpcio(task)}
    for task in of_grpcio:
        task.cancel()
    if of_grpcio:
        await asyncio.wait(of_grpcio, timeout=GRPCIO_PATIENCE_S)
    left = started - of_grpcio
    assert not left, f"tasks still running after the test: {sorted(map(repr, left))}"


@pytest.fixture(autouse=True)
def no_recorder_left() -> Iterator[None]:
    """Stop the flight recorder of the process, which the admin services start."""
    yield
    assembly = sys.modules.get("proxyless.assembly")
    if assembly is not None:
        assembly.stop_observing()


def pytest_configure(config: pytest.Config) -> None:
    text = "rerun(reason): a pause of the machine may fail this test, so a failure is run again"
    config.addinivalue_line("markers", text)


def pytest_itemcollected(item: pytest.Item) -> None:
    if (marker := item.get_closest_marker("rerun")) is not None:
        match marker.args:
            case (str() as reason,) if reason and not marker.kwargs:
                item.add_marker(pytest.mark.flaky(reruns=1))
            case _:
                raise pytest.UsageError(f"{item.nodeid}: wanted rerun(reason), got {marker}")
    # Synchronous tests have no loop.
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        # The first fixture is finalized last, when the others have closed what they opened.
        item.fixturenames.insert(0, "no_task_left")
