"""Unit tests of proxyless.controlplane.missing."""

from proxyless.controlplane import LISTENER
from proxyless.controlplane.missing import NAMES_SHOWN_MAX, RequestedNames, find_missing


def test_missing_names_are_shown_with_those_that_are_there() -> None:
    found = find_missing("edge-7", LISTENER, {"order", "web"}, {"orders": 1, "web": 2})
    assert str(found) == (
        "xds node 'edge-7' requested listener \"order\", which is not here; "
        'there are "orders", "web"'
    )


def test_nothing_is_missing_when_all_names_have_resources() -> None:
    assert find_missing("edge-7", LISTENER, {"web"}, {"web": 1}) is None


def test_text_shows_that_there_is_no_resource_of_the_type() -> None:
    found = find_missing("edge-7", LISTENER, {"web"}, {})
    assert str(found).endswith("; there is no listener")


def test_text_is_bounded_and_escaped() -> None:
    names = {f"n{number:04}" for number in range(5_000)}
    text = str(find_missing("a\n" * 9_999, LISTENER, {"x\n\x1b"}, dict.fromkeys(names)))
    assert f'"n0009" and {5_000 - NAMES_SHOWN_MAX} more' in text
    assert "n0010" not in text
    assert "\n" not in text
    assert "\x1b" not in text
    assert len(text) < 2_000


def test_only_new_names_of_a_type_are_returned() -> None:
    requested = RequestedNames()
    assert requested.update("t", frozenset({"a", "b"})) == {"a", "b"}
    assert requested.update("t", frozenset({"a", "b"})) == frozenset()
    assert requested.update("t", frozenset({"b", "c"})) == {"c"}
    assert requested.update("u", frozenset({"a"})) == {"a"}
    # It was removed from the subscription and added again.
    assert requested.update("t", frozenset({"a"})) == {"a"}


def test_collection_with_members_is_not_missing() -> None:
    names = ["xdstp://mesh/T/web/*", "xdstp://mesh/T/none/*"]
    found = find_missing("n", "T", names, {"xdstp://mesh/T/web/1": None})
    assert found is not None
    assert found.names == (names[1],)
