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
from proxyless.controlplane import ControlPlane, Snapshot, eds_cluster, endpoints, listener, route
from proxyless.transport import ClientTransport

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs all addresses of 127.0.0.0/8"
)

STAYING, ALL = 3, 23
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


def count_connections() -> int:
    return sum(isinstance(each, ClientTransport) for each in gc.get_objects())


async def expect_connections(count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while count_connections() != count:  # noqa: ASYNC110 - objects have no event
            await asyncio.sleep(POLL_S)  # noqa: TID251 - sockets run on real time.


def collect_ours() -> Counter[str]:
    """Collect garbage; returns the classes of this package that were in it."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        found = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    return Counter({name: n for name, n in found.items() if name.startswith("proxyless.")})


async def test_removed_endpoints_leave_no_garbage() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("0.0.0.0:0")
    server.start()
    gc.collect()
    # That to the control plane, and what another test has left.
    others = 1 + count_connections()
    async with ControlPlane(snapshot(port, ALL)) as control_plane:
        bootstrap = control_plane.bootstrap()
        async with proxyless.aio.insecure_channel("xds:///api", bootstrap=bootstrap) as channel:
            call = channel.unary_unary("/echo.Echo/Echo")
            await call(b"x", timeout=PATIENCE_S)
            await expect_connections(others + ALL)
            # Pickers and subchannels keep the results of their last picks.
            for _ in range(3 * ALL):
                await call(b"x", timeout=PATIENCE_S)
            gc.collect()
            gc.disable()
            try:
                control_plane.set_snapshot(snapshot(port, STAYING))
                # The objects are gone although nothing is collected.
                await expect_connections(others + STAYING)
                garbage = collect_ours()
            finally:
                gc.enable()
    server.stop(None).wait()
    per_endpoint = {name: n for name, n in garbage.items() if n >= ALL - STAYING}
    assert per_endpoint == {}
