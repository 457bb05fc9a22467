"""What does a seed choose, and how does one run go?

A seed draws a swarm: how many clients, backends and clusters, which policies, which workloads and
how wild. A run has a fault phase, in which safety holds, and a calm phase, at whose end everything
has converged; then everything is closed, and nothing is left.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxyless.controlplane.snapshot import Snapshot
from proxyless.sim.draws import choose, derived_random, is_drawn
from proxyless.sim.ledger import RECOVERY_S, Ledger
from proxyless.sim.links import LATENCY_S
from proxyless.sim.loop import pause
from proxyless.sim.plans import SERVICE, ClusterPlan, MeshPlan
from proxyless.sim.records import Recorder
from proxyless.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence
    from typing import Any

    from proxyless.front import AioChannel
    from proxyless.runtime import Random
    from proxyless.sim.workloads.api import Workload

# Ten minutes: faults for five, time to recover, and the rest to show that all is well.
FAULTS_S: Final = 300.0
CALM_S: Final = 300.0
# Some runs go on until children that nobody needs are let go: that takes 15 minutes.
LONG_CALM_S: Final = 1_500.0
# At the end of the calm no RPC is started any more, so that none is under way.
QUIET_S: Final = 25.0

# Within a data center, between zones, between continents.
_LATENCIES_S: Final = (LATENCY_S, 0.005, 0.08)
_LB_POLICIES: Final = ("ROUND_ROBIN", "ROUND_ROBIN", "LEAST_REQUEST", "RING_HASH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a seed chooses."""

    clients: int = 2
    backends: int = 6
    clusters: int = 2
    lb_policy: str = "ROUND_ROBIN"
    rpcs_per_s: float = 2.0
    latency_s: float = LATENCY_S
    retries: int = 0
    has_fallback: bool = False
    is_paced: bool = True
    has_aggregate: bool = False
    has_sessions: bool = False
    has_load_reports: bool = False
    # How many backends, of all, faults never touch.
    steady: int = 1
    faults_s: float = FAULTS_S
    calm_s: float = CALM_S
    workloads: tuple[str, ...] = ()

    @classmethod
    def draw(cls, random: Random, known: Sequence[str]) -> Options:
        """A swarm: most runs leave something out, so that what is left goes further."""
        clusters = 1 + random.randrange(3)
        return cls(
            clients=1 + random.randrange(3),
            backends=2 * clusters + random.randrange(4),
            clusters=clusters,
            lb_policy=choose(random, _LB_POLICIES),
            rpcs_per_s=0.5 + 2.0 * random.random(),
            latency_s=choose(random, _LATENCIES_S),
            retries=2 * random.randrange(2),
            has_fallback=is_drawn(random, 0.5),
            is_paced=is_drawn(random, 0.7),
            has_aggregate=is_drawn(random, 0.3),
            has_sessions=is_drawn(random, 0.5),
            has_load_reports=is_drawn(random, 0.5),
            steady=random.randrange(clusters + 1),
            calm_s=LONG_CALM_S if is_drawn(random, 0.1) else CALM_S,
            workloads=tuple(name for name in known if is_drawn(random, 0.7)),
        )


class Scenario:
    """One run: the world, what is planned for it, and what is written down about it."""

    def __init__(self, seed: int, options: Options, *, lines_kept: int | None = 2_000) -> None:
        # Fixed at construction.
        self.seed: Final = seed
        self.options: Final = options
        self.world: Final = World(seed, lines_kept=lines_kept)
        self.recorder: Final = Recorder(self.world.now_s)
        self.ledger: Final = Ledger(self.world.now_s)
        self.world.on_rpc = self.recorder.on_arrival
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
        self.channels: dict[str, AioChannel] = {}
        # At the end of the calm: what each client asks its control plane for, by type.
        self.subscriptions: dict[str, dict[str, set[str]]] = {}
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
        self.publish(self._first_plan())

    def _first_plan(self) -> MeshPlan:
        options = self.options
        clusters: dict[str, ClusterPlan] = {}
        for number in range(options.clusters):
            mine = [self.address(name) for name in self.backend_names[number :: options.clusters]]
            half = max(1, len(mine) - len(mine) // 2)
            priorities = tuple(filter(None, (tuple(mine[:half]), tuple(mine[half:]))))
            clusters[f"cluster-{number}"] = ClusterPlan(priorities, lb_policy=options.lb_policy)
        names = list(clusters)
        lanes: dict[str, Mapping[str, int]] = {"": dict.fromkeys(names, 1)}
        lanes["blue"] = {names[-1]: 1}
        if options.has_aggregate:
            clusters["top"] = ClusterPlan(leaves=tuple(names), lb_policy=options.lb_policy)
            lanes["blue"] = {"top": 1}
        return MeshPlan(
            1,
            lanes,
            clusters,
            retries=options.retries,
            has_sessions=options.has_sessions,
            has_load_reports=options.has_load_reports,
        )

    def address(self, backend: str) -> str:
        return str(self.world.backends[backend].address)

    def backend_at(self, address: str) -> str:
        """The name of whoever lives there."""
        found = (name for name in self.backend_names if self.address(name) == address)
        return next(found, "")

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
        for control_plane in self.world.control_planes.values():
            control_plane.set_snapshot(plan.to_snapshot(control_plane.snapshot))

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
        target = f"xds:///{SERVICE}"
        self.channels[client] = self.world.clients[client].channel(target, registries=registries)

    def _note_subscriptions(self) -> None:
        for control_plane in self.world.control_planes.values():
            for stream in control_plane.streams:
                by_type = self.subscriptions.setdefault(stream.node_id, {})
                for type_url, subscription in stream.subscriptions.items():
                    by_type.setdefault(type_url, set()).update(subscription.names)
