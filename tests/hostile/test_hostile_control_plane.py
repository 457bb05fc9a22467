"""Hostile control planes: no resource and no server makes a turn of the loop long.

Each attack goes through a real client and the real resource types; only the transport is a fake.
The watchdog measures the CPU time of each callback. The figures in the comments are the times of
these responses if each is handled in one turn, on a machine where the limit is kept with a margin
of five. grpcio's client works in a thread of its own, so its loop is free, but its RPCs wait
for as long: docs/limits.md has its figures.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from proxyless.assembly import default_policies
from proxyless.protos import Proto, message_class
from proxyless.runtime import LoopClock, VirtualClock, WorkQueue, seeded_random
from proxyless.runtime.work_queue import UNITS_PER_TURN, finish
from proxyless.xds.bootstrap import Bootstrap, Node
from proxyless.xds.client import DecodeContext, Decoded, Tools, XdsClient, codec
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.parsing import (
    ClusterType,
    EndpointType,
    ListenerType,
    RouteConfigurationType,
    limits,
)
from proxyless.xds.resources import regex
from tests.hostile.watchdog import loop_watchdog
from tests.worlds.xds_clients import (
    GONE,
    FakeXdsServer,
    FakeXdsTransports,
    WatchRecorder,
    XdsClientWorld,
    server_config,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.runtime.work_queue import Steps
    from proxyless.xds.client import ResourceType

# A pause of the machine may add CPU time to one callback.
pytestmark = pytest.mark.rerun("the CPU time of callbacks is measured")

T = TypeVar("T")

FILTERS = FilterRegistry(FILTER_FACTORIES)
LISTENER = message_class("envoy.config.listener.v3.Listener")
ROUTES = message_class("envoy.config.route.v3.RouteConfiguration")
CLUSTER = message_class("envoy.config.cluster.v3.Cluster")
ENDPOINTS = message_class("envoy.config.endpoint.v3.ClusterLoadAssignment")
MANAGER = message_class(
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)
TLS = message_class("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext")
AGGREGATE = message_class("envoy.extensions.clusters.aggregate.v3.ClusterConfig")

# RE2 takes 5 ms until it rejects it.
EXPENSIVE = r"(\pL){1000}"


class CompileCounter:
    """Counts the expressions that are compiled, from an empty cache on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._compile = regex._compile_new  # noqa: SLF001
        cache = regex.RegexCache(regex.CACHED_PATTERNS_MAX, regex.CACHED_INSTRUCTIONS_MAX)
        monkeypatch.setattr(regex, "_CACHE", cache)
        monkeypatch.setattr(regex, "_compile_new", self._count)

    def _count(self, source: str) -> object:
        self.count += 1
        return self._compile(source)


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> CompileCounter:
    return CompileCounter(monkeypatch)


# ---------------------------------------------------------------------------------------------
# Resources


def add_routes(host: Proto, count: int, pattern: Callable[[int], str] | None = None) -> None:
    for number in range(count):
        route = host.routes.add(route={"cluster": f"cluster-{number % 100}"})
        if pattern is None:
            route.match.path = f"/package.Service{number}/Method"
        else:
            route.match.safe_regex.regex = pattern(number)


def routes(count: int, pattern: Callable[[int], str] | None = None) -> Proto:
    message = ROUTES(name="x")
    add_routes(message.virtual_hosts.add(name="h", domains=["*"]), count, pattern)
    return message


def empty_routes(count: int) -> Proto:
    message = routes(0)
    for _ in range(count):
        message.virtual_hosts[0].routes.add()
    return message


def routes_with_headers() -> Proto:
    message = routes(100)
    for route in message.virtual_hosts[0].routes:
        for number in range(1_000):
            route.match.headers.add(name=f"h{number}", string_match={"exact": str(number)})
    return message


def listener() -> Proto:
    manager = MANAGER(route_config=routes(10_000))
    router = manager.http_filters.add(name="router").typed_config
    router.type_url = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
    message = LISTENER(name="x")
    message.api_listener.api_listener.Pack(manager)
    return message


def endpoints(count: int) -> Proto:
    message = ENDPOINTS(cluster_name="x")
    locality = message.endpoints.add(locality={"zone": "z"}, load_balancing_weight={"value": 1})
    for number in range(count):
        host = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        locality.lb_endpoints.add(
            endpoint={"address": {"socket_address": {"address": host, "port_value": 80}}}
        )
    return message


def empty_localities(count: int) -> Proto:
    message = ENDPOINTS(cluster_name="x")
    for _ in range(count):
        message.endpoints.add()
    return message


