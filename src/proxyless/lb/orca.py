"""ORCA load reports of backends: value, parser, and request of out-of-band reports.

Specs: A51 (wire format, per-call reports), A64, A114 (names of metrics).

An `xds.data.orca.v3.OrcaLoadReport` is sent in the trailing metadata of an RPC, or out of band
(`Subchannel.watch_load_reports`). protobuf and the descriptors are imported with the first report,
because most channels never get one.
"""

from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from proxyless.base import Metadata
from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from proxyless.protos import Proto

LOAD_REPORT_KEY: Final = "endpoint-load-metrics-bin"
OUT_OF_BAND_PATH: Final = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics"

_REPORT: Final = "xds.data.orca.v3.OrcaLoadReport"
_REQUEST: Final = "xds.service.orca.v3.OrcaLoadReportRequest"
_CACHED_REPORTS_MAX: Final = 32


@frozen(kw_only=True)
class LoadReport:
    """One report. A value that the backend did not set is 0, or absent from its map."""

    cpu_utilization: float = 0.0
    mem_utilization: float = 0.0
    application_utilization: float = 0.0
    # Requests per second, and errors per second.
    qps: float = 0.0
    eps: float = 0.0
    utilization: Mapping[str, float] = field(default_factory=dict)
    request_cost: Mapping[str, float] = field(default_factory=dict)
    named_metrics: Mapping[str, float] = field(default_factory=dict)

    def metric(self, name: str) -> float:
        """Return the utilization metric of this name in configs (A114); 0 if absent."""
        match name.split(".", maxsplit=1):
            case ["application_utilization"]:
                return self.application_utilization
            case ["cpu_utilization"]:
                return self.cpu_utilization
            case ["mem_utilization"]:
                return self.mem_utilization
            case ["utilization", key]:
                return self.utilization.get(key, 0.0)
            case ["named_metrics", key]:
                return self.named_metrics.get(key, 0.0)
            case _:
                return 0.0


def find_load_report(trailing_metadata: Metadata) -> LoadReport | None:
    """Return the report in the trailing metadata; None if it is absent or malformed."""
    for key, value in trailing_metadata:
        if key == LOAD_REPORT_KEY and isinstance(value, bytes):
            return parse_load_report(value)
    return None


# "the protobuf deserialization needs to happen only once" - A51: several policies may read the
# report of the same RPC.
@lru_cache(_CACHED_REPORTS_MAX)
def parse_load_report(data: bytes) -> LoadReport | None:
    """Parse the bytes; None if they are malformed."""
    from proxyless.protos import DECODE_ERRORS  # noqa: PLC0415 - with the first report

    try:
        report = _message_class(_REPORT).FromString(data)
    except DECODE_ERRORS:
        return None
    return LoadReport(
        cpu_utilization=report.cpu_utilization,
        mem_utilization=report.mem_utilization,
        application_utilization=report.application_utilization,
        qps=report.rps_fractional,
        eps=report.eps,
        utilization=dict(report.utilization),
        request_cost=dict(report.request_cost),
        named_metrics=dict(report.named_metrics),
    )


def encode_report_request(interval_s: float) -> bytes:
    """Encode the request message of an out-of-band stream."""
    request = _message_class(_REQUEST)()
    seconds, nanos = divmod(round(interval_s * 1_000_000_000), 1_000_000_000)
    request.report_interval.seconds, request.report_interval.nanos = seconds, nanos
    data: bytes = request.SerializeToString()
    return data


def _message_class(name: str) -> "type[Proto]":
    from proxyless.protos import message_class  # noqa: PLC0415 - with the first report

    return message_class(name)
