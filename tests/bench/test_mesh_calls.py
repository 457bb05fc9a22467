"""Number of calls of a unary RPC in a mesh, and of an EDS update, in a channel on real sockets.

The control plane runs in this process and is not counted.
"""

import asyncio
import sys
from collections import Counter
from concurrent import futures
from types import FrameType

import grpc

import proxyless
from proxyless.controlplane import ControlPlane, Snapshot, eds_cluster, endpoints, listener, route

# Measured with Python 3.11: 510.
UPDATE_CALLS_MAX = 512
CONTROL_PLANE = ("proxyless.controlplane",)
# Packages that carry bytes; an update's calls are from the bytes of the response to the new picker.
CARRIERS = tuple(
    f"proxyless.{name}" for name in ("front", "protos", "runtime", "transport", "wire")
)
# Measured with Python 3.11; docs/architecture.md has them.
RPC_CALLS_MAX = 76
RPC_MODULES_MAX = 31
RPCS = 50
QUIET_POLLS = 20
POLL_S = 0.01


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers every method with its request."""

    def service(self, _details: object) -> object:
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: request)


def start_backend() -> tuple[grpc.Server, str]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


def snapshot(*addresses: str) -> Snapshot:
    resources = [
        listener("api", [route(cluster="web")]),
        eds_cluster("web"),
        endpoints("web", list(addresses)),
    ]
    return Snapshot.of(resources)


class CallCounter:
    """Counts the functions that run while it is on."""

    def __init__(self, without: tuple[str, ...] = CONTROL_PLANE) -> None:
        self._without = without
        self.by_name: Counter[str] = Counter()

    def __enter__(self) -> None:
        sys.setprofile(self._on_event)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if (
            event == "call"
            and module.startswith("proxyless.")
            and not module.startswith(self._without)
        ):
            self.by_name[f"{module} {frame.f_code.co_qualname}"] += 1

    async def settle(self) -> None:
        """Wait until nothing more is counted."""
        quiet, total = 0, -1
        while quiet < QUIET_POLLS:
            await asyncio.sleep(POLL_S)  # noqa: TID251 - sockets run on real time.
            quiet = quiet + 1 if self.by_name.total() == total else 0
            total = self.by_name.total()


async def test_eds_update_costs_few_calls_from_the_response_to_the_picker() -> None:
    servers, addresses = zip(*(start_backend() for _ in range(2)), strict=True)
    async with ControlPlane(snapshot(*addresses)) as control_plane:
        bootstrap = control_plane.bootstrap()
        async with proxyless.aio.insecure_channel("xds:///api", bootstrap=bootstrap) as channel:
            call = channel.unary_unary("/echo.Echo/Echo")
            # Methods of values are generated at their first use, so the first update costs more.
            # On a busy machine an update may also include what was left of the one before.
            counters = []
            for number in range(9):
                is_removal = bool(number % 2)
                counter = CallCounter((*CONTROL_PLANE, *CARRIERS))
                with counter:
                    control_plane.set_snapshot(snapshot(*addresses[: 1 if is_removal else 2]))
                    await counter.settle()
                for _ in range(4):
                    assert await call(b"x", timeout=20) == b"x"
                if is_removal:
                    counters.append(counter.by_name)
    for server in servers:
        server.stop(None).wait()
    fewest = min(counters, key=Counter.total)
    assert 100 < fewest.total() <= UPDATE_CALLS_MAX, fewest.most_common()


async def test_unary_rpc_alone_in_flight_calls_few_functions() -> None:
    server, address = start_backend()
    async with ControlPlane(snapshot(address)) as control_plane:
        bootstrap = control_plane.bootstrap()
        async with proxyless.aio.insecure_channel("xds:///api", bootstrap=bootstrap) as channel:
            call = channel.unary_unary("/echo.Echo/Echo")
            # The first ones resolve, connect and fill caches.
            for _ in range(RPCS):
                await call(b"x", timeout=20)
            counters = []
            for _ in range(RPCS):
                counter = CallCounter()
                with counter:
                    assert await call(b"x", timeout=20) == b"x"
                counters.append(counter.by_name)
    server.stop(None).wait()
    # A response that comes in several reads costs more.
    fewest = min(counters, key=Counter.total)
    modules = {name.partition(" ")[0] for name in fewest}
    assert fewest.total() <= RPC_CALLS_MAX, fewest.most_common()
    assert len(modules) <= RPC_MODULES_MAX, sorted(modules)
