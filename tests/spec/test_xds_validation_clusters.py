"""Validation of Cluster and ClusterLoadAssignment resources, with the path of each error.

Specs: A27 (EDS), A37 (discovery), A52 (LB policies), A50, A55, A62 (pick_first by xDS), A75.
"""

from typing import Any

import pytest

from proxyless.base import IpAddress, Locality, ValidationErrors
from proxyless.lb import PolicyConfig, parse_policy_list
from proxyless.lb.policies.outlier_detection import OutlierDetectionConfig
from proxyless.lb.policies.pick_first.config import CONFIG_GUARD
from proxyless.lb.policies.ring_hash import RingHashConfig
from proxyless.lb.policies.weighted_round_robin import WeightedRoundRobinConfig
from proxyless.protos import Proto
from proxyless.xds.parsing.cluster import AGGREGATE, AGGREGATE_BACKWARD_COMPAT
from proxyless.xds.resources import (
    AggregateCluster,
    Cluster,
    DropCategory,
    EdsCluster,
    HealthStatus,
    LogicalDnsCluster,
)
from tests.worlds.xds_messages import (
    ADS,
    ROUND_ROBIN,
    aggregate_cluster,
    any_of,
    any_with,
    cluster,
    dns_cluster,
    known_policies,
    lb_endpoint,
    lb_policy,
    locality,
    parsed_cluster,
    parsed_endpoints,
    policies_of,
    proto,
    refused_cluster,
    refused_endpoints,
    typed_struct,
    wrr_locality,
)

WRR_LOCALITY = "xds_wrr_locality_experimental"
POLICIES = "envoy.extensions.load_balancing_policies"

# ---------------------------------------------------------------------------------------------
# Localities of an assignment


def zones(*localities: dict[str, Any]) -> list[list[str]]:
    """The zones of each priority."""
    resource = parsed_endpoints(*localities)
    return [[each.locality.zone for each in priority] for priority in resource.priorities]


@pytest.mark.spec("A27-21")
@pytest.mark.parametrize("weight", [None, {"value": 0}])
def test_locality_without_weight_is_skipped(weight: object) -> None:
    skipped = locality(zone="skipped", load_balancing_weight=weight)
    assert zones(skipped, locality(zone="a")) == [["a"]]


@pytest.mark.spec("A27-21")
def test_skipped_locality_is_not_validated() -> None:
    skipped = locality(
        lb_endpoint("not an address"), load_balancing_weight=None, locality=None, priority=7
    )
    assert zones(skipped, locality(zone="a")) == [["a"]]


@pytest.mark.spec("A27-45")
def test_missing_locality_message_is_refused() -> None:
    assert refused_endpoints(locality(locality=None)) == (
        "field:endpoints[0].locality error:is missing"
    )


@pytest.mark.spec("A27-45")
def test_empty_locality_message_is_valid() -> None:
    [[only]] = parsed_endpoints(locality(locality={})).priorities
    assert only.locality == Locality("", "", "")


def test_priorities_are_sorted_and_localities_keep_their_order() -> None:
    assert zones(
        locality(zone="c", priority=1),
        locality(zone="b"),
        locality(zone="a"),
        locality(zone="d", priority=1),
    ) == [["b", "a"], ["c", "d"]]


@pytest.mark.spec("A27-46")
@pytest.mark.parametrize(
    ("priorities", "missing", "instead"),
    [((1,), 0, 1), ((0, 2), 1, 2), ((0, 2**32 - 1), 1, 2**32 - 1)],
)
def test_priorities_with_a_gap_are_refused(
    priorities: tuple[int, ...], missing: int, instead: int
) -> None:
    assert refused_endpoints(*(locality(priority=priority) for priority in priorities)) == (
        f"field:endpoints error:has no locality of priority {missing}, but of {instead}"
    )


@pytest.mark.spec("A27-47")
def test_duplicate_locality_in_a_priority_is_refused() -> None:
    assert refused_endpoints(locality(zone="a"), locality(zone="a")) == (
        "field:endpoints[1] error:duplicate locality {region=, zone=a, sub_zone=} in priority 0"
    )


@pytest.mark.spec("A27-47")
def test_locality_may_be_in_two_priorities() -> None:
    assert zones(locality(zone="a"), locality(zone="a", priority=1)) == [["a"], ["a"]]


# ---------------------------------------------------------------------------------------------
# Weights and addresses of endpoints


@pytest.mark.spec("A27-22")
def test_weights_of_a_priority_are_accepted_up_to_the_largest_uint32() -> None:
    half = {"value": 2**31}
    almost = {"value": 2**31 - 1}
    first = locality(zone="a", load_balancing_weight=half)
    assert zones(first, locality(zone="b", load_balancing_weight=almost)) == [["a", "b"]]
    other = locality(zone="b", load_balancing_weight=half, priority=1)
    assert zones(first, other) == [["a"], ["b"]]


