"""Who watches what, and who has to be told? What a server's features mean for its resources."""

import logging

import pytest

from proxyless.base import StatusCode
from proxyless.xds.bootstrap import (
    FAIL_ON_DATA_ERRORS,
    IGNORE_RESOURCE_DELETION,
    RESOURCE_TIMER_IS_TRANSIENT_ERROR,
)
from proxyless.xds.client.client import XdsClientOptions, make_rules
from proxyless.xds.client.response import ErrorRules
from tests.xds_client_world import ClientWorld, Recorder, server_config, text

PLAIN = ErrorRules(
    nack_drops=False,
    deletion_drops=True,
    server_errors_count=False,
    timeout_s=15.0,
    timeout_code=StatusCode.NOT_FOUND,
)


def test_without_data_error_handling_only_deletions_can_be_chosen() -> None:
    options = XdsClientOptions()
    assert make_rules(server_config("a"), options) == PLAIN
    features = (FAIL_ON_DATA_ERRORS, RESOURCE_TIMER_IS_TRANSIENT_ERROR)
    assert make_rules(server_config("a", *features), options) == PLAIN
    kept = make_rules(server_config("a", IGNORE_RESOURCE_DELETION), options)
    assert not kept.deletion_drops


def test_with_data_error_handling_the_server_decides_about_all_data_errors() -> None:
    options = XdsClientOptions(has_data_error_handling=True)
    rules = make_rules(server_config("a"), options)
    assert (rules.nack_drops, rules.deletion_drops) == (False, False)
    rules = make_rules(server_config("a", FAIL_ON_DATA_ERRORS, IGNORE_RESOURCE_DELETION), options)
    assert (rules.nack_drops, rules.deletion_drops) == (True, True)
    rules = make_rules(server_config("a", RESOURCE_TIMER_IS_TRANSIENT_ERROR), options)
    assert (rules.timeout_s, rules.timeout_code) == (30.0, StatusCode.UNAVAILABLE)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING": "true"}, True),
        ({"GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING": "True"}, True),
        ({"GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING": "false"}, False),
        ({"GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING": ""}, False),
    ],
)
def test_the_environment_chooses_data_error_handling(
    environ: dict[str, str], expected: bool
) -> None:
    assert XdsClientOptions.from_environment(environ).has_data_error_handling is expected


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
