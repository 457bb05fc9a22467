"""LB policies with one slow or failing backend: the whole channel, in virtual time."""

import re
from collections import Counter

import grpc
import grpc.aio
import pytest

from bench.slow_backend import FAST_S, MILLISECONDS, SLOW_S, simulate
from proxyless.controlplane import Snapshot, eds_cluster, endpoints, listener, route
from proxyless.protos import Proto, message_class
from proxyless.sim import STREAM, UNARY, World, pause

PEAK_EWMA = "proxyless.peak_ewma"
# A link takes up to a millisecond in each direction.
FAST_MS = FAST_S * MILLISECONDS + 2.5
SLOW_MS = SLOW_S * MILLISECONDS


@pytest.mark.spec("PE-02")
@pytest.mark.parametrize(
    ("policy", "is_slow"),
    [("round_robin", True), ("least_request_experimental", True), (PEAK_EWMA, False)],
)
def test_slow_backend_decides_the_99th_percentile_unless_latency_is_measured(
    policy: str, *, is_slow: bool
) -> None:
    outcome = simulate(policy, seconds=5.0)
    assert outcome.failures == 0
    assert outcome.percentile_ms(50) < FAST_MS
    assert (outcome.percentile_ms(99) >= SLOW_MS) == is_slow
    assert (outcome.percentile_ms(99) < FAST_MS) == (not is_slow)


@pytest.mark.spec("PE-05")
def test_failing_backend_gets_no_share_when_failures_count() -> None:
    shares = {
        policy: simulate(policy, is_failing=True, seconds=5.0).failures
        for policy in ("round_robin", "least_request_experimental", PEAK_EWMA)
    }
    assert shares["least_request_experimental"] > shares["round_robin"] > 150
    assert shares[PEAK_EWMA] <= 2


def with_peak_ewma(cluster: Proto) -> Proto:
    """Configure the policy as a control plane does, by a TypedStruct."""
    config = message_class("xds.type.v3.TypedStruct")(type_url=f"type.googleapis.com/{PEAK_EWMA}")
    config.value.fields["decayTime"].string_value = "20s"
    extension = cluster.load_balancing_policy.policies.add().typed_extension_config
    extension.name = PEAK_EWMA
    extension.typed_config.Pack(config)
    return cluster


@pytest.mark.spec("PE-09")
def test_cluster_with_the_policy_avoids_its_slow_backend() -> None:
    """Below cds, outlier_detection, cluster_impl and priority, each with trackers of its own."""
    world = World(seed=1)
    backends = [world.backend(f"web-{number}") for number in range(3)]
    for backend in backends:
        backend.delay_s = FAST_S
    backends[0].delay_s = SLOW_S
    cluster = with_peak_ewma(eds_cluster("web"))
    cluster.outlier_detection.SetInParent()
    world.control_plane(
        "control",
        Snapshot.of(
            [
                listener("api", [route(cluster="web")]),
                cluster,
                endpoints("web", [str(each.address) for each in backends]),
            ]
        ),
    )

    async def story() -> Counter[str]:
        channel = world.client().channel("xds:///api")
        call = channel.unary_unary(UNARY)
        for _ in range(20):
            await call(b"", timeout=10.0)
            await pause(0.1)
        counts = Counter([bytes(await call(b"", timeout=10.0)).decode() for _ in range(300)])
        text = str(channel.explain(UNARY))
        assert "latency" in text
        assert "requests in flight" in text
        return counts

    counts = world.run(story())
    assert counts["web-0"] <= 1
    assert counts["web-1"] > 50
    assert counts["web-2"] > 50
    assert not world.exceptions
    assert not world.left_behind


@pytest.mark.spec("PE-03")
def test_duration_of_a_stream_does_not_count_as_latency() -> None:
    world = World(seed=1)
    backends = [world.backend(f"web-{number}") for number in range(2)]
    target = "ipv4:" + ",".join(str(each.address) for each in backends)
    config = '{"loadBalancingConfig": [{"proxyless.peak_ewma": {}}]}'

    async def story() -> str:
        channel = world.client().channel(target, options=[("grpc.service_config", config)])
        stream = channel.stream_stream(STREAM)()
        for _ in range(2):
            await stream.write(b"")
            await stream.read()
            await pause(60.0)
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        return str(channel.explain(UNARY))

    # Of the other backend: "not measured".
    [latency_ms] = re.findall(r"latency (\S+) ms", world.run(story()))
    assert float(latency_ms) < 10