@pytest.mark.spec("A27-22")
def test_weights_of_a_priority_are_refused_above_the_largest_uint32() -> None:
    half = {"value": 2**31}
    assert refused_endpoints(
        locality(zone="a", load_balancing_weight=half),
        locality(zone="b", load_balancing_weight=half),
    ) == (
        "field:endpoints error:weights of the localities of priority 0 add up to 4294967296, "
        "wanted at most 4294967295"
    )


@pytest.mark.spec("A27-48")
def test_endpoint_weight_is_one_by_default_and_refused_when_zero() -> None:
    unset, two = (
        lb_endpoint("10.0.0.1"),
        lb_endpoint("10.0.0.2", load_balancing_weight={"value": 2}),
    )
    [[only]] = parsed_endpoints(locality(unset, two)).priorities
    assert [endpoint.weight for endpoint in only.endpoints] == [1, 2]
    zero = lb_endpoint("10.0.0.3", load_balancing_weight={"value": 0})
    assert refused_endpoints(locality(unset, zero)) == (
        "field:endpoints[0].lb_endpoints[1].load_balancing_weight error:is 0, wanted at least 1"
    )


@pytest.mark.spec("A27-49")
@pytest.mark.parametrize(
    "localities",
    [
        (locality(lb_endpoint("::1"), lb_endpoint("0:0::1")),),
        (locality(zone="a"), locality(lb_endpoint("::1"), zone="b"), locality(lb_endpoint("::1"))),
        (locality(lb_endpoint("::1")), locality(lb_endpoint("::1"), priority=1)),
    ],
)
def test_duplicate_address_is_refused_across_localities_and_priorities(
    localities: tuple[dict[str, Any], ...],
) -> None:
    text = refused_endpoints(*localities)
    assert "error:duplicate address [::1]:80" in text


@pytest.mark.spec("A27-49")
def test_error_of_a_duplicate_address_has_the_path_of_the_second_endpoint() -> None:
    again = {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}}
    second = lb_endpoint(
        "10.0.0.2", endpoint={"additional_addresses": [{"address": again["address"]}]}
    )
    assert refused_endpoints(locality(lb_endpoint("10.0.0.1")), locality(second, zone="b")) == (
        "field:endpoints[1].lb_endpoints[0] error:duplicate address 10.0.0.1:80"
    )


def test_one_host_may_have_several_ports() -> None:
    [[only]] = parsed_endpoints(locality(lb_endpoint(port=1), lb_endpoint(port=65535))).priorities
    assert [endpoint.addresses for endpoint in only.endpoints] == [
        (IpAddress("10.0.0.1", 1),),
        (IpAddress("10.0.0.1", 65535),),
    ]


SOCKET = "endpoints[0].lb_endpoints[0].endpoint.address.socket_address"


@pytest.mark.spec("A27-50")
@pytest.mark.parametrize("host", ["", "example.com", "10.0.0", "10.0.0.01", "[::1]", "10.0.0.1:80"])
def test_address_that_is_not_a_literal_is_refused(host: str) -> None:
    assert refused_endpoints(locality(lb_endpoint(host))) == (
        f"field:{SOCKET}.address error:is {host!r}, wanted a literal IP address"
    )


@pytest.mark.spec("A27-51")
def test_port_above_65535_is_refused() -> None:
    assert refused_endpoints(locality(lb_endpoint(port=65536))) == (
        f"field:{SOCKET}.port_value error:is 65536, wanted at most 65535"
    )


@pytest.mark.spec("A27-52")
@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        ({}, "endpoint"),
        ({"endpoint_name": "elsewhere"}, "endpoint"),
        ({"endpoint": {}}, "endpoint.address"),
        ({"endpoint": {"address": {}}}, "endpoint.address.socket_address"),
        ({"endpoint": {"address": {"pipe": {"path": "/x"}}}}, "endpoint.address.socket_address"),
    ],
)
def test_an_endpoint_without_socket_address_is_refused(endpoint: dict[str, Any], path: str) -> None:
    assert refused_endpoints(locality(endpoint)) == (
        f"field:endpoints[0].lb_endpoints[0].{path} error:is missing"
    )


# ---------------------------------------------------------------------------------------------
# Health status of endpoints, and drops


