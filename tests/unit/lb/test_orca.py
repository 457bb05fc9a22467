"""Unit tests of proxyless.lb.orca."""

import subprocess
import sys

import pytest

from proxyless.lb.orca import (
    LOAD_REPORT_KEY,
    LoadReport,
    encode_report_request,
    find_load_report,
    parse_load_report,
)
from proxyless.protos import message_class

FULL = LoadReport(
    cpu_utilization=0.5,
    mem_utilization=0.25,
    application_utilization=0.75,
    qps=1000.5,
    eps=2.5,
    utilization={"gpu": 0.125},
    request_cost={"rows": 40.0},
    named_metrics={"queue": 3.0, "a.b": 4.0},
)


def encode(report: LoadReport) -> bytes:
    message = message_class("xds.data.orca.v3.OrcaLoadReport")(
        cpu_utilization=report.cpu_utilization,
        mem_utilization=report.mem_utilization,
        application_utilization=report.application_utilization,
        rps_fractional=report.qps,
        eps=report.eps,
        utilization=report.utilization,
        request_cost=report.request_cost,
        named_metrics=report.named_metrics,
    )
    data: bytes = message.SerializeToString()
    return data


@pytest.mark.parametrize("report", [FULL, LoadReport(), LoadReport(qps=1.0)])
def test_parser_returns_the_encoded_report(report: LoadReport) -> None:
    assert parse_load_report(encode(report)) == report


def test_parser_returns_none_for_malformed_bytes() -> None:
    assert parse_load_report(b"\xff\xff\xff") is None


def test_parser_caches_reports_by_their_bytes() -> None:
    data = encode(FULL)
    assert parse_load_report(data) is parse_load_report(bytes(bytearray(data)))


def test_load_report_is_found_in_trailing_metadata() -> None:
    trailers = (("a", "b"), ("other-bin", b"x"), (LOAD_REPORT_KEY, encode(FULL)), ("c", "d"))
    assert find_load_report(trailers) == FULL
    assert find_load_report((("a", "b"), ("other-bin", encode(FULL)))) is None
    assert find_load_report(()) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("application_utilization", 0.75),
        ("cpu_utilization", 0.5),
        ("mem_utilization", 0.25),
        ("utilization.gpu", 0.125),
        ("named_metrics.queue", 3.0),
        ("named_metrics.a.b", 4.0),
        ("named_metrics.a", 0.0),
        ("utilization.queue", 0.0),
        # A114 does not list these.
        ("request_cost.rows", 0.0),
        ("rps_fractional", 0.0),
        ("eps", 0.0),
        ("named_metrics", 0.0),
        ("", 0.0),
    ],
)
def test_metric_is_found_by_its_name_in_configs(name: str, value: float) -> None:
    assert FULL.metric(name) == value


@pytest.mark.parametrize(
    ("interval_s", "seconds", "nanos"), [(10, 10, 0), (0.25, 0, 250_000_000), (1.1, 1, 100_000_000)]
)
def test_request_contains_the_interval(interval_s: float, seconds: int, nanos: int) -> None:
    request_class = message_class("xds.service.orca.v3.OrcaLoadReportRequest")
    request = request_class.FromString(encode_report_request(interval_s))
    assert (request.report_interval.seconds, request.report_interval.nanos) == (seconds, nanos)


def test_protobuf_is_not_imported_before_the_first_report() -> None:
    code = (
        "import sys; import proxyless.lb.policies.weighted_round_robin.policy, proxyless.channel;"
        "sys.exit('google.protobuf' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
