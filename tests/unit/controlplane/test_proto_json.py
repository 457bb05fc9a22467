"""Paths of invalid fields in proto-JSON, with any release of protobuf."""

from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import ValidationErrors
from proxyless.controlplane.proto_json import parse_message
from proxyless.protos import Proto

HOST = "type.googleapis.com/"
CLUSTER = f"{HOST}envoy.config.cluster.v3.Cluster"
ROUTES = f"{HOST}envoy.config.route.v3.RouteConfiguration"
FAULT = f"{HOST}envoy.extensions.filters.http.fault.v3.HTTPFault"


def parse(type_url: str, fields: dict[Any, Any]) -> tuple[Proto | None, list[tuple[str, str]]]:
    errors = ValidationErrors()
    message = parse_message({"@type": type_url, **fields}, errors)
    return message, list(errors.items())


def route(**fields: object) -> dict[str, object]:
    return {"virtualHosts": [{}, {"routes": [{"match": {"prefix": "/"}}, fields]}]}


INVALID: list[tuple[str, dict[Any, Any], str, str]] = [
    (CLUSTER, {"nam": "a"}, "nam", "there is no such field"),
    (CLUSTER, {1: "a"}, "1", "there is no such field"),
    (CLUSTER, {"name": 3}, "name", "is 3, wanted string"),
    (CLUSTER, {"ignoreHealthOnHostRemoval": "yes"}, "ignoreHealthOnHostRemoval", "wanted bool"),
    (CLUSTER, {"priority": -1, "name": 3}, "priority", "there is no such field"),
    (CLUSTER, {"name": "a", "type": "MAGIC"}, "type", "is 'MAGIC', wanted one of STATIC, "),
    (CLUSTER, {"connect_timeout": "soon"}, "connect_timeout", "wanted a duration such as '1.5s'"),
    (CLUSTER, {"connectTimeout": {"a": 1}}, "connectTimeout", "is a mapping, wanted a duration"),
    (CLUSTER, {"perConnectionBufferLimitBytes": -1}, "perConnectionBufferLimitBytes", "is -1"),
    (CLUSTER, {"loadAssignment": "a"}, "loadAssignment", "is 'a', wanted a mapping"),
    (
        CLUSTER,
        {"loadAssignment": {"endpoints": {}}},
        "loadAssignment.endpoints",
        "is a mapping, wanted a list",
    ),
    (
        CLUSTER,
        {"loadAssignment": {"endpoints": [{}, {"priority": -1}]}},
        "loadAssignment.endpoints[1].priority",
        "is -1, wanted uint32",
    ),
    (
        CLUSTER,
        {"loadAssignment": {"endpoints": [None]}},
        "loadAssignment.endpoints[0]",
        "is nothing, wanted a mapping",
    ),
    (
        CLUSTER,
        {"clusterType": {"typedConfig": 3}},
        "clusterType.typedConfig",
        "is 3, wanted a mapping with its '@type'",
    ),
    (
        CLUSTER,
        {"clusterType": {"typedConfig": {"@type": "x/no.Such"}}},
        "clusterType.typedConfig",
        "@type 'x/no.Such' is not known",
    ),
    (
        CLUSTER,
        {"clusterType": {"typedConfig": {"@type": f"{HOST}google.protobuf.StringValue"}}},
        "clusterType.typedConfig",
        "wanted a mapping with its '@type'",
    ),
    (
        CLUSTER,
        {"metadata": {"filterMetadata": {"a b": 3}}},
        'metadata.filterMetadata["a b"]',
        "is 3, wanted google.protobuf.Struct",
    ),
    (
        ROUTES,
        route(typedPerFilterConfig={"f": {"@type": FAULT, "x": 1}}),
        'virtualHosts[1].routes[1].typedPerFilterConfig["f"].x',
        "there is no such field",
    ),
    (
        ROUTES,
        route(typedPerFilterConfig={1: {"@type": FAULT}}),
        "virtualHosts[1].routes[1].typedPerFilterConfig",
        "has the key 1, wanted a string",
    ),
    (
        ROUTES,
        route(typedPerFilterConfig=[]),
        "virtualHosts[1].routes[1].typedPerFilterConfig",
        "is a list, wanted a mapping",
    ),
    (
        ROUTES,
        route(route={"cluster": "a"}, redirect={}),
        "virtualHosts[1].routes[1].redirect",
        "is set beside 'route', wanted one of them",
    ),
    (
        ROUTES,
        {"internalOnlyHeaders": ["a", 3]},
        "internalOnlyHeaders[1]",
        "is 3, wanted string",
    ),
]


@pytest.mark.parametrize(("type_url", "fields", "path", "text"), INVALID)
def test_first_invalid_field_is_an_error_at_its_path(
    type_url: str, fields: dict[Any, Any], path: str, text: str
) -> None:
    message, [(error_path, error_text)] = parse(type_url, fields)
    assert message is None
    assert error_path == path
    assert text in error_text


@pytest.mark.parametrize(("type_url", "fields", "path", "text"), INVALID)
def test_path_does_not_depend_on_the_error_texts_of_protobuf(
    type_url: str, fields: dict[Any, Any], path: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse_dict(*args: Any, **options: Any) -> Proto:  # noqa: ANN401 - as in protobuf
        try:
            return real_parse_dict(*args, **options)
        except Exception as error:
            raise json_format.ParseError from error

    real_parse_dict = json_format.ParseDict
    monkeypatch.setattr(json_format, "ParseDict", parse_dict)
    assert [found for found, _ in parse(type_url, fields)[1]] == [path]


def test_valid_fields_are_parsed() -> None:
    message, errors = parse(CLUSTER, {"name": "a", "lb_policy": "RANDOM", "edsClusterConfig": None})
    assert errors == []
    assert message is not None
    assert (message.name, message.lb_policy) == ("a", message.RANDOM)


def test_text_of_protobuf_is_the_error_when_no_field_is_invalid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def parse_dict(*_args: object, **_options: object) -> None:
        if next(is_first, False):
            raise json_format.ParseError("the document is too long")

    is_first = iter([True])
    monkeypatch.setattr(json_format, "ParseDict", parse_dict)
    assert parse(CLUSTER, {"name": "a"}) == (None, [("", "the document is too long")])


def test_deeply_nested_document_is_one_error() -> None:
    config: dict[str, Any] = {"name": 3}
    for _ in range(400):
        config = {
            "@type": f"{HOST}envoy.config.core.v3.TypedExtensionConfig",
            "typedConfig": config,
        }
    message, errors = parse(CLUSTER, {"clusterType": {"typedConfig": config}})
    assert message is None
    assert len(errors) == 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=8,
    ),
    st.sampled_from(["name", "edsClusterConfig", "loadAssignment", "metadata", "type", "filters"]),
)
def test_random_values_give_a_message_or_one_error(value: object, field: str) -> None:
    message, errors = parse(CLUSTER, {field: value})
    assert (message is None) == (len(errors) == 1)
