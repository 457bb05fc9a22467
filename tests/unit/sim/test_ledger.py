"""When is a backend sound?"""

from proxyless.sim.ledger import RECOVERY_S, Ledger


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_trouble_lasts_from_its_start_to_its_end() -> None:
    clock = Clock()
    ledger = Ledger(clock)
    with ledger.trouble("web-1"):
        clock.now_s = 1_010.0
        assert ledger.is_in_trouble("web-1", 1_005.0, 1_006.0)
        assert ledger.is_in_trouble("web-1", 5_000.0, 5_000.0), "nobody knows yet when it ends"
    assert ledger.is_in_trouble("web-1", 1_010.0, 1_020.0)
    assert not ledger.is_in_trouble("web-1", 1_010.1, 1_020.0)
    assert not ledger.is_in_trouble("web-1", 900.0, 999.9)
    assert not ledger.is_in_trouble("web-2", 0.0, 5_000.0)
    assert ledger.troubles == 1


def test_sound_is_who_had_no_trouble_for_long_enough_before() -> None:
    ledger = Ledger(Clock())
    with ledger.trouble("web-1", "web-2"):
        pass
    for name in ("web-1", "web-2"):
        assert not ledger.is_sound(name, 1_000.0 + RECOVERY_S, 2_000.0)
        assert ledger.is_sound(name, 1_000.1 + RECOVERY_S, 2_000.0)


def test_an_aftermath_counts_as_trouble() -> None:
    ledger = Ledger(Clock())
    with ledger.trouble("web-1", aftermath_s=50.0):
        pass
    assert ledger.is_in_trouble("web-1", 1_049.0, 1_060.0)
    assert not ledger.is_in_trouble("web-1", 1_051.0, 1_060.0)
