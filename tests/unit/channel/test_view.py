"""Unit tests of proxyless.channel.view."""

from __future__ import annotations

from proxyless.base import State, Status, StatusCode
from proxyless.channel.call import origin_of
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from proxyless.resolver import ResolverResult
from tests.worlds.channels import PATH, ChannelWorld

DOWN = Status(StatusCode.UNAVAILABLE, "down")


def test_view_of_an_idle_channel_is_empty() -> None:
    view = ChannelWorld().channel.view()
    assert (view.state, view.resolver, view.lb_tree()) == (State.IDLE, None, None)
    assert view.find_lb("a") is None


def test_view_has_the_policy_with_the_state_of_the_channel() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.TRANSIENT_FAILURE, FailPicker(DOWN))
    tree = world.channel.view().lb_tree()
    assert tree is not None
    assert (tree.name, tree.state, tree.problem) == (
        world.channel.target,
        "TRANSIENT_FAILURE",
        "down",
    )


def test_view_counts_waiting_rpcs() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.CONNECTING, QUEUE_PICKER)
    call, _ = world.call()
    view = world.channel.view()
    assert (view.waiting, view.unroutable) == (1, None)
    assert origin_of(call)[:2] == (world.channel, PATH)


def test_view_has_the_reason_why_rpcs_are_not_routed() -> None:
    world = ChannelWorld()
    world.channel.request_connection()
    assert world.channel.view().unroutable is None
    world.channel.on_result(ResolverResult(DOWN))
    assert world.channel.view().unroutable == DOWN


def test_view_has_the_time_of_the_oldest_rpc_that_waits() -> None:
    world = ChannelWorld()
    assert world.channel.view().longest_wait_s == 0
    unselected, _ = world.call()
    world.clock.advance(2.0)
    world.call()
    world.clock.advance(1.0)
    assert world.channel.view().longest_wait_s == 3
    unselected.cancel()
    world.connect()
    world.report(State.CONNECTING, QUEUE_PICKER)
    world.call()
    # The second one was sent.
    world.clock.advance(5.0)
    assert world.channel.view().longest_wait_s == 5
