"""How does a text about xDS name what it is about, and who we are?"""

from __future__ import annotations

import pytest

from proxyless.xds.error_texts import (
    about,
    name_dns,
    name_resource,
    name_server,
    name_type,
    node_note,
    node_phrase,
    with_node,
)


@pytest.mark.parametrize(
    ("type_url", "words"),
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
def test_a_type_has_the_name_that_people_use(type_url: str, words: str) -> None:
    assert name_type(type_url) == words


def test_a_resource_is_named_by_type_and_name() -> None:
    assert name_resource("x.Cluster", 'a"b') == r'cluster "a\"b"'
    assert name_server("td:443") == 'xds server "td:443"'
    assert name_dns("db", 80) == 'dns name "db:80"'
    assert name_dns("::1", 80) == 'dns name "[::1]:80"'


def test_a_text_that_begins_with_its_subject_does_not_get_it_twice() -> None:
    assert about('cluster "a"', "is gone") == 'cluster "a": is gone'
    assert about('cluster "a"', 'cluster "a": is gone') == 'cluster "a": is gone'
    assert about('cluster "a"', 'cluster "b": is gone') == 'cluster "a": cluster "b": is gone'


def test_the_node_id_stands_once_and_last() -> None:
    assert with_node("is gone", "edge-7") == 'is gone (node id "edge-7")'
    nested = 'cluster "a": empty list (endpoints "a": gone (node id "edge-7")) (node id "edge-7")'
    assert (
        with_node(nested, "edge-7")
        == 'cluster "a": empty list (endpoints "a": gone) (node id "edge-7")'
    )
    assert with_node("is gone", "") == "is gone"


def test_without_an_id_nothing_is_said_about_the_node() -> None:
    assert node_note("") == node_phrase("") == ""
    assert node_note("a\nb") == r' (node id "a\nb")'
