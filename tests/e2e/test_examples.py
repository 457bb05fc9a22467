"""The examples that extend a channel, with grpcio servers on real sockets.

tests/docs runs their how-tos.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import grpc.aio
import pytest

import proxyless
from examples import file_resolver
from examples.file_resolver import FileFactory
from examples.tenant_filter import TenantFilterFactory, TenantsConfig
from examples.zone_aware_policy import ZONE, ZoneAwareFactory
from proxyless.base import (
    EMPTY_ATTRIBUTES,
    OK,
    Endpoint,
    State,
    Status,
    StatusCode,
    ValidationErrors,
    parse_address,
)
from proxyless.lb import Update
from proxyless.resolver import ResolverContext, ResolverRegistry, ResolverResult
from proxyless.runtime import AsyncioNetwork, VirtualClock, seeded_random
from proxyless.testing import FakeHelper, Rule, Traits, address, check_policy
from proxyless.xds.filters import RoutedRpc

ROOT = Path(__file__).parents[2]
WHO = "/example.Service/Who"
PATIENCE_S = 20.0
# A backend that is back is found soon.
QUICK = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100))


class Servers:
    """grpcio's servers, each of which answers with its name."""

    def __init__(self) -> None:
        self._running: dict[str, grpc.Server] = {}
        self._pool = ThreadPoolExecutor(4)

    def start(self, name: str, at: str = "127.0.0.1:0") -> str:
        """Its address."""
        server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        handler = grpc.unary_unary_rpc_method_handler(lambda *_: name.encode())
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("example.Service", {"Who": handler}),)
        )
        port = server.add_insecure_port(at)
        server.start()
        self._running[name] = server
        return f"127.0.0.1:{port}"

    async def stop(self, name: str) -> None:
        await asyncio.to_thread(self._running.pop(name).stop(None).wait)

    async def close(self) -> None:
        for name in list(self._running):
            await self.stop(name)
        self._pool.shutdown()


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    servers = Servers()
    yield servers
    await servers.close()


async def wait_for_answer(ask: Callable[[], Awaitable[bytes]], wanted: bytes) -> None:
    """Ask until this one answers. An RPC may fail with the backend that it was sent to."""
    answer: object = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while answer != wanted:
                try:
                    answer = await ask()
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise
                    answer = error.details()
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"last answer is {answer!r}, wanted {wanted!r}") from None


# The zone-aware policy.


def zone_config(near: str) -> dict[str, object]:
    return {"zone": "here", "zones": {str(address(name)): "here" for name in near}}


async def test_rpcs_stay_in_their_zone_while_it_is_ready(servers: Servers) -> None:
    near, far = servers.start("near"), servers.start("far")
    target = f"ipv4:{far},{near}"
    policy = {"zone_aware": {"zone": "eu-1", "zones": {near: "eu-1", far: "eu-2"}}}
    service_config = json.dumps({"loadBalancingConfig": [policy]})
    options: list[tuple[str, object]] = [("grpc.service_config", service_config)]
    options += QUICK

    registries = proxyless.Registries().extended(policies=[ZoneAwareFactory()])
    async with proxyless.aio.insecure_channel(target, options, registries=registries) as channel:
        who = channel.unary_unary(WHO)

        async def ask() -> bytes:
            return bytes(await who(b"", timeout=PATIENCE_S, wait_for_ready=True))

        await wait_for_answer(ask, b"near")
        assert {await ask() for _ in range(10)} == {b"near"}
        await servers.stop("near")
        await wait_for_answer(ask, b"far")
        assert {await ask() for _ in range(10)} == {b"far"}
        servers.start("near", near)
        await wait_for_answer(ask, b"near")


def test_blocking_channel_accepts_the_same_registries() -> None:
    servers = Servers()
    try:
        near = servers.start("near")
        policy = {"zone_aware": {"zone": "eu-1", "zones": {near: "eu-1"}}}
        options = [("grpc.service_config", json.dumps({"loadBalancingConfig": [policy]}))]
        registries = proxyless.Registries().extended(policies=[ZoneAwareFactory()])
        with proxyless.insecure_channel(f"ipv4:{near}", options, registries=registries) as channel:
            assert channel.unary_unary(WHO)(b"", timeout=PATIENCE_S) == b"near"
    finally:
        asyncio.run(servers.close())


@pytest.mark.parametrize("near", ["", "ac", "abcdefgh"])
def test_the_zone_aware_policy_conforms(near: str) -> None:
    traits = Traits(refuses_in_part=True)
    check_policy(ZoneAwareFactory(), config=zone_config(near), traits=traits, seeds=range(10))


def test_the_zone_aware_policy_conforms_with_zones_from_the_resolver() -> None:
    def to_endpoint(endpoint: Endpoint) -> Endpoint:
        zone = "here" if endpoint.addresses[0] < address("c") else "there"
        return Endpoint(endpoint.addresses, endpoint.attributes.with_(ZONE, zone))

    traits = Traits(to_endpoint=to_endpoint, refuses_in_part=True)
    check_policy(ZoneAwareFactory(), config={"zone": "here"}, traits=traits, seeds=range(10))


def test_other_zone_is_used_when_no_near_endpoint_is_ready() -> None:
    helper = FakeHelper()
    policy = ZoneAwareFactory().create(helper)
    config = ZoneAwareFactory().parse_config(
        zone_config("a"), ValidationErrors(), helper.context.registry
    )
    endpoints = tuple(Endpoint((address(name),)) for name in "ab")
    assert policy.update(Update(endpoints, config)) == OK
    assert helper.state is State.CONNECTING

    helper.connection("a").become(State.TRANSIENT_FAILURE)
    helper.connection("b").become(State.READY)
    assert helper.pick_address() == address("b")
    helper.connection("a").become(State.READY)
    assert helper.pick_address() == address("a")
    helper.connection("a").become(State.IDLE)
    assert helper.state is State.CONNECTING
    helper.clock.advance(10.0)
    assert helper.pick_address() == address("b")


