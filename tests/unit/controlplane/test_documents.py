"""Unit tests of proxyless.controlplane.documents."""

import json
import re

import pytest
import yaml
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import ValidationErrors
from proxyless.controlplane import documents as documents_module
from proxyless.controlplane import eds_cluster, simple_mesh
from proxyless.controlplane.documents import (
    NODES_MAX,
    TEXT_MAX,
    load_documents,
    parse_documents,
)
from proxyless.protos import descriptor_pool_of_envoy

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
HCM = (
    "type.googleapis.com/"
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)


def names(text: str, *, is_json: bool = False) -> list[tuple[str, str]]:
    """The path and name of each resource of a valid text."""
    errors = ValidationErrors()
    found = parse_documents(text, errors, is_json=is_json)
    assert errors.ok, str(errors)
    return [(place, resource.name) for place, resource in found]


def error_of(text: str, *, is_json: bool = False) -> str:
    """The errors of an invalid text; those of fields without their lines and columns."""
    errors = ValidationErrors()
    parse_documents(text, errors, is_json=is_json)
    return re.sub(r"(field:.*? error:)line \d+, column \d+: ", r"\1", str(errors))


# Contents of a file


@pytest.mark.parametrize("is_json", [False, True])
def test_error_of_a_field_has_its_line_and_column(*, is_json: bool) -> None:
    text = f'[{{"@type": "{CLUSTER}",\n  "nam": 1}}]'
    errors = ValidationErrors()
    parse_documents(text, errors, is_json=is_json)
    assert str(errors) == "[field:[0][0].nam error:line 2, column 3: there is no such field]"


def test_document_may_be_in_the_short_form_beside_others() -> None:
    text = f'clusters: {{b: {{endpoints: ["10.0.0.1:80"]}}}}\n---\n"@type": {CLUSTER}\nname: a\n'
    assert names(text) == [
        ('[0].clusters["b"]', "b"),
        ('[0].clusters["b"].endpoints', "b"),
        ("[1]", "a"),
    ]


def test_document_may_be_a_resource() -> None:
    text = f'"@type": {CLUSTER}\nname: a\nconnect_timeout: 1.5s\nlbPolicy: RANDOM\n'
    [(_, resource)] = parse_documents(text, ValidationErrors())
    message = resource.message()
    assert message.connect_timeout.ToMilliseconds() == 1500
    assert message.lb_policy == message.RANDOM


def test_document_may_be_a_list_of_resources() -> None:
    text = f'- {{"@type": {CLUSTER}, name: a}}\n- {{"@type": {CLUSTER}, name: b}}\n'
    assert names(text) == [("[0][0]", "a"), ("[0][1]", "b")]


def test_document_may_have_resources_in_the_format_of_envoy() -> None:
    text = f'version_info: "1"\nresources:\n- {{"@type": {CLUSTER}, name: a}}\n'
    assert names(text) == [("[0].resources[0]", "a")]


def test_file_may_have_several_documents_and_empty_ones() -> None:
    one = f'"@type": {CLUSTER}\nname: '
    assert names(f"{one}a\n---\n---\n{one}b\n---\n") == [("[0]", "a"), ("[2]", "b")]
    assert names("") == []
    assert names("# nothing yet\n") == []


def test_file_may_be_json() -> None:
    text = json.dumps({"resources": [{"@type": CLUSTER, "name": "a"}]}, indent="\t")
    assert names(text, is_json=True) == [("[0].resources[0]", "a")]


def test_load_documents_does_not_need_resources() -> None:
    errors = ValidationErrors()
    assert load_documents("a: 1\n---\n- b\n", errors) == [{"a": 1}, ["b"]]
    assert load_documents('{"a": 1}', errors, is_json=True) == [{"a": 1}]
    assert errors.ok
    assert load_documents("a: b: c", errors) == []
    assert list(errors.items()) == [
        ("", "line 1, column 5: mapping values are not allowed in this context")
    ]


def test_aliases_and_merges_are_expanded() -> None:
    text = f'- &first {{"@type": {CLUSTER}, name: a, type: EDS}}\n- <<: *first\n  name: b\n'
    found = parse_documents(text, ValidationErrors())
    assert [resource.message().type for _, resource in found] == [3, 3]


