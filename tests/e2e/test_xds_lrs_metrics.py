"""Metrics of backends reach the control plane in load reports, on real sockets (A64, A85)."""

import pytest

import proxyless
from proxyless.controlplane import CLUSTER, ControlPlane
from tests.worlds.orca import TARGET, OrcaBackend, reporting_cluster, reporting_mesh, wait_for_sums
from tests.worlds.transports import PATIENCE_S, until

ON_BOTH_LOOPS = True


@pytest.mark.spec("A64-01", "A64-04", "A85-07")
async def test_metrics_of_orca_trailers_are_in_load_reports() -> None:
    backend = OrcaBackend("a", cpu_utilization=0.5, named_metrics={"queue": 3.0, "cache": 0.25})
    await backend.start()
    mesh = reporting_mesh(backend, {"a": ["cpu_utilization", "named_metrics.queue"]})
    async with (
        ControlPlane(mesh) as control_plane,
        proxyless.aio.insecure_channel(TARGET, bootstrap=control_plane.bootstrap()) as channel,
    ):
        unary = channel.unary_unary("/a/Get")
        for _ in range(4):
            await unary(b"", timeout=PATIENCE_S)
        first = {"cpu_utilization": (4, 2.0), "load_metric_stats.named_metrics.queue": (4, 12.0)}
        assert await wait_for_sums(control_plane, "a", 4) == first
        # Another cluster resource: other metrics, and the sums start again.
        control_plane.load_reports.clear()
        control_plane.set_snapshot(mesh.with_(reporting_cluster("a", ["named_metrics.cache"])))
        await control_plane.wait_for_ack(CLUSTER)
        await unary(b"", timeout=PATIENCE_S)
        second = {"load_metric_stats.named_metrics.cache": (1, 0.25)}
        assert await wait_for_sums(control_plane, "a", 1) == second
    await until(lambda: not control_plane.streams, "the end of the client")
    await backend.stop()
