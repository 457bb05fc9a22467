"""Unit tests of proxyless.sim.random_choices."""

from proxyless.sim.random_choices import choose, derived_random


def test_derived_random_repeats_for_the_same_seed_and_name() -> None:
    numbers = [derived_random(7, name).random() for name in ("a", "a", "b")]
    assert numbers[0] == numbers[1] != numbers[2]
    assert derived_random(8, "a").random() != numbers[0]


def test_choose_returns_every_element_in_the_end() -> None:
    random = derived_random(1, "choose")
    assert {choose(random, "abc") for _ in range(100)} == {"a", "b", "c"}
