"""Unit tests of proxyless.xds.view.parsers."""

from __future__ import annotations

import pytest

from proxyless.assembly import Registries
from proxyless.base import StatusCode, ValidationErrors
from proxyless.controlplane import eds_cluster
from proxyless.protos import message_class
from proxyless.xds.bootstrap import Bootstrap, ChannelCreds, ServerConfig
from proxyless.xds.resources import Cluster
from proxyless.xds.view import (
    LB_POLICY_TYPES,
    is_usable_health,
    message_parsers,
    read_retry,
    resource_types,
    unmatchable_path,
)

ROUTE = "envoy.config.route.v3"


def test_every_type_of_resource_has_a_parser_of_its_message() -> None:
    registries = Registries()
    bootstrap = Bootstrap(servers=(ServerConfig("unknown", ChannelCreds("insecure")),))
    parsers = message_parsers(registries.policies, registries.filters, bootstrap)
    types = resource_types(registries.policies, registries.filters)
    each_type = (
        types.listener,
        types.route_config,
        types.cluster,
        types.endpoint,
        types.collection,
    )
    assert [each.type_url.rpartition("/")[2] for each in each_type] == list(parsers)
    errors = ValidationErrors()
    parsed = parsers[types.cluster.type_url.rpartition("/")[2]](eds_cluster("a"), errors)
    assert isinstance(parsed, Cluster)
    assert errors.ok


@pytest.mark.parametrize(
    ("prefix", "unmatchable"), [("", None), ("/a/", None), ("a", "a"), ("/a/b/c", "/a/b/c")]
)
def test_path_is_unmatchable_when_no_method_has_it(prefix: str, unmatchable: str | None) -> None:
    assert unmatchable_path(message_class(f"{ROUTE}.RouteMatch")(prefix=prefix)) == unmatchable


def test_match_without_a_path_is_left_to_the_parser() -> None:
    assert unmatchable_path(message_class(f"{ROUTE}.RouteMatch")()) is None


def test_retry_has_only_supported_conditions() -> None:
    policy = message_class(f"{ROUTE}.RetryPolicy")(retry_on="cancelled,5xx")
    assert read_retry(policy).codes == {StatusCode.CANCELLED}


def test_health_is_usable_when_endpoints_with_it_are_taken() -> None:
    assert [number for number in range(6) if is_usable_health(number)] == [0, 1, 3]


def test_policies_are_named_by_their_messages() -> None:
    assert "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin" in LB_POLICY_TYPES
