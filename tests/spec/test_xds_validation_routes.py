"""Validation of Listener and RouteConfiguration resources, with the text of each error.

Specs: A27, A28, A31, A39, A44, A55. Other modules cover the behaviour of valid resources.
"""

import pytest

from proxyless.base import StatusCode
from proxyless.protos import Proto
from proxyless.xds.config.virtual_hosts import find_virtual_host
from proxyless.xds.filters.stateful_session import SessionCookie, StatefulSessionConfig
from proxyless.xds.resources import (
    ClusterChoice,
    RetryOnPolicy,
    Route,
    RouteAction,
    WeightedChoice,
    WeightedCluster,
)
from proxyless.xds.resources.filter import FilterOverride
from tests.unit.xds.parsing.messages import (
    FAULT,
    FILTER_CONFIG,
    MANAGER,
    MANAGER_PATH,
    ROUTER,
    UNKNOWN,
    Json,
    any_of,
    decode_listener,
    decode_routes,
    http_filter,
    listener,
    listener_error,
    make,
    manager,
    parsed_routes,
    route,
    routes,
    routes_error,
)

SESSION = "envoy.extensions.filters.http.stateful_session.v3.StatefulSession"
PER_ROUTE = f"{SESSION}PerRoute"
COOKIE_STATE = "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState"

# ---------------------------------------------------------------------------------------------
# Listeners


@pytest.mark.spec("A27-43", "A74-31")
def test_a_socket_listener_is_valid_but_has_no_api_listener() -> None:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 80}}
    decoded = decode_listener(
        make("envoy.config.listener.v3.Listener", {"name": "l", "address": address})
    )
    assert decoded.resource is not None
    assert decoded.resource.api_listener is None


@pytest.mark.spec("A27-44")
def test_listener_without_api_listener_and_address_is_refused() -> None:
    decoded = decode_listener(make("envoy.config.listener.v3.Listener", {"name": "l"}))
    assert decoded.error == 'listener "l": [error:neither api_listener nor address is set]'


@pytest.mark.spec("A27-20")
def test_api_listener_without_an_http_connection_manager_is_refused() -> None:
    holder = {"api_listener": any_of(UNKNOWN)}
    decoded = decode_listener(
        make("envoy.config.listener.v3.Listener", {"name": "l", "api_listener": holder})
    )
    assert decoded.error == (
        'listener "l": [field:api_listener.api_listener error:is envoy.config.core.v3.Metadata,'
        " wanted envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager]"
    )


@pytest.mark.spec("A27-42")
def test_routes_are_an_rds_name_or_inline() -> None:
    by_name = decode_listener(listener()).resource
    assert by_name is not None
    assert by_name.api_listener is not None
    assert by_name.api_listener.routes == "routes"
    host = {"domains": ["*"], "routes": [route()]}
    message = make(
        "envoy.config.listener.v3.Listener",
        {
            "name": "api.example",
            "api_listener": {
                "api_listener": any_of(
                    MANAGER,
                    http_filters=[http_filter("router")],
                    route_config={"name": "inside", "virtual_hosts": [host]},
                )
            },
        },
    )
    inside = decode_listener(message).resource
    assert inside is not None
    assert inside.api_listener is not None
    config = inside.api_listener.routes
    assert not isinstance(config, str)
    assert config.name == "inside"
    assert config.virtual_hosts[0].domains == ("*",)


@pytest.mark.spec("A27-42")
@pytest.mark.parametrize(
    ("specifier", "text"),
    [({}, "unset"), ({"scoped_routes": {"name": "s"}}, "scoped_routes")],
)
def test_other_sources_of_routes_are_refused(specifier: Json, text: str) -> None:
    fields = {key: value for key, value in manager().items() if key != "rds"} | specifier
    message = make(
        "envoy.config.listener.v3.Listener",
        {
            "name": "l",
            "api_listener": {"api_listener": any_of(MANAGER, **fields)},
        },
    )
    assert decode_listener(message).error == (
        f'listener "l": [field:{MANAGER_PATH}'
        f" error:route_specifier is {text}, wanted rds or route_config]"
    )


@pytest.mark.spec("A27-15")
@pytest.mark.parametrize("source", [{"ads": {}}, {"self": {}}])
def test_rds_config_source_may_be_ads_or_self(source: Json) -> None:
    rds = {"config_source": source, "route_config_name": "routes"}
    assert decode_listener(listener(rds=rds)).error == ""


