"""Unit tests of proxyless.runtime.rand."""

from proxyless.runtime.rand import Random, seeded_random, system_random


def draws(generator: Random) -> list[object]:
    order = list(range(50))
    generator.shuffle(order)
    return [
        generator.random(),
        generator.uniform(2, 3),
        generator.randrange(1000),
        generator.getrandbits(64),
        order,
    ]


def test_equal_seeds_have_equal_sequences() -> None:
    assert draws(seeded_random(7)) == draws(seeded_random(7))


def test_different_seeds_have_different_sequences() -> None:
    assert draws(seeded_random(7)) != draws(seeded_random(8))


def test_system_generators_do_not_repeat_each_other() -> None:
    assert draws(system_random()) != draws(system_random())


def test_draws_stay_within_their_bounds() -> None:
    generator = system_random()
    assert all(0 <= generator.random() < 1 for _ in range(100))
    assert all(2 <= generator.uniform(2, 3) <= 3 for _ in range(100))
    assert {generator.randrange(3) for _ in range(1000)} == {0, 1, 2}
    assert all(0 <= generator.getrandbits(4) < 16 for _ in range(100))
