"""A17: client-side health checking, and its effect on picks.

Each test runs the whole stack in virtual time, with backends whose health the test sets.
"""

from __future__ import annotations

import asyncio
import json
import logging
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from proxyless.assembly import Registries
from proxyless.base import (
    EMPTY_ATTRIBUTES,
    OK,
    Endpoint,
    IpAddress,
    Metadata,
    State,
    Status,
    StatusCode,
)
from proxyless.controlplane import simple_mesh
from proxyless.lb import QUEUE_PICKER, Complete, FailPicker, SubchannelPicker
from proxyless.resolver import ResolverResult
from proxyless.sim import UNARY, World, pause
from proxyless.transport import Server, ServerCall
from tests.worlds.channels import ScriptedResolver

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from proxyless.front import AioChannel
    from proxyless.lb import Helper, Subchannel, Update
    from proxyless.sim import Host

PORT = 50051
WATCH = "/grpc.health.v1.Health/Watch"
SERVICE = "shop.Orders"

UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN = 0, 1, 2, 3
READY = grpc.ChannelConnectivity.READY
IDLE = grpc.ChannelConnectivity.IDLE
CONNECTING = grpc.ChannelConnectivity.CONNECTING
FAILURE = grpc.ChannelConnectivity.TRANSIENT_FAILURE

ROUND_ROBIN: Mapping[str, object] = {"round_robin": {}}
# More than any round trip here, and less than any backoff.
SOON_S = 0.3


def config_of(
    policy: Mapping[str, object] = ROUND_ROBIN, service: str | None = SERVICE
) -> dict[str, object]:
    health = {} if service is None else {"healthCheckConfig": {"serviceName": service}}
    return {"loadBalancingConfig": [policy], **health}


class Backend:
    """Backend that answers RPCs with its name, and serves the health service."""

    def __init__(self, host: Host, health: int | None, *, implements_health: bool = True) -> None:
        self.host = host
        self.name = host.name
        self.address = IpAddress(host.ip, PORT)
        # Status of the service; None: no response yet.
        self.health = health
        # Status that ends open and new Watch streams; None: they stay open.
        self.end: Status | None = None
        # Service names and start times of all Watch streams; number of open ones.
        self.watched_services: list[str] = []
        self.watched_s: list[float] = []
        self.metadata: Metadata = ()
        self.watches = 0
        self.rpcs = 0
        # Status of RPCs.
        self.status = OK
        self._restarts = 0
        self._changed = asyncio.Condition()
        methods = {UNARY: self._answer, WATCH: self._watch}
        self._server = Server(methods if implements_health else {UNARY: self._answer})

    async def start(self) -> None:
        await self._server.listen(self.address, network=self.host.network)

    async def stop(self) -> None:
        await self._server.close()

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    @property
    def accepted(self) -> int:
        return self._server.accepted

    def send_goaway(self) -> None:
        for connection in list(self._server.connections):
            connection.drain()

    async def set_health(self, health: int | None, *, end: Status | None = None) -> None:
        """Send this status to all Watch streams, and wait until it is processed."""
        async with self._changed:
            self.health, self.end = health, end
            self._changed.notify_all()
        await pause(SOON_S)

    async def restart_watches(self) -> None:
        """End open Watch streams, and send no response on the next ones."""
        async with self._changed:
            self.health, self._restarts = None, self._restarts + 1
            self._changed.notify_all()
        await pause(SOON_S)

    async def _answer(self, call: ServerCall) -> Status:
        self.rpcs += 1
        await call.read()
        if self.status.is_ok:
            await call.write(self.name.encode())
        return self.status

    async def _watch(self, call: ServerCall) -> Status:
        message = await call.read()
        assert message is not None
        self.watched_services.append(health_pb2.HealthCheckRequest.FromString(message).service)
        self.watched_s.append(asyncio.get_running_loop().time())
        self.metadata = call.request.metadata
        self.watches += 1
        try:
            return await self._send_changes(call)
        finally:
            self.watches -= 1

    async def _send_changes(self, call: ServerCall) -> Status:
        sent, restarts = None, self._restarts
        async with self._changed:
            while True:
                if self.health not in {sent, None}:
                    sent = self.health
                    await call.write(encode(sent))
                if self.end is not None:
                    return self.end
                if self._restarts != restarts:
                    return Status(StatusCode.UNAVAILABLE, "restart")
                await self._changed.wait()