@pytest.mark.spec("A27-15")
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({}, "unset"),
        ({"path": "/etc/routes"}, "path"),
        ({"api_config_source": {"api_type": "GRPC"}}, "api_config_source"),
    ],
)
def test_other_rds_config_sources_are_refused(source: Json, text: str) -> None:
    rds = {"config_source": source, "route_config_name": "routes"}
    assert listener_error(rds=rds) == (
        f"[field:rds.config_source error:is {text}, wanted ads or self]"
    )


def test_rds_without_a_name_is_refused() -> None:
    assert listener_error(rds={"config_source": {"ads": {}}}) == (
        "[field:rds.route_config_name error:is empty, wanted the name of a RouteConfiguration]"
    )


# ---------------------------------------------------------------------------------------------
# Filters


@pytest.mark.spec(
    "A39-01", "A39-03", "A39-04", "A39-05", reason="one table over the rules of a chain"
)
@pytest.mark.parametrize(
    ("chain", "error"),
    [
        ([], "field:http_filters error:is empty, wanted at least one filter"),
        ([http_filter("")], "field:http_filters[0].name error:is empty"),
        (
            [http_filter("a", FAULT), http_filter("a")],
            "field:http_filters[1].name error:is 'a' again, wanted a unique one",
        ),
        (
            [http_filter("a", UNKNOWN), http_filter("router")],
            (
                f"field:http_filters[0].typed_config error:is of type '{UNKNOWN}',"
                " wanted one of a known filter"
            ),
        ),
        (
            [http_filter("a", UNKNOWN, is_optional=True)],
            (
                "field:http_filters error:has only optional filters that are not known,"
                " wanted one that ends the chain"
            ),
        ),
        (
            [http_filter("router"), http_filter("fault", FAULT)],
            (
                f"field:http_filters[0] error:is {ROUTER}, which ends the chain, wanted it last;"
                f" field:http_filters[1] error:is {FAULT} and last, wanted one that ends the chain"
            ),
        ),
        (
            [http_filter("one"), http_filter("two")],
            f"field:http_filters[0] error:is {ROUTER}, which ends the chain, wanted it last",
        ),
        (
            [{"name": "a"}, http_filter("router")],
            "field:http_filters[0] error:nothing is set, wanted typed_config",
        ),
        (
            [http_filter("a", PER_ROUTE), http_filter("router")],
            f"field:http_filters[0].typed_config error:is '{PER_ROUTE}', wanted {SESSION}",
        ),
    ],
)
def test_invalid_chain_of_filters_is_refused(chain: list[Json], error: str) -> None:
    assert listener_error(http_filters=chain) == f"[{error}]"


@pytest.mark.spec("A39-04")
def test_unknown_optional_filter_is_omitted() -> None:
    chain = [http_filter("new", UNKNOWN, is_optional=True), http_filter("router")]
    resource = decode_listener(listener(http_filters=chain)).resource
    assert resource is not None
    assert resource.api_listener is not None
    assert [entry.name for entry in resource.api_listener.http_filters] == ["router"]


def overrides_of(entry: Json) -> Route:
    return parsed_routes({**route(), "typed_per_filter_config": {"f": entry}})[0]


def override_error(entry: Json) -> str:
    return routes_error({**route(), "typed_per_filter_config": {"f": entry}})


OVERRIDE_PATH = 'virtual_hosts[0].routes[0].typed_per_filter_config["f"]'


@pytest.mark.spec("A39-02")
def test_filter_can_be_disabled_and_enabled_per_route() -> None:
    off = overrides_of(any_of(FILTER_CONFIG, disabled=True))
    assert off.filter_overrides == {"f": FilterOverride(None, is_disabled=True)}
    on = overrides_of(any_of(FILTER_CONFIG))
    assert on.filter_overrides == {"f": FilterOverride(None, is_disabled=False)}
    chain = [http_filter("f", FAULT, disabled=True), http_filter("router")]
    resource = decode_listener(listener(http_filters=chain)).resource
    assert resource is not None
    assert resource.api_listener is not None
    assert [entry.is_disabled for entry in resource.api_listener.http_filters] == [True, False]


@pytest.mark.spec("A39-07")
def test_an_override_for_a_filter_that_no_listener_has_is_valid() -> None:
    assert "f" in overrides_of(any_of(FAULT)).filter_overrides
    assert "f" in overrides_of(any_of(FILTER_CONFIG, config=any_of(FAULT))).filter_overrides


