"""Contract of Network: connections, listeners, TLS and names.

A world is a network and an event loop. The real network runs on asyncio and on uvloop, and the
simulated one on a loop in virtual time.
"""

import asyncio
import functools
import os
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, cast

import pytest
import uvloop

from proxyless.base import Address, IpAddress, UnixAddress
from proxyless.runtime import AsyncioNetwork, Network, seeded_random
from proxyless.sim.loop import SimLoop
from proxyless.sim.network import Fabric, SimNetwork
from tests.certificates import CertificateAuthority

P = ParamSpec("P")


@dataclass(frozen=True)
class NetworkWorld:
    """A network and the loop that its tests run on."""

    network: Network
    new_loop: Callable[[], asyncio.AbstractEventLoop]
    has_sockets: bool = True
    has_tls: bool = True

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        async def run_and_check() -> None:
            # Only a hang takes longer.
            async with asyncio.timeout(20):
                await story
            # A loop accepts connections in its own tasks, which may end a moment later.
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                _, left = await asyncio.wait(others, timeout=5)
                assert not left, f"tasks still running after the test: {left}"

        with asyncio.Runner(loop_factory=self.new_loop) as runner:
            runner.run(run_and_check())


WORLDS = {
    "asyncio": NetworkWorld(AsyncioNetwork(), asyncio.new_event_loop),
    "uvloop": NetworkWorld(AsyncioNetwork(), uvloop.new_event_loop),
    "simulated": NetworkWorld(
        SimNetwork(Fabric(seeded_random(1)), "10.0.0.1"),
        SimLoop,
        has_sockets=False,
        has_tls=False,
    ),
}


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> NetworkWorld:
    world = WORLDS[request.param]
    if not world.has_tls and "authority" in request.fixturenames:
        pytest.skip("a handshake cannot be repeated, so the simulated network has no TLS")
    return world


