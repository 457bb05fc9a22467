"""Are connections in a mesh secured as the control plane says: grpcio's TLS servers, real sockets?

Each world has a directory with the files that the bootstrap's file_watcher reads, a control plane,
and servers that require a client certificate.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
from tests.cluster_world import any_of, proto
from tests.interop.mesh_world import NamedBackend, backends

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from proxyless.protos import Proto

TARGET = "xds:///api"
WHERE = "/test.Mesh/Where"
TLS_CONTEXT = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
# As often as files can be read.
REFRESH_S = 1.0
SERVER_NAMES = ["orders.example", "spiffe://mesh.example/orders"]
CLIENT_NAMES = ["spiffe://mesh.example/client"]


@dataclass
class Trust:
    """What a server is started with: its names, who vouches for it, whom it trusts."""

    authority: CertificateAuthority
    roots: bytes
    names: list[str]

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        chain, key = self.authority.issue(self.names)
        return grpc.ssl_server_certificate_configuration([(key, chain)], self.roots)


class TlsBackend(NamedBackend):
    """A backend that only clients with a certificate can call.

    It can be given other certificates: those count for connections made afterwards. With an age its
    connections end by themselves, RPCs included.
    """

    def __init__(self, name: str, trust: Trust, age_ms: int | None = None) -> None:
        super().__init__(name)
        self.trust = trust
        self._age_ms = age_ms
        # How often somebody connected since the certificates changed.
        self.connections = 0

    async def start(self) -> None:
        options: list[tuple[str, Any]] = [("grpc.so_reuseport", 0)]
        if self._age_ms is not None:
            options.append(("grpc.max_connection_age_ms", self._age_ms))
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers((self,))
        credentials = grpc.dynamic_ssl_server_credentials(
            self.trust.configuration(), self._configure, require_client_authentication=True
        )
        self.port = self._server.add_secure_port(f"127.0.0.1:{self.port}", credentials)
        await self._server.start()

    def _configure(self) -> grpc.ServerCertificateConfiguration:
        """For each handshake."""
        self.connections += 1
        return self.trust.configuration()

    def rotate(self, trust: Trust) -> None:
        self.trust = trust
        self.connections = 0


@asynccontextmanager
async def tls_backends(*started: TlsBackend) -> AsyncIterator[tuple[TlsBackend, ...]]:
    for backend in started:
        await backend.start()
    try:
        yield started
    finally:
        for backend in started:
            await backend.stop()


class Files:
    """The files of one certificate provider."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory

    def write_roots(self, *authorities: CertificateAuthority) -> None:
        content = b"".join(each.certificate_pem for each in authorities)
        (self._directory / "ca.pem").write_bytes(content)

    def write_identity(self, authority: CertificateAuthority) -> None:
        chain, key = authority.issue(CLIENT_NAMES, client=True)
        (self._directory / "cert.pem").write_bytes(chain)
        (self._directory / "key.pem").write_bytes(key)

    @property
    def provider(self) -> Mapping[str, Any]:
        """How the bootstrap names them."""
        config = {
            "certificate_file": str(self._directory / "cert.pem"),
            "private_key_file": str(self._directory / "key.pem"),
            "ca_certificate_file": str(self._directory / "ca.pem"),
            "refresh_interval": f"{REFRESH_S}s",
        }
        return {"plugin_name": "file_watcher", "config": config}


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture
def files(tmp_path: Path, authority: CertificateAuthority) -> Files:
    """With good roots and a good identity."""
    made = Files(tmp_path / "mesh")
    made.write_roots(authority)
    made.write_identity(authority)
    return made


def secured(
    cluster: Proto,
    *matchers: Mapping[str, Any],
    instance: str = "mesh",
    has_identity: bool = True,
    **fields: Any,  # noqa: ANN401 - of the message
) -> Proto:
    """The cluster, with TLS."""
    provider = {"instance_name": instance}
    typed = [each for each in matchers if "san_type" in each]
    validation = {
        "ca_certificate_provider_instance": provider,
        "match_subject_alt_names": [each for each in matchers if each not in typed],
        "match_typed_subject_alt_names": typed,
    }
    common: dict[str, Any] = {
        "combined_validation_context": {"default_validation_context": validation}
    }
    if has_identity:
        common["tls_certificate_provider_instance"] = provider
    context = proto(TLS_CONTEXT, common_tls_context=common, **fields)
    cluster.transport_socket.name = "envoy.transport_sockets.tls"
    cluster.transport_socket.typed_config.CopyFrom(any_of(context))
    return cluster


def mesh(cluster: Proto, *started: NamedBackend) -> Snapshot:
    """One cluster with these backends."""
    return Snapshot.of(
        [
            listener("api", [route(cluster=cluster.name)]),
            cluster,
            endpoints(cluster.name, [backend.address for backend in started]),
        ]
    )


