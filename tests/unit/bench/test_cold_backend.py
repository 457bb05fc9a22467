"""Unit tests of bench.cold_backend."""

import pytest

from bench.cold_backend import COLD_WORK_S, WARM_WORK_S, format_outcomes, make_cluster, work_s
from bench.slow_backend import Outcome
from proxyless.assembly import Registries
from proxyless.observe import LintContext, Severity, lint_message


def test_work_falls_until_the_backend_is_warm() -> None:
    assert work_s(0.0, 10.0) == COLD_WORK_S
    assert work_s(5.0, 10.0) == pytest.approx((COLD_WORK_S + WARM_WORK_S) / 2)
    assert work_s(10.0, 10.0) == work_s(99.0, 10.0) == WARM_WORK_S


@pytest.mark.parametrize(("window_s", "has_slow_start"), [(0.0, False), (20.0, True)])
def test_cluster_has_slow_start_when_it_has_a_window(
    window_s: float, *, has_slow_start: bool
) -> None:
    cluster = make_cluster(window_s)
    known = Registries()
    found = lint_message(cluster, LintContext(known.policies, known.filters))
    assert not [each for each in found if each.severity is Severity.ERROR]
    # The config of slow start is a duration of 20 s, in two wrapped messages.
    assert (b"\x08\x14" in cluster.SerializeToString()) is has_slow_start


def test_table_has_a_row_for_each_window() -> None:
    outcome = Outcome([0.005, 0.006], failures=0)
    outcome.backends["b0"] = 1
    lines = format_outcomes({0.0: outcome, 10.0: outcome}).splitlines()
    assert lines[1].startswith("none ")
    assert lines[2].startswith("window of 10 s ")
    assert "50.0%" in lines[1]
