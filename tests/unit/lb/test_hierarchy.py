"""Unit tests of proxyless.lb.hierarchy.

Requirements A56-13 to A56-19 are claimed by the tests of the policies that use it.
"""

from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import EMPTY_ATTRIBUTES, Endpoint, Key
from proxyless.lb.hierarchy import NO_SPLIT, Path, path_of, split_by_child, with_path
from tests.worlds.policies import Name, endpoint, unavailable

WEIGHT = Key[int]("weight")


def at(name: Name, *path: str) -> Endpoint:
    return with_path(endpoint(name), path)


def test_split_of_the_a56_example_gives_one_address_per_leaf() -> None:
    top = split_by_child(
        (
            at("a", "child0", "A"),
            at("b", "child0", "B"),
            at("c", "child1", "C"),
            at("d", "child1", "D"),
        )
    )
    leaves = {}
    for child, names in (("child0", "AB"), ("child1", "CD")):
        below = split_by_child(top.endpoints_of(child))
        leaves.update({name: below.endpoints_of(name) for name in names})
    assert leaves == {
        "A": (endpoint("a"),),
        "B": (endpoint("b"),),
        "C": (endpoint("c"),),
        "D": (endpoint("d"),),
    }


def test_split_removes_the_first_name_of_the_path() -> None:
    [below] = _endpoints(at("a", "x", "y", "z"), "x")
    assert path_of(below) == ("y", "z")
    [leaf] = _endpoints(at("a", "x"), "x")
    assert path_of(leaf) == ()
    assert leaf == endpoint("a")


def test_split_leaves_out_endpoints_without_a_path() -> None:
    split = split_by_child((endpoint("a"), at("b"), at("c", "other"), at("d", "x")))
    assert split.endpoints_of("x") == (endpoint("d"),)
    assert set(split.children) == {"x", "other"}


def test_split_returns_an_empty_list_for_an_unknown_child() -> None:
    assert split_by_child((at("a", "x"),)).endpoints_of("y") == ()
    assert split_by_child(()).endpoints_of("y") == ()


def test_split_returns_the_resolver_error_for_every_child() -> None:
    error = unavailable("no such host")
    assert split_by_child(error).endpoints_of("x") is error
    assert split_by_child(error).endpoints_of("y") is error


def test_split_keeps_order_and_other_attributes() -> None:
    heavy = Endpoint(endpoint("b").addresses, EMPTY_ATTRIBUTES.with_(WEIGHT, 7))
    given_endpoints = (at("c", "x"), with_path(heavy, ("x",)), at("d", "y"), at("a", "x"))
    copies = tuple(Endpoint(each.addresses, each.attributes) for each in given_endpoints)
    assert split_by_child(given_endpoints).endpoints_of("x") == (
        endpoint("c"),
        heavy,
        endpoint("a"),
    )
    assert given_endpoints == copies
    assert path_of(given_endpoints[0]) == ("x",)


def test_split_reuses_unchanged_endpoints_of_the_previous_split() -> None:
    first, second, third = at("a", "x"), at("b", "x"), at("c", "x")
    before = split_by_child((first, second))
    after = split_by_child((second, third, first), before)
    [old_first, old_second] = _tuple(before.endpoints_of("x"))
    [new_second, _, new_first] = _tuple(after.endpoints_of("x"))
    assert new_first is old_first
    assert new_second is old_second


PATHS = st.lists(st.sampled_from("xyz"), max_size=2).map(tuple)
LISTS = st.lists(st.tuples(st.sampled_from("abc"), PATHS), max_size=6)


@given(LISTS, LISTS)
def test_split_does_not_depend_on_the_previous_split(
    first: list[tuple[Name, Path]], second: list[tuple[Name, Path]]
) -> None:
    before = split_by_child(tuple(at(name, *path) for name, path in first))
    endpoints = tuple(at(name, *path) for name, path in second)
    assert split_by_child(endpoints, before).children == split_by_child(endpoints).children
    assert split_by_child(endpoints, NO_SPLIT).children == split_by_child(endpoints).children


def _endpoints(given_endpoint: Endpoint, child: str) -> tuple[Endpoint, ...]:
    return _tuple(split_by_child((given_endpoint,)).endpoints_of(child))


def _tuple(endpoints: object) -> tuple[Endpoint, ...]:
    assert isinstance(endpoints, tuple)
    return endpoints
