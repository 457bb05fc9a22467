"""Unit tests of proxyless.observe.explain_running: whole channels, in virtual time."""

from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import pytest

import proxyless
from proxyless.base import OK, State, Status, StatusCode
from proxyless.channel import ChannelView
from proxyless.channel.service_config import MethodConfig, RetryPolicy, ServiceConfig
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    Snapshot,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    keep_sessions,
    lb_endpoint,
    listener,
    route,
    route_config,
    session_filter,
    simple_mesh,
)
from proxyless.lb import LbNode
from proxyless.observe import explain_channel, explain_error, to_json
from proxyless.runtime import seeded_random
from proxyless.sim import UNARY, World, pause

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from proxyless.base.explanation import Explanation
    from proxyless.front import AioChannel

PATH = "/pkg.Service/Method"
T = TypeVar("T")


class SomeResolver:
    """View of a channel without xDS."""

    def start(self) -> None:
        return

    request_reresolution = reset_backoff = close = start


def view(**fields: Any) -> ChannelView:  # noqa: ANN401 - of the view
    known: dict[str, Any] = {
        "target": "dns:///x",
        "state": State.READY,
        "resolver": SomeResolver(),
        "service_config": ServiceConfig(policy=None),
        "unroutable": None,
        "waiting": 0,
        "policy": None,
        "failure": OK,
    }
    return ChannelView(**{**known, **fields})


class Shown:
    """Policy with this description."""

    def __init__(self, node: LbNode) -> None:
        self._node = node

    def describe(self) -> LbNode:
        return self._node


# Without xDS


def test_rpc_fails_on_a_closed_channel_and_waits_on_an_idle_one() -> None:
    closed = explain_channel(view(state=State.SHUTDOWN), PATH)
    assert closed.text == f"{PATH} fails: the channel is closed"
    idle = explain_channel(view(state=State.IDLE, resolver=None), PATH)
    assert idle.text == f"{PATH} waits: channel to dns:///x is idle, its first RPC wakes it"


def test_resolver_error_is_the_problem() -> None:
    lost = Status(StatusCode.UNAVAILABLE, "no such name")
    explanation = explain_channel(view(state=State.TRANSIENT_FAILURE, unroutable=lost), PATH)
    assert (explanation.text, explanation.problem) == (
        f"{PATH} fails: no such name",
        "no such name",
    )
    waiting = explain_channel(view(service_config=None, waiting=3, longest_wait_s=2.5), PATH)
    assert waiting.text == f"{PATH} waits: dns:///x is not resolved yet"
    how = "3 RPCs wait, the oldest for 2.5 s, resolved by SomeResolver"
    assert waiting.parts[0].text == f"target dns:///x: READY, {how}"


def test_service_config_and_pick_are_shown() -> None:
    retry = RetryPolicy(
        attempts_max=3,
        initial_backoff_s=0.1,
        max_backoff_s=1.0,
        backoff_multiplier=2.0,
        retryable_codes=frozenset({StatusCode.UNAVAILABLE}),
    )
    method = MethodConfig(timeout_s=2.5, wait_for_ready=True, retry_policy=retry)
    config = ServiceConfig(policy=None, methods={"/pkg.Service/": method})
    ready = LbNode("", "pick_first", "READY", "", (LbNode("10.0.0.1:80", "", "READY"),))
    explanation = explain_channel(view(service_config=config, policy=Shown(ready)), PATH)
    assert explanation.text == f"{PATH} goes to 10.0.0.1:80"
    assert explanation.parts[1].text == (
        "service config: at most 2.5 s; waits for ready; up to 3 attempts on UNAVAILABLE"
    )
    other = explain_channel(view(service_config=config, policy=Shown(ready)), "/other/Method")
    assert other.parts[1].text == "service config: nothing for the method"


def test_wait_for_ready_method_waits_when_the_policy_fails() -> None:
    config = ServiceConfig(policy=None, methods={"": MethodConfig(wait_for_ready=True)})
    failing = LbNode("", "p", "TRANSIENT_FAILURE", problem="refused")
    explanation = explain_channel(view(service_config=config, policy=Shown(failing)), PATH)
    assert (explanation.text, explanation.problem) == (f"{PATH} waits: refused", "")


