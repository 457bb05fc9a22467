"""A64 and A85: backend metrics in load reports, through a whole xDS channel.

The resources are parsed messages, and a real XdsClient reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from proxyless.base import OK, Status, StatusCode
from proxyless.lb import LoadReport
from proxyless.protos import message_class
from proxyless.wire import StreamEnd
from tests.worlds.load_reports import LoadReportWorld
from tests.worlds.meshes import BackendHandle
from tests.worlds.xds_messages import SERVER, parsed_cluster
from tests.worlds.xds_messages import cluster as cluster_message
from tests.worlds.xds_resources import endpoints, locality, prioritized, route_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.lb.api import Cancel, LoadListener
    from proxyless.xds.resources import Cluster

A, B = "10.0.0.1:80", "10.0.0.2:80"
REPORT = message_class("xds.data.orca.v3.OrcaLoadReport")
GUARD = "GRPC_EXPERIMENTAL_XDS_ORCA_LRS_PROPAGATION"
FAILED = Status(StatusCode.INTERNAL, "failed")

# By name: the number of requests with the metric, and its sum.
Sums = dict[str, tuple[int, float]]


def reporting_cluster(
    *metrics: str, environ: Mapping[str, str] | None = None, **fields: object
) -> Cluster:
    """Cluster a, with these entries in lrs_report_endpoint_metrics."""
    message = cluster_message(
        name="a", lrs_server={"self": {}}, lrs_report_endpoint_metrics=metrics, **fields
    )
    return parsed_cluster(message, environ)


class MetricsWorld(LoadReportWorld):
    """Cluster a, whose backends send ORCA reports."""

    def __init__(self, *metrics: str, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(SERVER.uri)
        self.start(
            route_config("a"), reporting_cluster(*metrics, environ=environ), endpoints("a", A)
        )

    def end_call(self, at: str = A, /, status: Status = OK, **report: object) -> None:
        """Make an RPC; it ends with this report."""
        self.call()
        self.end_oldest(at, REPORT(**report).SerializeToString(), status)

    def end_oldest(self, at: str, report: bytes, status: Status = OK) -> None:
        stream = self.streams(at)[0]
        stream.head()
        if status == OK:
            stream.listener.on_message(b"reply")
        stream.end(StreamEnd(status, (("endpoint-load-metrics-bin", report),)))
        self.settle()

    def take_metrics(self) -> dict[str, tuple[Sums, Sums]]:
        """Metrics of the next report by zone: those with their own field, and named ones."""
        stats = self.take_report(SERVER.uri)["a", ""]
        return {each.locality.zone: metrics_of(each) for each in stats.upstream_locality_stats}


def metrics_of(stats: Any) -> tuple[Sums, Sums]:  # noqa: ANN401 - a message
    fields = {
        name: (
            getattr(stats, name).num_requests_finished_with_metric,
            getattr(stats, name).total_metric_value,
        )
        for name in ("cpu_utilization", "mem_utilization", "application_utilization")
        if stats.HasField(name)
    }
    named = {
        each.metric_name: (each.num_requests_finished_with_metric, each.total_metric_value)
        for each in stats.load_metric_stats
    }
    assert len(named) == len(stats.load_metric_stats)
    return fields, named


# ---------------------------------------------------------------------------------------------
# A64


@pytest.mark.spec("A64-01", "A64-03", "A64-04")
@pytest.mark.parametrize(
    ("environ", "prefix"), [({}, "named_metrics."), ({GUARD: "false"}, "")], ids=["A85", "A64"]
)
def test_values_and_requests_are_added_up_by_key(environ: dict[str, str], prefix: str) -> None:
    world = MetricsWorld("named_metrics.*", environ=environ)
    # The example in "Aggregation" of A64.
    world.end_call(named_metrics={"key1": 1.0, "key2": 2.0})
    world.end_call(named_metrics={"key2": 3.0, "key3": 4.0})
    world.end_call()
    expected = {f"{prefix}key1": (1, 1.0), f"{prefix}key2": (2, 5.0), f"{prefix}key3": (1, 4.0)}
    assert world.take_metrics() == {"a": ({}, expected)}


@pytest.mark.spec("A64-01", "A64-03")
def test_metrics_are_counted_by_locality() -> None:
    world = MetricsWorld("cpu_utilization", "named_metrics.*")
    world.publish(prioritized("a", [locality("x", A), locality("y", B)]))
    for _ in range(20):
        world.call()
    served = {zone: len(world.streams(at)) for zone, at in (("x", A), ("y", B))}
    assert min(served.values()) > 0
    for at, value in ((A, 1.0), (B, 10.0)):
        report = REPORT(cpu_utilization=value, named_metrics={"key": value}).SerializeToString()
        for _ in world.streams(at):
            world.end_oldest(at, report)
    x, y = served["x"], served["y"]
    assert world.take_metrics() == {
        "x": ({"cpu_utilization": (x, x)}, {"named_metrics.key": (x, x)}),
        "y": ({"cpu_utilization": (y, 10.0 * y)}, {"named_metrics.key": (y, 10.0 * y)}),
    }


@pytest.mark.spec("A64-01")
def test_metrics_of_failed_rpcs_are_counted() -> None:
    world = MetricsWorld("named_metrics.*")
    world.end_call(named_metrics={"key": 2.0})
    world.end_call(status=FAILED, named_metrics={"key": 3.0})
    assert world.take_metrics() == {"a": ({}, {"named_metrics.key": (2, 5.0)})}


@pytest.mark.spec("A64-01")
def test_rpcs_without_a_valid_orca_report_have_no_metrics() -> None:
    world = MetricsWorld("cpu_utilization", "named_metrics.*")
    world.send_rpc()
    world.call()
    world.end_oldest(A, b"\xff")
    world.call()[0].cancel()
    assert world.take_metrics() == {"a": ({}, {})}


@pytest.mark.spec("A64-02")
def test_out_of_band_orca_reports_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    listeners: list[LoadListener] = []

    def watch_load_reports(
        _handle: BackendHandle, _interval_s: float, listener: LoadListener
    ) -> Cancel:
        listeners.append(listener)
        return lambda: None

    monkeypatch.setattr(BackendHandle, "watch_load_reports", watch_load_reports)
    world = MetricsWorld("cpu_utilization", "named_metrics.*")
    name = (
        "envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3"
        ".ClientSideWeightedRoundRobin"
    )
    weighted = message_class(name)(enable_oob_load_report={"value": True})
    typed = {"type_url": f"type.googleapis.com/{name}", "value": weighted.SerializeToString()}
    policy = {"policies": [{"typed_extension_config": {"name": "wrr", "typed_config": typed}}]}
    metrics = ("cpu_utilization", "named_metrics.*")
    world.publish(reporting_cluster(*metrics, load_balancing_policy=policy))
    [listener] = listeners
    listener(LoadReport(cpu_utilization=0.5, qps=100.0, named_metrics={"key": 1.0}))
    world.send_rpc()
    assert world.take_metrics() == {"a": ({}, {})}


@pytest.mark.spec("A64-05")
def test_sums_start_again_after_each_report() -> None:
    world = MetricsWorld("mem_utilization", "named_metrics.*")
    world.end_call(mem_utilization=0.5, named_metrics={"first": 1.0, "both": 2.0})
    fields, named = world.take_metrics()["a"]
    assert fields == {"mem_utilization": (1, 0.5)}
    assert named == {"named_metrics.first": (1, 1.0), "named_metrics.both": (1, 2.0)}
    world.end_call(mem_utilization=0.25, named_metrics={"both": 4.0})
    fields, named = world.take_metrics()["a"]
    assert fields == {"mem_utilization": (1, 0.25)}
    assert named == {"named_metrics.both": (1, 4.0)}
    world.send_rpc()
    assert world.take_metrics() == {"a": ({}, {})}


# ---------------------------------------------------------------------------------------------
# A85

EVERYTHING: dict[str, Any] = {
    "cpu_utilization": 0.5,
    "mem_utilization": 0.25,
    "application_utilization": 2.0,
    "rps_fractional": 100.0,
    "eps": 1.0,
    "utilization": {"disk": 0.75},
    "request_cost": {"rows": 3.0},
    "named_metrics": {"one": 1.0, "two": 2.0, "cpu_utilization": 3.0},
}
ONE, TWO, THREE = "named_metrics.one", "named_metrics.two", "named_metrics.cpu_utilization"


@pytest.mark.spec("A85-04", "A85-05", "A85-06")
@pytest.mark.parametrize(
    ("metrics", "fields", "named"),
    [
        (["cpu_utilization"], {"cpu_utilization": 0.5}, {}),
        (["mem_utilization"], {"mem_utilization": 0.25}, {}),
        (["application_utilization"], {"application_utilization": 2.0}, {}),
        (["named_metrics.*"], {}, {ONE: 1.0, TWO: 2.0, THREE: 3.0}),
        ([ONE, "named_metrics.absent"], {}, {ONE: 1.0}),
        ([ONE, THREE], {}, {ONE: 1.0, THREE: 3.0}),
        (
            [TWO, "mem_utilization", "named_metrics.*", "cpu_utilization"],
            {"mem_utilization": 0.25, "cpu_utilization": 0.5},
            {ONE: 1.0, TWO: 2.0, THREE: 3.0},
        ),
    ],
)
def test_metrics_of_the_cluster_resource_are_propagated(
    metrics: list[str], fields: dict[str, float], named: dict[str, float]
) -> None:
    world = MetricsWorld(*metrics)
    for _ in range(2):
        world.end_call(**EVERYTHING)
    assert world.take_metrics() == {
        "a": (
            {name: (2, 2 * value) for name, value in fields.items()},
            {name: (2, 2 * value) for name, value in named.items()},
        )
    }


@pytest.mark.spec("A85-02", "A85-03")
@pytest.mark.parametrize(
    "metrics",
    [[], ["named_metrics"], ["*"], ["one"], ["utilization.disk", "request_cost.rows", "eps"]],
)
def test_nothing_is_propagated_when_no_supported_metric_is_listed(metrics: list[str]) -> None:
    world = MetricsWorld(*metrics)
    world.end_call(**EVERYTHING)
    assert world.take_metrics() == {"a": ({}, {})}


@pytest.mark.spec("A85-06")
def test_utilization_is_counted_as_zero_when_the_orca_report_does_not_have_it() -> None:
    world = MetricsWorld("cpu_utilization", "mem_utilization")
    world.end_call(cpu_utilization=0.5)
    world.end_call()
    fields, _ = world.take_metrics()["a"]
    assert fields == {"cpu_utilization": (2, 0.5), "mem_utilization": (2, 0.0)}


@pytest.mark.spec("A85-07")
def test_changed_metrics_are_propagated_for_rpcs_that_start_afterwards() -> None:
    world = MetricsWorld()
    world.end_call(**EVERYTHING)
    world.publish(reporting_cluster(ONE))
    world.end_call(**EVERYTHING)
    world.publish(reporting_cluster("cpu_utilization"))
    world.end_call(**EVERYTHING)
    assert world.take_metrics() == {"a": ({"cpu_utilization": (1, 0.5)}, {ONE: (1, 1.0)})}
    world.publish(reporting_cluster())
    world.end_call(**EVERYTHING)
    assert world.take_metrics() == {"a": ({}, {})}
    assert world.backend(A).accepts == 1


@pytest.mark.spec("A85-07")
def test_rpc_in_flight_keeps_the_metrics_of_its_start_when_they_change() -> None:
    world = MetricsWorld(ONE)
    world.call()
    world.publish(reporting_cluster(TWO))
    world.call()
    report = REPORT(**EVERYTHING).SerializeToString()
    world.end_oldest(A, report)
    assert world.take_metrics() == {"a": ({}, {ONE: (1, 1.0)})}
    world.end_oldest(A, report)
    assert world.take_metrics() == {"a": ({}, {TWO: (1, 2.0)})}


@pytest.mark.spec("A85-08")
@pytest.mark.parametrize("metrics", [(), ("cpu_utilization", ONE)])
def test_all_named_metrics_have_no_prefix_when_the_guard_is_false(metrics: tuple[str, ...]) -> None:
    world = MetricsWorld(*metrics, environ={GUARD: "false"})
    world.end_call(**EVERYTHING)
    named = {"one": (1, 1.0), "two": (1, 2.0), "cpu_utilization": (1, 3.0)}
    assert world.take_metrics() == {"a": ({}, named)}
