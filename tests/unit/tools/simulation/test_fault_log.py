"""Unit tests of tools.simulation.fault_log."""

from tools.simulation.fault_log import RECOVERY_S, FaultLog


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_fault_lasts_from_its_start_to_its_end() -> None:
    clock = Clock()
    fault_log = FaultLog(clock)
    with fault_log.fault("web-1"):
        clock.now_s = 1_010.0
        assert fault_log.is_faulty("web-1", 1_005.0, 1_006.0)
        assert fault_log.is_faulty("web-1", 5_000.0, 5_000.0), "its end is not known yet"
    assert fault_log.is_faulty("web-1", 1_010.0, 1_020.0)
    assert not fault_log.is_faulty("web-1", 1_010.1, 1_020.0)
    assert not fault_log.is_faulty("web-1", 900.0, 999.9)
    assert not fault_log.is_faulty("web-2", 0.0, 5_000.0)
    assert fault_log.faults == 1


def test_backend_is_sound_when_its_last_fault_is_long_over() -> None:
    fault_log = FaultLog(Clock())
    with fault_log.fault("web-1", "web-2"):
        pass
    for name in ("web-1", "web-2"):
        assert not fault_log.is_sound(name, 1_000.0 + RECOVERY_S, 2_000.0)
        assert fault_log.is_sound(name, 1_000.1 + RECOVERY_S, 2_000.0)


def test_aftermath_counts_as_fault() -> None:
    fault_log = FaultLog(Clock())
    with fault_log.fault("web-1", aftermath_s=50.0):
        pass
    assert fault_log.is_faulty("web-1", 1_049.0, 1_060.0)
    assert not fault_log.is_faulty("web-1", 1_051.0, 1_060.0)
