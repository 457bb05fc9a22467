"""What does one response change? The cost of what did not change."""

import json
import sys
from collections.abc import Callable
from types import FrameType

from proxyless.xds.client.api import DecodeContext, Decoded
from tests.xds_client_world import ClientWorld, Text, text


def test_only_what_changed_is_decoded() -> None:
    world = ClientWorld()
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


class CheapClusters(Text):
    """Decoding that costs about as little as decoding can: a real one costs many times more."""

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[str]:
        document = json.loads(serialized)
        return Decoded(document["name"], document["value"])


def test_a_response_in_which_one_resource_changed_costs_a_third_of_the_first() -> None:
    world = ClientWorld()
    clusters = CheapClusters("Cluster", is_full_state=True)
    for index in range(1000):
        world.client.watch(clusters, f"x{index}", _Nobody())
    world.settle()
    server = world.server()

    def cost(*changes: bytes) -> int:
        resources = [text(f"x{index}") for index in range(len(changes), 1000)]
        server.ads.say(server.response(clusters, [*changes, *resources]))
        return _count_calls(world.settle)

    first = cost()
    again = cost(text("x0", "v2"))
    assert again <= first / 3
    world.close()


def _count_calls(action: Callable[[], None]) -> int:
    """How many functions are called, in Python and in C: the same on every machine."""
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


class _Nobody:
    def on_resource(self, resource: object) -> None:
        return

    def on_ambient_error(self, status: object) -> None:
        return
