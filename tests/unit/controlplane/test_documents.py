"""Unit tests of proxyless.controlplane.documents."""

import json

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
    """The place and name of each resource of a text that is good."""
    errors = ValidationErrors()
    found = parse_documents(text, errors, is_json=is_json)
    assert errors.ok, str(errors)
    return [(place, resource.name) for place, resource in found]


def complaint(text: str, *, is_json: bool = False) -> str:
    """What is said about a text that is bad."""
    errors = ValidationErrors()
    parse_documents(text, errors, is_json=is_json)
    return str(errors)


# What a file may hold


def test_a_document_is_a_resource() -> None:
    text = f'"@type": {CLUSTER}\nname: a\nconnect_timeout: 1.5s\nlbPolicy: RANDOM\n'
    [(_, resource)] = parse_documents(text, ValidationErrors())
    message = resource.message()
    assert message.connect_timeout.ToMilliseconds() == 1500
    assert message.lb_policy == message.RANDOM


def test_a_document_is_a_list_of_resources() -> None:
    text = f'- {{"@type": {CLUSTER}, name: a}}\n- {{"@type": {CLUSTER}, name: b}}\n'
    assert names(text) == [("[0][0]", "a"), ("[0][1]", "b")]


def test_a_document_holds_a_list_of_resources_as_envoys_files_do() -> None:
    text = f'version_info: "1"\nresources:\n- {{"@type": {CLUSTER}, name: a}}\n'
    assert names(text) == [("[0].resources[0]", "a")]


def test_a_file_holds_several_documents_and_empty_ones_do_not_count() -> None:
    one = f'"@type": {CLUSTER}\nname: '
    assert names(f"{one}a\n---\n---\n{one}b\n---\n") == [("[0]", "a"), ("[2]", "b")]
    assert names("") == []
    assert names("# nothing yet\n") == []


def test_a_file_is_json() -> None:
    text = json.dumps({"resources": [{"@type": CLUSTER, "name": "a"}]}, indent="\t")
    assert names(text, is_json=True) == [("[0].resources[0]", "a")]


def test_documents_that_are_no_resources_can_be_loaded_with_the_same_care() -> None:
    errors = ValidationErrors()
    assert load_documents("a: 1\n---\n- b\n", errors) == [{"a": 1}, ["b"]]
    assert load_documents('{"a": 1}', errors, is_json=True) == [{"a": 1}]
    assert errors.ok
    assert load_documents("a: b: c", errors) == []
    assert list(errors.items()) == [
        ("", "line 1, column 5: mapping values are not allowed in this context")
    ]


def test_aliases_are_written_out() -> None:
    text = f'- &first {{"@type": {CLUSTER}, name: a, type: EDS}}\n- <<: *first\n  name: b\n'
    found = parse_documents(text, ValidationErrors())
    assert [resource.message().type for _, resource in found] == [3, 3]


def test_what_our_builders_make_survives_a_file() -> None:
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


# What is wrong, and where


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"nam": "a"}, "[field:[0].nam error:there is no such field]"),
        ({"name": "a", "lb_policy": "MAGIC"}, "[field:[0].lb_policy error:Invalid enum value"),
        (
            {"name": "a", "loadAssignment": {"endpoints": [{}, {"lbEndpoints": [{"x": 1}]}]}},
            "[field:[0].loadAssignment.endpoints[1].lbEndpoints[0].x error:there is no such field]",
        ),
        ({"name": "a", "connectTimeout": "soon"}, "[field:[0].connectTimeout error:Duration"),
        (
            {"name": "a", "clusterType": {"typedConfig": {"@type": "x/no.Such", "y": 1}}},
            "[field:[0].clusterType.typedConfig error:",
        ),
        ({"name": "a", "type": float("inf")}, "[field:[0] error:cannot convert float infinity"),
        ({"name": 3}, "[field:[0].name error:"),
        ({}, "[field:[0] error:cluster has no name, wanted one to be asked for by]"),
    ],
)
def test_a_bad_field_is_named_by_its_path(fields: dict[str, object], said: str) -> None:
    # The reasons are protobuf's words, and may change.
    document = {"@type": CLUSTER, **fields}
    assert complaint(yaml.safe_dump(document)).startswith(said)
    assert complaint(json.dumps(document), is_json=True).startswith(said)


def test_a_bad_field_inside_an_any_is_named_by_its_path() -> None:
    manager = {"@type": HCM, "rdss": {}}
    document = {
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": "api",
        "apiListener": {"apiListener": manager},
    }
    assert complaint(json.dumps(document)) == (
        "[field:[0].apiListener.apiListener.rdss error:there is no such field]"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "[field:[0][0] error:is 1, wanted a resource with its '@type']"),
        ("name: a", "[field:[0] error:is a mapping without '@type', wanted a resource with its"),
        ("resources: {}", "[field:[0].resources error:is a mapping, wanted a list of resources]"),
        ("resources: []\nx: 1", "[field:[0] error:has 'x' beside 'resources']"),
        ("text", "[field:[0] error:is 'text', wanted a resource with its '@type']"),
        ('"@type": a/no.Such', "[field:[0] error:@type 'a/no.Such' is not known]"),
        ("a: [b\nc: d", "[error:line 2, column 2: did not find expected ',' or ']'"),
        ("a: !!python/object:os.system {}", "could not determine a constructor for the tag"),
        ("a\0b", "[error:"),
    ],
)
def test_what_is_no_resource_is_refused(text: str, said: str) -> None:
    assert said in complaint(text)


