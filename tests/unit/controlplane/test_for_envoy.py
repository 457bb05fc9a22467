"""Unit tests of proxyless.controlplane.for_envoy."""

from __future__ import annotations

from proxyless.assembly import Registries
from proxyless.controlplane import (
    CLUSTER,
    LISTENER,
    ROUTE_CONFIG,
    Resource,
    lb_endpoint,
    listener,
    route,
    socket_listener,
)
from proxyless.controlplane.for_envoy import adapt_for_envoy
from proxyless.observe import Audience, LintContext, Severity, lint_message
from tests.worlds.short_form_mesh import make_mesh


def test_lint_finds_nothing_that_envoy_would_reject_or_misread() -> None:
    known = Registries()
    context = LintContext(known.policies, known.filters)
    adapted = adapt_for_envoy(map(Resource.of, make_mesh()), "127.0.0.1:10000")
    found = [
        (resource.name, finding.path, finding.text)
        for resource in adapted
        for finding in lint_message(resource.message(), context, frozenset({Audience.ENVOY}))
        if finding.audience is Audience.ENVOY and finding.severity is not Severity.NOTE
    ]
    # Envoy has no more than one category of drops.
    assert [name for name, _, _ in found] == ["cart-endpoints"]


def test_each_listener_has_a_port() -> None:
    routes = [route(cluster="a")]
    given = [listener("x", routes), socket_listener("own", "127.0.0.1:9", routes)]
    made = adapt_for_envoy(map(Resource.of, [*given, listener("y", routes)]), "127.0.0.1:10000")
    ports = [each.message().address.socket_address.port_value for each in made]
    assert [each.name for each in made] == ["x", "own", "y"]
    assert ports == [10000, 9, 10001]
    assert all(each.message().filter_chains for each in made)


def test_routes_have_no_other_timeout_than_that_of_the_stream() -> None:
    resources = adapt_for_envoy(map(Resource.of, make_mesh()), "127.0.0.1:10000")
    [config] = [each.message() for each in resources if each.type_url == ROUTE_CONFIG]
    for made in config.virtual_hosts[0].routes:
        assert made.route.HasField("timeout")
        assert made.route.timeout.ToNanoseconds() == 0


def test_names_and_references_stay_the_same() -> None:
    before = list(map(Resource.of, make_mesh()))
    after = adapt_for_envoy(before, "127.0.0.1:10000")
    assert [(each.type_url, each.name) for each in before] == [
        (each.type_url, each.name) for each in after
    ]
    for old, new in zip(before, after, strict=True):
        named = [sorted((ref.type_url, ref.name) for ref in each.references) for each in (old, new)]
        assert named[0] == named[1]
    assert {LISTENER, CLUSTER} <= {each.type_url for each in after}


def test_members_of_collections_keep_their_names() -> None:
    name = "xdstp://mesh/envoy.config.endpoint.v3.LbEndpoint/web/1"
    member = Resource.of(lb_endpoint("10.0.0.1:80"), name)
    assert adapt_for_envoy([member], "127.0.0.1:0") == [member]