@pytest.mark.spec("A27-23")
def test_endpoints_of_other_health_status_are_omitted() -> None:
    names = ["UNKNOWN", "HEALTHY", "UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED", 77]
    endpoints = [
        lb_endpoint(f"10.0.0.{index}", health_status=name) for index, name in enumerate(names)
    ]
    [[only]] = parsed_endpoints(locality(*endpoints)).priorities
    assert [(str(each.addresses[0]), each.health) for each in only.endpoints] == [
        ("10.0.0.0:80", HealthStatus.UNKNOWN),
        ("10.0.0.1:80", HealthStatus.HEALTHY),
        ("10.0.0.3:80", HealthStatus.DRAINING),
    ]


def drops(*overloads: dict[str, Any]) -> dict[str, Any]:
    return {"policy": {"drop_overloads": overloads}}


def drop(category: str = "lb", **percentage: object) -> dict[str, Any]:
    return {"category": category, "drop_percentage": percentage}


@pytest.mark.spec("A27-53", "A27-54")
def test_drops_are_per_million_limited_and_in_order() -> None:
    resource = parsed_endpoints(
        **drops(
            drop("z", numerator=1, denominator="HUNDRED"),
            drop("a", numerator=1, denominator="TEN_THOUSAND"),
            drop("m", numerator=1, denominator="MILLION"),
            drop("all", numerator=2**32 - 1, denominator="HUNDRED"),
            drop("none"),
        )
    )
    assert resource.drops == (
        DropCategory("z", 10_000),
        DropCategory("a", 100),
        DropCategory("m", 1),
        DropCategory("all", 1_000_000),
        DropCategory("none", 0),
    )


@pytest.mark.spec("A27-24")
def test_drop_without_a_category_is_refused() -> None:
    assert refused_endpoints(**drops(drop("a"), drop(""))) == (
        "field:policy.drop_overloads[1].category error:is empty, wanted a name"
    )


@pytest.mark.spec("A27-53")
def test_a_drop_without_percentage_or_with_an_unknown_denominator_is_refused() -> None:
    assert refused_endpoints(**drops({"category": "a"})) == (
        "field:policy.drop_overloads[0].drop_percentage error:is missing"
    )
    assert refused_endpoints(**drops(drop(denominator=3))) == (
        "field:policy.drop_overloads[0].drop_percentage.denominator "
        "error:is 3, wanted HUNDRED, TEN_THOUSAND or MILLION"
    )


# ---------------------------------------------------------------------------------------------
# Discovery type of a cluster


@pytest.mark.spec("A37-01")
def test_eds_logical_dns_and_aggregate_clusters_are_accepted() -> None:
    assert parsed_cluster(cluster()).discovery == EdsCluster()
    assert parsed_cluster(dns_cluster({"address": "db", "port_value": 1})).discovery == (
        LogicalDnsCluster("db", 1)
    )
    assert parsed_cluster(aggregate_cluster("a", "b")).discovery == AggregateCluster(("a", "b"))


@pytest.mark.spec("A37-01")
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (None, "STATIC"),
        ("STATIC", "STATIC"),
        ("STRICT_DNS", "STRICT_DNS"),
        ("ORIGINAL_DST", "ORIGINAL_DST"),
        (99, "99"),
    ],
)
def test_other_discovery_types_are_refused(kind: object, name: str) -> None:
    assert refused_cluster(cluster(type=kind)) == (
        f"field:type error:is {name}, wanted EDS, LOGICAL_DNS or an aggregate cluster_type"
    )


@pytest.mark.spec("A27-15")
def test_eds_config_of_a_cluster_must_be_ads_or_self() -> None:
    named = {"eds_config": {"self": {}}, "service_name": "orders-eds"}
    assert parsed_cluster(cluster(eds_cluster_config=named)).discovery == EdsCluster("orders-eds")
    assert refused_cluster(cluster(eds_cluster_config=None)) == (
        "field:eds_cluster_config error:is missing"
    )
    path = "field:eds_cluster_config.eds_config"
    assert refused_cluster(cluster(eds_cluster_config={})) == (
        f"{path} error:is unset, wanted ads or self"
    )
    elsewhere: dict[str, Any] = {"eds_config": {"api_config_source": {}}}
    assert refused_cluster(cluster(eds_cluster_config=elsewhere)) == (
        f"{path} error:is api_config_source, wanted ads or self"
    )


@pytest.mark.spec("A47-08")
def test_cluster_with_an_xdstp_name_needs_an_eds_service_name() -> None:
    name = "xdstp://xds.example/envoy.config.cluster.v3.Cluster/orders"
    assert refused_cluster(cluster(name=name)) == (
        "field:eds_cluster_config.service_name "
        "error:is empty, wanted a name, as the cluster has an xdstp name"
    )
    assert parsed_cluster(
        cluster(name=name, eds_cluster_config={"eds_config": ADS, "service_name": "x"})
    ).discovery == EdsCluster("x")


