"""Unit tests of the registry of resource watchers."""

import logging

import pytest

from tests.xds_client_world import ClientWorld, Recorder, server_config, text


def test_one_more_watch_among_many_costs_the_same_as_among_few() -> None:
    """Counted, not timed: nothing looks at the other entries."""
    world = ClientWorld()
    recorders = [Recorder() for _ in range(500)]
    for index, recorder in enumerate(recorders):
        world.client.watch(world.routes, f"r{index}", recorder)
    world.settle()
    world.server().respond(world.routes, *(text(f"r{index}") for index in range(500)))
    decoded = world.routes.decoded
    world.server().respond(world.routes, text("r7", "v2"))
    assert world.routes.decoded == decoded + 1
    assert [recorder.heard for recorder in recorders].count(["v1"]) == 499
    world.close()


def test_a_fallback_and_its_end_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxyless.xds.client")
    world = ClientWorld(server_config("a"), server_config("b"))
    a, b = world.server("a"), world.server("b")
    a.is_up = False
    world.watch(world.listeners, "x")
    a.fail()
    world.settle()
    b.respond(world.listeners, text("x"))
    a.rise()
    world.settle()
    a.respond(world.listeners, text("x"))
    assert [each.getMessage() for each in caplog.records] == [
        'xds server "a": does not answer: connection refused (node id "edge-7")',
        'xds server "a": falling back to "b"',
        'xds server "a": answers again after 0.0 s',
        'xds server "a": is back, "b" is not used any more',
    ]
    world.close()


def test_a_resource_that_does_not_come_is_logged_in_the_words_of_its_watchers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = ClientWorld()
    heard = world.watch(world.listeners, "x")
    world.clock.advance(15)
    (status,) = heard.take()
    assert [each.getMessage() for each in caplog.records] == [status.details]
    world.close()
