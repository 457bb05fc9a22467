"""Unit tests of proxyless.observe.csds_service. Tests with servers are in tests/interop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from proxyless.observe import csds_service
from proxyless.observe.csds import RESPONSE
from proxyless.observe.csds_service import REQUEST, _AioService, view_clients
from proxyless.protos import message_class
from proxyless.xds.client import XdsClients
from tests.worlds.xds_clients import XdsClientWorld

if TYPE_CHECKING:
    import pytest


def clients() -> XdsClients:
    world = XdsClientWorld()
    made = XdsClients(world.transports, world.tools)
    made.acquire(world.bootstrap, "xds:///a")
    made.acquire(world.bootstrap, "xds:///b")
    return made


def test_view_has_each_client_with_its_target() -> None:
    made = clients()
    views = view_clients(made, 0.0)
    assert [(view.scope, view.node.id) for view in views] == [
        ("xds:///a", "edge-7"),
        ("xds:///b", "edge-7"),
    ]
    made.close()


async def test_closed_and_silent_loops_are_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(csds_service, "ANSWER_TIMEOUT_S", 0.0)
    closed, silent = asyncio.new_event_loop(), asyncio.new_event_loop()
    closed.close()
    made = clients()
    service = _AioService(lambda: {closed: made, silent: made})
    with caplog.at_level(logging.WARNING, "proxyless.observe"):
        response = await service.fetch(message_class(REQUEST)(), None)
    assert response == b""
    assert len(caplog.records) == 1
    # The loop runs again after the timeout.
    silent.call_soon(silent.stop)
    await asyncio.to_thread(silent.run_forever)
    silent.close()
    made.close()


async def test_clients_of_the_same_loop_are_returned() -> None:
    made = clients()
    service = _AioService(lambda: {asyncio.get_running_loop(): made})
    response = message_class(RESPONSE).FromString(
        await service.fetch(message_class(REQUEST)(), None)
    )
    assert [config.client_scope for config in response.config] == ["xds:///a", "xds:///b"]
    made.close()
