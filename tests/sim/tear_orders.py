"""Does an RPC meet half of a change, fail or wait, whatever comes in whatever order?

Two changes of the mesh overlap: listener, routes, cluster and endpoints of the second generation,
and of the third. Each type comes in its own order, as ADS says, and otherwise anything comes at any
time: a resource, the loss of one that is about to be replaced, the start of an RPC, the first and
the last of its answer, its cancellation, a second of time. After each step every promise is
checked; at the end of each telling all RPCs end, and nothing may be left.

A new RPC meets the newest generation of which everything was there while its listener was the
newest: that is all that `Rules` says, and it does not know how.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from proxyless.base import OK, StatusCode
from proxyless.wire import StreamEnd
from tests.spec.torn_world import KINDS, Rpc, TornWorld
from tests.spec.xds_world import CDS, EDS, LDS, RDS

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tools.simulation.explore import Chooser

GENERATIONS = 3
RPCS_MAX = 2
SECOND_S = 1.0


class Rules:
    """Which generation a new RPC meets. Driven by what the control plane says."""

    def __init__(self) -> None:
        # The newest generation of each kind that was heard.
        self.heard = dict.fromkeys(KINDS, 0)
        self.in_force = 0
        # What the control plane has no longer.
        self.lost: set[str] = set()

    @property
    def losable(self) -> str:
        """The kinds that may go: routes and listener do not need this cluster any more (A74-18)."""
        replaced = min(self.heard["L"], self.heard["R"]) > self.in_force
        return "".join(each for each in "CE" if replaced and each not in self.lost)

    def hear(self, kind: str) -> None:
        self.heard[kind] += 1
        wanted = self.heard["L"]
        # Parts have names of their own generation: an older one is not replaced by a newer.
        if all(newest >= wanted for newest in self.heard.values()):
            if wanted != self.in_force:
                self.lost.clear()
            self.in_force = wanted


class TearOrders:
    """A mesh, the rules that it has to keep, and what may happen to both."""

    def __init__(self) -> None:
        self.world = TornWorld(generations=GENERATIONS)
        self.rules = Rules()
        # Those under way; of which these have the first of their answer, and so are committed.
        self.running: list[Rpc] = []
        self.committed: list[Rpc] = []
        # The one that looks whether everything is as it should be at the start.
        self._answer(self.world.rpcs[0])

    def steps(self) -> list[str]:
        """What may happen next, as words that `take` understands."""
        steps = [kind for kind in KINDS if self.rules.heard[kind] + 1 < GENERATIONS]
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
                self.world.lose({"C": CDS, "E": EDS}[kind], f"cluster-{self.rules.in_force}")
            case ["second"]:
                self.world.mesh.clock.advance(SECOND_S)
            case _:
                self.rules.hear(step)
                self.world.hear(self.world.part(step, self.rules.heard[step]))
        self.check()

    def _start(self) -> None:
        rpc = self.world.call()  # Which says that it neither waits nor meets a mix.
        assert rpc.generation == self.rules.in_force, f"met generation {rpc.generation}"
        self.running.append(rpc)

    def _answer(self, rpc: Rpc) -> None:
        if rpc not in self.committed:
            rpc.stream.head()
        rpc.stream.end(StreamEnd(OK))
        self.world.mesh.settle()
        assert rpc.observer.status == OK

    def _cancel(self, rpc: Rpc) -> None:
        rpc.call.cancel()
        self.world.mesh.settle()
        assert rpc.observer.status.code is StatusCode.CANCELLED

    def check(self) -> None:
        """No RPC has failed, and a cluster is in use as long as somebody uses it."""
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
        """All RPCs end. What is in force is in use by nobody but the selector, the rest is gone."""
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
        """What was said, who runs, and what the client watches and holds because of that."""
        mesh = self.world.mesh
        watched = (tuple(sorted(mesh.watches.names(each))) for each in (RDS, CDS, EDS))
        return (
            tuple(self.rules.heard.values()),
            self.rules.in_force,
            tuple(sorted(self.rules.lost)),
            tuple((rpc.generation, rpc in self.committed) for rpc in self.running),
            tuple(watched),
            tuple(sorted(mesh.children)),
            tuple(mesh.backend(f"10.0.0.{each + 1}:80").state for each in range(GENERATIONS)),
            mesh.clock.timers_pending,
        )


def tell(chooser: Chooser) -> None:
    """Two changes that overlap, with RPCs before, between and after their parts."""
    orders = TearOrders()
    orders.check()
    while (step := chooser.choose(orders.steps(), orders.fingerprint)) is not None:
        orders.take(step)
    orders.end()
