"""Unit tests of proxyless.observe.lint: findings and their paths."""

from __future__ import annotations

import pytest

from proxyless.assembly import Registries
from proxyless.base import IpAddress
from proxyless.controlplane import (
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    route,
    route_config,
    simple_mesh,
    socket_listener,
)
from proxyless.observe import Audience, Finding, LintContext, Severity, lint_message
from proxyless.protos import Proto, message_class
from proxyless.xds.bootstrap import Bootstrap, ChannelCreds, ServerConfig
from tests.connect_proxy import proxied, with_proxy

HCM = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
TLS = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"


@pytest.fixture(scope="module")
def context() -> LintContext:
    known = Registries()
    return LintContext(known.policies, known.filters)


def findings(
    message: Proto, context: LintContext, *audiences: Audience
) -> dict[str, tuple[Severity, str]]:
    """Findings by path: for proxyless without notes, for others all."""
    return {
        each.path: (each.severity, each.text)
        for each in lint_message(message, context, frozenset(audiences))
        if each.severity is not Severity.NOTE or each.audience is not Audience.PROXYLESS
    }


def notes(message: Proto, context: LintContext) -> dict[str, str]:
    found = lint_message(message, context)
    return {each.path: each.text for each in found if each.severity is Severity.NOTE}


def test_plain_mesh_has_only_notes(context: LintContext) -> None:
    for resource in simple_mesh("api", {"a": ["127.0.0.1:1"]}):
        assert findings(resource.message(), context) == {}


def test_rejected_field_has_the_path_of_the_nack(context: LintContext) -> None:
    cluster = eds_cluster("a", lb_policy="MAGLEV")
    cluster.eds_cluster_config.ClearField("eds_config")
    assert findings(cluster, context) == {
        "lb_policy": (Severity.ERROR, "is MAGLEV, which is not supported"),
        "eds_cluster_config.eds_config": (Severity.ERROR, "is unset, wanted ads or self"),
    }


def test_path_has_the_type_of_an_any(context: LintContext) -> None:
    message = listener("api", "routes")
    manager = message_class(HCM).FromString(message.api_listener.api_listener.value)
    manager.stream_idle_timeout.seconds = 1
    message.api_listener.api_listener.value = manager.SerializeToString()
    path = f'api_listener.api_listener["{HCM}"].stream_idle_timeout'
    assert findings(message, context) == {path: (Severity.WARNING, "is ignored")}


def test_rejected_field_is_not_reported_as_ignored(context: LintContext) -> None:
    cluster = eds_cluster("a", lb_policy="MAGLEV")
    cluster.load_balancing_policy.policies.add()
    found = lint_message(cluster, context)
    assert len([each for each in found if each.path == "load_balancing_policy"]) <= 1
    assert findings(cluster, context) == {
        "load_balancing_policy.policies[0].typed_extension_config": (Severity.ERROR, "is missing")
    }


def test_socket_listener_is_a_warning(context: LintContext) -> None:
    text = "is a socket listener, which no gRPC client can use"
    message = socket_listener("api", "127.0.0.1:1", "routes")
    assert findings(message, context)[""] == (Severity.WARNING, text)


def test_unmatchable_routes_are_warnings(context: LintContext) -> None:
    message = route_config(
        "r", route(cluster="a"), route(cluster="a"), route(cluster="a"), route(cluster="a")
    )
    query, path, header, redirect = message.virtual_hosts[0].routes
    query.match.query_parameters.add(name="q")
    path.match.path = "/no-method"
    header.route.cluster_header = "x"
    redirect.redirect.host_redirect = "b"
    found = findings(message, context)
    assert [*found] == [
        "virtual_hosts[0].routes[0].match.query_parameters",
        "virtual_hosts[0].routes[1].match.path",
        "virtual_hosts[0].routes[2].route.cluster_header",
        "virtual_hosts[0].routes[3].redirect",
    ]
    assert all(severity is Severity.WARNING for severity, _ in found.values())


def test_ignored_timeouts_are_warnings(context: LintContext) -> None:
    message = route_config("r", route(cluster="a"))
    action = message.virtual_hosts[0].routes[0].route
    place = "virtual_hosts[0].routes[0].route"
    assert "15 s" in notes(message, context)[f"{place}.max_stream_duration"]
    action.timeout.seconds = 3
    assert f"{place}.max_stream_duration" not in notes(message, context)
    assert findings(message, context) == {}
    assert f"{place}.timeout" in findings(message, context, Audience.GRPCIO)
    action.max_stream_duration.max_stream_duration.seconds = 3
    text = "is ignored, because max_stream_duration is set"
    assert findings(message, context) == {f"{place}.timeout": (Severity.WARNING, text)}