@pytest.mark.spec("A39-08")
def test_an_unknown_override_is_refused_unless_it_is_optional() -> None:
    text = f"error:is of type '{UNKNOWN}', wanted one of a known filter]"
    assert override_error(any_of(UNKNOWN)) == f"[field:{OVERRIDE_PATH} {text}"
    wrapped = any_of(FILTER_CONFIG, config=any_of(UNKNOWN))
    assert override_error(wrapped) == f'[field:{OVERRIDE_PATH}["{FILTER_CONFIG}"].config {text}'
    optional = any_of(FILTER_CONFIG, config=any_of(UNKNOWN), is_optional=True)
    assert overrides_of(optional).filter_overrides == {}


@pytest.mark.spec("A39-09")
def test_override_of_another_type_is_refused() -> None:
    assert override_error(any_of(SESSION)) == (
        f"[field:{OVERRIDE_PATH} error:is '{SESSION}', wanted {PER_ROUTE}]"
    )
    assert override_error(any_of(ROUTER)) == (
        f"[field:{OVERRIDE_PATH} error:is '{ROUTER}', wanted none: this filter has no overrides]"
    )


def session_state(**cookie: object) -> Json:
    return {"name": "cookie", "typed_config": any_of(COOKIE_STATE, cookie=cookie)}


def session_config(message: Proto) -> object:
    decoded = decode_listener(message)
    assert decoded.resource is not None, decoded.error
    assert decoded.resource.api_listener is not None
    return decoded.resource.api_listener.http_filters[0].config


def session_listener(state: Json | None) -> Proto:
    fields = {} if state is None else {"session_state": state}
    entry = {"name": "session", "typed_config": any_of(SESSION, **fields)}
    return listener(http_filters=[entry, http_filter("router")])


@pytest.mark.spec("A55-01")
def test_session_config_has_a_cookie_or_is_empty() -> None:
    assert session_config(session_listener(None)) == StatefulSessionConfig()
    whole = session_listener(session_state(name="s", path="/svc", ttl="120.5s"))
    assert session_config(whole) == StatefulSessionConfig(SessionCookie("s", "/svc", 120.5))
    bare = session_listener(session_state(name="s"))
    assert session_config(bare) == StatefulSessionConfig(SessionCookie("s"))


@pytest.mark.spec("A55-06")
@pytest.mark.parametrize(
    ("state", "error"),
    [
        (
            {"typed_config": any_of(UNKNOWN)},
            f"error:is {UNKNOWN}, wanted {COOKIE_STATE}",
        ),
        (
            session_state(path="/"),
            f'["{COOKIE_STATE}"].cookie.name error:is empty, wanted the cookie\'s name',
        ),
        (
            session_state(name="s", ttl="-1s"),
            f'["{COOKIE_STATE}"].cookie.ttl.seconds error:is -1, wanted 0 to 315576000000',
        ),
        (
            {"name": "cookie"},
            ".type_url error:is '', wanted one such as 'host/package.Type'",
        ),
    ],
)
def test_invalid_session_state_is_refused(state: Json, error: str) -> None:
    path = f'{MANAGER_PATH}.http_filters[0].typed_config["{SESSION}"].session_state.typed_config'
    separator = "" if error.startswith((".", "[")) else " "
    assert decode_listener(session_listener(state)).error == (
        f'listener "api.example": [field:{path}{separator}{error}]'
    )


@pytest.mark.spec("A55-07")
def test_override_disables_or_replaces_sessions() -> None:
    off = overrides_of(any_of(PER_ROUTE, disabled=True))
    assert off.filter_overrides == {"f": FilterOverride(StatefulSessionConfig())}
    other = overrides_of(
        any_of(PER_ROUTE, stateful_session={"session_state": session_state(name="o")})
    )
    assert other.filter_overrides == {
        "f": FilterOverride(StatefulSessionConfig(SessionCookie("o")))
    }


# ---------------------------------------------------------------------------------------------
# Virtual hosts and matches


@pytest.mark.parametrize("domain", ["a*b", "**", "*a*", ""])
def test_an_invalid_domain_is_refused(domain: str) -> None:
    message = routes()
    message.virtual_hosts[0].domains.append(domain)
    assert decode_routes(message).error == (
        'route configuration "routes": [field:virtual_hosts[0].domains[1]'
        f" error:is {domain!r}, wanted a name with at most one '*', first or last]"
    )


