"""Unit tests of proxyless.xds.lb.override_host; see spec/test_a75_override_host.py."""

import pytest

from proxyless.base import State
from proxyless.xds.lb.override_host.policy import OverrideHostPolicy
from tests.worlds.override_hosts import OverrideWorld
from tests.worlds.policies import address


def test_describe_lists_subchannels_of_sessions_with_their_remaining_time() -> None:
    world = OverrideWorld()
    world.update_priorities(("a",), ("c",), idle_timeout_s=60.0)
    world.connect("a")
    world.own("c")
    world.expect_session_at("c")
    world.advance(15.0)
    policy = world.policy
    assert isinstance(policy, OverrideHostPolicy)
    node = policy.describe()
    assert (node.state, node.detail) == ("READY", "1 subchannels held for sessions only")
    child, owned = node.children
    assert child.policy == "priority_experimental"
    assert (owned.name, owned.state, owned.in_use) == (str(address("c")), "READY", False)
    assert owned.detail == "held for sessions, idle timeout 45 s left"


def test_reports_are_forwarded_after_an_update_of_the_child_raised() -> None:
    world = OverrideWorld()
    world.stubs.raises.add("broken")
    with pytest.raises(RuntimeError):
        world.update_priorities(("a",), child=[{"stub": {"name": "broken"}}])
    [child] = world.stubs.created
    child.report(State.READY)
    world.expect_reports(State.READY)
