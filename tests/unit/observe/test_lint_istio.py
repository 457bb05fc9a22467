"""Unit tests of proxyless.observe.lint_istio."""

from __future__ import annotations

from proxyless.assembly import Registries
from proxyless.controlplane import eds_cluster, route, route_config
from proxyless.observe import Audience, LintContext, Severity, lint_message
from proxyless.observe.lint_istio import ISTIO_RULES, ISTIO_SETTINGS
from proxyless.observe.parsed_fields import PARSED_FIELDS
from proxyless.protos import Proto, message_class

ROUTE = "virtual_hosts[0].routes[0]"


def istio_notes(message: Proto, *audiences: Audience) -> dict[str, str]:
    known = Registries()
    context = LintContext(known.policies, known.filters)
    found = lint_message(message, context, frozenset(audiences or (Audience.ISTIO,)))
    notes = [each for each in found if each.audience is Audience.ISTIO]
    assert all(each.severity is Severity.NOTE for each in notes)
    return {each.path: each.text for each in notes}


def test_every_field_exists_and_is_ignored_or_has_a_rule() -> None:
    for message, field in ISTIO_SETTINGS:
        assert field in message_class(message).DESCRIPTOR.fields_by_name, (message, field)
        assert field not in PARSED_FIELDS[message], (message, field)
    assert set(ISTIO_RULES) <= set(PARSED_FIELDS)


def test_route_of_istio_names_the_settings_that_have_no_effect() -> None:
    made = route(cluster="outbound|7070||orders.shop")
    made.request_headers_to_add.add().header.key = "x-team"
    made.decorator.operation = "orders"
    made.route.prefix_rewrite = "/v2"
    made.route.retry_policy.retry_on = (
        "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"
    )
    made.route.retry_policy.num_retries.value = 2
    made.route.retry_policy.per_try_timeout.seconds = 1
    made.route.hash_policy.add().connection_properties.source_ip = True
    made.route.request_mirror_policies.add(cluster="copies").trace_sampled.value = False
    found = istio_notes(route_config("orders", made))
    assert found == {
        f"{ROUTE}.request_headers_to_add": (
            "comes from VirtualService http.headers.request: the application does it"
        ),
        f"{ROUTE}.decorator": "comes from Istio's defaults: it names the spans of a proxy",
        f"{ROUTE}.route.prefix_rewrite": "comes from VirtualService http.rewrite.uri",
        f"{ROUTE}.route.retry_policy.retry_on": (
            "comes from Istio's defaults, without VirtualService http.retries: "
            "UNAVAILABLE and CANCELLED are retried 2 times"
        ),
        f"{ROUTE}.route.retry_policy.per_try_timeout": (
            "comes from VirtualService http.retries.perTryTimeout"
        ),
        f"{ROUTE}.route.hash_policy[0].connection_properties": (
            "comes from DestinationRule loadBalancer.consistentHash.useSourceIp: "
            "each RPC has a random hash, wanted httpHeaderName"
        ),
        f"{ROUTE}.route.request_mirror_policies[0].trace_sampled": (
            "comes from Istio's defaults: copies have no spans"
        ),
    }


def test_redirect_and_cors_name_their_settings() -> None:
    made = route(cluster="a")
    made.redirect.host_redirect = "other"
    made.typed_per_filter_config["envoy.filters.http.cors"].type_url = "type.googleapis.com/x.Cors"
    found = istio_notes(route_config("orders", made))
    assert found[f"{ROUTE}.redirect"].startswith("comes from VirtualService http.redirect")
    assert "corsPolicy" in found[f'{ROUTE}.typed_per_filter_config["envoy.filters.http.cors"]']


def test_rejected_policy_names_its_setting() -> None:
    found = istio_notes(eds_cluster("a", lb_policy="MAGLEV"))
    assert "consistentHash.maglev" in found["lb_policy"]


def test_there_are_no_notes_for_other_audiences() -> None:
    made = route(cluster="a")
    made.route.prefix_rewrite = "/v2"
    assert istio_notes(route_config("orders", made), Audience.GRPCIO, Audience.ENVOY) == {}