def test_bad_json_is_refused_with_its_place() -> None:
    assert "line 1 column 2" in complaint("{", is_json=True)


def test_every_bad_document_is_named() -> None:
    said = complaint(f'"@type": {CLUSTER}\n---\nx: 1\n---\n"@type": {CLUSTER}\nname: a\n')
    assert "field:[0] " in said
    assert "field:[1] " in said
    assert "field:[2] " not in said


# Files that mean harm


def test_a_bomb_of_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert complaint("\n".join(lines)) == (
        f"[error:has more than {NODES_MAX} values, aliases written out]"
    )


def test_a_value_inside_itself_is_refused() -> None:
    assert "aliases written out" in complaint("&a [*a]")


def test_a_bomb_of_merged_mappings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are the same, so little would be left of them, after a long time."""
    monkeypatch.setattr(documents_module, "NODES_MAX", 5_000)
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 30)]
    assert complaint("\n".join(lines)) == (
        "[error:line 4, column 5: more than 5000 keys are merged]"
    )


@pytest.mark.parametrize("tag", ["", "!!pairs "])
def test_a_long_text_counts_as_often_as_it_is_referred_to(tag: str) -> None:
    items = ", ".join(["k: *a" if tag else "*a"] * (TEXT_MAX // 1_000_000 + 1))
    text = f"- &a {'x' * 1_000_000}\n- {tag}[{items}]\n"
    assert complaint(text) == f"[error:has more than {TEXT_MAX} characters, aliases written out]"


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_what_would_end_the_stack_of_the_thread_is_refused(opening: str) -> None:
    assert complaint(opening * 100_000) == "[error:is nested too deeply]"


@pytest.mark.parametrize("value", ["!!bool maybe", "!!int ''", "!!float ''", "!!timestamp soon"])
def test_a_tag_that_does_not_fit_its_value_is_refused(value: str) -> None:
    assert "[error:has a value that its tag does not fit: " in complaint(f"a: {value}")


def test_a_type_that_is_no_unicode_is_refused() -> None:
    said = complaint('{"@type": "\\ud800"}', is_json=True)
    assert said == "[field:[0] error:@type '\\ud800' is not known]"


def test_a_long_value_is_not_searched_for_paths() -> None:
    """Every way to read it would be tried, which are as many as its length squared."""
    said = complaint(f'"@type": {CLUSTER}\nlb_policy: x at {"a" * 1_000_000} b\n')
    assert said.startswith("[field:[0].lb_policy error:Invalid enum value x at aaa")
    assert len(said) < 1_000


@pytest.mark.parametrize("is_json", [False, True])
def test_deep_nesting_is_refused(is_json: bool) -> None:
    assert complaint("[" * 5_000 + "]" * 5_000, is_json=is_json) != "[]"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=8,
    ),
    st.sampled_from(["@type", "name", "edsClusterConfig", "loadAssignment", "metadata", "type"]),
)
def test_any_value_in_any_place_is_taken_or_refused(value: object, field: str) -> None:
    document = {"@type": CLUSTER, "name": "a", field: value}
    errors = ValidationErrors()
    found = parse_documents(yaml.dump([document, value]), errors)
    assert len(found) <= 2


def test_a_good_resource_is_the_same_as_the_built_one() -> None:
    text = f'{{"@type": {CLUSTER}, name: a, type: EDS, connectTimeout: 5s, edsClusterConfig: '
    text += "{edsConfig: {ads: {}, resourceApiVersion: V3}}}"
    [(_, resource)] = parse_documents(text, ValidationErrors())
    assert resource.message() == eds_cluster("a")


# What would be overlooked, or would never end


@pytest.mark.parametrize("is_json", [False, True])
def test_a_key_that_stands_there_twice_is_an_error(is_json: bool) -> None:
    text = f'{{"@type": "{CLUSTER}",\n "name": "a",\n "name": "b"}}'
    where = "" if is_json else "line 3, column 2: "
    assert complaint(text, is_json=is_json) == f"[error:{where}key 'name' is there twice]"


def test_a_key_may_stand_in_what_is_merged_too() -> None:
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
def test_a_number_has_an_end(number: str) -> None:
    text = f'"@type": {CLUSTER}\nname: a\nconnect_timeout: {number}\n'
    what = "line 3, column 18: a number has more than 300 characters"
    assert complaint(text) == f"[error:{what}]"


def test_what_has_too_many_values_is_not_even_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take a minute and gigabytes to load eight megabytes of them."""
    monkeypatch.setattr(documents_module, "NODES_MAX", 10)
    monkeypatch.setattr(yaml, "load_all", lambda *_: pytest.fail("it was loaded"))
    assert complaint("[" + "a," * 20 + "a]") == "[error:has more than 10 values]"
