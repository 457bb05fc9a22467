"""Unit tests of proxyless.xds.lb.cds.endpoint_weights."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.xds.lb.cds.endpoint_weights import ONE, LocalityShare, find_shares
from tests.worlds.xds_resources import locality

weights = st.integers(1, 2**32 - 1)


def shares(*localities: tuple[int, list[int]]) -> list[list[int]]:
    """Weights of the endpoints of localities with this weight and these endpoint weights."""
    entries = []
    for index, (weight, of_endpoints) in enumerate(localities):
        entry = locality(f"z{index}", *(f"10.{index}.0.{n}:80" for n in range(len(of_endpoints))))
        infos = tuple(
            replace(info, weight=each)
            for info, each in zip(entry.endpoints, of_endpoints, strict=True)
        )
        entries.append(replace(entry, weight=weight, endpoints=infos))
    return [
        [share.weigh(each) for each in of_endpoints]
        for share, (_, of_endpoints) in zip(find_shares(entries), localities, strict=True)
    ]


@pytest.mark.spec("A113-02")
def test_endpoints_of_a_locality_divide_its_share() -> None:
    assert shares((1, [1, 3]), (3, [1, 1, 2])) == [
        [ONE // 16, ONE * 3 // 16],
        [ONE * 3 // 16, ONE * 3 // 16, ONE * 3 // 8],
    ]


@pytest.mark.spec("A113-02")
def test_a_locality_with_many_endpoints_has_no_more_weight_than_its_share() -> None:
    few, many = shares((1, [1]), (1, [1] * 64))
    assert sum(few) == sum(many) == ONE // 2


@pytest.mark.spec("A113-02")
def test_a_weight_is_at_least_1() -> None:
    assert LocalityShare(1, 2**32 - 1).weigh(1) == 1


@given(
    st.lists(st.tuples(weights, st.lists(weights, min_size=1, max_size=5)), min_size=1, max_size=5)
)
def test_weights_are_near_the_product_and_their_sum_is_at_most_one(
    localities: list[tuple[int, list[int]]],
) -> None:
    found = shares(*localities)
    weight_sum = sum(weight for weight, _ in localities)
    count = sum(len(each) for each in found)
    for (weight, of_endpoints), got in zip(localities, found, strict=True):
        for endpoint, each in zip(of_endpoints, got, strict=True):
            wanted = Fraction(weight, weight_sum) * Fraction(endpoint, sum(of_endpoints)) * ONE
            assert abs(each - wanted) <= 3
    assert sum(map(sum, found)) <= ONE + count
