"""Unit tests of proxyless.runtime.network; sockets are in contracts/test_network.py."""

import asyncio
import socket
import ssl

import pytest

from proxyless.base import Address, IpAddress, UnixAddress
from proxyless.runtime.network import AsyncioNetwork, _name_to_check

V4 = IpAddress("192.0.2.1", 80)
UNIX = UnixAddress("/run/x.sock")


def answer(monkeypatch: pytest.MonkeyPatch, *sockaddrs: tuple[object, ...]) -> None:
    """Make the running loop resolve any name to these addresses."""

    async def getaddrinfo(host: str, port: int, *, type: int) -> list[tuple[object, ...]]:  # noqa: A002
        assert type == socket.SOCK_STREAM, "other types only repeat the addresses"
        return [(None, type, 6, "", sockaddr) for sockaddr in sockaddrs]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_both_families_are_found_in_the_systems_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer(monkeypatch, ("2001:db8::1", 80, 0, 0), ("192.0.2.1", 80), ("2001:db8::2", 80, 0, 0))
    assert [str(address) for address in await AsyncioNetwork().resolve("x.test", 80)] == [
        "[2001:db8::1]:80",
        "192.0.2.1:80",
        "[2001:db8::2]:80",
    ]


async def test_repeated_addresses_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, ("192.0.2.1", 80), ("192.0.2.2", 80), ("192.0.2.1", 80))
    assert await AsyncioNetwork().resolve("x.test", 80) == [V4, IpAddress("192.0.2.2", 80)]


async def test_a_link_local_address_keeps_its_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, ("fe80::1%eth0", 80, 0, 2))
    assert await AsyncioNetwork().resolve("x.test", 80) == [IpAddress("fe80::1%eth0", 80)]


async def test_a_name_that_cannot_be_encoded_does_not_exist() -> None:
    with pytest.raises(socket.gaierror, match=r"host 'a\.\.b' is not a valid name") as caught:
        await AsyncioNetwork().resolve("a..b", 80)
    assert caught.value.errno == socket.EAI_NONAME


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
