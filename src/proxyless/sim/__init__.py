"""Deterministic simulator of a mesh, in one process and in virtual time.

Only time and sockets are replaced: channels are real, backends use the package's HTTP/2 server, and
control planes the core of `proxyless.controlplane`.

loop             SimLoop: an asyncio loop in virtual time
links            connections: latency, cuts, slow readers, resets
network          Fabric and SimNetwork: listeners by address; `runtime.Network` for one host
journal          one line per event, and a digest of all lines
hosts            Host: a machine with its channels and its faults
backends         Backend: an echo server with faults
control_plane    SimControlPlane: a control plane with faults
world            World: hosts, network and journal of one run, from one seed
random_choices   random numbers derived from the seed
observed_policy  registries that report each config and each pick of a channel
replay           re-run of a flight recording, and its comparison: `proxyless replay`
rehearsal        run of a script against a mesh from files: `proxyless simulate`

The pytest fixture is in `proxyless.pytest_plugin`. Randomized runs with checkers are in
`tools/simulation` of the repository.
"""

from proxyless.sim.backends import STREAM, UNARY, Backend
from proxyless.sim.control_plane import SimControlPlane
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
