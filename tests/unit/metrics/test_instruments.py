"""Unit tests of proxyless.metrics.instruments, compared with the tables of the gRFCs."""

import pytest

from proxyless.metrics import Kind
from proxyless.metrics.instruments import INSTRUMENTS, LATENCY_BOUNDARIES, SIZE_BOUNDARIES

ATTEMPT = "grpc.client.attempt"
TARGET = ["grpc.target"]
OF_ATTEMPT = ["grpc.method", "grpc.target", "grpc.status"]
OF_CALL = ["grpc.method", "grpc.target"]
OF_PICK = ["grpc.lb.locality", "grpc.lb.backend_service"]
CUSTOM = ["grpc.client.call.custom"]
SERVICE = ["grpc.lb.backend_service"]
OF_ENDPOINT = ["grpc.lb.backend_service", "grpc.lb.locality"]
METHOD = "grpc.method"
OF_DELAY = ["grpc.target", "grpc.delay_type"]
OF_OUTLIER = ["grpc.target", "grpc.lb.outlier_detection.detection_method"]
OF_SERVER = ["grpc.target", "grpc.xds.server"]
OF_TYPE = [*OF_SERVER, "grpc.xds.resource_type"]
OF_CACHE = ["grpc.target", "grpc.xds.authority", "grpc.xds.cache_state", "grpc.xds.resource_type"]

# Name, kind, unit, labels, optional labels, whether it is on by default.
TABLE: list[tuple[str, str, str, list[str], list[str], bool]] = [
    (f"{ATTEMPT}.started", "counter", "{attempt}", OF_CALL, CUSTOM, True),
    (f"{ATTEMPT}.duration", "histogram", "s", OF_ATTEMPT, [*OF_PICK, *CUSTOM], True),
    (
        f"{ATTEMPT}.sent_total_compressed_message_size",
        "histogram",
        "By",
        OF_ATTEMPT,
        [*OF_PICK, *CUSTOM],
        True,
    ),
    (
        f"{ATTEMPT}.rcvd_total_compressed_message_size",
        "histogram",
        "By",
        OF_ATTEMPT,
        [*OF_PICK, *CUSTOM],
        True,
    ),
    ("grpc.client.call.duration", "histogram", "s", OF_ATTEMPT, CUSTOM, True),
    ("grpc.client.call.retries", "histogram", "{retry}", OF_CALL, CUSTOM, False),
    (
        "grpc.client.call.transparent_retries",
        "histogram",
        "{transparent_retry}",
        OF_CALL,
        CUSTOM,
        False,
    ),
    ("grpc.client.call.hedges", "histogram", "{hedge}", OF_CALL, CUSTOM, False),
    ("grpc.client.call.retry_delay", "histogram", "s", OF_CALL, CUSTOM, False),
    ("grpc.client.call.delay.duration", "histogram", "s", OF_DELAY, [METHOD, *CUSTOM], False),
    ("grpc.client.attempt.delay.duration", "histogram", "s", OF_DELAY, [METHOD, *CUSTOM], False),
    (
        "grpc.subchannel.disconnections",
        "counter",
        "{disconnection}",
        TARGET,
        [*OF_ENDPOINT, "grpc.disconnect_error"],
        False,
    ),
    (
        "grpc.subchannel.connection_attempts_succeeded",
        "counter",
        "{attempt}",
        TARGET,
        OF_ENDPOINT,
        False,
    ),
    (
        "grpc.subchannel.connection_attempts_failed",
        "counter",
        "{attempt}",
        TARGET,
        OF_ENDPOINT,
        False,
    ),
    (
        "grpc.subchannel.open_connections",
        "up-down counter",
        "{connection}",
        TARGET,
        ["grpc.security_level", *OF_ENDPOINT],
        False,
    ),
    ("grpc.lb.pick_first.disconnections", "counter", "{disconnection}", TARGET, [], False),
    ("grpc.lb.pick_first.connection_attempts_succeeded", "counter", "{attempt}", TARGET, [], False),
    ("grpc.lb.pick_first.connection_attempts_failed", "counter", "{attempt}", TARGET, [], False),
    ("grpc.lb.wrr.rr_fallback", "counter", "{update}", TARGET, OF_PICK, False),
    ("grpc.lb.wrr.endpoint_weight_not_yet_usable", "counter", "{endpoint}", TARGET, OF_PICK, False),
    ("grpc.lb.wrr.endpoint_weight_stale", "counter", "{endpoint}", TARGET, OF_PICK, False),
    ("grpc.lb.wrr.endpoint_weights", "histogram", "{weight}", TARGET, OF_PICK, False),
    ("grpc.lb.wrr.endpoints_in_slow_start", "counter", "{endpoint}", TARGET, OF_PICK, False),
    (
        "grpc.lb.outlier_detection.ejections_enforced",
        "counter",
        "{ejection}",
        OF_OUTLIER,
        SERVICE,
        False,
    ),
    (
        "grpc.lb.outlier_detection.ejections_unenforced",
        "counter",
        "{ejection}",
        [*OF_OUTLIER, "grpc.lb.outlier_detection.unenforced_reason"],
        SERVICE,
        False,
    ),
    ("grpc.xds_client.connected", "gauge", "{bool}", OF_SERVER, [], False),
    ("grpc.xds_client.server_failure", "counter", "{failure}", OF_SERVER, [], False),
    ("grpc.xds_client.resource_updates_valid", "counter", "{resource}", OF_TYPE, [], False),
    ("grpc.xds_client.resource_updates_invalid", "counter", "{resource}", OF_TYPE, [], False),
    ("grpc.xds_client.resources", "gauge", "{resource}", OF_CACHE, [], False),
]


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_an_instrument_is_as_its_grfc_specifies(
    row: tuple[str, str, str, list[str], list[str], bool],
) -> None:
    (found,) = [each for each in INSTRUMENTS if each.name == row[0]]
    assert (
        found.name,
        found.kind.value,
        found.unit,
        list(found.labels),
        list(found.optional_labels),
        found.is_default,
    ) == row


