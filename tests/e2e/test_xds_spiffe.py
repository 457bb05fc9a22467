"""SPIFFE trust bundles: a server is verified by the roots of its own trust domain only.

grpcio's servers on real sockets; two trust domains; the client's file_watcher has a map of both.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from proxyless.base import IpAddress, Status
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
)
from proxyless.transport import (
    ClientTls,
    ClientTransport,
    Connector,
    Server,
    TransportOptions,
    TrustBundles,
)
from tests.certificates import CertificateAuthority, server_context
from tests.worlds.mtls import (
    REFRESH_S,
    ProviderFiles,
    TlsBackend,
    Trust,
    joined,
    mesh,
    refusal,
    secured,
    tls_backends,
)
from tests.worlds.transports import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ON_BOTH_LOOPS = True

A, B = "a.example", "b.example"
A_ID, B_ID = f"spiffe://{A}/orders", f"spiffe://{B}/orders"
CLIENT_ID = f"spiffe://{A}/client"
OURS, THEIRS = CertificateAuthority("ours"), CertificateAuthority("theirs")
# Type of TLS records that are encrypted with the keys of the handshake.
ENCRYPTED = 23


@pytest.fixture
def files(tmp_path: Path) -> ProviderFiles:
    """Bootstrap with a valid identity, and the root of each trust domain."""
    made = ProviderFiles(tmp_path / "mesh")
    made.write_identity(OURS)
    made.write_map({A: [OURS], B: [THEIRS]})
    return made


def backend(name: str, authority: CertificateAuthority, *names: str) -> TlsBackend:
    return TlsBackend(name, Trust(authority, OURS.certificate_pem, list(names)))


def orders(*started: TlsBackend) -> Snapshot:
    """One cluster, whose servers may be of any trust domain."""
    return mesh(secured(eds_cluster("orders"), {"suffix": "/orders"}), *started)


@pytest.mark.spec("A87-02")
async def test_servers_of_each_trust_domain_are_trusted_by_its_own_roots(
    files: ProviderFiles,
) -> None:
    near, far = backend("near", OURS, A_ID), backend("far", THEIRS, B_ID)
    async with (
        tls_backends(near, far),
        ControlPlane(orders(near, far)) as plane,
        joined(plane, mesh=files) as where,
    ):
        served: set[str] = set()
        async with asyncio.timeout(20.0):
            while served != {"near", "far"}:
                served.add(await where())
        assert not plane.nacks


@pytest.mark.spec("A87-03")
async def test_an_authority_of_one_domain_cannot_vouch_for_another(files: ProviderFiles) -> None:
    """OURS is trusted and the name matches, but it is in another trust domain."""
    async with (
        tls_backends(backend("a", OURS, B_ID)) as started,
        ControlPlane(orders(*started)) as plane,
        joined(plane, mesh=files) as where,
    ):
        assert (
            "TLS: certificate refused: no root of trust domain 'b.example' vouches for "
            "'spiffe://b.example/orders'"
        ) in await refusal(where)


@pytest.mark.spec("A87-04", "A87-05")
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["/orders"], "certificate has 0 URIs, wanted exactly one, a SPIFFE ID"),
        ([A_ID, f"spiffe://{A}/x/orders"], "certificate has 2 URIs, wanted exactly one"),
        ([f"https://{A}/orders"], "is no SPIFFE ID: it does not begin with 'spiffe://'"),
        ([f"spiffe://{A}//orders"], "is no SPIFFE ID: it has '' as a segment of its path"),
        (["spiffe://c.example/orders"], "trust domain 'c.example' is not in the trust bundle map"),
    ],
)
async def test_certificates_that_are_no_svid_of_the_map_are_refused(
    files: ProviderFiles, names: list[str], expected: str
) -> None:
    async with (
        tls_backends(backend("a", OURS, *names)) as started,
        ControlPlane(orders(*started)) as plane,
        joined(plane, mesh=files) as where,
    ):
        assert expected in await refusal(where)


@pytest.mark.spec("A87-06")
async def test_san_matchers_are_checked_with_a_trust_bundle_map(files: ProviderFiles) -> None:
    async with (
        tls_backends(backend("a", OURS, f"spiffe://{A}/payments")) as started,
        ControlPlane(orders(*started)) as plane,
        joined(plane, mesh=files) as where,
    ):
        details = await refusal(where)
        assert "server is URI 'spiffe://a.example/payments', wanted suffix '/orders'" in details


@pytest.mark.spec("A87-01", "A87-05", "A87-11")
async def test_no_server_is_trusted_until_the_map_is_written(tmp_path: Path) -> None:
    """The CA file for clients without SPIFFE is not used either."""
    files = ProviderFiles(tmp_path / "mesh")
    files.write_identity(OURS)
    files.write_roots(OURS)
    files.write_map({})
    async with (
        tls_backends(backend("a", OURS, A_ID)) as started,
        ControlPlane(orders(*started)) as plane,
        joined(plane, mesh=files) as where,
    ):
        assert (
            "trust domain 'a.example' is not in the trust bundle map, which has no trust domain"
        ) in await refusal(where)
        files.write_map({A: [OURS]})
        assert await where(wait_for_ready=True) == "a"


@pytest.mark.rerun("grpcio's servers end connections while files are read again on real time")
@pytest.mark.spec("A87-13")
async def test_rotation_of_a_trust_domain_fails_no_rpc(files: ProviderFiles) -> None:
    """The map has both authorities of the domain, servers get new certificates, one goes."""
    new = CertificateAuthority("new")
    started = [
        TlsBackend(name, Trust(OURS, OURS.certificate_pem, [A_ID]), age_ms=200) for name in "ab"
    ]
    async with (
        tls_backends(*started),
        ControlPlane(orders(*started)) as plane,
        joined(plane, mesh=files) as where,
    ):
        served: Counter[str] = Counter()
        is_running = True

        async def load() -> None:
            while is_running:
                served[await where()] += 1

        async def rotate(authority: CertificateAuthority) -> None:
            # Files are read again after the interval, and used for the next connection.
            await asyncio.sleep(REFRESH_S)
            for each in started:
                each.rotate(Trust(authority, OURS.certificate_pem, [A_ID]))
            await until(lambda: all(each.connections >= 2 for each in started), "new connections")

        tasks = [asyncio.create_task(load()) for _ in range(5)]
        files.write_map({A: [OURS, new], B: [THEIRS]})
        await rotate(new)
        files.write_map({A: [new], B: [THEIRS]})
        await rotate(new)
        is_running = False
        await asyncio.gather(*tasks)
        assert set(served) == {"a", "b"}


class Tap:
    """A relay between client and server that records the clients' bytes by connection."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self.port = 0
        self.sent: list[bytearray] = []
        # The number of clients that have ended.
        self.ended = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = bytearray()
        self.sent.append(sent)
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        back = asyncio.create_task(_copy(from_server, writer, bytearray()))
        await _copy(reader, to_server, sent)
        self.ended += 1
        await back

    def types(self) -> list[set[int]]:
        """The types of the records that each client sent."""
        return [set(_record_types(bytes(sent))) for sent in self.sent]


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, copied: bytearray
) -> None:
    with suppress(OSError):
        while chunk := await reader.read(65536):
            copied += chunk
            writer.write(chunk)
            await writer.drain()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _record_types(stream: bytes) -> list[int]:
    found = []
    while stream:
        found.append(stream[0])
        stream = stream[5 + int.from_bytes(stream[3:5]) :]
    return found