def test_auto_host_rewrite_is_a_note(context: LintContext) -> None:
    message = route_config("r", route(cluster="a"))
    action = message.virtual_hosts[0].routes[0].route
    place = "virtual_hosts[0].routes[0].route.auto_host_rewrite"
    action.auto_host_rewrite.value = False
    assert place not in notes(message, context)
    action.auto_host_rewrite.value = True
    text = notes(message, context)[place]
    assert "hostname" in text
    assert "trusted_xds_server" in text
    assert findings(message, context) == {}


def test_limited_retries_are_notes_and_unsupported_hashes_warnings(context: LintContext) -> None:
    message = route_config("r", route(cluster="a"))
    action = message.virtual_hosts[0].routes[0].route
    action.retry_policy.retry_on = "unavailable,5xx"
    action.retry_policy.num_retries.value = 9
    action.hash_policy.add().cookie.name = "c"
    action.hash_policy.add().header.header_name = "h"
    place = "virtual_hosts[0].routes[0].route"
    assert (
        notes(message, context).items()
        >= {
            f"{place}.retry_policy.retry_on": "is 'unavailable,5xx', of which counts: unavailable",
            f"{place}.retry_policy.num_retries": "counts as 4: there are never more attempts",
        }.items()
    )
    assert [*findings(message, context)] == [f"{place}.hash_policy[0].cookie"]


def test_ignored_endpoint_source_is_a_warning(context: LintContext) -> None:
    cluster = dns_cluster("a", "host", 1)
    assert findings(cluster, context) == {}
    cluster.eds_cluster_config.service_name = "x"
    assert [*findings(cluster, context)] == ["eds_cluster_config"]
    aggregate = aggregate_cluster("a", ["b"])
    aggregate.load_assignment.cluster_name = "x"
    assert [*findings(aggregate, context)] == ["load_assignment"]


def test_unused_policies_are_notes(context: LintContext) -> None:
    cluster = eds_cluster("a")
    for name in ("maglev.v3.Maglev", "round_robin.v3.RoundRobin", "random.v3.Random"):
        config = cluster.load_balancing_policy.policies.add().typed_extension_config
        config.typed_config.type_url = f"x/envoy.extensions.load_balancing_policies.{name}"
    found = notes(cluster, context)
    assert found["load_balancing_policy.policies[0]"].startswith("is skipped")
    assert found["load_balancing_policy.policies[2]"].endswith("policies[1] is used")


def test_unused_endpoints_are_reported(context: LintContext) -> None:
    message = endpoints("a", ["127.0.0.1:1", "127.0.0.1:2"])
    message.endpoints[0].lb_endpoints[0].health_status = 2
    message.endpoints[0].lb_endpoints[1].health_status = 3
    assert [*notes(message, context)] == [
        "endpoints[0].lb_endpoints[0].health_status",
        "endpoints[0].lb_endpoints[1].health_status",
    ]
    message.endpoints[0].ClearField("load_balancing_weight")
    assert [*findings(message, context)] == ["endpoints", "endpoints[0].load_balancing_weight"]


def test_rejection_by_others_is_opt_in(context: LintContext) -> None:
    cluster = eds_cluster("a", lb_policy="LEAST_REQUEST")
    assert findings(cluster, context) == {}
    assert findings(cluster, context, Audience.GRPCIO)["lb_policy"][0] is Severity.ERROR
    message = endpoints("a", ["127.0.0.1:1"])
    for category in ("x", "y"):
        drop = message.policy.drop_overloads.add(category=category)
        drop.drop_percentage.numerator = 1
    assert findings(message, context) == {}
    assert findings(message, context, Audience.ENVOY)["policy.drop_overloads"][0] is Severity.ERROR


def test_http_connect_is_a_warning_for_grpcio(context: LintContext) -> None:
    cluster = proxied(eds_cluster("a"))
    assert findings(cluster, context) == {}
    severity, text = findings(cluster, context, Audience.GRPCIO)["transport_socket"]
    assert severity is Severity.WARNING
    assert "unless GRPC_EXPERIMENTAL_XDS_HTTP_CONNECT=true" in text
    message = endpoints("a", [with_proxy(lb_endpoint("127.0.0.1:1"), IpAddress("127.0.0.1", 2))])
    with_proxy(message.endpoints[0], IpAddress("127.0.0.1", 3))
    assert findings(message, context) == {}
    assert notes(message, context) == {}


def test_aggregate_policy_is_an_error_for_envoy_or_for_grpcio(
    context: LintContext,
) -> None:
    plain = aggregate_cluster("all", ["a"])
    assert findings(plain, context, Audience.GRPCIO) == {}
    what = "is ROUND_ROBIN, wanted CLUSTER_PROVIDED: the cluster is refused"
    assert findings(plain, context, Audience.ENVOY) == {"lb_policy": (Severity.ERROR, what)}
    provided = aggregate_cluster("all", ["a"], lb_policy="CLUSTER_PROVIDED")
    assert findings(provided, context, Audience.ENVOY) == {}
    what = "is CLUSTER_PROVIDED, for which the cluster is refused"
    assert findings(provided, context, Audience.GRPCIO) == {"lb_policy": (Severity.ERROR, what)}