DNS = "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address"


@pytest.mark.spec("A37-05")
@pytest.mark.parametrize(
    ("socket_address", "expected"),
    [
        (None, f"field:{DNS} error:is missing"),
        ({"port_value": 1}, f"field:{DNS}.address error:is empty, wanted a name"),
        ({"address": "db"}, f"field:{DNS}.port_value error:is missing"),
        ({"address": "db", "named_port": "http"}, f"field:{DNS}.port_value error:is missing"),
        (
            {"address": "db", "port_value": 65536},
            f"field:{DNS}.port_value error:is 65536, wanted at most 65535",
        ),
        (
            {"address": "db", "port_value": 1, "resolver_name": "mine"},
            f"field:{DNS}.resolver_name error:is 'mine', wanted none",
        ),
    ],
)
def test_a_logical_dns_cluster_needs_a_name_and_a_port(
    socket_address: dict[str, object] | None, expected: str
) -> None:
    assert refused_cluster(dns_cluster(socket_address)) == expected


@pytest.mark.spec("A37-02")
@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        (None, "field:load_assignment error:is missing"),
        ({}, "field:load_assignment.endpoints error:has 0 localities, wanted 1"),
        (
            {"endpoints": [{}, {}]},
            "field:load_assignment.endpoints error:has 2 localities, wanted 1",
        ),
        (
            {"endpoints": [{}]},
            "field:load_assignment.endpoints[0].lb_endpoints error:has 0 endpoints, wanted 1",
        ),
        (
            {"endpoints": [{"lb_endpoints": [{}, {}]}]},
            "field:load_assignment.endpoints[0].lb_endpoints error:has 2 endpoints, wanted 1",
        ),
        ({"endpoints": [{"lb_endpoints": [{}]}]}, f"field:{DNS} error:is missing"),
    ],
)
def test_logical_dns_cluster_needs_exactly_one_endpoint(assignment: object, expected: str) -> None:
    assert refused_cluster(dns_cluster(None, load_assignment=assignment)) == expected


IN_TYPE = "field:cluster_type.typed_config"


@pytest.mark.spec("A37-03")
@pytest.mark.parametrize(
    ("typed_config", "expected"),
    [
        (any_of(proto(AGGREGATE)), f'["{AGGREGATE}"].clusters error:is empty, wanted at least one'),
        (any_with(AGGREGATE, b"\xff"), f'["{AGGREGATE}"] error:cannot be decoded as {AGGREGATE}'),
        (any_of(proto("google.protobuf.Empty")), " error:is google.protobuf.Empty, wanted "),
        (typed_struct(AGGREGATE, {"clusters": ["a"]}), f" error:is a TypedStruct of {AGGREGATE}, "),
        (proto("google.protobuf.Any"), ".type_url error:is ''"),
    ],
)
def test_invalid_aggregate_cluster_type_is_refused(typed_config: Proto, expected: str) -> None:
    kind = {"name": "x", "typed_config": typed_config}
    assert refused_cluster(aggregate_cluster(cluster_type=kind)).startswith(f"{IN_TYPE}{expected}")


# ---------------------------------------------------------------------------------------------
# The LB policy of a cluster


def lb_config(*typed_configs: Proto, **environ: str) -> object:
    message = cluster(load_balancing_policy=policies_of(*typed_configs))
    [config] = parsed_cluster(message, environ).lb_config.json
    return config


def refused_policy(*typed_configs: Proto, **environ: str) -> str:
    return refused_cluster(cluster(load_balancing_policy=policies_of(*typed_configs)), environ)


def policy_path(name: str, index: int = 0) -> str:
    return f'policies[{index}].typed_extension_config.typed_config["{POLICIES}.{name}"]'


UNKNOWN = any_with("vendor.v1.Newest", b"")


@pytest.mark.spec("A52-01")
def test_load_balancing_policy_takes_precedence_over_lb_policy() -> None:
    message = cluster(load_balancing_policy=policies_of(ROUND_ROBIN), lb_policy="MAGLEV")
    assert parsed_cluster(message).lb_config.json == ({"round_robin": {}},)


@pytest.mark.spec("A52-04")
def test_first_supported_policy_is_used() -> None:
    unknown_custom = typed_struct("vendor.v1.Newer")
    first = lb_policy("random", "Random")
    assert lb_config(UNKNOWN, unknown_custom, first, ROUND_ROBIN) == {"random": {}}


@pytest.mark.spec("A52-04")
def test_entries_after_the_first_supported_policy_are_not_validated() -> None:
    broken = any_with(f"{POLICIES}.ring_hash.v3.RingHash", b"\xff")
    assert lb_config(ROUND_ROBIN, broken) == {"round_robin": {}}


