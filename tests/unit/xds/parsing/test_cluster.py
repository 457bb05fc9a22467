"""Clusters: single fields, several errors at once, and random bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.protos import message_class
from proxyless.xds.client.api import Decoded
from proxyless.xds.parsing.cluster import (
    AGGREGATE,
    AGGREGATE_BACKWARD_COMPAT,
    CLUSTER,
    HTTP_PROTOCOL_OPTIONS,
    PROPAGATION_GUARD,
    ClusterType,
)
from proxyless.xds.parsing.tls import UPSTREAM_TLS_CONTEXT
from proxyless.xds.resources import Cluster
from proxyless.xds.resources.cluster import LEGACY_PROPAGATION, BackendMetricPropagation
from tests.worlds.xds_messages import (
    CONTEXT,
    ROUND_ROBIN,
    SERVER,
    aggregate_cluster,
    any_of,
    cluster,
    decode_cluster,
    dns_cluster,
    known_policies,
    mutations_of,
    parsed_cluster,
    policies_of,
    proto,
    refused_cluster,
    struct,
    typed_struct,
    wrr_locality,
)

KIND = ClusterType(known_policies(), environ={})


def test_cluster_type_is_full_state() -> None:
    assert KIND.type_url == "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    assert KIND.is_full_state


@pytest.mark.spec("HOLD-10")
def test_cluster_type_is_named_by_listeners_and_routes() -> None:
    prefix = "type.googleapis.com/envoy.config"
    expected = (f"{prefix}.listener.v3.Listener", f"{prefix}.route.v3.RouteConfiguration")
    assert KIND.named_by == expected


def test_cluster_without_name_is_rejected() -> None:
    decoded = decode_cluster(cluster(name=""))
    assert decoded == Decoded(
        "", error='cluster "": [field:name error:is empty, wanted the resource\'s name]'
    )


def test_all_errors_of_a_cluster_are_reported_at_once() -> None:
    message = cluster(
        type="STATIC",
        lb_policy="MAGLEV",
        outlier_detection={"max_ejection_percent": {"value": 101}},
        transport_socket={},
        lrs_server={"ads": {}},
        upstream_config={},
    )
    paths = [entry.partition(" ")[0] for entry in refused_cluster(message).split("; ")]
    assert paths == [
        "field:type",
        "field:lb_policy",
        "field:outlier_detection.max_ejection_percent",
        "field:transport_socket.typed_config.type_url",
        "field:lrs_server",
        "field:upstream_config.typed_config.type_url",
    ]


# Circuit breaking, load reports, labels


def max_requests(*thresholds: dict[str, Any]) -> int:
    message = cluster(circuit_breakers={"thresholds": thresholds})
    return parsed_cluster(message).max_concurrent_requests


def test_max_requests_is_that_of_the_first_threshold_of_the_default_priority() -> None:
    assert parsed_cluster(cluster()).max_concurrent_requests == 1024
    assert max_requests() == 1024
    assert max_requests({}) == 1024
    assert max_requests({"max_requests": {"value": 0}}) == 0
    assert max_requests({"priority": "HIGH", "max_requests": {"value": 1}}) == 1024
    assert (
        max_requests(
            {"priority": "HIGH", "max_requests": {"value": 1}},
            {"max_requests": {"value": 2}},
            {"max_requests": {"value": 3}},
        )
        == 2
    )
    assert max_requests({}, {"max_requests": {"value": 3}}) == 1024


@pytest.mark.spec("LRS-03")
def test_lrs_server_must_be_self() -> None:
    assert parsed_cluster(cluster()).lrs_server is None
    assert parsed_cluster(cluster(lrs_server={"self": {}})).lrs_server == SERVER
    assert refused_cluster(cluster(lrs_server={"ads": {}})) == (
        "field:lrs_server error:is ads, wanted self"
    )
    assert refused_cluster(cluster(lrs_server={})) == (
        "field:lrs_server error:is unset, wanted self"
    )


def propagation_of(*names: str, guard: str = "") -> BackendMetricPropagation | None:
    message = cluster(lrs_report_endpoint_metrics=names)
    return parsed_cluster(message, {PROPAGATION_GUARD: guard}).metric_propagation


@pytest.mark.spec("A85-01", "A85-02")
def test_metric_propagation_has_the_supported_names_in_one_form() -> None:
    assert parsed_cluster(cluster()).metric_propagation is None
    assert propagation_of("utilization.disk", "named_metrics", "cpu", "") is None
    utilization = ("cpu_utilization", "mem_utilization", "application_utilization")
    for names in (utilization, (*reversed(utilization), *utilization)):
        assert propagation_of(*names) == BackendMetricPropagation(utilization)
    keys = propagation_of("named_metrics.b", "named_metrics.a.b", "named_metrics.b", "unknown")
    assert keys == BackendMetricPropagation((), frozenset({"a.b", "b"}))
    for names in (("named_metrics.*",), ("named_metrics.a", "named_metrics.*")):
        assert propagation_of(*names) == BackendMetricPropagation((), None)


@pytest.mark.spec("A85-01")
def test_changed_metric_propagation_is_a_changed_resource() -> None:
    one, two = (
        parsed_cluster(cluster(lrs_report_endpoint_metrics=[name]))
        for name in ("named_metrics.a", "named_metrics.b")
    )
    assert one != two
    assert one != parsed_cluster(cluster())


@pytest.mark.spec("A85-08")
def test_metric_propagation_is_that_of_a64_when_the_guard_is_false() -> None:
    for names in ((), ("cpu_utilization", "named_metrics.a")):
        assert propagation_of(*names, guard="false") == LEGACY_PROPAGATION
    assert propagation_of("cpu_utilization", guard="true") == propagation_of("cpu_utilization")


def test_telemetry_labels_are_the_string_values_sorted_by_name() -> None:
    fields = struct({"service_namespace": "shop", "service_name": "orders", "replicas": 3})
    labels = {"com.google.csm.telemetry_labels": fields, "other": fields}
    assert parsed_cluster(cluster(metadata={"filter_metadata": labels})).telemetry_labels == (
        ("service_name", "orders"),
        ("service_namespace", "shop"),
    )
    assert parsed_cluster(cluster()).telemetry_labels == ()


# The environment


def test_environment_is_read_for_each_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = ClusterType(known_policies())
    serialized = aggregate_cluster("a", lb_policy="MAGLEV").SerializeToString()
    monkeypatch.delenv(AGGREGATE_BACKWARD_COMPAT, raising=False)
    assert kind.decode(serialized, CONTEXT).error == ""
    monkeypatch.setenv(AGGREGATE_BACKWARD_COMPAT, "true")
    assert kind.decode(serialized, CONTEXT).error == (
        'cluster "orders": [field:lb_policy error:is MAGLEV, which is not supported]'
    )


# Random bytes


def expect_resource_or_error(decoded: Decoded[Cluster]) -> None:
    assert (decoded.resource is None) == bool(decoded.error)
    if decoded.resource is not None:
        assert decoded.resource.name == decoded.name != ""


@given(st.binary(max_size=200))
def test_random_bytes_give_a_resource_or_an_error(serialized: bytes) -> None:
    expect_resource_or_error(KIND.decode(serialized, CONTEXT))


TLS = proto(
    UPSTREAM_TLS_CONTEXT,
    common_tls_context={
        "validation_context": {
            "ca_certificate_provider_instance": {"instance_name": "roots"},
            "match_subject_alt_names": [{"safe_regex": {"regex": "a+"}}, {"exact": "b"}],
        }
    },
)
IDLE = proto(
    HTTP_PROTOCOL_OPTIONS, common_http_protocol_options={"idle_timeout": {"seconds": 5, "nanos": 6}}
)
EVERYTHING: dict[str, Any] = {
    "load_balancing_policy": policies_of(
        typed_struct("vendor.Policy", {"a": [1, {"b": None}]}), wrr_locality(ROUND_ROBIN)
    ),
    "outlier_detection": {"interval": {"seconds": 1}, "enforcing_success_rate": {"value": 50}},
    "transport_socket": {"typed_config": any_of(TLS)},
    "lrs_server": {"self": {}},
    "lrs_report_endpoint_metrics": ["cpu_utilization", "named_metrics.a", "unknown"],
    "upstream_config": {"typed_config": any_of(IDLE)},
    "circuit_breakers": {"thresholds": [{"max_requests": {"value": 5}}]},
    "common_lb_config": {"override_host_status": {"statuses": ["DRAINING"]}},
}
MESSAGES = [
    cluster(**EVERYTHING),
    cluster(lb_policy="RING_HASH", ring_hash_lb_config={"minimum_ring_size": {"value": 5}}),
    dns_cluster({"address": "db.example", "port_value": 80}),
    aggregate_cluster("a", "b"),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_unmutated_messages_are_valid(message: Any) -> None:  # noqa: ANN401 - a message
    assert decode_cluster(message).error == ""


@given(st.one_of(*map(mutations_of, MESSAGES)))
def test_mutated_messages_give_a_resource_or_an_error(serialized: bytes) -> None:
    expect_resource_or_error(KIND.decode(serialized, CONTEXT))


@given(
    st.binary(max_size=60), st.sampled_from(["transport_socket", "upstream_config", "aggregate"])
)
def test_random_bytes_in_extensions_give_a_resource_or_an_error(value: bytes, where: str) -> None:
    names = {
        "transport_socket": UPSTREAM_TLS_CONTEXT,
        "upstream_config": HTTP_PROTOCOL_OPTIONS,
        "aggregate": AGGREGATE,
    }
    typed_config = {"type_url": f"type.googleapis.com/{names[where]}", "value": value}
    field = "cluster_type" if where == "aggregate" else where
    valid = {"name": "orders", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}}
    message = message_class(CLUSTER)(**(valid | {field: {"typed_config": typed_config}}))
    expect_resource_or_error(KIND.decode(message.SerializeToString(), CONTEXT))
