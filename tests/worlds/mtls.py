"""Mesh with mTLS: grpcio's TLS servers, and files for the bootstrap's file_watcher."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import proxyless
from proxyless.controlplane import ControlPlane, Snapshot, endpoints, listener, route
from proxyless.controlplane.server_tls import SeparatedChanges
from tests.certificates import CertificateAuthority, trust_bundle_map
from tests.worlds.grpcio_peers import WHERE, NamedBackend
from tests.worlds.xds_messages import any_of, proto

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from pathlib import Path

    from proxyless.protos import Proto

TARGET = "xds:///api"
TLS_CONTEXT = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
# The shortest interval of file_watcher.
REFRESH_S = 1.0
SERVER_NAMES = ["orders.example", "spiffe://mesh.example/orders"]
CLIENT_NAMES = ["spiffe://mesh.example/client"]


@dataclass
class Trust:
    """TLS settings of a server: the issuer of its certificate, trusted roots, names."""

    authority: CertificateAuthority
    roots: bytes
    names: list[str]

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        chain, key = self.authority.issue(self.names)
        return grpc.ssl_server_certificate_configuration([(key, chain)], self.roots)


class TlsBackend(NamedBackend):
    """A backend that requires a client certificate.

    `rotate` changes the certificates of later connections. With `age_ms`, connections and their
    RPCs are ended after that time.
    """

    def __init__(self, name: str, trust: Trust, age_ms: int | None = None) -> None:
        super().__init__(name)
        self.trust = trust
        self._age_ms = age_ms
        self._is_rotated = False
        # Handshakes since the last `rotate`.
        self.connections = 0

    async def start(self) -> None:
        options: list[tuple[str, Any]] = [("grpc.so_reuseport", 0)]
        if self._age_ms is not None:
            options.append(("grpc.max_connection_age_ms", self._age_ms))
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers((self,))
        credentials = grpc.dynamic_ssl_server_credentials(
            self.trust.configuration(),
            SeparatedChanges(self._configure),
            require_client_authentication=True,
        )
        self.port = self._server.add_secure_port(f"127.0.0.1:{self.port}", credentials)
        await self._server.start()

    def _configure(self) -> grpc.ServerCertificateConfiguration | None:
        """Called for each handshake; None: nothing has changed."""
        self.connections += 1
        if not self._is_rotated:
            return None
        self._is_rotated = False
        return self.trust.configuration()

    def rotate(self, trust: Trust) -> None:
        self.trust = trust
        self._is_rotated = True
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


class ProviderFiles:
    """The files of one certificate provider."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._has_map = False

    def write_roots(self, *authorities: CertificateAuthority) -> None:
        content = b"".join(each.certificate_pem for each in authorities)
        (self._directory / "ca.pem").write_bytes(content)

    def write_map(self, bundles: Mapping[str, Iterable[CertificateAuthority]]) -> None:
        """Replace the trust bundle map atomically."""
        self._has_map = True
        new = self._directory / "map.json.new"
        new.write_bytes(trust_bundle_map(bundles))
        new.replace(self._directory / "map.json")

    def write_identity(self, authority: CertificateAuthority) -> None:
        chain, key = authority.issue(CLIENT_NAMES, client=True)
        (self._directory / "cert.pem").write_bytes(chain)
        (self._directory / "key.pem").write_bytes(key)

    @property
    def provider(self) -> Mapping[str, Any]:
        """The entry of the bootstrap's certificate_providers."""
        config = {
            "certificate_file": str(self._directory / "cert.pem"),
            "private_key_file": str(self._directory / "key.pem"),
            "ca_certificate_file": str(self._directory / "ca.pem"),
            "refresh_interval": f"{REFRESH_S}s",
        }
        if self._has_map:
            config["spiffe_trust_bundle_map_file"] = str(self._directory / "map.json")
        return {"plugin_name": "file_watcher", "config": config}


def secured(
    cluster: Proto,
    *matchers: Mapping[str, Any],
    instance: str = "mesh",
    has_identity: bool = True,
    has_system_roots: bool = False,
    **fields: Any,  # noqa: ANN401 - of the message
) -> Proto:
    """The same cluster, with TLS."""
    provider = {"instance_name": instance}
    typed = [each for each in matchers if "san_type" in each]
    roots: dict[str, Any] = {"system_root_certs": {}}
    validation = {
        **(roots if has_system_roots else {"ca_certificate_provider_instance": provider}),
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


def bootstrap_of(control_plane: ControlPlane, **providers: ProviderFiles) -> dict[str, Any]:
    named = {name: files.provider for name, files in providers.items()}
    return {**control_plane.bootstrap(), "certificate_providers": named}


@asynccontextmanager
async def joined(
    control_plane: ControlPlane, **providers: ProviderFiles
) -> AsyncIterator[Callable[..., Any]]:
    """A channel with xDS credentials, as a function that returns the name of the backend."""
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
    """The details of a call that fails with UNAVAILABLE."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(caught.value.details())