def test_virtual_host_without_domains_is_refused() -> None:
    message = routes()
    del message.virtual_hosts[0].domains[:]
    assert decode_routes(message).error == (
        'route configuration "routes": [field:virtual_hosts[0].domains'
        " error:is empty, wanted at least one domain]"
    )


@pytest.mark.spec("A28-28")
def test_duplicate_domain_is_accepted_and_the_first_host_is_used() -> None:
    message = routes()
    message.virtual_hosts[0].domains.append("*")
    message.virtual_hosts[0].name = "first"
    message.virtual_hosts.add(domains=["*"], name="second")
    resource = decode_routes(message).resource
    assert resource is not None
    host = find_virtual_host(resource.virtual_hosts, "orders")
    assert host is not None
    assert host.name == "first"


def matching(**match: object) -> Json:
    return {**route(), "match": match}


MATCH = "virtual_hosts[0].routes[0].match"


@pytest.mark.parametrize(
    ("match", "error"),
    [
        ({}, f"{MATCH} error:path_specifier is unset, wanted prefix, path or safe_regex"),
        (
            {"connect_matcher": {}},
            f"{MATCH} error:path_specifier is connect_matcher, wanted prefix, path or safe_regex",
        ),
        (
            {"path_separated_prefix": "/a"},
            (
                f"{MATCH} error:path_specifier is path_separated_prefix,"
                " wanted prefix, path or safe_regex"
            ),
        ),
        (
            {"safe_regex": {"regex": "("}},
            f"{MATCH}.safe_regex.regex error:is not a valid regular expression: missing ): (",
        ),
    ],
)
def test_invalid_path_matcher_is_refused(match: Json, error: str) -> None:
    assert routes_error(matching(**match)) == f"[field:{error}]"


def test_route_without_a_match_is_refused() -> None:
    assert routes_error({"route": {"cluster": "c"}}) == f"[field:{MATCH} error:is unset]"


@pytest.mark.parametrize(
    "match",
    [
        {"prefix": "svc"},
        {"prefix": "//"},
        {"prefix": "/svc/method/"},
        {"path": ""},
        {"path": "/svc"},
        {"path": "/svc/"},
        {"path": "//method"},
        {"path": "/a/b/c"},
        {"path": "svc/method"},
    ],
)
def test_route_is_dropped_when_no_method_can_have_its_path(match: Json) -> None:
    kept = {**route(), "name": "kept"}
    assert [each.name for each in parsed_routes(matching(**match), kept)] == ["kept"]


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ({}, " error:header_match_specifier is unset, wanted a way to match"),
        (
            {"range_match": {"start": 2, "end": 1}},
            ".range_match error:ends at 1, wanted at least its start 2",
        ),
        (
            {"safe_regex_match": {"regex": "["}},
            ".safe_regex_match.regex error:is not a valid regular expression: missing ]: [",
        ),
        (
            {"string_match": {}},
            (
                ".string_match error:match_pattern is unset,"
                " wanted exact, prefix, suffix, contains or safe_regex"
            ),
        ),
        (
            {"string_match": {"safe_regex": {"regex": "*"}}},
            (
                ".string_match.safe_regex.regex error:is not a valid regular expression:"
                " no argument for repetition operator: *"
            ),
        ),
    ],
)
def test_invalid_header_matcher_is_refused(header: Json, error: str) -> None:
    match = {
        "prefix": "",
        "headers": [{"name": "ok", "present_match": True}, {"name": "h", **header}],
    }
    assert routes_error({**route(), "match": match}) == f"[field:{MATCH}.headers[1]{error}]"


def test_route_with_query_parameters_is_dropped_without_further_validation() -> None:
    with_query = {"match": {"query_parameters": [{"name": "q"}]}, "route": {"cluster": ""}}
    kept = {**route(), "name": "kept"}
    assert [each.name for each in parsed_routes(with_query, kept)] == ["kept"]


def test_other_matchers_are_ignored() -> None:
    (parsed,) = parsed_routes(matching(prefix="", grpc={}, tls_context={"presented": True}))
    (plain,) = parsed_routes(matching(prefix=""))
    assert parsed == plain


