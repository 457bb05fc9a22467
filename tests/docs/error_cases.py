"""Cases that cause each text of docs/errors.md.

A case runs in a simulated world: a control plane, one backend and a client whose node id is
`host-1`, in virtual time, with the real client stack. Its outcome is the error of an RPC, the log,
and the NACKs.
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
from proxyless.transport.http_connect import ConnectResponse, Refused
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

    Case = Callable[["CaseWorld"], Coroutine[Any, Any, str]]

NODE = "host-1"
TARGET = "xds:///orders"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a case."""

    text: str
    logged: tuple[str, ...]
    nacks: tuple[str, ...]


class CaseWorld:
    """The simulated world of a case."""

    def __init__(self) -> None:
        self.sim = World(seed=1)
        self.control = self.sim.control_plane("control")
        self.backend = self.sim.backend("web-1")
        self.client = self.sim.client(NODE)

    def serve(self, *resources: Proto) -> None:
        """Serve these resources, even if they are incomplete."""
        self.control.set_snapshot(Snapshot.of(resources, partial=True))

    def mesh(self, *changed: Proto) -> list[Proto]:
        """A valid mesh, with these resources in place of those with the same names."""
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

    async def make_rpc(self, channel: AioChannel | None = None, **settings: Any) -> None:  # noqa: ANN401
        call = (channel or self.channel()).unary_unary(UNARY)
        await call(b"", **{"timeout": 3_600.0, **settings})

    async def fail(self, channel: AioChannel | None = None, **settings: Any) -> str:  # noqa: ANN401
        """The details of an RPC that must fail."""
        try:
            await self.make_rpc(channel, **settings)
        except grpc.aio.AioRpcError as error:
            return without_command(str(error.details()))
        raise AssertionError("the RPC succeeded")


def without_command(text: str) -> str:
    """The text without the command that follows it while the channel has never been READY."""
    return text.removesuffix(f"; see: proxyless explain {UNARY[1:]} --target {TARGET}")


def run_case(case: Case) -> Outcome:
    """Run a case in a world of its own."""
    world = CaseWorld()
    with _collected_log() as logged:
        text = world.sim.run(case(world), virtual_seconds=100_000.0)
    assert not world.sim.exceptions
    return Outcome(text, tuple(logged), tuple(nack.message for nack in world.control.nacks))


@contextmanager
def _collected_log() -> Iterator[list[str]]:
    """Collect the log lines from INFO on."""
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


async def bootstrap_is_missing(world: CaseWorld) -> str:
    async with world.client.host.channel(TARGET) as channel:
        return await world.fail(channel)


async def authority_is_unknown(world: CaseWorld) -> str:
    return await world.fail(world.channel("xds://other/orders"))


async def control_plane_is_down(world: CaseWorld) -> str:
    await world.control.stop()
    return await world.fail()


async def control_plane_stays_down(world: CaseWorld) -> str:
    await world.control.stop()
    channel = world.channel()
    await world.fail(channel)
    await pause(700.0)
    return await world.fail(channel)


async def control_plane_is_mute(world: CaseWorld) -> str:
    world.control.delay(3_600.0)
    return await world.fail()


async def control_plane_is_none(world: CaseWorld) -> str:
    uri = f"ipv4:{world.backend.address}"
    server = {"server_uri": uri, "channel_creds": [{"type": "insecure"}]}
    bootstrap = {"xds_servers": [server], "node": {"id": NODE}}
    async with world.client.host.channel(TARGET, bootstrap=bootstrap) as channel:
        return await world.fail(channel)


# ---------------------------------------------------------------------------------------------
# Listener and routes


async def listener_is_not_there(world: CaseWorld) -> str:
    return await world.fail()


async def listener_is_deleted(world: CaseWorld) -> str:
    world.serve(*world.mesh())
    channel = world.channel()
    await world.make_rpc(channel)
    world.control.set_snapshot(world.control.snapshot.without(LISTENER, "orders"))
    await pause(1.0)
    return await world.fail(channel)


async def listener_is_refused(world: CaseWorld) -> str:
    world.serve(*world.mesh(message_class("envoy.config.listener.v3.Listener")(name="orders")))
    return await world.fail()


async def listener_is_a_socket(world: CaseWorld) -> str:
    world.serve(*world.mesh(socket_listener("orders", "10.0.0.9:80", "routes")))
    return await world.fail()


async def route_config_is_not_there(world: CaseWorld) -> str:
    world.serve(listener("orders", "routes"))
    return await world.fail()


async def route_config_is_refused(world: CaseWorld) -> str:
    world.serve(*world.mesh(route_config("routes", route(cluster=""))))
    return await world.fail()


async def no_virtual_host(world: CaseWorld) -> str:
    other = virtual_host(route(cluster="web"), domains=["payments"])
    world.serve(*world.mesh(route_config("routes", other)))
    return await world.fail()


async def no_route(world: CaseWorld) -> str:
    narrow = virtual_host(route("/shop.Cart/", cluster="web"), name="all")
    world.serve(*world.mesh(route_config("routes", narrow)))
    return await world.fail()


async def route_does_not_forward(world: CaseWorld) -> str:
    away = route()
    away.name = "away"
    away.redirect.host_redirect = "elsewhere"
    world.serve(*world.mesh(route_config("routes", away)))
    return await world.fail()


