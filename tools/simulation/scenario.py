"""Scenario: one run of a seed.

A run has a fault phase, in which safety holds, and a calm phase, at whose end everything has
converged; then everything is closed, and nothing is left. What the mesh is like and what happens to
it is in its `options`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxyless.controlplane.resource import Resource
from proxyless.controlplane.snapshot import Snapshot
from proxyless.sim.loop import pause
from proxyless.sim.random_choices import derived_random
from proxyless.sim.world import World
from tools.simulation.fault_log import RECOVERY_S, FaultLog
from tools.simulation.options import CALM_S, Options
from tools.simulation.plans import SERVICE, ClusterPlan, MeshPlan
from tools.simulation.records import Recorder

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence
    from typing import Any

    from proxyless.front import AioChannel
    from proxyless.runtime import Random
    from tools.simulation.workloads.api import Workload

__all__ = ["QUIET_S", "Options", "Scenario"]

DNS_CLUSTER: Final = "dns"
DNS_NAME: Final = "web.mesh"
# At the end of the calm no RPC is started any more, so that none is under way.
QUIET_S: Final = 25.0


class Scenario:
    """One run: the world, what is planned for it, and what is written down about it."""

    def __init__(self, seed: int, options: Options, *, lines_kept: int | None = 2_000) -> None:
        # Fixed at construction.
        self.seed: Final = seed
        self.options: Final = options
        self.world: Final = World(seed, lines_kept=lines_kept)
        self.recorder: Final = Recorder(self.world.now_s)
        self.fault_log: Final = FaultLog(self.world.now_s)
        self.world.on_rpc = self.recorder.on_arrival
        self.world.journal.subscribe(self.recorder.on_event)
        self.world.fabric.latency_s = options.latency_s
        self.start_s: Final = self.world.now_s()
        self.faults_end_s: Final = self.start_s + options.faults_s
        self.end_s: Final = self.faults_end_s + options.calm_s
        # The mesh, as it is meant to be; every plan there was, by generation of its routes.
        self.backend_names: Final = [f"web-{n}" for n in range(options.backends)]
        self.plan = MeshPlan()
        self.generations: dict[int, MeshPlan] = {}
        # Every form that a cluster ever had, by name, so that no other may be seen.
        self.cluster_forms: dict[str, list[ClusterPlan]] = {}
        # Every set of addresses that the name ever had.
        self.dns_answers: list[frozenset[str]] = []
        self.channels: dict[str, AioChannel] = {}
        # At the end of the calm: what each client asks its control plane for, by type.
        self.subscriptions: dict[str, dict[str, set[str]]] = {}
        # Made when somebody asks, because backends are made later.
        self._by_address: dict[str, str] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    def random(self, name: str) -> Random:
        """Chance for one workload."""
        return derived_random(self.seed, f"workload/{name}")

    # Before the start

    def build(self) -> None:
        """Make the hosts and the first plan."""
        world, options = self.world, self.options
        for name in self.backend_names:
            world.backend(name)
        for name in ("control-1", "control-2")[: 1 + options.has_fallback]:
            world.control_plane(name, Snapshot.of([])).is_paced = options.is_paced
        for number in range(options.clients):
            world.client(f"client-{number}")
        # Not those of the last cluster, if there are others.
        last = options.clusters - 1
        others = [n for at, n in enumerate(self.backend_names) if at % options.clusters != last]
        self.answer_name(others or self.backend_names)
        self.publish(self._first_plan())

    def _first_plan(self) -> MeshPlan:
        options = self.options
        clusters: dict[str, ClusterPlan] = {}
        for number in range(options.clusters):
            mine = [self.address(name) for name in self.backend_names[number :: options.clusters]]
            half = max(1, len(mine) - len(mine) // 2)
            priorities = tuple(filter(None, (tuple(mine[:half]), tuple(mine[half:]))))
            clusters[f"cluster-{number}"] = replace(
                self._plain_cluster(),
                priorities=priorities,
                localities=options.localities,
                # Some have drops and some have none, so that one may not be taken for the other.
                drop_share=0.0 if number % 2 else options.drop_share,
            )
        names = list(clusters)
        lanes: dict[str, Mapping[str, int]] = {"": dict.fromkeys(names, 1)}
        lanes["blue"] = {names[-1]: 1}
        leaves = tuple(names)
        if options.has_dns:
            clusters[DNS_CLUSTER] = replace(self._plain_cluster(), dns_name=DNS_NAME)
            # The shorter the row, the more often its end is reached.
            leaves = (names[-1], DNS_CLUSTER)
            if not options.has_aggregate:
                lanes[""] = {**lanes[""], DNS_CLUSTER: 1}
        if options.has_aggregate:
            clusters["top"] = ClusterPlan(leaves=leaves, lb_policy=options.lb_policy)
            lanes["blue"] = {"top": 1}
        return MeshPlan(
            1,
            lanes,
            clusters,
            retries=options.retries,
            has_sessions=options.has_sessions,
            has_load_reports=options.has_load_reports,
            has_injected_faults=options.has_injected_faults,
        )

    def _plain_cluster(self) -> ClusterPlan:
        """What all clusters have, aggregates apart."""
        return ClusterPlan(
            lb_policy=self.options.lb_policy,
            max_requests=self.options.max_requests,
            has_outlier_detection=self.options.has_outlier_detection,
        )

    def address(self, backend: str) -> str:
        return str(self.world.backends[backend].address)

    def backend_at(self, address: str) -> str:
        """The name of whoever lives there."""
        if not self._by_address:
            self._by_address = {self.address(name): name for name in self.backend_names}
        return self._by_address.get(address, "")

    @property
    def steady_backends(self) -> list[str]:
        """Those that faults leave alone: the first ones of the first clusters."""
        return self.backend_names[: self.options.steady]

    # While it runs

    def publish(self, plan: MeshPlan) -> None:
        """Tell the control planes what the mesh is to look like."""
        self.plan = plan
        self.generations.setdefault(plan.generation, plan)
        for name, cluster in plan.clusters.items():
            forms = self.cluster_forms.setdefault(name, [])
            if cluster not in forms:
                forms.append(cluster)
        resources = [Resource.of(each) for each in plan.to_resources()]
        for control_plane in self.world.control_planes.values():
            before = control_plane.snapshot
            control_plane.set_snapshot(before.replaced(resources, partial=True))

    def answer_name(self, backends: Sequence[str]) -> None:
        """Have the name service tell these, whenever somebody asks."""
        ips = [self.world.backends[name].host.ip for name in backends]
        self.world.fabric.names[DNS_NAME] = ips
        self.dns_answers.append(frozenset(map(self.address, backends)))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done that ends by itself before the run does."""
        task = self.world.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    @property
    def has_faults(self) -> bool:
        """Whether the fault phase still lasts."""
        return self.world.now_s() < self.faults_end_s

    @property
    def is_converged(self) -> bool:
        """Whether so much time has passed since the last fault that all must be well."""
        return self.world.now_s() >= self.faults_end_s + RECOVERY_S

    @property
    def pace(self) -> float:
        """How much goes on, from 1 down: in a long calm, not much."""
        return 1.0 if self.world.now_s() < self.faults_end_s + CALM_S else 0.1

    async def live(self, workloads: Sequence[Workload]) -> None:
        """The whole run, up to the moment before everything is closed."""
        for name in self.world.clients:
            self.open_channel(name)
        running = [self.world.loop.create_task(each.start(self)) for each in workloads]
        await pause(self.end_s - self.world.now_s())
        for task in running:
            await task
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        self._note_subscriptions()

    def open_channel(self, client: str) -> None:
        """The client's own channel, and what it does is written down."""
        registries = self.recorder.registries(client)
        max_s = self.options.reconnect_max_s
        options = [("grpc.max_reconnect_backoff_ms", round(max_s * 1000))] if max_s else None
        self.channels[client] = self.world.clients[client].channel(
            f"xds:///{SERVICE}", options=options, registries=registries
        )

    def _note_subscriptions(self) -> None:
        for control_plane in self.world.control_planes.values():
            for stream in control_plane.streams:
                by_type = self.subscriptions.setdefault(stream.node_id, {})
                for type_url, subscription in stream.subscriptions.items():
                    by_type.setdefault(type_url, set()).update(subscription.names)
