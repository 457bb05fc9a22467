"""Unit tests of proxyless.controlplane.positions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.controlplane.positions import Position, Positions, add_position, split_position

YAML = """\
first: 1
---
"@type": type.googleapis.com/some.Type
names:
- a
- {key: b,
   other: c}
maxSize: 3
inner: {"@type": x/some.Inner, deep: 1}
"dotted.key": &shared {x: 1}
copy: *shared
merged: {<<: *shared, y: 2}
"""

JSON = '{\n\t"a": [1, "two",\n\t\t{"b \\"c": null}],\n\t"d": {}\n}'


@pytest.mark.parametrize(
    ("path", "position"),
    [
        ("[0].first", (1, 1)),
        ("[1].names", (4, 1)),
        ("[1].names[0]", (5, 3)),
        ("[1].names[1].other", (7, 4)),
        ("[1].max_size", (8, 1)),
        ('[1].inner["some.Inner"].deep', (9, 32)),
        ('[1]["dotted.key"].x', (10, 24)),
        ("[1].copy.x", (10, 24)),
        ("[1].merged.x", (10, 24)),
        ("[1].merged.y", (12, 23)),
    ],
)
def test_position_of_a_yaml_value_is_that_of_its_key(path: str, position: tuple[int, int]) -> None:
    assert Positions.of(YAML).find(path) == position


@pytest.mark.parametrize(
    ("path", "position"),
    [
        ("[0]", (1, 1)),
        ("[0].a", (2, 2)),
        ("[0].a[1]", (2, 11)),
        ('[0].a[2]["b \\"c"]', (3, 4)),
        ("[0].d", (4, 2)),
    ],
)
def test_position_of_a_json_value_is_that_of_its_key(path: str, position: tuple[int, int]) -> None:
    json.loads(JSON)
    assert Positions.of(JSON, is_json=True).find(path) == position


@pytest.mark.parametrize(
    "document", ["a: 1\nb: 2\n", "- 1\n- 2\n", "a: 1\nb:\n- c: [1, 2, 3, 4]\n"]
)
def test_each_of_many_yaml_documents_has_its_own_positions(document: str) -> None:
    text = f"---\n{document}"
    documents = Positions.of(text * 1000).documents
    lines = len(text.splitlines())
    assert [each.position.line for each in documents] == [n * lines + 2 for n in range(1000)]


def test_position_of_a_missing_value_is_that_of_the_value_around_it() -> None:
    positions = Positions.of(YAML)
    assert positions.find("[1].names[1].missing.deeper") == (6, 3)
    assert positions.find("[7].names") is None
    assert positions.find("") is None


@pytest.mark.parametrize(("text", "is_json"), [("a: [", False), ("{", True), ("", True)])
def test_invalid_text_has_no_positions(text: str, *, is_json: bool) -> None:
    assert Positions.of(text, is_json=is_json).find("[0]") is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 2, "\t"]))
def test_each_value_of_any_json_text_is_found(value: object, indent: int | str | None) -> None:
    text = json.dumps(value, indent=indent)
    lines = text.split("\n")
    to_visit = [("[0]", value)]
    positions = Positions.of(text, is_json=True)
    while to_visit:
        path, inner = to_visit.pop()
        position = positions.find(path)
        assert position is not None
        assert lines[position.line - 1][position.column - 1].strip()
        if isinstance(inner, list):
            to_visit += [(f"{path}[{index}]", each) for index, each in enumerate(inner)]
        elif isinstance(inner, dict):
            to_visit += [(f"{path}[{json.dumps(key)}]", each) for key, each in inner.items()]


def test_position_in_an_error_text_is_split_off_again() -> None:
    text = add_position(Position(3, 14), "is 1, wanted 2")
    assert text == "line 3, column 14: is 1, wanted 2"
    assert split_position(text) == ((3, 14), "is 1, wanted 2")
    assert split_position(add_position(None, "is 1")) == (None, "is 1")