@pytest.mark.spec("A52-05")
def test_list_without_a_supported_policy_is_refused() -> None:
    assert refused_policy(UNKNOWN, typed_struct("vendor.v1.Newer")) == (
        "field:load_balancing_policy error:has no policy that is supported, "
        "got vendor.v1.Newest, vendor.v1.Newer"
    )
    assert refused_policy() == (
        "field:load_balancing_policy error:has no policy that is supported, got an empty list"
    )


@pytest.mark.spec("A52-06")
def test_supported_policy_with_a_bad_config_is_refused_even_if_another_follows() -> None:
    broken = any_with(f"{POLICIES}.ring_hash.v3.RingHash", b"\xff")
    path = policy_path("ring_hash.v3.RingHash")
    assert refused_policy(broken, ROUND_ROBIN) == (
        f"field:load_balancing_policy.{path} "
        f"error:cannot be decoded as {POLICIES}.ring_hash.v3.RingHash"
    )


def test_an_entry_without_config_is_refused() -> None:
    message = proto("envoy.config.cluster.v3.LoadBalancingPolicy", policies=[{}])
    assert refused_cluster(cluster(load_balancing_policy=message)) == (
        "field:load_balancing_policy.policies[0].typed_extension_config error:is missing"
    )


def nested(levels: int) -> Proto:
    """round_robin inside wrr_locality policies, with this number of levels."""
    policy = ROUND_ROBIN
    for _ in range(levels - 1):
        policy = wrr_locality(policy)
    return policy


@pytest.mark.spec("A52-07")
def test_sixteen_levels_are_allowed_and_seventeen_are_not() -> None:
    assert str(lb_config(nested(16))).count(WRR_LOCALITY) == 15
    text = refused_policy(nested(17))
    assert text.endswith("error:is more than 16 levels deep")


@pytest.mark.spec("A52-02")
def test_round_robin_and_wrr_locality_are_converted() -> None:
    assert lb_config(ROUND_ROBIN) == {"round_robin": {}}
    assert lb_config(wrr_locality(UNKNOWN, ROUND_ROBIN)) == {
        WRR_LOCALITY: {"childPolicy": [{"round_robin": {}}]}
    }
    bare = lb_policy("wrr_locality", "WrrLocality")
    path = policy_path("wrr_locality.v3.WrrLocality")
    assert refused_policy(bare) == (
        f"field:load_balancing_policy.{path}.endpoint_picking_policy error:is missing"
    )
    assert refused_policy(wrr_locality(UNKNOWN)) == (
        f"field:load_balancing_policy.{path}.endpoint_picking_policy "
        "error:has no policy that is supported, got vendor.v1.Newest"
    )


def ring_hash(**fields: object) -> Proto:
    return lb_policy("ring_hash", "RingHash", **fields)


@pytest.mark.spec("A52-08")
@pytest.mark.parametrize("function", ["DEFAULT_HASH", "XX_HASH"])
def test_ring_sizes_are_converted_with_their_defaults(function: str) -> None:
    assert lb_config(ring_hash(hash_function=function)) == {
        "ring_hash_experimental": {"minRingSize": 1024, "maxRingSize": 8388608}
    }
    sizes = {"minimum_ring_size": {"value": 1}, "maximum_ring_size": {"value": 1}}
    assert lb_config(ring_hash(hash_function=function, **sizes)) == {
        "ring_hash_experimental": {"minRingSize": 1, "maxRingSize": 1}
    }


RING_HASH_ERRORS = [
    ({"minimum_ring_size": {"value": 0}}, "minimum_ring_size error:is 0, wanted 1 to 8388608"),
    (
        {"minimum_ring_size": {"value": 8388609}},
        "minimum_ring_size error:is 8388609, wanted 1 to 8388608",
    ),
    ({"maximum_ring_size": {"value": 0}}, "maximum_ring_size error:is 0, wanted 1 to 8388608"),
    (
        {"maximum_ring_size": {"value": 8388609}},
        "maximum_ring_size error:is 8388609, wanted 1 to 8388608",
    ),
    (
        {"minimum_ring_size": {"value": 3}, "maximum_ring_size": {"value": 2}},
        "minimum_ring_size error:is 3, wanted at most maximum_ring_size, which is 2",
    ),
]


@pytest.mark.spec("A52-08")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        *RING_HASH_ERRORS,
        ({"hash_function": "MURMUR_HASH_2"}, "hash_function error:is 2, wanted XX_HASH"),
    ],
)
def test_invalid_ring_hash_config_is_refused(fields: dict[str, object], expected: str) -> None:
    path = policy_path("ring_hash.v3.RingHash")
    assert refused_policy(ring_hash(**fields)) == f"field:load_balancing_policy.{path}.{expected}"


