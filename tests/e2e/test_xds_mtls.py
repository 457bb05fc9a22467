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

    def server_credentials(self) -> grpc.ServerCredentials:
        chain, key = self.authority.issue(self.names)
        return grpc.ssl_server_credentials(
            [(key, chain)], root_certificates=self.roots, require_client_auth=True
        )


class TlsBackend(NamedBackend):
    """A backend that only clients with a certificate can call."""

    def __init__(self, name: str, trust: Trust) -> None:
        super().__init__(name)
        self.trust = trust

    async def start(self) -> None:
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        self._server.add_generic_rpc_handlers((self,))
        credentials = self.trust.server_credentials()
        self.port = self._server.add_secure_port(f"127.0.0.1:{self.port}", credentials)
        await self._server.start()

    async def restart(self, trust: Trust) -> None:
        """Let RPCs end, and come back with other certificates."""
        await self._server.stop(5.0)
        self.trust = trust
        await self.start()


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
    validation = {
        "ca_certificate_provider_instance": provider,
        "match_subject_alt_names": matchers,
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
    control_plane: ControlPlane, credentials: Any = None, **providers: Files
) -> AsyncIterator[Callable[..., Any]]:
    """A channel with xDS credentials, as the call that asks who serves."""
    async with proxyless.aio.secure_channel(
        TARGET,
        credentials or proxyless.xds_channel_credentials(proxyless.local_channel_credentials()),
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
            assert "certificate" in (await refusal(where)).lower()


async def test_server_refuses_clients_of_another_authority(
    authority: CertificateAuthority, files: Files
) -> None:
    files.write_identity(CertificateAuthority("another"))
    trust = Trust(authority, authority.certificate_pem, SERVER_NAMES)
    async with tls_backends(TlsBackend("a", trust)) as started:
        snapshot = mesh(secured(eds_cluster("orders")), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            details = await refusal(where)
            print(details)
            assert details


async def test_certificates_may_come_later(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
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
