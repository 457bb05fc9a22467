"""Collections of endpoints (LEDS): this client uses them, grpcio ignores them."""

import proxyless
from proxyless.assembly import Registries
from proxyless.controlplane import (
    ControlPlane,
    Resource,
    Snapshot,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    route,
    route_config,
)
from proxyless.observe import Audience, LintContext, Severity, lint_message
from tests.worlds.grpcio_peers import WHERE, backends, grpcio_client
from tests.worlds.transports import PATIENCE_S

PATH = "xdstp://mesh/envoy.config.endpoint.v3.LbEndpoint/web"


async def test_members_of_a_collection_are_used_by_this_client_and_ignored_by_grpcio() -> None:
    """grpcio goes to the next priority: to it, the locality has no endpoints."""
    async with backends("a", "b") as (a, b):
        snapshot = Snapshot.of(
            [
                listener("api", "routes"),
                route_config("routes", route(cluster="web")),
                eds_cluster("web"),
                endpoints("web", {0: f"{PATH}/*", 1: [b.address]}),
                Resource.of(lb_endpoint(a.address), f"{PATH}/1"),
            ]
        )
        async with ControlPlane(snapshot) as plane:
            bootstrap = {**plane.bootstrap(features=["delta"]), "authorities": {"mesh": {}}}
            async with grpcio_client(bootstrap, "xds:///api") as client:
                assert await client.call(WHERE, count=5) == {"b": 5}
            async with proxyless.aio.insecure_channel("xds:///api", bootstrap=bootstrap) as channel:
                assert await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S) == b"a"


def test_lint_warns_that_grpcio_ignores_collections() -> None:
    known = Registries()
    context = LintContext(known.policies, known.filters)
    message = endpoints("web", {0: f"{PATH}/*"})
    findings = lint_message(message, context, frozenset({Audience.GRPCIO}))
    severities = {each.path: each.severity for each in findings if each.audience is Audience.GRPCIO}
    assert severities["endpoints[0].leds_cluster_locality_config"] is Severity.WARNING
    text = "needs the server feature delta in the bootstrap of clients"
    assert text in [each.text for each in findings if each.severity is Severity.NOTE]
    assert "no-endpoints" not in {each.rule for each in findings}