@pytest.mark.spec("A52-09")
@pytest.mark.parametrize("form", ["xds.type.v3", "udpa.type.v1"])
def test_typed_struct_is_a_custom_policy(form: str) -> None:
    custom = typed_struct("ring_hash_experimental", {"minRingSize": 7}, form=form)
    assert lb_config(UNKNOWN, custom) == {"ring_hash_experimental": {"minRingSize": 7}}
    assert lb_config(wrr_locality(typed_struct("round_robin", form=form))) == {
        WRR_LOCALITY: {"childPolicy": [{"round_robin": {}}]}
    }


@pytest.mark.spec("A52-06")
def test_config_that_the_policy_rejects_is_refused() -> None:
    custom = typed_struct("ring_hash_experimental", {"minRingSize": "many"})
    assert refused_policy(wrr_locality(custom)).startswith(
        f"field:load_balancing_policy[0].{WRR_LOCALITY}.childPolicy[0]"
        ".ring_hash_experimental.minRingSize error:"
    )


@pytest.mark.spec("A52-10")
def test_lb_policy_enum_is_converted() -> None:
    expected: object = ({WRR_LOCALITY: {"childPolicy": [{"round_robin": {}}]}},)
    assert parsed_cluster(cluster()).lb_config.json == expected
    assert parsed_cluster(cluster(lb_policy="ROUND_ROBIN")).lb_config.json == expected
    assert parsed_cluster(cluster(lb_policy="RING_HASH")).lb_config.json == (
        {"ring_hash_experimental": {"minRingSize": 1024, "maxRingSize": 8388608}},
    )


@pytest.mark.spec("A52-11")
def test_ring_sizes_are_those_of_ring_hash_lb_config_when_lb_policy_is_set() -> None:
    sizes = {"minimum_ring_size": {"value": 10}, "maximum_ring_size": {"value": 20}}
    message = cluster(lb_policy="RING_HASH", ring_hash_lb_config=sizes)
    assert parsed_cluster(message).lb_config.json == (
        {"ring_hash_experimental": {"minRingSize": 10, "maxRingSize": 20}},
    )


@pytest.mark.spec("A52-11")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        *RING_HASH_ERRORS,
        ({"hash_function": "MURMUR_HASH_2"}, "hash_function error:is 1, wanted XX_HASH"),
    ],
)
def test_invalid_ring_hash_lb_config_is_refused(fields: dict[str, object], expected: str) -> None:
    message = cluster(lb_policy="RING_HASH", ring_hash_lb_config=fields)
    assert refused_cluster(message) == f"field:ring_hash_lb_config.{expected}"


@pytest.mark.spec("A52-12")
@pytest.mark.parametrize(
    ("number", "name"), [(3, "RANDOM"), (5, "MAGLEV"), (6, "CLUSTER_PROVIDED"), (99, "99")]
)
def test_other_values_of_lb_policy_are_refused(number: int, name: str) -> None:
    assert refused_cluster(cluster(lb_policy=number)) == (
        f"field:lb_policy error:is {name}, which is not supported"
    )


def parsed_policy(resource: Cluster) -> PolicyConfig:
    """Policy config of the cluster, parsed by its policy."""
    errors = ValidationErrors()
    config = parse_policy_list(list(resource.lb_config.json), errors, known_policies())
    assert errors.ok
    assert config is not None
    return config


@pytest.mark.spec("A52-08")
def test_ring_hash_policy_has_the_sizes_of_the_resource() -> None:
    message = ring_hash(minimum_ring_size={"value": 10}, maximum_ring_size={"value": 20})
    policy = parsed_policy(parsed_cluster(cluster(load_balancing_policy=policies_of(message))))
    assert isinstance(policy.config, RingHashConfig)
    assert (policy.config.ring_size.minimum, policy.config.ring_size.maximum) == (10, 20)


def test_fields_of_weighted_round_robin_are_converted() -> None:
    # grpc-go#8915 confused two of them.
    message = lb_policy(
        "client_side_weighted_round_robin",
        "ClientSideWeightedRoundRobin",
        enable_oob_load_report={"value": True},
        oob_reporting_period={"seconds": 1},
        blackout_period={"seconds": 2},
        weight_expiration_period={"seconds": 3},
        weight_update_period={"seconds": 4, "nanos": 5},
        error_utilization_penalty={"value": 0.5},
        metric_names_for_computing_utilization=["named_metrics.queue"],
    )
    policy = parsed_policy(parsed_cluster(cluster(load_balancing_policy=policies_of(message))))
    assert policy.config == WeightedRoundRobinConfig(
        enable_oob_load_report=True,
        oob_reporting_period_s=1,
        blackout_period_s=2,
        weight_expiration_period_s=3,
        weight_update_period_s=4.000000005,
        error_utilization_penalty=0.5,
        metric_names_for_computing_utilization=("named_metrics.queue",),
    )


