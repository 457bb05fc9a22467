"""Unit tests of tools.simulation.random_choices."""

from proxyless.sim.random_choices import derived_random
from tools.simulation.random_choices import random_bool, random_gap_s


def test_random_gaps_have_their_mean() -> None:
    random = derived_random(1, "gaps")
    gaps = [random_gap_s(random, 2.0) for _ in range(5_000)]
    assert min(gaps) >= 0.0
    assert 1.8 < sum(gaps) / len(gaps) < 2.2


def test_random_bool_is_true_with_its_probability() -> None:
    random = derived_random(1, "choose")
    chosen = sum(random_bool(random, 0.25) for _ in range(2_000))
    assert 400 < chosen < 600