def bootstrap_of(control_plane: ControlPlane, **providers: Files) -> dict[str, Any]:
    named = {name: files.provider for name, files in providers.items()}
    return {**control_plane.bootstrap(), "certificate_providers": named}


@asynccontextmanager
async def joined(
    control_plane: ControlPlane, **providers: Files
) -> AsyncIterator[Callable[..., Any]]:
    """A channel with xDS credentials, as the call that asks who serves."""
    async with proxyless.aio.secure_channel(
        TARGET,
        proxyless.xds_channel_credentials(proxyless.local_channel_credentials()),
        bootstrap=bootstrap_of(control_plane, **providers),
    ) as channel:
        call = channel.unary_unary(WHERE)

        async def where(**settings: Any) -> str:  # noqa: ANN401
            reply = await call(b"", timeout=20.0, **settings)
            return bytes(reply).decode()

        yield where


async def refusal(call: Callable[..., Any]) -> str:
    """Why a call fails, as UNAVAILABLE."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(caught.value.details())


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
    authority: CertificateAuthority, files: Files, matchers: tuple[Any, ...]
) -> None:
    trust = Trust(authority, authority.certificate_pem, SERVER_NAMES)
    async with tls_backends(TlsBackend("a", trust)) as started:
        snapshot = mesh(secured(eds_cluster("orders"), *matchers), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            assert await where() == "a"
            assert not plane.nacks


async def test_server_with_another_name_is_refused(
    authority: CertificateAuthority, files: Files
) -> None:
    trust = Trust(authority, authority.certificate_pem, SERVER_NAMES)
    async with tls_backends(TlsBackend("a", trust)) as started:
        snapshot = mesh(secured(eds_cluster("orders"), {"exact": "payments.example"}), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            assert (
                "TLS: certificate check failure: server is DNS 'orders.example', "
                "URI 'spiffe://mesh.example/orders', wanted exact 'payments.example'"
            ) in await refusal(where)


async def test_server_of_another_authority_is_refused(
    authority: CertificateAuthority, files: Files
) -> None:
    trust = Trust(CertificateAuthority("another"), authority.certificate_pem, SERVER_NAMES)
    async with tls_backends(TlsBackend("a", trust)) as started:
        snapshot = mesh(secured(eds_cluster("orders")), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            assert "TLS: certificate refused" in await refusal(where)


async def test_server_refuses_clients_without_certificate(
    authority: CertificateAuthority, files: Files
) -> None:
    trust = Trust(authority, authority.certificate_pem, SERVER_NAMES)
    async with tls_backends(TlsBackend("a", trust)) as started:
        snapshot = mesh(secured(eds_cluster("orders"), has_identity=False), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            details = await refusal(where)
            assert "after a TLS handshake in which no client certificate was sent" in details


async def test_server_refuses_clients_of_another_authority(
    authority: CertificateAuthority, files: Files
) -> None:
    files.write_identity(CertificateAuthority("another"))
    trust = Trust(authority, authority.certificate_pem, SERVER_NAMES)
    async with tls_backends(TlsBackend("a", trust)) as started:
        snapshot = mesh(secured(eds_cluster("orders")), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            details = await refusal(where)
            assert "after a TLS handshake in which a client certificate was sent" in details


async def test_certificates_may_come_later(authority: CertificateAuthority, tmp_path: Path) -> None:
    files = Files(tmp_path / "mesh")
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


@pytest.mark.timeout(60)
async def test_rotation_under_load_fails_no_rpc(
    authority: CertificateAuthority, files: Files
) -> None:
    """Everybody trusts both authorities, then shows new certificates, then forgets the old one."""
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
                # What was written is read when the interval is over and a connection is made.
                await asyncio.sleep(REFRESH_S)
                for backend in started:
                    backend.rotate(trust)
                while any(backend.connections < 2 for backend in started):  # noqa: ASYNC110 - nobody sets an event
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
    authority: CertificateAuthority, files: Files, tmp_path: Path
) -> None:
    other = CertificateAuthority("far")
    far_files = Files(tmp_path / "far")
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
    authority: CertificateAuthority, files: Files
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
            # The first attempt may have found nobody.
            while "payments.example" not in await refusal(where):  # noqa: ASYNC110 - nobody sets an event
                await asyncio.sleep(0.05)


async def test_fallback_credentials_are_never_used_because_tls_fails(files: Files) -> None:
    async with backends("a") as started:
        snapshot = mesh(secured(eds_cluster("orders")), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            assert "TLS" in await refusal(where)


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


async def test_blocking_channel_is_secured_too(
    authority: CertificateAuthority, files: Files
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


async def test_server_is_asked_by_name_and_has_to_have_it(
    authority: CertificateAuthority, files: Files
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