def test_the_table_has_all_instruments() -> None:
    names = [each.name for each in INSTRUMENTS]
    assert [each for each in names if each.startswith("grpc.")] == [row[0] for row in TABLE]
    assert len(set(names)) == len(names)


def test_instruments_that_no_grfc_has_begin_with_the_name_of_the_package() -> None:
    others = {each.name for each in INSTRUMENTS} - {row[0] for row in TABLE}
    assert others
    assert all(each.startswith("proxyless.") for each in others)


@pytest.mark.spec("A94-07")
def test_the_replaced_instruments_are_those_of_pick_first() -> None:
    replaced = [each.name for each in INSTRUMENTS if each.is_replaced]
    assert replaced == [row[0] for row in TABLE if row[0].startswith("grpc.lb.pick_first.")]


@pytest.mark.spec("A108-01")
def test_instruments_of_calls_and_attempts_have_the_custom_label() -> None:
    for each in INSTRUMENTS:
        is_of_call = each.name.startswith(("grpc.client.call.", "grpc.client.attempt."))
        assert is_of_call is ("grpc.client.call.custom" in each.optional_labels), each.name


def test_boundaries_are_those_of_a66() -> None:
    latency = (
        "0, 0.00001, 0.00005, 0.0001, 0.0003, 0.0006, 0.0008, 0.001, 0.002, 0.003, 0.004, 0.005, "
        "0.006, 0.008, 0.01, 0.013, 0.016, 0.02, 0.025, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.13, "
        "0.16, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8, 1, 2, 5, 10, 20, 50, 100"
    )
    assert list(LATENCY_BOUNDARIES) == [float(each) for each in latency.split(", ")]
    size = (
        "0, 1024, 2048, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864, "
        "268435456, 1073741824, 4294967296"
    )
    assert list(SIZE_BOUNDARIES) == [float(each) for each in size.split(", ")]
    for each in INSTRUMENTS:
        if each.is_default and each.kind is Kind.HISTOGRAM:
            assert each.boundaries == (LATENCY_BOUNDARIES if each.unit == "s" else SIZE_BOUNDARIES)


def test_boundaries_of_retries_are_those_of_a96() -> None:
    boundaries = {each.name: list(each.boundaries) for each in INSTRUMENTS}
    for name in ("retries", "hedges"):
        assert boundaries[f"grpc.client.call.{name}"] == [1, 2, 3, 4, 5]
    assert boundaries["grpc.client.call.transparent_retries"] == [1, 2, 3, 4, 5, 10]
    assert boundaries["grpc.client.call.retry_delay"] == list(LATENCY_BOUNDARIES)
