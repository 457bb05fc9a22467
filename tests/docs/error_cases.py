"""How does each text of docs/errors.md come about?

A case is a short story in a world of our own: a control plane, one backend and a client whose node
id is `host-1`, all in virtual time and with the real stack in between. What comes out is what an
application sees, what was logged, and what the control plane was told.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import grpc

from proxyless.base import IpAddress, Status
from proxyless.controlplane import (
    CLUSTER,
    LISTENER,
    Snapshot,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    http_filter,
    lb_endpoint,
    listener,
    route,
    route_config,
    socket_listener,
    virtual_host,
)
from proxyless.protos import message_class
from proxyless.runtime import VirtualClock
from proxyless.sim import UNARY, World, pause
from proxyless.transport import ClientTls, PeerCertificate, TrustBundles, client_context
from proxyless.transport.http_connect import ConnectAnswer, Refused
from proxyless.transport.spiffe import refuse_chain
from proxyless.transport.tls import refuse_name
from proxyless.xds.bootstrap import CertificateProviderConfig
from proxyless.xds.resources import CertificateInstance, StringMatcher
from proxyless.xds.security.certificates import Certificates, FileWatcherPlugin
from proxyless.xds.security.cluster_security import SanCheck
from tests.certificates import CertificateAuthority, server_context, shake_hands, trust_bundle_map
from tests.connect_proxy import proxied, with_proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from proxyless.front import AioChannel
    from proxyless.protos import Proto

    Story = Callable[["Stage"], Coroutine[Any, Any, str]]

NODE = "host-1"
TARGET = "xds:///orders"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case."""

    text: str
    logged: tuple[str, ...]
    nacks: tuple[str, ...]


class Stage:
    """Where a case is played."""

    def __init__(self) -> None:
        self.world = World(seed=1)
        self.control = self.world.control_plane("control")
        self.backend = self.world.backend("web-1")
        self.client = self.world.client(NODE)

    def serve(self, *resources: Proto) -> None:
        """The control plane has these, whatever they lack."""
        self.control.set_snapshot(Snapshot.of(resources, partial=True))

    def mesh(self, *changed: Proto) -> list[Proto]:
        """A mesh in which all is well, but for these in place of what has their names."""
        whole = [
            listener("orders", "routes"),
            route_config("routes", virtual_host(route(cluster="web"), name="all")),
            eds_cluster("web"),
            endpoints("web", [str(self.backend.address)]),
        ]
        kinds = {each.DESCRIPTOR.name for each in changed}
        return [*changed, *(each for each in whole if each.DESCRIPTOR.name not in kinds)]

    def channel(self, target: str = TARGET) -> AioChannel:
        return self.client.channel(target)

    async def ask(self, channel: AioChannel | None = None, **settings: Any) -> None:  # noqa: ANN401
        call = (channel or self.channel()).unary_unary(UNARY)
        await call(b"", **{"timeout": 3_600.0, **settings})

    async def fail(self, channel: AioChannel | None = None, **settings: Any) -> str:  # noqa: ANN401
        """The details of an RPC that must fail."""
        try:
            await self.ask(channel, **settings)
        except grpc.aio.AioRpcError as error:
            return str(error.details())
        raise AssertionError("the RPC succeeded")


def play(story: Story) -> Outcome:
    """Play a case in a world of its own."""
    stage = Stage()
    with _listening() as logged:
        text = stage.world.run(story(stage), virtual_seconds=100_000.0)
    assert not stage.world.exceptions
    return Outcome(text, tuple(logged), tuple(nack.message for nack in stage.control.nacks))