# ---------------------------------------------------------------------------------------------
# pick_first in xDS, A62


def pick_first(**fields: object) -> Proto:
    return lb_policy("pick_first", "PickFirst", **fields)


@pytest.mark.spec("A62-25")
def test_shuffle_address_list_of_pick_first_is_converted() -> None:
    assert lb_config(pick_first()) == {"pick_first": {"shuffleAddressList": False}}
    assert lb_config(pick_first(shuffle_address_list=True)) == {
        "pick_first": {"shuffleAddressList": True}
    }


@pytest.mark.spec("A62-27")
def test_pick_first_is_skipped_when_the_guard_is_false() -> None:
    off = {CONFIG_GUARD: "false"}
    assert lb_config(pick_first(), ROUND_ROBIN, **off) == {"round_robin": {}}
    assert refused_policy(pick_first(), **off) == (
        "field:load_balancing_policy error:has no policy that is supported, "
        f"got {POLICIES}.pick_first.v3.PickFirst"
    )
    for value in ("true", ""):
        assert lb_config(pick_first(), ROUND_ROBIN, **{CONFIG_GUARD: value}) == {
            "pick_first": {"shuffleAddressList": False}
        }


@pytest.mark.spec("A62-29")
def test_malformed_pick_first_is_refused_and_a_nested_one_is_converted() -> None:
    name = f"{POLICIES}.pick_first.v3.PickFirst"
    assert refused_policy(any_with(name, b"\xff"), ROUND_ROBIN) == (
        f"field:load_balancing_policy.{policy_path('pick_first.v3.PickFirst')} "
        f"error:cannot be decoded as {name}"
    )
    assert lb_config(wrr_locality(pick_first(shuffle_address_list=True))) == {
        WRR_LOCALITY: {"childPolicy": [{"pick_first": {"shuffleAddressList": True}}]}
    }


# ---------------------------------------------------------------------------------------------
# The LB policy of an aggregate, A75

BAD_POLICIES: list[dict[str, Any]] = [
    {"lb_policy": "CLUSTER_PROVIDED"},
    {"lb_policy": "MAGLEV"},
    {"load_balancing_policy": policies_of(UNKNOWN)},
    {"load_balancing_policy": policies_of()},
]


@pytest.mark.spec("A75-12", "A75-14")
@pytest.mark.parametrize("environ", [{}, {AGGREGATE_BACKWARD_COMPAT: "false"}])
@pytest.mark.parametrize("policy", [*BAD_POLICIES, {"lb_policy": "ROUND_ROBIN"}])
def test_policy_of_an_aggregate_is_ignored(policy: dict[str, Any], environ: dict[str, str]) -> None:
    assert parsed_cluster(aggregate_cluster("a", **policy), environ).lb_config.json == ()


@pytest.mark.spec("A75-15")
@pytest.mark.parametrize("policy", BAD_POLICIES)
def test_policy_of_an_aggregate_is_validated_when_backward_compatibility_is_on(
    policy: dict[str, Any],
) -> None:
    environ = {AGGREGATE_BACKWARD_COMPAT: "true"}
    assert refused_cluster(aggregate_cluster("a", **policy), environ).startswith(
        f"field:{next(iter(policy))} error:"
    )
    good = aggregate_cluster("a", load_balancing_policy=policies_of(ROUND_ROBIN))
    assert parsed_cluster(good, environ).lb_config.json == ({"round_robin": {}},)


# ---------------------------------------------------------------------------------------------
# Outlier detection of clusters, A50


def outlier_config(**fields: object) -> OutlierDetectionConfig:
    """Config of outlier_detection for these fields of the cluster."""
    detection = parsed_cluster(cluster(outlier_detection=fields)).outlier_detection
    assert detection is not None
    errors = ValidationErrors()
    json = {**detection.config, "childPolicy": [{"round_robin": {}}]}
    policy = parse_policy_list([{"outlier_detection_experimental": json}], errors, known_policies())
    assert str(errors) == "[]"
    assert policy is not None
    assert isinstance(policy.config, OutlierDetectionConfig)
    return policy.config


@pytest.mark.spec("A50-01")
def test_outlier_detection_has_the_defaults_of_a50() -> None:
    config = outlier_config()
    rules = config.rules
    assert config.interval_s == 10
    assert (rules.base_ejection_time_s, rules.max_ejection_time_s) == (30, 300)
    assert rules.max_ejection_percent == 10
    assert outlier_config(base_ejection_time={"seconds": 400}).rules.max_ejection_time_s == 400


