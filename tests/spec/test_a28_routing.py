"""Route selection, and the effect of the selected route on an RPC.

Specs: A28 (virtual hosts, matching, weights), A63 (string matchers), A42 (hashes), A44 (retries),
A39 (filter overrides). Where a requirement is about fields, the resources are protobuf messages:
the test then covers the whole path from the message to the backend that serves.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import xxhash

from proxyless.assembly import Registries
from proxyless.base import OK, Locality, Status, StatusCode, parse_address
from proxyless.channel.config_selector import CallConfig
from proxyless.lb import ENDPOINT_WEIGHT, REQUEST_HASH
from proxyless.runtime import seeded_random
from proxyless.wire import StreamEnd
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.resources import (
    ClusterChoice,
    EndpointInfo,
    EndpointResource,
    HttpFilter,
    LocalityEndpoints,
    NonForwardingAction,
    PathMatcher,
    Route,
    RouteAction,
    WeightedChoice,
    WeightedCluster,
)
from proxyless.xds.resources.filter import FilterOverride
from proxyless.xds.routing.cluster_refs import ClusterRefs
from proxyless.xds.routing.request_hash import RequestHash
from proxyless.xds.routing.selector import SelectorTools
from tests.unit.xds.parsing.messages import Json, decode_routes, make, routes
from tests.unit.xds.parsing.messages import route as json_route
from tests.worlds.meshes import PATH, MeshWorld, spying
from tests.worlds.xds_dependencies import CDS, DependencyWorld
from tests.worlds.xds_resources import (
    cluster,
    endpoints,
    host,
    hosts,
    listener,
    locality,
    prioritized,
)

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.runtime import Random
    from proxyless.xds.filters.rpc_filter import RoutedRpc
    from proxyless.xds.resources import RouteConfiguration

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
CLUSTERS = {"a": A, "b": B, "c": C}


def decoded(*of_one_host: Json, **of_host: Json) -> RouteConfiguration:
    """The decoded route configuration; fails if the routes are not valid."""
    message = routes(*of_one_host)
    extra = make("envoy.config.route.v3.VirtualHost", of_host)
    message.virtual_hosts[0].MergeFrom(extra)
    found = decode_routes(message)
    assert found.resource is not None, found.error
    return found.resource


def mesh(routing: RouteConfiguration, **options: Any) -> MeshWorld:  # noqa: ANN401
    """A channel with these routes, and clusters a, b and c with one backend each."""
    world = MeshWorld(**options)
    world.start(
        routing,
        *(cluster(name) for name in CLUSTERS),
        *(endpoints(name, address) for name, address in CLUSTERS.items()),
    )
    return world


def matching(to: str = "b", **match: Any) -> Json:  # noqa: ANN401
    """A route with this match; any path matches unless `match` has a path."""
    paths = {"prefix", "path", "safe_regex"}
    return {
        **json_route(cluster=to),
        "match": match if paths & set(match) else {"prefix": "", **match},
    }


def is_selected(method: str = PATH, metadata: Metadata = (), **match: Any) -> bool:  # noqa: ANN401
    """Whether a route with this match is selected for such an RPC."""
    world = mesh(decoded(matching(**match), json_route(cluster="a")))
    return world.send_rpc(method, metadata) == B


# ---------------------------------------------------------------------------------------------
# Virtual hosts

# The domains of hosts in their order, the authority, and the index of the selected host.
HOST_TABLE = [
    ([["*"], ["a.example"]], "a.example", 1),
    ([["*"], ["*.example"], ["a.example"]], "a.example", 2),
    ([["a.*"], ["*.example"]], "a.example", 1),
    ([["*"], ["a.*"]], "a.example", 1),
    ([["*example"], ["*.example"]], "a.example", 1),
    ([["a.*"], ["a.ex*"]], "a.example", 1),
    ([["*.example"], ["*"]], "a.other", 1),
    ([["A.Example"]], "a.eXAMPLE", 0),
    ([["*.EXAMPLE"], ["*"]], "a.example", 0),
    ([["a.example"], ["a.example"]], "a.example", 0),
    ([["*.example"], ["*.example"]], "a.example", 0),
    ([["other", "a.example"], ["*.example"]], "a.example", 0),
    ([["*a.example"], ["a.example*"], ["*"]], "a.example", 2),
    ([["other"], ["*.other"], ["other.*"]], "a.example", None),
]


@pytest.mark.spec("A28-01")
@pytest.mark.parametrize(("domains", "authority", "index"), HOST_TABLE)
def test_virtual_host_with_the_best_matching_domain_is_selected(
    domains: list[list[str]], authority: str, index: int | None
) -> None:
    message = routes()
    del message.virtual_hosts[:]
    for number, of_one in enumerate(domains):
        found = make(
            "envoy.config.route.v3.VirtualHost",
            {"name": f"h{number}", "domains": of_one, "routes": [json_route(cluster="a")]},
        )
        message.virtual_hosts.append(found)
    resource = decode_routes(message).resource
    assert resource is not None
    world = DependencyWorld(authority)
    world.publish(listener(), resource, cluster("a"), endpoints("a", A))
    if index is None:
        text = f'route configuration "routes": has no virtual host for "{authority}"'
        assert world.events == [f'error {text} (node id "node-1")']
    else:
        assert world.config.virtual_host.name == f"h{index}"


@pytest.mark.spec("A28-11")
@pytest.mark.parametrize("domains", [["a*b"], ["**"], ["*a*"], [""], [], ["fine", "a*b"]])
def test_bad_domains_are_refused(domains: list[str]) -> None:
    message = routes(json_route())
    del message.virtual_hosts[0].domains[:]
    message.virtual_hosts[0].domains.extend(domains)
    assert decode_routes(message).resource is None


@pytest.mark.spec("A28-28")
def test_duplicate_domain_is_accepted_and_the_first_serves() -> None:
    message = routes(json_route(cluster="b"))
    message.virtual_hosts.append(routes(json_route(cluster="a")).virtual_hosts[0])
    resource = decode_routes(message).resource
    assert resource is not None
    assert mesh(resource).send_rpc() == B


# ---------------------------------------------------------------------------------------------
# Paths


@pytest.mark.spec("A28-02", "A28-13")
@pytest.mark.parametrize(
    ("match", "path", "expected"),
    [
        ({"prefix": ""}, "/s/m", True),
        ({"prefix": "/"}, "/s/m", True),
        ({"prefix": "/pkg."}, "/pkg.S/m", True),
        ({"prefix": "/pkg.S"}, "/pkg.Service/m", True),
        ({"prefix": "/pkg."}, "/Pkg.S/m", False),
        ({"prefix": "/pkg.", "case_sensitive": False}, "/PKG.S/m", True),
        ({"prefix": "/PKG.", "case_sensitive": False}, "/pkg.S/m", True),
        ({"prefix": "/pkg.", "case_sensitive": True}, "/PKG.S/m", False),
        ({"path": "/s/m"}, "/s/m", True),
        ({"path": "/s/m"}, "/s/mm", False),
        ({"path": "/s/m"}, "/S/m", False),
        ({"path": "/s/m", "case_sensitive": False}, "/S/M", True),
        ({"safe_regex": {"regex": "/s.*/m"}}, "/service/m", True),
        ({"safe_regex": {"regex": "/s"}}, "/s/m", False),
        ({"safe_regex": {"regex": ".*m"}}, "/s/mx", False),
        ({"safe_regex": {"regex": "(?i)/S/M"}}, "/s/m", True),
    ],
)
def test_route_is_selected_when_its_path_matches(match: Json, path: str, expected: bool) -> None:
    assert is_selected(path, **match) is expected


@pytest.mark.spec("A28-27")
@pytest.mark.parametrize("case_sensitive", [True, False])
def test_regex_paths_ignore_case_sensitive(case_sensitive: bool) -> None:
    match: Json = {"safe_regex": {"regex": "/s/m"}, "case_sensitive": case_sensitive}
    assert is_selected("/s/m", **match)
    assert not is_selected("/S/m", **match)


@pytest.mark.spec("A28-12")
@pytest.mark.parametrize(
    "match",
    [{}, {"connect_matcher": {}}, {"path_separated_prefix": "/a"}, {"safe_regex": {"regex": "("}}],
)
def test_unsupported_or_invalid_path_matchers_are_refused(match: Json) -> None:
    assert decode_routes(routes({**json_route(), "match": match})).resource is None


@pytest.mark.spec("A28-14")
@pytest.mark.parametrize(
    "match",
    [
        {"prefix": "no-slash"},
        {"prefix": "//"},
        {"prefix": "/s/m/"},
        {"path": ""},
        {"path": "/s"},
        {"path": "/s/"},
        {"path": "/s/m/x"},
        {"path": "s/m"},
    ],
)
def test_route_and_its_cluster_are_dropped_when_no_path_can_match(match: Json) -> None:
    world = mesh(decoded(matching(**match), json_route(cluster="a")))
    assert world.send_rpc("/s/m") == A
    assert world.watches.names(CDS) == {"a"}


# ---------------------------------------------------------------------------------------------
# Headers


HEADER_TABLE = [
    # The matcher; the values of the RPC; whether the route is selected.
    ({"exact_match": "x"}, ["x"], True),
    ({"exact_match": "x"}, ["X"], False),
    ({"exact_match": "x"}, ["xx"], False),
    ({"exact_match": "x,y"}, ["x", "y"], True),
    ({"exact_match": "x"}, ["x", "y"], False),
    ({"exact_match": "x", "invert_match": True}, ["y"], True),
    ({"exact_match": "x", "invert_match": True}, ["x"], False),
    ({"safe_regex_match": {"regex": "a.c"}}, ["abc"], True),
    ({"safe_regex_match": {"regex": "a.c"}}, ["abcd"], False),
    ({"safe_regex_match": {"regex": "a,b"}}, ["a", "b"], True),
    ({"safe_regex_match": {"regex": "a.c"}, "invert_match": True}, ["abcd"], True),
    ({"range_match": {"start": 2, "end": 5}}, ["1"], False),
    ({"range_match": {"start": 2, "end": 5}}, ["2"], True),
    ({"range_match": {"start": 2, "end": 5}}, ["4"], True),
    ({"range_match": {"start": 2, "end": 5}}, ["5"], False),
    ({"range_match": {"start": -5, "end": 0}}, ["-3"], True),
    ({"range_match": {"start": 2, "end": 5}}, ["3.0"], False),
    ({"range_match": {"start": 2, "end": 5}}, ["three"], False),
    ({"range_match": {"start": 2, "end": 5}}, ["3", "3"], False),
    ({"range_match": {"start": 2, "end": 5}, "invert_match": True}, ["3"], False),
    ({"range_match": {"start": 2, "end": 5}, "invert_match": True}, ["7"], True),
    ({"range_match": {"start": 0, "end": 2**63 - 1}}, ["9" * 40], False),
    ({"present_match": True}, ["anything"], True),
    ({"present_match": True}, [], False),
    ({"present_match": True, "invert_match": True}, ["anything"], False),
    ({"present_match": True, "invert_match": True}, [], True),
    ({"present_match": False}, [], True),
    ({"present_match": False}, ["anything"], False),
    ({"prefix_match": "ab"}, ["abc"], True),
    ({"prefix_match": "ab"}, ["cab"], False),
    ({"prefix_match": "ab"}, ["ab", "z"], True),
    ({"prefix_match": "ab", "invert_match": True}, ["cab"], True),
    ({"suffix_match": "bc"}, ["abc"], True),
    ({"suffix_match": "bc"}, ["bca"], False),
    ({"suffix_match": "z"}, ["ab", "z"], True),
    ({"suffix_match": "bc", "invert_match": True}, ["bca"], True),
    ({"contains_match": "b"}, ["abc"], True),
    ({"contains_match": "b"}, ["ac"], False),
    ({"contains_match": "b,z"}, ["ab", "z"], True),
    ({"contains_match": "b", "invert_match": True}, ["ac"], True),
]


@pytest.mark.spec("A28-03", "A28-15")
@pytest.mark.parametrize(("matcher", "values", "expected"), HEADER_TABLE)
def test_route_is_selected_when_its_header_matches(
    matcher: Json, values: list[str], expected: bool
) -> None:
    metadata = tuple(("x-user", value) for value in values)
    # Names are compared without case; other headers do not count.
    headers = [{"name": "X-User", **matcher}]
    assert is_selected(metadata=(("other", "x"), *metadata), headers=headers) is expected


ABSENT_TABLE = [
    {"exact_match": "x"},
    {"exact_match": ""},
    {"safe_regex_match": {"regex": ".*"}},
    {"range_match": {"start": 0, "end": 5}},
    {"prefix_match": "x"},
    {"suffix_match": "x"},
    {"contains_match": "x"},
    {"string_match": {"exact": "x"}},
    {"string_match": {"safe_regex": {"regex": ".*"}}},
]


@pytest.mark.spec("A28-09")
@pytest.mark.parametrize("invert", [True, False])
@pytest.mark.parametrize("matcher", ABSENT_TABLE)
def test_absent_header_never_matches(matcher: Json, invert: bool) -> None:
    header = {"name": "x-user", "invert_match": invert, **matcher}
    assert not is_selected(metadata=(("x-users", "x"),), headers=[header])


@pytest.mark.spec("A28-16")
@pytest.mark.parametrize("matcher", [{"exact_match": "x"}, {"present_match": True}])
def test_binary_headers_are_invisible(matcher: Json) -> None:
    header = {"name": "x-bin", **matcher}
    assert not is_selected(metadata=(("x-bin", b"x"),), headers=[header])
    is_absent = {"name": "x-bin", "present_match": False}
    assert is_selected(metadata=(("x-bin", b"x"),), headers=[is_absent])


@pytest.mark.spec("A28-17")
def test_content_type_is_grpc() -> None:
    assert is_selected(headers=[{"name": "content-type", "exact_match": "application/grpc"}])
    assert not is_selected(headers=[{"name": "content-type", "exact_match": "application/json"}])


@pytest.mark.spec("A28-18")
def test_all_headers_of_a_route_have_to_match() -> None:
    headers = [{"name": "x", "exact_match": "1"}, {"name": "y", "prefix_match": "2"}]
    assert is_selected(metadata=(("x", "1"), ("y", "22")), headers=headers)
    assert not is_selected(metadata=(("x", "1"), ("y", "3")), headers=headers)
    assert not is_selected(metadata=(("x", "2"), ("y", "22")), headers=headers)


@pytest.mark.spec("A63-01", "A63-02")
@pytest.mark.parametrize(
    ("matcher", "value", "expected"),
    [
        ({"exact": "Ab"}, "Ab", True),
        ({"exact": "Ab"}, "ab", False),
        ({"exact": "Ab", "ignore_case": True}, "aB", True),
        ({"exact": "Ab", "ignore_case": True}, "aBc", False),
        ({"prefix": "Ab"}, "Abc", True),
        ({"prefix": "Ab"}, "abc", False),
        ({"prefix": "Ab", "ignore_case": True}, "aBc", True),
        ({"suffix": "Bc"}, "aBc", True),
        ({"suffix": "Bc"}, "abc", False),
        ({"suffix": "Bc", "ignore_case": True}, "abC", True),
        ({"contains": "B"}, "aBc", True),
        ({"contains": "B"}, "abc", False),
        ({"contains": "B", "ignore_case": True}, "abc", True),
        ({"contains": "B", "ignore_case": True}, "ac", False),
        ({"safe_regex": {"regex": "a.c"}}, "abc", True),
        ({"safe_regex": {"regex": "a.c"}}, "xabc", False),
        # "this option has no effect for the safe_regex match" - A63
        ({"safe_regex": {"regex": "a.c"}, "ignore_case": True}, "ABC", False),
    ],
)
def test_string_matcher_of_a_header_matches_by_kind_and_case(
    matcher: Json, value: str, expected: bool
) -> None:
    metadata = (("x-user", value),)
    header = {"name": "x-user", "string_match": matcher}
    assert is_selected(metadata=metadata, headers=[header]) is expected
    inverted = {**header, "invert_match": True}
    assert is_selected(metadata=metadata, headers=[inverted]) is not expected


# ---------------------------------------------------------------------------------------------
# Fractions, and fields that are not matched


@pytest.mark.spec("A28-04")
@pytest.mark.parametrize(
    ("numerator", "denominator", "share"),
    [
        (0, "HUNDRED", 0.0),
        (25, "HUNDRED", 0.25),
        (2_500, "TEN_THOUSAND", 0.25),
        (250_000, "MILLION", 0.25),
        (100, "HUNDRED", 1.0),
        (200, "HUNDRED", 1.0),
    ],
)
def test_runtime_fraction_selects_its_share_of_rpcs(
    numerator: int, denominator: str, share: float
) -> None:
    value = {"numerator": numerator, "denominator": denominator}
    fraction = {"default_value": value, "runtime_key": "ignored"}
    world = mesh(decoded(matching(runtime_fraction=fraction), json_route(cluster="a")))
    count = 1000
    served = Counter(world.send_rpc() for _ in range(count))
    # Four standard deviations of a binomial distribution.
    assert served[B] == pytest.approx(share * count, abs=4 * (count * share * (1 - share)) ** 0.5)


@pytest.mark.spec("A28-19")
def test_route_with_query_parameters_is_dropped() -> None:
    with_query = matching(query_parameters=[{"name": "q", "present_match": True}])
    world = mesh(decoded(with_query, json_route(cluster="a")))
    assert world.send_rpc() == A
    assert world.watches.names(CDS) == {"a"}


@pytest.mark.spec("A28-20")
def test_grpc_and_tls_context_are_ignored() -> None:
    assert is_selected(grpc={}, tls_context={"presented": True, "validated": False})


# ---------------------------------------------------------------------------------------------
# Actions


@pytest.mark.spec("A28-05")
@pytest.mark.parametrize(
    "action",
    [{"cluster_header": "h"}, {"inline_cluster_specifier_plugin": {"extension": {"name": "p"}}}],
)
def test_route_with_an_unsupported_cluster_specifier_is_skipped(action: Json) -> None:
    assert mesh(decoded(json_route(**action), json_route(cluster="a"))).send_rpc() == A


@pytest.mark.spec("A28-10", "A28-23")
def test_weights_decide_and_total_weight_is_ignored() -> None:
    weighted = {
        "clusters": [
            {"name": "a", "weight": 3},
            {"name": "never", "weight": 0},
            {"name": "b", "weight": 1},
        ],
        "total_weight": 100,
    }
    world = mesh(decoded(json_route(weighted_clusters=weighted)))
    served = Counter(world.send_rpc() for _ in range(1000))
    assert served.total() == 1000
    assert served[B] == pytest.approx(250, abs=55)
    assert world.watches.names(CDS) == {"a", "b"}
    assert world.children == {"a", "b"}


@pytest.mark.spec("A28-21", "A28-22")
@pytest.mark.parametrize(
    "clusters",
    [
        [{"name": "a"}, {"name": "b", "weight": 0}],
        [{"name": "a", "weight": 0}],
        [],
        [{"name": "a", "weight": 2**32 - 1}, {"name": "b", "weight": 1}],
    ],
)
def test_weights_are_refused_when_their_sum_is_zero_or_too_large(clusters: list[Json]) -> None:
    message = routes(json_route(weighted_clusters={"clusters": clusters}))
    assert decode_routes(message).resource is None


@pytest.mark.spec("A28-06")
@pytest.mark.parametrize("wait_for_ready", [True, False])
def test_rpc_without_a_route_fails(wait_for_ready: bool) -> None:
    world = mesh(decoded(matching(prefix="/only.This/"), matching(prefix="/or.That/")))
    _, observer = world.call(wait_for_ready=wait_for_ready)
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert observer.status.details == (
        f'route configuration "routes": no route in virtual host "*" matches "{PATH}"'
        ' (node id "node-1")'
    )


@pytest.mark.spec("A28-24")
@pytest.mark.parametrize(
    "action",
    [
        {"redirect": {"host_redirect": "elsewhere"}},
        {"direct_response": {"status": 200}},
        {"non_forwarding_action": {}},
    ],
)
def test_rpc_fails_when_the_matching_route_has_another_action(action: Json) -> None:
    first = {"name": "no-go", "match": {"prefix": "/pkg."}, **action}
    world = mesh(decoded(first, json_route(cluster="a")))
    _, observer = world.call(wait_for_ready=True)
    assert observer.status.code is StatusCode.UNAVAILABLE
    [kind] = action
    assert observer.status.details == (
        f'route configuration "routes": route "no-go" has the action {kind}, wanted route'
        ' (node id "node-1")'
    )
    assert world.send_rpc("/other.Service/Method") == A


def test_error_names_the_action_when_the_route_has_no_name() -> None:
    forbidden = Route(path=PathMatcher("prefix", ""), action=NonForwardingAction("redirect"))
    world = mesh(hosts(host(forbidden)))
    _, observer = world.call()
    assert "the matching route has the action redirect" in observer.status.details


# ---------------------------------------------------------------------------------------------
# Hashes, as specified in A42


def reference_hash(parts: list[tuple[int | None, bool]]) -> int | None:
    """The pseudo-code of A42, with `terminal` as its text says; None is a random hash."""
    result: int | None = None
    for part, is_terminal in parts:
        if part is not None:
            if result is None:
                result = part
            else:
                rotated = ((result << 1) & (2**64 - 1)) | (result >> 63)
                result = rotated ^ part
        if is_terminal and result is not None:
            break
    return result


def xx(text: str) -> int:
    return xxhash.xxh64(text.encode(), seed=0).intdigest()


def header(name: str, *, terminal: bool = False, **rewrite: object) -> Json:
    return {"header": {"header_name": name, **rewrite}, "terminal": terminal}


def channel_id(*, terminal: bool = False) -> Json:
    return {"filter_state": {"key": "io.grpc.channel_id"}, "terminal": terminal}


def computed(world: MeshWorld, metadata: Metadata) -> int | None:
    """The hash that pickers see for such an RPC."""
    selector = world.channel.config.selector
    assert selector is not None
    config = selector.select(PATH, metadata)
    assert isinstance(config, CallConfig)
    assert config.on_commit is not None
    config.on_commit()
    return config.attributes.get(REQUEST_HASH)


REWRITE: Json = {"regex_rewrite": {"pattern": {"regex": "-[0-9]+"}, "substitution": "#"}}
USER, SHARD = (("user", "eve-42"), ("shard", "7"))

HASH_TABLE: list[tuple[list[Json], Metadata, list[tuple[int | None, bool]]]] = [
    ([header("user")], (USER,), [(xx("eve-42"), False)]),
    ([header("USER")], (USER,), [(xx("eve-42"), False)]),
    ([header("user", **REWRITE)], (USER,), [(xx("eve#"), False)]),
    ([header("user")], (USER, ("user", "bob")), [(xx("eve-42,bob"), False)]),
    (
        [header("user"), header("shard")],
        (USER, SHARD),
        [(xx("eve-42"), False), (xx("7"), False)],
    ),
    (
        [header("shard"), header("user")],
        (USER, SHARD),
        [(xx("7"), False), (xx("eve-42"), False)],
    ),
    (
        [header("user"), header("user"), header("shard")],
        (USER, SHARD),
        [(xx("eve-42"), False), (xx("eve-42"), False), (xx("7"), False)],
    ),
    ([header("none"), header("shard")], (SHARD,), [(None, False), (xx("7"), False)]),
    (
        [header("user", terminal=True), header("shard")],
        (USER, SHARD),
        [(xx("eve-42"), True), (xx("7"), False)],
    ),
    (
        [header("none", terminal=True), header("shard")],
        (SHARD,),
        [(None, True), (xx("7"), False)],
    ),
    (
        [header("shard"), header("none", terminal=True), header("user")],
        (USER, SHARD),
        [(xx("7"), False), (None, True), (xx("eve-42"), False)],
    ),
    # Kinds of policies that gRPC does not support give no result.
    (
        [
            {"cookie": {"name": "c"}},
            {"connection_properties": {"source_ip": True}},
            {"query_parameter": {"name": "q"}},
            header("user"),
        ],
        (USER,),
        [*[(None, False)] * 3, (xx("eve-42"), False)],
    ),
    (
        [{"filter_state": {"key": "other"}}, header("user")],
        (USER,),
        [(None, False), (xx("eve-42"), False)],
    ),
    (
        [header("content-type")],
        (),
        [(xx("application/grpc"), False)],
    ),
    ([header("user-bin"), header("shard")], (("user-bin", b"x"), SHARD), [(xx("7"), False)]),
]


@pytest.mark.spec(
    "A42-01",
    "A42-02",
    "A42-03",
    "A42-04",
    "A42-05",
    "A42-06",
    reason="one table of lists of policies, compared with the pseudo-code",
)
@pytest.mark.parametrize(("policies", "metadata", "parts"), HASH_TABLE)
def test_hash_equals_that_of_the_pseudo_code(
    policies: list[Json], metadata: Metadata, parts: list[tuple[int | None, bool]]
) -> None:
    world = mesh(decoded(json_route(cluster="a", hash_policy=policies)))
    expected = reference_hash(parts)
    assert expected is not None
    assert computed(world, metadata) == expected


@pytest.mark.spec("A42-07")
def test_hash_is_random_when_no_policy_gives_a_result() -> None:
    world = mesh(decoded(json_route(cluster="a", hash_policy=[header("none")])))
    seen = {computed(world, ()) for _ in range(100)}
    assert len(seen) == 100
    assert None not in seen
    assert all(0 <= value < 2**64 for value in seen if value is not None)
    assert max(value for value in seen if value is not None) > 2**63


@pytest.mark.spec("A42-08")
def test_channel_id_stays_the_same_when_the_config_changes() -> None:
    by_channel = decoded(json_route(cluster="a", hash_policy=[channel_id()]))
    world = mesh(by_channel)
    [first] = {computed(world, (("user", str(each)),)) for each in range(10)}
    assert first is not None
    # It is combined with other policies, and stays the same when the routes change.
    with_user = [channel_id(), header("user")]
    world.publish(decoded(json_route(cluster="a", hash_policy=with_user)))
    expected = reference_hash([(first, False), (xx("eve-42"), False)])
    assert computed(world, (USER,)) == expected
    ended = [channel_id(terminal=True), header("user")]
    world.publish(decoded(json_route(cluster="a", hash_policy=ended)))
    assert computed(world, (USER,)) == first


@pytest.mark.spec("A42-09")
def test_channels_have_different_ids() -> None:
    random, action = seeded_random(1), decoded(json_route(hash_policy=[channel_id()]))
    [policy] = action.virtual_hosts[0].routes[0].action.hash_policies  # type: ignore[union-attr]
    hashes = set()
    for _ in range(10):
        registry = FilterRegistry(FILTER_FACTORIES)
        tools = SelectorTools(ClusterRefs(lambda: None), NoSubscriptions(), registry, random, 15)
        hashes.add(RequestHash((policy,), tools.channel_id).compute((), random))
    assert len(hashes) == 10


RING_HASH: tuple[Json, ...] = ({"ring_hash_experimental": {"minRingSize": 100}},)


@pytest.mark.spec("A42-12")
def test_weight_in_the_ring_is_endpoint_weight_times_locality_weight() -> None:
    """The example of A42."""
    weights = {"a": (3, {"10.0.0.1:80": 2, "10.0.0.2:80": 1})}
    weights["b"] = (2, {"10.0.0.3:80": 3, "10.0.0.4:80": 1})
    localities = tuple(
        LocalityEndpoints(
            Locality(zone=zone),
            weight,
            tuple(EndpointInfo((parse_address(at),), weight=own) for at, own in of_zone.items()),
        )
        for zone, (weight, of_zone) in weights.items()
    )
    registries, spies = spying("ring_hash_experimental")
    world = MeshWorld(registries)
    world.start(
        decoded(json_route(cluster="a")),
        cluster("a", lb_config=RING_HASH),
        EndpointResource(name="a", priorities=(localities,)),
    )
    found = spies["ring_hash_experimental"].updates[-1].endpoints
    assert isinstance(found, tuple)
    assert [each.attributes.get(ENDPOINT_WEIGHT) for each in found] == [6, 3, 6, 2]


@pytest.mark.spec("A42-13")
def test_endpoints_of_all_localities_of_a_priority_are_in_one_ring() -> None:
    names = ("ring_hash_experimental", "weighted_target_experimental")
    registries, spies = spying(*names)
    world = MeshWorld(registries)
    world.start(
        decoded(json_route(cluster="a", hash_policy=[header("user")])),
        cluster("a", lb_config=RING_HASH),
        prioritized("a", [locality("x", A), locality("y", B)]),
    )
    served = {serve_and_connect(world, (("user", str(each)),)) for each in range(40)}
    assert served == {A, B}
    assert len(spies["ring_hash_experimental"].created) == 1
    assert spies["weighted_target_experimental"].created == []


class NoSubscriptions:
    """Subscriptions of a selector that has no clusters."""

    def subscribe(self, name: str) -> NoSubscriptions:
        return self

    def release(self) -> None:
        return


def ring_mesh(*policies: Json) -> MeshWorld:
    """One cluster balanced by ring_hash over three backends."""
    world = MeshWorld()
    world.start(
        decoded(json_route(cluster="a", hash_policy=list(policies))),
        cluster("a", lb_config=RING_HASH),
        endpoints("a", A, B, C),
    )
    world.clock.advance(1.0)
    return world


@pytest.mark.spec("A42-10")
def test_ring_hash_keeps_a_user_on_one_backend() -> None:
    world = ring_mesh(header("user"))
    homes = {}
    for number in range(60):
        metadata = (("user", str(number)),)
        [homes[number]] = {serve_and_connect(world, metadata) for _ in range(3)}
    assert set(homes.values()) == {A, B, C}


@pytest.mark.spec("A42-11")
def test_ring_hash_without_a_policy_spreads_at_random() -> None:
    world = ring_mesh()
    served = Counter(serve_and_connect(world, (USER,)) for _ in range(300))
    assert set(served) == {A, B, C}


def serve_and_connect(world: MeshWorld, metadata: Metadata) -> str:
    """Address that serves; ring_hash may connect to it first."""
    before = [stream for at in (A, B, C) for stream in world.streams(at)]
    _, observer = world.call(metadata=metadata)
    world.settle()
    [(address, stream)] = [
        (at, stream) for at in (A, B, C) for stream in world.streams(at) if stream not in before
    ]
    stream.respond()
    assert observer.status == OK
    return address


# ---------------------------------------------------------------------------------------------
# Retries, as specified in A44

DOWN = StreamEnd(Status(StatusCode.UNAVAILABLE, "down"))


def attempts(world: MeshWorld, end: StreamEnd = DOWN) -> tuple[list[float], Status]:
    """Start times of the attempts of an RPC whose attempts all end so, and its status."""
    start_s = world.clock.now_s()
    _, observer = world.call()
    sent_s: list[float] = []
    while observer.is_running:
        [stream] = world.streams(A)
        sent_s.append(world.clock.now_s() - start_s)
        stream.end(end)
        for _ in range(4000):
            if observer.ends or world.streams(A):
                break
            world.clock.advance(0.001)
    return sent_s, observer.status


def retrying(policy: Json | None, of_host: Json | None = None) -> MeshWorld:
    action = {} if policy is None else {"retry_policy": policy}
    settings = {} if of_host is None else {"retry_policy": of_host}
    return mesh(decoded(json_route(cluster="a", timeout="0s", **action), **settings))


ON = {"retry_on": "unavailable"}


@pytest.mark.spec("A44-03", "A44-04", "A44-05")
@pytest.mark.parametrize(("num_retries", "count"), [(None, 2), (1, 2), (3, 4), (4, 5), (9, 5)])
def test_attempts_are_one_more_than_retries(num_retries: int | None, count: int) -> None:
    settings = {} if num_retries is None else {"num_retries": num_retries}
    sent_s, status = attempts(retrying({**ON, **settings}))
    assert len(sent_s) == count
    assert status.code is StatusCode.UNAVAILABLE


@pytest.mark.spec("A44-07", "A44-09")
@pytest.mark.parametrize(
    ("back_off", "delays_s"),
    [
        (None, [0.025, 0.05, 0.1, 0.2]),
        ({"base_interval": "0.1s"}, [0.1, 0.2, 0.4, 0.8]),
        ({"base_interval": "0.5s", "max_interval": "1s"}, [0.5, 1.0, 1.0, 1.0]),
    ],
)
def test_backoff_doubles_up_to_the_maximum(back_off: Json | None, delays_s: list[float]) -> None:
    settings = {} if back_off is None else {"retry_back_off": back_off}
    sent_s, _ = attempts(retrying({**ON, "num_retries": 4, **settings}))
    waited_s = [later - sooner for sooner, later in pairwise(sent_s)]
    # "plus or minus 0.2" - A6, and a millisecond for the steps of the clock.
    for delay_s, expected_s in zip(waited_s, delays_s, strict=True):
        assert 0.8 * expected_s - 0.002 <= delay_s <= 1.2 * expected_s + 0.002


@pytest.mark.spec("A44-01")
@pytest.mark.parametrize(
    "code",
    [
        StatusCode.CANCELLED,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.INTERNAL,
        StatusCode.RESOURCE_EXHAUSTED,
        StatusCode.UNAVAILABLE,
    ],
)
def test_each_of_the_five_codes_is_retried_only_when_retry_on_lists_it(code: StatusCode) -> None:
    end = StreamEnd(Status(code, "again"))
    name = code.name.lower().replace("_", "-")
    assert len(attempts(retrying({"retry_on": f"5xx,{name}"}), end)[0]) == 2
    others = {"cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"}
    without = ",".join(sorted(others - {name}))
    assert len(attempts(retrying({"retry_on": without}), end)[0]) == 1


@pytest.mark.spec("A44-02")
def test_other_retry_conditions_are_ignored() -> None:
    for policy in ({"retry_on": "5xx,gateway-error,reset,retriable-4xx"}, {}):
        assert len(attempts(retrying(policy))[0]) == 1


@pytest.mark.spec("A44-14")
def test_retry_policy_of_the_virtual_host_applies_to_routes_without_one() -> None:
    host_policy = {**ON, "num_retries": 3}
    assert len(attempts(retrying(None, host_policy))[0]) == 4
    assert len(attempts(retrying({**ON, "num_retries": 1}, host_policy))[0]) == 2
    assert len(attempts(retrying(None, None))[0]) == 1


@pytest.mark.spec(
    "A44-06", "A44-10", "A44-11", "A44-12", reason="one table over the fields of RetryPolicy"
)
@pytest.mark.parametrize(
    "policy",
    [
        {**ON, "num_retries": 0},
        {**ON, "retry_back_off": {"max_interval": "1s"}},
        {**ON, "retry_back_off": {"base_interval": "0s"}},
        {**ON, "retry_back_off": {"base_interval": "2s", "max_interval": "1s"}},
    ],
)
def test_invalid_retry_policy_is_refused(policy: Json) -> None:
    assert decode_routes(routes(json_route(retry_policy=policy))).resource is None


@pytest.mark.spec("A44-15")
def test_rpc_is_not_retried_when_the_application_disabled_retries() -> None:
    world = mesh(
        decoded(json_route(cluster="a", retry_policy={**ON, "num_retries": 3})),
        is_retry_enabled=False,
    )
    assert len(attempts(world)[0]) == 1


@pytest.mark.spec("A44-17")
def test_each_attempt_is_picked_with_the_newest_picker() -> None:
    world = retrying({**ON, "num_retries": 2})
    _, observer = world.call()
    [first] = world.streams(A)
    world.publish(endpoints("a", C))
    first.end(DOWN)
    world.clock.advance(1.0)
    [second] = world.streams(C)
    assert world.streams(A) == []
    second.respond()
    assert observer.status == OK


# ---------------------------------------------------------------------------------------------
# Filters and their overrides, as specified in A39


class NamedFilter:
    """A filter that records the config it runs with for each RPC."""

    config_types = ("test.Filter",)
    override_types = ("test.Override",)
    is_terminal = False

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.made: list[tuple[object, object]] = []

    def parse_config(self, message: object, errors: object) -> object:
        raise AssertionError("nothing is decoded here")

    parse_override = parse_config

    def create(self, config: object, override: object, random: Random) -> Any:  # noqa: ANN401
        self.made.append((config, override))
        owner, text = self, f"{config}/{override}"

        class Filter:
            def on_rpc(self, rpc: RoutedRpc) -> None:
                owner.seen.append(text)

        return Filter()


def filtered_mesh(
    *,
    of_host: FilterOverride | None = None,
    of_route: FilterOverride | None = None,
    of_cluster: FilterOverride | None = None,
    is_disabled: bool = False,
) -> tuple[MeshWorld, NamedFilter]:
    """A chain with two filters of one type; "f" has overrides."""
    named = NamedFilter()

    def layer(override: FilterOverride | None) -> dict[str, FilterOverride]:
        return {"absent": FilterOverride("?")} | ({} if override is None else {"f": override})

    clusters = (WeightedCluster("a", 1, layer(of_cluster)),)
    choice = ClusterChoice("a") if of_cluster is None else WeightedChoice(clusters)
    action = RouteAction(choice=choice)
    path = PathMatcher("prefix", "")
    world = MeshWorld(Registries().extended(filters=[named]))
    chain = (HttpFilter("f", "test.Filter", "f", is_disabled), HttpFilter("g", "test.Filter", "g"))
    world.publish(listener(http_filters=chain))
    world.publish(
        hosts(
            host(
                Route(path=path, action=action, filter_overrides=layer(of_route)),
                filter_overrides=layer(of_host),
            )
        ),
        cluster("a"),
        endpoints("a", A),
    )
    world.channel.request_connection()
    world.settle()
    assert world.send_rpc() == A
    return world, named


OFF, ON_AGAIN = FilterOverride(is_disabled=True), FilterOverride()


@pytest.mark.spec("A39-06")
@pytest.mark.parametrize("of_host", [None, FilterOverride("host")])
@pytest.mark.parametrize("of_route", [None, FilterOverride("route")])
@pytest.mark.parametrize("of_cluster", [None, FilterOverride("cluster")])
def test_most_specific_override_wins(
    of_host: FilterOverride | None,
    of_route: FilterOverride | None,
    of_cluster: FilterOverride | None,
) -> None:
    _, named = filtered_mesh(of_host=of_host, of_route=of_route, of_cluster=of_cluster)
    layers = (of_cluster, of_route, of_host)
    expected = next((each.config for each in layers if each is not None), None)
    assert named.seen == [f"f/{expected}", "g/None"], "not in the order of the chain"


@pytest.mark.spec("A39-06")
def test_each_weighted_cluster_has_its_own_override() -> None:
    world, named = filtered_mesh(of_cluster=FilterOverride("x"))
    a, b = (WeightedCluster(name, 1, {"f": FilterOverride(f"of {name}")}) for name in ("a", "b"))
    action = RouteAction(choice=WeightedChoice((a, b)))
    world.publish(
        hosts(host(Route(path=PathMatcher("prefix", ""), action=action))),
        cluster("b"),
        endpoints("b", B),
    )
    del named.seen[:]
    for _ in range(30):
        name = {A: "a", B: "b"}[world.send_rpc()]
        assert named.seen[-2:] == [f"f/of {name}", "g/None"]
    assert {"f/of a", "f/of b"} < set(named.seen)


@pytest.mark.spec("A39-02", "A39-07")
@pytest.mark.parametrize(
    ("layers", "is_run"),
    [
        ({"of_host": OFF}, False),
        ({"of_route": OFF}, False),
        ({"of_cluster": OFF}, False),
        ({"of_host": OFF, "of_route": FilterOverride("on")}, True),
        ({"of_host": FilterOverride("on"), "of_cluster": OFF}, False),
        ({"is_disabled": True}, False),
        ({"is_disabled": True, "of_route": FilterOverride("on")}, True),
        ({"is_disabled": True, "of_host": ON_AGAIN}, True),
        ({"is_disabled": True, "of_host": ON_AGAIN, "of_route": OFF}, False),
    ],
)
def test_filter_does_not_run_when_the_most_specific_layer_disables_it(
    layers: dict[str, Any], is_run: bool
) -> None:
    _, named = filtered_mesh(**layers)
    assert any(each.startswith("f/") for each in named.seen) is is_run
    assert "g/None" in named.seen, "an override for a name that is not in the chain is an error"


def test_filter_config_changes_when_only_the_listener_changes() -> None:
    world, named = filtered_mesh()
    chain = (HttpFilter("f", "test.Filter", "new"),)
    world.publish(listener(http_filters=chain))
    del named.seen[:]
    world.send_rpc()
    assert named.seen == ["new/None"]
