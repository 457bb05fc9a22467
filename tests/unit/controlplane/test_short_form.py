"""Unit tests of proxyless.controlplane.short_form: its resources are those of the builders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from proxyless.base import ValidationErrors
from proxyless.controlplane import Resource
from proxyless.controlplane.documents import parse_documents
from proxyless.controlplane.short_form import (
    expand_document,
    is_short_form,
    short_form_schema,
)
from tests.worlds.lint import lint_errors
from tests.worlds.short_form_mesh import make_mesh

if TYPE_CHECKING:
    from collections.abc import Iterator

FIXTURES = Path("tests/fixtures/short_form")


def load(name: str) -> dict[tuple[str, str], bytes]:
    """The resources of a valid file, by type and name."""
    errors = ValidationErrors()
    found = parse_documents((FIXTURES / name).read_text(), errors)
    assert errors.ok, str(errors)
    return {(each.type_url, each.name): each.value for _, each in found}


def errors_of(document: object) -> list[str]:
    errors = ValidationErrors()
    assert isinstance(document, dict)
    list(expand_document(document, errors))
    return [f"{path}: {text}" for path, text in errors.items()]


def test_short_mesh_has_the_bytes_of_the_raw_one_in_a_quarter_of_its_lines() -> None:
    assert load("orders.yaml") == load("orders_raw.yaml")
    short, raw = (
        len((FIXTURES / name).read_text().splitlines())
        for name in ("orders.yaml", "orders_raw.yaml")
    )
    assert short <= 25
    assert raw >= 81


# The same mesh from Python


def test_document_and_builders_make_the_same_resources() -> None:
    made = {(each.type_url, each.name): each.value for each in map(Resource.of, make_mesh())}
    assert load("every_key.yaml") == made


def test_client_accepts_a_document_with_every_key() -> None:
    assert lint_errors(make_mesh()) == []


def test_fixture_of_that_mesh_has_every_key_of_the_schema() -> None:
    text = (FIXTURES / "every_key.yaml").read_text()
    used = set(_list_keys(yaml.safe_load(text)))
    known = set(_list_properties(short_form_schema()))
    assert known - used == set()


def _list_keys(value: Any) -> Iterator[str]:  # noqa: ANN401 - any YAML value
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from _list_keys(inner)


def _list_properties(schema: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
    for inner in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(inner, dict | list):
            yield from _list_properties(inner)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("pick_first", "PickFirst"),
        ("random", "Random"),
        ("weighted_round_robin", "ClientSideWeightedRoundRobin"),
    ],
)
def test_policy_without_options_is_a_word(policy: str, text: str) -> None:
    document = {"clusters": {"a": {"policy": policy}}}
    [(_, cluster)] = expand_document(document, ValidationErrors())
    assert text in str(cluster.message().load_balancing_policy)


# Errors


@pytest.mark.parametrize(
    ("document", "is_short"),
    [
        ({"service": "a"}, True),
        ({"clusters": {}}, True),
        ({"routes": []}, True),
        ({"name": "a"}, False),
        (["service"], False),
        ("service", False),
    ],
)
def test_document_is_in_the_short_form_if_it_has_one_of_its_keys(
    document: object, *, is_short: bool
) -> None:
    assert is_short_form(document) is is_short


def test_port_is_checked() -> None:
    [error] = errors_of({"clusters": {"a": {"dns": "host:70000"}}})
    assert error == "clusters[\"a\"].dns: is 'host:70000', wanted a port up to 65535"


def test_address_is_checked_at_its_path() -> None:
    zones = [{"zone": "a", "addresses": ["10.0.0.1:80", "nowhere", {"address": "10.0.0.2"}]}]
    paths = [
        error.partition(": ")[0] for error in errors_of({"clusters": {"a": {"endpoints": zones}}})
    ]
    assert paths == [
        'clusters["a"].endpoints[0].addresses[1]',
        'clusters["a"].endpoints[0].addresses[2]',
    ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["10.0.0.1:80", {"zone": "a", "addresses": []}], "has addresses beside zones"),
        ([{"zone": "a", "addresses": []}] * 2, "is the same locality as one before it"),
    ],
)
def test_endpoints_are_addresses_or_different_zones(given: list[Any], text: str) -> None:
    [error] = errors_of({"clusters": {"a": {"endpoints": given}}})
    assert text in error


def test_invalid_document_has_no_resources() -> None:
    document = {"service": "a", "routes": [{"to": "b"}], "clusters": {"b": {"x": 1}}}
    errors = ValidationErrors()
    assert list(expand_document(document, errors)) == []
    assert errors.count == 1
