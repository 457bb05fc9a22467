"""Unit tests of proxyless.transport.keepalive."""

from itertools import product
from math import inf

import pytest

from proxyless.transport.keepalive import (
    PING_INTERVAL_WITHOUT_DATA_S,
    Activity,
    CheckAt,
    GiveUp,
    KeepaliveConfig,
    Ping,
    choose_keepalive,
)

NOW_S = 1000.0
# Ages of events, including the configured times and values close to them.
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
    Activity(NOW_S - received_ago_s, NOW_S - pinged_ago_s, is_unanswered, pings, calls)
    for received_ago_s, pinged_ago_s, is_unanswered, pings, calls in product(
        AGES_S, AGES_S, (False, True), (0, 1, 2, 3), (0, 1)
    )
]
GRID = [(config, activity) for config in CONFIGS for activity in ACTIVITIES]


def is_awaiting_answer(activity: Activity) -> bool:
    return activity.is_ping_unanswered and activity.received_s < activity.pinged_s


def is_slowed(config: KeepaliveConfig, activity: Activity) -> bool:
    return 0 < config.pings_without_data_max <= activity.pings_without_data


def test_cases_cover_every_decision() -> None:
    chosen = {type(choose_keepalive(config, NOW_S, activity)) for config, activity in GRID}
    assert chosen == {CheckAt, Ping, GiveUp}


def test_connection_is_given_up_exactly_when_an_answer_is_overdue() -> None:
    for config, activity in GRID:
        is_overdue = is_awaiting_answer(activity) and NOW_S - activity.pinged_s >= config.timeout_s
        assert isinstance(choose_keepalive(config, NOW_S, activity), GiveUp) is is_overdue


def test_ping_is_sent_exactly_when_all_rules_allow_it() -> None:
    for config, activity in GRID:
        interval_s = config.time_s
        if is_slowed(config, activity):
            interval_s = max(interval_s, PING_INTERVAL_WITHOUT_DATA_S)
        rules = (
            not is_awaiting_answer(activity),
            activity.calls > 0 or config.permit_without_calls,
            NOW_S - activity.received_s >= config.time_s,
            NOW_S - activity.pinged_s >= interval_s,
        )
        assert isinstance(choose_keepalive(config, NOW_S, activity), Ping) is all(rules)


def test_next_check_is_in_the_future_and_soon_enough() -> None:
    """A time in the past would block the loop; one too late would miss a PING."""
    for config, activity in GRID:
        match choose_keepalive(config, NOW_S, activity):
            case CheckAt(at_s):
                assert at_s > NOW_S
                assert at_s <= NOW_S + max(config.time_s, config.timeout_s)
            case Ping(check_at_s):
                assert NOW_S < check_at_s <= NOW_S + config.timeout_s
                assert check_at_s <= NOW_S + config.time_s
            case GiveUp():
                pass


def test_nothing_is_due_before_the_next_check() -> None:
    for config, activity in GRID:
        match choose_keepalive(config, NOW_S, activity):
            case CheckAt(at_s):
                just_before_s = at_s - 0.001
                assert isinstance(choose_keepalive(config, just_before_s, activity), CheckAt)
            case _:
                pass


def test_checks_lead_to_a_ping_or_to_giving_up_when_there_are_calls() -> None:
    for config, activity in GRID:
        if not activity.calls:
            continue
        now_s = NOW_S
        looks = 0
        while isinstance(choice := choose_keepalive(config, now_s, activity), CheckAt):
            now_s = choice.at_s
            looks += 1
        assert looks <= max(1, PING_INTERVAL_WITHOUT_DATA_S / config.time_s)


def test_no_ping_is_sent_without_calls_and_permission() -> None:
    config = KeepaliveConfig(time_s=10.0, timeout_s=20.0)
    for age_s in AGES_S:
        activity = Activity(NOW_S - age_s, NOW_S - age_s, False, 0, 0)
        assert isinstance(choose_keepalive(config, NOW_S, activity), CheckAt)


def test_keepalive_is_off_by_default() -> None:
    assert not KeepaliveConfig().is_enabled
    assert KeepaliveConfig(time_s=10.0).is_enabled


@pytest.mark.parametrize(("time_s", "doubled_s"), [(10.0, 20.0), (inf, inf)])
def test_keepalive_time_is_doubled_after_a_complaint(time_s: float, doubled_s: float) -> None:
    config = KeepaliveConfig(time_s=time_s, timeout_s=7.0, permit_without_calls=True)
    doubled = config.doubled()
    assert doubled.time_s == doubled_s
    assert (doubled.timeout_s, doubled.permit_without_calls) == (7.0, True)