def encode(health: int | None) -> bytes:
    if health == UNREADABLE:
        return b"\x08"
    status = SERVING if health == TOO_LARGE else health
    data: bytes = health_pb2.HealthCheckResponse(status=status).SerializeToString()
    # An unknown field of 1023 bytes and its tag.
    return data + b"\x7a\xff\x07" + b"x" * 1023 if health == TOO_LARGE else data


UNREADABLE = -1
# SERVING, in more than 1 KiB.
TOO_LARGE = -2


class Shop:
    """A client and its backends in virtual time. `run` also checks that no task is left."""

    def __init__(self, seed: int = 17) -> None:
        self.world = World(seed)
        self.backends: dict[str, Backend] = {}

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        self.world.run(self._live(story), virtual_seconds=3600)
        assert self.world.exceptions == []
        assert self.world.left_behind == []

    async def _live(self, story: Coroutine[Any, Any, None]) -> None:
        try:
            await story
        finally:
            for client in self.world.clients.values():
                await client.close()
            await pause(SOON_S)
            watches = {each.name: each.watches for each in self.backends.values()}
            for backend in self.backends.values():
                await backend.stop()
        assert watches == dict.fromkeys(watches, 0), "a stream outlives the channel"

    async def open(
        self,
        *health: int | None,
        implements_health: bool = True,
        **options: Any,  # noqa: ANN401
    ) -> AioChannel:
        """Start backends a, b, ... with these health states; return a channel to them."""
        for name, each in zip("abcdef", health, strict=False):
            backend = Backend(self.world.host(name), each, implements_health=implements_health)
            self.backends[name] = backend
            await backend.start()
        return self.channel(**options)

    def channel(
        self,
        config: Mapping[str, object] | None = None,
        options: Iterable[tuple[str, object]] = (),
        **more: Any,  # noqa: ANN401
    ) -> AioChannel:
        config = config_of() if config is None else config
        addresses = ",".join(str(each.address) for each in self.backends.values())
        target = more.pop("target", f"ipv4:{addresses}")
        return self.world.client().channel(
            target, options=[("grpc.service_config", json.dumps(config)), *options], **more
        )

    def __getitem__(self, name: str) -> Backend:
        return self.backends[name]

    @property
    def checkers(self) -> int:
        return len(self.world.client().host.stack().pool.health_checkers)


async def call(channel: AioChannel, *, wait_for_ready: bool | None = None) -> str:
    reply = await channel.unary_unary(UNARY)(b"", timeout=600, wait_for_ready=wait_for_ready)
    return str(reply, "ascii")


async def names(channel: AioChannel, count: int = 8) -> str:
    """Names of the backends that answer, sorted."""
    return "".join(sorted({await call(channel) for _ in range(count)}))


async def failure_of(channel: AioChannel) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call(channel)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(raised.value.details())


async def connect(channel: AioChannel) -> None:
    channel.get_state(try_to_connect=True)
    await pause(SOON_S)


@pytest.fixture
def shop() -> Shop:
    return Shop()


# ---------------------------------------------------------------------------------------------
# When health is watched


@pytest.mark.spec("HC-01")
@pytest.mark.parametrize(
    ("config", "options"),
    [
        (config_of(service=None), ()),
        ({**config_of(), "healthCheckConfig": {}}, ()),
        (config_of(), (("grpc.inhibit_health_checking", 1),)),
    ],
)
def test_health_is_not_watched_unless_it_is_configured(
    shop: Shop, config: Mapping[str, object], options: Iterable[tuple[str, object]]
) -> None:
    async def story() -> None:
        channel = await shop.open(NOT_SERVING, config=config, options=options)
        assert await names(channel) == "a"
        assert shop["a"].watched_services == []

    shop.run(story())


