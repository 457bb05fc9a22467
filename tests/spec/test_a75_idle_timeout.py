"""A75: idle timeout of session hosts, read from the cluster resource.

Specs: A75 "Reading the idle_timeout field in CDS".
"""

import pytest

from proxyless.base import Status
from proxyless.protos import Proto
from proxyless.xds.parsing.cluster import HTTP_PROTOCOL_OPTIONS, ClusterType
from proxyless.xds.resources import Cluster
from tests.worlds.xds_clients import XdsClientWorld
from tests.worlds.xds_messages import (
    ROUND_ROBIN,
    any_of,
    any_with,
    cluster,
    known_policies,
    parsed_cluster,
    proto,
    refused_cluster,
    typed_struct,
)

HOUR_S = 3600.0
PATH = f'upstream_config.typed_config["{HTTP_PROTOCOL_OPTIONS}"].common_http_protocol_options'


def with_options(typed_config: Proto | None) -> Proto:
    config = {"name": "http"} if typed_config is None else {"typed_config": typed_config}
    return cluster(upstream_config=config)


def with_common(**common: object) -> Proto:
    return with_options(any_of(proto(HTTP_PROTOCOL_OPTIONS, common_http_protocol_options=common)))


def with_idle_timeout(seconds: int = 0, nanos: int = 0) -> Proto:
    return with_common(idle_timeout={"seconds": seconds, "nanos": nanos})


@pytest.mark.spec("A75-16")
def test_idle_timeout_is_an_hour_when_there_is_no_upstream_config() -> None:
    assert parsed_cluster(cluster()).idle_timeout_s == HOUR_S


@pytest.mark.spec("A75-17")
def test_upstream_config_of_another_type_is_refused() -> None:
    name = ROUND_ROBIN.DESCRIPTOR.full_name
    assert refused_cluster(with_options(any_of(ROUND_ROBIN))) == (
        f"field:upstream_config.typed_config error:is {name}, wanted {HTTP_PROTOCOL_OPTIONS}"
    )


@pytest.mark.spec("A75-18")
def test_missing_malformed_and_typed_struct_configs_are_refused() -> None:
    assert refused_cluster(with_options(None)).startswith(
        "field:upstream_config.typed_config.type_url error:is ''"
    )
    assert refused_cluster(with_options(any_with(HTTP_PROTOCOL_OPTIONS, b"\xff"))) == (
        f'field:upstream_config.typed_config["{HTTP_PROTOCOL_OPTIONS}"] '
        f"error:cannot be decoded as {HTTP_PROTOCOL_OPTIONS}"
    )
    assert refused_cluster(with_options(typed_struct(HTTP_PROTOCOL_OPTIONS))) == (
        "field:upstream_config.typed_config "
        f"error:is a TypedStruct of {HTTP_PROTOCOL_OPTIONS}, wanted {HTTP_PROTOCOL_OPTIONS}"
    )


@pytest.mark.spec("A75-19")
def test_idle_timeout_is_an_hour_when_there_are_no_common_options() -> None:
    assert parsed_cluster(with_options(any_of(proto(HTTP_PROTOCOL_OPTIONS)))).idle_timeout_s == (
        HOUR_S
    )


@pytest.mark.spec("A75-20")
def test_idle_timeout_is_an_hour_when_the_field_is_not_set() -> None:
    other_field = with_common(max_stream_duration={"seconds": 5})
    assert parsed_cluster(other_field).idle_timeout_s == HOUR_S


@pytest.mark.spec("A75-21", "A75-22", "A75-23", "A75-24", reason="one table over the four bounds")
@pytest.mark.parametrize(
    ("seconds", "nanos", "expected"),
    [
        (-1, 0, "seconds error:is -1, wanted 0 to 315576000000"),
        (315_576_000_001, 0, "seconds error:is 315576000001, wanted 0 to 315576000000"),
        (0, -1, "nanos error:is -1, wanted 0 to 999999999"),
        (0, 1_000_000_000, "nanos error:is 1000000000, wanted 0 to 999999999"),
    ],
)
def test_idle_timeout_out_of_range_is_refused(seconds: int, nanos: int, expected: str) -> None:
    assert refused_cluster(with_idle_timeout(seconds, nanos)) == (
        f"field:{PATH}.idle_timeout.{expected}"
    )


@pytest.mark.spec("A75-25", "A75-26")
@pytest.mark.parametrize(
    ("seconds", "nanos", "expected_s"),
    [
        (0, 0, 0.0),
        (0, 1, 1e-9),
        (0, 999_999_999, 0.999999999),
        (1, 500_000_000, 1.5),
        (90, 0, 90.0),
        (315_576_000_000, 0, 315_576_000_000.0),
        (315_576_000_000, 999_999_999, 315_576_000_000.999999999),
    ],
)
def test_idle_timeout_is_the_value_of_the_field(
    seconds: int, nanos: int, expected_s: float
) -> None:
    assert parsed_cluster(with_idle_timeout(seconds, nanos)).idle_timeout_s == expected_s


@pytest.mark.spec("A75-27")
def test_clusters_with_different_idle_timeouts_are_not_equal() -> None:
    first, same = parsed_cluster(with_idle_timeout(5)), parsed_cluster(with_idle_timeout(5))
    assert first == same
    assert first != parsed_cluster(with_idle_timeout(6))


class RecordingWatcher:
    """A watcher that records its resources."""

    def __init__(self) -> None:
        self.resources: list[Cluster | Status] = []

    def on_resource(self, resource: Cluster | Status) -> None:
        self.resources.append(resource)

    def on_ambient_error(self, status: Status) -> None:
        raise AssertionError(f"wanted no ambient error, got {status}")


@pytest.mark.spec("A75-28")
def test_bad_idle_timeout_is_in_the_nack_and_other_clusters_are_applied() -> None:
    world, kind = XdsClientWorld(), ClusterType(known_policies(), environ={})
    bad, good = RecordingWatcher(), RecordingWatcher()
    world.client.watch(kind, "bad", bad)
    world.client.watch(kind, "good", good)
    world.settle()
    world.server().take_requests()
    resources = [with_idle_timeout(-1), with_idle_timeout(7)]
    for message, name in zip(resources, ["bad", "good"], strict=True):
        message.name = name
    response = proto("envoy.service.discovery.v3.DiscoveryResponse", type_url=kind.type_url)
    for message in resources:
        response.resources.add(type_url=kind.type_url, value=message.SerializeToString())
    world.server().ads.send_to_client(response.SerializeToString())
    world.settle()
    assert good.resources == [parsed_cluster(resources[1])]
    assert not any(isinstance(resource, Cluster) for resource in bad.resources)
    [nack] = world.server().take_requests()
    expected = f'cluster "bad": [field:{PATH}.idle_timeout.seconds error:is -1, '
    assert expected in nack.error_detail.message
    assert "'good'" not in nack.error_detail.message
