"""Metrics of our channels beside grpcio's, for the same RPCs on a real server.

Specs: A66. The metrics of `grpcio-observability` are recorded: see `observed_rpcs`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import proxyless
from proxyless.metrics.instruments import INSTRUMENTS, LATENCY_BOUNDARIES, SIZE_BOUNDARIES
from proxyless.otel import OpenTelemetryPlugin
from tests.certificates import CertificateAuthority
from tests.worlds.observed_rpcs import (
    NO_PROXY,
    OPTIONS,
    PLAIN,
    RECORDED,
    REFUSED,
    SERVICE,
    call_blocking,
    new_provider,
    read_metrics,
    running_server,
    summarize,
    target_of,
)
from tests.worlds.transports import until

DURATION = "grpc.client.call.duration"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running_server() as port:
        yield port


def registries(
    provider: MeterProvider, *enable_metrics: str, optional_labels: Sequence[str] = ()
) -> proxyless.Registries:
    plugin = OpenTelemetryPlugin(
        meter_provider=provider, enable_metrics=enable_metrics, optional_labels=optional_labels
    )
    return proxyless.Registries().extended(metrics=[plugin])


def points(reader: InMemoryMetricReader, name: str) -> list[Any]:
    metrics = read_metrics(reader)
    return list(metrics[name].data.data_points) if name in metrics else []


def counts(reader: InMemoryMetricReader, name: str) -> dict[tuple[str, str], int]:
    """How often each method came to each status."""
    return {
        (point.attributes["grpc.method"].rpartition("/")[2], point.attributes["grpc.status"]): (
            point.count
        )
        for point in points(reader, name)
    }


async def call_aio(channel: grpc.aio.Channel) -> None:
    """The RPCs of `call_blocking`, on a channel of the other kind."""

    def stub(kind: str, name: str, *, registered: bool = True) -> grpc.aio.UnaryUnaryMultiCallable:
        return getattr(channel, kind)(f"/{SERVICE}/{name}", _registered_method=registered)

    async def give(*requests: bytes) -> AsyncIterator[bytes]:
        for request in requests:
            yield request

    await stub("unary_unary", "Unary")(PLAIN)
    await stub("unary_unary", "Unary")(b"")
    await stub("unary_unary", "Generic", registered=False)(b"1234")
    assert [each async for each in stub("unary_stream", "Downstream")(b"abc")] == [
        b"abc",
        b"a",
        b"",
    ]
    await stub("stream_unary", "Upstream")(give(b"1", b"22", b"333"))
    assert len([each async for each in stub("stream_stream", "Both")(give(b"4444", b"55555"))]) == 2
    for name in ("Failing", "Missing"):
        with pytest.raises(grpc.aio.AioRpcError):
            await stub("unary_unary", name)(b"fail")
    with pytest.raises(grpc.aio.AioRpcError):
        assert [each async for each in stub("unary_stream", "Broken")(b"fail")]


def expect_as_recorded(reader: InMemoryMetricReader, port: int) -> None:
    recorded = json.loads(RECORDED.read_text())["metrics"]
    found = summarize(reader, port)
    # grpcio's plugin does not measure the duration of a whole RPC.
    found.pop(DURATION)
    assert found == recorded


def test_blocking_rpcs_are_measured_as_grpcio_measures_its_own(port: int) -> None:
    provider, reader = new_provider()
    with proxyless.insecure_channel(
        target_of(port), [NO_PROXY], registries=registries(provider)
    ) as channel:
        call_blocking(channel)
    expect_as_recorded(reader, port)


async def test_asyncio_rpcs_are_measured_as_grpcio_measures_its_own(port: int) -> None:
    provider, reader = new_provider()
    async with proxyless.aio.insecure_channel(
        target_of(port), [NO_PROXY], registries=registries(provider)
    ) as channel:
        await call_aio(channel)
    expect_as_recorded(reader, port)


async def test_duration_of_a_call_includes_all_attempts(port: int) -> None:
    provider, reader = new_provider()
    async with proxyless.aio.insecure_channel(
        target_of(port), OPTIONS, registries=registries(provider)
    ) as channel:
        await channel.unary_unary(f"/{SERVICE}/Refused", _registered_method=True)(b"again")
    assert counts(reader, DURATION) == {("Refused", "OK"): 1}
    attempts = points(reader, "grpc.client.attempt.duration")
    assert points(reader, DURATION)[0].sum >= sum(each.sum for each in attempts)


async def test_each_retry_is_an_attempt(port: int) -> None:
    provider, reader = new_provider()
    async with proxyless.aio.insecure_channel(
        target_of(port), OPTIONS, registries=registries(provider)
    ) as channel:
        await channel.unary_unary(f"/{SERVICE}/Refused", _registered_method=True)(b"again")
    (started,) = points(reader, "grpc.client.attempt.started")
    assert started.value == REFUSED + 1
    by_status = counts(reader, "grpc.client.attempt.duration")
    assert by_status == {("Refused", "UNAVAILABLE"): REFUSED, ("Refused", "OK"): 1}
    sent = points(reader, "grpc.client.attempt.sent_total_compressed_message_size")
    assert sum(point.sum for point in sent) == (REFUSED + 1) * len(b"again")


@pytest.mark.spec("A96-01", "A96-04")
async def test_retries_are_recorded_once_per_rpc(port: int) -> None:
    provider, reader = new_provider()
    async with proxyless.aio.insecure_channel(
        target_of(port), OPTIONS, registries=registries(provider, "grpc.client.call.*")
    ) as channel:
        refused = channel.unary_unary(f"/{SERVICE}/Refused", _registered_method=True)
        await refused(b"again")
        await channel.unary_unary(f"/{SERVICE}/Unary", _registered_method=True)(b"")
    (retries,) = points(reader, "grpc.client.call.retries")
    assert (retries.count, retries.sum) == (1, REFUSED)
    assert retries.attributes["grpc.method"] == f"{SERVICE}/Refused"
    (delay,) = points(reader, "grpc.client.call.retry_delay")
    assert delay.count == 1
    assert 0 < delay.sum <= sum(each.sum for each in points(reader, DURATION))
    assert points(reader, "grpc.client.call.hedges") == []


CUSTOM = "grpc.client.call.custom"


@pytest.mark.spec("A108-01", "A108-02")
def test_blocking_rpcs_have_the_custom_label_of_their_thread(port: int) -> None:
    provider, reader = new_provider()
    with proxyless.insecure_channel(
        target_of(port), [NO_PROXY], registries=registries(provider, optional_labels=[CUSTOM])
    ) as channel:
        unary = channel.unary_unary(f"/{SERVICE}/Unary", _registered_method=True)
        with proxyless.metrics.custom_label("checkout"):
            unary(b"")
            unary.future(b"").result()
        unary(b"")
    by_label = {each.attributes[CUSTOM]: each.count for each in points(reader, DURATION)}
    assert by_label == {"checkout": 2, "": 1}


@pytest.mark.spec("A108-01")
async def test_asyncio_rpcs_have_the_custom_label_of_their_task(port: int) -> None:
    provider, reader = new_provider()
    async with proxyless.aio.insecure_channel(
        target_of(port), [NO_PROXY], registries=registries(provider, optional_labels=[CUSTOM])
    ) as channel:
        unary = channel.unary_unary(f"/{SERVICE}/Unary", _registered_method=True)

        async def call(label: str) -> None:
            with proxyless.metrics.custom_label(label):
                await unary(b"")

        await asyncio.gather(call("checkout"), call("refund"), call("refund"))
    for name in (DURATION, "grpc.client.attempt.duration"):
        by_label = {each.attributes[CUSTOM]: each.count for each in points(reader, name)}
        assert by_label == {"checkout": 1, "refund": 2}


@pytest.mark.spec("A94-01", "A94-03", "A94-04")
async def test_subchannel_metrics_of_a_connection_that_the_server_closes() -> None:
    provider, reader = new_provider()
    labels = ["grpc.disconnect_error", "grpc.security_level"]
    chosen = registries(provider, "grpc.subchannel.*", optional_labels=labels)
    with running_server() as port:
        channel = proxyless.aio.insecure_channel(target_of(port), [NO_PROXY], registries=chosen)
        await channel.unary_unary(f"/{SERVICE}/Unary")(b"")
        (opened,) = points(reader, "grpc.subchannel.open_connections")
        target = {"grpc.target": target_of(port)}
        assert (opened.value, dict(opened.attributes)) == (
            1,
            {**target, "grpc.security_level": "none"},
        )
    async with channel:
        await until(lambda: points(reader, "grpc.subchannel.disconnections"), "a disconnection")
        (lost,) = points(reader, "grpc.subchannel.disconnections")
        assert (lost.value, dict(lost.attributes)) == (
            1,
            {**target, "grpc.disconnect_error": "GOAWAY NO_ERROR"},
        )
        (opened,) = points(reader, "grpc.subchannel.open_connections")
        assert opened.value == 0
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary(f"/{SERVICE}/Unary")(b"")
        (failed,) = points(reader, "grpc.subchannel.connection_attempts_failed")
        assert failed.value >= 1
    (succeeded,) = points(reader, "grpc.subchannel.connection_attempts_succeeded")
    assert succeeded.value == 1


@pytest.mark.spec("A94-04")
async def test_the_security_level_of_a_tls_connection_is_privacy_and_integrity(
    authority: CertificateAuthority,
) -> None:
    provider, reader = new_provider()
    labels = ["grpc.security_level"]
    chosen = registries(provider, "grpc.subchannel.*", optional_labels=labels)
    certificate, key = authority.issue(["localhost"])
    server = grpc.server(ThreadPoolExecutor(1))
    echo = grpc.unary_unary_rpc_method_handler(lambda request, _context: request)
    handlers = grpc.method_handlers_generic_handler(SERVICE, {"Echo": echo})
    server.add_generic_rpc_handlers([handlers])
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
    server.start()
    try:
        async with proxyless.aio.secure_channel(
            f"localhost:{port}",
            proxyless.ssl_channel_credentials(authority.certificate_pem),
            [NO_PROXY],
            registries=chosen,
        ) as channel:
            await channel.unary_unary(f"/{SERVICE}/Echo")(b"")
            (opened,) = points(reader, "grpc.subchannel.open_connections")
            assert opened.value == 1
            assert opened.attributes["grpc.security_level"] == "privacy_and_integrity"
    finally:
        await asyncio.to_thread(server.stop(None).wait)


async def test_sizes_of_compressed_messages_are_those_on_the_wire(port: int) -> None:
    provider, reader = new_provider()
    async with proxyless.aio.insecure_channel(
        target_of(port),
        [NO_PROXY],
        compression=grpc.Compression.Gzip,
        registries=registries(provider),
    ) as channel:
        unary = channel.unary_unary(f"/{SERVICE}/Squeezed", _registered_method=True)
        assert await unary(PLAIN) == PLAIN
    for kind in ("sent", "rcvd"):
        (point,) = points(reader, f"grpc.client.attempt.{kind}_total_compressed_message_size")
        assert 0 < point.sum < len(PLAIN) / 10


async def test_boundaries_are_those_of_a66(port: int) -> None:
    provider, reader = new_provider()
    async with proxyless.aio.insecure_channel(
        target_of(port), [NO_PROXY], registries=registries(provider)
    ) as channel:
        await channel.unary_unary(f"/{SERVICE}/Unary")(b"")
    histograms = [each for each in INSTRUMENTS if each.is_default and each.boundaries]
    assert len(histograms) == 4
    for each in histograms:
        wanted = LATENCY_BOUNDARIES if each.unit == "s" else SIZE_BOUNDARIES
        assert tuple(points(reader, each.name)[0].explicit_bounds) == wanted


async def test_a_registered_plugin_measures_later_channels_only(port: int) -> None:
    provider, reader = new_provider()
    plugin = OpenTelemetryPlugin(meter_provider=provider)
    unary = f"/{SERVICE}/Unary"
    async with proxyless.aio.insecure_channel(target_of(port), [NO_PROXY]) as before:
        with plugin:
            await before.unary_unary(unary, _registered_method=True)(b"not counted")
            during = proxyless.aio.insecure_channel(target_of(port), [NO_PROXY])
        async with during, proxyless.aio.insecure_channel(target_of(port), [NO_PROXY]) as after:
            await during.unary_unary(unary, _registered_method=True)(b"counted")
            await after.unary_unary(unary, _registered_method=True)(b"not counted")
    (sent,) = points(reader, "grpc.client.attempt.sent_total_compressed_message_size")
    assert (sent.count, sent.sum) == (1, len(b"counted"))


async def test_pick_first_metrics_of_a_real_connection(port: int) -> None:
    provider, reader = new_provider()
    succeeded = "grpc.lb.pick_first.connection_attempts_succeeded"
    async with proxyless.aio.insecure_channel(
        target_of(port), [NO_PROXY], registries=registries(provider, succeeded)
    ) as channel:
        await channel.unary_unary(f"/{SERVICE}/Unary")(b"")
    (point,) = points(reader, succeeded)
    assert (point.value, dict(point.attributes)) == (1, {"grpc.target": target_of(port)})


def test_method_has_its_name_when_it_is_registered_later(port: int) -> None:
    provider, reader = new_provider()
    unary = f"/{SERVICE}/Unary"
    with proxyless.insecure_channel(
        target_of(port), [NO_PROXY], registries=registries(provider)
    ) as channel:
        channel.unary_unary(unary)(b"generic")
        channel.unary_unary(unary, _registered_method=True)(b"generated")
    assert counts(reader, DURATION) == {("other", "OK"): 1, ("Unary", "OK"): 1}


def test_rpcs_of_a_blocking_session_are_measured_as_those_of_its_channel(port: int) -> None:
    provider, reader = new_provider()
    with (
        proxyless.insecure_channel(
            target_of(port), [NO_PROXY], registries=registries(provider)
        ) as channel,
        channel.session() as session,
    ):
        session.unary_unary(f"/{SERVICE}/Unary", _registered_method=True)(b"in session")
    assert counts(reader, DURATION) == {("Unary", "OK"): 1}


async def test_rpcs_of_an_asyncio_session_are_measured_as_those_of_its_channel(port: int) -> None:
    provider, reader = new_provider()
    async with (
        proxyless.aio.insecure_channel(
            target_of(port), [NO_PROXY], registries=registries(provider)
        ) as channel,
        channel.session() as session,
    ):
        await session.unary_unary(f"/{SERVICE}/Unary", _registered_method=True)(b"in session")
    assert counts(reader, DURATION) == {("Unary", "OK"): 1}


def test_a_target_without_a_scheme_is_named_in_full(port: int) -> None:
    provider, reader = new_provider()
    with proxyless.insecure_channel(
        f"127.0.0.1:{port}", [NO_PROXY], registries=registries(provider)
    ) as channel:
        channel.unary_unary(f"/{SERVICE}/Unary")(b"")
    (point,) = points(reader, DURATION)
    assert (point.attributes or {})["grpc.target"] == target_of(port)
