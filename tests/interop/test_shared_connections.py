"""Channels of one process that share connections, in grpcio and here."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import grpc
import grpc.aio

import proxyless.aio
from tests.worlds.grpcio_peers import WHERE, backends
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.certificates import CertificateAuthority
    from tests.interop.drop_in import Untyped

CHANNELS = 20


def open_ours(target: str) -> Untyped:
    # Without a delay: on a slow machine the turn of the second address comes after 250 ms.
    options = [("proxyless.serial_connection_attempts", 1)]
    return proxyless.aio.insecure_channel(target, options=options)


async def ask(channel: Untyped) -> str:
    answer: bytes = await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
    return answer.decode()


async def answers_of_second_channel(open_channel: Callable[[str], Untyped]) -> tuple[str, str]:
    """The answers of two channels to one target, whose first address is down at the start."""
    async with backends("first", "second") as (first, second):
        target = f"ipv4:{first.address},{second.address}"
        await first.leave()
        async with open_channel(target) as early:
            early_answer = await ask(early)
            await first.start()
            async with open_channel(target) as late:
                return early_answer, await ask(late)


async def test_grpcio_uses_the_address_that_another_channel_is_connected_to() -> None:
    answers = await answers_of_second_channel(grpc.aio.insecure_channel)
    assert answers == ("second", "second")


async def test_proxyless_uses_the_first_address_when_another_channel_uses_a_later_one() -> None:
    answers = await answers_of_second_channel(open_ours)
    assert answers == ("second", "first")


async def answers_in_rotated_order(open_channel: Callable[[str], Untyped]) -> Counter[str]:
    """Whether the first address answered, for channels with the same addresses in other orders."""
    results: Counter[str] = Counter()
    async with backends("0", "1", "2", "3") as servers:
        channels = []
        for number in range(CHANNELS):
            start = number % len(servers)
            order = servers[start:] + servers[:start]
            channel = open_channel("ipv4:" + ",".join(server.address for server in order))
            channels.append(channel)
            results["first" if await ask(channel) == order[0].name else "later"] += 1
        for channel in channels:
            await channel.close()
    return results


async def test_both_use_the_first_address_when_other_targets_are_connected_to_a_later_one() -> None:
    assert await answers_in_rotated_order(grpc.aio.insecure_channel) == {"first": CHANNELS}
    assert await answers_in_rotated_order(open_ours) == {"first": CHANNELS}


async def peers_of_two_tls_channels(
    open_channel: Callable[..., Untyped], authority: CertificateAuthority
) -> set[str]:
    """The client addresses of two channels with equal TLS credentials, at the server."""
    certificate, key = authority.issue(["localhost", "127.0.0.1"])

    async def tell_peer(request: bytes, context: Untyped) -> bytes:
        peer: str = context.peer()
        return peer.encode()

    handlers = {"Peer": grpc.unary_unary_rpc_method_handler(tell_peer)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Tls", handlers),))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
    await server.start()
    peers: set[str] = set()
    try:
        # Both are open at the same time.
        channels = [
            open_channel(
                f"127.0.0.1:{port}", grpc.ssl_channel_credentials(authority.certificate_pem)
            )
            for _ in range(2)
        ]
        for channel in channels:
            answer: bytes = await channel.unary_unary("/test.Tls/Peer")(b"", timeout=PATIENCE_S)
            peers.add(answer.decode())
        for channel in channels:
            await channel.close()
    finally:
        await server.stop(None)
    return peers


async def test_grpcio_makes_a_connection_for_each_tls_credentials_object(
    authority: CertificateAuthority,
) -> None:
    assert len(await peers_of_two_tls_channels(grpc.aio.secure_channel, authority)) == 2


async def test_proxyless_shares_a_connection_between_equal_tls_credentials(
    authority: CertificateAuthority,
) -> None:
    assert len(await peers_of_two_tls_channels(proxyless.aio.secure_channel, authority)) == 1
