"""Load reports of this client and of grpcio's have the same metrics of backends (A64, A85).

Both have the same resources and the same backend. grpcio's client is a process of its own.
"""

import os
from collections.abc import AsyncIterator

import pytest

import proxyless
from proxyless.controlplane import ControlPlane
from tests.worlds.grpcio_peers import grpcio_client
from tests.worlds.orca import TARGET, OrcaBackend, Sums, reporting_mesh, wait_for_sums
from tests.worlds.transports import PATIENCE_S

GUARD = "GRPC_EXPERIMENTAL_XDS_ORCA_LRS_PROPAGATION"
RPCS = 3
CLUSTERS = {
    "unset": (),
    "all": ("named_metrics.*", "cpu_utilization", "mem_utilization", "application_utilization"),
    "some": ("named_metrics.one", "mem_utilization", "eps", "utilization.disk", "named_metrics"),
}
# By cluster: the metrics of one RPC, without and with the switch.
A85 = {
    "unset": {},
    "all": {
        "cpu_utilization": 0.5,
        # The backend does not report it.
        "mem_utilization": 0.0,
        "application_utilization": 2.0,
        "load_metric_stats.named_metrics.one": 1.0,
        "load_metric_stats.named_metrics.two": 4.0,
    },
    "some": {"mem_utilization": 0.0, "load_metric_stats.named_metrics.one": 1.0},
}
A64 = {name: {"load_metric_stats.one": 1.0, "load_metric_stats.two": 4.0} for name in CLUSTERS}


@pytest.fixture
async def backend() -> AsyncIterator[OrcaBackend]:
    backend = OrcaBackend(
        "a",
        cpu_utilization=0.5,
        application_utilization=2.0,
        eps=1.0,
        utilization={"disk": 0.25},
        named_metrics={"one": 1.0, "two": 4.0},
    )
    await backend.start()
    yield backend
    await backend.stop()


async def take_sums(control_plane: ControlPlane) -> dict[str, Sums]:
    return {name: await wait_for_sums(control_plane, name, RPCS) for name in CLUSTERS}


async def report_with_grpcio(backend: OrcaBackend, guard: str) -> dict[str, Sums]:
    environ = {GUARD: guard} if guard else {}
    async with (
        ControlPlane(reporting_mesh(backend, CLUSTERS)) as control_plane,
        grpcio_client(control_plane.bootstrap(), TARGET, **environ) as client,
    ):
        for name in CLUSTERS:
            assert await client.call(f"/{name}/Who", count=RPCS) == {"a": RPCS}
        return await take_sums(control_plane)


async def report_with_proxyless(backend: OrcaBackend) -> dict[str, Sums]:
    async with (
        ControlPlane(reporting_mesh(backend, CLUSTERS)) as control_plane,
        proxyless.aio.insecure_channel(TARGET, bootstrap=control_plane.bootstrap()) as channel,
    ):
        for name in CLUSTERS:
            unary = channel.unary_unary(f"/{name}/Who")
            for _ in range(RPCS):
                assert await unary(b"", timeout=PATIENCE_S) == b"a"
        return await take_sums(control_plane)


@pytest.mark.spec("A85-04", "A85-06", "A85-08")
@pytest.mark.parametrize(
    ("guard", "metrics"), [("", A85), ("true", A85), ("false", A64)], ids=["unset", "true", "false"]
)
async def test_metrics_in_load_reports_are_those_of_grpcio(
    backend: OrcaBackend,
    guard: str,
    metrics: dict[str, dict[str, float]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert GUARD not in os.environ
    expected = {
        name: {metric: (RPCS, RPCS * value) for metric, value in by_metric.items()}
        for name, by_metric in metrics.items()
    }
    assert await report_with_grpcio(backend, guard) == expected
    monkeypatch.setenv(GUARD, guard)
    assert await report_with_proxyless(backend) == expected
