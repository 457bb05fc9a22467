"""Unit tests of the sharing of transports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.runtime import VirtualClock
from proxyless.xds.client.notifications import NotificationQueue
from proxyless.xds.client.transport import Transports
from tests.worlds.xds_clients import FakeXdsTransports, server_config

if TYPE_CHECKING:
    from proxyless.base import Status


def test_transport_is_closed_by_its_last_user() -> None:
    clock = VirtualClock()
    fakes = FakeXdsTransports(clock)
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


def test_unusable_server_is_reported_as_unreachable_in_the_next_turn() -> None:
    clock = VirtualClock()
    transports = Transports(FakeXdsTransports(clock), NotificationQueue(clock))
    transport = transports.acquire(server_config("unusable"))
    statuses: list[Status] = []
    transport.watch_connectivity(statuses.append)
    assert statuses == []
    clock.advance(0)
    assert [status.details for status in statuses] == ["no such credentials"]


def test_unusable_server_is_not_reported_after_release() -> None:
    clock = VirtualClock()
    transports = Transports(FakeXdsTransports(clock), NotificationQueue(clock))
    statuses: list[Status] = []
    transports.acquire(server_config("unusable")).watch_connectivity(statuses.append)
    transports.release(server_config("unusable"))
    clock.advance(0)
    assert statuses == []
