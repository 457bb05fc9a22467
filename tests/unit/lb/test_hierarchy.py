"""Unit tests of proxyless.lb.hierarchy.

Requirements A56-13 to A56-19 are claimed by the tests of the policies that use it.
"""

from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import EMPTY_ATTRIBUTES, Endpoint, Key
from proxyless.lb.hierarchy import NO_SPLIT, Path, path_of, split_by_child, with_path
from tests.spec.lb_world import Name, endpoint, unavailable

WEIGHT = Key[int]("weight")


def at(name: Name, *path: str) -> Endpoint:
    return with_path(endpoint(name), path)


def test_the_example_of_the_grfc_ends_with_one_address_per_leaf() -> None:
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
        below = split_by_child(top.of(child))
        leaves.update({name: below.of(name) for name in names})
    assert leaves == {
        "A": (endpoint("a"),),
        "B": (endpoint("b"),),
        "C": (endpoint("c"),),
        "D": (endpoint("d"),),
    }


def test_a_child_sees_the_rest_of_the_path_down_to_an_empty_one() -> None:
    [below] = _endpoints(at("a", "x", "y", "z"), "x")
    assert path_of(below) == ("y", "z")
    [leaf] = _endpoints(at("a", "x"), "x")
    assert path_of(leaf) == ()
    assert leaf == endpoint("a")


def test_endpoints_without_a_path_or_for_nobody_reach_no_child() -> None:
    split = split_by_child((endpoint("a"), at("b"), at("c", "other"), at("d", "x")))
    assert split.of("x") == (endpoint("d"),)
    assert set(split.children) == {"x", "other"}


def test_a_child_without_endpoints_gets_an_empty_list() -> None:
    assert split_by_child((at("a", "x"),)).of("y") == ()
    assert split_by_child(()).of("y") == ()


def test_every_child_gets_the_resolvers_error() -> None:
    error = unavailable("no such host")
    assert split_by_child(error).of("x") is error
    assert split_by_child(error).of("y") is error


def test_order_and_other_attributes_are_kept_and_nothing_is_mutated() -> None:
    heavy = Endpoint(endpoint("b").addresses, EMPTY_ATTRIBUTES.with_(WEIGHT, 7))
    given_endpoints = (at("c", "x"), with_path(heavy, ("x",)), at("d", "y"), at("a", "x"))
    copies = tuple(Endpoint(each.addresses, each.attributes) for each in given_endpoints)
    assert split_by_child(given_endpoints).of("x") == (endpoint("c"), heavy, endpoint("a"))
    assert given_endpoints == copies
    assert path_of(given_endpoints[0]) == ("x",)


def test_what_did_not_change_is_the_same_object_next_time() -> None:
    first, second, third = at("a", "x"), at("b", "x"), at("c", "x")
    before = split_by_child((first, second))
    after = split_by_child((second, third, first), before)
    [old_first, old_second] = _tuple(before.of("x"))
    [new_second, _, new_first] = _tuple(after.of("x"))
    assert new_first is old_first
    assert new_second is old_second


PATHS = st.lists(st.sampled_from("xyz"), max_size=2).map(tuple)
LISTS = st.lists(st.tuples(st.sampled_from("abc"), PATHS), max_size=6)


@given(LISTS, LISTS)
def test_the_split_before_does_not_change_the_result(
    first: list[tuple[Name, Path]], second: list[tuple[Name, Path]]
) -> None:
    before = split_by_child(tuple(at(name, *path) for name, path in first))
    endpoints = tuple(at(name, *path) for name, path in second)
    assert split_by_child(endpoints, before).children == split_by_child(endpoints).children
    assert split_by_child(endpoints, NO_SPLIT).children == split_by_child(endpoints).children


def _endpoints(given_endpoint: Endpoint, child: str) -> tuple[Endpoint, ...]:
    return _tuple(split_by_child((given_endpoint,)).of(child))


def _tuple(endpoints: object) -> tuple[Endpoint, ...]:
    assert isinstance(endpoints, tuple)
    return endpoints