@pytest.mark.spec("HC-01", "HC-02")
@pytest.mark.parametrize("service", [SERVICE, "", "läden/1"])
def test_each_connection_watches_the_configured_service(shop: Shop, service: str) -> None:
    async def story() -> None:
        options = (("grpc.inhibit_health_checking", 0),)
        channel = await shop.open(
            SERVING, SERVING, config=config_of(service=service), options=options
        )
        assert await names(channel) == "ab"
        assert [shop[name].watched_services for name in "ab"] == [[service], [service]]

    shop.run(story())


@pytest.mark.spec("HC-02")
def test_rpcs_wait_until_the_first_health_response(shop: Shop) -> None:
    async def story() -> None:
        channel = await shop.open(None)
        rpc = asyncio.ensure_future(call(channel))
        await pause(100)
        assert channel.get_state() is CONNECTING
        assert (shop["a"].watches, shop["a"].rpcs, rpc.done()) == (1, 0, False)
        await shop["a"].set_health(SERVING)
        assert await rpc == "a"
        assert channel.get_state() is READY

    shop.run(story())


PER_ENDPOINT: list[Mapping[str, object]] = [
    ROUND_ROBIN,
    {"weighted_round_robin": {}},
    {"least_request_experimental": {}},
    {"proxyless.peak_ewma": {}},
    {"ring_hash_experimental": {"requestHashHeader": "x-user"}},
    {"random": {}},
    {"random_subsetting_experimental": {"subsetSize": 3, "childPolicy": [ROUND_ROBIN]}},
]


@pytest.mark.spec("HC-08")
@pytest.mark.parametrize("policy", PER_ENDPOINT, ids=lambda policy: next(iter(policy)))
def test_per_endpoint_policies_leave_out_backends_that_are_not_serving(
    shop: Shop, policy: Mapping[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPC_EXPERIMENTAL_RING_HASH_SET_REQUEST_HASH_KEY", "true")

    async def story() -> None:
        channel = await shop.open(SERVING, NOT_SERVING, SERVING, config=config_of(policy))
        await names(channel, 30)
        await pause(SOON_S)
        assert await names(channel, 60) == "ac"
        assert shop["b"].rpcs == 0

    shop.run(story())


PICK_FIRST: Mapping[str, object] = {"pick_first": {}}


@pytest.mark.spec("HC-08")
@pytest.mark.parametrize(
    "policy",
    [
        PICK_FIRST,
        {"outlier_detection_experimental": {"childPolicy": [PICK_FIRST]}},
        {"random_subsetting_experimental": {"subsetSize": 1, "childPolicy": [PICK_FIRST]}},
    ],
    ids=["alone", "below outlier_detection", "below random_subsetting"],
)
def test_pick_first_does_not_watch_health(shop: Shop, policy: Mapping[str, object]) -> None:
    async def story() -> None:
        channel = await shop.open(NOT_SERVING, config=config_of(policy))
        assert await names(channel) == "a"
        assert shop["a"].watched_services == []

    shop.run(story())


class OwnPolicy:
    """A custom policy that uses the first endpoint when its health is READY. Its own factory."""

    name = "own"

    def __init__(self) -> None:
        self.states: list[State] = []
        self._helper: Helper
        self._subchannel: Subchannel

    def parse_config(self, *_: object) -> object:
        return None

    def create(self, helper: Helper) -> OwnPolicy:
        self._helper = helper
        return self

    def update(self, update: Update) -> Status:
        assert not isinstance(update.endpoints, Status)
        address = update.endpoints[0].addresses[0]
        self._subchannel = self._helper.create_subchannel(address, EMPTY_ATTRIBUTES)
        self._subchannel.watch(lambda *_: None)
        self._helper.update_state(State.CONNECTING, QUEUE_PICKER)
        self._subchannel.request_connection()
        self._subchannel.watch_health(self._on_health)
        return OK

    def _on_health(self, state: State, status: Status) -> None:
        self.states.append(state)
        if state is State.READY:
            self._helper.update_state(state, SubchannelPicker(Complete(self._subchannel)))
        elif state is State.TRANSIENT_FAILURE:
            self._helper.update_state(state, FailPicker(status))

    def exit_idle(self) -> None:
        return

    def reset_backoff(self) -> None:
        return

    def close(self) -> None:
        self._subchannel.release()


@pytest.mark.spec("HC-02", "HC-03", "HC-09")
def test_custom_policy_is_notified_of_health(shop: Shop) -> None:
    async def story() -> None:
        policy = OwnPolicy()
        registries = Registries().extended(policies=[policy])
        channel = await shop.open(SERVING, config=config_of({"own": {}}), registries=registries)
        assert await call(channel) == "a"
        await shop["a"].set_health(NOT_SERVING)
        assert "is NOT_SERVING" in await failure_of(channel)
        expected = [State.CONNECTING, State.READY, State.TRANSIENT_FAILURE]
        assert [state for state in policy.states if state is not State.IDLE][-3:] == expected

    shop.run(story())


# ---------------------------------------------------------------------------------------------
# Responses


@pytest.mark.spec("HC-03")
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (UNKNOWN, "UNKNOWN"),
        (NOT_SERVING, "NOT_SERVING"),
        (SERVICE_UNKNOWN, "SERVICE_UNKNOWN"),
        (77, "in status 77, which is not known"),
    ],
)
def test_any_other_status_is_a_failure_with_address_service_and_status(
    shop: Shop, answer: int, text: str
) -> None:
    async def story() -> None:
        channel = await shop.open(answer)
        expected = f"last error: {shop['a'].address}: health check: service {SERVICE!r} is {text}"
        assert expected in await failure_of(channel)
        assert channel.get_state() is FAILURE

    shop.run(story())


