"""Changes of routes, endpoints and names, and applications that restart."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from proxyless.controlplane.resource import LISTENER
from proxyless.sim.loop import pause
from proxyless.sim.network import LOOKUP_S
from proxyless.sim.random_choices import choose
from tools.simulation.fault_log import CONTROL
from tools.simulation.plans import SERVICE
from tools.simulation.random_choices import random_bool, random_gap_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.runtime import Random
    from tools.simulation.plans import ClusterPlan
    from tools.simulation.scenario import Scenario


class ConfigChurn:
    """Changes of the routes: weights, new clusters, switches, removed clusters."""

    name: Final = "config churn"

    async def start(self, scenario: Scenario) -> None:
        random = scenario.random(self.name)
        steps: tuple[Callable[[Scenario, Random], None], ...]
        steps = (self._reweigh, self._switch_lane, self._add_cluster, self._prune)
        while True:
            await pause(random_gap_s(random, 12.0))
            if not scenario.has_faults:
                return
            if random_bool(random, 0.1):
                await self._lose_listener(scenario, random_gap_s(random, 5.0))
            choose(random, steps)(scenario, random)

    async def _lose_listener(self, scenario: Scenario, lasts_s: float) -> None:
        """Remove the listener for a while."""
        with scenario.fault_log.fault(CONTROL):
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
        """Add a cluster with the backends of another one, and routes to it at once."""
        plan = scenario.plan
        found = [each for each in plan.clusters.values() if each.priorities or each.dns_name]
        if not found:
            return
        old = choose(random, found)
        name = f"late-{plan.generation}"
        weights = {**plan.lanes[""], name: 1 + random.randrange(10)}
        scenario.publish(plan.with_clusters(**{name: old}).rerouted(default=weights))

    def _prune(self, scenario: Scenario, random: Random) -> None:
        """Remove one cluster from the routes, and all clusters without a route."""
        weights = dict(scenario.plan.lanes[""])
        if len(weights) > 1:
            del weights[choose(random, sorted(weights))]
        scenario.publish(scenario.plan.rerouted(default=weights).pruned())


class EndpointChurn:
    """Changes of endpoints: added, removed, draining, and moved between priorities."""

    name: Final = "endpoint churn"

    async def start(self, scenario: Scenario) -> None:
        random = scenario.random(self.name)
        while True:
            await pause(random_gap_s(random, 8.0))
            if not scenario.has_faults:
                return
            plan = scenario.plan
            names = sorted(name for name, each in plan.clusters.items() if each.has_eds)
            if not names:
                continue
            name = choose(random, names)
            if (
                scenario.options.has_dns
                and scenario.options.has_aggregate
                and random_bool(random, 0.2)
            ):
                await self._empty(scenario, name, random_gap_s(random, 10.0))
                continue
            changed = self._change(scenario, plan.clusters[name], random)
            scenario.publish(plan.with_clusters(**{name: changed}))

    async def _empty(self, scenario: Scenario, name: str, lasts_s: float) -> None:
        """Remove all endpoints of a cluster for a while: an aggregate uses its next leaf."""
        before = scenario.plan.clusters[name]
        scenario.publish(scenario.plan.with_clusters(**{name: replace(before, priorities=())}))
        await pause(min(lasts_s, scenario.faults_end_s - scenario.world.now_s()))
        if name in scenario.plan.clusters:
            scenario.publish(scenario.plan.with_clusters(**{name: before}))

    def _change(self, scenario: Scenario, cluster: ClusterPlan, random: Random) -> ClusterPlan:
        """Choose a random priority, or none, for each backend that is not steady."""
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
                if random_bool(random, 0.1):
                    draining.add(address)
        if not any(priorities):
            priorities[0].append(choose(random, moving))
        if draining.issuperset(chain(*priorities)):
            draining.clear()
        found = tuple(tuple(each) for each in priorities if each)
        drop_share = cluster.drop_share
        if scenario.options.drop_share and random_bool(random, 0.2):
            drop_share = 0.0 if drop_share else scenario.options.drop_share
        return replace(
            cluster, priorities=found, draining=frozenset(draining), drop_share=drop_share
        )


class NameChurn:
    """Changes and failures of DNS."""

    name: Final = "name churn"

    async def start(self, scenario: Scenario) -> None:
        if not scenario.options.has_dns:
            return
        random = scenario.random(self.name)
        fabric = scenario.world.fabric
        while True:
            await pause(random_gap_s(random, 20.0))
            if not scenario.has_faults:
                return
            if random_bool(random, 0.3):
                left_s = scenario.faults_end_s - scenario.world.now_s()
                with scenario.fault_log.fault(CONTROL):
                    fabric.is_dns_down, fabric.lookup_s = random_bool(random, 0.7), random.random()
                    await pause(min(random_gap_s(random, 20.0), left_s))
                    fabric.is_dns_down, fabric.lookup_s = False, LOOKUP_S
            names = [name for name in scenario.backend_names if random_bool(random, 0.5)]
            names = names or [choose(random, scenario.backend_names)]
            # The order matters: the first address is tried first.
            turn = random.randrange(len(names))
            scenario.answer_name(names[turn:] + names[:turn])
            scenario.world.journal.note("world", "dns.changed", backends=names)


class ClientChurn:
    """Applications that restart: a channel is closed with its RPCs, and a new one is opened."""

    name: Final = "client churn"

    async def start(self, scenario: Scenario) -> None:
        random = scenario.random(self.name)
        names = list(scenario.channels)
        while True:
            await pause(random_gap_s(random, 60.0))
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
