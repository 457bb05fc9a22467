"""weighted_round_robin under test, with backends that report their load."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from proxyless.base import OK, Metadata, Status
from proxyless.lb import CallTracker, Complete, LoadReport
from proxyless.lb.policies.weighted_round_robin import WeightedRoundRobinFactory
from proxyless.protos import message_class
from proxyless.testing import ANY_RPC
from tests.worlds.policies import Name, PolicyWorld

# Weights can be used at once.
NO_BLACKOUT = {"blackoutPeriod": "0s"}


@dataclass(frozen=True, slots=True)
class End:
    """End of an RPC."""

    trailing_metadata: Metadata = ()
    status: Status = OK


def encode(report: LoadReport) -> bytes:
    message = message_class("xds.data.orca.v3.OrcaLoadReport")(
        cpu_utilization=report.cpu_utilization,
        mem_utilization=report.mem_utilization,
        application_utilization=report.application_utilization,
        rps_fractional=report.qps,
        eps=report.eps,
        named_metrics=report.named_metrics,
        utilization=report.utilization,
    )
    data: bytes = message.SerializeToString()
    return data


def weighing(weight: float) -> LoadReport:
    """Return a report that gives an endpoint this weight."""
    return LoadReport(qps=weight, application_utilization=1.0)


class WeightedWorld(PolicyWorld):
    """weighted_round_robin, and backends that report their load."""

    def __init__(self, *, seed: int = 1) -> None:
        super().__init__(WeightedRoundRobinFactory(), seed=seed)

    def start(self, *names: Name, config: Mapping[str, object] = NO_BLACKOUT) -> None:
        """Update to these endpoints, and make all of them READY."""
        self.update(*names, config=config)
        for name in names:
            self[name].connecting()
            self[name].ready()
        self.expect_never()

    def trackers(self, *names: Name) -> dict[Name, CallTracker]:
        """Pick until there is a tracker for each of these endpoints."""
        found: dict[Name, CallTracker] = {}
        while not found.keys() >= set(names):
            result = self.picker.pick(ANY_RPC)
            assert isinstance(result, Complete)
            assert result.tracker is not None
            found[self.name(result.subchannel.address)] = result.tracker
        return found

    def report(self, **reports: LoadReport) -> None:
        """End an RPC to each of these endpoints with its report."""
        trackers = self.trackers(*reports)
        for name, report in reports.items():
            trackers[name].on_start()
            trackers[name].on_end(End((("endpoint-load-metrics-bin", encode(report)),)))

    def weigh(self, **weights: float) -> None:
        """End an RPC to each of these endpoints with a report of its weight."""
        self.report(**{name: weighing(weight) for name, weight in weights.items()})

    def shares(self, picks: int) -> dict[object, int]:
        return dict(Counter(self.picks(picks)))
