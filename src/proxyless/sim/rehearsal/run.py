"""Execution of a script in a simulated world.

The machines of an inventory, a control plane that serves the meshes, and clients with real channels
run in one world. Each RPC is recorded with the result that its application gets, and each event
with its time; `verdicts` and `report` evaluate the records.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import grpc

from proxyless.base import Locality
from proxyless.base.frozen import frozen
from proxyless.lb import Complete
from proxyless.lb.policies.per_endpoint.endpoint_list import REMOVED_RETENTION_S
from proxyless.sim.backends import RPC_ID, rpc_id_of
from proxyless.sim.journal import without_logs
from proxyless.sim.loop import pause
from proxyless.sim.observed_policy import observed_registries
from proxyless.sim.random_choices import choose, derived_random
from proxyless.sim.rehearsal.faults import ActiveFaults, FaultInjector
from proxyless.sim.rehearsal.inventory import Member
from proxyless.sim.rehearsal.script import (
    ControlFaultAction,
    Event,
    FaultAction,
    Flow,
    Push,
    Script,
)
from proxyless.sim.world import World
from proxyless.xds.config.xds_config import ClusterError
from proxyless.xds.filters.attributes import CLUSTER
from proxyless.xds.resources import HealthStatus
from proxyless.xds.routing.cluster_refs import CLUSTER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from proxyless.assembly import Registries
    from proxyless.controlplane import Nack, Snapshot
    from proxyless.front import AioChannel
    from proxyless.lb.api import PickInfo, PickResult
    from proxyless.sim.backends import Backend
    from proxyless.sim.control_plane import SimControlPlane
    from proxyless.sim.rehearsal.inventory import Inventory
    from proxyless.xds.config.xds_config import ClusterResult, XdsConfig

# Addresses that are not used in meshes (RFC 2544).
_SUBNET: Final = "198.18"
_TICKS: Final = 20
_CONTROL: Final = "control"
_NO_MEMBER: Final = Member("", Locality())


@dataclass(slots=True)
class Rpc:
    """One RPC. Times are seconds from the start of the run."""

    started_s: float
    flow: str
    has_session: bool = False
    # Cluster of the route, and the machine at which the RPC arrived last.
    cluster: str = ""
    machine: str = ""
    member: Member = _NO_MEMBER
    ended_s: float = 0.0
    code: str = ""
    details: str = ""

    @property
    def is_ok(self) -> bool:
        return self.code == "OK"

    @property
    def took_s(self) -> float:
        return self.ended_s - self.started_s


@frozen
class TimelineEntry:
    """One line of the timeline."""

    at_s: float
    what: str


@frozen
class RunRecord:
    """Records of one run."""

    rpcs: tuple[Rpc, ...]
    # The events of the script.
    timeline: tuple[TimelineEntry, ...]
    nacks: tuple[TimelineEntry, ...]
    # Picks outside the config in force.
    stray_picks: tuple[str, ...]
    left_behind: tuple[str, ...]
    digest: str


def run_script(
    script: Script,
    inventory: Inventory,
    snapshots: Sequence[Snapshot],
    on_progress: Callable[[float], None] = lambda _share: None,
) -> RunRecord:
    """Run a script. There is one snapshot per mesh; the first is served from the start."""
    with without_logs():
        return _Run(script, inventory, snapshots, on_progress).run()


@frozen
class _ConfigInForce:
    """The clusters of a config of one channel, and the time from which it was in force."""

    at_s: float
    clusters: Mapping[str, _ClusterAddresses]


class _PickRecorder:
    """Records where RPCs are sent, and picks outside the config. Called by observed policies."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.sent: dict[str, Rpc] = {}
        self.stray_picks: list[str] = []
        # By channel: the config in force, and earlier ones while they count (D45).
        self._configs: dict[str, list[_ConfigInForce]] = {}

    def registries(self, channel: str) -> Registries:
        return observed_registries(
            partial(self._on_config, channel), partial(self._on_pick, channel)
        )

    def _on_config(self, channel: str, config: XdsConfig, _children: frozenset[str]) -> None:
        clusters = {name: _ClusterAddresses.of(found) for name, found in config.clusters.items()}
        configs = self._recent_configs(channel)
        self._configs[channel] = [*configs, _ConfigInForce(self._now_s(), clusters)]

    def _recent_configs(self, channel: str) -> list[_ConfigInForce]:
        """Configs that were in force while a removed endpoint may still be used (D45)."""
        configs, oldest_s = self._configs.get(channel, []), self._now_s() - REMOVED_RETENTION_S
        is_over = [following.at_s <= oldest_s for following in configs[1:]]
        return configs[sum(is_over) :]

    def _on_pick(self, channel: str, info: PickInfo, result: PickResult) -> None:
        rpc = self.sent.get(rpc_id_of(info.metadata))
        if rpc is None:
            return
        rpc.cluster = (info.attributes.get(CLUSTER) or "").removeprefix(CLUSTER_PREFIX)
        if not isinstance(result, Complete):
            return
        address = str(result.subchannel.address)
        nothing = _ClusterAddresses()
        clusters = [
            each.clusters.get(rpc.cluster, nothing) for each in self._recent_configs(channel)
        ]
        # A draining endpoint keeps its sessions.
        is_kept = rpc.has_session and address in clusters[-1].draining
        if not is_kept and not any(address in each.live for each in clusters):
            what = f"{channel} picked {address}, which is not in cluster {rpc.cluster!r}"
            self.stray_picks.append(f"at {self._now_s():.3f} s {what}")


