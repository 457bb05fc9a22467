"""Unit tests of proxyless.controlplane.short_form.places."""

from __future__ import annotations

import pytest

from proxyless.controlplane.short_form.places import (
    cluster_place,
    is_short_place,
    place_of_field,
)

CLUSTER = '[0].clusters["a"]'
ROUTE = "virtual_hosts[0].routes[2]"


@pytest.mark.parametrize(
    ("place", "field", "path"),
    [
        ("[0].service", "", "[0].service"),
        ("[0].service", "api_listener.x.StatefulSession", "[0].session"),
        ("[0].routes", f"{ROUTE}.match.headers[0].name", "[0].routes[2].match.headers"),
        ("[0].routes", f"{ROUTE}.route.cluster", "[0].routes[2].to"),
        ("[0].routes", f"{ROUTE}.route.weighted_clusters.clusters[1]", "[0].routes[2].to"),
        ("[0].routes", f"{ROUTE}.route.retry_policy.retry_on", "[0].routes[2].retry.codes"),
        ("[0].routes", f"{ROUTE}.route.max_stream_duration", "[0].routes[2].timeout"),
        ("[0].routes", f'{ROUTE}.typed_per_filter_config["fault"].x', "[0].routes[2].fault"),
        ("[0].routes", ROUTE, "[0].routes[2]"),
        ("[0].routes", "virtual_hosts[0].domains[1]", "[0].domains"),
        ("[0].routes", "other", "[0].routes"),
        (CLUSTER, "lb_policy", f"{CLUSTER}.policy"),
        (CLUSTER, "cluster_type.typed_config.clusters[1]", f"{CLUSTER}.aggregate[1]"),
        (CLUSTER, "connect_timeout", CLUSTER),
        (CLUSTER, "outlier_detection.interval", f"{CLUSTER}.outlier_detection"),
        (f"{CLUSTER}.endpoints", "endpoints[1].priority", f"{CLUSTER}.endpoints[1].priority"),
        (f"{CLUSTER}.endpoints", "policy.drop_overloads[0]", f"{CLUSTER}.drops"),
        ("[0]", "lb_policy", "[0].lb_policy"),
        ("[0].resources[3]", "", "[0].resources[3]"),
    ],
)
def test_field_of_a_resource_has_a_path_in_the_document(place: str, field: str, path: str) -> None:
    assert place_of_field(place, field) == path


@pytest.mark.parametrize("name", ["a", 'b"c', "d\\", "e]", "é"])
def test_place_of_a_cluster_is_one_of_the_short_form(name: str) -> None:
    assert is_short_place(f"[7]{cluster_place(name)}")
    assert is_short_place(f"[7]{cluster_place(name)}.endpoints")
    assert not is_short_place("[7].resources[1]")
