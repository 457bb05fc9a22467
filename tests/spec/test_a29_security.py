"""A29 and A74: whoever brings xDS credentials connects as the control plane says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyless.channel import SubchannelOptions
from proxyless.runtime import VirtualClock
from proxyless.transport import ClientTls, TransportOptions
from proxyless.xds.certificates import CertificateStore, Identity
from proxyless.xds.resources import CertificateInstance, Cluster, StringMatcher, UpstreamTls
from proxyless.xds.security import SanCheck, XdsSecurity
from tests.cluster_world import any_of, proto, refused_cluster
from tests.cluster_world import cluster as cluster_message
from tests.spec.mesh_world import MeshWorld
from tests.spec.xds_world import aggregate, cluster, endpoints, route_config

if TYPE_CHECKING:
    from proxyless.base import Status
    from proxyless.protos import Proto

UPSTREAM_TLS_CONTEXT = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
ROOTS, IDENTITY = CertificateInstance("roots"), CertificateInstance("identity", "client")
FALLBACK = ClientTls(server_name="fallback")
NEAR, FAR = "10.0.0.1:80", "10.0.0.2:80"


class NamedCertificates:
    """Stands where the bootstrap says file_watcher: its certificates are their names."""

    name = "file_watcher"

    def parse_config(self, config: object) -> None:
        return None

    def create(self, config: object, clock: object) -> NamedCertificates:
        return self

    def roots(self, certificate_name: str) -> bytes | Status:
        return f"roots {certificate_name}".encode()

    def identity(self, certificate_name: str) -> Identity | Status:
        name = certificate_name.encode()
        return Identity(b"chain " + name, b"key " + name)

    def close(self) -> None:
        return


class SecureWorld(MeshWorld):
    """A channel with xDS credentials."""

    def __init__(self) -> None:
        self.store = CertificateStore(VirtualClock(), [NamedCertificates()])
        super().__init__(
            security=XdsSecurity(lambda: self.store),
            subchannel=SubchannelOptions(transport=TransportOptions(tls=FALLBACK)),
        )

    def next_connection(self, address: str) -> ClientTls | Status:
        """How the next connection of those who hold this address would be secured."""
        [handle] = self.backend(address).handles
        options = handle.options.transport
        current = None if options.tls_source is None else options.tls_source.current()
        if current is not None:
            return current
        assert options.tls is not None
        return options.tls


def tls_of(san: str = "", *, identity: CertificateInstance | None = None) -> UpstreamTls:
    matchers = (StringMatcher("exact", san),) if san else ()
    return UpstreamTls(ca=ROOTS, identity=identity, san_matchers=matchers)


def expected(san: str = "", **identity: bytes) -> ClientTls:
    return ClientTls(
        root_certificates=b"roots ",
        server_name="",
        is_name_checked=False,
        check_peer=SanCheck((StringMatcher("exact", san),)) if san else None,
        **identity,
    )


def orders(tls: UpstreamTls | None) -> Cluster:
    return cluster("orders", tls=tls)


@pytest.mark.spec("A29-01")
@pytest.mark.parametrize(
    ("tls", "secured"),
    [
        (None, FALLBACK),
        (tls_of(), expected()),
        (tls_of("a"), expected("a")),
        (
            tls_of("a", identity=IDENTITY),
            expected("a", certificate_chain=b"chain client", private_key=b"key client"),
        ),
    ],
    ids=["fallback", "roots", "names", "identity"],
)
def test_connections_are_secured_as_the_cluster_says(
    tls: UpstreamTls | None, secured: ClientTls
) -> None:
    world = SecureWorld()
    world.start(route_config("orders"), orders(tls), endpoints("orders", NEAR))
    assert world.serve() == NEAR
    assert world.next_connection(NEAR) == secured


def with_tls(**validation: object) -> Proto:
    message = proto(
        UPSTREAM_TLS_CONTEXT, common_tls_context={"validation_context": dict(validation)}
    )
    return cluster_message(transport_socket={"typed_config": any_of(message)})


@pytest.mark.spec("A29-01")
def test_a_cluster_without_roots_or_with_an_unknown_provider_is_refused() -> None:
    assert "has no CA certificates" in refused_cluster(with_tls())
    unknown = with_tls(ca_certificate_provider_instance={"instance_name": "unknown"})
    text = "is 'unknown', which is no certificate provider of the bootstrap"
    assert text in refused_cluster(unknown)


@pytest.mark.spec("A74-66", "A74-67")
def test_each_leaf_of_an_aggregate_has_its_own_tls() -> None:
    """No route names the leaves, so they are in the config only as parts of the aggregate."""
    world = SecureWorld()
    world.start(
        route_config("top"),
        aggregate("top", "near", "far"),
        cluster("near", tls=tls_of("near.example")),
        cluster("far", tls=tls_of("far.example")),
        endpoints("near", NEAR),
        endpoints("far", FAR),
    )
    assert world.serve() == NEAR
    assert world.next_connection(NEAR) == expected("near.example")
    world.backend(NEAR).down()
    world.settle()
    assert world.serve() == FAR
    assert world.next_connection(FAR) == expected("far.example")
    assert world.next_connection(NEAR) == expected("near.example")


@pytest.mark.spec("A74-67")
def test_a_leaf_without_tls_uses_the_fallback_beside_one_that_has_it() -> None:
    world = SecureWorld()
    world.start(
        route_config("top"),
        aggregate("top", "near", "far"),
        cluster("near", tls=tls_of("near.example")),
        cluster("far"),
        endpoints("near", NEAR),
        endpoints("far", FAR),
    )
    world.backend(NEAR).down()
    world.settle()
    assert world.serve() == FAR
    assert world.next_connection(FAR) == FALLBACK
    assert world.next_connection(NEAR) == expected("near.example")


@pytest.mark.spec("A74-68")
@pytest.mark.parametrize(
    ("before", "after", "secured"),
    [
        (tls_of("old"), tls_of("new"), expected("new")),
        (None, tls_of("new"), expected("new")),
        (tls_of("old"), None, FALLBACK),
    ],
    ids=["changed", "added", "removed"],
)
def test_a_changed_config_counts_for_connections_made_afterwards(
    before: UpstreamTls | None, after: UpstreamTls | None, secured: ClientTls
) -> None:
    world = SecureWorld()
    world.start(route_config("orders"), orders(before), endpoints("orders", NEAR))
    _, under_way = world.call()
    backend = world.backend(NEAR)
    world.say(orders(after))
    # Nothing is dropped: neither the RPC nor the connection, which serves on.
    world.answer_all()
    assert under_way.status.is_ok
    assert world.serve() == NEAR
    assert backend.accepts == 1
    backend.down()
    backend.up()
    world.settle()
    assert world.serve() == NEAR
    assert backend.accepts == 2
    assert world.next_connection(NEAR) == secured


@pytest.mark.spec("A74-68")
def test_a_changed_config_counts_for_whoever_was_refused_with_the_old_one() -> None:
    world = SecureWorld()
    world.backend(NEAR).is_up = False
    world.start(route_config("orders"), orders(tls_of("old")), endpoints("orders", NEAR))
    assert world.next_connection(NEAR) == expected("old")
    world.say(orders(tls_of("new")))
    assert world.next_connection(NEAR) == expected("new")


def test_providers_are_released_with_the_channel() -> None:
    world = SecureWorld()
    world.start(route_config("orders"), orders(tls_of()), endpoints("orders", NEAR))
    assert len(world.store) == 1
    world.channel.close()
    assert len(world.store) == 0