@frozen
class _ClusterAddresses:
    """Addresses of a cluster in a config; of an aggregate, those of all its leaves."""

    live: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()

    @classmethod
    def of(cls, result: ClusterResult) -> _ClusterAddresses:
        live: set[str] = set()
        draining: set[str] = set()
        leaves = () if isinstance(result, ClusterError) else result
        for leaf in leaves:
            priorities = () if leaf.endpoints is None else leaf.endpoints.priorities
            for endpoint in (e for p in priorities for each in p for e in each.endpoints):
                is_draining = endpoint.health is HealthStatus.DRAINING
                (draining if is_draining else live).update(map(str, endpoint.addresses))
        return cls(frozenset(live), frozenset(draining))


class _Run:
    """One run. It owns the world and the records."""

    def __init__(
        self,
        script: Script,
        inventory: Inventory,
        snapshots: Sequence[Snapshot],
        on_progress: Callable[[float], None],
    ) -> None:
        self._script = script
        self._inventory = inventory
        self._snapshots = snapshots
        self._on_progress = on_progress
        self._world = world = World(script.seed, lines_kept=0, subnet=_SUBNET)
        self._picks = _PickRecorder(world.now_s)
        self._channels: dict[tuple[str, str, bool], AioChannel] = {}
        self._control: SimControlPlane = world.control_plane(_CONTROL, snapshots[0])
        self._start_s = world.now_s()
        self._fault_injector = FaultInjector(world, self._control)
        # Number of the mesh that is served.
        self._mesh = 0
        self._active_faults = ActiveFaults()
        self._rpcs: list[Rpc] = []
        self._timeline: list[TimelineEntry] = []
        self._refusals: list[TimelineEntry] = []

    def run(self) -> RunRecord:
        self._build()
        world = self._world
        try:
            world.run(self._live())
        except asyncio.CancelledError as error:
            raise KeyboardInterrupt from error
        return RunRecord(
            tuple(self._rpcs),
            tuple(self._timeline),
            tuple(self._refusals),
            tuple(self._picks.stray_picks),
            (*world.exceptions, *world.left_behind),
            world.journal.digest,
        )

    def _build(self) -> None:
        world, script = self._world, self._script
        world.fabric.latency_s = script.latency_s
        for machine in self._inventory.machines.values():
            world.backend(machine.name, addresses=machine.addresses, methods=script.methods)
        world.fabric.names.update(self._inventory.names)
        for number in range(script.clients):
            world.client(f"client-{number + 1}")
        world.on_rpc = self._on_arrival
        world.journal.subscribe(self._on_event)

    async def _live(self) -> None:
        self._start_s = self._world.now_s()
        for flow in self._script.flows:
            for client in self._clients_of(flow):
                for target in self._targets_of(flow):
                    self._open((client, target, flow.has_sessions))
        with _interruptible():
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tick())
                group.create_task(self._execute_events())
                for flow in self._script.flows:
                    group.create_task(self._send_all(flow, group))

    def _now_s(self) -> float:
        return self._world.now_s() - self._start_s

    async def _wait_until(self, at_s: float) -> None:
        await pause(max(0.0, at_s - self._now_s()))

    async def _tick(self) -> None:
        """Report the progress; with or without a display, so that each run is the same."""
        for number in range(1, _TICKS + 1):
            await self._wait_until(self._script.duration_s * number / _TICKS)
            self._on_progress(number / _TICKS)

    async def _send_all(self, flow: Flow, group: asyncio.TaskGroup) -> None:
        """Send each RPC in its own slot of time, at a random moment."""
        random = derived_random(self._script.seed, f"flow/{flow.name}")
        targets, clients = self._targets_of(flow), self._clients_of(flow)
        for number in range(max(1, round(flow.rate * self._script.duration_s))):
            await self._wait_until((number + random.random()) / flow.rate)
            if self._now_s() >= self._script.duration_s:
                return
            key = (choose(random, clients), choose(random, targets), flow.has_sessions)
            group.create_task(self._send(flow, key, choose(random, flow.methods)))

    def _targets_of(self, flow: Flow) -> tuple[str, ...]:
        return flow.targets or self._inventory.targets

    def _clients_of(self, flow: Flow) -> list[str]:
        return list(self._world.clients)[: flow.clients]

    def _open(self, key: tuple[str, str, bool]) -> AioChannel:
        """Open a channel or a session; a client has one of each for a target."""
        found = self._channels.get(key)
        if found is None:
            client, target, has_session = key
            if has_session:
                found = self._open((client, target, False)).session()
            else:
                found = self._world.clients[client].channel(
                    target,
                    options=self._script.options,
                    registries=self._picks.registries(f"{client} to {target}"),
                )
            self._channels[key] = found
        return found

    async def _send(self, flow: Flow, key: tuple[str, str, bool], method: str) -> None:
        name = f"rpc-{len(self._rpcs) + 1}"
        rpc = Rpc(self._now_s(), flow.name, flow.has_sessions)
        self._rpcs.append(rpc)
        self._picks.sent[name] = rpc
        self._world.journal.note(key[0], "rpc.start", rpc=name)
        call = self._channels[key].unary_unary(method)(
            b"",
            timeout=flow.timeout_s,
            wait_for_ready=flow.wait_for_ready or None,
            metadata=(*flow.metadata, (RPC_ID, name)),
        )
        try:
            await call
            rpc.code = "OK"
        except grpc.aio.AioRpcError as error:
            rpc.code, rpc.details = error.code().name, str(error.details())
        rpc.ended_s = self._now_s()
        del self._picks.sent[name]
        note = {"rpc": name, "code": rpc.code, "by": rpc.machine, "details": rpc.details}
        self._world.journal.note(key[0], "rpc.end", **note)

    def _on_arrival(self, backend: Backend, rpc_id: str) -> None:
        rpc = self._picks.sent.get(rpc_id)
        if rpc is not None:
            machine = self._inventory.machines[backend.name]
            clusters = self._inventory.leaves([rpc.cluster])
            rpc.machine = machine.name
            rpc.member = machine.member_in(self._mesh, clusters)

    def _on_event(self, _host: str, event: str, fields: dict[str, object]) -> None:
        if event == "controlplane.nack":
            nack: Nack = fields["nack"]  # type: ignore[assignment]
            self._refusals.append(TimelineEntry(self._now_s(), str(nack)))

    async def _execute_events(self) -> None:
        for event in self._script.events:
            await self._wait_until(event.at_s)
            match event.action:
                case FaultAction():
                    backends = self._find_backends(event, event.action)
                    total = len(self._inventory.machines)
                    self._add_entry(f"{event.action} ({len(backends)} of {total} endpoints)")
                    for backend in backends:
                        await self._fault_injector.inject(event.action, backend)
                case ControlFaultAction():
                    self._add_entry(str(event.action))
                    await self._fault_injector.inject_control(event.action)
                case Push():
                    self._add_entry(str(event.action))
                    self._mesh += 1
                    self._control.set_snapshot(self._snapshots[self._mesh])

    def _find_backends(self, event: Event, action: FaultAction) -> list[Backend]:
        """Backends that match now; for the end of a fault, those that matched when it began."""
        if event.is_end:
            return self._active_faults.end(event.path)
        machines = self._inventory.select(action.where, self._mesh)
        backends = [self._world.backends[each.name] for each in machines]
        self._active_faults.begin(event.path, action.fault, backends)
        return backends

    def _add_entry(self, what: str) -> None:
        self._timeline.append(TimelineEntry(self._now_s(), what))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C cancel the task, as with `asyncio.run`, so that everything is closed."""
    task = asyncio.current_task()
    assert task is not None, "it is called in a task"
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: task.cancel())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