def test_resources_of_builders_are_equal_after_a_round_trip() -> None:
    snapshot = simple_mesh("api", {"a": ["10.0.0.1:80"], "b": []})
    pool = descriptor_pool_of_envoy()
    documents = [
        {
            "@type": resource.type_url,
            **json_format.MessageToDict(resource.message(), descriptor_pool=pool),
        }
        for resource in snapshot
    ]
    plain = json.loads(json.dumps(documents))
    for text in (yaml.safe_dump_all(plain), json.dumps(plain)):
        found = parse_documents(text, ValidationErrors())
        assert [resource for _, resource in found] == list(snapshot)


# Errors


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"nam": "a"}, "[field:[0].nam error:there is no such field]"),
        (
            {"name": "a", "lb_policy": "MAGIC"},
            "[field:[0].lb_policy error:is 'MAGIC', wanted one of ROUND_ROBIN, LEAST_REQUEST, ",
        ),
        (
            {"name": "a", "loadAssignment": {"endpoints": [{}, {"lbEndpoints": [{"x": 1}]}]}},
            "[field:[0].loadAssignment.endpoints[1].lbEndpoints[0].x error:there is no such field]",
        ),
        (
            {"name": "a", "connectTimeout": "soon"},
            "[field:[0].connectTimeout error:is 'soon', wanted a duration such as '1.5s']",
        ),
        (
            {"name": "a", "clusterType": {"typedConfig": {"@type": "x/no.Such", "y": 1}}},
            "[field:[0].clusterType.typedConfig error:@type 'x/no.Such' is not known]",
        ),
        ({"name": "a", "type": float("inf")}, "[field:[0].type error:is inf, wanted one of "),
        ({"name": 3}, "[field:[0].name error:is 3, wanted string]"),
        ({}, "[field:[0] error:cluster has no name, wanted one that clients subscribe to]"),
    ],
)
def test_invalid_field_is_an_error_at_its_path(fields: dict[str, object], error: str) -> None:
    document = {"@type": CLUSTER, **fields}
    assert error_of(yaml.safe_dump(document)).startswith(error)
    assert error_of(json.dumps(document), is_json=True).startswith(error)


def test_invalid_field_in_an_any_is_an_error_at_its_path() -> None:
    manager = {"@type": HCM, "rdss": {}}
    document = {
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": "api",
        "apiListener": {"apiListener": manager},
    }
    assert error_of(json.dumps(document)) == (
        "[field:[0].apiListener.apiListener.rdss error:there is no such field]"
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[1]", "[field:[0][0] error:is 1, wanted a resource with its '@type']"),
        (
            "listeners: 5",
            "wanted a resource with its '@type', or 'service' or 'clusters' of the short form]",
        ),
        ("resources: {}", "[field:[0].resources error:is a mapping, wanted a list of resources]"),
        ("resources: []\nx: 1", "[field:[0] error:has 'x' beside 'resources']"),
        ("text", "[field:[0] error:is 'text', wanted a resource with its '@type', or"),
        ('"@type": a/no.Such', "[field:[0] error:@type 'a/no.Such' is not known]"),
        ("a: [b\nc: d", "[error:line 2, column 2: did not find expected ',' or ']'"),
        ("a: !!python/object:os.system {}", "could not determine a constructor for the tag"),
        ("a\0b", "[error:"),
    ],
)
def test_document_that_is_no_resource_is_rejected(text: str, error: str) -> None:
    assert error in error_of(text)


def test_invalid_json_is_an_error_with_its_line() -> None:
    assert "line 1, column 2: is not JSON: Expecting property name" in error_of("{", is_json=True)


def test_errors_of_all_documents_are_reported() -> None:
    error = error_of(f'"@type": {CLUSTER}\n---\nx: 1\n---\n"@type": {CLUSTER}\nname: a\n')
    assert "field:[0] " in error
    assert "field:[1] " in error
    assert "field:[2] " not in error


# Malicious files


def test_exponential_aliases_are_rejected() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert error_of("\n".join(lines)) == (
        f"[error:has more than {NODES_MAX} values, aliases written out]"
    )


def test_value_that_contains_itself_is_rejected() -> None:
    assert "aliases written out" in error_of("&a [*a]")


