"""Number of calls of the xDS client for one EDS response, from its bytes to the watcher.

Where the resource type is a constant and the transport is a list, nearly all calls are those of
`proxyless.xds.client`. The number of calls is the same on every machine.
"""

import sys
from collections.abc import Callable
from types import FrameType

from proxyless.controlplane import endpoints
from proxyless.xds.client import DecodeContext, Decoded, XdsClient
from proxyless.xds.client.connection import Connection
from proxyless.xds.parsing.endpoint import EndpointType
from tests.worlds.xds_clients import TextType, WatchRecorder, XdsClientWorld
from tests.worlds.xds_messages import CONTEXT

# Measured with Python 3.11: 145, of which 96 are Python functions. Later versions have fewer.
CALLS_PER_RESPONSE_MAX = 146
# Functions of this package, and C functions that they call, for one endpoint of a new resource from
# its bytes. Measured 26.3.
CALLS_PER_ENDPOINT_MAX = 27
ENDPOINTS = 2000
# Calls from the connection to the client: server reachable, and outcome. None back.
CROSSINGS_PER_RESPONSE = ["on_reachable", "apply"]


class ConstantEndpoints(TextType):
    """EDS whose resources are named "x" and are their bytes."""

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[str]:
        return Decoded("x", serialized.decode())


class Costs:
    """Calls of a run: how many, and those between a `Connection` and its `XdsClient`."""

    def __init__(self) -> None:
        self.calls = 0
        self.crossings: list[str] = []

    def measure(self, run: Callable[[], object]) -> None:
        before = sys.getprofile()
        sys.setprofile(self._count)
        try:
            run()
        finally:
            sys.setprofile(before)

    def _count(self, frame: FrameType, event: str, _argument: object) -> None:
        self.calls += event in {"call", "c_call"}
        if event == "call" and frame.f_back is not None:
            caller, callee = (frame_owner(each) for each in (frame.f_back, frame))
            if {caller, callee} == {Connection, XdsClient}:
                self.crossings.append(frame.f_code.co_name)


def frame_owner(frame: FrameType) -> type[object]:
    return type(frame.f_locals.get("self"))


def measure_eds_response() -> Costs:
    """Costs of the second of two responses, with one changed resource that has one watcher."""
    world, recorder = XdsClientWorld(), WatchRecorder()
    constant = ConstantEndpoints("ClusterLoadAssignment")
    world.client.watch(constant, "x", recorder)
    world.settle()
    server, costs = world.server(), Costs()
    server.respond(constant, b"1")
    server.ads.send_to_client(server.response(constant, [b"2"], version="2"))
    costs.measure(world.settle)
    assert recorder.take() == ["1", "2"]
    world.close()
    return costs


def test_eds_response_costs_few_calls() -> None:
    assert measure_eds_response().calls <= CALLS_PER_RESPONSE_MAX


def test_eds_response_makes_no_calls_from_client_to_connection() -> None:
    assert measure_eds_response().crossings == CROSSINGS_PER_RESPONSE


def test_new_endpoint_is_decoded_in_few_calls() -> None:
    addresses = [f"10.0.{number >> 8}.{number & 255}:80" for number in range(ENDPOINTS)]
    serialized = endpoints("s", addresses).SerializeToString()
    # The first endpoints generate methods (`base.frozen`).
    EndpointType().decode(endpoints("s", addresses[:100]).SerializeToString(), CONTEXT)
    costs = Costs()
    costs.measure(lambda: EndpointType().decode(serialized, CONTEXT))
    assert costs.calls / ENDPOINTS <= CALLS_PER_ENDPOINT_MAX, costs.calls / ENDPOINTS
