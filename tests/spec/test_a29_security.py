"""A29 and A74: TLS configuration from the control plane, for channels with xDS credentials."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from proxyless.channel import SubchannelOptions
from proxyless.runtime import VirtualClock
from proxyless.transport import ClientTls, TransportOptions, TrustBundles
from proxyless.xds.resources import (
    CertificateInstance,
    Cluster,
    EndpointResource,
    StringMatcher,
    UpstreamTls,
)
from proxyless.xds.security.certificates import CertificateStore, Identity
from proxyless.xds.security.cluster_security import SanCheck, SniCheck, XdsSecurity
from tests.worlds.meshes import MeshWorld
from tests.worlds.xds_messages import any_of, parsed_cluster, proto, refused_cluster
from tests.worlds.xds_messages import cluster as cluster_message
from tests.worlds.xds_resources import aggregate, cluster, endpoints, route_config

if TYPE_CHECKING:
    from proxyless.base import Status
    from proxyless.protos import Proto

UPSTREAM_TLS_CONTEXT = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
ROOTS, IDENTITY = CertificateInstance("roots"), CertificateInstance("identity", "client")
FALLBACK = ClientTls(server_name="fallback")
NEAR, FAR = "10.0.0.1:80", "10.0.0.2:80"


class NamedCertificates:
    """Replacement for the file_watcher provider: each certificate is the bytes of its name."""

    name = "file_watcher"
    # Returned by `roots` if set.
    found_roots: TrustBundles | None = None

    def parse_config(self, config: object) -> None:
        return None

    def create(self, config: object, clock: object) -> NamedCertificates:
        return self

    def roots(self, certificate_name: str) -> bytes | TrustBundles | Status:
        return self.found_roots or f"roots {certificate_name}".encode()

    def identity(self, certificate_name: str) -> Identity | Status:
        name = certificate_name.encode()
        return Identity(b"chain " + name, b"key " + name)

    def close(self) -> None:
        return


class SecureWorld(MeshWorld):
    """A channel with xDS credentials."""

    def __init__(self) -> None:
        self.plugin = NamedCertificates()
        self.store = CertificateStore(VirtualClock(), [self.plugin])
        super().__init__(
            security=XdsSecurity(lambda: self.store),
            subchannel=SubchannelOptions(transport=TransportOptions(tls=FALLBACK)),
        )

    def next_connection(self, address: str) -> ClientTls | Status:
        """TLS options that the next connection to this address would use."""
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


def expected(san: str = "", **identity: Any) -> ClientTls:  # noqa: ANN401
    return ClientTls(
        root_certificates=b"roots ",
        server_name="",
        is_name_checked=False,
        check_peer=SanCheck((StringMatcher("exact", san),)) if san else None,
        **identity,
    )


def orders(tls: UpstreamTls | None) -> Cluster:
    return cluster("orders", tls=tls)


@pytest.mark.spec("A29-01", "A29-02", "A29-06")
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
def test_connection_uses_the_tls_config_of_the_cluster(
    tls: UpstreamTls | None, secured: ClientTls
) -> None:
    world = SecureWorld()
    world.start(route_config("orders"), orders(tls), endpoints("orders", NEAR))
    assert world.send_rpc() == NEAR
    assert world.next_connection(NEAR) == secured


def with_tls(**validation: object) -> Proto:
    message = proto(
        UPSTREAM_TLS_CONTEXT, common_tls_context={"validation_context": dict(validation)}
    )
    return cluster_message(transport_socket={"typed_config": any_of(message)})


@pytest.mark.spec("A29-07", "A29-08")
def test_a_cluster_without_roots_or_with_an_unknown_provider_is_refused() -> None:
    assert "has no CA certificates" in refused_cluster(with_tls())
    unknown = with_tls(ca_certificate_provider_instance={"instance_name": "unknown"})
    text = "is 'unknown', which is no certificate provider of the bootstrap"
    assert text in refused_cluster(unknown)


@pytest.mark.spec("A82-02")
def test_system_roots_are_used_when_there_is_no_provider_instance() -> None:
    system: dict[str, object] = {"system_root_certs": {}}
    provider = {"ca_certificate_provider_instance": {"instance_name": "roots"}}
    for validation, ca in ((system, None), (system | provider, CertificateInstance("roots"))):
        parsed = parsed_cluster(with_tls(**validation)).tls
        assert parsed == UpstreamTls(ca=ca)
        world = SecureWorld()
        world.start(route_config("orders"), orders(parsed), endpoints("orders", NEAR))
        assert world.send_rpc() == NEAR
        connection = world.next_connection(NEAR)
        assert isinstance(connection, ClientTls)
        assert connection.root_certificates == (None if ca is None else b"roots ")


@pytest.mark.spec("A87-06")
def test_trust_bundles_of_a_provider_count_as_its_roots() -> None:
    world = SecureWorld()
    bundles = TrustBundles.of(b"map", {"mesh.example": frozenset({b"root"})})
    world.plugin.found_roots = bundles
    world.start(route_config("orders"), orders(tls_of("a")), endpoints("orders", NEAR))
    assert world.next_connection(NEAR) == replace(
        expected("a"), root_certificates=None, trust_bundles=bundles
    )


def named_endpoint(name: str, address: str, hostname: str) -> EndpointResource:
    [[entry]] = endpoints(name, address).priorities
    [endpoint] = entry.endpoints
    named = replace(entry, endpoints=(replace(endpoint, hostname=hostname),))
    return EndpointResource(name=name, priorities=((named,),))


@pytest.mark.spec("A101-01", "A101-03", "A101-04")
@pytest.mark.parametrize(
    ("tls", "hostname", "secured"),
    [
        ({"sni": "sni.example"}, "host.example:443", ClientTls(server_name="sni.example")),
        (
            {"sni": "sni.example", "auto_host_sni": True},
            "host.example:443",
            ClientTls(server_name="host.example"),
        ),
        (
            {"auto_host_sni": True, "auto_sni_san_validation": True},
            "host.example",
            ClientTls(server_name="host.example", check_peer=SniCheck("host.example")),
        ),
        ({"auto_host_sni": True, "auto_sni_san_validation": True}, "", ClientTls(server_name="")),
    ],
    ids=["sni", "hostname", "validated", "nothing to send"],
)
def test_server_name_is_that_of_the_endpoint_or_the_cluster(
    tls: dict[str, Any], hostname: str, secured: ClientTls
) -> None:
    """The endpoint's hostname overrides the cluster's SNI; `validated` compares the sent name."""
    world = SecureWorld()
    world.start(
        route_config("orders"),
        orders(UpstreamTls(ca=ROOTS, **tls)),
        named_endpoint("orders", NEAR, hostname),
    )
    assert world.next_connection(NEAR) == replace(
        secured, root_certificates=b"roots ", is_name_checked=False
    )


@pytest.mark.spec("A74-66", "A74-67", "A75-11")
def test_each_leaf_of_an_aggregate_has_its_own_tls() -> None:
    """No route refers to the leaves: they are in the config only as parts of the aggregate."""
    world = SecureWorld()
    world.start(
        route_config("top"),
        aggregate("top", "near", "far"),
        cluster("near", tls=tls_of("near.example")),
        cluster("far", tls=tls_of("far.example")),
        endpoints("near", NEAR),
        endpoints("far", FAR),
    )
    assert world.send_rpc() == NEAR
    assert world.next_connection(NEAR) == expected("near.example")
    world.backend(NEAR).down()
    world.settle()
    assert world.send_rpc() == FAR
    assert world.next_connection(FAR) == expected("far.example")
    assert world.next_connection(NEAR) == expected("near.example")


@pytest.mark.spec("A74-67")
def test_leaf_without_tls_uses_the_fallback_when_another_leaf_has_tls() -> None:
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
    assert world.send_rpc() == FAR
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
def test_changed_config_is_used_by_connections_made_afterwards(
    before: UpstreamTls | None, after: UpstreamTls | None, secured: ClientTls
) -> None:
    world = SecureWorld()
    world.start(route_config("orders"), orders(before), endpoints("orders", NEAR))
    _, under_way = world.call()
    backend = world.backend(NEAR)
    world.publish(orders(after))
    # The RPC under way and the connection are kept.
    world.respond_to_all()
    assert under_way.status.is_ok
    assert world.send_rpc() == NEAR
    assert backend.accepts == 1
    backend.down()
    backend.up()
    world.settle()
    assert world.send_rpc() == NEAR
    assert backend.accepts == 2
    assert world.next_connection(NEAR) == secured


@pytest.mark.spec("A74-68")
def test_changed_config_is_used_by_the_next_attempt_after_a_failure() -> None:
    world = SecureWorld()
    world.backend(NEAR).is_up = False
    world.start(route_config("orders"), orders(tls_of("old")), endpoints("orders", NEAR))
    assert world.next_connection(NEAR) == expected("old")
    world.publish(orders(tls_of("new")))
    assert world.next_connection(NEAR) == expected("new")


def test_providers_are_released_with_the_channel() -> None:
    world = SecureWorld()
    world.start(route_config("orders"), orders(tls_of()), endpoints("orders", NEAR))
    assert len(world.store) == 1
    world.channel.close()
    assert len(world.store) == 0
