"""Faults of backends, of control planes, and of the network between.

Faults end with the fault phase. The method that causes one also ends it, inside
`scenario.fault_log.fault(...)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import OK, Status, StatusCode
from proxyless.controlplane.builders import eds_cluster
from proxyless.sim.loop import pause
from proxyless.sim.random_choices import choose
from tools.simulation.fault_log import CONTROL, RECOVERY_S
from tools.simulation.random_choices import random_bool, random_gap_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proxyless.sim.backends import Backend
    from proxyless.sim.control_plane import SimControlPlane
    from tools.simulation.scenario import Scenario


_FAILING: Final = Status(StatusCode.UNAVAILABLE, "failing on purpose")


class BackendFaults:
    """Faults of backends: killed, hung, slow, reset, GOAWAY, unreachable."""

    name: Final = "backend faults"

    async def start(self, scenario: Scenario) -> None:
        random = scenario.random(self.name)
        victims = [n for n in scenario.backend_names if n not in scenario.steady_backends]
        faults = [
            self._kill,
            self._stop,
            self._hang,
            self._cut,
            self._slow,
            self._reset,
            self._truncate,
            self._lose_power,
            self._partition_from_one,
        ]
        if scenario.options.reply_bytes:
            faults.append(self._truncate_replies)
        if scenario.options.has_outlier_detection:
            faults += [self._fail_rpcs] * 3
        if scenario.options.has_long_outage and victims:
            # It is removed from the victims, so that no other fault starts it again.
            gone = scenario.world.backends[victims.pop(random.randrange(len(victims)))]
            scenario.spawn(self._kill(scenario, gone, scenario.options.faults_s))
        while True:
            await pause(random_gap_s(random, 10.0))
            if not scenario.has_faults:
                return
            if random_bool(random, 0.2):  # GOAWAY is not a fault, so any backend may send it.
                scenario.world.backends[choose(random, scenario.backend_names)].say_goaway()
            elif victims:
                backend = scenario.world.backends[choose(random, victims)]
                left_s = scenario.faults_end_s - scenario.world.now_s()
                lasts_s = min(random_gap_s(random, 20.0), left_s)
                scenario.spawn(choose(random, faults)(scenario, backend, lasts_s))

    async def _kill(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        with scenario.fault_log.fault(backend.name):
            await backend.kill()
            await pause(lasts_s)
            await backend.start()

    async def _stop(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        with scenario.fault_log.fault(backend.name):
            await backend.stop()
            await pause(lasts_s)
            await backend.start()

    async def _lose_power(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        # A client that sends nothing notices the loss only afterwards.
        others = scenario.world.others(backend.host)
        with scenario.fault_log.fault(backend.name, aftermath_s=RECOVERY_S):
            backend.host.cut(*others)
            await backend.lose_power()
            await pause(lasts_s)
            backend.host.heal(*others)
            await backend.start()

    async def _hang(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        others = scenario.world.others(backend.host)
        with scenario.fault_log.fault(backend.name):
            backend.host.hang(*others)
            await pause(lasts_s)
            backend.host.wake(*others)

    async def _cut(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        others = scenario.world.others(backend.host)
        with scenario.fault_log.fault(backend.name):
            backend.host.cut(*others)
            await pause(lasts_s)
            backend.host.heal(*others)

    async def _partition_from_one(
        self, scenario: Scenario, backend: Backend, lasts_s: float
    ) -> None:
        client = scenario.world.clients[min(scenario.world.clients)]
        with scenario.fault_log.fault(backend.name):
            backend.host.cut(client.host)
            await pause(lasts_s)
            backend.host.heal(client.host)

    async def _slow(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        others = scenario.world.others(backend.host)
        with scenario.fault_log.fault(backend.name):
            backend.delay_s = lasts_s / 10
            backend.host.throttle(2_000.0, *others)
            await pause(lasts_s)
            backend.delay_s = 0.0
            backend.host.throttle(None, *others)

    async def _reset(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        with scenario.fault_log.fault(backend.name):
            backend.host.reset_connections()
            await pause(min(lasts_s, 1.0))

    async def _truncate(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        with scenario.fault_log.fault(backend.name):
            backend.host.truncate_connections(round(10 * lasts_s) + 1)
            await pause(lasts_s)
            # Connections with little traffic would otherwise be reset at any later time.
            backend.host.reset_connections()
            await pause(1.0)

    async def _truncate_replies(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        with scenario.fault_log.fault(backend.name):
            backend.host.truncate_replies(round(500 * lasts_s) + 1)
            await pause(lasts_s)
            backend.host.reset_connections()
            await pause(1.0)

    async def _fail_rpcs(self, scenario: Scenario, backend: Backend, lasts_s: float) -> None:
        with scenario.fault_log.fault(backend.name):
            backend.status = _FAILING
            await pause(lasts_s)
            backend.status = OK


class ControlPlaneFaults:
    """Faults of control planes: restarts, lost streams, delays, invalid resources, unreachable."""

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
            self._serve_invalid_cluster,
        )
        if random_bool(random, 0.5):  # The first one is late.
            first = next(iter(scenario.world.control_planes.values()))
            async with scenario.control_faults:
                with scenario.fault_log.fault(CONTROL):
                    await self._restart(scenario, first, random_gap_s(random, 20.0))
        while True:
            await pause(random_gap_s(random, 20.0))
            if not scenario.has_faults:
                return
            control_plane = choose(random, list(scenario.world.control_planes.values()))
            left_s = scenario.faults_end_s - scenario.world.now_s()
            lasts_s = min(random_gap_s(random, 15.0), left_s)
            # One fault at a time: an invalid resource would have no effect during an outage.
            async with scenario.control_faults:
                with scenario.fault_log.fault(CONTROL):
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
        types = scenario.options.resource_types
        control_plane.withhold(types[round(lasts_s * 1000) % len(types)])
        await pause(lasts_s)
        control_plane.release()

    async def _serve_invalid_cluster(
        self, scenario: Scenario, control_plane: SimControlPlane, lasts_s: float
    ) -> None:
        """Serve a cluster that clients must reject, keeping the last valid one."""
        name = min(scenario.plan.routed)
        invalid = eds_cluster(name)
        invalid.lrs_server.self.SetInParent()
        invalid.type = 0  # STATIC, which gRPC does not support.
        scenario.world.journal.note(control_plane.name, "fault.invalid", cluster=name)
        control_plane.set_snapshot(control_plane.snapshot.with_(invalid))
        await pause(lasts_s)
        scenario.publish(scenario.plan)