def in_world(
    story: Callable[Concatenate[NetworkWorld, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[NetworkWorld, P], None]:
    """Run an asynchronous test on the loop of its world."""

    @functools.wraps(story)
    def test(world: NetworkWorld, *args: P.args, **kwargs: P.kwargs) -> None:
        world.run(story(world, *args, **kwargs))

    return cast("Callable[Concatenate[NetworkWorld, P], None]", test)


@pytest.fixture(params=["v4", "v6", "unix", "abstract"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """A free address to listen on."""
    match request.param:
        case "v4":
            return IpAddress("127.0.0.1", 0)
        case "v6":
            return IpAddress("::1", 0)
        case "unix":
            return UnixAddress(str(tmp_path / "s"))
        case _:
            return UnixAddress(f"\0proxyless-test-{os.getpid()}")


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


class Peer(asyncio.Protocol):
    """One end of a connection: records received bytes and the loss of the connection."""

    def __init__(self, accepted: "asyncio.Queue[Peer] | None" = None) -> None:
        self._accepted = accepted
        self.received = bytearray()
        self.lost = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of uvloop have the methods but not the type.
        self.transport = cast("asyncio.Transport", transport)
        if self._accepted is not None:
            self._accepted.put_nowait(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)

    async def expect(self, data: bytes) -> None:
        while len(self.received) < len(data):
            self._changed.clear()
            await self._changed.wait()
        assert self.received == data

    async def wait_for_data(self) -> None:
        """Return when data was received."""
        await self._changed.wait()

    async def close(self) -> None:
        self.transport.close()
        await self.lost


class Acceptor:
    """Creates server ends and returns them once they are connected."""

    def __init__(self) -> None:
        self._accepted: asyncio.Queue[Peer] = asyncio.Queue()

    def __call__(self) -> Peer:
        return Peer(self._accepted)

    async def next(self) -> Peer:
        return await self._accepted.get()


async def expect_bytes_both_ways(client: Peer, server: Peer) -> None:
    client.transport.write(b"ping")
    await server.expect(b"ping")
    server.transport.write(b"pong")
    await client.expect(b"pong")


@in_world
async def test_a_connection_carries_bytes_both_ways(world: NetworkWorld, place: Address) -> None:
    accepted = Acceptor()
    listener = await world.network.listen(place, accepted)
    with closing(listener):
        transport, client = await world.network.connect(listener.address, Peer)
        assert transport is client.transport
        server = await accepted.next()
        await expect_bytes_both_ways(client, server)
        await client.close()
        await server.lost


@in_world
async def test_a_megabyte_arrives_complete(world: NetworkWorld, place: Address) -> None:
    data = bytes(range(256)) * 4096
    accepted = Acceptor()
    with closing(await world.network.listen(place, accepted)) as listener:
        _, client = await world.network.connect(listener.address, Peer)
        server = await accepted.next()
        server.transport.write(data)
        await client.expect(data)
        await server.close()
        await client.lost


@in_world
async def test_each_connection_has_its_own_protocols(world: NetworkWorld, place: Address) -> None:
    accepted = Acceptor()
    with closing(await world.network.listen(place, accepted)) as listener:
        _, first = await world.network.connect(listener.address, Peer)
        first_server = await accepted.next()
        _, second = await world.network.connect(listener.address, Peer)
        second_server = await accepted.next()
        await expect_bytes_both_ways(second, second_server)
        assert not first.received + first_server.received
        for peer in (first, second):
            await peer.close()
        await first_server.lost
        await second_server.lost


@in_world
async def test_listener_has_its_real_address(world: NetworkWorld, place: Address) -> None:
    with closing(await world.network.listen(place, Peer)) as listener:
        match place, listener.address:
            case IpAddress(requested, 0), IpAddress(bound, port):
                assert bound == requested
                assert port > 0
            case _:
                assert listener.address == place


@in_world
async def test_connect_raises_os_error_when_there_is_no_listener(
    world: NetworkWorld, place: Address
) -> None:
    listener = await world.network.listen(place, Peer)
    listener.close()
    await listener.wait_closed()
    with pytest.raises(OSError):  # noqa: PT011 - the text is that of the system.
        await world.network.connect(listener.address, Peer)


@in_world
async def test_address_is_free_and_connections_stay_open_when_a_listener_is_closed(
    world: NetworkWorld, place: Address
) -> None:
    accepted = Acceptor()
    listener = await world.network.listen(place, accepted)
    _, client = await world.network.connect(listener.address, Peer)
    server = await accepted.next()
    listener.close()
    listener.close()
    await listener.wait_closed()
    again = await world.network.listen(listener.address, Peer)
    assert again.address == listener.address
    await expect_bytes_both_ways(client, server)
    await client.close()
    await server.lost
    again.close()
    await again.wait_closed()


@in_world
async def test_listen_raises_os_error_when_the_address_is_in_use(world: NetworkWorld) -> None:
    listener = await world.network.listen(IpAddress("127.0.0.1", 0), Peer)
    with closing(listener), pytest.raises(OSError, match="in use"):
        await world.network.listen(listener.address, Peer)


@in_world
async def test_cancelled_connect_closes_its_connection(
    world: NetworkWorld, place: Address, authority: CertificateAuthority
) -> None:
    accepted = Acceptor()  # Never answers the TLS handshake.
    with closing(await world.network.listen(place, accepted)) as listener:
        connect = asyncio.ensure_future(
            world.network.connect(
                listener.address, Peer, tls=authority.client_context(), server_hostname="x.test"
            )
        )
        server = await accepted.next()
        connect.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connect
        await server.lost


@in_world
async def test_tls_carries_bytes_both_ways_and_negotiates_a_protocol(
    world: NetworkWorld, place: Address, authority: CertificateAuthority
) -> None:
    accepted = Acceptor()
    server_context = authority.server_context(["api.test"], alpn=["h2"])
    client_context = authority.client_context(alpn=["grpc-exp", "h2"])
    listener = await world.network.listen(place, accepted, tls=server_context)
    with closing(listener):
        _, client = await world.network.connect(
            listener.address, Peer, tls=client_context, server_hostname="api.test"
        )
        server = await accepted.next()
        await expect_bytes_both_ways(client, server)
        tls = client.transport.get_extra_info("ssl_object")
        assert tls.selected_alpn_protocol() == "h2"
        assert ("DNS", "api.test") in client.transport.get_extra_info("peercert")["subjectAltName"]
        await client.close()
        await server.lost


@in_world
async def test_server_name_is_sent_to_the_server(
    world: NetworkWorld, place: Address, authority: CertificateAuthority
) -> None:
    accepted, names = Acceptor(), list[str | None]()
    context = authority.server_context(["api.test"])
    context.sni_callback = lambda tls, name, context: names.append(name)
    with closing(await world.network.listen(place, accepted, tls=context)) as listener:
        _, client = await world.network.connect(
            listener.address, Peer, tls=authority.client_context(), server_hostname="api.test"
        )
        server = await accepted.next()
        assert names == ["api.test"]
        await client.close()
        await server.lost


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@in_world
async def test_ip_address_is_verified_when_there_is_no_server_name(
    world: NetworkWorld, host: str, authority: CertificateAuthority
) -> None:
    accepted = Acceptor()
    context = authority.server_context([host])
    with closing(await world.network.listen(IpAddress(host, 0), accepted, tls=context)) as listener:
        _, client = await world.network.connect(
            listener.address, Peer, tls=authority.client_context()
        )
        server = await accepted.next()
        await client.close()
        await server.lost


async def expect_tls_failure(
    world: NetworkWorld, place: Address, server: ssl.SSLContext, client: ssl.SSLContext
) -> None:
    listener = await world.network.listen(place, Peer, tls=server)
    with closing(listener), pytest.raises(ssl.SSLCertVerificationError):
        await world.network.connect(listener.address, Peer, tls=client, server_hostname="api.test")


@in_world
async def test_connect_raises_when_the_certificate_is_for_another_name(
    world: NetworkWorld, place: Address, authority: CertificateAuthority
) -> None:
    server = authority.server_context(["other.test"])
    await expect_tls_failure(world, place, server, authority.client_context())


@in_world
async def test_connect_raises_when_the_authority_is_unknown(
    world: NetworkWorld, place: Address, authority: CertificateAuthority
) -> None:
    server = CertificateAuthority("stranger").server_context(["api.test"])
    await expect_tls_failure(world, place, server, authority.client_context())


@in_world
async def test_connect_raises_without_a_server_name_when_the_context_checks_names(
    world: NetworkWorld, place: Address, authority: CertificateAuthority
) -> None:
    # Also for the empty name, with which asyncio would check nothing.
    names = [""] if isinstance(place, IpAddress) else ["", None]
    for name in names:
        with pytest.raises(ValueError, match="has no server_hostname, wanted one to check"):
            await world.network.connect(
                place, Peer, tls=authority.client_context(), server_hostname=name
            )


@in_world
async def test_connect_needs_no_server_name_when_the_context_checks_no_names(
    world: NetworkWorld, place: Address, authority: CertificateAuthority
) -> None:
    accepted, context = Acceptor(), authority.client_context()
    context.check_hostname = False
    tls = authority.server_context(["api.test"])
    with closing(await world.network.listen(place, accepted, tls=tls)) as listener:
        _, client = await world.network.connect(listener.address, Peer, tls=context)
        server = await accepted.next()
        await expect_bytes_both_ways(client, server)
        await client.close()
        await server.lost


class SecondProtocol(asyncio.BufferedProtocol):
    """A buffered protocol that replaces the first protocol of a connection."""

    def __init__(self) -> None:
        self._buffer = bytearray(1024)
        self.received = bytearray()
        self.changed = asyncio.Event()
        self.lost = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


class Pausing(Peer):
    """Pauses reading after the first data."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.pause_reading()


@in_world
async def test_no_byte_is_lost_when_the_protocol_of_a_connection_is_replaced(
    world: NetworkWorld, place: Address
) -> None:
    accepted = Acceptor()
    with closing(await world.network.listen(place, accepted)) as listener:
        transport, client = await world.network.connect(listener.address, Pausing)
        server = await accepted.next()
        server.transport.write(b"for the first")
        await client.expect(b"for the first")
        server.transport.write(b"for the second")
        await asyncio.sleep(0.01)
        second = SecondProtocol()
        transport.set_protocol(second)
        transport.resume_reading()
        await second.changed.wait()
        assert second.received == b"for the second"
        assert client.received == b"for the first"
        transport.write(b"of the second")
        await server.expect(b"of the second")
        await server.close()
        await second.lost


@in_world
async def test_tls_starts_on_an_open_connection(
    world: NetworkWorld, place: Address, authority: CertificateAuthority
) -> None:
    accepted = Acceptor()
    tls = authority.server_context(["api.test"], alpn=["h2"])
    with closing(await world.network.listen(place, accepted, tls=tls)) as listener:
        plain, client = await world.network.connect(listener.address, Peer)
        secured = await world.network.start_tls(
            plain, client, tls=authority.client_context(alpn=["h2"]), server_hostname="api.test"
        )
        server = await accepted.next()
        assert secured.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        secured.write(b"ping")
        await server.expect(b"ping")
        server.transport.write(b"pong")
        await client.expect(b"pong")
        second = SecondProtocol()
        secured.set_protocol(second)
        server.transport.write(b"for the second")
        await second.changed.wait()
        assert second.received == b"for the second"
        secured.close()
        await server.lost
        await second.lost


@in_world
async def test_failed_handshake_closes_the_connection(
    world: NetworkWorld, place: Address, authority: CertificateAuthority
) -> None:
    tls = authority.server_context(["other.test"])
    with closing(await world.network.listen(place, Peer, tls=tls)) as listener:
        plain, client = await world.network.connect(listener.address, Peer)
        with pytest.raises(ssl.SSLCertVerificationError):
            await world.network.start_tls(
                plain, client, tls=authority.client_context(), server_hostname="api.test"
            )
        assert plain.is_closing()


@in_world
async def test_start_tls_raises_os_error_when_the_peer_closes_during_the_handshake(
    world: NetworkWorld, place: Address, authority: CertificateAuthority
) -> None:
    accepted = Acceptor()  # Never answers the TLS handshake.
    with closing(await world.network.listen(place, accepted)) as listener:
        plain, client = await world.network.connect(listener.address, Peer)
        server = await accepted.next()
        server.transport.close()
        with pytest.raises(OSError):  # noqa: PT011 - the text is that of the system.
            await world.network.start_tls(
                plain, client, tls=authority.client_context(), server_hostname="api.test"
            )
        await server.lost


@in_world
async def test_cancelled_handshake_closes_the_connection(
    world: NetworkWorld, place: Address, authority: CertificateAuthority
) -> None:
    accepted = Acceptor()  # Never answers the TLS handshake.
    with closing(await world.network.listen(place, accepted)) as listener:
        plain, client = await world.network.connect(listener.address, Peer)
        server = await accepted.next()
        handshake = asyncio.ensure_future(
            world.network.start_tls(
                plain, client, tls=authority.client_context(), server_hostname="api.test"
            )
        )
        await server.wait_for_data()
        handshake.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handshake
        await server.lost


@in_world
async def test_start_tls_raises_without_a_server_name_when_the_context_checks_names(
    world: NetworkWorld, place: Address, authority: CertificateAuthority
) -> None:
    accepted = Acceptor()
    with closing(await world.network.listen(place, accepted)) as listener:
        plain, client = await world.network.connect(listener.address, Peer)
        with pytest.raises(ValueError, match="has no server_hostname, wanted one to check"):
            await world.network.start_tls(
                plain, client, tls=authority.client_context(), server_hostname=""
            )
        await client.close()
        await (await accepted.next()).lost


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::7"])
@in_world
async def test_a_literal_resolves_to_itself(world: NetworkWorld, host: str) -> None:
    assert await world.network.resolve(host, 443) == [IpAddress(host, 443)]


@in_world
async def test_localhost_resolves_to_loopback_without_duplicates(world: NetworkWorld) -> None:
    addresses = await world.network.resolve("localhost", 80)
    assert addresses
    assert set(addresses) <= {IpAddress("127.0.0.1", 80), IpAddress("::1", 80)}
    assert len(set(addresses)) == len(addresses)


@pytest.mark.parametrize(
    "host", ["a..b", "x" * 64, "\udc80", ""], ids=["no label", "long label", "surrogate", "empty"]
)
@in_world
async def test_resolve_raises_os_error_when_the_name_is_invalid(
    world: NetworkWorld, host: str
) -> None:
    with pytest.raises(OSError):  # noqa: PT011 - the text is that of the system.
        await world.network.resolve(host, 80)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@in_world
async def test_small_writes_are_sent_at_once(world: NetworkWorld, host: str) -> None:
    if not world.has_sockets:
        pytest.skip("a network without sockets has no TCP_NODELAY")
    accepted = Acceptor()
    with closing(await world.network.listen(IpAddress(host, 0), accepted)) as listener:
        _, client = await world.network.connect(listener.address, Peer)
        server = await accepted.next()
        for peer in (client, server):
            sock = peer.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await client.close()
        await server.lost


@in_world
async def test_socket_file_is_removed_unless_another_listener_has_replaced_it(
    world: NetworkWorld, tmp_path: Path
) -> None:
    if not world.has_sockets:
        pytest.skip("a network without sockets has no socket files")
    place = UnixAddress(str(tmp_path / "s"))
    first = await world.network.listen(place, Peer)
    second = await world.network.listen(place, Peer)
    first.close()
    assert (tmp_path / "s").is_socket()
    second.close()
    assert not (tmp_path / "s").exists()


@in_world
async def test_close_succeeds_when_the_socket_file_was_removed(
    world: NetworkWorld, tmp_path: Path
) -> None:
    if not world.has_sockets:
        pytest.skip("a network without sockets has no socket files")
    listener = await world.network.listen(UnixAddress(str(tmp_path / "s")), Peer)
    (tmp_path / "s").unlink()
    listener.close()
    await listener.wait_closed()


@in_world
async def test_connect_raises_os_error_when_the_socket_path_is_too_long(
    world: NetworkWorld,
) -> None:
    if not world.has_sockets:
        pytest.skip("a network without sockets has no limit")
    with pytest.raises(OSError, match="path too long"):
        await world.network.connect(UnixAddress("/x" * 100), Peer)