def test_an_unknown_denominator_is_refused() -> None:
    message = routes(matching(prefix="", runtime_fraction={"default_value": {"numerator": 1}}))
    match = message.virtual_hosts[0].routes[0].match
    match.runtime_fraction.default_value.denominator = 7
    assert decode_routes(message).error == (
        f'route configuration "routes": [field:{MATCH}.runtime_fraction.default_value.denominator'
        " error:is 7, wanted HUNDRED, TEN_THOUSAND or MILLION]"
    )


# ---------------------------------------------------------------------------------------------
# Actions

ACTION = "virtual_hosts[0].routes[0].route"


@pytest.mark.spec("A28-05")
@pytest.mark.parametrize(
    "action",
    [{"cluster_header": "h"}, {"inline_cluster_specifier_plugin": {"extension": {"name": "p"}}}],
)
def test_route_with_an_unsupported_cluster_specifier_is_dropped(action: Json) -> None:
    kept = {**route(), "name": "kept"}
    assert [each.name for each in parsed_routes(route(**action), kept)] == ["kept"]


def weighted(*clusters: Json, **fields: object) -> Json:
    return route(weighted_clusters={"clusters": list(clusters), **fields})


@pytest.mark.spec("A28-10", "A28-23")
def test_clusters_of_weight_zero_are_omitted_and_total_weight_is_ignored() -> None:
    (parsed,) = parsed_routes(
        weighted(
            {"name": "a", "weight": 3},
            {"name": "off", "weight": 0},
            {"name": "b", "weight": 1},
            total_weight=99,
        )
    )
    assert isinstance(parsed.action, RouteAction)
    assert parsed.action.choice == WeightedChoice(
        (WeightedCluster("a", 3), WeightedCluster("b", 1))
    )


@pytest.mark.spec("A28-21", "A28-22")
@pytest.mark.parametrize(
    ("clusters", "error"),
    [
        ([{"name": "a"}], ".clusters[0].weight error:is unset"),
        (
            [{"weight": 1}],
            ".clusters[0].name error:is empty, wanted the name of a cluster",
        ),
        ([{"name": "a", "weight": 0}], " error:has no cluster with a weight above 0"),
        ([], " error:has no cluster with a weight above 0"),
        (
            [{"name": "a", "weight": 2**32 - 1}, {"name": "b", "weight": 1}],
            " error:has weights of 4294967296 in all, wanted at most 4294967295",
        ),
    ],
)
def test_invalid_weights_are_refused(clusters: list[Json], error: str) -> None:
    assert routes_error(weighted(*clusters)) == f"[field:{ACTION}.weighted_clusters{error}]"


@pytest.mark.spec("A28-22")
def test_weights_are_accepted_up_to_the_largest_uint32() -> None:
    big = weighted({"name": "a", "weight": 2**32 - 2}, {"name": "b", "weight": 1})
    assert len(parsed_routes(big)) == 1


def test_route_without_a_cluster_name_is_refused() -> None:
    assert routes_error(route(cluster="")) == (
        f"[field:{ACTION}.cluster error:is empty, wanted the name of a cluster]"
    )


@pytest.mark.spec("A31-61")
@pytest.mark.parametrize("field", ["timeout", "max_grpc_timeout"])
@pytest.mark.parametrize(
    ("seconds", "nanos", "error"),
    [
        (-1, 0, "seconds error:is -1, wanted 0 to 315576000000"),
        (315_576_000_001, 0, "seconds error:is 315576000001, wanted 0 to 315576000000"),
        (0, -1, "nanos error:is -1, wanted 0 to 999999999"),
        (0, 10**9, "nanos error:is 1000000000, wanted 0 to 999999999"),
    ],
)
def test_a_duration_out_of_range_is_refused(
    field: str, seconds: int, nanos: int, error: str
) -> None:
    message = routes(route())
    duration = getattr(message.virtual_hosts[0].routes[0].route, field)
    duration.seconds = seconds
    duration.nanos = nanos
    assert decode_routes(message).error == (
        f'route configuration "routes": [field:{ACTION}.{field}.{error}]'
    )


@pytest.mark.spec("A31-61")
def test_durations_at_the_bounds_of_the_range_are_accepted() -> None:
    message = routes(route(timeout="0s"))
    longest = message.virtual_hosts[0].routes[0].route.max_grpc_timeout
    longest.seconds = 315_576_000_000
    longest.nanos = 999_999_999
    assert decode_routes(message).error == ""


