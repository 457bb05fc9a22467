"""Unit tests of tools.simulation.report."""

from collections import Counter

from tools.simulation.options import Options
from tools.simulation.probes import NAMES
from tools.simulation.report import Outcome, Report, show_command, show_failure

GOOD = Outcome(1, "d", (), Counter(OK=1_200), Counter({NAMES[0]: 2}), virtual_s=600.0, events=5_000)
BAD = Outcome(2, "d", ("a is b", "c is d"), Counter(OK=1, UNAVAILABLE=1), virtual_s=600.0)


def test_report_sums_the_outcomes_of_all_seeds() -> None:
    report = Report()
    report.add(GOOD)
    report.add(BAD)
    lines = list(report.lines(real_s=4.0, cpu_s=2.0))
    assert lines[:3] == [
        "2 seeds, 1 failed",
        "rpcs OK 1,201, UNAVAILABLE 1",
        (
            "1,200 virtual s in 4.0 s: 300 times as fast (600 times per processor, 2.0 s of it);"
            " 5,000 events, 1,250 per s"
        ),
    ]
    assert lines[3] == f"         2 {NAMES[0]}"
    assert lines[4] == f"     never {NAMES[1]}"
    assert report.missed == list(NAMES[1:])


def test_failure_is_shown_as_the_command_of_its_seed() -> None:
    assert show_failure(BAD) == "python -m tools.simulation --seed 2  # a is b (and 1 more)"


def test_command_has_options_that_differ_from_those_of_the_seed() -> None:
    command = show_command(3, Options(clients=1, workloads=("traffic", "config churn")))
    assert command == (
        "python -m tools.simulation --seed 3 --options 'clients=1,workloads=traffic+config churn'"
    )
