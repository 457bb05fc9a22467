"""Scenario: one run of a seed.

A run has a fault phase and a calm phase, at whose end all clients have converged; then everything
is closed. Its `options` describe the mesh and the workloads.
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
from tools.simulation.fault_log import FaultLog
from tools.simulation.options import CALM_S, Options
from tools.simulation.plans import AUTHORITY, SERVICE, ClusterPlan, MeshPlan
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
# No RPC is started at the end of the calm phase, so that none is under way.
QUIET_S: Final = 25.0


class Scenario:
    """One run. It owns the world, the plans and the records."""

    def __init__(self, seed: int, options: Options, *, lines_kept: int | None = 2_000) -> None:
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
        self.backend_names: Final = [f"web-{n}" for n in range(options.backends)]
        # The current plan, and all plans by generation.
        self.plan = MeshPlan()
        self.generations: dict[int, MeshPlan] = {}
        # All published forms of each cluster.
        self.cluster_forms: dict[str, list[ClusterPlan]] = {}
        # All sets of addresses of the DNS name.
        self.dns_answers: list[frozenset[str]] = []
        self.channels: dict[str, AioChannel] = {}
        # Subscriptions of each client by type, at the end of the calm phase.
        self.subscriptions: dict[str, dict[str, set[str]]] = {}
        # Filled at the first use, because backends are created later.
        self._by_address: dict[str, str] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        # Held by the one fault of control planes at a time.
        self.control_faults: Final = asyncio.Lock()

    def random(self, name: str) -> Random:
        """Random numbers of one workload."""
        return derived_random(self.seed, f"workload/{name}")

    # Before the start

    def build(self) -> None:
        """Create the hosts and publish the first plan."""
        world, options = self.world, self.options
        for name in self.backend_names:
            world.backend(name)
        for name in ("control-1", "control-2")[: 1 + options.has_fallback]:
            plane = world.control_plane(name, Snapshot.of([]))
            plane.is_paced, plane.is_delta = options.is_paced, options.is_delta
        if options.has_collections:
            world.authorities[AUTHORITY] = {}
        for number in range(options.clients):
            world.client(f"client-{number}")
        # The DNS name has the backends of all clusters but the last, if there are others.
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
                # Only every other cluster has drops, so that a mix-up of clusters is noticed.
                drop_share=0.0 if number % 2 else options.drop_share,
            )
        names = list(clusters)
        lanes: dict[str, Mapping[str, int]] = {"": dict.fromkeys(names, 1)}
        lanes["blue"] = {names[-1]: 1}
        leaves = tuple(names)
        if options.has_dns:
            clusters[DNS_CLUSTER] = replace(self._plain_cluster(), dns_name=DNS_NAME)
            # With few leaves, the last one is used more often.
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
        """Options of all clusters but aggregates."""
        return ClusterPlan(
            lb_policy=self.options.lb_policy,
            max_requests=self.options.max_requests,
            has_collections=self.options.has_collections,
            has_outlier_detection=self.options.has_outlier_detection,
        )

    def address(self, backend: str) -> str:
        return str(self.world.backends[backend].address)

    def backend_at(self, address: str) -> str:
        """Name of the backend with this address, or empty."""
        if not self._by_address:
            self._by_address = {self.address(name): name for name in self.backend_names}
        return self._by_address.get(address, "")

    @property
    def steady_backends(self) -> list[str]:
        """Backends without faults: the first ones of the first clusters."""
        return self.backend_names[: self.options.steady]

    # While it runs

    def publish(self, plan: MeshPlan) -> None:
        """Let all control planes serve this plan."""
        self.plan = plan
        self.generations.setdefault(plan.generation, plan)
        for name, cluster in plan.clusters.items():
            forms = self.cluster_forms.setdefault(name, [])
            if cluster not in forms:
                forms.append(cluster)
        resources = [
            each if isinstance(each, Resource) else Resource.of(each)
            for each in plan.to_resources()
        ]
        for control_plane in self.world.control_planes.values():
            before = control_plane.snapshot
            control_plane.set_snapshot(before.replaced(resources, partial=True))

    def answer_name(self, backends: Sequence[str]) -> None:
        """Set the addresses of the DNS name."""
        ips = [self.world.backends[name].host.ip for name in backends]
        self.world.fabric.names[DNS_NAME] = ips
        self.dns_answers.append(frozenset(map(self.address, backends)))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that ends before the run does."""
        task = self.world.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    @property
    def has_faults(self) -> bool:
        """Whether the fault phase still lasts."""
        return self.world.now_s() < self.faults_end_s

    @property
    def pace(self) -> float:
        """Factor of the rate of RPCs: low in a long calm phase."""
        return 1.0 if self.world.now_s() < self.faults_end_s + CALM_S else 0.1

    async def live(self, workloads: Sequence[Workload]) -> None:
        """Execute the run, until everything can be closed."""
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
        """Open the client's channel, and record its configs and picks."""
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
