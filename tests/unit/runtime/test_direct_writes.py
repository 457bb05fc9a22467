"""Unit tests of proxyless.runtime.direct_writes, with real sockets."""

import asyncio
import socket
import struct
from collections.abc import Iterator

import pytest
import uvloop

from proxyless.runtime.direct_writes import (
    NO_DESCRIPTOR,
    direct_descriptor,
    is_closed_by_peer,
    write_directly,
)

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    with ours, peer:
        ours.setblocking(False)
        yield ours, peer


@pytest.mark.parametrize("new_loop", LOOPS)
def test_bytes_are_written_past_the_transport_of_a_loop(
    new_loop: type[asyncio.AbstractEventLoop],
) -> None:
    async def write() -> None:
        ours, peer = socket.socketpair()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        with peer:
            assert write_directly(direct_descriptor(transport), b"bytes") == 5
            assert peer.recv(100) == b"bytes"
            transport.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(write())


class InfoTransport(asyncio.Transport):
    """A transport with this extra info."""


def test_transport_without_a_socket_has_no_descriptor() -> None:
    assert direct_descriptor(InfoTransport()) == NO_DESCRIPTOR


@pytest.mark.parametrize("name", ["sslcontext", "ssl_object"])
def test_encrypted_transport_has_no_descriptor(
    pair: tuple[socket.socket, socket.socket], name: str
) -> None:
    transport = InfoTransport({"socket": pair[0], name: object()})
    assert direct_descriptor(transport) == NO_DESCRIPTOR


def test_connection_is_not_closed_by_the_peer_while_it_is_open(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, peer = pair
    assert not is_closed_by_peer(ours.fileno())
    peer.send(b"data")
    assert not is_closed_by_peer(ours.fileno())


@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
def test_connection_is_closed_by_the_peer_even_if_data_is_unread(
    pair: tuple[socket.socket, socket.socket], is_reset: bool
) -> None:
    ours, peer = pair
    peer.send(b"data")
    if is_reset:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    peer.close()
    assert is_closed_by_peer(ours.fileno())
    assert ours.recv(100) == b"data"
