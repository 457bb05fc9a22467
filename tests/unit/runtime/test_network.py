"""Unit tests of proxyless.runtime.network; sockets are in contracts/test_network.py."""

import asyncio
import socket
import ssl
from threading import Event, Thread, current_thread

import pytest

from proxyless.base import Address, IpAddress, UnixAddress
from proxyless.runtime.network import AsyncioNetwork, _name_to_check
from tests.worlds.resolvers import settle
from tests.worlds.transports import PATIENCE_S

V4 = IpAddress("192.0.2.1", 80)
UNIX = UnixAddress("/run/x.sock")


def answer(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Make the system resolve any name to these addresses."""

    def getaddrinfo(host: str, port: None, **_: object) -> list[tuple[object, ...]]:
        return [(None, socket.SOCK_STREAM, 6, "", (host, 0)) for host in hosts]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


async def test_both_families_are_found_in_the_systems_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer(monkeypatch, "2001:db8::1", "192.0.2.1", "2001:db8::2")
    assert [str(address) for address in await AsyncioNetwork().resolve("x.test", 80)] == [
        "[2001:db8::1]:80",
        "192.0.2.1:80",
        "[2001:db8::2]:80",
    ]


async def test_a_link_local_address_keeps_its_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "fe80::1%eth0")
    assert await AsyncioNetwork().resolve("x.test", 80) == [IpAddress("fe80::1%eth0", 80)]


async def test_a_name_that_cannot_be_encoded_does_not_exist() -> None:
    with pytest.raises(socket.gaierror, match=r"host 'a\.\.b' is not a valid name") as caught:
        await AsyncioNetwork().resolve("a..b", 80)
    assert caught.value.errno == socket.EAI_NONAME


async def test_a_literal_needs_no_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "getaddrinfo")
    assert await AsyncioNetwork().resolve("192.0.2.1", 80) == [V4]


async def test_each_caller_of_a_look_up_gets_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end = Event()

    def getaddrinfo(*_: object, **__: object) -> list[object]:
        assert may_end.wait(PATIENCE_S)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    tasks = [asyncio.ensure_future(AsyncioNetwork().resolve("x.test", n)) for n in (1, 2)]
    await settle()
    may_end.set()
    first, second = await asyncio.gather(*tasks, return_exceptions=True)
    assert repr(first) == repr(second) == repr(socket.gaierror(socket.EAI_AGAIN, "no answer"))
    assert first is not second


async def test_a_look_up_whose_caller_was_cancelled_has_no_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end, ended = Event(), Event()

    def getaddrinfo(*_: object, **__: object) -> list[object]:
        assert may_end.wait(PATIENCE_S)
        ended.set()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    task = asyncio.ensure_future(AsyncioNetwork().resolve("x.test", 80))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may_end.set()
    assert ended.wait(PATIENCE_S)


def test_an_answer_after_the_end_of_the_loop_has_no_effect(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    began, may_end = Event(), Event()
    threads: list[Thread] = []

    def getaddrinfo(*_: object, **__: object) -> list[object]:
        threads.append(current_thread())
        began.set()
        assert may_end.wait(PATIENCE_S)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def abandon() -> None:
        task = asyncio.ensure_future(AsyncioNetwork().resolve("x.test", 80))
        await settle()
        task.cancel()

    asyncio.run(abandon())
    assert began.wait(PATIENCE_S)
    may_end.set()
    threads[0].join(PATIENCE_S)
    assert not caplog.records


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize(
    ("address", "server_hostname", "name"),
    [
        (V4, "api.test", "api.test"),
        (V4, None, "192.0.2.1"),
        (V4, "", ""),
        (UNIX, "api.test", "api.test"),
        (UNIX, None, ""),
        (UNIX, "", ""),
    ],
)
def test_a_name_may_be_empty_only_if_none_is_checked(
    address: Address, server_hostname: str | None, name: str, *, checks: bool
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks
    if checks and not name:
        with pytest.raises(ValueError, match=f"tls to {address} has no server_hostname"):
            _name_to_check(address, context, server_hostname)
    else:
        assert _name_to_check(address, context, server_hostname) == name
