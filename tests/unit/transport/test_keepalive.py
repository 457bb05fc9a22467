"""Unit tests of proxyless.transport.keepalive: the decision, for everything it may know."""

from itertools import product
from math import inf

import pytest

from proxyless.transport.keepalive import (
    PING_INTERVAL_WITHOUT_DATA_S,
    Activity,
    GiveUp,
    KeepaliveConfig,
    Look,
    Ping,
    choose_keepalive,
)

NOW_S = 1000.0
# How long ago something was; the configured times and a little to either side are among them.
AGES_S = (0.0, 4.0, 5.0, 20.0, 21.0, 60.0, 500.0)
CONFIGS = [
    KeepaliveConfig(
        time_s=time_s,
        timeout_s=timeout_s,
        permit_without_calls=permit,
        pings_without_data_max=pings,
    )
    for time_s, timeout_s, permit, pings in product(
        (5.0, 100.0), (4.0, 20.0), (False, True), (0, 2)
    )
]
ACTIVITIES = [
    Activity(NOW_S - heard_ago_s, NOW_S - pinged_ago_s, is_unanswered, pings, calls)
    for heard_ago_s, pinged_ago_s, is_unanswered, pings, calls in product(
        AGES_S, AGES_S, (False, True), (0, 1, 2, 3), (0, 1)
    )
]
GRID = [(config, activity) for config in CONFIGS for activity in ACTIVITIES]


def is_awaiting_answer(seen: Activity) -> bool:
    return seen.is_ping_unanswered and seen.heard_s < seen.pinged_s


def is_slowed(config: KeepaliveConfig, seen: Activity) -> bool:
    return 0 < config.pings_without_data_max <= seen.pings_without_data


def test_the_grid_meets_every_decision() -> None:
    chosen = {type(choose_keepalive(config, NOW_S, seen)) for config, seen in GRID}
    assert chosen == {Look, Ping, GiveUp}


def test_it_gives_up_exactly_when_an_answer_is_overdue() -> None:
    for config, seen in GRID:
        is_overdue = is_awaiting_answer(seen) and NOW_S - seen.pinged_s >= config.timeout_s
        assert isinstance(choose_keepalive(config, NOW_S, seen), GiveUp) is is_overdue


def test_it_pings_exactly_when_all_of_the_rules_allow_it() -> None:
    for config, seen in GRID:
        interval_s = config.time_s
        if is_slowed(config, seen):
            interval_s = max(interval_s, PING_INTERVAL_WITHOUT_DATA_S)
        rules = (
            not is_awaiting_answer(seen),
            seen.calls > 0 or config.permit_without_calls,
            NOW_S - seen.heard_s >= config.time_s,
            NOW_S - seen.pinged_s >= interval_s,
        )
        assert isinstance(choose_keepalive(config, NOW_S, seen), Ping) is all(rules)


def test_it_always_looks_again_later_and_soon_enough() -> None:
    """A time that is not in the future would keep the loop busy; one too late would miss a PING."""
    for config, seen in GRID:
        match choose_keepalive(config, NOW_S, seen):
            case Look(at_s):
                assert at_s > NOW_S
                assert at_s <= NOW_S + max(config.time_s, config.timeout_s)
            case Ping(look_at_s):
                assert NOW_S < look_at_s <= NOW_S + config.timeout_s
                assert look_at_s <= NOW_S + config.time_s
            case GiveUp():
                pass


def test_nothing_is_due_before_the_time_to_look_again() -> None:
    for config, seen in GRID:
        match choose_keepalive(config, NOW_S, seen):
            case Look(at_s):
                just_before_s = at_s - 0.001
                assert isinstance(choose_keepalive(config, just_before_s, seen), Look)
            case _:
                pass


def test_looking_again_as_told_comes_to_a_ping_or_to_giving_up_if_there_are_calls() -> None:
    for config, seen in GRID:
        if not seen.calls:
            continue
        now_s = NOW_S
        looks = 0
        while isinstance(choice := choose_keepalive(config, now_s, seen), Look):
            now_s = choice.at_s
            looks += 1
        assert looks <= max(1, PING_INTERVAL_WITHOUT_DATA_S / config.time_s)


def test_without_calls_and_permission_it_never_pings() -> None:
    config = KeepaliveConfig(time_s=10.0, timeout_s=20.0)
    for age_s in AGES_S:
        seen = Activity(NOW_S - age_s, NOW_S - age_s, False, 0, 0)
        assert isinstance(choose_keepalive(config, NOW_S, seen), Look)


def test_it_is_off_by_default() -> None:
    assert not KeepaliveConfig().is_enabled
    assert KeepaliveConfig(time_s=10.0).is_enabled


@pytest.mark.parametrize(("time_s", "doubled_s"), [(10.0, 20.0), (inf, inf)])
def test_after_a_complaint_it_asks_half_as_often(time_s: float, doubled_s: float) -> None:
    config = KeepaliveConfig(time_s=time_s, timeout_s=7.0, permit_without_calls=True)
    doubled = config.doubled()
    assert doubled.time_s == doubled_s
    assert (doubled.timeout_s, doubled.permit_without_calls) == (7.0, True)