@pytest.mark.spec("HC-03")
def test_connection_stays_open_when_health_changes(shop: Shop) -> None:
    async def story() -> None:
        channel = await shop.open(SERVING, SERVING)
        assert await names(channel) == "ab"
        await shop["a"].set_health(NOT_SERVING)
        assert await names(channel) == "b"
        await pause(600)
        assert await names(channel) == "b"
        await shop["a"].set_health(SERVING)
        assert await names(channel) == "ab"
        assert [(each.accepted, len(each.watched_services)) for each in shop.backends.values()] == [
            (1, 1)
        ] * 2

    shop.run(story())


@pytest.mark.spec("HC-03")
def test_channel_goes_from_failure_to_ready_directly_when_health_returns(shop: Shop) -> None:
    async def story() -> None:
        channel = await shop.open(NOT_SERVING)
        await connect(channel)
        seen: list[object] = []

        async def watch() -> None:
            while True:
                seen.append(state := channel.get_state())
                await channel.wait_for_state_change(state)

        watcher = asyncio.ensure_future(watch())
        rpc = asyncio.ensure_future(call(channel, wait_for_ready=True))
        await shop["a"].set_health(SERVING)
        assert await rpc == "a"
        watcher.cancel()
        assert seen == [FAILURE, READY]

    shop.run(story())


@pytest.mark.spec("HC-07")
@pytest.mark.parametrize("answer", [UNREADABLE, TOO_LARGE])
def test_malformed_response_is_a_failure_and_retried_with_growing_delays(
    shop: Shop, answer: int
) -> None:
    async def story() -> None:
        channel = await shop.open(answer)
        expected = f"about service {SERVICE!r} cannot be read"
        assert expected in await failure_of(channel)
        assert channel.get_state() is FAILURE
        await pause(30)
        gaps_s = [later - sooner for sooner, later in pairwise(shop["a"].watched_s)]
        for index, gap_s in enumerate(gaps_s):
            assert 0.8 * 1.6**index - 0.1 <= gap_s <= 1.2 * 1.6**index + 0.1
        assert len(gaps_s) >= 4
        assert shop["a"].watches == 0
        await shop["a"].set_health(SERVING)
        assert await call(channel, wait_for_ready=True) == "a"

    shop.run(story())


EJECTING = {
    "outlier_detection_experimental": {
        "interval": "10s",
        "baseEjectionTime": "30s",
        "maxEjectionPercent": 50,
        "failurePercentageEjection": {"threshold": 50, "minimumHosts": 2, "requestVolume": 5},
        "childPolicy": [ROUND_ROBIN],
    }
}


