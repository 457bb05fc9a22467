"""Unit tests of the sharing of transports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.runtime import VirtualClock
from proxyless.xds.client.notifications import NotificationQueue
from proxyless.xds.client.transport import Transports
from tests.xds_client_world import FakeTransports, server_config

if TYPE_CHECKING:
    from proxyless.base import Status


def test_a_transport_is_closed_by_its_last_user() -> None:
    clock = VirtualClock()
    fakes = FakeTransports(clock)
    transports = Transports(fakes, NotificationQueue(clock))
    one = transports.acquire(server_config("a"))
    assert transports.acquire(server_config("a")) is one
    assert transports.acquire(server_config("b")) is not one
    transports.release(server_config("a"))
    (made,) = fakes.server("a").transports
    closed = [made.is_closed]
    transports.release(server_config("a"))
    closed.append(made.is_closed)
    assert closed == [False, True]
    assert transports.acquire(server_config("a")) is not one


def test_a_server_that_cannot_be_configured_says_why_soon() -> None:
    clock = VirtualClock()
    transports = Transports(FakeTransports(clock), NotificationQueue(clock))
    transport = transports.acquire(server_config("unusable"))
    heard: list[Status] = []
    transport.watch_connectivity(heard.append)
    assert heard == []
    clock.advance(0)
    assert [status.details for status in heard] == ["no such credentials"]


def test_it_says_nothing_after_it_was_released() -> None:
    clock = VirtualClock()
    transports = Transports(FakeTransports(clock), NotificationQueue(clock))
    heard: list[Status] = []
    transports.acquire(server_config("unusable")).watch_connectivity(heard.append)
    transports.release(server_config("unusable"))
    clock.advance(0)
    assert heard == []
