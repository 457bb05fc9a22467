"""What a route configuration says. What is refused and dropped is in tests/spec."""

import pytest

from proxyless.protos import message_class
from proxyless.xds.filters import default_filter_registry
from proxyless.xds.parsing import RouteConfigurationType
from proxyless.xds.parsing import route as route_module
from proxyless.xds.resources import (
    ClusterChoice,
    NonForwardingAction,
    PathMatcher,
    Route,
    RouteAction,
    RouteConfiguration,
    VirtualHost,
)
from tests.unit.xds.parsing.messages import Json, decode_routes, parsed_routes, route, routes


def action_of(**action: object) -> RouteAction:
    (parsed,) = parsed_routes(route(**action))
    assert isinstance(parsed.action, RouteAction)
    return parsed.action


def test_route_configurations_are_not_full_state() -> None:
    kind = RouteConfigurationType(default_filter_registry())
    assert kind.type_url == "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
    assert not kind.is_full_state


def test_the_shortest_route_configuration() -> None:
    action = RouteAction(choice=ClusterChoice("payments"))
    host = VirtualHost(
        domains=("*",), routes=(Route(path=PathMatcher("prefix", ""), action=action),)
    )
    decoded = decode_routes(routes(route()))
    assert decoded.resource == RouteConfiguration(name="routes", virtual_hosts=(host,))
    assert decoded.name == "routes"


def test_times_that_are_unset_are_none_and_zero_is_zero() -> None:
    unset = action_of()
    assert (unset.timeout_s, unset.max_grpc_timeout_s) == (None, None)
    assert not unset.has_max_stream_duration
    zero = action_of(timeout="0s", max_grpc_timeout="0s", max_stream_duration={})
    assert (zero.timeout_s, zero.max_grpc_timeout_s) == (0.0, 0.0)
    assert zero.has_max_stream_duration
    assert (zero.max_stream_duration_s, zero.grpc_timeout_header_max_s) == (None, None)


def test_times_are_seconds() -> None:
    limits = {"max_stream_duration": "3s", "grpc_timeout_header_max": "0s"}
    action = action_of(timeout="1.5s", max_grpc_timeout="2s", max_stream_duration=limits)
    assert action.timeout_s == 1.5
    assert action.max_grpc_timeout_s == 2.0
    assert action.max_stream_duration_s == 3.0
    assert action.grpc_timeout_header_max_s == 0.0


def test_the_offset_of_a_timeout_is_not_looked_at() -> None:
    assert action_of(grpc_timeout_offset="-5s") == action_of()


@pytest.mark.parametrize("field", ["max_stream_duration", "grpc_timeout_header_max"])
def test_a_wrong_stream_duration_is_told_at_its_field(field: str) -> None:
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
def test_only_a_trusted_server_has_authorities_rewritten(
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
def test_an_action_that_sends_nowhere_is_kept(action: Json, kind: str) -> None:
    (parsed,) = parsed_routes({"match": {"prefix": ""}, **action})
    assert parsed.action == NonForwardingAction(kind)


def test_equal_parts_are_one_object() -> None:
    match = {"prefix": "/svc/", "headers": [{"name": "h", "exact_match": "v"}]}
    one = {**route(retry_policy={"retry_on": "unavailable"}), "match": match}
    first, second = parsed_routes(one, one)
    assert first.path is second.path
    assert first.headers[0] is second.headers[0]
    assert isinstance(first.action, RouteAction)
    assert isinstance(second.action, RouteAction)
    assert first.action.choice is second.action.choice
    assert first.action.retry is second.action.retry


def test_what_is_wrong_in_equal_parts_is_told_for_each() -> None:
    header = {"name": "h", "safe_regex_match": {"regex": "("}}
    wrong = {**route(), "match": {"prefix": "", "headers": [header]}}
    error = decode_routes(routes(wrong, wrong)).error
    assert "routes[0].match.headers[0].safe_regex_match.regex" in error
    assert "routes[1].match.headers[0].safe_regex_match.regex" in error


@pytest.mark.parametrize(
    ("limit", "said"),
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
def test_every_list_has_a_bound(limit: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert decode_routes(message).error == f"RouteConfiguration 'routes': [{said}]"


def test_thousands_of_wrong_routes_make_a_text_with_a_bound() -> None:
    error = decode_routes(routes(*[{"match": {}}] * 2_000)).error
    assert error.endswith("; and 1900 more]")
    assert len(error) < 20_000