async def fault_is_injected(world: CaseWorld) -> str:
    fault = message_class("envoy.extensions.filters.http.fault.v3.HTTPFault")()
    fault.abort.grpc_status = 14
    fault.abort.percentage.numerator = 100
    world.serve(*world.mesh(listener("orders", "routes", filters=[http_filter("fault", fault)])))
    return await world.fail()


# ---------------------------------------------------------------------------------------------
# Clusters


async def cluster_is_not_there(world: CaseWorld) -> str:
    world.serve(*(each for each in world.mesh() if each.DESCRIPTOR.name != "Cluster"))
    return await world.fail()


async def cluster_is_deleted(world: CaseWorld) -> str:
    world.serve(*world.mesh())
    channel = world.channel()
    await world.make_rpc(channel)
    world.control.set_snapshot(world.control.snapshot.without(CLUSTER, "web"))
    await pause(1.0)
    return await world.fail(channel)


async def cluster_is_refused(world: CaseWorld) -> str:
    world.serve(*world.mesh(eds_cluster("web", lb_policy="MAGLEV")))
    return await world.fail()


async def aggregate_has_no_leaf(world: CaseWorld) -> str:
    world.serve(*world.mesh(aggregate_cluster("web", ["near", "far"])))
    return await world.fail()


async def aggregate_is_a_loop(world: CaseWorld) -> str:
    loop = [aggregate_cluster("web", ["near"]), aggregate_cluster("near", ["web"])]
    world.serve(*world.mesh(*loop))
    return await world.fail()


async def aggregate_is_too_deep(world: CaseWorld) -> str:
    chain = [aggregate_cluster("web", ["c1"])]
    chain += [aggregate_cluster(f"c{each}", [f"c{each + 1}"]) for each in range(1, 17)]
    world.serve(*world.mesh(*chain))
    return await world.fail()


# ---------------------------------------------------------------------------------------------
# Endpoints and connections


async def endpoints_are_not_there(world: CaseWorld) -> str:
    world.serve(*(each for each in world.mesh() if "Assignment" not in each.DESCRIPTOR.name))
    return await world.fail()


async def endpoints_are_none(world: CaseWorld) -> str:
    world.serve(*world.mesh(endpoints("web", [])))
    return await world.fail()


async def dns_name_is_unknown(world: CaseWorld) -> str:
    world.serve(*world.mesh(dns_cluster("web", "db.example", 5432)))
    return await world.fail()


async def dns_target_is_unknown(world: CaseWorld) -> str:
    return await world.fail(world.channel("dns:///db.example:5432"))


async def backend_refuses(world: CaseWorld) -> str:
    world.serve(*world.mesh())
    await world.backend.stop()
    return await world.fail()


async def backend_does_not_answer(world: CaseWorld) -> str:
    world.serve(*world.mesh())
    world.backend.host.cut(world.client.host)
    return await world.fail()


async def proxy_refuses(world: CaseWorld) -> str:
    unreachable = IpAddress(world.sim.host("proxy").ip, 3128)
    endpoint = with_proxy(lb_endpoint(str(world.backend.address)), unreachable)
    world.serve(*world.mesh(proxied(eds_cluster("web")), endpoints("web", [endpoint])))
    return await world.fail()


async def rpc_is_dropped(world: CaseWorld) -> str:
    address = str(world.backend.address)
    world.serve(*world.mesh(endpoints("web", [address], drops={"overload": 1.0})))
    return await world.fail()


async def too_many_rpcs(world: CaseWorld) -> str:
    limited = eds_cluster("web")
    limited.circuit_breakers.thresholds.add().max_requests.value = 1
    world.serve(*world.mesh(limited))
    world.backend.delay_s = 60.0
    channel = world.channel()
    first = channel.unary_unary(UNARY)(b"", timeout=3_600.0)
    await pause(5.0)
    text = await world.fail(channel)
    first.cancel()
    return text


# ---------------------------------------------------------------------------------------------
# Reasons that are parts of other texts


def proxy_requires_authentication() -> str:
    verdict = ConnectResponse().receive(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    assert isinstance(verdict, Refused)
    return f"proxy {verdict.why}"


def certificate_has_another_name() -> str:
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


# Errors of the config or of connections, which are logged; and errors of one RPC, which are not.
CASES: tuple[Case, ...] = (
    bootstrap_is_missing,
    authority_is_unknown,
    control_plane_is_down,
    control_plane_stays_down,
    control_plane_is_mute,
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
    backend_does_not_answer,
    proxy_refuses,
)
PER_RPC: tuple[Case, ...] = (
    no_route,
    route_does_not_forward,
    fault_is_injected,
    rpc_is_dropped,
    too_many_rpcs,
)
NACKS: tuple[Case, ...] = (listener_is_refused, route_config_is_refused, cluster_is_refused)
REASONS: tuple[Callable[[], str], ...] = (
    proxy_requires_authentication,
    certificate_has_another_name,
    certificate_is_for_another_authority,
    trust_domain_is_unknown,
    authority_is_of_another_trust_domain,
    provider_is_unknown,
    certificate_cannot_be_read,
    trust_bundles_are_bad,
)
