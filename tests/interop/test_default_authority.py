"""Default `:authority` of calls, ours beside grpcio's.

Servers route by it and TLS checks it, so it must be the same, except where grpcio sends an invalid
authority.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

import proxyless.aio
from proxyless.base import Address, IpAddress, UnixAddress
from proxyless.resolver import STATIC_FACTORIES, DnsFactory, ResolverRegistry
from proxyless.transport import Server, ServerCall

REGISTRY = ResolverRegistry([DnsFactory(), *STATIC_FACTORIES])
PATH = "/proxyless.Test/Look"
PATIENCE_S = 10.0


@asynccontextmanager
async def listening(place: Address, seen: list[str]) -> AsyncIterator[Address]:
    """A server that records the authority of each call."""

    async def look(call: ServerCall) -> None:
        seen.append(call.request.authority)
        await call.write(b"")

    server = Server({PATH: look})
    try:
        yield await server.listen(place)
    finally:
        await server.close()


async def call_with_grpcio(target: str) -> None:
    async with grpc.aio.insecure_channel(target) as channel:
        await channel.unary_unary(PATH)(b"", timeout=PATIENCE_S)


async def ask_both(target: str, place: Address) -> tuple[str, str]:
    """The authority that grpcio sends, and ours. `PORT` in the target is the server's."""
    seen: list[str] = []
    async with listening(place, seen) as address:
        if isinstance(address, IpAddress):
            target = target.replace("PORT", str(address.port))
        await call_with_grpcio(target)
    factory, parsed = REGISTRY.match_target(target)
    [theirs] = seen
    return theirs, factory.default_authority(parsed)


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("localhost:PORT", "127.0.0.1"),
        ("dns:///localhost:PORT", "127.0.0.1"),
        ("dns:localhost:PORT", "127.0.0.1"),
        ("DNS:///localhost:PORT", "127.0.0.1"),
        ("LOCALHOST:PORT", "127.0.0.1"),
        ("localhost%3APORT", "127.0.0.1"),
        ("dns:///localhost:PORT?query#fragment", "127.0.0.1"),
        ("127.0.0.1:PORT", "127.0.0.1"),
        ("ipv4:127.0.0.1:PORT", "127.0.0.1"),
        ("ipv4:///127.0.0.1:PORT", "127.0.0.1"),
        ("[::1]:PORT", "::1"),
        ("dns:///[::1]:PORT", "::1"),
        ("ipv6:[::1]:PORT", "::1"),
        ("ipv6:%5B::1%5D:PORT", "::1"),
    ],
)
async def test_names_and_single_addresses_are_the_same(target: str, host: str) -> None:
    theirs, ours = await ask_both(target, IpAddress(host, 0))
    assert ours == theirs


@pytest.mark.parametrize("after", ["\n", " ", "\r\n"])
@pytest.mark.parametrize(
    "before", ["localhost:", "ipv4:127.0.0.1:", "dns:///127.0.0.1:0", "localhost: +"]
)
async def test_port_may_have_white_space_and_leading_zeros(before: str, after: str) -> None:
    """As in a target that was read from a file."""
    seen: list[str] = []
    async with listening(IpAddress("127.0.0.1", 0), seen) as address:
        assert isinstance(address, IpAddress)
        target = f"{before}{address.port}{after}"
        await call_with_grpcio(target)
        async with proxyless.aio.insecure_channel(target) as channel:
            await channel.unary_unary(PATH)(b"", timeout=PATIENCE_S)
    theirs, ours = seen
    assert ours == theirs


async def test_authority_of_a_list_is_its_first_address_where_grpcio_sends_the_list() -> None:
    theirs, ours = await ask_both("ipv4:127.0.0.1:PORT,127.0.0.1:PORT", IpAddress("127.0.0.1", 0))
    assert theirs == f"{ours},{ours}"


async def test_authority_of_a_unix_socket_is_localhost_where_grpcio_sends_its_path(
    tmp_path: Path,
) -> None:
    socket = UnixAddress(str(tmp_path / "s"))
    theirs, ours = await ask_both(f"unix:{socket.path}", socket)
    assert "%2F" in theirs
    assert ours == "localhost"


async def test_an_abstract_socket_is_localhost_where_grpcio_sends_its_name() -> None:
    name = f"proxyless-authority-{os.getpid()}"
    theirs, ours = await ask_both(f"unix-abstract:{name}", UnixAddress(f"\0{name}"))
    assert (theirs, ours) == (name, "localhost")