@pytest.mark.spec("HC-14")
def test_endpoint_gets_rpcs_only_when_healthy_and_not_ejected(shop: Shop) -> None:
    async def story() -> None:
        channel = await shop.open(SERVING, SERVING, config=config_of(EJECTING))
        await connect(channel)
        a = shop["a"]
        a.status = Status(StatusCode.INTERNAL, "broken")
        for _ in range(20):
            await outcome_of(channel)
        a.status = OK
        await pause(10)
        assert await names(channel) == "b", "it is not ejected"
        await a.set_health(NOT_SERVING)
        await a.set_health(SERVING)
        assert await names(channel) == "b", "health ends the ejection"
        await a.set_health(NOT_SERVING)
        await pause(60)
        assert await names(channel) == "b", "the end of the ejection is the end of bad health"
        await a.set_health(SERVING)
        assert await names(channel) == "ab"
        assert (a.accepted, len(a.watched_services)) == (1, 1)

    shop.run(story())


async def outcome_of(channel: AioChannel) -> str:
    try:
        return await call(channel)
    except grpc.aio.AioRpcError as error:
        return str(error.code())


# ---------------------------------------------------------------------------------------------
# Ends of streams and connections


@pytest.mark.spec("HC-04")
def test_backend_counts_as_healthy_when_it_does_not_implement_health_checking(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        channel = await shop.open(NOT_SERVING, implements_health=False)
        assert await names(channel) == "a"
        await pause(600)
        assert await names(channel) == "a"

    shop.run(story())
    [record] = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert "does not implement health checking, so it counts as healthy" in record.getMessage()


@pytest.mark.spec("HC-04")
def test_health_is_watched_again_on_the_next_connection_after_unimplemented(shop: Shop) -> None:
    async def story() -> None:
        channel = await shop.open(None)
        shop["a"].end = Status(StatusCode.UNIMPLEMENTED, "not here")
        assert await names(channel) == "a"
        await pause(600)
        assert len(shop["a"].watched_services) == 1
        await shop["a"].set_health(NOT_SERVING, end=None)
        assert await names(channel) == "a"
        shop["a"].send_goaway()
        await pause(SOON_S)
        assert "NOT_SERVING" in await failure_of(channel)
        assert len(shop["a"].watched_services) == 2

    shop.run(story())


@pytest.mark.spec("HC-05")
@pytest.mark.parametrize("code", [StatusCode.OK, StatusCode.UNAVAILABLE, StatusCode.INTERNAL])
def test_stream_is_retried_with_growing_delays_when_it_ends_without_response(
    shop: Shop, code: StatusCode
) -> None:
    async def story() -> None:
        channel = await shop.open(None)
        shop["a"].end = OK if code is StatusCode.OK else Status(code, "try later")
        text = await failure_of(channel)
        expected = "OK" if code is StatusCode.OK else f"{code.name}: try later"
        assert text.endswith(f"watch of service {SERVICE!r} ended with {expected}")
        await pause(1000)
        at_s = shop["a"].watched_s
        delays_s = [later - earlier for earlier, later in pairwise(at_s)]
        for number, delay_s in enumerate(delays_s):
            base_s = min(1.6**number, 120)
            assert base_s * 0.8 <= delay_s <= base_s * 1.2 + SOON_S
        assert max(delays_s) > 100
        await shop["a"].set_health(SERVING, end=None)
        assert await call(channel, wait_for_ready=True) == "a"
        assert shop["a"].accepted == 1

    shop.run(story())


@pytest.mark.spec("HC-05", "HC-06")
def test_stream_is_retried_at_once_and_backoff_is_reset_after_a_response(
    shop: Shop,
) -> None:
    async def story() -> None:
        channel = await shop.open(None)
        shop["a"].end = Status(StatusCode.INTERNAL, "broken")
        await connect(channel)
        await pause(20)
        await shop["a"].set_health(SERVING, end=None)
        assert await call(channel, wait_for_ready=True) == "a"
        before = len(shop["a"].watched_services)
        # The stream ends; the next one has no response, and RPCs wait for it.
        await shop["a"].set_health(None, end=Status(StatusCode.UNAVAILABLE, "restart"))
        ended_s = asyncio.get_running_loop().time()
        await pause(1.2)
        shop["a"].end = None
        first, second = (at_s - ended_s for at_s in shop["a"].watched_s[before : before + 2])
        assert first < 0 < second < 1.2

    shop.run(story())


@pytest.mark.spec("HC-06")
def test_retries_are_paced_when_each_stream_ends_after_its_response(shop: Shop) -> None:
    async def story() -> None:
        channel = await shop.open(SERVING)
        shop["a"].end = OK
        await connect(channel)
        await pause(100)
        # About 1 s between streams, but up to 3 in each 10 s start at once.
        assert 80 < len(shop["a"].watched_services) < 100 / 0.8 + 3 * 11
        await shop["a"].set_health(SERVING, end=None)
        shop["a"].end = None
        await pause(1.2 + SOON_S)
        assert await call(channel, wait_for_ready=True) == "a"

    shop.run(story())


@pytest.mark.spec("HC-06")
def test_rpcs_wait_while_a_stream_is_replaced(shop: Shop) -> None:
    async def story() -> None:
        channel = await shop.open(SERVING)
        assert await call(channel) == "a"
        backend = shop["a"]
        await backend.restart_watches()
        assert channel.get_state() is CONNECTING
        rpc = asyncio.ensure_future(call(channel))
        await pause(60)
        assert not rpc.done()
        await backend.set_health(SERVING)
        assert await rpc == "a"

    shop.run(story())


@pytest.mark.spec("HC-09")
def test_goaway_ends_the_stream_and_so_the_connection(shop: Shop) -> None:
    async def story() -> None:
        channel = await shop.open(SERVING)
        assert await call(channel) == "a"
        shop["a"].send_goaway()
        await pause(SOON_S)
        assert (shop["a"].accepted, shop["a"].connections, shop["a"].watches) == (2, 1, 1)
        assert await call(channel) == "a"

    shop.run(story())


@pytest.mark.spec("HC-02", "HC-09")
@pytest.mark.parametrize("health", [SERVING, NOT_SERVING, None])
def test_health_is_watched_again_when_a_connection_is_replaced(
    shop: Shop, health: int | None
) -> None:
    async def story() -> None:
        channel = await shop.open(health)
        await connect(channel)
        shop["a"].host.reset_connections()
        await pause(SOON_S)
        assert (shop["a"].accepted, shop["a"].watches, len(shop["a"].watched_services)) == (2, 1, 2)
        await shop["a"].set_health(SERVING)
        assert await call(channel) == "a"

    shop.run(story())


@pytest.mark.spec("HC-09")
def test_an_idle_channel_has_no_stream(shop: Shop) -> None:
    async def story() -> None:
        options = (("grpc.client_idle_timeout_ms", 10_000),)
        channel = await shop.open(SERVING, options=options)
        assert await call(channel) == "a"
        assert shop["a"].watches == 1
        await pause(15)
        assert channel.get_state() is IDLE
        assert (shop["a"].watches, shop["a"].connections, shop.checkers) == (0, 0, 0)
        assert await call(channel) == "a"
        assert shop["a"].watches == 1

    shop.run(story())


@pytest.mark.spec("HC-09")
@pytest.mark.parametrize("health", [SERVING, NOT_SERVING, None])
def test_a_closed_channel_has_no_stream(shop: Shop, health: int | None) -> None:
    async def story() -> None:
        channel = await shop.open(health, health)
        await connect(channel)
        assert [each.watches for each in shop.backends.values()] == [1, 1]
        await channel.close()
        await pause(SOON_S)
        assert [(each.watches, each.connections) for each in shop.backends.values()] == [(0, 0)] * 2
        assert shop.checkers == 0

    shop.run(story())


@pytest.mark.spec("HC-09")
def test_stream_is_not_retried_when_channel_is_closed_during_backoff(shop: Shop) -> None:
    async def story() -> None:
        channel = await shop.open(None)
        shop["a"].end = Status(StatusCode.INTERNAL, "broken")
        await connect(channel)
        watched_services = len(shop["a"].watched_services)
        await channel.close()
        await pause(600)
        assert len(shop["a"].watched_services) == watched_services

    shop.run(story())


# ---------------------------------------------------------------------------------------------
# Which streams there are


@pytest.mark.spec("HC-10")
def test_channels_share_a_stream_when_they_watch_the_same_service(shop: Shop) -> None:
    async def story() -> None:
        first = await shop.open(SERVING)
        second, other = shop.channel(), shop.channel(config_of(service="other"))
        for each in (first, second, other):
            assert await call(each) == "a"
        backend = shop["a"]
        assert (sorted(backend.watched_services), backend.accepted) == (["other", SERVICE], 1)
        await backend.set_health(NOT_SERVING)
        for each in (first, second, other):
            assert "NOT_SERVING" in await failure_of(each)
        await first.close()
        await pause(SOON_S)
        assert backend.watches == 2
        await backend.set_health(SERVING)
        assert await call(second) == "a"
        await second.close()
        await pause(SOON_S)
        assert backend.watches == 1

    shop.run(story())


@pytest.mark.spec("HC-09")
@pytest.mark.parametrize("health", [SERVING, NOT_SERVING, None])
def test_stream_and_connection_end_when_their_endpoint_is_removed(
    shop: Shop, health: int | None
) -> None:
    async def story() -> None:
        resolver = ScriptedResolver()
        registries = Registries().extended(resolvers=[resolver])
        channel = await shop.open(health, SERVING, target="stub:///shop", registries=registries)
        a, b = (Endpoint((shop[name].address,)) for name in "ab")
        await connect(channel)
        resolver.publish(ResolverResult((a, b), config_of()))
        await pause(SOON_S)
        assert [(each.watches, each.connections) for each in shop.backends.values()] == [(1, 1)] * 2
        resolver.publish(ResolverResult((b,), config_of()))
        await pause(SOON_S)
        assert (shop["a"].watches, shop["a"].connections) == (0, 0)
        assert (shop["b"].watches, shop["b"].connections) == (1, 1)
        assert await names(channel) == "b"

    shop.run(story())


@pytest.mark.spec("HC-11")
def test_changed_service_name_takes_effect_at_once_on_the_same_connection(shop: Shop) -> None:
    async def story() -> None:
        resolver = ScriptedResolver()
        registries = Registries().extended(resolvers=[resolver])
        channel = await shop.open(SERVING, target="stub:///shop", registries=registries)
        backend = shop["a"]
        endpoints = (Endpoint((backend.address,)),)

        def resolve(service: str | None) -> None:
            resolver.publish(ResolverResult(endpoints, config_of(service=service)))

        await connect(channel)
        resolve(None)
        assert await call(channel) == "a"
        assert backend.watched_services == []
        backend.health = NOT_SERVING
        resolve("one")
        assert "service 'one' is NOT_SERVING" in await failure_of_soon(channel)
        resolve("two")
        assert "service 'two' is NOT_SERVING" in await failure_of_soon(channel)
        resolve("two")
        await pause(SOON_S)
        assert backend.watches == 1
        resolve(None)
        await pause(SOON_S)
        assert await call(channel) == "a"
        assert (backend.watched_services, backend.watches, backend.accepted) == (
            ["one", "two"],
            0,
            1,
        )

    shop.run(story())


async def failure_of_soon(channel: AioChannel) -> str:
    await pause(SOON_S)
    return await failure_of(channel)


@pytest.mark.spec("HC-13")
def test_xds_channel_watches_no_health_even_if_the_application_configures_it(shop: Shop) -> None:
    async def story() -> None:
        await shop.open(NOT_SERVING)
        shop.world.control_plane("control", simple_mesh("api", {"web": [str(shop["a"].address)]}))
        await shop.world.start()
        channel = shop.channel(target="xds:///api")
        assert await call(channel) == "a"
        assert shop["a"].watched_services == []

    shop.run(story())
