"""What goes on in a mesh: who asks, who changes their mind, what breaks?

Workloads compose: each is started with the others, does its own, and draws from chance of its own.

api       what a workload is
traffic   applications that call
sessions  applications that come back to the same backend
churn     routes, endpoints, names and clients that change
faults    backends and control planes that fail
"""

from typing import Final

from proxyless.sim.workloads.api import Workload
from proxyless.sim.workloads.churn import ClientChurn, ConfigChurn, EndpointChurn, NameChurn
from proxyless.sim.workloads.faults import BackendFaults, ControlPlaneFaults
from proxyless.sim.workloads.sessions import SessionTraffic
from proxyless.sim.workloads.traffic import Traffic

__all__ = ["TRAFFIC", "WORKLOADS", "Workload"]

TRAFFIC: Final[Workload] = Traffic()
# Those that a seed may leave out.
WORKLOADS: Final[tuple[Workload, ...]] = (
    ConfigChurn(),
    EndpointChurn(),
    BackendFaults(),
    ControlPlaneFaults(),
    ClientChurn(),
    SessionTraffic(),
    NameChurn(),
)
