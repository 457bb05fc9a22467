"""Our client and grpcio's servers over TLS: verification, and its errors."""

import asyncio
import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from bench.transport_calls import StreamingCall, UnaryCall
from proxyless.base import Address, UnixAddress
from proxyless.transport import ClientTls, PeerCertificate, TransportOptions
from tests.certificates import CertificateAuthority
from tests.interop.conftest import Serve
from tests.worlds.transports import AUTHORITY, TransportClient, encode, expect_reply, read_all

ON_BOTH_LOOPS = True

Identity = tuple[bytes, bytes]
SPIFFE = "spiffe://example.test/backend"


@pytest.fixture
def identity(authority: CertificateAuthority) -> Identity:
    """A good server's certificate and key."""
    return authority.issue([AUTHORITY, SPIFFE, "127.0.0.1"])


def credentials(identity: Identity, client_roots: bytes | None = None) -> Any:  # noqa: ANN401
    certificate, key = identity
    return grpc.ssl_server_credentials(
        [(key, certificate)], client_roots, require_client_auth=client_roots is not None
    )


def options(authority: CertificateAuthority, **tls: Any) -> TransportOptions:  # noqa: ANN401
    return TransportOptions(tls=ClientTls(root_certificates=authority.certificate_pem, **tls))


async def expect_a_call(
    client: TransportClient, address: Address, options: TransportOptions
) -> None:
    """The connection is made, and it carries what it should."""
    transport = await client.connect(address, options, AUTHORITY)
    block = encode("Echo", scheme="https")
    assert await expect_reply(UnaryCall(transport, block, b"secret")) == b"secret"


async def test_calls_of_all_sizes_run_over_tls(
    client: TransportClient, serve: Serve, authority: CertificateAuthority, identity: Identity
) -> None:
    backend = await serve(credentials=credentials(identity))
    transport = await client.connect(backend.address, options(authority), AUTHORITY)
    messages = [bytes(size) for size in (0, 1, 1000, 100_000, 3 * 1024 * 1024)]
    calls = [UnaryCall(transport, encode("Echo", scheme="https"), each) for each in messages]
    assert [await expect_reply(call) for call in calls] == messages


async def test_streams_run_over_tls(
    client: TransportClient, serve: Serve, authority: CertificateAuthority, identity: Identity
) -> None:
    backend = await serve(credentials=credentials(identity))
    transport = await client.connect(backend.address, options(authority), AUTHORITY)
    call = StreamingCall(transport, encode("PingPong", scheme="https"))
    message = bytes(100_000)

    async def write_all() -> None:
        for _ in range(50):
            await call.write(message)
        call.close_sending()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_all())
        assert await read_all(call) == [message] * 50


async def test_untrusted_authority_is_rejected(
    client: TransportClient, serve: Serve, authority: CertificateAuthority
) -> None:
    stranger = CertificateAuthority("stranger")
    backend = await serve(credentials=credentials(stranger.issue([AUTHORITY])))
    reason = await client.refused(backend.address, options(authority), AUTHORITY)
    assert reason == "TLS: certificate refused: unable to get local issuer certificate"


async def test_another_name_is_refused(
    client: TransportClient, serve: Serve, authority: CertificateAuthority
) -> None:
    backend = await serve(credentials=credentials(authority.issue(["other.test"])))
    reason = await client.refused(backend.address, options(authority), AUTHORITY)
    assert reason.startswith("TLS: certificate refused: Hostname mismatch")
    assert AUTHORITY in reason


async def test_an_expired_certificate_is_refused(
    client: TransportClient, serve: Serve, authority: CertificateAuthority
) -> None:
    identity = authority.issue([AUTHORITY], ends_in=timedelta(minutes=-1))
    backend = await serve(credentials=credentials(identity))
    reason = await client.refused(backend.address, options(authority), AUTHORITY)
    assert reason == "TLS: certificate refused: certificate has expired"


async def test_system_roots_are_used_by_default(
    client: TransportClient,
    serve: Serve,
    identity: Identity,
    authority: CertificateAuthority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = await serve(credentials=credentials(identity))
    # Names that the cache of contexts has not met.
    for_system, for_file = ClientTls(server_name=AUTHORITY), ClientTls(server_name="127.0.0.1")
    monkeypatch.delenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", raising=False)
    reason = await client.refused(backend.address, TransportOptions(tls=for_system))
    assert "certificate refused" in reason
    roots = tmp_path / "roots.pem"
    roots.write_bytes(authority.certificate_pem)
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(roots))
    await expect_a_call(client, backend.address, TransportOptions(tls=for_file))


