"""Unit tests of proxyless.demo.story: what must be seen, and that each step does what it says."""

import asyncio
from dataclasses import replace

import pytest

from proxyless.demo.mesh import NEW, OLD
from proxyless.demo.story import (
    LATE_S_MIN,
    STORY,
    Seen,
    hold_s_at,
    look,
    routes_known_but_not_used,
    served_by,
    served_by_first_choice,
    session_stays,
)
from proxyless.demo.traffic import Rpc

WELL = Seen(
    served=frozenset({"a1", "a2"}),
    failed=0,
    session=frozenset({("a1", "ipv4:1")}),
    first_choice=frozenset({"a1", "a2"}),
    routes_held="3",
    routes_served="3",
    about="a1",
)


def test_exactly_these_must_answer_and_none_may_fail() -> None:
    want = served_by(["a1", "a2"])
    assert want(WELL) == ""
    assert want(replace(WELL, failed=2)) == "2 RPCs failed in the last 0.5 s"
    assert want(replace(WELL, served=frozenset({"a1"}))) == "RPCs are answered by a1"
    too_many = replace(WELL, served=frozenset({"a1", "a2", "b1"}))
    assert want(too_many) == "RPCs are answered by a1, a2, b1"
    assert want(replace(WELL, served=frozenset())) == "RPCs are answered by nobody"
    assert served_by_first_choice(WELL) == ""
    assert served_by_first_choice(replace(WELL, first_choice=frozenset({"b1"}))) != ""


def test_a_session_must_stay_on_one_connection_of_the_moved_endpoint() -> None:
    assert session_stays(WELL) == ""
    elsewhere = replace(WELL, session=frozenset({("b1", "ipv4:1")}))
    assert session_stays(elsewhere) == "the session is on b1, by 1 connections"
    again = replace(WELL, session=frozenset({("a1", "ipv4:1"), ("a1", "ipv4:2")}))
    assert session_stays(again) == "the session is on a1, by 2 connections"
    assert session_stays(replace(WELL, session=frozenset())) != ""
    assert session_stays(replace(WELL, first_choice=frozenset({"a2"}))) != "", "the load follows"


def test_a_late_cluster_must_not_be_used_though_its_route_is_known() -> None:
    assert routes_known_but_not_used(WELL) == ""
    unknown = replace(WELL, routes_held="2")
    assert routes_known_but_not_used(unknown) == "the client has the routes of generation 2"
    used = replace(WELL, served=frozenset({"a1", "c2"}))
    assert routes_known_but_not_used(used) == "RPCs are answered by a1, c2"
    assert routes_known_but_not_used(replace(WELL, served=frozenset())) != ""


def test_only_rpcs_that_began_since_then_are_looked_at() -> None:
    rpcs = [
        Rpc(0.9, 1.5, is_session=False, backend="old"),
        Rpc(1.1, 1.2, is_session=False, backend="a1"),
        Rpc(1.1, 1.3, is_session=False, code="UNAVAILABLE"),
        Rpc(1.2, 1.3, is_session=True, backend="a2", peer="p"),
    ]
    assert look(rpcs, since_s=1.0) == (frozenset({"a1"}), 1, frozenset({("a2", "p")}))


def test_speed_shortens_what_may_be_shortened() -> None:
    steps = {step.key: step for step in STORY}
    assert hold_s_at(steps["calm"], 1.0) == 2 * hold_s_at(steps["calm"], 2.0)
    assert hold_s_at(steps["route"], 10.0) == LATE_S_MIN


def test_the_story_takes_less_than_a_minute() -> None:
    assert sum(hold_s_at(step, 1.0) for step in STORY) < 30.0


class Notes:
    """A stage on which nothing happens."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def kill(self, zone: str) -> None:
        self.done.append(f"kill {zone}")

    async def revive(self, zone: str) -> None:
        self.done.append(f"revive {zone}")

    def move_session_endpoint(self) -> str:
        self.done.append("move")
        return "a1"

    def route_to(self, cluster: str, *, is_late: bool = False) -> None:
        self.done.append(f"route to {cluster}{', late' if is_late else ''}")

    def release(self) -> None:
        self.done.append("release")

    async def stop_control_plane(self) -> None:
        self.done.append("stop")

    async def start_control_plane(self) -> None:
        self.done.append("start")


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
def test_each_step_does_what_its_title_says(key: str, done: list[str]) -> None:
    stage, steps = Notes(), {step.key: step for step in STORY}

    async def act() -> str | None:
        return await steps[key].act(stage)

    about = asyncio.run(act())
    assert stage.done == done
    assert about == ("a1" if key == "move" else None)


def test_every_step_is_tested_above() -> None:
    assert len({step.key for step in STORY}) == len(STORY) == 9
