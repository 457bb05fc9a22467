"""Unit tests of proxyless.demo.plain_log."""

from __future__ import annotations

from dataclasses import replace

from proxyless.demo.plain_log import PlainLog
from proxyless.demo.view import SEEN, WAITING
from tests.unit.demo.views import MISSED_STEP, STEPS, VIEW

SUMMARY = "b1 151/s, b2 149/s; session on b1; CDS 3; 3 RPCs lost with their backend, 0 failed"


def test_log_has_each_change_once() -> None:
    lines: list[str] = []
    log = PlainLog(lines.append)
    waiting = tuple(replace(step, state=WAITING, note="") for step in STEPS)
    log.show(replace(VIEW, steps=waiting))
    assert lines == []
    log.show(VIEW)
    log.show(VIEW)
    assert lines == [
        "  4.2 s  everything is well",
        "  4.2 s    seen at once: zone a answers",
        f"  4.2 s    {SUMMARY}",
        "  4.2 s  zone a is killed",
    ]
    del lines[:]
    running = replace(STEPS[1], note="0.3 s")
    log.show(replace(VIEW, steps=(STEPS[0], running, STEPS[2])))
    assert lines == ["  4.2 s    seen 0.3 s: zone b answers"]
    del lines[:]
    log.show(replace(VIEW, steps=(STEPS[0], replace(running, state=SEEN), STEPS[2])))
    assert [line[9:] for line in lines] == [f"  {SUMMARY}"]


def test_log_has_the_observation_of_a_missed_step() -> None:
    lines: list[str] = []
    PlainLog(lines.append).show(replace(VIEW, steps=(MISSED_STEP,)))
    assert [line[9:] for line in lines][:2] == [
        "zone a is killed",
        "  missed, got: answered by no backend",
    ]