def cluster(name: str = "x") -> Proto:
    return CLUSTER(name=name, type="EDS", eds_cluster_config={"eds_config": {"ads": {}}})


def cluster_with_names(count: int) -> Proto:
    message = cluster()
    message.transport_socket.typed_config.Pack(tls_with_names(count))
    return message


def tls_with_names(count: int) -> Proto:
    message = TLS()
    names = message.common_tls_context.validation_context.match_subject_alt_names
    for number in range(count):
        names.add(safe_regex={"regex": f"{EXPENSIVE}{number}"})
    return message


def aggregate(count: int) -> Proto:
    message = CLUSTER(name="x")
    message.cluster_type.typed_config.Pack(AGGREGATE(clusters=[f"c{n}" for n in range(count)]))
    return message


# ---------------------------------------------------------------------------------------------
# Turns of a real loop


async def run_turns(count: int = 1) -> None:
    for _ in range(count):
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop


async def run_until(condition: Callable[[], T]) -> T:
    """Run turns until the condition is true; return its value."""
    while not (value := condition()):
        await run_turns()
    return value


class LoopWorld:
    """A client on a running asyncio loop, with a fake server."""

    def __init__(self) -> None:
        clock: Any = LoopClock(asyncio.get_running_loop())
        self._transports = FakeXdsTransports(clock)
        bootstrap = Bootstrap(servers=(server_config(),), node=Node(id="edge-7"))
        self.client = XdsClient(
            bootstrap, self._transports, Tools(clock, seeded_random(1), work=WorkQueue(clock))
        )
        self.recorder = WatchRecorder()

    @property
    def server(self) -> FakeXdsServer:
        return self._transports.server("a")

    async def respond(self, kind: Any, *resources: Proto) -> str:  # noqa: ANN401
        """Send a response, under the watchdog; return the error of the NACK."""
        self.client.watch(kind, "x", self.recorder)
        await run_until(self.server.take_requests_if_any)
        message = self.server.response(kind, [each.SerializeToString() for each in resources])
        with loop_watchdog():
            self.server.ads.send_to_client(message)
            answers = await run_until(self.server.take_requests_if_any)
        await run_turns(3)
        return str(answers[-1].error_detail.message)


async def respond(kind: ResourceType[object], *resources: Proto) -> tuple[str, list[Any]]:
    """The error of the NACK, and the notifications of the watcher of "x"."""
    world = LoopWorld()
    try:
        error = await world.respond(kind, *resources)
        return error, world.recorder.take()
    finally:
        world.client.close()
        await run_turns()


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        # 144 ms; of a listener as much
        (RouteConfigurationType(FILTERS), lambda: routes(10_000)),
        (ListenerType(FILTERS), listener),
        (RouteConfigurationType(FILTERS), lambda: routes(3_000, lambda n: f"/p{n}\\.Service/.*")),
        (RouteConfigurationType(FILTERS), routes_with_headers),
        # 63 ms for 5,000
        (EndpointType(), lambda: endpoints(20_000)),
    ],
    ids=["routes", "listener", "expressions", "headers", "endpoints"],
)
async def test_large_valid_resource_takes_no_long_turn(
    kind: ResourceType[object], make: Callable[[], Proto]
) -> None:
    error, received = await respond(kind, make())
    assert error == ""
    assert len(received) == 1


@pytest.mark.parametrize(
    ("kind", "make", "expected"),
    [
        # 5.6 s for 300
        (
            RouteConfigurationType(FILTERS),
            lambda: routes(3_000, lambda n: r"\pL" * 200 + str(n)),
            "has 200 Unicode classes, wanted at most 64",
        ),
        # 14 s
        (
            RouteConfigurationType(FILTERS),
            lambda: routes(3_000, lambda n: f"{EXPENSIVE}{n}"),
            "pattern too large",
        ),
        (
            RouteConfigurationType(FILTERS),
            lambda: routes(20, lambda n: "a" * 100_000 + str(n)),
            "characters, wanted at most 4096",
        ),
        (
            RouteConfigurationType(FILTERS),
            lambda: empty_routes(400_000),
            "routes error:has 400000 elements, wanted at most 100000",
        ),
        (RouteConfigurationType(FILTERS), lambda: empty_routes(90_000), "match error:is unset"),
        # 320 ms for 900,000
        (
            EndpointType(),
            lambda: empty_localities(400_000),
            "endpoints error:has 400000 elements, wanted at most 3000",
        ),
        (
            EndpointType(),
            lambda: endpoints(20_001),
            "endpoints error:has 20001 endpoints, wanted at most 20000",
        ),
        # 1.4 s
        (ClusterType(default_policies()), lambda: cluster_with_names(300), "is too large or has"),
        (
            ClusterType(default_policies()),
            lambda: aggregate(100_000),
            "bytes, wanted at most 262144",
        ),
    ],
    ids=[
        "unicode classes",
        "repetitions",
        "long patterns",
        "too many routes",
        "empty routes",
        "too many localities",
        "too many endpoints",
        "names of certificates",
        "aggregate",
    ],
)
async def test_resource_beyond_a_limit_is_rejected_without_a_long_turn(
    kind: ResourceType[object], make: Callable[[], Proto], expected: str
) -> None:
    error, received = await respond(kind, make())
    assert expected in error
    assert len(error) < 20_000
    assert [each.code.name for each in received] == ["INVALID_ARGUMENT"]


