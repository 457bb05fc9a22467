"""Story for `explore`: no RPC sees a part of a change, fails or waits, in any order of events.

Two changes of the mesh overlap: listener, routes, cluster and endpoints of the second generation,
and of the third. The resources of each type arrive in order, as in ADS; otherwise the events come
in any order: a resource, the loss of one that is about to be replaced, the start of an RPC, the
start and end of its response, its cancellation, a second of time. All invariants are checked after
each step; at the end of each run all RPCs end, and nothing may be left.

A new RPC uses the newest generation that was complete while its listener was the newest: `Rules`
specifies this independently of the product.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from proxyless.base import OK, StatusCode
from proxyless.wire import StreamEnd
from tests.worlds.mesh_generations import KINDS, GenerationRpc, GenerationsWorld
from tests.worlds.xds_dependencies import CDS, EDS, LDS, RDS

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tools.simulation.explore import Chooser

GENERATIONS = 3
RPCS_MAX = 2
SECOND_S = 1.0


class Rules:
    """The generation that a new RPC uses, from the resources that have arrived."""

    def __init__(self) -> None:
        # The newest generation of each kind.
        self.received = dict.fromkeys(KINDS, 0)
        self.in_force = 0
        # Kinds that the control plane has removed.
        self.lost: set[str] = set()

    @property
    def losable(self) -> str:
        """Kinds that may be removed, because newer routes do not use the cluster (A74-18)."""
        replaced = min(self.received["L"], self.received["R"]) > self.in_force
        return "".join(each for each in "CE" if replaced and each not in self.lost)

    def receive(self, kind: str) -> None:
        self.received[kind] += 1
        target = self.received["L"]
        # Each generation has its own names, so a newer resource does not replace an older one.
        if all(newest >= target for newest in self.received.values()):
            if target != self.in_force:
                self.lost.clear()
            self.in_force = target


class TearOrders:
    """A mesh, the rules for it, and the events of both."""

    def __init__(self) -> None:
        self.world = GenerationsWorld()
        self.rules = Rules()
        # RPCs under way, and those of them with response headers, which are committed.
        self.running: list[GenerationRpc] = []
        self.committed: list[GenerationRpc] = []
        # The RPC with which `GenerationsWorld` checks the initial state.
        self._answer(self.world.rpcs[0])

    def steps(self) -> list[str]:
        """Possible next events, for `take`."""
        steps = [kind for kind in KINDS if self.rules.received[kind] + 1 < GENERATIONS]
        if len(self.running) < RPCS_MAX:
            steps.append("start")
        for number, rpc in enumerate(self.running):
            steps += [f"answer {number}", f"cancel {number}"]
            if rpc not in self.committed:
                steps.append(f"commit {number}")
        steps += [f"lose {kind}" for kind in self.rules.losable]
        return [*steps, "second"]

    def take(self, step: str) -> None:
        match step.split():
            case ["start"]:
                self._start()
            case ["answer", number]:
                self._answer(self.running.pop(int(number)))
            case ["cancel", number]:
                self._cancel(self.running.pop(int(number)))
            case ["commit", number]:
                self.committed.append(self.running[int(number)])
                self.committed[-1].stream.head()
                self.world.mesh.settle()
            case ["lose", kind]:
                self.rules.lost.add(kind)
                self.world.mesh.remove({"C": CDS, "E": EDS}[kind], f"cluster-{self.rules.in_force}")
            case ["second"]:
                self.world.mesh.clock.advance(SECOND_S)
            case _:
                self.rules.receive(step)
                self.world.mesh.publish(self.world.part(step, self.rules.received[step]))
        self.check()

    def _start(self) -> None:
        rpc = (
            self.world.start_rpc()
        )  # It checks that the RPC neither waits nor uses two generations.
        assert rpc.generation == self.rules.in_force, f"used generation {rpc.generation}"
        self.running.append(rpc)

    def _answer(self, rpc: GenerationRpc) -> None:
        if rpc not in self.committed:
            rpc.stream.head()
        rpc.stream.end(StreamEnd(OK))
        self.world.mesh.settle()
        assert rpc.observer.status == OK

    def _cancel(self, rpc: GenerationRpc) -> None:
        rpc.call.cancel()
        self.world.mesh.settle()
        assert rpc.observer.status.code is StatusCode.CANCELLED

    def check(self) -> None:
        """Check that no RPC has failed, and that a cluster is in use while it has users."""
        for rpc in self.running:
            assert rpc.observer.is_running, f"failed: {rpc.observer.ends}"
        uncommitted = (rpc.generation for rpc in self.running if rpc not in self.committed)
        users = Counter([self.rules.in_force, *uncommitted])
        mesh = self.world.mesh
        for generation in range(GENERATIONS):
            in_use = mesh.in_use(f"cluster-{generation}")
            assert in_use == users[generation], f"cluster-{generation} is in use {in_use} times"
        assert mesh.children == {f"cluster-{each}" for each in users}, f"kept {mesh.children}"

    def end(self) -> None:
        """End all RPCs: the cluster in force has only the selector as user, others are gone."""
        while self.running:
            self._answer(self.running.pop())
        self.check()
        self._start()
        self._answer(self.running.pop())
        self.check()
        self.world.mesh.channel.close()
        self.world.mesh.settle()
        watches = self.world.mesh.watches
        assert not any(watches.names(each) for each in (LDS, RDS, CDS, EDS))

    def fingerprint(self) -> Hashable:
        """State of the rules, of the RPCs, and of the client."""
        mesh = self.world.mesh
        watched = (tuple(sorted(mesh.watches.names(each))) for each in (RDS, CDS, EDS))
        return (
            tuple(self.rules.received.values()),
            self.rules.in_force,
            tuple(sorted(self.rules.lost)),
            tuple((rpc.generation, rpc in self.committed) for rpc in self.running),
            tuple(watched),
            tuple(sorted(mesh.children)),
            tuple(mesh.backend(f"10.0.0.{each + 1}:80").state for each in range(GENERATIONS)),
            mesh.clock.timers_pending,
        )


def run_story(chooser: Chooser) -> None:
    """Run two overlapping changes with RPCs before, between and after their parts."""
    orders = TearOrders()
    orders.check()
    while (step := chooser.choose(orders.steps(), orders.fingerprint)) is not None:
        orders.take(step)
    orders.end()
