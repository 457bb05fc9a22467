"""Endpoints: addresses, hostname and hash key, the cache, and random bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import IpAddress
from proxyless.xds.client.api import Decoded
from proxyless.xds.parsing.cluster import ClusterType
from proxyless.xds.parsing.endpoint import EndpointType
from proxyless.xds.parsing.limits import ADDRESSES_MAX, PRIORITIES_MAX
from proxyless.xds.resources import EndpointInfo, EndpointResource
from tests.worlds.xds_messages import (
    CONTEXT,
    assignment,
    decode_endpoints,
    lb_endpoint,
    locality,
    mutations_of,
    parsed_endpoints,
    refused_endpoints,
    struct,
)


def only_endpoint(message: dict[str, Any]) -> EndpointInfo:
    [[only]] = parsed_endpoints(locality(message)).priorities
    [endpoint] = only.endpoints
    return endpoint


def socket_address(host: str, port: int = 80) -> dict[str, Any]:
    return {"address": {"socket_address": {"address": host, "port_value": port}}}


def test_endpoint_type_is_not_full_state() -> None:
    kind = EndpointType()
    assert kind.type_url == "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    assert not kind.is_full_state
    assert kind.named_by == ClusterType.named_by


def test_endpoint_has_all_its_addresses_in_order() -> None:
    additional = [socket_address("::1"), socket_address("10.0.0.2", 81)]
    endpoint = only_endpoint(lb_endpoint(endpoint={"additional_addresses": additional}))
    assert endpoint.addresses == (
        IpAddress("10.0.0.1", 80),
        IpAddress("::1", 80),
        IpAddress("10.0.0.2", 81),
    )


def test_endpoint_with_too_many_addresses_is_an_error() -> None:
    additional = [socket_address(f"10.1.{n >> 8}.{n & 255}") for n in range(ADDRESSES_MAX)]
    error = refused_endpoints(locality(lb_endpoint(endpoint={"additional_addresses": additional})))
    assert error == (
        "field:endpoints[0].lb_endpoints[0].endpoint error:has 1001 addresses, wanted at most 1000"
    )
    additional.pop()
    endpoint = only_endpoint(lb_endpoint(endpoint={"additional_addresses": additional}))
    assert len(endpoint.addresses) == ADDRESSES_MAX


def test_invalid_additional_address_is_an_error_at_its_index() -> None:
    additional = [socket_address("::1"), socket_address("x"), {}]
    path = "endpoints[0].lb_endpoints[0].endpoint.additional_addresses"
    assert refused_endpoints(
        locality(lb_endpoint(endpoint={"additional_addresses": additional}))
    ) == (
        f"field:{path}[1].address.socket_address.address "
        "error:is 'x', wanted a literal IP address; "
        f"field:{path}[2].address error:is missing"
    )


def test_endpoint_with_a_repeated_address_is_rejected() -> None:
    twice = lb_endpoint(endpoint={"additional_addresses": [socket_address("10.0.0.1")]})
    assert refused_endpoints(locality(twice)) == (
        "field:endpoints[0].lb_endpoints[0] error:duplicate address 10.0.0.1:80"
    )


def test_priorities_above_the_limit_of_the_api_are_rejected() -> None:
    localities = [locality(priority=priority) for priority in range(PRIORITIES_MAX + 1)]
    assert len(parsed_endpoints(*localities[:-1]).priorities) == 129
    assert refused_endpoints(*localities) == (
        "field:endpoints error:has 130 priorities, wanted at most 129"
    )


def test_hostname_is_parsed() -> None:
    assert only_endpoint(lb_endpoint()).hostname == ""
    assert only_endpoint(lb_endpoint(endpoint={"hostname": "a.example"})).hostname == "a.example"


def with_metadata(key: str, **fields: object) -> dict[str, Any]:
    return lb_endpoint(metadata={"filter_metadata": {key: struct(fields)}})


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (lb_endpoint(), ""),
        (with_metadata("envoy.lb"), ""),
        (with_metadata("envoy.lb", hash_key="shard-7"), "shard-7"),
        (with_metadata("envoy.lb", hash_key=7), ""),
        (with_metadata("envoy.lb", other="x"), ""),
        (with_metadata("other", hash_key="x"), ""),
    ],
)
def test_hash_key_is_the_string_in_the_metadata(message: dict[str, Any], expected: str) -> None:
    assert only_endpoint(message).hash_key == expected


def test_all_errors_of_an_assignment_are_reported_at_once() -> None:
    socket = "endpoints[1].lb_endpoints[0].endpoint.address.socket_address"
    zero = lb_endpoint("x", port=70_000, load_balancing_weight={"value": 0})
    text = refused_endpoints(
        locality(locality=None),
        locality(zero, zone="b"),
        policy={"drop_overloads": [{}]},
    )
    assert text.split("; ") == [
        "field:endpoints[0].locality error:is missing",
        "field:endpoints[1].lb_endpoints[0].load_balancing_weight error:is 0, wanted at least 1",
        f"field:{socket}.port_value error:is 70000, wanted at most 65535",
        "field:policy.drop_overloads[0].category error:is empty, wanted a name",
        "field:policy.drop_overloads[0].drop_percentage error:is missing",
    ]


def test_empty_assignment_is_valid() -> None:
    assert parsed_endpoints() == EndpointResource(name="orders")


def test_empty_locality_is_valid() -> None:
    [[only]] = parsed_endpoints(locality()).priorities
    assert only.endpoints == ()


# The cache


def many(count: int, name: str = "orders", **changed: int) -> bytes:
    """`count` endpoints; `changed` has the weights of some of them, by number: `e3=7`."""
    endpoints = [
        lb_endpoint(
            f"10.0.{index >> 8}.{index & 255}",
            load_balancing_weight={"value": changed.get(f"e{index}", 1)},
        )
        for index in range(count)
    ]
    message = assignment(locality(*endpoints))
    message.cluster_name = name
    return bytes(message.SerializeToString())


def endpoints_of(decoded: Decoded[EndpointResource]) -> tuple[EndpointInfo, ...]:
    assert decoded.resource is not None
    [[only]] = decoded.resource.priorities
    return only.endpoints


def test_unchanged_endpoints_are_the_same_objects_in_the_next_version() -> None:
    kind = EndpointType()
    before = endpoints_of(kind.decode(many(20), CONTEXT))
    after = endpoints_of(kind.decode(many(20, e3=7), CONTEXT))
    assert [index for index in range(20) if before[index] is not after[index]] == [3]
    assert after[3].weight == 7


def test_cache_does_not_change_the_resource() -> None:
    kind = EndpointType()
    kind.decode(many(20), CONTEXT)
    assert kind.decode(many(20, e3=7), CONTEXT) == EndpointType().decode(many(20, e3=7), CONTEXT)


def test_duplicate_addresses_are_found_among_cached_endpoints() -> None:
    kind = EndpointType()
    kind.decode(many(20), CONTEXT)
    message = assignment()
    message.MergeFromString(many(20))
    message.endpoints.add().CopyFrom(message.endpoints[0])
    message.endpoints[1].priority = 1
    decoded = kind.decode(message.SerializeToString(), CONTEXT)
    assert "field:endpoints[1].lb_endpoints[0] error:duplicate address 10.0.0.0:80" in decoded.error


def test_invalid_version_leaves_the_cache_unchanged() -> None:
    kind = EndpointType()
    before = endpoints_of(kind.decode(many(20), CONTEXT))
    assert kind.decode(many(20, e3=0), CONTEXT).error
    assert endpoints_of(kind.decode(many(20), CONTEXT))[3] is before[3]


# Random bytes


def expect_resource_or_error(decoded: Decoded[EndpointResource]) -> None:
    assert (decoded.resource is None) == bool(decoded.error)
    if decoded.resource is not None:
        assert decoded.resource.name == decoded.name != ""


@given(st.binary(max_size=200))
def test_random_bytes_give_a_resource_or_an_error(serialized: bytes) -> None:
    expect_resource_or_error(EndpointType().decode(serialized, CONTEXT))


RICH = assignment(
    locality(
        lb_endpoint(health_status="DRAINING", endpoint={"hostname": "h"}),
        with_metadata("envoy.lb", hash_key={"string_value": "k"}) | {"health_status": "UNHEALTHY"},
        lb_endpoint("::1", endpoint={"additional_addresses": [socket_address("::2")]}),
    ),
    locality(zone="b", priority=1),
    policy={"drop_overloads": [{"category": "lb", "drop_percentage": {"numerator": 5}}]},
)


def test_unmutated_message_is_valid() -> None:
    assert decode_endpoints(RICH).error == ""


@given(mutations_of(RICH))
def test_mutated_messages_give_a_resource_or_an_error(serialized: bytes) -> None:
    kind = EndpointType()
    expect_resource_or_error(kind.decode(serialized, CONTEXT))
    expect_resource_or_error(kind.decode(serialized, CONTEXT))
