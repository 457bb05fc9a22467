"""What goes on in a mesh: who asks, who changes its mind, what breaks?

Workloads compose: each is started with the others, does its own, and draws from chance of its own.
Faults end with the fault phase, each undone by whoever caused it, and are written in the ledger
while they last.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import chain
from math import log
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import grpc

from proxyless.controlplane.builders import eds_cluster
from proxyless.controlplane.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG
from proxyless.sim.backends import RPC_ID, STREAM, UNARY
from proxyless.sim.ledger import CONTROL, RECOVERY_S
from proxyless.sim.loop import pause
from proxyless.sim.plans import LANE_HEADER, SERVICE
from proxyless.sim.records import RpcRecord
from proxyless.sim.scenario import QUIET_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

    from proxyless.front import AioChannel
    from proxyless.runtime import Random
    from proxyless.sim.backends import Backend
    from proxyless.sim.control import SimControlPlane
    from proxyless.sim.plans import ClusterPlan
    from proxyless.sim.scenario import Scenario


T = TypeVar("T")

TIMEOUTS_S: Final = (1.0, 5.0, 20.0)


class Workload(Protocol):
    """Something that goes on from the start of a run until it ends by itself."""

    @property
    def name(self) -> str: ...

    async def start(self, scenario: Scenario) -> None: ...


def draw_gap_s(random: Random, mean_s: float) -> float:
    """How long until the next one, if they come at any time with this mean."""
    return -mean_s * log(1.0 - random.random())


def choose(random: Random, found: Sequence[T]) -> T:
    return found[random.randrange(len(found))]


class Traffic:
    """Applications that call: unary and streaming, patient and not, some of which hang up."""

    name: Final = "traffic"

    async def start(self, scenario: Scenario) -> None:
        random = scenario.random(self.name)
        number = 0
        names = list(scenario.channels)
        mean_s = 1.0 / (scenario.options.rpcs_per_s * len(names))
        while scenario.world.now_s() < scenario.end_s - QUIET_S:
            client = choose(random, names)
            # Most come alone, some in a crowd.
            crowd = 2 + random.randrange(8) if random.random() < 0.05 else 1  # noqa: PLR2004
            for _ in range(crowd):
                rpc = _Rpc(scenario, client, f"rpc-{number}", random)
                scenario.spawn(rpc.run(scenario.channels[client]))
                number += 1
            await pause(draw_gap_s(random, mean_s * crowd))


class _Rpc:
    """One RPC, drawn before it starts."""

    def __init__(self, scenario: Scenario, client: str, name: str, random: Random) -> None:
        self._scenario = scenario
        draw = random.random()
        self._messages = 1 + random.randrange(6) if draw < 0.15 else 0  # noqa: PLR2004
        self._gap_s = random.random()
        self._hangs_up_s = random.random() if random.random() < 0.05 else None  # noqa: PLR2004
        self.lane = "blue" if random.random() < 0.3 else ""  # noqa: PLR2004
        self.record = RpcRecord(
            name=name,
            client=scenario.recorder.clients[client],
            kind="stream" if self._messages else "unary",
            lane=self.lane,
            wait_for_ready=random.random() < 0.4,  # noqa: PLR2004
            # What takes its time has enough of it.
            timeout_s=max(TIMEOUTS_S) if self._messages else choose(random, TIMEOUTS_S),
            started_s=scenario.world.now_s(),
        )
        scenario.recorder.rpcs[name] = self.record

    async def run(self, channel: AioChannel) -> None:
        record = self.record
        self._note("rpc.start", kind=record.kind, lane=record.lane, patient=record.wait_for_ready)
        metadata = [(RPC_ID, record.name)]
        if record.lane:
            metadata.append((LANE_HEADER, record.lane))
        settings = {
            "timeout": record.timeout_s,
            "wait_for_ready": record.wait_for_ready,
            "metadata": tuple(metadata),
        }
        try:
            record.served_by = await self._call(channel, settings)
            record.code = "OK"
        except grpc.aio.AioRpcError as error:
            record.code, record.details = error.code().name, str(error.details())
        except asyncio.CancelledError:
            if not record.is_cancelled_by_us:
                raise
            record.code = "CANCELLED"
        record.ended_s = self._scenario.world.now_s()
        self._note("rpc.end", code=record.code, by=record.served_by, details=record.details)

    async def _call(self, channel: AioChannel, settings: dict[str, Any]) -> str:
        if not self._messages:
            call = channel.unary_unary(UNARY)(b"", **settings)
            self._hang_up_later(call)
            return bytes(await call).decode()
        stream = channel.stream_stream(STREAM)(**settings)
        self._hang_up_later(stream)
        reply = await self._converse(stream)
        if await stream.code() is not grpc.StatusCode.OK:
            raise grpc.aio.AioRpcError(
                await stream.code(),
                await stream.initial_metadata(),
                await stream.trailing_metadata(),
                details=await stream.details(),
            )
        return reply.decode()

    async def _converse(self, stream: Any) -> bytes:  # noqa: ANN401 - grpc.aio's calls have no types
        """Write and read in turn; the last reply, if the stream lives that long."""
        reply = b""
        try:
            for _ in range(self._messages):
                await stream.write(b"")
                received = await stream.read()
                if received is grpc.aio.EOF:
                    break
                reply = bytes(received)
                await pause(self._gap_s)
            await stream.done_writing()
        except asyncio.InvalidStateError:
            pass  # It is over already; the status says why.
        return reply

    def _hang_up_later(self, call: Any) -> None:  # noqa: ANN401
        if self._hangs_up_s is not None:
            self._scenario.spawn(self._hang_up(call, self._hangs_up_s))

    async def _hang_up(self, call: Any, after_s: float) -> None:  # noqa: ANN401
        await pause(after_s)
        if not call.done():
            self.record.is_cancelled_by_us = True
            call.cancel()

    def _note(self, event: str, **fields: object) -> None:
        record = self.record
        self._scenario.world.journal.note(record.client.name, event, rpc=record.name, **fields)


class ConfigChurn:
    """Somebody who changes the routes: weights, new clusters, switches, old ones removed."""

    name: Final = "config churn"

    async def start(self, scenario: Scenario) -> None:
        random = scenario.random(self.name)
        steps: tuple[Callable[[Scenario, Random], None], ...]
        steps = (self._reweigh, self._switch_lane, self._add_cluster, self._prune)
        while True:
            await pause(draw_gap_s(random, 12.0))
            if not scenario.has_faults:
                return
            if random.random() < 0.1:  # noqa: PLR2004 - now and then
                await self._lose_listener(scenario, draw_gap_s(random, 5.0))
            choose(random, steps)(scenario, random)

    async def _lose_listener(self, scenario: Scenario, lasts_s: float) -> None:
        """There is no such service for a while, and when it is back its routes may be others."""
        with scenario.ledger.trouble(CONTROL):
            for control_plane in scenario.world.control_planes.values():
                if control_plane.snapshot.get(LISTENER, SERVICE) is not None:
                    control_plane.set_snapshot(control_plane.snapshot.without(LISTENER, SERVICE))
            await pause(lasts_s)

    def _reweigh(self, scenario: Scenario, random: Random) -> None:
        weights = {name: 1 + random.randrange(10) for name in scenario.plan.lanes[""]}
        scenario.publish(scenario.plan.rerouted(default=weights))

    def _switch_lane(self, scenario: Scenario, random: Random) -> None:
        name = choose(random, sorted(scenario.plan.clusters))
        scenario.publish(scenario.plan.rerouted(blue={name: 1}))

    def _add_cluster(self, scenario: Scenario, random: Random) -> None:
        """A new name for backends that another cluster has, and routes to it at once."""
        plan = scenario.plan
        old = choose(random, [each for each in plan.clusters.values() if not each.leaves])
        name = f"late-{plan.generation}"
        weights = {**plan.lanes[""], name: 1 + random.randrange(10)}
        scenario.publish(plan.with_clusters(**{name: old}).rerouted(default=weights))

    def _prune(self, scenario: Scenario, random: Random) -> None:
        """One cluster less in the routes, and what no route leads to is gone."""
        weights = dict(scenario.plan.lanes[""])
        if len(weights) > 1:
            del weights[choose(random, sorted(weights))]
        scenario.publish(scenario.plan.rerouted(default=weights).pruned())


class EndpointChurn:
    """Somebody who moves endpoints: adds, removes, drains, and moves them between priorities."""

    name: Final = "endpoint churn"

    async def start(self, scenario: Scenario) -> None:
        random = scenario.random(self.name)
        while True:
            await pause(draw_gap_s(random, 8.0))
            if not scenario.has_faults:
                return
            plan = scenario.plan
            names = sorted(name for name, each in plan.clusters.items() if not each.leaves)
            name = choose(random, names)
            changed = self._change(scenario, plan.clusters[name], random)
            scenario.publish(plan.with_clusters(**{name: changed}))

    def _change(self, scenario: Scenario, cluster: ClusterPlan, random: Random) -> ClusterPlan:
        """Draw a place for each backend that the cluster has or gets, the steady ones apart."""
        keep = {scenario.address(name) for name in scenario.steady_backends}
        priorities = [[each for each in found if each in keep] for found in cluster.priorities]
        priorities += [[] for _ in range(2 - len(priorities))]
        moving = [scenario.address(name) for name in scenario.backend_names]
        draining = set()
        for address in moving:
            if address in keep:
                continue
            draw = random.randrange(6)
            if draw < len(priorities):
                priorities[draw].append(address)
                if random.random() < 0.1:  # noqa: PLR2004 - now and then
                    draining.add(address)
        if all(each in draining for each in chain(*priorities)):
            priorities[0].append(choose(random, moving))
            draining.clear()
        found = tuple(tuple(each) for each in priorities if each)
        return replace(cluster, priorities=found, draining=frozenset(draining))


class BackendFaults:
    """Backends that die, hang, get slow, reset, say GOAWAY, or cannot be reached."""

    name: Final = "backend faults"

    async def start(self, scenario: Scenario) -> None:
        random = scenario.random(self.name)
        victims = [n for n in scenario.backend_names if n not in scenario.steady_backends]
        faults = (
            self._kill,
            self._stop,
            self._hang,
            self._cut,
            self._slow,
            self._reset,
            self._truncate,
            self._lose_power,
            self._partition_from_one,
        )
        while True:
            await pause(draw_gap_s(random, 10.0))
            if not scenario.has_faults:
                return
            if random.random() < 0.2:  # noqa: PLR2004 - trouble for nobody, so any backend will do
                scenario.world.backends[choose(random, scenario.backend_names)].say_goaway()
            elif victims:
                backend = scenario.world.backends[choose(random, victims)]
                left_s = scenario.faults_end_s - scenario.world.now_s()
                lasts_s = min(draw_gap_s(random, 20.0), left_s)
                scenario.spawn(choose(random, faults)(scenario, backend, lasts_s))

    async def _kill(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        with scenario.ledger.trouble(backend.name):
            await backend.kill()
            await pause(lasts_s)
            await backend.start()

    async def _stop(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        with scenario.ledger.trouble(backend.name):
            await backend.stop()
            await pause(lasts_s)
            await backend.start()

    async def _lose_power(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        # Who does not send anything meanwhile finds out only afterwards.
        others = scenario.world.others(backend.host)
        with scenario.ledger.trouble(backend.name, aftermath_s=RECOVERY_S):
            backend.host.cut(*others)
            await backend.lose_power()
            await pause(lasts_s)
            backend.host.heal(*others)
            await backend.start()

    async def _hang(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        others = scenario.world.others(backend.host)
        with scenario.ledger.trouble(backend.name):
            backend.host.hang(*others)
            await pause(lasts_s)
            backend.host.wake(*others)

    async def _cut(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        others = scenario.world.others(backend.host)
        with scenario.ledger.trouble(backend.name):
            backend.host.cut(*others)
            await pause(lasts_s)
            backend.host.heal(*others)

    async def _partition_from_one(
        self, scenario: Scenario, backend: Backend, lasts_s: float
    ) -> None:
        client = scenario.world.clients[min(scenario.world.clients)]
        with scenario.ledger.trouble(backend.name):
            backend.host.cut(client.host)
            await pause(lasts_s)
            backend.host.heal(client.host)

    async def _slow(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        others = scenario.world.others(backend.host)
        with scenario.ledger.trouble(backend.name):
            backend.delay_s = lasts_s / 10
            backend.host.throttle(2_000.0, *others)
            await pause(lasts_s)
            backend.delay_s = 0.0
            backend.host.throttle(None, *others)

    async def _reset(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        with scenario.ledger.trouble(backend.name):
            backend.host.reset_connections()
            await pause(min(lasts_s, 1.0))

    async def _truncate(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        with scenario.ledger.trouble(backend.name):
            backend.host.truncate_connections(round(10 * lasts_s) + 1)
            await pause(lasts_s)
            # Who has said little meanwhile would lose the connection at any time later.
            backend.host.reset_connections()
            await pause(1.0)


class ClientChurn:
    """Applications that start anew: a channel is closed, RPCs and all, and another one made."""

    name: Final = "client churn"

    async def start(self, scenario: Scenario) -> None:
        random = scenario.random(self.name)
        names = list(scenario.channels)
        while True:
            await pause(draw_gap_s(random, 60.0))
            if not scenario.has_faults:
                return
            client = choose(random, names)
            for rpc in scenario.recorder.rpcs.values():
                if rpc.client.name == client and rpc.ended_s is None:
                    rpc.is_cancelled_by_us = True
            scenario.world.journal.note(client, "client.restart")
            closing = scenario.channels[client]
            scenario.open_channel(client)
            await closing.close()


class ControlPlaneFaults:
    """Control planes that restart, lose streams, lie, are slow, silent, or cannot be reached."""

    name: Final = "control plane faults"

    async def start(self, scenario: Scenario) -> None:
        random = scenario.random(self.name)
        faults: tuple[Callable[[Scenario, SimControlPlane, float], Awaitable[None]], ...]
        faults = (
            self._restart,
            self._break_streams,
            self._cut,
            self._delay,
            self._withhold,
            self._lie,
        )
        if random.random() < 0.5:  # noqa: PLR2004 - a coin: the first one is late
            first = next(iter(scenario.world.control_planes.values()))
            with scenario.ledger.trouble(CONTROL):
                await self._restart(scenario, first, draw_gap_s(random, 20.0))
        while True:
            await pause(draw_gap_s(random, 20.0))
            if not scenario.has_faults:
                return
            control_plane = choose(random, list(scenario.world.control_planes.values()))
            left_s = scenario.faults_end_s - scenario.world.now_s()
            lasts_s = min(draw_gap_s(random, 15.0), left_s)
            # One after the other: a lie during an outage would be heard by nobody.
            with scenario.ledger.trouble(CONTROL):
                await choose(random, faults)(scenario, control_plane, lasts_s)

    async def _restart(self, _: Scenario, control_plane: SimControlPlane, lasts_s: float) -> None:
        await control_plane.stop()
        await pause(lasts_s)
        await control_plane.start()

    async def _break_streams(
        self, _: Scenario, control_plane: SimControlPlane, lasts_s: float
    ) -> None:
        control_plane.break_streams()
        await pause(min(lasts_s, 1.0))

    async def _cut(
        self, scenario: Scenario, control_plane: SimControlPlane, lasts_s: float
    ) -> None:
        others = scenario.world.others(control_plane.host)
        control_plane.host.cut(*others)
        await pause(lasts_s)
        control_plane.host.heal(*others)

    async def _delay(self, _: Scenario, control_plane: SimControlPlane, lasts_s: float) -> None:
        control_plane.delay(min(lasts_s / 4, 5.0))
        await pause(lasts_s)
        control_plane.release()

    async def _withhold(
        self, scenario: Scenario, control_plane: SimControlPlane, lasts_s: float
    ) -> None:
        types = (LISTENER, ROUTE_CONFIG, CLUSTER, ENDPOINTS)
        control_plane.withhold(types[round(lasts_s * 1000) % len(types)])
        await pause(lasts_s)
        control_plane.release()

    async def _lie(
        self, scenario: Scenario, control_plane: SimControlPlane, lasts_s: float
    ) -> None:
        """A cluster that clients must refuse, and go on with what they have."""
        victim = min(scenario.plan.routed)
        lie = eds_cluster(victim)
        lie.lrs_server.self.SetInParent()
        lie.type = 0  # STATIC, which gRPC knows nothing of.
        scenario.world.journal.note(control_plane.name, "fault.lie", cluster=victim)
        control_plane.set_snapshot(control_plane.snapshot.with_(lie))
        await pause(lasts_s)
        scenario.publish(scenario.plan)


WORKLOADS: Final[tuple[Workload, ...]] = (
    ConfigChurn(),
    EndpointChurn(),
    BackendFaults(),
    ControlPlaneFaults(),
    ClientChurn(),
)