def test_verdict_is_that_of_the_policy() -> None:
    failing = LbNode("", "p", "TRANSIENT_FAILURE", problem="refused")
    explanation = explain_channel(view(policy=Shown(failing), state=State.TRANSIENT_FAILURE), PATH)
    assert explanation.text == f"{PATH} fails: refused"
    trying = LbNode("", "p", "CONNECTING")
    explanation = explain_channel(view(policy=Shown(trying), state=State.CONNECTING), PATH)
    assert explanation.text == f"{PATH} waits: CONNECTING"


# With xDS


class Mesh:
    """A world with a control plane, two backends and a channel."""

    def __init__(self) -> None:
        self.world = World(seed=3)
        self.near, self.far = (self.world.backend(name) for name in ("near", "far"))
        self.places = [str(each.address) for each in (self.near, self.far)]
        self.control = self.world.control_plane(snapshot=simple_mesh("api", {"web": self.places}))
        self.channel: AioChannel

    def run(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            self.channel = self.world.client("till").channel("xds:///api")
            await story()

        self.world.run(whole(), virtual_seconds=300.0)
        assert not self.world.exceptions

    async def call(self, **settings: Any) -> bytes:  # noqa: ANN401
        reply = await self.channel.unary_unary(UNARY)(b"", timeout=5.0, **settings)
        return bytes(reply)

    async def until_connected(self) -> None:
        await self.call()
        await pause(1.0)


@pytest.fixture
def mesh() -> Mesh:
    return Mesh()


def test_explain_leaves_a_channel_idle(mesh: Mesh) -> None:
    async def story() -> None:
        assert mesh.channel.lb_tree() is None
        assert " is idle, " in mesh.channel.explain(UNARY).text
        await pause(5.0)
        assert mesh.channel.get_state() is grpc.ChannelConnectivity.IDLE

    mesh.run(story)


def test_missing_resource_is_named_with_its_time_limit(mesh: Mesh) -> None:
    mesh.control.withhold(ENDPOINTS, "web")

    async def story() -> None:
        mesh.channel.get_state(try_to_connect=True)
        await pause(5.0)
        explanation = mesh.channel.explain(UNARY)
        server = 'xds server "ipv4:10.0.0.3:18000"'
        assert explanation.text == (
            f'{UNARY} waits: endpoints "web" of cluster "web": not here yet, '
            f"{server} has 10 s left to send it"
        )
        texts = [each.text for each in explanation.find("resource")]
        assert texts[0] == 'listener "api": ACKED, version "1"'

    mesh.run(story)


def add_cluster(mesh: Mesh, new: Any, *resources: Any) -> Snapshot:  # noqa: ANN401
    """The mesh with one more cluster, which all routes use."""
    routed = listener("api", [route(cluster=new.name)])
    web = (eds_cluster("web"), endpoints("web", mesh.places))
    return Snapshot.of([routed, *web, new, *resources], version="2")


def withheld_text(explanation: Explanation) -> str:
    """Text of the withheld update, with N for each time."""
    assert explanation.text == f'{UNARY} goes to cluster "web"', "the config in force is used"
    (pending,) = explanation.find("pending")
    return re.sub(r"\b[0-9.]+ s\b", "N s", pending.text)


SERVER = 'xds server "ipv4:10.0.0.3:18000"'


def test_explanation_names_cluster_that_gate_waits_for_when_update_is_withheld(mesh: Mesh) -> None:
    async def story() -> None:
        await mesh.until_connected()
        mesh.control.withhold(CLUSTER, "new")
        new = eds_cluster("new")
        mesh.control.set_snapshot(add_cluster(mesh, new, endpoints("new", mesh.places)))
        await pause(3.0)
        explanation = mesh.channel.explain(UNARY)
        assert withheld_text(explanation) == (
            f'update withheld: has waited N s for cluster "new", {SERVER} has N s left to send it'
        )
        mesh.control.release()
        await pause(1.0)
        assert list(mesh.channel.explain(UNARY).find("pending")) == []

    mesh.run(story)


def test_explanation_names_endpoints_that_gate_waits_for_when_update_is_withheld(
    mesh: Mesh,
) -> None:
    async def story() -> None:
        await mesh.until_connected()
        mesh.control.withhold(ENDPOINTS, "new-eds")
        new = eds_cluster("new", "new-eds")
        mesh.control.set_snapshot(add_cluster(mesh, new, endpoints("new-eds", mesh.places)))
        await pause(3.0)
        explanation = mesh.channel.explain(UNARY)
        whole = 'endpoints "new-eds" of cluster "new"'
        assert withheld_text(explanation) == (
            f"update withheld: has waited N s for {whole}, {SERVER} has N s left to send it"
        )
        (pending,) = explanation.find("pending")
        (waited_s,) = pending.facts["waits"].values()  # type: ignore[attr-defined]
        assert 2.5 < waited_s <= 3.0

    mesh.run(story)


def test_explanation_names_dns_name_that_gate_waits_for_when_update_is_withheld(
    mesh: Mesh,
) -> None:
    """Updates of the other cluster are withheld as well."""

    async def story() -> None:
        await mesh.until_connected()
        mesh.world.fabric.lookup_s = 60.0
        snapshot = add_cluster(mesh, dns_cluster("new", "db.example", 5432))
        mesh.control.set_snapshot(snapshot)
        await pause(10.0)
        mesh.control.set_snapshot(snapshot.with_(endpoints("web", mesh.places[:1])))
        await pause(10.0)
        assert {await mesh.call() for _ in range(4)} == {b"near", b"far"}
        assert withheld_text(mesh.channel.explain(UNARY)) == (
            'update withheld: has waited N s for dns name "db.example:5432" of cluster "new", '
            "no answer from DNS yet"
        )

    mesh.run(story)


@pytest.mark.spec("HOLD-08")
def test_explanation_names_the_resource_that_routes_in_force_are_held_for(mesh: Mesh) -> None:
    async def story() -> None:
        await mesh.until_connected()
        mesh.control.withhold(CLUSTER, "new")
        new = eds_cluster("new")
        mesh.control.set_snapshot(add_cluster(mesh, new, endpoints("new", mesh.places)))
        await pause(3.0)
        await mesh.control.stop()
        await pause(12.0)
        explanation = mesh.channel.explain(UNARY)
        assert withheld_text(explanation) == (
            'held: waits for cluster "new" since N s, control plane unreachable'
        )
        # The cause is in the line of the server, and not repeated for each resource.
        assert str(explanation).count("does not answer") == 1
        assert 'cluster "new": not here yet, no xds server answers' in str(explanation)
        assert 'listener "api": ACKED, version "' in str(explanation)
        assert await mesh.call() in {b"near", b"far"}
        mesh.control.release()
        await mesh.control.start()
        await pause(60.0)
        assert list(mesh.channel.explain(UNARY).find("pending")) == []
        assert mesh.channel.explain(UNARY).text == f'{UNARY} goes to cluster "new"'

    mesh.run(story)


def test_explanation_shows_a_control_plane_that_ends_its_streams_soon(mesh: Mesh) -> None:
    async def story() -> None:
        await mesh.until_connected()
        assert f"{SERVER}: answers\n" in f"{mesh.channel.explain(UNARY)}\n"
        for _ in range(4):
            mesh.control.break_streams()
            await pause(3.0)
        shown = str(mesh.channel.explain(UNARY))
        ended = "its last 4 streams ended soon: UNAVAILABLE: broken on purpose"
        assert f"{SERVER}: answers, {ended}\n" in f"{shown}\n"
        await pause(15.0)
        assert "ended soon" not in str(mesh.channel.explain(UNARY))

    mesh.run(story)


def test_explanation_counts_what_gate_waits_for_when_it_is_much(mesh: Mesh) -> None:
    async def story() -> None:
        await mesh.until_connected()
        names = [f"c{number}" for number in range(8)]
        mesh.control.withhold(CLUSTER, *names)
        weighted = listener("api", [route(weighted=dict.fromkeys(names, 1))])
        web = (eds_cluster("web"), endpoints("web", mesh.places))
        clusters = (part for each in names for part in (eds_cluster(each), endpoints(each, [])))
        mesh.control.set_snapshot(Snapshot.of([weighted, *web, *clusters], version="2"))
        await pause(3.0)
        text = withheld_text(mesh.channel.explain(UNARY))
        assert text.count("has waited N s for cluster") == 5
        assert text.endswith("; and 3 more")
        (pending,) = mesh.channel.explain(UNARY).find("pending")
        assert pending.facts["waits_total"] == 8

    mesh.run(story)


def test_unreachable_control_plane_is_shown_while_rpcs_succeed(mesh: Mesh) -> None:
    async def story() -> None:
        await mesh.until_connected()
        await mesh.control.stop()
        await pause(30.0)
        explanation = mesh.channel.explain(UNARY)
        assert explanation.text == f'{UNARY} goes to cluster "web"'
        (server,) = explanation.find("server")
        assert "does not answer" in server.text
        found = re.search(r", next attempt in ([0-9.]+) s$", server.text)
        assert found is not None, server.text
        assert 0.0 < float(found[1]) <= 30.0
        await mesh.control.start()
        await pause(float(found[1]) + 1.0)
        (server,) = mesh.channel.explain(UNARY).find("server")
        assert server.text.endswith(": answers")

    mesh.run(story)


def test_newest_reason_of_an_outage_is_shown_when_another_attempt_is_under_way(mesh: Mesh) -> None:
    async def story() -> None:
        await mesh.until_connected()
        await mesh.control.stop()
        await pause(1.0)
        (server,) = mesh.channel.explain(UNARY).find("server")
        assert "connection refused" in server.text
        mesh.control.host.hang(*mesh.world.others(mesh.control.host))
        await mesh.control.start()
        # An attempt ends after 20 s, and another one follows at once.
        await pause(50.0)
        (server,) = mesh.channel.explain(UNARY).find("server")
        assert re.search(r"no connection within 20 s .*, is being connected$", server.text)

    mesh.run(story)


def test_mute_control_plane_is_not_said_to_lack_what_held_routes_wait_for(mesh: Mesh) -> None:
    async def story() -> None:
        await mesh.until_connected()
        mesh.control.withhold(CLUSTER)
        mesh.control.set_snapshot(simple_mesh("api", {"new": mesh.places}))
        await pause(1.0)
        mesh.control.delay(300.0)
        mesh.control.break_streams()
        await pause(40.0)
        explanation = mesh.channel.explain(UNARY)
        (pending,) = explanation.find("pending")
        assert pending.text.startswith('held: waits for cluster "new" since')
        (waiting,) = [each for each in explanation.find("resource") if "new" in each.text]
        assert re.fullmatch(
            r'cluster "new": not sent by xds server "\S+" in 15 s, nor anything else .*',
            waiting.text,
        )

    mesh.run(story)


def test_control_plane_is_found_within_30_s_after_its_name_had_no_address(mesh: Mesh) -> None:
    async def story() -> None:
        bootstrap = mesh.world.bootstrap("till")
        bootstrap["xds_servers"] = [{**mesh.control.bootstrap_server, "server_uri": "td:18000"}]
        host = mesh.world.client("late").host
        channel = host.channel("xds:///api", bootstrap=bootstrap)
        await channel.unary_unary(UNARY)(b"", timeout=5.0).code()
        await pause(250.0)
        (server,) = channel.explain(UNARY).find("server")
        found = re.search(r"name 'td' is not known .*, next attempt in ([0-9.]+) s$", server.text)
        assert found is not None, server.text
        mesh.world.fabric.names["td"] = [mesh.control.host.ip]
        await pause(30.0)
        assert await channel.unary_unary(UNARY)(b"", timeout=5.0).code() is grpc.StatusCode.OK
        await channel.close()

    mesh.run(story)


def test_silent_server_is_not_described_as_answering_when_it_is_connected(mesh: Mesh) -> None:
    async def story() -> None:
        await mesh.until_connected()
        mesh.control.delay(300.0)
        mesh.control.break_streams()
        await pause(10.0)
        (server,) = mesh.channel.explain(UNARY).find("server")
        assert server.text.endswith(": is connected")
        await mesh.control.stop()
        await pause(30.0)
        await mesh.control.start()
        await pause(40.0)
        (server,) = mesh.channel.explain(UNARY).find("server")
        assert re.search(r": has not answered for over 1 min: .*, is connected now$", server.text)
        mesh.control.delay(0.0)
        mesh.control.break_streams()
        await pause(40.0)
        (server,) = mesh.channel.explain(UNARY).find("server")
        assert server.text.endswith(": answers")

    mesh.run(story)


def test_explain_has_no_side_effects(mesh: Mesh) -> None:
    """The rotation of picks, counters and connections do not change."""

    async def story() -> None:
        await mesh.until_connected()
        before = [await mesh.call() for _ in range(4)]
        accepted = mesh.near.accepted, mesh.far.accepted
        after = []
        for _ in range(8):
            for _ in range(3):
                explanation = mesh.channel.explain(UNARY)
                mesh.channel.lb_tree()
            after.append(await mesh.call())
        assert after == (before * 3)[:8]
        assert Counter(after) == {b"near": 4, b"far": 4}
        assert (mesh.near.accepted, mesh.far.accepted) == accepted
        json.dumps(to_json(explanation))
        (pick,) = explanation.find("pick")
        assert sorted(pick.facts["addresses"]) == sorted(mesh.places)  # type: ignore[call-overload]
        assert "0 of 1024 requests in flight" in str(explanation)

    mesh.run(story)


def test_metadata_and_weights_decide_the_cluster(mesh: Mesh) -> None:
    mesh.control.set_snapshot(
        Snapshot.of(
            [
                listener("api", "routes"),
                route_config(
                    "routes",
                    route(headers={"ring": "beta"}, cluster="b"),
                    route(weighted={"a": 1, "b": 3}),
                ),
                *(eds_cluster(name) for name in "ab"),
                *(endpoints(name, mesh.places) for name in "ab"),
            ]
        )
    )

    async def story() -> None:
        await mesh.until_connected()
        assert mesh.channel.explain(UNARY).text == (
            f'{UNARY} goes to one of clusters "a" (25 %), "b" (75 %)'
        )
        explanation = mesh.channel.explain(UNARY.removeprefix("/"), [("ring", "beta")])
        assert explanation.text == f'{UNARY} goes to cluster "b"'

    mesh.run(story)


@pytest.mark.parametrize("is_aggregate", [False, True])
def test_session_uses_its_draining_host_when_no_other_is_left(
    mesh: Mesh, is_aggregate: bool
) -> None:
    def serve(version: str, health: str) -> None:
        leaf = keep_sessions(eds_cluster("web"))
        whole = [aggregate_cluster("all", ["web"])] if is_aggregate else []
        name = "all" if is_aggregate else "web"
        hosts = endpoints("web", [lb_endpoint(each, health=health) for each in mesh.places])
        first = listener("api", [route(cluster=name)], filters=[session_filter("sid")])
        mesh.control.set_snapshot(Snapshot.of([first, *whole, leaf, hosts], version=version))

    async def story() -> None:
        serve("2", "HEALTHY")
        call = mesh.channel.unary_unary(UNARY)(b"", timeout=5.0)
        home = await call
        cookies = [str(value) for key, value in await call.initial_metadata() if "cookie" in key]
        session = [("cookie", cookies[0].partition(";")[0])]
        await pause(1.0)
        serve("3", "DRAINING")
        await pause(1.0)
        assert await mesh.call(metadata=session) == home
        explanation = mesh.channel.explain(UNARY, session)
        assert not explanation.problem
        where = mesh.places[[b"near", b"far"].index(home)]
        (pick,) = explanation.find("pick")
        assert pick.text == f"now: goes to {where}, where its session lives"
        with pytest.raises(grpc.aio.AioRpcError):
            await mesh.call()
        assert f"{UNARY} fails: " in mesh.channel.explain(UNARY).text

    mesh.run(story)


def test_problem_of_an_aggregate_names_the_leaf(mesh: Mesh) -> None:
    leaf = eds_cluster("web")
    leaf.circuit_breakers.thresholds.add().max_requests.value = 1
    resources = [listener("api", [route(cluster="all")]), aggregate_cluster("all", ["web"]), leaf]
    mesh.control.set_snapshot(Snapshot.of([*resources, endpoints("web", mesh.places)]))

    async def story() -> None:
        await mesh.until_connected()
        mesh.near.delay_s = mesh.far.delay_s = 60.0
        under_way = mesh.channel.unary_unary(UNARY)(b"", timeout=30.0)
        await pause(1.0)
        explanation = mesh.channel.explain(UNARY)
        assert explanation.problem == (
            'cluster "all": cluster "web": circuit breaker open: 1 of 1 requests in flight'
        )
        under_way.cancel()

    mesh.run(story)


def test_problem_names_a_full_circuit_breaker_and_the_failure(mesh: Mesh) -> None:
    breaker = 'cluster "web": circuit breaker open: 1 of 1 requests in flight'

    def serve(version: str, places: Sequence[str]) -> None:
        web = eds_cluster("web")
        web.circuit_breakers.thresholds.add().max_requests.value = 1
        first = listener("api", [route(cluster="web")])
        found = Snapshot.of([first, web, endpoints("web", places)], version=version)
        mesh.control.set_snapshot(found)

    async def story() -> None:
        serve("2", mesh.places)
        await mesh.until_connected()
        mesh.near.delay_s = mesh.far.delay_s = 200.0
        under_way = mesh.channel.unary_unary(UNARY)(b"", timeout=250.0)
        await pause(1.0)
        nowhere = 'cluster "web": endpoints "web": has no endpoint that may be used'
        for version, places, failure in [
            ("3", [], nowhere),
            ("4", ["10.99.0.1:1"], 'cluster "web": connections to all backends failing;'),
        ]:
            serve(version, places)
            await pause(5.0)
            explanation = mesh.channel.explain(UNARY)
            assert explanation.problem.startswith(f"{breaker}; without that: {failure}")
            # RPCs end with the first one.
            with pytest.raises(grpc.aio.AioRpcError, match="circuit breaker drop"):
                await mesh.call()
        under_way.cancel()

    mesh.run(story)


@pytest.mark.parametrize("names", [["web"], ["web", "other"]])
def test_problem_of_a_cluster_without_endpoints_is_that_of_the_rpc(
    mesh: Mesh, names: list[str]
) -> None:
    is_aggregate = len(names) > 1
    whole = [aggregate_cluster("all", names)] if is_aggregate else []
    first = listener("api", [route(cluster="all" if is_aggregate else "web")])
    found = [each for name in names for each in (eds_cluster(name), endpoints(name, []))]
    mesh.control.set_snapshot(Snapshot.of([first, *whole, *found]))

    async def story() -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await mesh.call()
        last = names[-1]
        reason = f'cluster "{last}": endpoints "{last}": has no endpoint that may be used'
        text = f'cluster "all": {reason}' if is_aggregate else reason
        command = f"proxyless explain {UNARY[1:]} --target xds:///api"
        assert caught.value.details() == f'{text} (node id "till"); see: {command}'
        assert mesh.channel.explain(UNARY).text == f"{UNARY} fails: {reason}"
        assert f'{text} (node id "till")' in explain_error(caught.value).text

    mesh.run(story)


def test_rpc_waits_for_a_failed_cluster_that_connects_again(mesh: Mesh) -> None:
    """The cluster is in TRANSIENT_FAILURE until it is READY, and queued RPCs connect it."""

    def serve(version: str, health: str) -> None:
        hosts = endpoints("web", [lb_endpoint(each, health=health) for each in mesh.places])
        ring = eds_cluster("web", lb_policy="RING_HASH")
        first = listener("api", [route(cluster="web")])
        mesh.control.set_snapshot(Snapshot.of([first, ring, hosts], version=version))

    async def story() -> None:
        serve("2", "UNHEALTHY")
        with pytest.raises(grpc.aio.AioRpcError):
            await mesh.call()
        serve("3", "HEALTHY")
        await pause(1.0)
        assert mesh.channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
        explanation = mesh.channel.explain(UNARY)
        reason = "nothing is connected, an RPC changes that"
        assert explanation.text == f'{UNARY} waits: cluster "web": {reason}'
        assert await mesh.call() in {b"near", b"far"}

    mesh.run(story)


@pytest.mark.parametrize("policy", ["ROUND_ROBIN", "RING_HASH", "LEAST_REQUEST"])
@pytest.mark.parametrize("seed", range(3))
def test_rpcs_end_as_explained(mesh: Mesh, policy: str, seed: int) -> None:
    """With random faults. An RPC that waits may succeed or fail."""
    chance = seeded_random(seed)
    places = dict(zip([b"near", b"far"], mesh.places, strict=True))

    def draw(options: Sequence[T]) -> T:
        return options[chance.randrange(len(options))]

    def serve(version: int) -> None:
        health = [*["HEALTHY"] * 4, "UNHEALTHY", "DRAINING"]
        hosts = [lb_endpoint(each, health=draw(health)) for each in mesh.places]
        drops = {"x": 1.0} if chance.random() < 0.2 else None
        found = endpoints("web", {number: [host] for number, host in enumerate(hosts)}, drops=drops)
        made = [listener("api", [route(cluster="web")]), eds_cluster("web", lb_policy=policy)]
        mesh.control.set_snapshot(Snapshot.of([*made, found], version=str(version)))

    async def change(version: int) -> None:
        serve(version)
        backend = draw([mesh.near, mesh.far])
        await (backend.kill() if backend.is_running else backend.start())
        await pause(draw([0.001, 0.05, 1.0, 12.0]))

    async def story() -> None:
        mesh.channel.get_state(try_to_connect=True)
        for version in range(2, 14):
            await change(version)
            explanation = mesh.channel.explain(UNARY)
            try:
                answered = places[await mesh.call()]
            except grpc.aio.AioRpcError:
                assert " goes to " not in explanation.text
                continue
            assert " fails: " not in explanation.text
            for pick in explanation.find("pick"):
                addresses = pick.facts.get("addresses", [answered])
                assert answered in addresses  # type: ignore[operator]

    mesh.run(story)


# Errors


def test_error_is_explained_with_its_status_and_the_present_state(mesh: Mesh) -> None:
    async def story() -> None:
        await mesh.until_connected()
        await mesh.near.kill()
        await mesh.far.kill()
        await pause(1.0)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await mesh.call()
        explanation = explain_error(caught.value)
        assert explanation.text.startswith(f'{UNARY} failed with UNAVAILABLE: cluster "web": ')
        assert "; now" not in explanation.text, "it is the same now"
        assert explanation.problem == caught.value.details()
        assert explanation.parts[0].kind == "rpc"
        # It was not sent.
        assert explanation.facts["attempts"] == 0
        assert "address" not in explanation.facts
        await mesh.near.start()
        await mesh.far.start()
        await pause(150.0)
        assert explain_error(caught.value).text.endswith('; now goes to cluster "web"')
        copied = pickle.loads(pickle.dumps(caught.value))
        with pytest.raises(ValueError, match="was not raised by a channel of proxyless here"):
            explain_error(copied)

    mesh.run(story)


def test_error_of_a_deleted_channel_is_explained(mesh: Mesh) -> None:
    async def story() -> None:
        channel = mesh.world.client("other").channel("ipv4:10.9.9.9:1")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(UNARY)(b"", timeout=1.0)
        await channel.close()
        assert explain_error(caught.value).text.endswith("; now fails: the channel is closed")

    mesh.run(story)


def test_explain_error_raises_for_other_errors() -> None:
    with pytest.raises(TypeError, match=r"error is ValueError, wanted a grpc\.RpcError"):
        proxyless.explain_error(ValueError("x"))
    with pytest.raises(ValueError, match="RpcError was not raised by a channel of proxyless here"):
        proxyless.explain_error(grpc.RpcError())
