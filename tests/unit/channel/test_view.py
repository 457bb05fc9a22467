"""Unit tests of proxyless.channel.view: what is seen of a channel in each of its conditions."""

from __future__ import annotations

from proxyless.base import State, Status, StatusCode
from proxyless.channel.call import origin_of
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from proxyless.resolver import ResolverResult
from tests.spec.channel_world import PATH, ChannelWorld

DOWN = Status(StatusCode.UNAVAILABLE, "down")


def test_an_idle_channel_shows_nothing() -> None:
    view = ChannelWorld().channel.view()
    assert (view.state, view.resolver, view.lb_tree()) == (State.IDLE, None, None)
    assert view.find_lb("a") is None


def test_a_policy_is_seen_with_the_state_of_the_channel() -> None:
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


def test_rpcs_that_wait_are_counted() -> None:
    world = ChannelWorld()
    world.connect()
    world.report(State.CONNECTING, QUEUE_PICKER)
    call, _ = world.call()
    view = world.channel.view()
    assert (view.waiting, view.unroutable) == (1, None)
    assert origin_of(call)[:2] == (world.channel, PATH)


def test_what_keeps_rpcs_from_being_routed_is_seen() -> None:
    world = ChannelWorld()
    world.channel.request_connection()
    assert world.channel.view().unroutable is None
    world.channel.on_result(ResolverResult(DOWN))
    assert world.channel.view().unroutable == DOWN
