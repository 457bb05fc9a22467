"""A deterministic world in one process: the whole mesh in virtual time.

Nothing of the stack is replaced but time and sockets: real channels, our wire server as backends,
the control plane's own core.

loop       an asyncio loop that does not wait
links      bytes on their way: latency, cuts, slow readers, resets
network    Fabric and SimNetwork: who listens where; `runtime.Network` for one host
journal    one line per event, and a digest that says whether two runs were the same
hosts      Host: a machine, its channels, its faults
backends   Backend: an echo server that can be broken
control    SimControlPlane: a control plane that can be broken
world      World: all of that, from one seed

plans, records, ledger   what a run was meant to be, what happened, what was broken when
draws, options, scenario what a seed chooses, and how a run goes
workloads                what goes on
checkers, purpose        what must hold, and what may fail because somebody wants it to
probes, report           which rare situations were reached, and what is said about many seeds
run, shrink              seeds by the hundred, and a smaller run than the one that failed
explore                  the other way: a small world, and every order of its events
rehearsal                somebody's own mesh, from files, with a script: `proxyless simulate`
pytest_plugin            the fixture `mesh`
"""

from proxyless.sim.backends import STREAM, UNARY, Backend
from proxyless.sim.control import SimControlPlane
from proxyless.sim.hosts import Host
from proxyless.sim.loop import pause
from proxyless.sim.world import Client, World

__all__ = [
    "STREAM",
    "UNARY",
    "Backend",
    "Client",
    "Host",
    "SimControlPlane",
    "World",
    "pause",
]
