"""Every module imports on platforms without fork, Unix sockets or loop signal handlers."""

import asyncio
import signal
import subprocess
import sys

import pytest

from proxyless.cli.signals import call_on_termination

IMPORT_ALL = """
import importlib, os, pkgutil, signal, socket
for owner, name in [
    (os, "register_at_fork"), (os, "fork"), (os, "memfd_create"), (socket, "AF_UNIX"),
    (signal, "SIGUSR2"), (signal, "SIGHUP"),
]:
    delattr(owner, name)
import proxyless, proxyless.aio
for module in pkgutil.walk_packages(proxyless.__path__, "proxyless."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print("imported")
"""


def test_package_imports_when_the_platform_is_not_posix() -> None:
    run = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=False
    )
    assert run.stdout == "imported\n", run.stderr


def test_signal_calls_the_action_when_the_loop_has_no_signal_handlers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def wait_for_signal() -> None:
        loop = asyncio.get_running_loop()

        def refuse(*_: object) -> None:
            raise NotImplementedError

        monkeypatch.setattr(loop, "add_signal_handler", refuse)
        called = asyncio.Event()
        call_on_termination(loop, called.set)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(called.wait(), 10)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        asyncio.run(wait_for_signal())
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
