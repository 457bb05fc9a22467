"""mTLS configured by the control plane, with grpcio's servers, on real sockets."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import proxyless
from proxyless.controlplane import (
    CLUSTER,
    ControlPlane,
    Snapshot,
    aggregate_cluster,
    eds_cluster,
    endpoints,
    listener,
    route,
)
from tests.certificates import CertificateAuthority
from tests.worlds.grpcio_peers import WHERE, backends
from tests.worlds.mtls import (
    CLIENT_NAMES,
    REFRESH_S,
    SERVER_NAMES,
    TARGET,
    ProviderFiles,
    TlsBackend,
    Trust,
    bootstrap_of,
    joined,
    mesh,
    refusal,
    secured,
    tls_backends,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture
def files(tmp_path: Path, authority: CertificateAuthority) -> ProviderFiles:
    """Bootstrap with valid roots and a valid identity."""
    made = ProviderFiles(tmp_path / "mesh")
    made.write_roots(authority)
    made.write_identity(authority)
    return made


@pytest.mark.spec("A29-06", "A29-13")
@pytest.mark.parametrize(
    "matchers",
    [
        (),
        ({"exact": "ORDERS.example"},),
        ({"prefix": "spiffe://mesh.example/"},),
        ({"san_type": "URI", "matcher": {"suffix": "/orders"}},),
        ({"exact": "other.example"}, {"safe_regex": {"regex": "spiffe://.*/orders"}}),
    ],
)
async def test_servers_of_the_cluster_are_connected_to(
    authority: CertificateAuthority, files: ProviderFiles, matchers: tuple[Any, ...]
) -> None:
    trust = Trust(authority, authority.certificate_pem, SERVER_NAMES)
    async with tls_backends(TlsBackend("a", trust)) as started:
        snapshot = mesh(secured(eds_cluster("orders"), *matchers), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            assert await where() == "a"
            assert not plane.nacks


@pytest.mark.spec("A29-17")
async def test_server_with_another_name_is_refused(
    authority: CertificateAuthority, files: ProviderFiles
) -> None:
    trust = Trust(authority, authority.certificate_pem, SERVER_NAMES)
    async with tls_backends(TlsBackend("a", trust)) as started:
        snapshot = mesh(secured(eds_cluster("orders"), {"exact": "payments.example"}), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            assert (
                "TLS: certificate check failure: server is DNS 'orders.example', "
                "URI 'spiffe://mesh.example/orders', wanted exact 'payments.example'"
            ) in await refusal(where)


@pytest.mark.spec("A29-01")
async def test_server_of_another_authority_is_refused(
    authority: CertificateAuthority, files: ProviderFiles
) -> None:
    trust = Trust(CertificateAuthority("another"), authority.certificate_pem, SERVER_NAMES)
    async with tls_backends(TlsBackend("a", trust)) as started:
        snapshot = mesh(secured(eds_cluster("orders")), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            assert "TLS: certificate refused" in await refusal(where)


@pytest.mark.spec("A29-06")
async def test_server_refuses_clients_without_certificate(
    authority: CertificateAuthority, files: ProviderFiles
) -> None:
    trust = Trust(authority, authority.certificate_pem, SERVER_NAMES)
    async with tls_backends(TlsBackend("a", trust)) as started:
        snapshot = mesh(secured(eds_cluster("orders"), has_identity=False), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            details = await refusal(where)
            assert "after a TLS handshake in which no client certificate was sent" in details


async def test_server_refuses_clients_of_another_authority(
    authority: CertificateAuthority, files: ProviderFiles
) -> None:
    files.write_identity(CertificateAuthority("another"))
    trust = Trust(authority, authority.certificate_pem, SERVER_NAMES)
    async with tls_backends(TlsBackend("a", trust)) as started:
        snapshot = mesh(secured(eds_cluster("orders")), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            details = await refusal(where)
            assert "after a TLS handshake in which a client certificate was sent" in details


async def test_rpcs_succeed_when_certificates_are_written_later(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    files = ProviderFiles(tmp_path / "mesh")
    files.write_roots(authority)
    trust = Trust(authority, authority.certificate_pem, SERVER_NAMES)
    async with tls_backends(TlsBackend("a", trust)) as started:
        snapshot = mesh(secured(eds_cluster("orders")), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            details = await refusal(where)
            assert "certificate provider 'mesh': file " in details
            assert "cert.pem' cannot be read: No such file or directory" in details
            files.write_identity(authority)
            assert await where(wait_for_ready=True) == "a"


@pytest.mark.rerun("grpcio's servers end connections while files are read again on real time")
@pytest.mark.spec("A29-20")
async def test_rotation_under_load_fails_no_rpc(
    authority: CertificateAuthority, files: ProviderFiles
) -> None:
    """Rotation: trust both authorities, use new certificates, then trust only the new one."""
    old, new = authority, CertificateAuthority("new")
    both = old.certificate_pem + new.certificate_pem
    first = Trust(old, old.certificate_pem, SERVER_NAMES)
    async with tls_backends(*(TlsBackend(name, first, age_ms=200) for name in "ab")) as started:
        cluster = secured(eds_cluster("orders"), {"exact": "orders.example"})
        async with (
            ControlPlane(mesh(cluster, *started)) as plane,
            joined(plane, mesh=files) as where,
        ):
            served: Counter[str] = Counter()
            running = True

            async def load() -> None:
                while running:
                    served[await where()] += 1

            async def rotate(trust: Trust) -> None:
                # Files are read again after the interval, and used for the next connection.
                await asyncio.sleep(REFRESH_S)
                for backend in started:
                    backend.rotate(trust)
                while any(backend.connections < 2 for backend in started):  # noqa: ASYNC110 - there is no event to wait for
                    await asyncio.sleep(0.01)

            tasks = [asyncio.create_task(load()) for _ in range(5)]
            files.write_roots(old, new)
            await rotate(Trust(old, both, SERVER_NAMES))
            files.write_identity(new)
            await rotate(Trust(new, both, SERVER_NAMES))
            files.write_roots(new)
            await rotate(Trust(new, new.certificate_pem, SERVER_NAMES))
            running = False
            await asyncio.gather(*tasks)
            assert set(served) == {"a", "b"}


async def test_leaves_of_an_aggregate_have_their_own_tls(
    authority: CertificateAuthority, files: ProviderFiles, tmp_path: Path
) -> None:
    other = CertificateAuthority("far")
    far_files = ProviderFiles(tmp_path / "far")
    far_files.write_roots(other)
    far_files.write_identity(other)
    near = TlsBackend("near", Trust(authority, authority.certificate_pem, ["near.example"]))
    far = TlsBackend("far", Trust(other, other.certificate_pem, ["far.example"]))
    async with tls_backends(near, far), backends("plain") as [plain]:
        snapshot = Snapshot.of(
            [
                listener("api", [route(cluster="top")]),
                aggregate_cluster("top", ["near", "far", "plain"]),
                secured(eds_cluster("near"), {"exact": "near.example"}),
                secured(eds_cluster("far"), {"exact": "far.example"}, instance="far"),
                eds_cluster("plain"),
                *(endpoints(each.name, [each.address]) for each in (near, far, plain)),
            ]
        )
        async with (
            ControlPlane(snapshot) as plane,
            joined(plane, mesh=files, far=far_files) as where,
        ):
            assert await where() == "near"
            await near.leave()
            assert await where(wait_for_ready=True) == "far"
            await far.leave()
            assert await where(wait_for_ready=True) == "plain"


async def test_a_changed_config_counts_for_the_next_connection(
    authority: CertificateAuthority, files: ProviderFiles
) -> None:
    trust = Trust(authority, authority.certificate_pem, SERVER_NAMES)
    async with tls_backends(TlsBackend("a", trust)) as [backend]:
        wrong = mesh(secured(eds_cluster("orders"), {"exact": "payments.example"}), backend)
        right = mesh(secured(eds_cluster("orders"), {"exact": "orders.example"}), backend)
        async with ControlPlane(wrong) as plane, joined(plane, mesh=files) as where:
            assert "payments.example" in await refusal(where)
            plane.set_snapshot(right)
            assert await where(wait_for_ready=True) == "a"
            plane.set_snapshot(wrong)
            await plane.wait_for_ack(CLUSTER)
            # Until the connection is lost, it serves.
            for _ in range(20):
                assert await where() == "a"
                await asyncio.sleep(0.01)
            await backend.leave()
            await backend.start()
            # The first attempt may have failed.
            while "payments.example" not in await refusal(where):  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.05)


@pytest.mark.spec("A29-03")
async def test_fallback_credentials_are_never_used_because_tls_fails(files: ProviderFiles) -> None:
    async with backends("a") as started:
        snapshot = mesh(secured(eds_cluster("orders")), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            assert "TLS" in await refusal(where)


@pytest.mark.spec("A29-05")
async def test_tls_of_the_cluster_is_not_used_without_xds_credentials(files: ProviderFiles) -> None:
    async with backends("a") as started:
        snapshot = mesh(secured(eds_cluster("orders")), *started)
        async with ControlPlane(snapshot) as plane:
            bootstrap = bootstrap_of(plane, mesh=files)
            async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
                assert bytes(await channel.unary_unary(WHERE)(b"", timeout=20.0)) == b"a"
            assert not plane.nacks
            # It is validated all the same.
            plane.set_snapshot(mesh(secured(eds_cluster("orders"), instance="none"), *started))
            async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
                with pytest.raises(grpc.aio.AioRpcError, match="no certificate provider"):
                    await channel.unary_unary(WHERE)(b"", timeout=20.0)


@pytest.mark.spec("A29-04")
@pytest.mark.parametrize("maker", [proxyless.xds_channel_credentials, grpc.xds_channel_credentials])
async def test_fallback_credentials_are_used_without_xds(
    authority: CertificateAuthority, maker: Callable[..., Any]
) -> None:
    chain, key = authority.issue(CLIENT_NAMES, client=True)
    fallback = grpc.ssl_channel_credentials(authority.certificate_pem, key, chain)
    trust = Trust(authority, authority.certificate_pem, ["localhost"])
    async with tls_backends(TlsBackend("a", trust)) as [backend]:
        target = f"dns:///localhost:{backend.port}"
        async with proxyless.aio.secure_channel(target, maker(fallback)) as channel:
            assert bytes(await channel.unary_unary(WHERE)(b"", timeout=20.0)) == b"a"


async def test_blocking_channel_uses_mtls(
    authority: CertificateAuthority, files: ProviderFiles
) -> None:
    trust = Trust(authority, authority.certificate_pem, SERVER_NAMES)
    async with tls_backends(TlsBackend("a", trust)) as started:
        snapshot = mesh(secured(eds_cluster("orders"), {"exact": "orders.example"}), *started)
        async with ControlPlane(snapshot) as plane:

            def call_blocking() -> bytes:
                fallback = proxyless.local_channel_credentials()
                with proxyless.secure_channel(
                    TARGET,
                    proxyless.xds_channel_credentials(fallback),
                    bootstrap=bootstrap_of(plane, mesh=files),
                ) as channel:
                    return bytes(channel.unary_unary(WHERE)(b"", timeout=20.0))

            assert await asyncio.to_thread(call_blocking) == b"a"


@pytest.mark.spec("A101-05")
async def test_sni_is_sent_and_must_be_in_the_certificate(
    authority: CertificateAuthority, files: ProviderFiles
) -> None:
    trust = Trust(authority, authority.certificate_pem, ["*.example"])
    async with tls_backends(TlsBackend("a", trust)) as started:

        def named(sni: str) -> Snapshot:
            cluster = secured(eds_cluster("orders"), sni=sni, auto_sni_san_validation=True)
            return mesh(cluster, *started)

        async with ControlPlane(named("a.b.example")) as plane, joined(plane, mesh=files) as where:
            assert "server is DNS '*.example', wanted DNS 'a.b.example'" in await refusal(where)
            plane.set_snapshot(named("a.example"))
            assert await where(wait_for_ready=True) == "a"
