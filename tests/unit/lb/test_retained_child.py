"""Unit tests of proxyless.lb.retained_child. Its use by policies is tested in tests/spec."""

from typing import ClassVar

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, OK, hits
from proxyless.lb import Helper, PolicyConfig, Update
from proxyless.lb.attributes import HOLDER
from proxyless.lb.retained_child import RETENTION_S, RetainedChild, join_rejections
from tests.worlds.child_policies import ParentPolicyWorld, StubChildFactory
from tests.worlds.policies import READY, address, endpoint, unavailable

MOMENT_S = 0.001


class Child(RetainedChild):
    """Retained child with a trace name."""

    trace_name: ClassVar[str] = "test.child"

    __slots__ = ()


class ChildFixture:
    """World with one retained child."""

    def __init__(self) -> None:
        self.world = ParentPolicyWorld(StubChildFactory("unused"))
        self.expired: list[str] = []
        helper: Helper = self.world.helper
        self.child = Child(helper, "c", self.expired.append)
        self.config = PolicyConfig(self.world.stubs, {"name": "c"})


@pytest.fixture
def fixture() -> ChildFixture:
    return ChildFixture()


def test_child_expires_once_when_deactivated_for_15_minutes(fixture: ChildFixture) -> None:
    fixture.child.deactivate()
    fixture.world.advance(RETENTION_S / 2)
    fixture.child.deactivate()
    fixture.world.advance(RETENTION_S / 2 - MOMENT_S)
    assert fixture.expired == []
    fixture.world.advance(MOMENT_S)
    assert fixture.expired == ["c"]
    fixture.world.advance(RETENTION_S)
    assert fixture.expired == ["c"]


def test_retention_time_starts_again_when_the_child_was_reactivated(fixture: ChildFixture) -> None:
    fixture.child.deactivate()
    fixture.world.advance(RETENTION_S - MOMENT_S)
    fixture.child.reactivate()
    fixture.child.reactivate()
    fixture.world.advance(RETENTION_S)
    fixture.child.deactivate()
    fixture.world.advance(RETENTION_S - MOMENT_S)
    assert fixture.expired == []
    fixture.world.advance(MOMENT_S)
    assert fixture.expired == ["c"]


def test_policy_gets_its_part_of_the_update(fixture: ChildFixture) -> None:
    whole = Update((endpoint("a"), endpoint("b")), object(), resolution_note="from dns")
    assert not fixture.child.update_policy(whole, (endpoint("b"),), fixture.config)
    fixture.world.child("c").report(READY)
    fixture.world.expect_uses("c")
    [update] = fixture.world.child("c").updates
    assert update == Update((endpoint("b"),), {"name": "c"}, resolution_note="from dns")


def test_rejection_contains_the_name_of_the_child(fixture: ChildFixture) -> None:
    fixture.world.stubs.update_results = {"c": unavailable("no endpoints")}
    rejections = fixture.child.update_policy(Update((), None), (), fixture.config)
    assert list(rejections) == ["child 'c': no endpoints"]


def test_join_rejections_returns_one_status() -> None:
    assert join_rejections([]) is OK
    assert join_rejections(["child 'a': x", "child 'b': y"]) == unavailable(
        "errors from children: [child 'a': x; child 'b': y]"
    )


def test_closed_child_has_no_policy_and_no_timer(fixture: ChildFixture) -> None:
    fixture.child.update_policy(Update((), None), (), fixture.config)
    fixture.child.deactivate()
    fixture.child.close()
    fixture.world.expect_children()
    fixture.world.expect_closed()


def test_changes_of_a_child_are_traced(fixture: ChildFixture) -> None:
    with hits(fixture.world.trace, "test.child") as events:
        fixture.child.deactivate()
        fixture.child.deactivate()
        fixture.child.reactivate()
        fixture.child.close()
    assert [event.fields["change"] for event in events] == [
        "deactivated",
        "reactivated",
        "destroyed",
    ]


def test_subchannel_of_a_child_has_the_innermost_child_as_its_holder(fixture: ChildFixture) -> None:
    inner = Child(fixture.child, "inner", fixture.expired.append)
    for creator in (fixture.child, inner):
        creator.create_subchannel(address("a"), EMPTY_ATTRIBUTES)
    holders = [subchannel.attributes.get(HOLDER) for subchannel in fixture.world.subchannels]
    assert holders == [fixture.child, inner]
