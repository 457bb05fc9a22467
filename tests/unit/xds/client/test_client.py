"""Unit tests of the registry of resource watchers."""

import logging

import pytest

from tests.worlds.xds_clients import WatchRecorder, XdsClientWorld, server_config, text


def test_update_of_one_resource_decodes_and_notifies_only_that_one() -> None:
    world = XdsClientWorld()
    recorders = [WatchRecorder() for _ in range(500)]
    for index, recorder in enumerate(recorders):
        world.client.watch(world.routes, f"r{index}", recorder)
    world.settle()
    world.server().respond(world.routes, *(text(f"r{index}") for index in range(500)))
    decoded = world.routes.decoded
    world.server().respond(world.routes, text("r7", "v2"))
    assert world.routes.decoded == decoded + 1
    assert [recorder.received for recorder in recorders].count(["v1"]) == 499
    world.close()


def test_fallback_and_its_end_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxyless.xds.client")
    world = XdsClientWorld(server_config("a"), server_config("b"))
    a, b = world.server("a"), world.server("b")
    a.is_up = False
    world.watch(world.listeners, "x")
    a.fail()
    world.settle()
    b.respond(world.listeners, text("x"))
    a.recover()
    world.settle()
    a.respond(world.listeners, text("x"))
    assert [each.getMessage() for each in caplog.records] == [
        'xds server "a": does not answer: connection refused (node id "edge-7")',
        'xds server "a": falling back to "b"',
        'xds server "a": answers again after 0.0 s',
        'xds server "a": is back, "b" is not used any more',
    ]
    world.close()


def test_timeout_of_a_resource_is_logged_with_the_text_of_the_notification(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = XdsClientWorld()
    recorder = world.watch(world.listeners, "x")
    world.clock.advance(15)
    (status,) = recorder.take()
    assert [each.getMessage() for each in caplog.records] == [status.details]
    world.close()
