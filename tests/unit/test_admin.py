"""Unit tests of proxyless.admin. The RPCs of CSDS are tested in tests/interop."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

import proxyless
from proxyless.assembly import (
    stack_of_running_loop,
    stacks_by_loop,
    xds_clients_by_loop,
    xds_stack_of_running_loop,
)
from proxyless.observe import CSDS_SERVICE
from proxyless.observe.flight import Recording, read_lines
from proxyless.observe.live import CHANNELZ_SERVICE, LIVE_SERVICE

if TYPE_CHECKING:
    from pathlib import Path


class Server:
    """A server that records its handlers."""

    def __init__(self) -> None:
        self.handlers: list[Any] = []

    def add_generic_rpc_handlers(self, handlers: tuple[Any, ...]) -> None:
        self.handlers += handlers


def test_csds_live_and_channelz_are_added() -> None:
    server = Server()
    proxyless.admin.add_servicers(server)
    names = [handler.service_name() for handler in server.handlers]
    assert names == [CSDS_SERVICE, LIVE_SERVICE, CHANNELZ_SERVICE]


async def test_csds_alone_is_added_and_nothing_observed_without_live() -> None:
    server = Server()
    proxyless.admin.add_servicers(server, live=False)
    assert [handler.service_name() for handler in server.handlers] == [CSDS_SERVICE]
    assert stack_of_running_loop().channels.observer is None


async def test_channels_of_running_and_later_loops_are_observed_when_services_are_added() -> None:
    channels = stack_of_running_loop().channels
    proxyless.admin.add_servicers(Server())
    await turn()
    assert channels.observer is not None

    async def observer_of_another_loop() -> object:
        return stack_of_running_loop().channels.observer

    assert await asyncio.to_thread(asyncio.run, observer_of_another_loop()) is not None


async def test_the_recording_is_written_on_the_signal(tmp_path: Path) -> None:
    restore = proxyless.admin.write_recording_on_signal(str(tmp_path))
    try:
        stack_of_running_loop().trace.emit("channel.state", target="orders")
        os.kill(os.getpid(), signal.SIGUSR2)
        while not (found := read_recordings(tmp_path)):
            await turn()
    finally:
        restore()
    assert [each.event for each in found[0].entries] == ["channel.state"]
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_the_signal_handler_is_refused_without_a_directory() -> None:
    with pytest.raises(ValueError, match="does not exist"):
        proxyless.admin.write_recording_on_signal("/nowhere")


def read_recordings(directory: Path) -> list[Recording]:
    return [read_lines(path.read_text().splitlines()) for path in directory.glob("*.jsonl")]


async def turn() -> None:
    """One turn of the loop."""
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.001)


async def test_xds_clients_are_listed_by_their_loop() -> None:
    stack = xds_stack_of_running_loop()
    assert xds_clients_by_loop()[asyncio.get_running_loop()] is stack.clients


async def test_the_child_of_a_fork_lists_no_clients_of_its_parent() -> None:
    xds_stack_of_running_loop()

    def count_in_child() -> int:
        child = os.fork()
        if not child:
            os._exit(len(xds_clients_by_loop()) + len(stacks_by_loop()))
        return os.waitpid(child, 0)[1]

    assert count_in_child() == 0
    assert xds_clients_by_loop()
    assert stacks_by_loop()