async def test_the_options_override_the_name(
    client: TransportClient, serve: Serve, authority: CertificateAuthority
) -> None:
    backend = await serve(credentials=credentials(authority.issue(["other.test"])))
    await expect_a_call(client, backend.address, options(authority, server_name="other.test"))


async def test_a_name_need_not_be_checked(
    client: TransportClient, serve: Serve, authority: CertificateAuthority
) -> None:
    backend = await serve(credentials=credentials(authority.issue(["other.test"])))
    await expect_a_call(client, backend.address, options(authority, is_name_checked=False))


async def test_without_a_name_the_address_is_checked(
    client: TransportClient, serve: Serve, authority: CertificateAuthority, identity: Identity
) -> None:
    backend = await serve(credentials=credentials(identity))
    transport = await client.connect(backend.address, options(authority))
    assert await expect_reply(UnaryCall(transport, encode("Echo", scheme="https"), b"1")) == b"1"


# The client's certificate


async def test_a_client_shows_its_certificate(
    client: TransportClient, serve: Serve, authority: CertificateAuthority, identity: Identity
) -> None:
    backend = await serve(credentials=credentials(identity, authority.certificate_pem))
    certificate, key = authority.issue(["spiffe://example.test/client"], client=True)
    tls = options(authority, certificate_chain=certificate, private_key=key)
    await expect_a_call(client, backend.address, tls)


async def test_client_without_a_required_certificate_is_rejected(
    client: TransportClient, serve: Serve, authority: CertificateAuthority, identity: Identity
) -> None:
    backend = await serve(credentials=credentials(identity, authority.certificate_pem))
    reason = await client.refused(backend.address, options(authority), AUTHORITY)
    assert reason.startswith("connection lost: ")


async def test_a_client_of_another_authority_is_refused(
    client: TransportClient, serve: Serve, authority: CertificateAuthority, identity: Identity
) -> None:
    backend = await serve(credentials=credentials(identity, authority.certificate_pem))
    certificate, key = CertificateAuthority("stranger").issue(["client.test"], client=True)
    tls = options(authority, certificate_chain=certificate, private_key=key)
    reason = await client.refused(backend.address, tls, AUTHORITY)
    assert reason.startswith("connection lost: ")


@pytest.mark.parametrize("part", ["certificate_chain", "private_key"])
async def test_half_an_identity_is_refused(
    client: TransportClient,
    serve: Serve,
    authority: CertificateAuthority,
    identity: Identity,
    part: str,
) -> None:
    backend = await serve(credentials=credentials(identity))
    reason = await client.refused(backend.address, options(authority, **{part: b"?"}), AUTHORITY)
    assert reason == "certificate chain and private key go together: one of them is missing"


# Who the peer is


async def test_check_of_the_peer_gets_its_names(
    client: TransportClient, serve: Serve, authority: CertificateAuthority, identity: Identity
) -> None:
    seen: list[PeerCertificate] = []
    backend = await serve(credentials=credentials(identity))
    await expect_a_call(client, backend.address, options(authority, check_peer=seen.append))
    (peer,) = seen
    assert peer.dns_names == (AUTHORITY,)
    assert peer.uris == (SPIFFE,)
    assert peer.ip_addresses == ("127.0.0.1",)
    assert peer.emails == ()
    assert peer.der == ssl.PEM_cert_to_DER_cert(identity[0].decode())


async def test_a_check_of_the_peer_refuses_with_its_reason(
    client: TransportClient, serve: Serve, authority: CertificateAuthority, identity: Identity
) -> None:
    backend = await serve(credentials=credentials(identity))

    def check_peer(peer: PeerCertificate) -> str:
        return f"no matcher accepts {peer.uris}"

    tls = options(authority, check_peer=check_peer, is_name_checked=False)
    reason = await client.refused(backend.address, tls, AUTHORITY)
    assert reason == f"TLS: no matcher accepts ('{SPIFFE}',)"


async def test_a_check_that_raises_leaves_no_connection_behind(
    client: TransportClient, serve: Serve, authority: CertificateAuthority, identity: Identity
) -> None:
    backend = await serve(credentials=credentials(identity))

    def check_peer(peer: PeerCertificate) -> str:
        raise LookupError("a bug of the caller")

    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )
    tls = options(authority, check_peer=check_peer)
    reason = await client.refused(backend.address, tls, AUTHORITY)
    assert reason == "connecting raised LookupError('a bug of the caller')"
    assert [type(each) for each in reported] == [LookupError]


async def test_a_unix_socket_may_carry_tls(
    client: TransportClient,
    serve: Serve,
    authority: CertificateAuthority,
    identity: Identity,
    tmp_path: Path,
) -> None:
    place = UnixAddress(str(tmp_path / "s"))
    await serve(place=place, credentials=credentials(identity))
    await expect_a_call(client, place, options(authority))