def retry_of(policy: Json) -> RetryOnPolicy | None:
    (parsed,) = parsed_routes(route(retry_policy=policy))
    assert isinstance(parsed.action, RouteAction)
    assert parsed.action.choice == ClusterChoice("payments")
    return parsed.action.retry


UNAVAILABLE = frozenset({StatusCode.UNAVAILABLE})
REST = "internal,resource-exhausted,unavailable"


@pytest.mark.spec(
    "A44-04",
    "A44-05",
    "A44-07",
    "A44-08",
    "A44-13",
    reason="one table over the fields of RetryPolicy",
)
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"retry_on": "unavailable"}, RetryOnPolicy(UNAVAILABLE, 1, 0.025, 0.25)),
        (
            {"retry_on": "5xx, cancelled,deadline-exceeded, " + REST},
            RetryOnPolicy(
                frozenset(
                    {
                        StatusCode.CANCELLED,
                        StatusCode.DEADLINE_EXCEEDED,
                        StatusCode.INTERNAL,
                        StatusCode.RESOURCE_EXHAUSTED,
                        StatusCode.UNAVAILABLE,
                    }
                ),
                1,
                0.025,
                0.25,
            ),
        ),
        (
            {"retry_on": "unavailable", "num_retries": 9},
            RetryOnPolicy(UNAVAILABLE, 4, 0.025, 0.25),
        ),
        (
            {"retry_on": "unavailable", "retry_back_off": {"base_interval": "1s"}},
            RetryOnPolicy(UNAVAILABLE, 1, 1.0, 10.0),
        ),
        (
            {
                "retry_on": "unavailable",
                "retry_back_off": {"base_interval": "0.0001s", "max_interval": "0.0002s"},
            },
            RetryOnPolicy(UNAVAILABLE, 1, 0.001, 0.001),
        ),
        ({"retry_on": "5xx"}, RetryOnPolicy(frozenset(), 1, 0.025, 0.25)),
    ],
)
def test_retry_policies_are_read_with_their_defaults(policy: Json, expected: RetryOnPolicy) -> None:
    assert retry_of(policy) == expected


def test_retry_policy_of_a_virtual_host_is_read() -> None:
    message = routes(route())
    message.virtual_hosts[0].retry_policy.retry_on = "unavailable"
    message.virtual_hosts.add(domains=["b"]).retry_policy.retry_on = "5xx"
    resource = decode_routes(message).resource
    assert resource is not None
    policies = [host.retry for host in resource.virtual_hosts]
    assert policies == [RetryOnPolicy(UNAVAILABLE, 1, 0.025, 0.25), None]


@pytest.mark.spec(
    "A44-06",
    "A44-10",
    "A44-11",
    "A44-12",
    "A44-16",
    reason="one table over the fields of RetryPolicy",
)
@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ({"num_retries": 0}, "num_retries error:is 0, wanted at least 1"),
        ({"retry_back_off": {}}, "retry_back_off.base_interval error:is unset"),
        (
            {"retry_back_off": {"base_interval": "0s"}},
            "retry_back_off.base_interval error:is 0 s, wanted more",
        ),
        (
            {"retry_back_off": {"base_interval": "1s", "max_interval": "0s"}},
            "retry_back_off.max_interval error:is 0 s, wanted more",
        ),
        (
            {"retry_back_off": {"base_interval": "-1s"}},
            "retry_back_off.base_interval.seconds error:is -1, wanted 0 to 315576000000",
        ),
        (
            {"retry_back_off": {"base_interval": "2s", "max_interval": "1s"}},
            (
                "retry_back_off.max_interval"
                " error:is 1.0 s, wanted at least the base_interval of 2.0 s"
            ),
        ),
    ],
)
def test_invalid_retry_policy_is_refused_even_if_retry_on_is_empty(
    policy: Json, error: str
) -> None:
    assert routes_error(route(retry_policy=policy)) == f"[field:{ACTION}.retry_policy.{error}]"


def test_all_errors_are_reported_together() -> None:
    assert routes_error(matching(), route(cluster=""), route(retry_policy={"num_retries": 0})) == (
        f"[field:{MATCH} error:path_specifier is unset, wanted prefix, path or safe_regex;"
        " field:virtual_hosts[0].routes[1].route.cluster error:is empty,"
        " wanted the name of a cluster;"
        " field:virtual_hosts[0].routes[2].route.retry_policy.num_retries error:is 0,"
        " wanted at least 1]"
    )