@asynccontextmanager
async def tapped(port: int) -> AsyncIterator[Tap]:
    tap = Tap(port)
    server = await asyncio.start_server(tap, "127.0.0.1", 0)
    tap.port = server.sockets[0].getsockname()[1]
    async with server:
        yield tap
        await until(lambda: tap.ended == len(tap.sent), "all clients to leave")


@pytest.mark.parametrize("trusted", [A, B])
async def test_rejected_server_does_not_get_the_client_certificate(
    files: ProviderFiles, trusted: str
) -> None:
    """Our certificate is in the client's last flight, which a server of the wrong domain misses."""
    name = f"spiffe://{trusted}/orders"
    async with tls_backends(backend("a", OURS, name)) as [server], tapped(server.port) as tap:
        cluster = secured(eds_cluster("orders"))
        snapshot = Snapshot.of(
            [
                listener("api", [route(cluster="orders")]),
                cluster,
                endpoints("orders", [f"127.0.0.1:{tap.port}"]),
            ]
        )
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            if trusted == A:
                assert await where() == "a"
            else:
                assert "vouches for" in await refusal(where)
                await until(lambda: tap.ended, "the client to leave")
    assert all((ENCRYPTED in types) is (trusted == A) for types in tap.types())
    assert tap.sent


@pytest.mark.parametrize("trusted", [A, B])
async def test_nor_does_one_of_tls_1_2_where_certificates_are_not_encrypted(trusted: str) -> None:
    context = server_context(*OURS.issue([f"spiffe://{trusted}/orders"]), OURS.certificate_pem)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    server = Server({})
    address = await server.listen(IpAddress("127.0.0.1", 0), tls=context)
    assert isinstance(address, IpAddress)
    chain, key = OURS.issue([CLIENT_ID], client=True)
    roots = {A: frozenset({OURS.certificate_der}), B: frozenset({THEIRS.certificate_der})}
    tls = ClientTls(
        trust_bundles=TrustBundles.of(b"both", roots),
        certificate_chain=chain,
        private_key=key,
        server_name="",
        is_name_checked=False,
    )
    async with tapped(address.port) as tap:
        address_of_tap = IpAddress("127.0.0.1", tap.port)
        result = await Connector().connect(address_of_tap, TransportOptions(tls=tls))
        if isinstance(result, ClientTransport):
            result.close()
            await result.wait_closed()
    await server.close()
    [sent] = tap.sent
    assert (CLIENT_ID.encode() in sent) is (trusted == A)
    assert isinstance(result, Status) is (trusted == B)
