"""Unit tests of proxyless.controlplane.short_form.schema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import StatusCode, ValidationErrors
from proxyless.controlplane.short_form import expand_document, short_form_schema
from proxyless.controlplane.short_form.schema import check_document


def errors_of(document: object) -> list[str]:
    errors = ValidationErrors()
    check_document(document, errors)
    return [f"{path}: {text}" if path else text for path, text in errors.items()]


def errors_of_route(**keys: object) -> list[str]:
    found = errors_of({"service": "a", "routes": [{"to": "a", **keys}]})
    return [error.removeprefix("routes[0].") for error in found]


def errors_of_cluster(**keys: object) -> list[str]:
    found = errors_of({"clusters": {"a": keys}})
    return [error.removeprefix('clusters["a"].') for error in found]


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({"service": "a"}, "has 'service' and no 'routes'"),
        ({"routes": [{"to": "a"}]}, "has 'routes' and no 'service'"),
        ({"clusters": {}}, "clusters: is empty, wanted a mapping of clusters by name"),
        ({"clusters": {"": {}}}, "clusters: has the key '', wanted a name"),
        ({"clusters": {"a": None}}, 'clusters["a"]: is nothing, wanted a cluster'),
        (
            {"clusters": {"a": {}}, "domains": ["x"]},
            "has 'domains' and no 'service'",
        ),
        ({"service": "a", "routes": []}, "routes: is an empty list, wanted a list of routes"),
        (
            {"service": "a", "routes": [{}]},
            "routes[0]: has no 'to'",
        ),
        (
            {"clusters": {"a": {}}, "cluster": 1},
            "cluster: is not known; the nearest key is 'clusters'",
        ),
        (
            {"clusters": {True: {}}},
            "clusters: has the key True, wanted a text: put it in quotes",
        ),
    ],
)
def test_error_of_a_document_names_the_key(document: object, error: str) -> None:
    assert error in errors_of(document)


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"to": 3}, "to: is 3, wanted a cluster, or a mapping of weights by cluster"),
        ({"to": {"a": -1}}, 'to["a"]: is -1, wanted a whole number'),
        ({"to": {"a": True}}, 'to["a"]: is True, wanted a whole number'),
        (
            {"timeout": "5 s"},
            "timeout: is '5 s', wanted a time such as 500ms, 1.5s, 1m30s or 2h",
        ),
        ({"timeout": -1}, "timeout: is -1, wanted a time such as 500ms, 1.5s, 1m30s or 2h"),
        ({"timeout": "5s\n"}, "timeout: is '5s\\n', wanted a time such as 500ms,"),
        ({"timeout": ""}, "timeout: is '', wanted a time such as 500ms, 1.5s, 1m30s or 2h"),
        ({"timeout": float("nan")}, "timeout: is nan, wanted a time such as 500ms,"),
        ({"retri": {}}, "retri: is not known; the nearest key is 'retry'"),
        ({"xyz": {}}, "xyz: is not known, wanted one of name, match, to, timeout"),
        ({"retry": {"times": 5}}, "retry.times: is 5, wanted a number from 1 to 4"),
        (
            {"retry": {"codes": ["unavailabel"]}},
            "retry.codes[0]: is 'unavailabel', wanted a code that gRPC retries: cancelled, dead",
        ),
        ({"retry": {"max_backoff": "1s"}}, "retry: has 'max_backoff' and no 'backoff'"),
        ({"fault": {}}, "fault: is empty, wanted a mapping"),
        ({"fault": {"abort": "OKAY"}}, "fault.abort: is 'OKAY', wanted a status code of gRPC: "),
        ({"fault": {"delay": 1, "delay_share": "101%"}}, "fault.delay_share: is '101%', wanted a"),
        ({"session": True}, "session: is True, wanted false"),
        ({"session": 0}, "session: is 0, wanted false"),
        ({"hash_on": {"channel": False}}, "hash_on.channel: is False, wanted another value"),
        (
            {"match": {"prefix": "/a", "path": "/b"}},
            "match.path: is set beside 'prefix', wanted one of them",
        ),
        (
            {"match": {"headers": {"x": True}}},
            'match.headers["x"]: is True, wanted a text in quotes, or a mapping with one condition',
        ),
        (
            {"match": {"headers": {"x": {"exact": "a", "prefix": "b"}}}},
            'match.headers["x"]: has 2 keys, wanted a mapping with one condition',
        ),
    ],
)
def test_error_of_a_route_has_the_value_and_what_was_wanted(
    keys: dict[str, object], error: str
) -> None:
    [found] = errors_of_route(**keys)
    assert found.startswith(error)


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"dns": "host"}, "dns: is 'host', wanted host:port"),
        ({"dns": "h:1", "endpoints": []}, "endpoints: is set beside 'dns', wanted one of them"),
        ({"aggregate": []}, "aggregate: is an empty list, wanted a list of clusters"),
        (
            {"aggregate": ["b"], "policy": "random"},
            "policy: is set beside 'aggregate', wanted one of them",
        ),
        (
            {"policy": "round-robin"},
            "policy: is 'round-robin', wanted an LB policy: round_robin, ring_hash, least_request",
        ),
        ({"policy": {"ring_hash": {"size": 1}}}, "policy.ring_hash.size: is not known; the near"),
        ({"drops": {"lb": "1%"}}, "clusters[\"a\"]: has 'drops' and no 'endpoints'"),
        ({"tls": {}}, "tls: has no 'roots'"),
        ({"circuit_breaker": {"max_requests": "x"}}, "circuit_breaker.max_requests: is 'x', want"),
        (
            {"outlier_detection": {"failure_percentage": {"threshold": 101}}},
            "outlier_detection.failure_percentage.threshold: is 101, wanted a number from 0 to 100",
        ),
    ],
)
def test_error_of_a_cluster_has_the_value_and_what_was_wanted(
    keys: dict[str, object], error: str
) -> None:
    [found] = errors_of_cluster(**keys)
    assert found.startswith(error)


def test_codes_of_the_schema_are_those_of_grpc() -> None:
    codes = short_form_schema()["$defs"]["code"]["enum"]
    assert codes == [code.name for code in StatusCode if code is not StatusCode.OK]


def _keys_of(value: Any) -> set[str]:  # noqa: ANN401 - any JSON
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = set(value) if isinstance(value, dict) else set()
    return own.union(*map(_keys_of, inner))


NAMES = sorted(_keys_of(short_form_schema()["properties"]) | {"a", "on", "/", "10.0.0.1:80"})
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([*NAMES, "1s", "5%"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.integers(), inner, max_size=4)
    ),
    max_leaves=15,
)


@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_any_document_has_errors_or_resources(
    route: object, cluster: object, session: object
) -> None:
    document = {"service": "a", "routes": [route], "clusters": {"b": cluster}, "session": session}
    errors = ValidationErrors()
    found = list(expand_document(document, errors))
    assert bool(found) or not errors.ok
