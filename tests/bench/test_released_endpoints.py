"""Endpoints that leave are freed by reference counting, without the garbage collector.

An endpoint has 66 objects. If they were in reference cycles, a cluster whose endpoints are replaced
would hold those of several generations until a full collection, which blocks the loop.
"""

import asyncio
import gc
import sys
from collections import Counter
from concurrent import futures

import grpc
import pytest

import proxyless
from proxyless.assembly import stack_of_running_loop, xds_stack_of_running_loop
from proxyless.controlplane import ControlPlane, Snapshot, eds_cluster, endpoints, listener, route

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs all addresses of 127.0.0.0/8"
)

STAYING, ALL = 3, 23
TRANSPORT = "proxyless.transport.client.ClientTransport"
POLL_S = 0.01
PATIENCE_S = 20.0


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers every method with its request."""

    def service(self, _details: object) -> object:
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: request)


def snapshot(port: int, count: int) -> Snapshot:
    addresses = [f"127.2.0.{number}:{port}" for number in range(1, count + 1)]
    resources = [
        listener("api", [route(cluster="web")]),
        eds_cluster("web"),
        endpoints("web", addresses),
    ]
    return Snapshot.of(resources)


def count_objects() -> Counter[str]:
    """The number of objects of each class of this package."""
    names = (f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    return Counter(name for name in names if name.startswith("proxyless."))


async def expect_connections(count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while count_objects()[TRANSPORT] != count:  # noqa: ASYNC110 - objects have no event
            await asyncio.sleep(POLL_S)  # noqa: TID251 - sockets run on real time.


async def test_removed_endpoints_are_freed_without_a_collection() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("0.0.0.0:0")
    server.start()
    # Stacks of the loops of other tests are dropped when this loop has its own.
    stack_of_running_loop()
    xds_stack_of_running_loop()
    gc.collect()
    # That to the control plane, and what another test has left.
    others = 1 + count_objects()[TRANSPORT]
    async with ControlPlane(snapshot(port, STAYING)) as control_plane:
        bootstrap = control_plane.bootstrap()
        async with proxyless.aio.insecure_channel("xds:///api", bootstrap=bootstrap) as channel:
            call = channel.unary_unary("/echo.Echo/Echo")

            async def call_all() -> None:
                # Pickers and subchannels keep the results of their last picks.
                for _ in range(3 * ALL):
                    await call(b"x")

            await call_all()
            await expect_connections(others + STAYING)
            gc.collect()
            before = count_objects()
            gc.disable()
            try:
                control_plane.set_snapshot(snapshot(port, ALL))
                await expect_connections(others + ALL)
                await call_all()
                control_plane.set_snapshot(snapshot(port, STAYING))
                await expect_connections(others + STAYING)
                await call_all()
                left = count_objects()
            finally:
                gc.enable()
    server.stop(None).wait()
    grown = {
        name: number - before[name]
        for name, number in left.items()
        # The queue of deadlines drops calls that have ended some at a time.
        if not name.startswith(("proxyless.channel.call", "proxyless.channel.request_buffer"))
    }
    assert {name: number for name, number in grown.items() if number >= ALL - STAYING} == {}
