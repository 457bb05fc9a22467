"""Endpoints behind the HTTP proxies of a mesh (A86), on real sockets.

grpcio's servers are behind a proxy. Their addresses in the mesh are of TEST-NET-1, and only the
proxy maps them to the servers.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import grpc
import pytest

import proxyless
from proxyless.base import IpAddress, parse_address
from proxyless.controlplane import (
    ENDPOINTS,
    ControlPlane,
    Locality,
    Snapshot,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    route,
)
from proxyless.xds.parsing.http_proxy import HTTP_11_PROXY, HTTP_CONNECT_GUARD
from tests.certificates import CertificateAuthority
from tests.connect_proxy import connect_proxy, proxied, with_proxy
from tests.worlds.grpcio_peers import WHERE, NamedBackend, backends
from tests.worlds.mtls import (
    SERVER_NAMES,
    TARGET,
    ProviderFiles,
    TlsBackend,
    Trust,
    joined,
    secured,
    tls_backends,
)
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from proxyless.protos import Proto

ON_BOTH_LOOPS = True

NOWHERE = "192.0.2.5:443"
UNREACHABLE = IpAddress("127.0.0.1", 1)


def known_to_proxy(backend: NamedBackend) -> Mapping[str, IpAddress]:
    return {NOWHERE: IpAddress("127.0.0.1", backend.port)}


def mesh(cluster: Proto, found: Proto) -> Snapshot:
    return Snapshot.of([listener("api", [route(cluster="orders")]), cluster, found])


def behind(proxy: IpAddress, address: str = NOWHERE) -> Proto:
    """One endpoint behind this proxy."""
    return endpoints("orders", [with_proxy(lb_endpoint(address), proxy)])


@asynccontextmanager
async def calling(plane: ControlPlane) -> AsyncIterator[grpc.aio.UnaryUnaryMultiCallable]:
    channel = proxyless.aio.insecure_channel(TARGET, bootstrap=plane.bootstrap())
    async with channel:
        yield channel.unary_unary(WHERE)


async def served(snapshot: Snapshot) -> str:
    """The backend that serves a call in this mesh."""
    async with ControlPlane(snapshot) as plane, calling(plane) as where:
        return bytes(await where(b"", timeout=PATIENCE_S)).decode()


@pytest.mark.spec("A86-01", "A86-06", "A86-10")
async def test_an_endpoint_is_reached_through_its_proxy() -> None:
    async with backends("a") as [backend], connect_proxy(known_to_proxy(backend)) as proxy:
        assert await served(mesh(proxied(eds_cluster("orders")), behind(proxy.address))) == "a"
        assert proxy.requests == [(NOWHERE, {"host": NOWHERE})]


@pytest.mark.spec("A86-07")
async def test_the_proxy_of_a_locality_is_for_endpoints_without_one() -> None:
    async with backends("a") as [backend], connect_proxy(known_to_proxy(backend)) as proxy:
        found = endpoints("orders", {Locality("near"): [NOWHERE]})
        with_proxy(found.endpoints[0], proxy.address)
        assert await served(mesh(proxied(eds_cluster("orders")), found)) == "a"
        own = endpoints(
            "orders", {Locality("near"): [with_proxy(lb_endpoint(NOWHERE), proxy.address)]}
        )
        with_proxy(own.endpoints[0], UNREACHABLE)
        assert await served(mesh(proxied(eds_cluster("orders")), own)) == "a"
        assert proxy.targets == [NOWHERE] * 2


@pytest.mark.spec("A86-11")
async def test_proxy_is_used_only_if_cluster_and_endpoint_configure_it() -> None:
    async with backends("a") as [backend], connect_proxy() as proxy:
        here = backend.address
        assert await served(mesh(eds_cluster("orders"), behind(UNREACHABLE, here))) == "a"
        assert (
            await served(mesh(proxied(eds_cluster("orders")), endpoints("orders", [here]))) == "a"
        )
        assert proxy.requests == []


@pytest.mark.spec("A86-01", "A86-12")
async def test_tls_is_with_the_endpoint(tmp_path: Path) -> None:
    authority, files = CertificateAuthority(), ProviderFiles(tmp_path / "mesh")
    files.write_roots(authority)
    files.write_identity(authority)
    trust = Trust(authority, authority.certificate_pem, SERVER_NAMES)
    async with (
        tls_backends(TlsBackend("a", trust)) as [backend],
        connect_proxy({backend.address: IpAddress("127.0.0.1", backend.port)}) as proxy,
    ):
        cluster = proxied(secured(eds_cluster("orders"), {"exact": "orders.example"}))
        snapshot = mesh(cluster, behind(proxy.address, backend.address))
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            assert await where() == "a"
        assert proxy.targets == [backend.address]


@pytest.mark.spec("A86-15", "A86-16")
async def test_unreachable_proxy_is_in_the_error_and_another_one_is_tried() -> None:
    async with backends("a") as [backend], connect_proxy(known_to_proxy(backend)) as proxy:
        snapshot = mesh(proxied(eds_cluster("orders")), behind(UNREACHABLE))
        async with ControlPlane(snapshot) as plane, calling(plane) as where:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await where(b"", timeout=PATIENCE_S)
            text = f"{NOWHERE} through proxy {UNREACHABLE}: connection refused"
            assert text in str(caught.value.details())
            plane.set_snapshot(mesh(proxied(eds_cluster("orders")), behind(proxy.address)))
            reply = await where(b"", timeout=PATIENCE_S, wait_for_ready=True)
            assert bytes(reply) == b"a"


@pytest.mark.spec("A86-15")
async def test_changed_proxy_is_used_for_the_next_connection() -> None:
    async with (
        backends("a") as [backend],
        connect_proxy(known_to_proxy(backend)) as old,
        connect_proxy(known_to_proxy(backend)) as new,
        ControlPlane(mesh(proxied(eds_cluster("orders")), behind(old.address))) as plane,
        calling(plane) as where,
    ):
        assert bytes(await where(b"", timeout=PATIENCE_S)) == b"a"
        plane.set_snapshot(mesh(proxied(eds_cluster("orders")), behind(new.address)))
        await plane.wait_for_ack(ENDPOINTS)
        assert bytes(await where(b"", timeout=PATIENCE_S)) == b"a"
        assert (old.targets, new.targets) == ([NOWHERE], [])
        old.cut()
        # The RPC may be sent before the client detects the lost connection.
        with suppress(grpc.aio.AioRpcError):
            await where(b"", timeout=PATIENCE_S, wait_for_ready=True)
        assert bytes(await where(b"", timeout=PATIENCE_S, wait_for_ready=True)) == b"a"
        assert (old.targets, new.targets) == ([NOWHERE], [NOWHERE])


@pytest.mark.spec("A86-13")
async def test_cluster_with_proxies_is_rejected_when_the_guard_is_false(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(HTTP_CONNECT_GUARD, "false")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served(mesh(proxied(eds_cluster("orders")), behind(UNREACHABLE)))
    assert f"transport_socket.typed_config error:is {HTTP_11_PROXY}" in str(caught.value.details())


async def test_lb_tree_shows_the_proxies_of_connections() -> None:
    async with backends("a") as [backend], connect_proxy(known_to_proxy(backend)) as proxy:
        snapshot = mesh(proxied(eds_cluster("orders")), behind(proxy.address))
        async with (
            ControlPlane(snapshot) as plane,
            proxyless.aio.insecure_channel(TARGET, bootstrap=plane.bootstrap()) as channel,
        ):
            await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
            found = [str(channel.lb_tree())]
        assert f"through proxy {proxy.address}" in found[0]


async def test_two_targets_behind_one_proxy_share_no_connection() -> None:
    async with backends("a", "b") as started, connect_proxy() as proxy:
        proxy.names = {
            f"{each.name}.test:443": IpAddress("127.0.0.1", each.port) for each in started
        }
        options = [("grpc.http_proxy", proxy.uri)]
        async with (
            proxyless.aio.insecure_channel("a.test", options) as one,
            proxyless.aio.insecure_channel("a.test", options) as same,
            proxyless.aio.insecure_channel("b.test", options) as other,
        ):
            for channel, name in ((one, b"a"), (other, b"b"), (same, b"a")):
                reply = await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
                assert bytes(reply) == name
        assert proxy.targets == ["a.test:443", "b.test:443"]


async def test_the_environments_proxy_is_for_the_control_plane_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with backends("a") as [backend], connect_proxy() as proxy:
        monkeypatch.setenv("http_proxy", proxy.uri)
        snapshot = mesh(eds_cluster("orders"), endpoints("orders", [backend.address]))
        async with ControlPlane(snapshot) as plane, calling(plane) as where:
            assert bytes(await where(b"", timeout=PATIENCE_S)) == b"a"
            [server] = plane.bootstrap()["xds_servers"]
        assert proxy.targets == [str(parse_address(server["server_uri"]))]
