"""Unit tests of decisions about responses: error rules, and the cost of unchanged resources."""

import json
import sys
from collections.abc import Callable
from types import FrameType

from proxyless.base import StatusCode
from proxyless.xds.bootstrap import (
    FAIL_ON_DATA_ERRORS,
    IGNORE_RESOURCE_DELETION,
    RESOURCE_TIMER_IS_TRANSIENT_ERROR,
)
from proxyless.xds.client.api import DecodeContext, Decoded, XdsClientOptions
from proxyless.xds.client.response import ErrorRules, make_rules
from tests.worlds.xds_clients import TextType, XdsClientWorld, server_config, text

PLAIN = ErrorRules(
    nack_drops=False,
    deletion_drops=True,
    server_errors_count=False,
    timeout_s=15.0,
    timeout_code=StatusCode.NOT_FOUND,
)


def test_rules_depend_only_on_deletion_feature_without_data_error_handling() -> None:
    options = XdsClientOptions()
    assert make_rules(server_config("a"), options) == PLAIN
    features = (FAIL_ON_DATA_ERRORS, RESOURCE_TIMER_IS_TRANSIENT_ERROR)
    assert make_rules(server_config("a", *features), options) == PLAIN
    kept = make_rules(server_config("a", IGNORE_RESOURCE_DELETION), options)
    assert not kept.deletion_drops


def test_rules_depend_on_features_with_data_error_handling() -> None:
    options = XdsClientOptions(has_data_error_handling=True)
    rules = make_rules(server_config("a"), options)
    assert (rules.nack_drops, rules.deletion_drops) == (False, False)
    rules = make_rules(server_config("a", FAIL_ON_DATA_ERRORS, IGNORE_RESOURCE_DELETION), options)
    assert (rules.nack_drops, rules.deletion_drops) == (True, True)
    rules = make_rules(server_config("a", RESOURCE_TIMER_IS_TRANSIENT_ERROR), options)
    assert (rules.timeout_s, rules.timeout_code) == (30.0, StatusCode.UNAVAILABLE)


def test_only_changed_resources_are_decoded() -> None:
    world = XdsClientWorld()
    for index in range(1000):
        world.watch(world.listeners, f"x{index}")
    resources = [text(f"x{index}") for index in range(1000)]
    world.server().respond(world.listeners, *resources)
    assert world.listeners.decoded == 1000
    resources[500] = text("x500", "v2")
    world.server().respond(world.listeners, *resources, version="2")
    assert world.listeners.decoded == 1001
    world.server().respond(world.listeners, *resources, version="3", wrapped=True)
    assert world.listeners.decoded == 1001
    world.close()


class CheapClusters(TextType):
    """Resource type with cheap decoding, the worst case for the ratio of costs."""

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[str]:
        document = json.loads(serialized)
        return Decoded(document["name"], document["value"])


def test_response_with_one_change_costs_at_most_a_third_of_the_first() -> None:
    world = XdsClientWorld()
    clusters = CheapClusters("Cluster", is_full_state=True)
    for index in range(1000):
        world.client.watch(clusters, f"x{index}", _IgnoringWatcher())
    world.settle()
    server = world.server()

    def cost(*changes: bytes) -> int:
        resources = [text(f"x{index}") for index in range(len(changes), 1000)]
        server.ads.send_to_client(server.response(clusters, [*changes, *resources]))
        return _count_calls(world.settle)

    first = cost()
    again = cost(text("x0", "v2"))
    assert again <= first / 3
    world.close()


def _count_calls(action: Callable[[], None]) -> int:
    """Number of calls in Python and C, which is the same on every machine."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls


class _IgnoringWatcher:
    def on_resource(self, resource: object) -> None:
        return

    def on_ambient_error(self, status: object) -> None:
        return
