"""Who changes their mind: operators of routes and endpoints, and applications that start anew."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from proxyless.controlplane.resource import LISTENER
from proxyless.sim.draws import choose, draw_gap_s, is_drawn
from proxyless.sim.ledger import CONTROL
from proxyless.sim.loop import pause
from proxyless.sim.plans import SERVICE

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.runtime import Random
    from proxyless.sim.plans import ClusterPlan
    from proxyless.sim.scenario import Scenario


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
            if is_drawn(random, 0.1):
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
                if is_drawn(random, 0.1):
                    draining.add(address)
        if not any(priorities):
            priorities[0].append(choose(random, moving))
        if draining.issuperset(chain(*priorities)):
            draining.clear()
        found = tuple(tuple(each) for each in priorities if each)
        return replace(cluster, priorities=found, draining=frozenset(draining))


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
