"""Workloads: the traffic, the changes and the faults of a run.

Workloads compose: all are started together, and each has its own random numbers.

api       interface of a workload
traffic   applications that send RPCs
sessions  applications with sessions
churn     changes of routes, endpoints, names and clients
faults    faults of backends and control planes
outages   outages of all control planes, in the middle of a change of the routes
"""

from typing import Final

from tools.simulation.workloads.api import Workload
from tools.simulation.workloads.churn import ClientChurn, ConfigChurn, EndpointChurn, NameChurn
from tools.simulation.workloads.faults import BackendFaults, ControlPlaneFaults
from tools.simulation.workloads.outages import Outages
from tools.simulation.workloads.sessions import SessionTraffic
from tools.simulation.workloads.traffic import Traffic

__all__ = ["TRAFFIC", "WORKLOADS", "Workload"]

TRAFFIC: Final[Workload] = Traffic()
# Optional workloads.
WORKLOADS: Final[tuple[Workload, ...]] = (
    ConfigChurn(),
    EndpointChurn(),
    BackendFaults(),
    ControlPlaneFaults(),
    ClientChurn(),
    SessionTraffic(),
    NameChurn(),
    Outages(),
)