def test_error_is_that_of_the_zone_with_endpoints() -> None:
    helper = FakeHelper()
    policy = ZoneAwareFactory().create(helper)
    config = ZoneAwareFactory().parse_config(
        zone_config(""), ValidationErrors(), helper.context.registry
    )
    policy.update(Update((Endpoint((address("a"),)),), config))
    helper.connection("a").become(State.TRANSIENT_FAILURE)
    failure = helper.pick_address()
    assert isinstance(failure, Status)
    assert "connection refused" in failure.details


@pytest.mark.parametrize(
    ("json", "wanted"),
    [
        ({}, "field:zone error:is None, wanted the name of a zone"),
        ({"zone": "x", "zones": 1}, "field:zones error:is 1, wanted zones by address"),
    ],
)
def test_a_bad_config_names_the_field(json: dict[str, object], wanted: str) -> None:
    errors = ValidationErrors()
    ZoneAwareFactory().parse_config(json, errors, FakeHelper().context.registry)
    assert str(errors) == f"[{wanted}]"


# The file resolver.


async def test_a_channel_follows_its_file(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_resolver, "POLL_S", 0.01)
    backends = tmp_path / "backends"
    backends.write_text(servers.start("first"))

    target = f"file://{backends}"
    registries = proxyless.Registries().extended(resolvers=[FileFactory()])
    async with proxyless.aio.insecure_channel(target, registries=registries) as channel:
        who = channel.unary_unary(WHO)

        async def ask() -> bytes:
            return bytes(await who(b"", timeout=PATIENCE_S))

        assert await ask() == b"first"
        backends.write_text(servers.start("second"))
        await wait_for_answer(ask, b"second")
        backends.unlink()
        assert {await ask() for _ in range(5)} == {b"second"}


class Watcher:
    """Records the results of a resolver."""

    def __init__(self) -> None:
        self.results: list[str] = []

    def on_result(self, result: ResolverResult) -> Status:
        found = result.endpoints
        self.results.append(str(found) if isinstance(found, Status) else " ".join(map(str, found)))
        return OK


def test_the_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    backends, watcher, clock = tmp_path / "backends", Watcher(), VirtualClock()
    factory, target = ResolverRegistry([FileFactory()]).match_target(f"file://{backends}")
    context = ResolverContext(AsyncioNetwork(), clock, seeded_random(1))
    resolver = factory.create(target, watcher, context)
    resolver.start()
    assert watcher.results == []
    clock.advance(10)
    [missing] = watcher.results
    assert "No such file" in missing

    backends.write_text("10.0.0.1:80\n[::1]:80\n")
    clock.advance(1)
    backends.write_text("10.0.0.1")
    clock.advance(10)
    backends.write_text("unix:/run/a")
    clock.advance(1)
    assert watcher.results[1] == "10.0.0.1:80 [::1]:80"
    assert "address '10.0.0.1' is not valid" in watcher.results[2]
    assert watcher.results[3:] == ["unix:/run/a"]

    resolver.close()
    backends.unlink()
    clock.advance(10)
    assert len(watcher.results) == 4
    assert clock.timers_pending == 0


def test_replaced_file_is_read_again_even_if_size_and_time_are_equal(tmp_path: Path) -> None:
    backends, watcher, clock = tmp_path / "backends", Watcher(), VirtualClock()
    backends.write_text("10.0.0.1:80")
    factory, target = ResolverRegistry([FileFactory()]).match_target(f"file://{backends}")
    context = ResolverContext(AsyncioNetwork(), clock, seeded_random(1))
    factory.create(target, watcher, context).start()
    clock.advance(1)
    other, stat = tmp_path / "other", backends.stat()
    other.write_text("10.0.0.2:80")
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.rename(backends)
    clock.advance(1)
    assert watcher.results == ["10.0.0.1:80", "10.0.0.2:80"]
    assert parse_address(watcher.results[1]) != parse_address(watcher.results[0])


# The tenant filter. Its how-to, which tests/docs runs, has the rest.


def test_a_bad_config_of_the_filter_names_all_its_fields() -> None:
    errors = ValidationErrors()
    TenantFilterFactory().parse_config({"clusters": 1, "blocked": "mallory"}, errors)
    assert str(errors) == (
        "[field:clusters error:is 1, wanted clusters by tenant;"
        " field:blocked error:is 'mallory', wanted a list of tenants]"
    )


def test_an_override_stands_in_place_of_the_whole_config() -> None:
    factory, random = TenantFilterFactory(), seeded_random(1)
    config = TenantsConfig({"gold": "fast"}, "usual", frozenset({"mallory"}))
    override = TenantsConfig({}, "spare", frozenset())
    rpc = RoutedRpc("/s/m", (("tenant", "mallory"),), {"fast", "spare"}, "fast", EMPTY_ATTRIBUTES)
    made = factory.create(config, override, random).on_rpc(rpc)
    assert made is not None
    assert made.abort is None
    assert rpc.cluster == "spare"
    refusal = factory.create(config, None, random).on_rpc(rpc)
    assert refusal is not None
    assert refusal.abort == Status(StatusCode.PERMISSION_DENIED, "tenant 'mallory' is blocked")


# The how-to.


def test_every_rule_is_explained() -> None:
    text = (ROOT / "docs" / "howto" / "write-a-policy.md").read_text()
    for rule in Rule:
        assert f"`{rule.name}`" in text
