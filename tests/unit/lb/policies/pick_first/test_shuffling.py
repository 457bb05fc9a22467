"""Unit tests of proxyless.lb.policies.pick_first.shuffling."""

from collections import Counter
from itertools import permutations

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, Endpoint, parse_address
from proxyless.lb.attributes import ENDPOINT_WEIGHT, WEIGHTED_SHUFFLING_GUARD
from proxyless.lb.policies.pick_first.shuffling import shuffle_endpoints, sort_by_weight
from proxyless.runtime import seeded_random

ROUNDS = 6000


def weighted(number: int, weight: int | None) -> Endpoint:
    attributes = (
        EMPTY_ATTRIBUTES if weight is None else EMPTY_ATTRIBUTES.with_(ENDPOINT_WEIGHT, weight)
    )
    return Endpoint((parse_address(f"10.0.0.{number}:80"),), attributes)


def count_orders(endpoints: list[Endpoint], *, guard: bool) -> Counter[tuple[int, ...]]:
    random = seeded_random(7)
    shuffle = sort_by_weight if guard else shuffle_endpoints
    return Counter(
        tuple(endpoints.index(each) for each in shuffle(endpoints, random)) for _ in range(ROUNDS)
    )


@pytest.mark.spec("A113-01")
def test_orders_have_the_probabilities_of_sampling_by_weight() -> None:
    weights = (1, 2, 5)
    endpoints = [weighted(number, weight) for number, weight in enumerate(weights)]
    counts = count_orders(endpoints, guard=True)
    for order in permutations(range(3)):
        first, second, _ = (weights[each] for each in order)
        wanted = first / 8 * second / (8 - first)
        assert counts[order] / ROUNDS == pytest.approx(wanted, abs=0.025)


@pytest.mark.spec("A113-01")
def test_an_endpoint_without_a_weight_has_1() -> None:
    endpoints = [weighted(1, None), weighted(2, 3)]
    counts = count_orders(endpoints, guard=True)
    assert counts[0, 1] / ROUNDS == pytest.approx(1 / 4, abs=0.025)


def test_large_weights_are_not_rounded_to_equal_keys() -> None:
    endpoints = [weighted(1, 2**31), weighted(2, 2**29)]
    counts = count_orders(endpoints, guard=True)
    assert counts[0, 1] / ROUNDS == pytest.approx(4 / 5, abs=0.025)


@pytest.mark.spec("A113-03")
@pytest.mark.parametrize("value", [None, "false"])
def test_weights_do_not_count_without_the_guard(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is None:
        monkeypatch.delenv(WEIGHTED_SHUFFLING_GUARD, raising=False)
    else:
        monkeypatch.setenv(WEIGHTED_SHUFFLING_GUARD, value)
    counts = count_orders([weighted(1, 1), weighted(2, 1000)], guard=False)
    assert counts[0, 1] / ROUNDS == pytest.approx(1 / 2, abs=0.025)


@pytest.mark.spec("A113-01")
def test_weights_count_with_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WEIGHTED_SHUFFLING_GUARD, "true")
    counts = count_orders([weighted(1, 1), weighted(2, 1000)], guard=False)
    assert counts[0, 1] / ROUNDS < 0.01
