"""Outages of all control planes in the middle of a change of the routes.

New routes lead to a cluster that clients do not have yet. All control planes are lost at a random
moment of its delivery: after the routes, after the cluster, or after the endpoints. Meanwhile the
configuration may change again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxyless.sim.loop import pause
from proxyless.sim.random_choices import choose
from tools.simulation.fault_log import AWAY, CONTROL
from tools.simulation.random_choices import random_bool, random_gap_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proxyless.runtime import Random
    from proxyless.sim.control_plane import SimControlPlane
    from tools.simulation.scenario import Scenario

# Time between two outages, and their length, on average.
_GAP_S: Final = 40.0
_LASTS_S: Final = 30.0
# A change takes a few one-way delays from the control plane to the last resource.
_DELAYS_MAX: Final = 12


class Outages:
    """Changes of routes during which all control planes are lost."""

    name: Final = "outages"

    async def start(self, scenario: Scenario) -> None:
        random = scenario.random(self.name)
        outages = (self._stop, self._kill, self._cut, self._hang, self._say_nothing)
        while True:
            await pause(random_gap_s(random, _GAP_S))
            if not scenario.has_faults:
                return
            # Another fault of control planes could end this one.
            async with scenario.control_faults:
                with scenario.fault_log.fault(CONTROL):
                    self._change_routes(scenario, random)
                    await pause(random.random() * _DELAYS_MAX * scenario.options.latency_s)
                    left_s = scenario.faults_end_s - scenario.world.now_s()
                    lasts_s = max(0.0, min(random_gap_s(random, _LASTS_S), left_s))
                    await self._lose_all(scenario, random, choose(random, outages), lasts_s)

    def _change_routes(self, scenario: Scenario, random: Random) -> None:
        """Move a lane to a new cluster, with the endpoints of an old one."""
        plan = scenario.plan
        found = [each for each in plan.clusters.values() if each.has_eds and each.priorities]
        if found:
            name = f"outage-{plan.generation}"
            lane = choose(random, ("default", "blue"))
            changed = plan.with_clusters(**{name: replace(choose(random, found), drop_share=0.0)})
            scenario.publish(changed.rerouted(**{lane: {name: 1}}))

    async def _lose_all(
        self,
        scenario: Scenario,
        random: Random,
        lose: Callable[[Scenario, SimControlPlane], Awaitable[Callable[[], Awaitable[None]]]],
        lasts_s: float,
    ) -> None:
        """Lose all control planes for this time, perhaps with another change in the middle."""
        planes = list(scenario.world.control_planes.values())
        recoveries = [await lose(scenario, each) for each in planes]
        with scenario.fault_log.fault(AWAY):
            await pause(lasts_s / 2)
            if random_bool(random, 0.5):
                self._change_routes(scenario, random)
            await pause(lasts_s / 2)
        for recover in recoveries:
            await recover()

    async def _stop(
        self, _: Scenario, control_plane: SimControlPlane
    ) -> Callable[[], Awaitable[None]]:
        await control_plane.stop()
        return control_plane.start

    async def _kill(
        self, scenario: Scenario, control_plane: SimControlPlane
    ) -> Callable[[], Awaitable[None]]:
        """As `kill -9`: connections are reset, and bytes on the way are lost."""
        control_plane.host.reset_connections()
        return await self._stop(scenario, control_plane)

    async def _cut(
        self, scenario: Scenario, control_plane: SimControlPlane
    ) -> Callable[[], Awaitable[None]]:
        others = scenario.world.others(control_plane.host)
        control_plane.host.cut(*others)

        async def heal() -> None:
            control_plane.host.heal(*others)

        return heal

    async def _hang(
        self, scenario: Scenario, control_plane: SimControlPlane
    ) -> Callable[[], Awaitable[None]]:
        others = scenario.world.others(control_plane.host)
        control_plane.host.hang(*others)

        async def wake() -> None:
            control_plane.host.wake(*others)

        return wake

    async def _say_nothing(
        self, scenario: Scenario, control_plane: SimControlPlane
    ) -> Callable[[], Awaitable[None]]:
        """Accept streams, and answer no request."""
        for type_url in scenario.options.resource_types:
            control_plane.withhold(type_url)
        control_plane.break_streams()

        async def release() -> None:
            control_plane.release()

        return release
