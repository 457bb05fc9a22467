"""Endpoints: what else they carry, what is remembered of them, and bytes of any kind."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import IpAddress
from proxyless.xds.client.api import Decoded
from proxyless.xds.parsing.endpoint import EndpointType
from proxyless.xds.parsing.limits import PRIORITIES_MAX
from proxyless.xds.resources import EndpointInfo, EndpointResource
from tests.cluster_world import (
    CONTEXT,
    assignment,
    decode_endpoints,
    lb_endpoint,
    locality,
    mutations_of,
    parsed_endpoints,
    refused_endpoints,
)


def only_endpoint(message: dict[str, Any]) -> EndpointInfo:
    [[only]] = parsed_endpoints(locality(message)).priorities
    [endpoint] = only.endpoints
    return endpoint


def socket_address(host: str, port: int = 80) -> dict[str, Any]:
    return {"address": {"socket_address": {"address": host, "port_value": port}}}


def test_type() -> None:
    kind = EndpointType()
    assert kind.type_url == "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    assert not kind.is_full_state


def test_an_endpoint_has_all_its_addresses_in_order() -> None:
    additional = [socket_address("::1"), socket_address("10.0.0.2", 81)]
    endpoint = only_endpoint(lb_endpoint(endpoint={"additional_addresses": additional}))
    assert endpoint.addresses == (
        IpAddress("10.0.0.1", 80),
        IpAddress("::1", 80),
        IpAddress("10.0.0.2", 81),
    )


def test_a_bad_additional_address_is_named() -> None:
    additional = [socket_address("::1"), socket_address("x"), {}]
    path = "endpoints[0].lb_endpoints[0].endpoint.additional_addresses"
    assert refused_endpoints(
        locality(lb_endpoint(endpoint={"additional_addresses": additional}))
    ) == (
        f"field:{path}[1].address.socket_address.address "
        "error:is 'x', wanted a literal IP address; "
        f"field:{path}[2].address error:is missing"
    )


def test_one_endpoint_does_not_repeat_an_address() -> None:
    twice = lb_endpoint(endpoint={"additional_addresses": [socket_address("10.0.0.1")]})
    assert refused_endpoints(locality(twice)) == (
        "field:endpoints[0].lb_endpoints[0] error:duplicate address 10.0.0.1:80"
    )


def test_there_are_as_many_priorities_as_the_api_allows_and_no_more() -> None:
    localities = [locality(priority=priority) for priority in range(PRIORITIES_MAX + 1)]
    assert len(parsed_endpoints(*localities[:-1]).priorities) == 129
    assert refused_endpoints(*localities) == (
        "field:endpoints error:has 130 priorities, wanted at most 129"
    )


def test_hostname() -> None:
    assert only_endpoint(lb_endpoint()).hostname == ""
    assert only_endpoint(lb_endpoint(endpoint={"hostname": "a.example"})).hostname == "a.example"


def with_metadata(key: str, **fields: object) -> dict[str, Any]:
    return lb_endpoint(metadata={"filter_metadata": {key: {"fields": fields}}})


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (lb_endpoint(), ""),
        (with_metadata("envoy.lb"), ""),
        (with_metadata("envoy.lb", hash_key={"string_value": "shard-7"}), "shard-7"),
        (with_metadata("envoy.lb", hash_key={"number_value": 7}), ""),
        (with_metadata("envoy.lb", other={"string_value": "x"}), ""),
        (with_metadata("other", hash_key={"string_value": "x"}), ""),
    ],
)
def test_hash_key(message: dict[str, Any], expected: str) -> None:
    assert only_endpoint(message).hash_key == expected


def test_everything_that_is_wrong_is_said_at_once() -> None:
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


def test_an_empty_assignment_is_valid() -> None:
    assert parsed_endpoints() == EndpointResource(name="orders")


def test_a_locality_may_be_empty() -> None:
    [[only]] = parsed_endpoints(locality()).priorities
    assert only.endpoints == ()


# ---------------------------------------------------------------------------------------------
# Memory


def many(count: int, name: str = "orders", **changed: int) -> bytes:
    """So many endpoints; `changed` has weights of some of them, by number: `e3=7`."""
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


def test_endpoints_that_did_not_change_are_the_same_objects() -> None:
    kind = EndpointType()
    before = endpoints_of(kind.decode(many(20), CONTEXT))
    after = endpoints_of(kind.decode(many(20, e3=7), CONTEXT))
    assert [index for index in range(20) if before[index] is not after[index]] == [3]
    assert after[3].weight == 7


def test_what_is_remembered_does_not_change_the_answer() -> None:
    kind = EndpointType()
    kind.decode(many(20), CONTEXT)
    assert kind.decode(many(20, e3=7), CONTEXT) == EndpointType().decode(many(20, e3=7), CONTEXT)


def test_duplicates_are_found_among_remembered_endpoints() -> None:
    kind = EndpointType()
    kind.decode(many(20), CONTEXT)
    message = assignment()
    message.MergeFromString(many(20))
    message.endpoints.add().CopyFrom(message.endpoints[0])
    message.endpoints[1].priority = 1
    decoded = kind.decode(message.SerializeToString(), CONTEXT)
    assert "field:endpoints[1].lb_endpoints[0] error:duplicate address 10.0.0.0:80" in decoded.error


def test_an_invalid_version_does_not_disturb_what_is_remembered() -> None:
    kind = EndpointType()
    before = endpoints_of(kind.decode(many(20), CONTEXT))
    assert kind.decode(many(20, e3=0), CONTEXT).error
    assert endpoints_of(kind.decode(many(20), CONTEXT))[3] is before[3]


# ---------------------------------------------------------------------------------------------
# Bytes of any kind


def expect_answer(decoded: Decoded[EndpointResource]) -> None:
    assert (decoded.resource is None) == bool(decoded.error)
    if decoded.resource is not None:
        assert decoded.resource.name == decoded.name != ""


@given(st.binary(max_size=200))
def test_random_bytes_give_a_resource_or_a_text(serialized: bytes) -> None:
    expect_answer(EndpointType().decode(serialized, CONTEXT))


RICH = assignment(
    locality(
        lb_endpoint(health_status="DRAINING", endpoint={"hostname": "h"}),
        with_metadata("envoy.lb", hash_key={"string_value": "k"}) | {"health_status": "UNHEALTHY"},
        lb_endpoint("::1", endpoint={"additional_addresses": [socket_address("::2")]}),
    ),
    locality(zone="b", priority=1),
    policy={"drop_overloads": [{"category": "lb", "drop_percentage": {"numerator": 5}}]},
)


def test_the_message_that_is_mutated_is_valid() -> None:
    assert decode_endpoints(RICH).error == ""


@given(mutations_of(RICH))
def test_mutated_messages_give_a_resource_or_a_text(serialized: bytes) -> None:
    kind = EndpointType()
    expect_answer(kind.decode(serialized, CONTEXT))
    expect_answer(kind.decode(serialized, CONTEXT))
