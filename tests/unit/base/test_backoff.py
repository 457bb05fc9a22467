"""Unit tests of proxyless.base.backoff."""

import random  # noqa: TID251 - the standard generator implements UniformSource.

import pytest

from proxyless.base.backoff import Backoff, BackoffPolicy

# "Base delays 1, 1.6, ..., 120, 120... s" - SUB-02
SERIES_S = [1, 1.6, 2.56, 4.096, 6.554, 10.486, 16.777, 26.844, 42.950, 68.719, 109.951, 120, 120]


class Fraction:
    """A generator that returns a fixed fraction between the bounds, and records the bounds."""

    def __init__(self, fraction: float) -> None:
        self.fraction = fraction
        self.bounds: set[tuple[float, float]] = set()

    def uniform(self, a: float, b: float, /) -> float:
        self.bounds.add((a, b))
        return a + (b - a) * self.fraction


@pytest.mark.spec("SUB-02")
@pytest.mark.parametrize(("fraction", "factor"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_each_delay_of_the_series_is_jittered_by_a_fifth(fraction: float, factor: float) -> None:
    backoff, generator = Backoff(), Fraction(fraction)
    delays_s = [backoff.next_delay_s(generator) for _ in SERIES_S]
    assert delays_s == pytest.approx([delay_s * factor for delay_s in SERIES_S], abs=0.0012)
    assert generator.bounds == {(0.8, 1.2)}


@pytest.mark.spec("SUB-02")
def test_real_draws_fill_the_jitter_range_and_never_leave_it() -> None:
    generator = random.Random(2)
    draws_s = [Backoff().next_delay_s(generator) for _ in range(1000)]
    assert 0.8 <= min(draws_s) < 0.81
    assert 1.19 < max(draws_s) <= 1.2


def test_reset_starts_the_series_again() -> None:
    backoff, generator = Backoff(), Fraction(0.5)
    first_s = [backoff.next_delay_s(generator) for _ in range(5)]
    backoff.reset()
    assert [backoff.next_delay_s(generator) for _ in range(5)] == first_s


def test_the_delay_stays_at_the_maximum_for_ever() -> None:
    backoff, generator = Backoff(BackoffPolicy(max_s=5)), Fraction(0.5)
    delays_s = [backoff.next_delay_s(generator) for _ in range(10_000)]
    assert set(delays_s[4:]) == {5.0}


def test_the_series_follows_its_policy() -> None:
    policy = BackoffPolicy(initial_s=0.1, multiplier=2, max_s=0.5, jitter=0)
    backoff = Backoff(policy)
    generator = random.Random(1)
    assert [backoff.next_delay_s(generator) for _ in range(4)] == [0.1, 0.2, 0.4, 0.5]


def test_a_maximum_below_the_initial_delay_bounds_it() -> None:
    backoff = Backoff(BackoffPolicy(initial_s=10, max_s=2, jitter=0))
    assert backoff.next_delay_s(random.Random(1)) == 2
    backoff.reset()
    assert backoff.next_delay_s(random.Random(1)) == 2


@pytest.mark.parametrize(
    ("initial_s", "multiplier", "max_s", "jitter", "text"),
    [
        (0, 1.6, 120, 0.2, "backoff from 0 s to 120 s is not valid: wanted delays above 0 s"),
        (1, 1.6, -1, 0.2, "backoff from 1 s to -1 s is not valid: wanted delays above 0 s"),
        (float("nan"), 1.6, 120, 0.2, "backoff from nan s to 120 s is not valid"),
        (1, 0.5, 120, 0.2, "backoff multiplier 0.5 is not valid: wanted 1 or more"),
        (1, 1.6, 120, 1.5, "backoff jitter 1.5 is not valid: wanted 0 to 1"),
        (1, 1.6, 120, -0.1, "backoff jitter -0.1 is not valid: wanted 0 to 1"),
    ],
)
def test_an_invalid_policy_is_rejected(
    initial_s: float, multiplier: float, max_s: float, jitter: float, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        BackoffPolicy(initial_s, multiplier, max_s, jitter)
