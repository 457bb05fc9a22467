"""A deterministic simulator: the whole mesh in one process and in virtual time.

Only time and sockets are replaced: channels are real, backends use our wire server, and control
planes the core of `proxyless.controlplane`.

loop             an asyncio loop that does not wait
links            connections: latency, cuts, slow readers, resets
network          Fabric and SimNetwork: listeners by address; `runtime.Network` for one host
journal          one line per event, and a digest that two equal runs share
hosts            Host: a machine, its channels, its faults
backends         Backend: an echo server with faults
control          SimControlPlane: a control plane with faults
world            World: all of that, from one seed
random_choices   random numbers that follow from the seed
observed_policy  registries that report each config and each pick of a channel
rehearsal        a mesh from files, with a script: `proxyless simulate`
pytest_plugin    the fixture `mesh`

Randomized runs with checkers are in `tools/simulation` of the repository.
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
