"""Unit tests of proxyless.demo.story: the checks, and the actions of the steps."""

import asyncio
from dataclasses import replace
from inspect import isawaitable

import pytest

from proxyless.demo.mesh import NEW, OLD
from proxyless.demo.story import (
    LATE_S_MIN,
    STORY,
    Observation,
    hold_s_at,
    routes_held_but_not_used,
    served_by,
    served_by_first_choice,
    session_stays,
    summarize,
)
from proxyless.demo.traffic import Rpc
from tests.worlds.demo_stages import RecordingStage

WELL = Observation(
    served=frozenset({"a1", "a2"}),
    failed=0,
    session=frozenset({("a1", "ipv4:1")}),
    first_choice=frozenset({"a1", "a2"}),
    routes_held="3",
    routes_served="3",
    moved="a1",
)


def test_served_by_fails_for_other_backends_and_for_failed_rpcs() -> None:
    check = served_by(["a1", "a2"])
    assert check(WELL) == ""
    assert check(replace(WELL, failed=2)) == "2 RPCs failed in the last 0.5 s"
    assert check(replace(WELL, served=frozenset({"a1"}))) == "RPCs are answered by a1"
    too_many = replace(WELL, served=frozenset({"a1", "a2", "b1"}))
    assert check(too_many) == "RPCs are answered by a1, a2, b1"
    assert check(replace(WELL, served=frozenset())) == "RPCs are answered by no backend"
    assert served_by_first_choice(WELL) == ""
    assert served_by_first_choice(replace(WELL, first_choice=frozenset({"b1"}))) != ""


def test_session_stays_fails_unless_one_connection_of_the_moved_endpoint_is_used() -> None:
    assert session_stays(WELL) == ""
    elsewhere = replace(WELL, session=frozenset({("b1", "ipv4:1")}))
    assert session_stays(elsewhere) == "the session is on b1, by 1 connections"
    again = replace(WELL, session=frozenset({("a1", "ipv4:1"), ("a1", "ipv4:2")}))
    assert session_stays(again) == "the session is on a1, by 2 connections"
    assert session_stays(replace(WELL, session=frozenset())) != ""
    assert session_stays(replace(WELL, first_choice=frozenset({"a2"}))) != "", "the load follows"


def test_late_cluster_check_fails_if_the_cluster_is_used_or_the_routes_are_old() -> None:
    assert routes_held_but_not_used(WELL) == ""
    old_routes = replace(WELL, routes_held="2")
    assert routes_held_but_not_used(old_routes) == "the client has the routes of generation 2"
    used = replace(WELL, served=frozenset({"a1", "c2"}))
    assert routes_held_but_not_used(used) == "RPCs are answered by a1, c2"
    assert routes_held_but_not_used(replace(WELL, served=frozenset())) != ""


def test_summary_ignores_rpcs_that_started_before_the_window() -> None:
    rpcs = [
        Rpc(0.9, 1.5, is_session=False, backend="old"),
        Rpc(1.1, 1.2, is_session=False, backend="a1"),
        Rpc(1.1, 1.3, is_session=False, code="UNAVAILABLE"),
        Rpc(1.2, 1.3, is_session=True, backend="a2", peer="p"),
    ]
    assert summarize(rpcs, since_s=1.0) == (frozenset({"a1"}), 1, frozenset({("a2", "p")}))


def test_speed_shortens_steps_down_to_their_minimum() -> None:
    steps = {step.key: step for step in STORY}
    assert hold_s_at(steps["calm"], 1.0) == 2 * hold_s_at(steps["calm"], 2.0)
    assert hold_s_at(steps["route"], 10.0) == LATE_S_MIN


def test_steps_are_shown_for_less_than_half_a_minute_in_total() -> None:
    assert sum(hold_s_at(step, 1.0) for step in STORY) < 30.0


@pytest.mark.parametrize(
    ("key", "done"),
    [
        ("calm", []),
        ("kill-a", ["kill a"]),
        ("kill-b", ["kill b"]),
        ("back", ["revive a", "revive b"]),
        ("move", ["move"]),
        ("route", [f"route to {NEW}, late"]),
        ("late", ["release"]),
        ("stop", ["stop"]),
        ("start", ["start", f"route to {OLD}"]),
    ],
)
def test_step_executes_its_actions(key: str, done: list[str]) -> None:
    stage, steps = RecordingStage(), {step.key: step for step in STORY}

    async def act() -> str | None:
        result = steps[key].act(stage)
        return await result if isawaitable(result) else result

    moved = asyncio.run(act())
    assert stage.done == done
    assert moved == ("a1" if key == "move" else None)


def test_story_has_no_other_steps_than_those_above() -> None:
    assert len({step.key for step in STORY}) == len(STORY) == 9