@pytest.mark.spec("A50-04")
def test_fields_of_outlier_detection_are_converted() -> None:
    config = outlier_config(
        interval={"seconds": 1, "nanos": 500_000_000},
        base_ejection_time={"seconds": 2},
        max_ejection_time={"seconds": 3},
        max_ejection_percent={"value": 100},
        success_rate_stdev_factor={"value": 4},
        enforcing_success_rate={"value": 5},
        success_rate_minimum_hosts={"value": 6},
        success_rate_request_volume={"value": 7},
        failure_percentage_threshold={"value": 8},
        enforcing_failure_percentage={"value": 9},
        failure_percentage_minimum_hosts={"value": 10},
        failure_percentage_request_volume={"value": 11},
    )
    rules = config.rules
    assert (config.interval_s, rules.base_ejection_time_s, rules.max_ejection_time_s) == (1.5, 2, 3)
    assert rules.max_ejection_percent == 100
    success, failure = rules.success_rate, rules.failure_percentage
    assert success is not None
    assert failure is not None
    assert (success.stdev_factor, success.enforcement_percentage) == (4, 5)
    assert (success.minimum_hosts, success.request_volume) == (6, 7)
    assert (failure.threshold, failure.enforcement_percentage) == (8, 9)
    assert (failure.minimum_hosts, failure.request_volume) == (10, 11)


@pytest.mark.spec("A50-05")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"interval": {"seconds": -1}}, "interval.seconds error:is -1, wanted 0 to 315576000000"),
        (
            {"base_ejection_time": {"nanos": 1_000_000_000}},
            "base_ejection_time.nanos error:is 1000000000, wanted 0 to 999999999",
        ),
        (
            {"max_ejection_time": {"seconds": 315_576_000_001}},
            "max_ejection_time.seconds error:is 315576000001, wanted 0 to 315576000000",
        ),
        (
            {"max_ejection_percent": {"value": 101}},
            "max_ejection_percent error:is 101, wanted at most 100",
        ),
        (
            {"enforcing_success_rate": {"value": 101}},
            "enforcing_success_rate error:is 101, wanted at most 100",
        ),
        (
            {"enforcing_failure_percentage": {"value": 101}},
            "enforcing_failure_percentage error:is 101, wanted at most 100",
        ),
        (
            {
                "enforcing_failure_percentage": {"value": 1},
                "failure_percentage_threshold": {"value": 101},
            },
            "failure_percentage_threshold error:is 101, wanted at most 100",
        ),
    ],
)
def test_bad_outlier_detection_is_refused(fields: dict[str, object], expected: str) -> None:
    assert refused_cluster(cluster(outlier_detection=fields)) == (
        f"field:outlier_detection.{expected}"
    )


@pytest.mark.spec("A50-02")
def test_success_rate_is_on_unless_its_enforcement_is_zero() -> None:
    assert outlier_config().rules.success_rate is not None
    assert outlier_config(enforcing_success_rate={"value": 1}).rules.success_rate is not None
    assert outlier_config(enforcing_success_rate={"value": 0}).rules.success_rate is None


@pytest.mark.spec("A50-07")
def test_failure_percentage_is_off_unless_its_enforcement_is_above_zero() -> None:
    assert outlier_config().rules.failure_percentage is None
    for value in (0, 1):
        rules = outlier_config(enforcing_failure_percentage={"value": value}).rules
        assert (rules.failure_percentage is not None) == bool(value)
    # Its fields are ignored while it is off.
    ignored = outlier_config(failure_percentage_threshold={"value": 101})
    assert ignored.rules.failure_percentage is None


# ---------------------------------------------------------------------------------------------
# override_host_status of clusters, A55


def override_host_status(*statuses: object) -> frozenset[HealthStatus]:
    common = {"override_host_status": {"statuses": statuses}}
    return parsed_cluster(cluster(common_lb_config=common)).override_host_status


@pytest.mark.spec("A55-05")
def test_override_host_status_is_read_with_its_default() -> None:
    default = frozenset({HealthStatus.UNKNOWN, HealthStatus.HEALTHY})
    assert parsed_cluster(cluster()).override_host_status == default
    assert parsed_cluster(cluster(common_lb_config={})).override_host_status == default
    assert override_host_status() == frozenset()
    assert override_host_status("UNHEALTHY", "DRAINING", "DEGRADED", 77) == {HealthStatus.DRAINING}
    assert override_host_status("UNKNOWN", "HEALTHY", "DRAINING") == set(HealthStatus)
