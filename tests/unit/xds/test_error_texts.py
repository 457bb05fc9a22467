"""Unit tests of subjects and node ids of error texts."""

from __future__ import annotations

import pytest

from proxyless.xds.error_texts import (
    about,
    name_dns,
    name_resource,
    name_server,
    name_type,
    node_phrase,
    with_node,
)


@pytest.mark.parametrize(
    ("type_url", "expected"),
    [
        ("type.googleapis.com/envoy.config.listener.v3.Listener", "listener"),
        ("envoy.config.route.v3.RouteConfiguration", "route configuration"),
        ("type.googleapis.com/envoy.config.cluster.v3.Cluster", "cluster"),
        ("type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "endpoints"),
        ("type.googleapis.com/some.v1.Thing", "Thing"),
        ("Thing", "Thing"),
        ("odd/", "odd/"),
    ],
)
def test_resource_type_has_a_readable_name(type_url: str, expected: str) -> None:
    assert name_type(type_url) == expected


def test_subject_has_type_and_name() -> None:
    assert name_resource("x.Cluster", 'a"b') == r'cluster "a\"b"'
    assert name_server("td:443") == 'xds server "td:443"'
    assert name_dns("db", 80) == 'dns name "db:80"'
    assert name_dns("::1", 80) == 'dns name "[::1]:80"'


def test_subject_is_not_added_when_the_text_begins_with_it() -> None:
    assert about('cluster "a"', "is gone") == 'cluster "a": is gone'
    assert about('cluster "a"', 'cluster "a": is gone') == 'cluster "a": is gone'
    assert about('cluster "a"', 'cluster "b": is gone') == 'cluster "a": cluster "b": is gone'


def test_node_id_is_once_and_last_in_the_text() -> None:
    assert with_node("is gone", "edge-7") == 'is gone (node id "edge-7")'
    nested = 'cluster "a": empty list (endpoints "a": gone (node id "edge-7")) (node id "edge-7")'
    assert (
        with_node(nested, "edge-7")
        == 'cluster "a": empty list (endpoints "a": gone) (node id "edge-7")'
    )


def test_text_has_no_node_id_when_there_is_none() -> None:
    assert with_node("is gone", "") == "is gone"
    assert node_phrase("") == ""
    assert node_phrase("a\nb") == r'node id "a\nb"'
