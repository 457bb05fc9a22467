"""Does the same seed draw the same, for each thing its own?"""

from proxyless.sim.draws import choose, derived_random, draw_gap_s, is_drawn


def test_a_name_has_chance_of_its_own() -> None:
    draws = [derived_random(7, name).random() for name in ("a", "a", "b")]
    assert draws[0] == draws[1] != draws[2]
    assert derived_random(8, "a").random() != draws[0]


def test_gaps_have_their_mean() -> None:
    random = derived_random(1, "gaps")
    gaps = [draw_gap_s(random, 2.0) for _ in range(5_000)]
    assert min(gaps) >= 0.0
    assert 1.8 < sum(gaps) / len(gaps) < 2.2


def test_everything_is_chosen_in_the_end() -> None:
    random = derived_random(1, "choose")
    assert {choose(random, "abc") for _ in range(100)} == {"a", "b", "c"}
    drawn = sum(is_drawn(random, 0.25) for _ in range(2_000))
    assert 400 < drawn < 600