@contextmanager
def _listening() -> Iterator[list[str]]:
    """What is logged inside, from INFO on."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger("proxyless"), Lines()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


# ---------------------------------------------------------------------------------------------
# Control plane and bootstrap


async def bootstrap_is_missing(stage: Stage) -> str:
    return await stage.fail(stage.client.host.channel(TARGET))


async def authority_is_unknown(stage: Stage) -> str:
    return await stage.fail(stage.channel("xds://other/orders"))


async def control_plane_is_down(stage: Stage) -> str:
    await stage.control.stop()
    return await stage.fail()


async def control_plane_stays_down(stage: Stage) -> str:
    await stage.control.stop()
    channel = stage.channel()
    await stage.fail(channel)
    await pause(700.0)
    return await stage.fail(channel)


async def control_plane_is_none(stage: Stage) -> str:
    uri = f"ipv4:{stage.backend.address}"
    server = {"server_uri": uri, "channel_creds": [{"type": "insecure"}]}
    bootstrap = {"xds_servers": [server], "node": {"id": NODE}}
    channel = stage.client.host.channel(TARGET, bootstrap=bootstrap)
    text = await stage.fail(channel)
    await channel.close()
    return text


# ---------------------------------------------------------------------------------------------
# Listener and routes


async def listener_is_not_there(stage: Stage) -> str:
    return await stage.fail()


async def listener_is_deleted(stage: Stage) -> str:
    stage.serve(*stage.mesh())
    channel = stage.channel()
    await stage.ask(channel)
    stage.control.set_snapshot(stage.control.snapshot.without(LISTENER, "orders"))
    await pause(1.0)
    return await stage.fail(channel)


async def listener_is_refused(stage: Stage) -> str:
    stage.serve(*stage.mesh(message_class("envoy.config.listener.v3.Listener")(name="orders")))
    return await stage.fail()


async def listener_is_a_socket(stage: Stage) -> str:
    stage.serve(*stage.mesh(socket_listener("orders", "10.0.0.9:80", "routes")))
    return await stage.fail()


async def route_config_is_not_there(stage: Stage) -> str:
    stage.serve(listener("orders", "routes"))
    return await stage.fail()


async def route_config_is_refused(stage: Stage) -> str:
    stage.serve(*stage.mesh(route_config("routes", route(cluster=""))))
    return await stage.fail()


async def no_virtual_host(stage: Stage) -> str:
    other = virtual_host(route(cluster="web"), domains=["payments"])
    stage.serve(*stage.mesh(route_config("routes", other)))
    return await stage.fail()


async def no_route(stage: Stage) -> str:
    narrow = virtual_host(route("/shop.Cart/", cluster="web"), name="all")
    stage.serve(*stage.mesh(route_config("routes", narrow)))
    return await stage.fail()


async def route_does_not_forward(stage: Stage) -> str:
    away = route()
    away.name = "away"
    away.redirect.host_redirect = "elsewhere"
    stage.serve(*stage.mesh(route_config("routes", away)))
    return await stage.fail()


async def fault_is_injected(stage: Stage) -> str:
    fault = message_class("envoy.extensions.filters.http.fault.v3.HTTPFault")()
    fault.abort.grpc_status = 14
    fault.abort.percentage.numerator = 100
    stage.serve(*stage.mesh(listener("orders", "routes", filters=[http_filter("fault", fault)])))
    return await stage.fail()


# ---------------------------------------------------------------------------------------------
# Clusters


async def cluster_is_not_there(stage: Stage) -> str:
    stage.serve(*(each for each in stage.mesh() if each.DESCRIPTOR.name != "Cluster"))
    return await stage.fail()


async def cluster_is_deleted(stage: Stage) -> str:
    stage.serve(*stage.mesh())
    channel = stage.channel()
    await stage.ask(channel)
    stage.control.set_snapshot(stage.control.snapshot.without(CLUSTER, "web"))
    await pause(1.0)
    return await stage.fail(channel)


async def cluster_is_refused(stage: Stage) -> str:
    stage.serve(*stage.mesh(eds_cluster("web", lb_policy="MAGLEV")))
    return await stage.fail()


async def aggregate_has_no_leaf(stage: Stage) -> str:
    stage.serve(*stage.mesh(aggregate_cluster("web", ["near", "far"])))
    return await stage.fail()


async def aggregate_is_a_loop(stage: Stage) -> str:
    loop = [aggregate_cluster("web", ["near"]), aggregate_cluster("near", ["web"])]
    stage.serve(*stage.mesh(*loop))
    return await stage.fail()


async def aggregate_is_too_deep(stage: Stage) -> str:
    chain = [aggregate_cluster("web", ["c1"])]
    chain += [aggregate_cluster(f"c{each}", [f"c{each + 1}"]) for each in range(1, 17)]
    stage.serve(*stage.mesh(*chain))
    return await stage.fail()


# ---------------------------------------------------------------------------------------------
# Endpoints and connections


async def endpoints_are_not_there(stage: Stage) -> str:
    stage.serve(*(each for each in stage.mesh() if "Assignment" not in each.DESCRIPTOR.name))
    return await stage.fail()


async def endpoints_are_none(stage: Stage) -> str:
    stage.serve(*stage.mesh(endpoints("web", [])))
    return await stage.fail()


async def dns_name_is_unknown(stage: Stage) -> str:
    stage.serve(*stage.mesh(dns_cluster("web", "db.example", 5432)))
    return await stage.fail()


async def dns_target_is_unknown(stage: Stage) -> str:
    return await stage.fail(stage.channel("dns:///db.example:5432"))


async def backend_refuses(stage: Stage) -> str:
    stage.serve(*stage.mesh())
    await stage.backend.stop()
    return await stage.fail()


async def backend_is_silent(stage: Stage) -> str:
    stage.serve(*stage.mesh())
    stage.backend.host.cut(stage.client.host)
    return await stage.fail()


async def proxy_refuses(stage: Stage) -> str:
    nobody = IpAddress(stage.world.host("proxy").ip, 3128)
    endpoint = with_proxy(lb_endpoint(str(stage.backend.address)), nobody)
    stage.serve(*stage.mesh(proxied(eds_cluster("web")), endpoints("web", [endpoint])))
    return await stage.fail()


async def rpc_is_dropped(stage: Stage) -> str:
    address = str(stage.backend.address)
    stage.serve(*stage.mesh(endpoints("web", [address], drops={"overload": 1.0})))
    return await stage.fail()


async def too_many_rpcs(stage: Stage) -> str:
    limited = eds_cluster("web")
    limited.circuit_breakers.thresholds.add().max_requests.value = 1
    stage.serve(*stage.mesh(limited))
    stage.backend.delay_s = 60.0
    channel = stage.channel()
    first = channel.unary_unary(UNARY)(b"", timeout=3_600.0)
    await pause(5.0)
    text = await stage.fail(channel)
    first.cancel()
    return text


# ---------------------------------------------------------------------------------------------
# Reasons that stand inside other texts


def proxy_wants_to_know_who_asks() -> str:
    verdict = ConnectAnswer().receive(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    assert isinstance(verdict, Refused)
    return f"proxy {verdict.why}"


def certificate_shows_another_name() -> str:
    check = SanCheck((StringMatcher("exact", "spiffe://mesh/ns/shop/sa/orders"),))
    refusal = check(PeerCertificate(("web-1",), uris=(), ip_addresses=(), emails=(), der=b""))
    assert refusal is not None
    return refusal


def certificate_is_for_another_authority() -> str:
    vouching = CertificateAuthority()
    client = client_context(ClientTls(root_certificates=vouching.certificate_pem))
    peer, _ = shake_hands(client, server_context(*vouching.issue(["orders.test"])), "orders.test")
    refusal = refuse_name(peer, "web.test")
    assert refusal is not None
    return refusal


def provider_is_unknown() -> str:
    found = Certificates({}, {}, VirtualClock()).roots(CertificateInstance("spire"))
    assert isinstance(found, Status)
    return found.details


def certificate_cannot_be_read() -> str:
    config = {"ca_certificate_file": "/run/no/ca.pem"}
    configs = {"spire": CertificateProviderConfig("file_watcher", config)}
    plugins = {"file_watcher": FileWatcherPlugin()}
    found = Certificates(configs, plugins, VirtualClock()).roots(CertificateInstance("spire"))
    assert isinstance(found, Status)
    return found.details


def trust_domain_is_unknown() -> str:
    bundles = TrustBundles.of(b"", {"mesh.example": frozenset()})
    refusal = refuse_chain(bundles, ["spiffe://far.example/orders"], [])
    assert refusal is not None
    return refusal


def authority_is_of_another_trust_domain() -> str:
    bundles = TrustBundles.of(
        b"", {"mesh.example": frozenset({b"root"}), "far.example": frozenset()}
    )
    refusal = refuse_chain(bundles, ["spiffe://far.example/orders"], [b"leaf", b"root"])
    assert refusal is not None
    return refusal


def trust_bundles_are_bad() -> str:
    authority = CertificateAuthority()
    content = trust_bundle_map({"mesh.example": [authority]}).replace(b"x509-", b"jwt-")
    with TemporaryDirectory() as directory:
        path = Path(directory, "map.json")
        path.write_bytes(content)
        config = {"spiffe_trust_bundle_map_file": str(path)}
        configs = {"spire": CertificateProviderConfig("file_watcher", config)}
        plugins = {"file_watcher": FileWatcherPlugin()}
        found = Certificates(configs, plugins, VirtualClock()).roots(CertificateInstance("spire"))
    assert isinstance(found, Status)
    return found.details.replace(directory, "/run")


# What holds until something changes, which is logged; and what is about one RPC, which is not.
STORIES: tuple[Story, ...] = (
    bootstrap_is_missing,
    authority_is_unknown,
    control_plane_is_down,
    control_plane_stays_down,
    control_plane_is_none,
    listener_is_not_there,
    listener_is_deleted,
    listener_is_refused,
    listener_is_a_socket,
    route_config_is_not_there,
    route_config_is_refused,
    no_virtual_host,
    cluster_is_not_there,
    cluster_is_deleted,
    cluster_is_refused,
    aggregate_has_no_leaf,
    aggregate_is_a_loop,
    aggregate_is_too_deep,
    endpoints_are_not_there,
    endpoints_are_none,
    dns_name_is_unknown,
    dns_target_is_unknown,
    backend_refuses,
    backend_is_silent,
    proxy_refuses,
)
PER_RPC: tuple[Story, ...] = (
    no_route,
    route_does_not_forward,
    fault_is_injected,
    rpc_is_dropped,
    too_many_rpcs,
)
REFUSALS: tuple[Story, ...] = (listener_is_refused, route_config_is_refused, cluster_is_refused)
REASONS: tuple[Callable[[], str], ...] = (
    proxy_wants_to_know_who_asks,
    certificate_shows_another_name,
    certificate_is_for_another_authority,
    trust_domain_is_unknown,
    authority_is_of_another_trust_domain,
    provider_is_unknown,
    certificate_cannot_be_read,
    trust_bundles_are_bad,
)