async def test_response_with_many_resources_takes_no_long_turn() -> None:
    # 410 ms
    error, received = await respond(
        ClusterType(default_policies()), cluster(), *(cluster(f"c{n}") for n in range(10_000))
    )
    assert (error, len(received)) == ("", 1)


async def test_response_with_too_many_resources_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codec, "RESPONSE_RESOURCES_MAX", 1_000)
    error, received = await respond(EndpointType(), *(ENDPOINTS() for _ in range(1_001)))
    assert error.startswith("endpoints: response has 1001 resources, wanted at most 1000")
    assert received == []


# ---------------------------------------------------------------------------------------------
# Work, counted


def steps_of(kind: Any, message: Proto) -> tuple[Decoded[Any], list[int]]:  # noqa: ANN401
    """The result of decoding, and the work of each step."""
    steps: list[int] = []

    def record() -> Steps[Decoded[Any]]:
        decoding = kind.decode_in_steps(message.SerializeToString(), context())
        while True:
            try:
                work = next(decoding)
            except StopIteration as stop:
                result: Decoded[Any] = stop.value
                return result
            steps.append(work)
            yield work

    return finish(record()), steps


def context() -> DecodeContext:
    server = server_config()
    return DecodeContext(server, Bootstrap(servers=(server,)))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (RouteConfigurationType(FILTERS), routes(2_000)),
        (RouteConfigurationType(FILTERS), routes_with_headers()),
        (ListenerType(FILTERS), listener()),
        (EndpointType(), endpoints(5_000)),
    ],
    ids=["routes", "headers", "listener", "endpoints"],
)
def test_steps_of_a_valid_resource_are_far_smaller_than_a_slice(kind: Any, message: Proto) -> None:  # noqa: ANN401
    decoded, steps = steps_of(kind, message)
    assert decoded.error == ""
    assert max(steps) < UNITS_PER_TURN / 3
    assert sum(steps) > 3 * UNITS_PER_TURN
    assert decoded == kind.decode(message.SerializeToString(), context())


def test_few_expressions_are_compiled_when_they_are_invalid(compiles: CompileCounter) -> None:
    message = routes(3_000, lambda n: f"{EXPENSIVE}{n}")
    decoded, steps = steps_of(RouteConfigurationType(FILTERS), message)
    assert "is not checked: the resource has too many regular expressions" in decoded.error
    assert compiles.count == 11
    assert max(steps) < limits.PART_WORK_MAX


def test_few_expressions_of_a_cluster_are_compiled(compiles: CompileCounter) -> None:
    decoded, _ = steps_of(ClusterType(default_policies()), cluster_with_names(300))
    assert "is too large or has too many elements" in decoded.error
    assert compiles.count <= 1 + limits.PART_WORK_MAX // 10_000


def test_expressions_are_compiled_once(compiles: CompileCounter) -> None:
    message = routes(100, lambda n: f"/p{n % 10}.*")
    for number, route in enumerate(message.virtual_hosts[0].routes):
        route.name = str(number)
    for _ in range(3):
        decoded, _ = steps_of(RouteConfigurationType(FILTERS), message)
        assert decoded.error == ""
    assert compiles.count == 10


def test_resources_are_not_decoded_after_too_much_work_for_invalid_ones(
    compiles: CompileCounter,
) -> None:
    world = XdsClientWorld()
    kind: Any = RouteConfigurationType(FILTERS)
    messages = []
    for number in range(200):
        message = routes(20, lambda n, number=number: f"{EXPENSIVE}{n}.{number}")  # type: ignore[misc]
        message.name = f"x{number}"
        messages.append(message.SerializeToString())
    recorder = WatchRecorder()
    for number in range(200):
        world.client.watch(kind, f"x{number}", recorder)
    world.settle()
    world.server().take_requests()
    world.server().respond(kind, *messages)
    (answer,) = world.server().take_requests()
    assert answer.error_detail.message.endswith('more errors (node id "edge-7")')
    assert compiles.count < 200
    assert 5 < len(recorder.take()) < 20
    world.close()