def test_exponential_merges_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys are equal, so the result is small, but merging takes long."""
    monkeypatch.setattr(documents_module, "NODES_MAX", 5_000)
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 30)]
    assert error_of("\n".join(lines)) == (
        "[error:line 4, column 5: more than 5000 keys are merged]"
    )


@pytest.mark.parametrize("tag", ["", "!!pairs "])
def test_long_string_counts_once_per_reference(tag: str) -> None:
    items = ", ".join(["k: *a" if tag else "*a"] * (TEXT_MAX // 1_000_000 + 1))
    text = f"- &a {'x' * 1_000_000}\n- {tag}[{items}]\n"
    assert error_of(text) == f"[error:has more than {TEXT_MAX} characters, aliases written out]"


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_nesting_that_would_overflow_the_stack_is_rejected(opening: str) -> None:
    assert error_of(opening * 100_000) == "[error:is nested too deeply]"


@pytest.mark.parametrize("value", ["!!bool maybe", "!!int ''", "!!float ''", "!!timestamp soon"])
def test_tag_that_does_not_fit_its_value_is_rejected(value: str) -> None:
    assert "[error:has a value that its tag does not fit: " in error_of(f"a: {value}")


def test_type_that_is_not_unicode_is_rejected() -> None:
    error = error_of('{"@type": "\\ud800"}', is_json=True)
    assert error == "[field:[0] error:@type '\\ud800' is not known]"


def test_long_value_is_shortened_in_the_error() -> None:
    error = error_of(f'"@type": {CLUSTER}\nlb_policy: x at {"a" * 1_000_000} b\n')
    assert error.startswith("[field:[0].lb_policy error:is 'x at aaa")
    assert len(error) < 1_000


@pytest.mark.parametrize("is_json", [False, True])
def test_deep_nesting_is_rejected(is_json: bool) -> None:
    assert error_of("[" * 5_000 + "]" * 5_000, is_json=is_json) != "[]"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=8,
    ),
    st.sampled_from(["@type", "name", "edsClusterConfig", "loadAssignment", "metadata", "type"]),
)
def test_random_values_give_a_resource_or_an_error(value: object, field: str) -> None:
    document = {"@type": CLUSTER, "name": "a", field: value}
    errors = ValidationErrors()
    found = parse_documents(yaml.dump([document, value]), errors)
    assert len(found) <= 2


def test_parsed_resource_is_equal_to_the_built_one() -> None:
    text = f'{{"@type": {CLUSTER}, name: a, type: EDS, connectTimeout: 5s, edsClusterConfig: '
    text += "{edsConfig: {ads: {}, resourceApiVersion: V3}}}"
    [(_, resource)] = parse_documents(text, ValidationErrors())
    assert resource.message() == eds_cluster("a")


# Repeated keys and long numbers


@pytest.mark.parametrize("is_json", [False, True])
def test_repeated_key_is_an_error(is_json: bool) -> None:
    text = f'{{"@type": "{CLUSTER}",\n "name": "a",\n "name": "b"}}'
    where = "" if is_json else "line 3, column 2: "
    assert error_of(text, is_json=is_json) == f"[error:{where}key 'name' is there twice]"


def test_key_may_override_a_merged_one() -> None:
    text = f"""
- &a {{"@type": {CLUSTER}, name: a}}
- {{<<: *a, name: b}}
- {{<<: *a, <<: {{name: unused}}, name: c}}
- *a
"""
    errors = ValidationErrors()
    (found,) = load_documents(text, errors)
    assert errors.ok, str(errors)
    assert [each["name"] for each in found] == ["a", "b", "c", "a"]


@pytest.mark.parametrize(
    "number",
    ["0x" + "f" * 5000, "1" + ":0" * 500_000, "1" + ":0" * 500_000 + ".5", "9" * 5000],
    ids=["longer than Python shows", "sexagesimal", "sexagesimal fraction", "decimal"],
)
def test_too_long_number_is_rejected(number: str) -> None:
    text = f'"@type": {CLUSTER}\nname: a\nconnect_timeout: {number}\n'
    what = "line 3, column 18: a number has more than 300 characters"
    assert error_of(text) == f"[error:{what}]"


def test_too_many_values_are_rejected_before_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading eight megabytes of them would take a minute and gigabytes."""
    monkeypatch.setattr(documents_module, "NODES_MAX", 10)
    monkeypatch.setattr(yaml, "load_all", lambda *_: pytest.fail("it was loaded"))
    assert error_of("[" + "a," * 20 + "a]") == "[error:has more than 10 values]"
