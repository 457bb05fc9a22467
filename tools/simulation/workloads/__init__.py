"""Workloads: the traffic, the changes and the faults of a run.

Workloads compose: all are started together, and each has its own random numbers.

api       what a workload is
traffic   applications that call
sessions  applications that come back to the same backend
churn     routes, endpoints, names and clients that change
faults    backends and control planes that fail
"""

from typing import Final

from tools.simulation.workloads.api import Workload
from tools.simulation.workloads.churn import ClientChurn, ConfigChurn, EndpointChurn, NameChurn
from tools.simulation.workloads.faults import BackendFaults, ControlPlaneFaults
from tools.simulation.workloads.sessions import SessionTraffic
from tools.simulation.workloads.traffic import Traffic

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
