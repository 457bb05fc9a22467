"""Unit tests of proxyless.admin. The RPCs of CSDS are tested in tests/interop."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import proxyless
from proxyless.assembly import xds_clients_by_loop, xds_stack_of_running_loop
from proxyless.observe import CSDS_SERVICE

if TYPE_CHECKING:
    import pytest


class Server:
    """A server that records its handlers."""

    def __init__(self) -> None:
        self.handlers: list[Any] = []

    def add_generic_rpc_handlers(self, handlers: tuple[Any, ...]) -> None:
        self.handlers += handlers


def test_csds_is_added() -> None:
    server = Server()
    proxyless.admin.add_servicers(server)
    assert [handler.service_name() for handler in server.handlers] == [CSDS_SERVICE]


async def test_xds_clients_are_listed_by_their_loop() -> None:
    stack = xds_stack_of_running_loop()
    assert xds_clients_by_loop()[asyncio.get_running_loop()] is stack.clients


async def test_the_child_of_a_fork_lists_no_clients_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    xds_stack_of_running_loop()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert xds_clients_by_loop() == {}
