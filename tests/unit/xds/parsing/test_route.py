"""Route configurations. Rejected and dropped routes are tested in tests/spec."""

from typing import Any

import pytest

from proxyless.base import ValidationErrors
from proxyless.protos import Proto, message_class
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.parsing import (
    PluginParser,
    RouteConfigurationType,
    RouteContext,
    parse_route_configuration,
)
from proxyless.xds.parsing import route as route_module
from proxyless.xds.parsing.part_cache import PARTS_MIN
from proxyless.xds.resources import (
    ClusterChoice,
    NonForwardingAction,
    PathMatcher,
    Route,
    RouteAction,
    RouteConfiguration,
    VirtualHost,
)
from tests.unit.xds.parsing.messages import (
    Json,
    context,
    decode_routes,
    make,
    parsed_routes,
    route,
    routes,
    typed_struct,
)


def action_of(**action: object) -> RouteAction:
    (parsed,) = parsed_routes(route(**action))
    assert isinstance(parsed.action, RouteAction)
    return parsed.action


def test_route_configuration_type_is_not_full_state() -> None:
    kind = RouteConfigurationType(FilterRegistry(FILTER_FACTORIES))
    assert kind.type_url == "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
    assert not kind.is_full_state
    assert kind.named_by == ("type.googleapis.com/envoy.config.listener.v3.Listener",)


def test_minimal_route_configuration_is_parsed() -> None:
    action = RouteAction(choice=ClusterChoice("payments"))
    host = VirtualHost(
        domains=("*",), routes=(Route(path=PathMatcher("prefix", ""), action=action),)
    )
    decoded = decode_routes(routes(route()))
    assert decoded.resource == RouteConfiguration(name="routes", virtual_hosts=(host,))
    assert decoded.name == "routes"


def test_unset_times_are_none_and_zero_times_are_zero() -> None:
    unset = action_of()
    assert (unset.timeout_s, unset.max_grpc_timeout_s) == (None, None)
    assert not unset.has_max_stream_duration
    zero = action_of(timeout="0s", max_grpc_timeout="0s", max_stream_duration={})
    assert (zero.timeout_s, zero.max_grpc_timeout_s) == (0.0, 0.0)
    assert zero.has_max_stream_duration
    assert (zero.max_stream_duration_s, zero.grpc_timeout_header_max_s) == (None, None)


def test_times_are_parsed_to_seconds() -> None:
    limits = {"max_stream_duration": "3s", "grpc_timeout_header_max": "0s"}
    action = action_of(timeout="1.5s", max_grpc_timeout="2s", max_stream_duration=limits)
    assert action.timeout_s == 1.5
    assert action.max_grpc_timeout_s == 2.0
    assert action.max_stream_duration_s == 3.0
    assert action.grpc_timeout_header_max_s == 0.0


def test_grpc_timeout_offset_is_ignored() -> None:
    assert action_of(grpc_timeout_offset="-5s") == action_of()


@pytest.mark.parametrize("field", ["max_stream_duration", "grpc_timeout_header_max"])
def test_invalid_stream_duration_is_an_error_at_its_field(field: str) -> None:
    error = decode_routes(routes(route(max_stream_duration={field: "-1s"}))).error
    assert error.endswith(
        f"[field:virtual_hosts[0].routes[0].route.max_stream_duration.{field}.seconds"
        " error:is -1, wanted 0 to 315576000000]"
    )


@pytest.mark.parametrize(
    ("trusted", "field", "wanted"),
    [
        (True, True, True),
        (True, False, False),
        (True, None, False),
        (False, True, False),
    ],
)
def test_authority_is_rewritten_only_when_the_server_is_trusted(
    trusted: bool, field: bool | None, wanted: bool
) -> None:
    fields = {} if field is None else {"auto_host_rewrite": field}
    (parsed,) = parsed_routes(route(**fields), trusted=trusted)
    assert isinstance(parsed.action, RouteAction)
    assert parsed.action.auto_host_rewrite is wanted


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ({"redirect": {}}, "redirect"),
        ({"direct_response": {"status": 200}}, "direct_response"),
        ({"non_forwarding_action": {}}, "non_forwarding_action"),
        ({}, "unset"),
    ],
)
def test_non_forwarding_action_is_kept(action: Json, kind: str) -> None:
    (parsed,) = parsed_routes({"match": {"prefix": ""}, **action})
    assert parsed.action == NonForwardingAction(kind)


def test_equal_parts_of_routes_are_one_object() -> None:
    match = {"prefix": "/svc/", "headers": [{"name": "h", "exact_match": "v"}]}
    one = {**route(retry_policy={"retry_on": "unavailable"}), "match": match}
    first, second = parsed_routes(one, one)
    assert first.path is second.path
    assert first.headers[0] is second.headers[0]
    assert isinstance(first.action, RouteAction)
    assert isinstance(second.action, RouteAction)
    assert first.action.choice is second.action.choice
    assert first.action.retry is second.action.retry


def test_errors_in_equal_parts_are_reported_for_each_route() -> None:
    header = {"name": "h", "safe_regex_match": {"regex": "("}}
    wrong = {**route(), "match": {"prefix": "", "headers": [header]}}
    error = decode_routes(routes(wrong, wrong)).error
    assert "routes[0].match.headers[0].safe_regex_match.regex" in error
    assert "routes[1].match.headers[0].safe_regex_match.regex" in error


