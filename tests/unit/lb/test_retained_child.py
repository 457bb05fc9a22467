"""Unit tests of proxyless.lb.retained_child; what parents make of it is in tests/spec."""

from typing import ClassVar

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, OK, hits
from proxyless.lb import Helper, PolicyConfig, Update
from proxyless.lb.attributes import HOLDER
from proxyless.lb.retained_child import RETENTION_S, RetainedChild, join_rejections
from tests.spec.children_world import ChildrenWorld, StubFactory
from tests.spec.lb_world import READY, address, endpoint, unavailable

MOMENT_S = 0.001


class Child(RetainedChild):
    """Adds nothing but the name of its event."""

    trace_name: ClassVar[str] = "test.child"

    __slots__ = ()


class Home:
    """A world with one child in it."""

    def __init__(self) -> None:
        self.world = ChildrenWorld(StubFactory("unused"))
        self.expired: list[str] = []
        helper: Helper = self.world
        self.child = Child(helper, "c", self.expired.append)
        self.config = PolicyConfig(self.world.stubs, {"name": "c"})


@pytest.fixture
def home() -> Home:
    return Home()


def test_it_expires_once_after_15_minutes_of_rest(home: Home) -> None:
    home.child.deactivate()
    home.world.advance(RETENTION_S / 2)
    home.child.deactivate()
    home.world.advance(RETENTION_S / 2 - MOMENT_S)
    assert home.expired == []
    home.world.advance(MOMENT_S)
    assert home.expired == ["c"]
    home.world.advance(RETENTION_S)
    assert home.expired == ["c"]


def test_a_child_that_is_needed_again_has_its_whole_time_later(home: Home) -> None:
    home.child.deactivate()
    home.world.advance(RETENTION_S - MOMENT_S)
    home.child.reactivate()
    home.child.reactivate()
    home.world.advance(RETENTION_S)
    home.child.deactivate()
    home.world.advance(RETENTION_S - MOMENT_S)
    assert home.expired == []
    home.world.advance(MOMENT_S)
    assert home.expired == ["c"]


def test_its_policy_gets_its_part_of_the_update(home: Home) -> None:
    whole = Update((endpoint("a"), endpoint("b")), object(), resolution_note="from dns")
    assert not home.child.update_policy(whole, (endpoint("b"),), home.config)
    home.world.child("c").says(READY)
    home.world.expect_uses("c")
    [update] = home.world.child("c").updates
    assert update == Update((endpoint("b"),), {"name": "c"}, resolution_note="from dns")


def test_a_refused_update_is_said_with_the_name_of_the_child(home: Home) -> None:
    home.world.stubs.refuses = {"c": unavailable("no endpoints")}
    rejections = home.child.update_policy(Update((), None), (), home.config)
    assert list(rejections) == ["child 'c': no endpoints"]


def test_rejections_become_one_status() -> None:
    assert join_rejections([]) is OK
    assert join_rejections(["child 'a': x", "child 'b': y"]) == unavailable(
        "errors from children: [child 'a': x; child 'b': y]"
    )


def test_a_closed_child_holds_nothing(home: Home) -> None:
    home.child.update_policy(Update((), None), (), home.config)
    home.child.deactivate()
    home.child.close()
    home.world.expect_children()
    home.world.expect_closed()


def test_its_life_is_traced(home: Home) -> None:
    with hits(home.world.trace, "test.child") as events:
        home.child.deactivate()
        home.child.deactivate()
        home.child.reactivate()
        home.child.close()
    assert [event.fields["change"] for event in events] == [
        "deactivated",
        "reactivated",
        "destroyed",
    ]


def test_subchannel_of_a_child_has_the_innermost_child_as_its_holder(home: Home) -> None:
    inner = Child(home.child, "inner", home.expired.append)
    for creator in (home.child, inner):
        creator.create_subchannel(address("a"), EMPTY_ATTRIBUTES)
    holders = [subchannel.attributes.get(HOLDER) for subchannel in home.world.live]
    assert holders == [home.child, inner]