def test_transport_socket_matches_are_an_error(context: LintContext) -> None:
    cluster = eds_cluster("a")
    cluster.transport_socket_matches.add(name="tls")
    what = "is set, which is not supported"
    assert findings(cluster, context) == {"transport_socket_matches": (Severity.ERROR, what)}


def test_ignored_stream_duration_is_a_warning(context: LintContext) -> None:
    options = message_class("envoy.extensions.upstreams.http.v3.HttpProtocolOptions")()
    options.common_http_protocol_options.max_stream_duration.seconds = 3
    cluster = eds_cluster("a")
    cluster.upstream_config.typed_config.Pack(options)
    ((path, (severity, text)),) = findings(cluster, context).items()
    assert path.endswith(".common_http_protocol_options.max_stream_duration")
    assert (severity, text.partition(":")[0]) == (Severity.WARNING, "is ignored")
    made = listener("api", "routes")
    manager = message_class(HCM).FromString(made.api_listener.api_listener.value)
    manager.common_http_protocol_options.idle_timeout.seconds = 3
    made.api_listener.api_listener.Pack(manager)
    found = [path for path in notes(made, context) if path.endswith(".idle_timeout")]
    assert len(found) == 1


def test_binary_header_match_is_a_warning(context: LintContext) -> None:
    config = route_config("routes", route(headers={"trace-bin": "x"}, cluster="a"))
    path = "virtual_hosts[0].routes[0].match.headers[0].name"
    what = "is 'trace-bin': a binary header counts as absent"
    assert findings(config, context) == {path: (Severity.WARNING, what)}


def test_certificate_providers_are_checked_with_a_bootstrap(context: LintContext) -> None:
    tls = message_class(TLS)()
    validation = tls.common_tls_context.validation_context
    validation.ca_certificate_provider_instance.instance_name = "roots"
    cluster = eds_cluster("a")
    cluster.transport_socket.name = "tls"
    cluster.transport_socket.typed_config.type_url = f"x/{TLS}"
    cluster.transport_socket.typed_config.value = tls.SerializeToString()
    assert findings(cluster, context) == {}
    bootstrap = Bootstrap(servers=(ServerConfig("s", ChannelCreds("insecure")),))
    strict = LintContext(context.policies, context.filters, bootstrap)
    (finding,) = findings(cluster, strict).values()
    assert finding[0] is Severity.ERROR
    assert "no certificate provider" in finding[1]


ANY_SERVER = "accepts every server with a certificate of a public authority"


@pytest.mark.parametrize("is_combined", [False, True])
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, f"{ANY_SERVER}, wanted match_subject_alt_names, or auto_sni_san_validation with sni"),
        (
            {"auto_sni_san_validation": True, "auto_host_sni": True},
            f"{ANY_SERVER} if the endpoint has no hostname, wanted sni",
        ),
        ({"auto_sni_san_validation": True, "sni": "a.example"}, ""),
    ],
    ids=["unchecked", "hostname", "sni"],
)
def test_system_roots_without_a_check_of_names_are_a_warning(
    context: LintContext, fields: dict[str, object], text: str, is_combined: bool
) -> None:
    tls = message_class(TLS)(**fields)
    validation, path = tls.common_tls_context.validation_context, "validation_context"
    if is_combined:
        combined = tls.common_tls_context.combined_validation_context
        validation = combined.default_validation_context
        path = "combined_validation_context.default_validation_context"
    validation.system_root_certs.SetInParent()
    cluster = eds_cluster("a")
    socket = cluster.transport_socket
    socket.name = "tls"
    socket.typed_config.type_url = f"x/{TLS}"
    socket.typed_config.value = tls.SerializeToString()
    path = f'transport_socket.typed_config["{TLS}"].common_tls_context.{path}.system_root_certs'
    assert findings(cluster, context) == ({path: (Severity.WARNING, text)} if text else {})
    # Another check of the certificate is enough.
    validation.match_subject_alt_names.add(exact="a.example")
    socket.typed_config.value = tls.SerializeToString()
    assert findings(cluster, context) == {}


def test_unsupported_resource_type_is_a_note(context: LintContext) -> None:
    name = "envoy.config.core.v3.TypedExtensionConfig"
    (finding,) = lint_message(message_class(name)(name="x"), context)
    assert finding == Finding(Severity.NOTE, "", f"is a {name}, which this client never requests")