def test_list_stops_after_the_errors_that_are_kept() -> None:
    decoded, steps = steps_of(RouteConfigurationType(FILTERS), empty_routes(50_000))
    assert decoded.error.endswith("; and more]")
    assert sum(steps) < 20 * UNITS_PER_TURN


@pytest.mark.parametrize("weight", [2**31, 2**32 - 1])
def test_sum_of_weights_above_uint32_is_rejected(weight: int) -> None:
    localities = endpoints(1)
    for zone in ("y", "w"):
        localities.endpoints.add(locality={"zone": zone}, load_balancing_weight={"value": weight})
    weighted = routes(1)
    clusters = weighted.virtual_hosts[0].routes[0].route.weighted_clusters.clusters
    for name in ("a", "b"):
        clusters.add(name=name, weight={"value": weight})
    error = EndpointType().decode(localities.SerializeToString(), context()).error
    assert f"add up to {2 * weight + 1}, wanted at most 4294967295" in error
    kind = RouteConfigurationType(FILTERS)
    error = kind.decode(weighted.SerializeToString(), context()).error
    assert f"has weights of {2 * weight} in all, wanted at most 4294967295" in error


def test_hostname_is_rejected_when_it_is_too_long_for_an_authority() -> None:
    message = endpoints(1)
    message.endpoints[0].lb_endpoints[0].endpoint.hostname = "h" * 1_025
    error = EndpointType().decode(message.SerializeToString(), context()).error
    assert "endpoint.hostname error:has 1025 characters, wanted at most 1024" in error


# ---------------------------------------------------------------------------------------------
# Servers


def test_answers_do_not_pile_up_when_the_server_does_not_read() -> None:
    world = XdsClientWorld()
    watches = [world.watch(world.listeners, f"x{n}") for n in range(10)]
    server = world.server()
    server.take_requests()
    server.ads.is_writable = False
    for number in range(1_000):
        bad = "bad" if number % 2 else f"v{number}"
        server.respond(world.listeners, text("x0", bad), version=str(number), nonce=f"n{number}")
        world.client.watch(world.listeners, f"y{number}", WatchRecorder())
    world.settle()
    assert server.ads.sent == []
    assert len(watches[0].take()) > 1
    server.ads.read_again()
    (request,) = server.take_requests()
    assert request.response_nonce == "n999"
    assert request.version_info == "998"
    assert "value is bad" in request.error_detail.message
    assert len(request.resource_names) == 1_010
    world.close()


def test_requests_do_not_pile_up_while_there_is_no_connection() -> None:
    world = XdsClientWorld()
    world.server().is_up = False
    for number in range(100):
        world.client.watch(world.listeners, f"x{number}", WatchRecorder())
        world.server().ads.is_writable = False
        world.settle()
    assert world.server().ads.sent == []
    world.server().ads.is_writable = True
    world.server().recover()
    world.settle()
    assert [len(each.resource_names) for each in world.server().take_requests()] == [100]
    world.close()


def test_clients_of_a_loop_share_the_slice_of_a_turn() -> None:
    clock = VirtualClock()
    queue = WorkQueue(clock)
    ran: list[int] = []

    def work(number: int) -> Steps[None]:
        for _ in range(10):
            ran.append(number)
            yield UNITS_PER_TURN

    for number in range(5):
        queue.run_steps(work(number))
    assert ran == [0]
    clock.advance(0)
    assert ran[:11] == [0, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4]


async def test_end_of_the_stream_in_a_large_response_loses_no_resource() -> None:
    world = LoopWorld()
    kind: Any = RouteConfigurationType(FILTERS)
    world.client.watch(kind, "x", world.recorder)
    await run_until(world.server.take_requests_if_any)
    message = world.server.response(kind, [routes(5_000).SerializeToString()])
    with loop_watchdog():
        world.server.ads.send_to_client(message)
        await run_turns(2)
        world.server.ads.end(GONE)
        await run_until(lambda: world.recorder.received)
    (resource,) = world.recorder.take()
    assert len(resource.virtual_hosts[0].routes) == 5_000
    # There is no answer; a new stream may have started.
    assert {each.response_nonce for each in world.server.take_requests_if_any()} <= {""}
    world.client.close()
    await run_turns()