def test_domains_of_all_virtual_hosts_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_module, "DOMAINS_MAX", 1)
    message = routes(route())
    message.virtual_hosts.add(domains=["b"])
    error = decode_routes(message).error
    assert "field:virtual_hosts[1].domains error:has 1 elements, wanted at most 0" in error


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        ("VIRTUAL_HOSTS_MAX", "field:virtual_hosts error:has 2 elements, wanted at most 1"),
        ("DOMAINS_MAX", "field:virtual_hosts[0].domains error:has 2 elements, wanted at most 1"),
        ("ROUTES_MAX", "field:virtual_hosts[1].routes error:has 1 elements, wanted at most 0"),
        (
            "HEADERS_MAX",
            (
                "field:virtual_hosts[0].routes[0].match.headers"
                " error:has 2 elements, wanted at most 1"
            ),
        ),
        (
            "WEIGHTED_CLUSTERS_MAX",
            (
                "field:virtual_hosts[0].routes[0].route.weighted_clusters.clusters"
                " error:has 2 elements, wanted at most 1"
            ),
        ),
    ],
)
def test_list_above_its_limit_is_an_error(
    limit: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = {"name": "h", "present_match": True}
    cluster = {"name": "a", "weight": 1}
    message = routes(
        {
            "match": {"prefix": "", "headers": [header, header]},
            "route": {"weighted_clusters": {"clusters": [cluster, cluster]}},
        }
    )
    message.virtual_hosts[0].domains.append("b")
    message.virtual_hosts.add(domains=["c"]).routes.add().CopyFrom(
        message_class("envoy.config.route.v3.Route")(match={"prefix": ""}, route={"cluster": "a"})
    )
    assert decode_routes(message).error == ""
    monkeypatch.setattr(route_module, limit, 1)
    assert decode_routes(message).error == f'route configuration "routes": [{error}]'


def test_error_text_is_bounded_when_thousands_of_routes_are_invalid() -> None:
    error = decode_routes(routes(*[{"match": {}}] * 2_000)).error
    assert error.endswith("; and more]")
    assert len(error) < 20_000


# The cache


def versions(*messages: Proto, plugins: dict[str, PluginParser] | None = None) -> list[Any]:
    """Decode these versions of a resource in order, with one cache."""
    kind = RouteConfigurationType(FilterRegistry(FILTER_FACTORIES), plugins or {})
    return [kind.decode(each.SerializeToString(), context()) for each in messages]


def many_routes(changed: int | None = None) -> Proto:
    clusters = [f"{n}-changed" if n == changed else str(n) for n in range(PARTS_MIN)]
    return routes(*(route(cluster=cluster) for cluster in clusters))


def test_unchanged_routes_are_the_same_objects_in_the_next_version() -> None:
    first, second = versions(many_routes(), many_routes(changed=3))
    before, after = (each.resource.virtual_hosts[0].routes for each in (first, second))
    same = [one is other for one, other in zip(before, after, strict=True)]
    assert same == [n != 3 for n in range(PARTS_MIN)]
    assert after[3].action.choice == ClusterChoice("3-changed")
    assert second == decode_routes(many_routes(changed=3))


def test_rejected_version_is_not_cached() -> None:
    wrong = many_routes()
    wrong.virtual_hosts[0].routes.add()
    refused, after = versions(wrong, many_routes())
    assert "routes[16].match error:is unset" in refused.error
    assert after == decode_routes(many_routes())


def test_equal_invalid_routes_are_rejected_in_every_version() -> None:
    wrong = routes(*[route(cluster="")] * PARTS_MIN)
    first, second = versions(wrong, wrong)
    assert first == second
    assert f"routes[{PARTS_MIN - 1}].route.cluster error:is empty" in second.error


def test_routes_of_trusted_and_untrusted_servers_are_cached_separately() -> None:
    kind = RouteConfigurationType(FilterRegistry(FILTER_FACTORIES))
    serialized = routes(*[route(auto_host_rewrite=True, cluster=str(n)) for n in range(20)])
    for trusted in (True, False, True):
        decoded = kind.decode(serialized.SerializeToString(), context(trusted=trusted))
        assert decoded.resource is not None
        for each in decoded.resource.virtual_hosts[0].routes:
            assert isinstance(each.action, RouteAction)
            assert each.action.auto_host_rewrite is trusted


def test_route_to_a_plugin_changes_with_the_plugin() -> None:
    def with_plugin(type_name: str) -> Proto:
        message = many_routes()
        message.virtual_hosts[0].routes.add(
            match={"prefix": ""}, route={"cluster_specifier_plugin": "p"}
        )
        plugin = make(
            "envoy.config.route.v3.ClusterSpecifierPlugin",
            {
                "extension": {"name": "p", "typed_config": typed_struct(type_name, {})},
                "is_optional": True,
            },
        )
        message.cluster_specifier_plugins.add().CopyFrom(plugin)
        return message

    supported, unsupported, again = versions(
        with_plugin("own.Plugin"),
        with_plugin("own.Other"),
        with_plugin("own.Plugin"),
        plugins={"own.Plugin": lambda _config, _errors: ({"lookup": {}},)},
    )
    assert len(supported.resource.virtual_hosts[0].routes) == PARTS_MIN + 1
    assert len(unsupported.resource.virtual_hosts[0].routes) == PARTS_MIN
    assert unsupported.resource.plugins == ()
    assert again == supported
    assert [plugin.name for plugin in again.resource.plugins] == ["p"]


def test_routes_are_parsed_without_a_cache() -> None:
    errors = ValidationErrors()
    settings = RouteContext(FilterRegistry(FILTER_FACTORIES))
    resource = parse_route_configuration(many_routes(), settings, errors)
    assert errors.ok
    assert resource == decode_routes(many_routes()).resource
